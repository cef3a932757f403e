//! A life of a database: from its opening until the disk stops it, or all its transactions are
//! done.

use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
};

use drtm_txn::{Builder, Config, Db, Durability, Error as DbError, LogError, durability::storage::Image};
use fastrand::Rng;

use super::{
    book::{Book, Deeds, Finding, Made},
    ledger::{Ledger, id},
};
use crate::Error;

/// The smallest segment size, so that a short log has several segments.
const SEGMENT: u64 = 4 << 10;

/// Memory of a database.
const MEMORY: u64 = 32 << 20;

/// A logical clock over all lives: if one event ended before another began, its time is smaller.
static CLOCK: AtomicU64 = AtomicU64::new(0);

/// The parameters of a life.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    /// Its number among its database's lives, from 1.
    pub(super) number: u32,
    pub(super) threads: u32,
    /// Transactions of each thread.
    pub(super) transactions: u32,
    pub(super) mode: Durability,
    pub(super) seed: u64,
    /// Bytes of log after which a checkpoint is made in the background.
    pub(super) checkpoint_every: u64,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// All transactions are done.
    Whole,
    /// The disk stopped it.
    Stopped,
}

/// Disables checkpoints.
pub(super) const NEVER: u64 = u64::MAX;

/// Opens the database of a simulated disk.
pub(super) fn open<S: Config>(
    disk: &Image,
    (mode, checkpoint_every): (Durability, u64),
    engine: S::Engine,
) -> Result<Db<S>, DbError> {
    let storage = std::sync::Arc::new(disk.clone());
    let builder = Builder::new().memory(MEMORY).storage(storage, SEGMENT).checkpoint_every(checkpoint_every);
    builder.durability(mode).build_with(engine)
}

/// Returns whether an error means only that the disk stopped, or is full.
pub(super) fn is_stop(error: &DbError) -> bool {
    is_unknown(error) || is_refusal(error) || matches!(error, DbError::Log(LogError::Io { .. }))
}

/// Returns whether a transaction with this error may survive.
fn is_unknown(error: &DbError) -> bool {
    matches!(error, DbError::OutcomeUnknown { .. } | DbError::NotYetDurable { .. })
}

/// Returns whether a transaction with this error has not happened.
fn is_refusal(error: &DbError) -> bool {
    matches!(error, DbError::Poisoned { .. } | DbError::DiskFull { .. } | DbError::ReadOnly { .. })
}

impl Life {
    /// Opens the database of a disk, and runs the life. With `close`, closes it unless the disk
    /// stopped it.
    ///
    /// # Errors
    ///
    /// Returns an error if anything but the disk fails.
    pub(super) fn on<S: Config>(
        &self,
        disk: &Image,
        engine: S::Engine,
        book: &mut Book,
        close: bool,
    ) -> Result<Ended, Error> {
        let stopped = |error: DbError| if is_stop(&error) { Ok(Ended::Stopped) } else { Err(Error::from(error)) };
        let db = match open::<S>(disk, (self.mode, self.checkpoint_every), engine) {
            Ok(db) => db,
            Err(error) => return stopped(error),
        };
        let ledger = match Ledger::open(&db) {
            Ok(ledger) => ledger,
            Err(error) => return stopped(error),
        };
        let (deeds, ended) = self.lead(&db, &ledger, |_| Ok(()))?;
        book.note(deeds);
        if ended == Ended::Whole && close {
            match db.close() {
                Ok(()) => book.is_closed(),
                Err(error) => return stopped(error),
            }
        }
        Ok(ended)
    }

    /// Runs transactions in all threads. Each thread calls `tell` with its acknowledged
    /// transactions.
    ///
    /// # Errors
    ///
    /// Returns an error if anything but the disk fails, or `tell` does.
    pub(super) fn lead<S: Config>(
        &self,
        db: &Db<S>,
        ledger: &Ledger,
        tell: impl Fn(u64) -> Result<(), Error> + Sync,
    ) -> Result<(Deeds, Ended), Error> {
        let tell = &tell;
        thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let body = move || self.thread(thread, (db, ledger), tell);
                    thread::Builder::new()
                        .spawn_scoped(scope, body)
                        .map_err(|error| drtm_drive::Error::Thread(error).into())
                })
                .collect();
            let (mut all, mut ended) = (Deeds::default(), Ended::Whole);
            let mut failed = Ok(());
            for thread in threads {
                match thread.map(thread::ScopedJoinHandle::join) {
                    Ok(Ok(Ok((deeds, one)))) => {
                        all.add(deeds);
                        ended = if one == Ended::Stopped { one } else { ended };
                    }
                    Ok(Ok(Err(error))) | Err(error) => failed = Err(error),
                    Ok(Err(panic)) => std::panic::resume_unwind(panic),
                }
            }
            failed.map(|()| (all, ended))
        })
    }

    fn thread<S: Config>(
        &self,
        thread: u32,
        (db, ledger): (&Db<S>, &Ledger),
        tell: &impl Fn(u64) -> Result<(), Error>,
    ) -> Result<(Deeds, Ended), Error> {
        let mut random = Rng::with_seed(self.seed.wrapping_add(thread.into()));
        let (mut deeds, is_sync) = (Deeds::default(), self.mode == Durability::Sync);
        for number in 0..self.transactions {
            let (id, mut seen) = (id(self.number, thread, number), Vec::new());
            let invoked = CLOCK.fetch_add(1, SeqCst);
            let kind = random.u8(0..10);
            let done = match kind {
                0 => db.read(|tx| ledger.read(tx, &mut random, &mut seen)),
                1 => db.transact(|tx| ledger.read(tx, &mut random, &mut seen)),
                _ => db.transact(|tx| ledger.write(tx, id, &mut random, &mut seen)),
            };
            let (completed, writes) = (CLOCK.fetch_add(1, SeqCst), kind > 1);
            match done {
                Ok(()) if writes => {
                    deeds.made.push(Made { id, invoked, completed: Some(completed), seen });
                    if is_sync {
                        deeds.acknowledged.push(id);
                        tell(id)?;
                    }
                }
                Ok(()) if is_sync => deeds.read.extend(seen),
                Ok(()) => {}
                Err(error) => {
                    match error {
                        error if is_unknown(&error) && writes => {
                            deeds.made.push(Made { id, invoked, completed: None, seen });
                        }
                        error if is_refusal(&error) && writes => deeds.refused.push(id),
                        error if is_unknown(&error) || is_refusal(&error) => {}
                        error => return Err(error.into()),
                    }
                    return Ok((deeds, Ended::Stopped));
                }
            }
        }
        Ok((deeds, Ended::Whole))
    }
}

/// Opens what is left on a working disk, and checks it. A failure is a finding.
pub(super) fn check<S: Config>(disk: &Image, engine: S::Engine, book: &mut Book) -> Vec<Finding> {
    let checked = open::<S>(disk, (Durability::Sync, NEVER), engine).map_err(Error::from).and_then(|db| {
        let ledger = Ledger::open(&db)?;
        book.check(&db, &ledger)
    });
    checked.unwrap_or_else(|error| vec![Finding::Anomaly(format!("what is left cannot be opened: {error}"))])
}
