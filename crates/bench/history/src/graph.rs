//! The dependency graph. Its nodes are the transactions and, with real-time order, moments in time.
//!
//! Real-time order would need an edge for nearly every pair of transactions. A chain of moments
//! expresses it with three edges for each: one from the transaction to the moment of its response,
//! one from there to the next response, and one to the transaction from the last moment before its
//! invocation.

use super::{
    anomaly::{Anomaly, Dependency},
    record::History,
    versions::{RowId, Rows, TxnId, Versions},
};

/// A node: a transaction, or a moment if not less than [`Graph::transactions`].
pub(super) type Node = u32;

/// An edge: one transaction must come before another, for a reason.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) from: Node,
    pub(super) to: Node,
    pub(super) why: Dependency<RowId>,
}

/// Edges, indexed by their start.
#[derive(Debug)]
pub(super) struct Graph {
    /// The number of nodes that are transactions.
    pub(super) transactions: usize,
    edges: Vec<Edge>,
    begins: Vec<usize>,
}

impl Graph {
    pub(super) fn new(transactions: usize, edges: Vec<Edge>) -> Self {
        Self::with_nodes(transactions, transactions, edges)
    }

    fn with_nodes(transactions: usize, nodes: usize, mut edges: Vec<Edge>) -> Self {
        edges.sort_by_key(|edge| edge.from);
        let mut begins = vec![0; nodes + 1];
        edges.iter().for_each(|edge| begins[edge.from as usize + 1] += 1);
        (1..begins.len()).for_each(|node| begins[node] += begins[node - 1]);
        Self { transactions, edges, begins }
    }

    /// Adds the chain of moments.
    pub(super) fn with_time<K>(self, history: &History<K>, versions: &Versions) -> Self {
        let Self { transactions, mut edges, .. } = self;
        let recorded = |id: usize| &history.transactions[id];
        let mut moments: Vec<u64> = (0..transactions).filter_map(|id| recorded(id).committed_by()).collect();
        moments.sort_unstable();
        moments.dedup();

        let node = |moment: usize| (transactions + moment) as Node;
        let why = |responded, invoked| Dependency::RealTime { responded, invoked };
        for id in (0..transactions).filter(|&id| versions.took_effect(id)) {
            let transaction = recorded(id);
            if let Some(responded) = transaction.committed_by() {
                let moment = moments.partition_point(|&moment| moment < responded);
                edges.push(Edge { from: id as Node, to: node(moment), why: why(responded, responded) });
            }
            let earlier = moments.partition_point(|&moment| moment < transaction.invoked);
            if let Some(last) = earlier.checked_sub(1) {
                let why = why(moments[last], transaction.invoked);
                edges.push(Edge { from: node(last), to: id as Node, why });
            }
        }
        for (at, pair) in moments.windows(2).enumerate() {
            edges.push(Edge { from: node(at), to: node(at + 1), why: why(pair[0], pair[1]) });
        }
        Self::with_nodes(transactions, transactions + moments.len(), edges)
    }

    pub(super) fn nodes(&self) -> usize {
        self.begins.len() - 1
    }

    pub(super) fn from(&self, node: Node) -> &[Edge] {
        &self.edges[self.begins[node as usize]..self.begins[node as usize + 1]]
    }

    pub(super) fn is_moment(&self, node: Node) -> bool {
        node as usize >= self.transactions
    }
}

/// Adds an edge from each version's writer to the next version's, and reports versions with two
/// writers.
pub(super) fn order_writes<K: Ord + Clone>(
    rows: &Rows<'_, K>,
    versions: &Versions,
    edges: &mut Vec<Edge>,
    anomalies: &mut Vec<Anomaly<K>>,
) {
    let mut committed = versions.committed();
    let Some(mut earlier) = committed.next() else { return };
    for version in committed {
        if (version.row, version.number) == (earlier.row, earlier.number) {
            let writers = [earlier.writer as usize, version.writer as usize];
            anomalies.push(Anomaly::TwoWriters { row: rows.name(version.row), version: version.number, writers });
            continue;
        }
        if version.row == earlier.row && version.writer != earlier.writer {
            let why = Dependency::WriteWrite { row: version.row, version: earlier.number, next: version.number };
            edges.push(Edge { from: earlier.writer as TxnId, to: version.writer, why });
        }
        earlier = version;
    }
}
