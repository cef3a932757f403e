//! Memory for nodes: cut from the region page by page, and reused for nodes of the same tree.

use drtm_htm::Engine;
use parking_lot::Mutex;

use crate::{
    KvError, Store,
    store::{
        bounds::PAGE_NODES,
        layout::{NODE_WORDS, Place},
    },
};

#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Pool {
    free: Mutex<Vec<u64>>,
}

impl Pool {
    /// Takes a node. Returns its place.
    pub(super) fn take<E: Engine>(&self, store: &Store<E>) -> Result<u64, KvError> {
        loop {
            // A statement of its own, so that the lock is not held while words are accessed.
            let taken = self.free.lock().pop();
            match taken {
                Some(place) => return Ok(place),
                None => self.give(page(store)?),
            }
        }
    }

    /// Takes this many nodes, or none. Returns their places.
    pub(super) fn take_all<E: Engine>(&self, store: &Store<E>, count: usize) -> Result<Vec<u64>, KvError> {
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            match self.take(store) {
                Ok(place) => taken.push(place),
                Err(error) => {
                    self.give(taken);
                    return Err(error);
                }
            }
        }
        Ok(taken)
    }

    /// Takes back nodes to which nothing links.
    pub(super) fn give(&self, places: impl IntoIterator<Item = u64>) {
        self.free.lock().extend(places);
    }
}

/// Returns nodes that no thread has ever known.
fn page<E: Engine>(store: &Store<E>) -> Result<impl Iterator<Item = u64> + use<E>, KvError> {
    let bytes = 8 * NODE_WORDS as u64;
    let (at, nodes) = match store.extend(PAGE_NODES * bytes, 64) {
        Ok(at) => (at, PAGE_NODES),
        // Near the end of the region, a node may still fit where a page does not.
        Err(_) => (store.extend(bytes, 64)?, 1),
    };
    let first = at.word();
    debug_assert!(first + nodes * NODE_WORDS as u64 <= Place::MAX_WORD);
    Ok((0..nodes).map(move |node| first + node * NODE_WORDS as u64))
}
