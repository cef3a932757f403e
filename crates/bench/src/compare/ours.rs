//! This database as a compared store.

use drtm_drive::{Task, Workload, load_quietly};
use drtm_txn::{Builder, Config};

use super::order_queue::OrderQueue;
use drtm_drive::Error;

/// The database with a workload, served by orders.
pub(super) struct Ours<'w, W> {
    pub(super) workload: &'w W,
    pub(super) threads: usize,
    pub(super) memory: u64,
    pub(super) orders: &'w OrderQueue,
}

impl<W: Workload> Task for Ours<'_, W> {
    type Output = ();

    fn execute<S: Config>(self, engine: S::Engine) -> Result<(), Error> {
        let Self { workload, threads, memory, orders } = self;
        let db = Builder::new().memory(memory).build_with::<S>(engine)?;
        let tables = workload.open(&db)?;
        load_quietly(workload, &db, tables, threads)?;
        let mut clients = workload.clients(&db, tables, threads)?;
        orders.serve(&mut clients, |clients| workload.check(&db, tables, &clients.iter().collect::<Vec<_>>()))
    }
}
