//! The process that is killed: it opens a database, runs transactions forever, and reports the
//! acknowledged ones.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::Args as ClapArgs;
use drtm_drive::Plain;
use drtm_htm::NoHtm;
use drtm_txn::{Db, Durability};

use super::{ledger::Ledger, life::Life};
use crate::Error;

/// Memory of the database.
pub(super) const MEMORY: u64 = 256 << 20;

/// Small, so that some kills hit a checkpoint in progress.
const CHECKPOINT_EVERY: u64 = 64 << 10;

/// The parent's arguments.
#[derive(Debug, ClapArgs)]
pub struct Args {
    #[arg(long)]
    path: PathBuf,
    #[arg(long)]
    threads: u32,
    #[arg(long)]
    life: u32,
}

impl Args {
    pub(super) fn execute(&self, seed: u64) -> Result<(), Error> {
        let Self { threads, life: number, .. } = *self;
        let builder = Db::builder()
            .memory(MEMORY)
            .path(&self.path)
            .create(true)
            .durability(Durability::Sync)
            .checkpoint_every(CHECKPOINT_EVERY);
        let db: Db<Plain> = builder.build_with(NoHtm)?;
        let ledger = Ledger::open(&db)?;
        let life = Life {
            number,
            threads,
            transactions: u32::MAX,
            mode: Durability::Sync,
            seed,
            checkpoint_every: CHECKPOINT_EVERY,
        };
        // A pipe writes eight bytes completely or not at all. When the parent is gone, the write
        // fails.
        life.lead(&db, &ledger, |id| {
            io::stdout()
                .write_all(&id.to_le_bytes())
                .and_then(|()| io::stdout().flush())
                .map_err(drtm_report::Error::Report)?;
            Ok(())
        })?;
        Ok(())
    }
}
