//! Walks through indexes of records, as a simulated machine's caches see them.
//!
//! An index here has no memory of its own: only the addresses of its nodes matter, and they follow
//! from the number of its records. It never changes, as these workloads insert nothing.

use drtm_rdma::{Cost, Endpoint, Port};
use serde::{Deserialize, Serialize};

use super::key;

/// An index that clients walk through from its root to a record, on their own node.
///
/// # Example
///
/// ```
/// use drtm_workloads::ycsb::Walk;
///
/// assert_eq!(Walk::BinaryTree.path(0, 1_000_000).count(), 20);
/// assert_eq!(Walk::BTree.path(0, 1_000_000).count(), 2 * 5, "two lines of each node");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Walk {
    /// A balanced binary tree with a key and a pointer to the record in each node, of a line, as
    /// the maps of the C++ library are.
    BinaryTree,
    /// A tree of nodes of 256 bytes, which is what Google's cpp-btree aims at: 15 keys of 8 bytes,
    /// with as much for each value, and full nodes.
    BTree,
}

/// A cache line's bytes.
const LINE: u64 = 64;

/// Above the memory of every node.
const BEGIN: u64 = 1 << 44;

/// The lines of a node of the B-tree, and its children.
const LINES: u64 = 4;
const CHILDREN: u64 = 16;

impl Walk {
    /// Returns the addresses of the lines that a lookup reads, from the root on. Keys are spread
    /// evenly, so that a key's place in the order follows from it.
    pub fn path(self, number: u64, records: u64) -> impl Iterator<Item = u64> {
        let rank = ((u128::from(key(number)) * u128::from(records)) >> u64::BITS) as u64;
        let children = match self {
            Self::BinaryTree => 2,
            Self::BTree => CHILDREN,
        };
        // As many levels as it takes to tell all records from each other.
        let levels =
            std::iter::successors(Some(1), move |of: &u64| (*of < records).then(|| of.saturating_mul(children)));
        let mut first = 0;
        levels.skip(1).flat_map(move |end| {
            // Of the nodes of this level, the one that has the record.
            let nodes = end / children;
            let node = first + (u128::from(rank) * u128::from(nodes) / u128::from(records.max(1))) as u64;
            first += nodes;
            let (begin, count) = match self {
                Self::BinaryTree => (node, 1),
                // The head of the node, and where the search in it ends.
                Self::BTree => (LINES * node, 2),
            };
            let last = 1 + rank % (LINES - 1);
            (0..count).map(move |nth| BEGIN + LINE * (begin + nth * last))
        })
    }

    /// Charges for a lookup.
    pub(super) fn charge<P: Port>(self, endpoint: &Endpoint<P>, number: u64, records: u64) {
        self.path(number, records).for_each(|at| endpoint.charge(Cost::Access { at, bytes: 8, writes: false }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn walks_begin_at_one_node_and_end_at_many() {
        for (walk, levels, lines) in [(Walk::BinaryTree, 10, 1), (Walk::BTree, 3, 2)] {
            let paths: Vec<Vec<u64>> = (0..1_000).map(|number| walk.path(number, 1_000).collect()).collect();
            assert!(paths.iter().all(|path| path.len() == levels * lines), "{walk:?}");
            let at = |place: usize| paths.iter().map(|path| path[place]).collect::<BTreeSet<_>>();
            assert_eq!(at(0), BTreeSet::from([BEGIN]), "{walk:?}: the root's first line");
            let mut leaves = at((levels - 1) * lines);
            assert!(leaves.len() > 60, "{walk:?}: {} leaves", leaves.len());
            let above = at((levels - 2) * lines);
            assert!(above.iter().all(|node| !leaves.contains(node)), "{walk:?}: levels share no node");
            leaves.extend(above);
            assert!(leaves.iter().all(|at| at % LINE == 0), "{walk:?}: lines are aligned");
        }
    }
}
