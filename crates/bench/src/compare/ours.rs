//! This database in a comparison.

use drtm_txn::Builder;

use super::desk::Desk;
use crate::{
    Error,
    drive::{Quiet, Task, Workload, load_quietly, open},
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

    fn carry_out<S: Quiet>(self, engine: S::Engine) -> Result<(), Error> {
        let Self { workload, threads, memory, desk } = self;
        let db = open::<S>(Builder::new().memory(memory), engine)?;
        let tables = workload.open(&db)?;
        load_quietly(workload, &db, tables, threads)?;
        let mut clients = workload.clients(&db, tables, threads)?;
        desk.serve(&mut clients, |clients| workload.check(&db, tables, &clients.iter().collect::<Vec<_>>()))
    }
}
