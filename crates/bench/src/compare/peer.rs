//! Other stores behind one trait: rows of bytes under numbers. An operation is a virtual call,
//! which costs a thousandth of the operation.

use drtm_drive::{Client, Workload};

use super::order_queue::OrderQueue;
use crate::StoreError;
use drtm_drive::Error;

/// A transactional store.
pub(super) trait Peer: Sized + Sync {
    /// Creates an empty store.
    fn new() -> Result<Self, Error>;

    /// Runs a transaction until it commits, or until the closure aborts it.
    fn transact<T, F: From<Error>>(
        &self,
        writes: bool,
        body: impl FnMut(&mut dyn Rows) -> Result<T, F>,
    ) -> Result<T, F>;
}

/// The operations of a transaction.
pub(crate) trait Rows {
    /// Copies a row's value, which must have `value`'s length.
    fn get(&mut self, key: u64, value: &mut [u8]) -> Result<(), Error>;

    fn put(&mut self, key: u64, value: &[u8]) -> Result<(), Error>;
}

/// A workload on such stores.
pub(super) trait OnPeers: Workload {
    /// A thread's client of a store.
    type Worker<'w, P: Peer + 'w>: Client
    where
        Self: 'w;

    fn fill<P: Peer>(&self, peer: &P) -> Result<(), Error>;

    fn workers<'w, P: Peer>(&'w self, peer: &'w P, threads: usize) -> Result<Vec<Self::Worker<'w, P>>, Error>;

    /// Returns the violations after all transactions, in words.
    fn verify<P: Peer>(&self, peer: &P, workers: &[Self::Worker<'_, P>]) -> Result<Vec<String>, Error>;
}

/// Fills a store with a workload, and serves orders.
pub(super) fn host<W: OnPeers, P: Peer>(workload: &W, threads: usize, orders: &OrderQueue) -> Result<(), Error> {
    let peer = P::new()?;
    workload.fill(&peer)?;
    let mut workers = workload.workers(&peer, threads)?;
    orders.serve(&mut workers, |workers| workload.verify(&peer, workers))
}

/// Copies the value found into `into`. A row that is missing, or has another length, is the store's
/// error.
pub(super) fn copied(store: &'static str, found: Option<&[u8]>, into: &mut [u8]) -> Result<(), Error> {
    match found {
        Some(found) if found.len() == into.len() => {
            into.copy_from_slice(found);
            Ok(())
        }
        _ => Err(StoreError::Misbehaved { engine: store.to_owned(), did: "has lost a row" }.into()),
    }
}

/// Wraps an error of a store.
pub(super) fn failed(store: &'static str) -> impl Fn(Box<dyn std::error::Error + Send + Sync>) -> Error + Copy {
    move |source| StoreError::Foreign { store, source }.into()
}
