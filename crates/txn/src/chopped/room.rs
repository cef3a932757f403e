//! What all transactions of a registered program share.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::{Duration, Instant},
};

use drtm_chopping::Chopping;
use parking_lot::Mutex;

use super::{
    additions::{Apply, take},
    draft::Analysed,
    moment::Moments,
    permits::Permits,
    plan::Plan,
    remainder::Remainder,
};
use crate::{ChoppedError, Config, Db, Error, Ordered, Raw, Table, mutation::Mutation};

/// How often deferred additions are published.
const EPOCH: Duration = Duration::from_millis(20);

/// How many rows of additions a transaction publishes.
const BATCH: usize = 256;

/// A program, before and after it is registered.
#[derive(Debug)]
pub(super) struct Room<S: Config> {
    pub(super) program: String,
    registered: OnceLock<Arc<Shared<S>>>,
}

/// A registered program.
pub(super) struct Shared<S: Config> {
    pub(super) program: String,
    pub(super) db: Db<S>,
    pub(super) chopping: Chopping,
    pub(super) plans: Vec<Plan>,
    /// What each piece may do, by the places of the transaction and of the piece.
    pub(super) permits: Vec<Vec<Permits>>,
    pub(super) moments: Moments,
    pub(super) remainders: Table<u64, Raw>,
    pub(super) additions: Table<u64, Raw, Ordered>,
    /// Whether what is left of transactions is to be logged.
    pub(super) is_logged: bool,
    /// The sums, each with its hash.
    sums: Vec<(u64, Box<dyn Apply<S>>)>,
    /// Transactions that have halted, and the rows that have what is left of them.
    pub(super) halted: Mutex<Vec<(Option<u64>, Remainder)>>,
    halted_count: AtomicUsize,
    publishing: Mutex<()>,
    /// The number of the epoch since whose beginning nothing was published.
    epoch: AtomicU64,
    began: Instant,
}

impl<S: Config> fmt::Debug for Shared<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("plans", &self.plans).finish_non_exhaustive()
    }
}

impl<S: Config> Room<S> {
    pub(super) fn of(program: &str) -> Self {
        Self { program: program.to_owned(), registered: OnceLock::new() }
    }

    /// Returns the registered program.
    #[inline]
    pub(super) fn shared(&self) -> Result<&Shared<S>, Error> {
        match self.registered.get() {
            Some(shared) => Ok(shared),
            None => Err(ChoppedError::NotRegistered { program: self.program.clone() }.into()),
        }
    }

    pub(super) fn register(&self, shared: Arc<Shared<S>>) {
        self.registered.get_or_init(|| shared);
    }
}

/// The tables of a program's own, and the last key that either has.
pub(super) type OwnTables = (Table<u64, Raw>, Table<u64, Raw, Ordered>, u64);

impl<S: Config> Shared<S> {
    pub(super) fn new(
        (db, program): (Db<S>, String),
        Analysed { chopping, plans, permits }: Analysed,
        (remainders, additions, last): OwnTables,
        sums: Vec<(u64, Box<dyn Apply<S>>)>,
    ) -> Self {
        let is_logged = db.inner.log.as_ref().is_some_and(|log| !log.has(Mutation::RemainderDropped));
        Self {
            moments: Moments::of(plans.len(), last),
            program,
            db,
            chopping,
            plans,
            permits,
            remainders,
            additions,
            is_logged,
            sums,
            halted: Mutex::default(),
            halted_count: AtomicUsize::new(0),
            publishing: Mutex::default(),
            epoch: AtomicU64::new(0),
            began: Instant::now(),
        }
    }

    /// Returns whether the database has this fault, in its type or in its log.
    pub(super) fn has(&self, fault: Mutation) -> bool {
        S::has(fault) || self.db.inner.log.as_ref().is_some_and(|log| log.has(fault))
    }

    /// Keeps what is left of a transaction that cannot go on.
    pub(super) fn halt(&self, row: Option<u64>, remainder: Remainder) {
        self.halted_count.fetch_add(1, SeqCst);
        self.halted.lock().push((row, remainder));
    }

    /// Counts a transaction that has halted, and of which nothing is known but in the log.
    pub(super) fn halt_for_good(&self) {
        self.halted_count.fetch_add(1, SeqCst);
    }

    /// Forgets a transaction that had halted.
    pub(super) fn has_resumed(&self) {
        self.halted_count.fetch_sub(1, SeqCst);
    }

    /// Checks that no transaction has halted: none would be under way any more, although it has not
    /// ended.
    pub(super) fn check_halted(&self) -> Result<(), Error> {
        match self.halted_count.load(SeqCst) {
            0 => Ok(()),
            transactions => Err(ChoppedError::HaltedOthers { transactions }.into()),
        }
    }

    /// Publishes what was deferred, if an epoch has ended since that was done last.
    #[cold]
    pub(super) fn publish_if_due(&self) -> Result<(), Error> {
        if self.now() == self.epoch.load(Relaxed) {
            return Ok(());
        }
        match self.publishing.try_lock() {
            Some(publishing) => {
                let _closed = self.close();
                let published = self.publish_all();
                drop(publishing);
                published
            }
            // Another thread does.
            None => Ok(()),
        }
    }

    /// Publishes what was deferred. Then calls `then`, while none of `closed` is under way.
    pub(super) fn publish_and<T>(&self, closed: &[usize], then: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        self.check_halted()?;
        let _publishing = self.publishing.lock();
        let _closed = self.close();
        let _others = self.moments.close(closed);
        self.publish_all()?;
        then()
    }

    /// Lets no publisher or subscriber begin, and waits for those under way.
    fn close(&self) -> Option<super::moment::Closed<'_>> {
        (!S::has(Mutation::BarrierSkipped)).then(|| self.moments.close(self.chopping.publication()))
    }

    /// Returns the number of the present epoch.
    fn now(&self) -> u64 {
        (self.began.elapsed().as_millis() / EPOCH.as_millis()) as u64
    }

    fn publish_all(&self) -> Result<(), Error> {
        self.check_halted()?;
        self.epoch.store(self.now(), Relaxed);
        while self.publish_some()? == BATCH {}
        Ok(())
    }

    /// Publishes the first rows of additions. Returns how many.
    fn publish_some(&self) -> Result<usize, Error> {
        self.db.transact(|tx| {
            let mut rows = Vec::new();
            for row in tx.range(self.additions, ..)?.rows().take(BATCH) {
                rows.push(row?);
            }
            for (id, bytes) in &rows {
                self.publish_row(tx, bytes)?;
                if !self.has(Mutation::AdditionsRepeated) {
                    tx.remove(self.additions, id)?;
                }
            }
            Ok(if self.has(Mutation::AdditionsRepeated) { 0 } else { rows.len() })
        })
    }

    fn publish_row(&self, tx: &mut crate::Tx<'_, S>, mut bytes: &[u8]) -> Result<(), Error> {
        let damaged = || ChoppedError::Damaged { table: name_of(&self.db, self.additions.number) };
        while !bytes.is_empty() {
            let addition = take(&mut bytes).ok_or_else(damaged)?;
            let sum = self.sums.iter().find(|(id, _)| *id == addition.sum);
            let (_, sum) = sum.ok_or_else(|| ChoppedError::OtherSums { program: self.program.clone() })?;
            sum.apply(tx, addition)?;
        }
        Ok(())
    }
}

/// Returns the name of a table.
pub(super) fn name_of<S: Config>(db: &Db<S>, table: u16) -> &'static str {
    db.inner.catalog.get(table).map_or("", |opened| opened.name.get())
}
