//! This database in a comparison.

use drtm_txn::{Builder, Setting};

use super::desk::Desk;
use crate::{
    Error,
    drive::{Task, Workload, load_quietly},
};

/// The database with a workload, for a desk.
pub(super) struct Ours<'w, W> {
    pub(super) workload: &'w W,
    pub(super) threads: usize,
    pub(super) memory: u64,
    pub(super) desk: &'w Desk,
}

impl<W: Workload> Task for Ours<'_, W> {
    type Output = ();

    fn carry_out<S: Setting>(self, engine: S::Engine) -> Result<(), Error> {
        let Self { workload, threads, memory, desk } = self;
        let db = Builder::new().memory(memory).build_with::<S>(engine)?;
        let tables = workload.open(&db)?;
        load_quietly(workload, &db, tables, threads)?;
        let mut clients = workload.clients(&db, tables, threads)?;
        desk.serve(&mut clients, |clients| workload.check(&db, tables, &clients.iter().collect::<Vec<_>>()))
    }
}
