//! What keeps a node from writing rows of which no backup would hear.

use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};

use crate::{Commit, Sink, SinkError, cluster::ClusterError};

/// Refuses what a node commits by itself, but for what it loads before its first worker.
#[derive(Debug, Default)]
pub(in crate::cluster) struct OnlyLogged {
    is_loading: AtomicBool,
}

impl OnlyLogged {
    pub(in crate::cluster) fn begin(&self, is_loading: bool) {
        self.is_loading.store(is_loading, Release);
    }

    pub(in crate::cluster) fn end_loading(&self) {
        self.is_loading.store(false, Release);
    }
}

impl Sink for OnlyLogged {
    fn commit(&self, _commit: &Commit<'_>) -> Result<(), SinkError> {
        if self.is_loading.load(Acquire) { Ok(()) } else { Err(ClusterError::NotLogged.into()) }
    }
}
