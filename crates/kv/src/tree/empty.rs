//! Removing all keys at once.

use drtm_htm::{Engine, Waiter};

use super::{Cursor, Table, Tree, TreeKeys, kind::Kind, node::Node};
use crate::{
    Current, Emptied, KvError, Version, Worker,
    record::value_sink::NoValue,
    store::{Census, Entry, layout::Target},
};

/// How often a node is read that is being changed. It is then not counted.
const TRIES: u32 = 1 << 10;

impl<E: Engine, K: TreeKeys> Tree<E, K> {
    /// Removes all keys, whose versions are up to `last`. Visits all nodes, and few records: most
    /// memory is freed by whole spans, once no operation can refer to it.
    ///
    /// No other operation on the tree may be running, except [visits](crate::Store::visit), and
    /// those that take out absent rows or move records. No record may have older versions.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{KvTable, Store, Version};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (tree, mut worker) = (store.tree()?, store.worker()?);
    /// (0..1_000).try_for_each(|key| tree.insert(&mut worker, key, b"value").map(drop))?;
    /// let emptied = tree.empty(&mut worker, Version::new(10_000))?;
    /// assert_eq!((emptied.records, tree.count()?), (1_000, 0));
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    pub fn empty(&self, worker: &mut Worker<E>, last: Version) -> Result<Emptied, KvError> {
        let table = &*self.table;
        table.base.raise_floor(last)?;
        let mut census = Census::begin(worker);
        table.count_records(&mut census)?;
        census.decide();
        let (waiter, mut key) = (Waiter::new(), K::Owned::default());
        // From the end, where an empty leaf leaves the tree most easily.
        while self.last_key(&mut key)? {
            if !table.empty_leaf::<K>(&key, worker, &mut census)? {
                waiter.pause();
            }
        }
        let emptied = census.end();
        table.base.count(worker, (emptied.records as i64).wrapping_neg())?;
        self.forget_hints();
        Ok(emptied)
    }

    /// Looks for the last key. Returns whether there is one.
    fn last_key(&self, key: &mut K::Owned) -> Result<bool, KvError> {
        let mut cursor = Cursor::<K>::down(..);
        let last = self.advance(&mut cursor, &mut Current, &mut (), &mut NoValue)?;
        Ok(last.map(|(last, _)| K::keep(last, key)).is_some())
    }
}

impl<E: Engine> Table<E> {
    /// Counts the records of the tree. Nodes are read from left to right, since a node that leaves
    /// passes its entries to the left: none is counted twice.
    fn count_records(&self, census: &mut Census<E>) -> Result<(), KvError> {
        let mut waiting = vec![self.root];
        while let Some(place) = waiting.pop() {
            let Some((level, links)) = links_of(self.node(place)?) else { continue };
            for link in links.into_iter().rev() {
                match Target::of(link) {
                    _ if level > 0 => waiting.push(link),
                    Target::Record(place) => census.count(place),
                    Target::Layer(place) => waiting.push(place),
                }
            }
        }
        Ok(())
    }

    /// Takes out the last records of a key's leaf, under its lock, as far as they are not locked.
    /// Returns whether there were some. An empty leaf leaves the tree.
    fn empty_leaf<K: Kind>(
        &self,
        key: &K::Owned,
        worker: &mut Worker<E>,
        census: &mut Census<E>,
    ) -> Result<bool, KvError> {
        let point = K::insert_point(self, K::key(key))?;
        let Some(leaf) = point.leaf.try_lock() else { return Ok(false) };
        let (before, mut count, mut failed) = (leaf.count(), leaf.count(), Ok(()));
        while count > 0 {
            let Target::Record(place) = Target::of(leaf.node.link(count - 1)) else { break };
            match census.take_out::<K::InRecord>(worker, place) {
                Ok(Entry::Removed) => count -= 1,
                Ok(Entry::Busy) => break,
                Err(error) => {
                    failed = Err(error);
                    break;
                }
            }
        }
        leaf.release(count);
        census.free(worker);
        failed?;
        if count == 0 {
            K::reclaim(self, K::key(key))?;
        }
        Ok(count < before)
    }
}

/// Returns a node's level and its links, as they were at one moment. `None` if it has left the
/// tree.
fn links_of<E: Engine>(node: Node<'_, E>) -> Option<(u8, Vec<u64>)> {
    let waiter = Waiter::new();
    for _ in 0..TRIES {
        let stamp = node.stamp();
        let links = (0..stamp.count()).map(|slot| node.link(slot)).collect();
        if stamp.is_readable() && node.still(stamp) {
            return Some((stamp.level(), links));
        }
        if !stamp.is_readable() && !stamp.is_locked() {
            return None;
        }
        waiter.pause();
    }
    None
}
