//! The fallback lock, the critical sections that run under it, and the transactions that subscribe
//! to it.
//!
//! # The protocol
//!
//! A transaction *subscribes*: it loads the lock's word first, and aborts if the lock is held. From
//! then on the word is in its read set. A thread that takes the lock later, by a plain
//! compare-and-swap, makes the transaction abort. So a transaction that commits has run entirely
//! before the lock was taken or entirely after it was released. The section under the lock may use
//! plain accesses and sees no concurrent changes. A transaction that found the lock held waits for
//! its release *outside*, before the retry. Otherwise one fallback would drive every other
//! transaction into the fallback too.
//!
//! The protocol requires strong atomicity, and that a compare-and-swap is a full barrier. The later
//! loads of the lock's holder must not pass it, and a transaction's commit must not pass its last
//! load of the lock.

use crossbeam_utils::CachePadded;

use crate::{
    Access, Cause, Engine, Word,
    access::{self, code},
    sync::Waiter,
};

const FREE: u64 = 0;
const HELD: u64 = 1;

/// A lock that transactions elide: a critical section runs as a transaction that only subscribes to
/// it, and takes it only when transactions give up. See [`Worker::elide`](crate::Worker::elide).
///
/// # Example
///
/// ```
/// use drtm_htm::{Access, Emulated, FallbackLock, Htm, Policy, Word};
///
/// let (lock, hits) = (FallbackLock::new(), Word::new(0));
/// let htm = Htm::new(Emulated::default());
/// std::thread::scope(|scope| {
///     for _ in 0..2 {
///         scope.spawn(|| {
///             let mut worker = htm.worker();
///             for _ in 0..100 {
///                 fn hit<'m, A: Access<'m>>(tx: &mut A, hits: &'m Word) -> Result<(), A::Abort> {
///                     let value = tx.load(hits)?;
///                     tx.store(hits, value + 1)
///                 }
///                 worker.elide(&lock, Policy::DBX, |tx| hit(tx, &hits), |held| hit(held, &hits)).unwrap();
///             }
///         });
///     }
/// });
/// assert_eq!(hits.into_inner(), 200);
/// ```
#[derive(Debug, Default)]
pub struct FallbackLock {
    // Alone on its lines: a write to a word beside it would abort every transaction.
    word: CachePadded<Word>,
}

impl FallbackLock {
    /// Makes a lock that is free.
    ///
    /// # Example
    ///
    /// See [`FallbackLock`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the transaction commit only if the lock stays free until then. Must be called first in
    /// the body.
    ///
    /// # Errors
    ///
    /// When the transaction has aborted, which it does if the lock is held.
    #[inline(always)]
    pub fn subscribe<'m, A: Access<'m>>(&'m self, tx: &mut A) -> Result<(), A::Abort> {
        if tx.load(&self.word)? == FREE { Ok(()) } else { Err(tx.raise::<{ code::LOCK_HELD }>()) }
    }

    /// Runs a critical section under the lock.
    ///
    /// # Errors
    ///
    /// The cause, when the section aborted itself or nested too deep. Its stores are undone.
    ///
    /// # Panics
    ///
    /// With the section's panic, after its stores are undone and the lock is free.
    pub fn run<'m, E: Engine, T>(
        &'m self,
        engine: &E,
        section: impl FnOnce(&mut Exclusive<'m, E>) -> Result<T, Cause>,
    ) -> Result<T, Cause> {
        self.take(engine);
        let mut exclusive = Exclusive { lock: self, engine: engine.clone(), undo: Vec::new(), depth: 1, doomed: None };
        let value = section(&mut exclusive)?;
        match exclusive.doomed {
            // The section ignored its own abort, which still takes effect.
            Some(abort) => Err(abort),
            None => {
                exclusive.undo.clear();
                Ok(value)
            }
        }
    }

    /// Waits until the lock is free, or was for a moment.
    #[inline(always)]
    pub(crate) fn wait_until_free<E: Engine>(&self, engine: &E) {
        if engine.load(&self.word) != FREE {
            self.wait(engine);
        }
    }

    #[cold]
    #[inline(never)]
    fn wait<E: Engine>(&self, engine: &E) {
        let waiter = Waiter::new();
        while engine.load(&self.word) != FREE {
            waiter.pause();
        }
    }

    fn take<E: Engine>(&self, engine: &E) {
        while engine.compare_exchange(&self.word, FREE, HELD).is_err() {
            self.wait(engine);
        }
    }
}

/// The accessor of a critical section that holds the fallback lock: plain accesses, with an undo
/// log.
///
/// # Example
///
/// ```
/// use drtm_htm::{Access, FallbackLock, NoHtm, Word};
///
/// let (lock, word) = (FallbackLock::new(), Word::new(1));
/// let was = lock.run(&NoHtm, |held| {
///     let was = held.load(&word)?;
///     held.store(&word, 2)?;
///     Ok(was)
/// });
/// assert_eq!(was, Ok(1));
///
/// // A section that aborts itself leaves nothing behind.
/// let refused = lock.run(&NoHtm, |held| {
///     held.store(&word, 3)?;
///     Err::<(), _>(held.abort::<9>())
/// });
/// assert_eq!(refused, Err(drtm_htm::Cause::Explicit(9)));
/// assert_eq!(word.into_inner(), 2);
/// ```
#[derive(Debug)]
pub struct Exclusive<'m, E: Engine> {
    lock: &'m FallbackLock,
    engine: E,
    /// The old values of the stored words, oldest first.
    undo: Vec<(&'m Word, u64)>,
    depth: u8,
    doomed: Option<Cause>,
}

impl<E: Engine> Exclusive<'_, E> {
    fn check(&self) -> Result<(), Cause> {
        self.doomed.map_or(Ok(()), Err)
    }
}

impl<'m, E: Engine> Access<'m> for Exclusive<'m, E> {
    type Abort = Cause;

    fn load(&mut self, word: &'m Word) -> Result<u64, Cause> {
        self.check()?;
        Ok(self.engine.load(word))
    }

    fn store(&mut self, word: &'m Word, value: u64) -> Result<(), Cause> {
        self.check()?;
        self.undo.push((word, self.engine.load(word)));
        self.engine.store(word, value);
        Ok(())
    }

    fn depth(&mut self) -> &mut u8 {
        &mut self.depth
    }

    fn spin(&mut self, iterations: u64) -> Result<(), Cause> {
        self.check()?;
        access::spin(iterations);
        Ok(())
    }

    fn raise<const CODE: u8>(&mut self) -> Cause {
        *self.doomed.get_or_insert(code::cause(CODE))
    }
}

impl<E: Engine> Drop for Exclusive<'_, E> {
    /// Undoes what was not committed, newest first, and frees the lock: on success, abort and panic
    /// alike.
    fn drop(&mut self) {
        for (word, value) in self.undo.drain(..).rev() {
            self.engine.store(word, value);
        }
        self.engine.store(&self.lock.word, FREE);
    }
}
