//! Transactional memory in software, with the limits of the hardware.
//!
//! With it, every path that uses htm transactions is tested on every machine, and published studies
//! of the hardware's limits run anywhere. It is never chosen by default: it is far slower than any
//! software path it could replace.
//!
//! # What it shares with RTM
//!
//! - Conflicts have the granularity of cache lines.
//! - The sets and ways of the first-level cache bound the write set. A larger number of lines
//!   bounds the read set ([`Profile`]). So order matters: a read may evict a written line, but not
//!   the other way round.
//! - Transactions abort by interrupts ([`Timer`]), by conflicts with other transactions and with
//!   plain accesses (strong atomicity), by explicit codes, and by too deep nesting.
//! - Nesting is flat. Transactions are opaque: they see consistent memory even if they abort later.
//!   A panic rolls the transaction back.
//!
//! # Where it differs
//!
//! - A conflict is detected at the transaction's next access or at its commit, not at the instant
//!   it happens. So of two transactions that conflict, the one that commits first wins.
//! - A plain *load* of a line that an uncommitted transaction has stored to returns the old value
//!   and does not abort the transaction. Hardware would abort it. Both are correct, and only the
//!   rate of aborts differs.
//! - Captured locals that a body changes keep the changes of an aborted try. Hardware undoes them
//!   too.
//! - The cache starts cold and holds only what goes through accessors: no stack, no code, no
//!   neighbour's lines.
//! - Lines further apart than [`EmulatedConfig::tracked_lines`] may share a version, and conflict
//!   falsely.

mod cache;
mod clock;
mod config;
mod lines;
mod mutation;
mod profile;
mod transaction;

pub(crate) use cache::Cache;
pub use config::{EmulatedConfig, Timer};
#[cfg(feature = "model")]
#[doc(hidden)]
pub use mutation::Mutation;
pub use profile::Profile;
pub use transaction::{EmulatedTransaction, TransactionAborted};

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64 as Counter, Ordering::Relaxed},
    },
    time::Instant,
};

use crate::{
    Engine, EngineError, EngineKind, Sharing, Word,
    cause::{Abort, Cause},
    sync::{Ordering::SeqCst, fence},
};
use lines::Lines;
#[cfg(not(feature = "model"))]
use mutation::Mutation;
use mutation::Mutations;
use transaction::Local;

/// The emulated engine. Clones are the same engine: they detect each other's conflicts.
///
/// # Example
///
/// ```
/// use drtm_htm::{Access, Cause, Emulated, EmulatedConfig, Htm, Line, Outcome, Policy, Profile};
///
/// // Two lines may be written, and no more.
/// let engine = Emulated::new(EmulatedConfig::new(Profile::new(1, 2, 100)))?;
/// let lines: Vec<Line> = (0..3).map(|_| Line::default()).collect();
/// let mut worker = Htm::new(engine).worker();
/// let mut fill = |count: usize| {
///     worker.attempt(Policy::DBX, |tx| lines[..count].iter().try_for_each(|line| tx.store(&line[0], 1)))
/// };
/// assert_eq!(fill(2), Outcome::Committed(()));
/// assert_eq!(fill(3), Outcome::Fallback(Cause::Capacity));
/// # Ok::<(), drtm_htm::EngineError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Emulated {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    lines: Lines,
    config: EmulatedConfig,
    /// The origin of the wall timer.
    origin: Instant,
    workers: Counter,
    mutations: Mutations,
}

impl Shared {
    /// Puts a fence between writing one line and reading another: see [`lines`].
    fn fence(&self) {
        if !self.mutations.include(Mutation::SkipFences) {
            fence(SeqCst);
        }
    }
}

// Whether this thread is inside a transaction, where plain accesses and further transactions are
// mistakes.
#[cfg(not(feature = "model"))]
thread_local!(static INSIDE_REGION: Cell<bool> = const { Cell::new(false) });
#[cfg(feature = "model")]
crate::sync::thread_local!(static INSIDE_REGION: Cell<bool> = Cell::new(false));

impl Emulated {
    /// Makes an engine with this configuration.
    ///
    /// # Errors
    ///
    /// [`EngineError::Emulation`] when the configuration is invalid.
    ///
    /// # Example
    ///
    /// See [`Emulated`].
    pub fn new(config: EmulatedConfig) -> Result<Self, EngineError> {
        config.check()?;
        Ok(Self { shared: Arc::new(Self::shared(config)) })
    }

    /// Makes an engine with a fault, for showing that the model checker finds it.
    ///
    /// # Errors
    ///
    /// Like [`new`](Self::new).
    #[cfg(feature = "model")]
    #[doc(hidden)]
    pub fn mutated(config: EmulatedConfig, mutation: Mutation) -> Result<Self, EngineError> {
        config.check()?;
        let mutations = Mutations { chosen: Some(mutation) };
        Ok(Self { shared: Arc::new(Shared { mutations, ..Self::shared(config) }) })
    }

    fn shared(config: EmulatedConfig) -> Shared {
        Shared {
            lines: Lines::new(config.tracked_lines),
            config,
            origin: Instant::now(),
            workers: Counter::new(0),
            mutations: Mutations::default(),
        }
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &EmulatedConfig {
        &self.shared.config
    }

    fn lines(&self) -> &Lines {
        assert!(!INSIDE_REGION.with(Cell::get), "{}", crate::PLAIN_INSIDE_REGION);
        &self.shared.lines
    }

    /// Does a read-modify-write: like a plain write, and a full barrier.
    fn update(&self, word: &Word, change: impl FnOnce(u64) -> u64) -> u64 {
        let old = self.lines().write(word, change);
        self.shared.fence();
        old
    }
}

impl Default for Emulated {
    fn default() -> Self {
        Self { shared: Arc::new(Self::shared(EmulatedConfig::default())) }
    }
}

impl crate::engine::sealed::Sealed for Emulated {}

impl Engine for Emulated {
    const KIND: EngineKind = EngineKind::Emulated;
    type Transaction<'m> = EmulatedTransaction<'m>;
    type Abort = TransactionAborted;
    type Local = Option<Local>;

    fn local(&self) -> Option<Local> {
        let worker = self.shared.workers.fetch_add(1, Relaxed);
        Some(Local::new(&self.shared, worker))
    }

    fn once<'m, T>(
        &self,
        local: &mut Option<Local>,
        body: &mut impl FnMut(&mut EmulatedTransaction<'m>) -> Result<T, TransactionAborted>,
    ) -> Result<T, Abort> {
        assert!(!INSIDE_REGION.with(Cell::get), "{}", crate::NESTED_TRANSACTION);
        let kept = local.take().unwrap_or_else(|| {
            // It was lost to a panic that left this function, so a new one is made.
            Local::new(&self.shared, self.shared.workers.fetch_add(1, Relaxed))
        });
        let mut transaction = EmulatedTransaction::begin(Arc::clone(&self.shared), kept);
        INSIDE_REGION.with(|inside| inside.set(true));
        let returned = catch_unwind(AssertUnwindSafe(|| body(&mut transaction)));
        INSIDE_REGION.with(|inside| inside.set(false));
        let outcome = match returned {
            Ok(Ok(value)) => transaction.commit().map(|()| value),
            // A token from an earlier transaction aborts this one as well, as an explicit abort.
            Ok(Err(TransactionAborted { .. })) => Err(transaction.doom().unwrap_or(Cause::Explicit(0))),
            Err(payload) if is_contract_violation(payload.as_ref()) => resume_unwind(payload),
            Err(_) => Err(Cause::Panicked),
        };
        *local = Some(transaction.into_local());
        outcome.map_err(Abort::by)
    }

    fn admits(&self, sharing: Sharing) -> Result<(), EngineError> {
        match sharing {
            Sharing::Threads => Ok(()),
            Sharing::Processes => Err(EngineError::ForeignMemory),
        }
    }

    fn load(&self, word: &Word) -> u64 {
        self.lines().read(word)
    }

    fn load_relaxed(&self, word: &Word) -> u64 {
        self.lines().read(word)
    }

    fn store(&self, word: &Word, value: u64) {
        self.lines().write(word, |_| value);
    }

    fn store_relaxed(&self, word: &Word, value: u64) {
        self.lines().write(word, |_| value);
    }

    fn swap(&self, word: &Word, value: u64) -> u64 {
        self.update(word, |_| value)
    }

    fn compare_exchange(&self, word: &Word, current: u64, new: u64) -> Result<u64, u64> {
        let old = self.update(word, |old| if old == current { new } else { old });
        if old == current { Ok(old) } else { Err(old) }
    }

    fn fetch_add(&self, word: &Word, value: u64) -> u64 {
        self.update(word, |old| old.wrapping_add(value))
    }

    fn fetch_or(&self, word: &Word, mask: u64) -> u64 {
        self.update(word, |old| old | mask)
    }

    fn fetch_and(&self, word: &Word, mask: u64) -> u64 {
        self.update(word, |old| old & mask)
    }
}

/// Returns whether a body's panic is one of this crate's, for a mistake of the caller. Such a panic
/// propagates, and is not retried.
fn is_contract_violation(payload: &(dyn std::any::Any + Send)) -> bool {
    payload
        .downcast_ref::<String>()
        .is_some_and(|message| [crate::PLAIN_INSIDE_REGION, crate::NESTED_TRANSACTION].contains(&message.as_str()))
}
