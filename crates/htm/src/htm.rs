//! Workers, which run htm transactions until they commit or the policy is exhausted.

use std::sync::Arc;

use crate::{
    Engine, Exclusive, FallbackLock, Outcome, Policy, Stats,
    cause::{Abort, Cause},
    policy::Spent,
    stats::{Counters, Registry},
    sync::Waiter,
};

/// An engine together with the counters of its workers. Clones share both.
///
/// # Example
///
/// ```
/// use drtm_htm::{Access, Emulated, Engine, Htm, Policy, Word};
///
/// let htm = Htm::new(Emulated::default());
/// let counter = Word::new(0);
/// std::thread::scope(|scope| {
///     for _ in 0..2 {
///         scope.spawn(|| {
///             let mut worker = htm.worker();
///             let _ = worker.attempt(Policy::DBX, |tx| {
///                 let value = tx.load(&counter)?;
///                 tx.store(&counter, value + 1)
///             });
///         });
///     }
/// });
/// assert_eq!(htm.engine().load(&counter), htm.stats().commits);
/// ```
#[derive(Clone, Debug)]
pub struct Htm<E: Engine> {
    engine: E,
    registry: Arc<Registry>,
}

impl<E: Engine> Htm<E> {
    /// Makes a handle of an engine without workers.
    ///
    /// # Example
    ///
    /// See [`Htm`].
    pub fn new(engine: E) -> Self {
        Self { engine, registry: Arc::default() }
    }

    /// Returns the engine, for plain accesses.
    ///
    /// # Example
    ///
    /// See [`Htm`].
    #[inline(always)]
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// Creates a worker for one thread.
    ///
    /// # Example
    ///
    /// See [`Htm`].
    #[must_use]
    pub fn worker(&self) -> Worker<E> {
        Worker { local: self.engine.local(), counters: self.registry.register(), engine: self.engine.clone() }
    }

    /// Returns the statistics of the transactions of all workers. Does not slow them down.
    ///
    /// # Example
    ///
    /// See [`Htm`].
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.registry.read()
    }
}

/// One thread's handle for running htm transactions.
///
/// # Example
///
/// ```
/// use drtm_htm::{Access, Emulated, Htm, Outcome, Policy, Word};
///
/// let (a, b) = (Word::new(1), Word::new(2));
/// let mut worker = Htm::new(Emulated::default()).worker();
/// let swapped = worker.attempt(Policy::DBX, |tx| {
///     let (was_a, was_b) = (tx.load(&a)?, tx.load(&b)?);
///     tx.store(&a, was_b)?;
///     tx.store(&b, was_a)?;
///     Ok(was_a + was_b)
/// });
/// assert_eq!(swapped, Outcome::Committed(3));
/// assert_eq!((a.into_inner(), b.into_inner()), (2, 1));
/// ```
#[derive(Debug)]
pub struct Worker<E: Engine> {
    local: E::Local,
    counters: Counters,
    engine: E,
}

impl<E: Engine> Worker<E> {
    /// Returns the engine, for plain accesses.
    #[inline(always)]
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// Runs `body` in an htm transaction until it commits or `policy` is exhausted.
    ///
    /// The body may run several times and must obey the [contract](crate#the-contract-of-a-body).
    #[inline(always)]
    pub fn attempt<'m, T>(
        &mut self,
        policy: Policy,
        body: impl FnMut(&mut E::Transaction<'m>) -> Result<T, E::Abort>,
    ) -> Outcome<T> {
        self.run(policy, None, body)
    }

    /// Like [`attempt`](Self::attempt), but in transactions that commit only while `lock` is free.
    /// Each subscribes to the lock, and none begins while it is held.
    #[inline(always)]
    pub fn attempt_unless<'m, T>(
        &mut self,
        lock: &'m FallbackLock,
        policy: Policy,
        mut body: impl FnMut(&mut E::Transaction<'m>) -> Result<T, E::Abort>,
    ) -> Outcome<T> {
        self.run(policy, Some(lock), move |tx| {
            lock.subscribe(tx)?;
            body(tx)
        })
    }

    /// Runs a critical section of `lock`: as an htm transaction that elides the lock, or else under
    /// it.
    ///
    /// Under the lock the section's stores are plain, and are undone if it aborts itself or panics.
    ///
    /// # Errors
    ///
    /// The cause, when the section under the lock aborted itself or nested too deep. When the
    /// transaction did, the policy decides how often it is retried before the lock is taken.
    ///
    /// # Panics
    ///
    /// With `fallback`'s panic, after its stores are undone and the lock is free.
    #[inline(always)]
    pub fn elide<'m, T>(
        &mut self,
        lock: &'m FallbackLock,
        policy: Policy,
        transaction: impl FnMut(&mut E::Transaction<'m>) -> Result<T, E::Abort>,
        fallback: impl FnOnce(&mut Exclusive<'m, E>) -> Result<T, Cause>,
    ) -> Result<T, Cause> {
        match self.attempt_unless(lock, policy, transaction) {
            Outcome::Committed(value) => Ok(value),
            Outcome::Fallback(_) => lock.run(&self.engine, fallback),
        }
    }

    #[inline(always)]
    fn run<'m, T>(
        &mut self,
        policy: Policy,
        lock: Option<&FallbackLock>,
        mut body: impl FnMut(&mut E::Transaction<'m>) -> Result<T, E::Abort>,
    ) -> Outcome<T> {
        if !self.engine.has_htm() {
            return Outcome::Fallback(Cause::Unavailable);
        }
        if policy.never() {
            return Outcome::Fallback(Cause::NotTried);
        }
        if let Some(lock) = lock {
            // A transaction begun now could only abort.
            lock.wait_until_free(&self.engine);
        }
        let mut retry = Retry { spent: Spent::default(), waiter: Waiter::new() };
        loop {
            match self.engine.once(&mut self.local, &mut body) {
                Ok(value) => {
                    self.counters.committed();
                    return Outcome::Committed(value);
                }
                Err(abort) => {
                    if !self.tries_again(&mut retry, abort, &policy, lock) {
                        return Outcome::Fallback(abort.cause);
                    }
                }
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn tries_again(&self, retry: &mut Retry, abort: Abort, policy: &Policy, lock: Option<&FallbackLock>) -> bool {
        self.counters.aborted(abort.cause);
        if !retry.spent.allows_retry(policy, abort) {
            self.counters.gave_up();
            return false;
        }
        match (abort.cause, lock) {
            (Cause::LockHeld, Some(lock)) => lock.wait_until_free(&self.engine),
            _ => retry.waiter.step_aside(),
        }
        true
    }
}

/// The state of one attempt, which lasts over its aborts.
#[derive(Debug)]
struct Retry {
    spent: Spent,
    waiter: Waiter,
}
