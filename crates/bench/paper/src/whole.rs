//! Runs whole transactions as critical sections of one lock, elided by htm transactions where the
//! machine has them. This is the simplest way to use transactional memory, and shows its cost when
//! transactions do not fit.
//!
//! This study breaks a rule on purpose: the database runs on an engine without htm transactions,
//! inside an htm transaction of another engine. Hardware does not distinguish engines: everything
//! that a thread does within it is atomic, private memory and record locks included. The emulation
//! cannot do this, so the study uses RTM or the lock alone.

use drtm_drive::{Client, Done, Error, Workload};
use drtm_htm::{Cause, FallbackLock, Htm, Native, Outcome, Policy, Worker};
use drtm_txn::{Config, Db};
use serde_json::Value;

/// A workload whose transactions are critical sections of one lock, so that they run as if
/// serially. The database locks and validates as always, inside each section.
#[derive(Debug)]
pub(crate) struct Whole<W> {
    workload: W,
    /// Whether the lock is elided by htm transactions, or always taken.
    engine: Native,
    lock: FallbackLock,
}

/// A thread of such a workload.
#[derive(Debug)]
pub(crate) struct Section<'w, C> {
    client: C,
    worker: Worker<Native>,
    lock: &'w FallbackLock,
    /// For each kind, how many transactions ended under the lock, and how many of these overflowed
    /// an htm transaction.
    fallbacks: Vec<(u64, u64)>,
}

/// The suffix of a kind's counter: transactions that ended under the lock.
pub(crate) const FALLBACKS: &str = " under the lock";
/// The suffix of a kind's counter: those of them that did not fit.
pub(crate) const OVERFLOWS: &str = " too large";

impl<W> Whole<W> {
    pub(crate) fn new(workload: W, engine: Native) -> Self {
        Self { workload, engine, lock: FallbackLock::new() }
    }
}

impl<C: Client> Client for Section<'_, C> {
    fn kinds() -> &'static [&'static str] {
        C::kinds()
    }

    fn run_next(&mut self, date: u64) -> Result<Done, Error> {
        let Self { client, worker, lock, fallbacks } = self;
        let cause = match worker.attempt_unless(lock, Policy::DBX, |_| Ok(client.run_next(date))) {
            Outcome::Committed(done) => return done,
            Outcome::Fallback(cause) => cause,
        };
        // The lock excludes all other sections, so the transaction finds no conflict.
        let Ok(done) = lock.run(worker.engine(), |_| Ok(client.run_next(date))) else {
            unreachable!("the section aborts nothing")
        };
        let done = done?;
        let (all, too_large) = &mut fallbacks[done.kind];
        *all += 1;
        *too_large += u64::from(cause == Cause::Capacity);
        Ok(done)
    }
}

impl<W: Workload> Workload for Whole<W> {
    const NAME: &'static str = W::NAME;
    type Tables = W::Tables;
    type Client<'w, S: Config>
        = Section<'w, W::Client<'w, S>>
    where
        W: 'w;

    fn size(&self) -> Vec<(&'static str, Value)> {
        self.workload.size()
    }

    fn open<S: Config>(&self, db: &Db<S>) -> Result<W::Tables, Error> {
        self.workload.open(db)
    }

    fn pieces(&self) -> u64 {
        self.workload.pieces()
    }

    fn load<S: Config>(&self, db: &Db<S>, tables: W::Tables, piece: u64) -> Result<(), Error> {
        self.workload.load(db, tables, piece)
    }

    fn clients<'w, S: Config>(
        &'w self,
        db: &'w Db<S>,
        tables: W::Tables,
        threads: usize,
    ) -> Result<Vec<Self::Client<'w, S>>, Error> {
        let htm = Htm::new(self.engine);
        let section = |client| Section {
            client,
            worker: htm.worker(),
            lock: &self.lock,
            fallbacks: vec![(0, 0); W::Client::<'w, S>::kinds().len()],
        };
        Ok(self.workload.clients(db, tables, threads)?.into_iter().map(section).collect())
    }

    fn counted<S: Config>(clients: &[Self::Client<'_, S>]) -> Vec<(String, u64)> {
        let kinds = W::Client::<'_, S>::kinds().iter().enumerate();
        let of_kind = |(kind, name): (usize, &&str)| {
            let sum = |of: fn(&(u64, u64)) -> u64| clients.iter().map(|client| of(&client.fallbacks[kind])).sum();
            let (all, too_large): (u64, u64) = (sum(|count| count.0), sum(|count| count.1));
            [(format!("{name}{FALLBACKS}"), all), (format!("{name}{OVERFLOWS}"), too_large)]
        };
        kinds.flat_map(of_kind).collect()
    }

    fn check<S: Config>(
        &self,
        db: &Db<S>,
        tables: W::Tables,
        clients: &[&Self::Client<'_, S>],
    ) -> Result<Vec<String>, Error> {
        let clients: Vec<_> = clients.iter().map(|section| &section.client).collect();
        self.workload.check(db, tables, &clients)
    }
}
