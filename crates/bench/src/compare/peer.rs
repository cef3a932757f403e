//! Other stores behind one interface: rows of bytes under numbers. An operation goes by a virtual
//! call, which is a thousandth of what it takes.

use super::order_queue::OrderQueue;
use crate::{
    Error,
    drive::{Client, Workload},
};

/// A transactional store.
pub(super) trait Peer: Sized + Sync {
    /// An empty one.
    fn new() -> Result<Self, Error>;

    /// Runs a transaction until it is committed, or given up by the closure.
    fn transact<T, F: From<Error>>(
        &self,
        writes: bool,
        body: impl FnMut(&mut dyn Rows) -> Result<T, F>,
    ) -> Result<T, F>;
}

/// What a transaction does.
pub(crate) trait Rows {
    /// Copies a row's value, which has this length.
    fn get(&mut self, key: u64, value: &mut [u8]) -> Result<(), Error>;

    fn put(&mut self, key: u64, value: &[u8]) -> Result<(), Error>;
}

/// A workload on such stores.
pub(super) trait OnPeers: Workload {
    /// A thread's side of it.
    type Worker<'w, P: Peer + 'w>: Client
    where
        Self: 'w;

    fn fill<P: Peer>(&self, peer: &P) -> Result<(), Error>;

    fn workers<'w, P: Peer>(&'w self, peer: &'w P, threads: usize) -> Result<Vec<Self::Worker<'w, P>>, Error>;

    /// What does not hold when all transactions are over, in words.
    fn verify<P: Peer>(&self, peer: &P, workers: &[Self::Worker<'_, P>]) -> Result<Vec<String>, Error>;
}

/// A store with a workload, for a orders.
pub(super) fn host<W: OnPeers, P: Peer>(workload: &W, threads: usize, orders: &OrderQueue) -> Result<(), Error> {
    let peer = P::new()?;
    workload.fill(&peer)?;
    let mut workers = workload.workers(&peer, threads)?;
    orders.serve(&mut workers, |workers| workload.verify(&peer, workers))
}

/// The value that was found, into where it is to go. A row that is missing, or has another length,
/// is the store's fault.
pub(super) fn copied(store: &'static str, found: Option<&[u8]>, into: &mut [u8]) -> Result<(), Error> {
    match found {
        Some(found) if found.len() == into.len() => {
            into.copy_from_slice(found);
            Ok(())
        }
        _ => Err(Error::Misbehaved { engine: store.to_owned(), did: "has lost a row" }),
    }
}

/// What a store has against being used.
pub(super) fn failed(store: &'static str) -> impl Fn(Box<dyn std::error::Error + Send + Sync>) -> Error + Copy {
    move |source| Error::Foreign { store, source }
}
