//! What keeps a node from writing rows of which no backup would hear.

use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};

use parking_lot::RwLock;

use crate::{Commit, Sink, SinkError, cluster::ClusterError};

/// Refuses what a node commits by itself, but for rows of replicated tables, and for what it loads
/// before its first worker.
#[derive(Debug, Default)]
pub(in crate::cluster) struct OnlyLogged {
    is_loading: AtomicBool,
    /// Tables of the node's database that every node has whole, and fills by itself.
    replicated: RwLock<Vec<u16>>,
}

impl OnlyLogged {
    pub(in crate::cluster) fn begin(&self, is_loading: bool) {
        self.is_loading.store(is_loading, Release);
    }

    /// Lets the node write a table of its database, which is replicated.
    pub(in crate::cluster) fn allow(&self, table: u16) {
        self.replicated.write().push(table);
    }

    pub(in crate::cluster) fn end_loading(&self) {
        self.is_loading.store(false, Release);
    }
}

impl Sink for OnlyLogged {
    fn commit(&self, commit: &Commit<'_>) -> Result<(), SinkError> {
        let replicated = self.replicated.read();
        let mut rows = commit.rows();
        match self.is_loading.load(Acquire) || rows.all(|row| replicated.contains(&row.table_number())) {
            true => Ok(()),
            false => Err(ClusterError::NotLogged.into()),
        }
    }
}
