//! An htm transaction in software.
//!
//! Loads are validated as they happen, and stores are buffered until the commit. The transaction
//! has a version, `as_of`, at which everything it has touched was unchanged. A load of a line with
//! a newer version moves `as_of` forward if everything touched so far is still unchanged. Otherwise
//! it dooms the transaction. So a body never sees two words that did not exist at one time
//! (opacity): there are no zombies to contain.
//!
//! A line that is only stored to is recorded and validated like one that is loaded. Hardware must
//! own it from the store on, and another writer takes it away.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{
    Shared,
    cache::Cache,
    clock::Clock,
    lines::{Slot, Stamp},
    mutation::Mutation,
};
use crate::{
    Access, Word,
    access::code,
    bounds::PATIENCE,
    cause::Cause,
    sync::{Ordering::Release, Waiter},
};

/// Proof that an emulated transaction has aborted: the error to return from its body.
///
/// # Example
///
/// ```
/// use drtm_htm::{Access, Emulated, EmulatedTransaction, Htm, Outcome, Cause, Policy, TransactionAborted};
///
/// fn refuse(tx: &mut EmulatedTransaction<'_>) -> Result<(), TransactionAborted> {
///     Err(tx.abort::<1>())
/// }
/// let outcome = Htm::new(Emulated::default()).worker().attempt(Policy::DBX, refuse);
/// assert_eq!(outcome, Outcome::Fallback(Cause::Explicit(1)));
/// ```
#[derive(Debug)]
pub struct TransactionAborted(());

/// A worker's state between transactions: its clock, and buffers that are emptied, not freed.
#[derive(Debug)]
pub struct Local {
    clock: Clock,
    events: fastrand::Rng,
    cache: Cache,
    /// Each touched line, in the order of first touches.
    touched: Vec<Touched>,
    /// The index in `touched` of each line number.
    by_line: FxHashMap<usize, usize>,
    /// The index in the transaction's stores of each word address.
    by_word: FxHashMap<usize, usize>,
    lines_read: usize,
    /// The lines locked by the commit in progress, in order, each slot once.
    locked: Vec<(Slot, Stamp)>,
}

#[derive(Clone, Copy, Debug)]
struct Touched {
    slot: Slot,
    stamp: Stamp,
    read: bool,
    written: bool,
}

impl Local {
    pub(super) fn new(shared: &Shared, worker: u64) -> Self {
        // Workers must differ, and each must be the same in every run: its number is mixed into the
        // seed.
        let mut events = fastrand::Rng::with_seed(shared.config.seed ^ worker.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        Self {
            clock: Clock::new(shared.config.timer, shared.origin, &mut events),
            events,
            cache: Cache::new(shared.config.profile),
            touched: Vec::new(),
            by_line: FxHashMap::default(),
            by_word: FxHashMap::default(),
            lines_read: 0,
            locked: Vec::new(),
        }
    }

    fn clear(&mut self) {
        self.cache.clear();
        self.touched.clear();
        self.by_line.clear();
        self.by_word.clear();
        self.lines_read = 0;
    }
}

/// The accessor of an emulated htm transaction.
///
/// # Example
///
/// See [`TransactionAborted`].
#[derive(Debug)]
pub struct EmulatedTransaction<'m> {
    shared: Arc<Shared>,
    local: Local,
    /// A version at which everything touched was unchanged.
    as_of: u64,
    /// The words stored to, with their new values.
    stores: Vec<(&'m Word, u64)>,
    doom: Option<Cause>,
    depth: u8,
}

impl<'m> EmulatedTransaction<'m> {
    pub(super) fn begin(shared: Arc<Shared>, mut local: Local) -> Self {
        local.clear();
        local.clock.begin();
        let as_of = shared.lines.now();
        Self { shared, local, as_of, stores: Vec::new(), doom: None, depth: 1 }
    }

    pub(super) fn into_local(self) -> Local {
        self.local
    }

    /// Returns the cause that doomed the transaction. `None`: it is not doomed.
    pub(super) fn doom(&self) -> Option<Cause> {
        self.doom
    }

    /// Makes all stores visible at once, or none.
    pub(super) fn commit(&mut self) -> Result<(), Cause> {
        self.check().map_err(|TransactionAborted(())| self.doom.unwrap_or(Cause::Conflict))?;
        if self.local.clock.access() {
            return Err(Cause::System);
        }
        let locked = self.lock_written_lines();
        let committed = locked && {
            // After the locks and before the validation of lines that were only read: see `Lines`.
            self.shared.fence();
            self.is_unchanged()
        };
        if committed {
            for (word, value) in &self.stores {
                word.set(*value, Release);
            }
            let version = self.shared.lines.tick();
            for (slot, _) in self.local.locked.drain(..) {
                self.shared.lines.release(slot, version);
            }
            self.shared.fence();
            Ok(())
        } else {
            for (slot, seen) in self.local.locked.drain(..) {
                self.shared.lines.restore(slot, seen);
            }
            Err(Cause::Conflict)
        }
    }

    /// Locks the written lines, or stops at the first line that another thread has changed or is
    /// changing. Never waits, so that two commits cannot wait for each other.
    fn lock_written_lines(&mut self) -> bool {
        let Local { touched, locked, .. } = &mut self.local;
        let mut wanted: Vec<(Slot, Stamp)> =
            touched.iter().filter(|line| line.written).map(|line| (line.slot, line.stamp)).collect();
        wanted.sort_unstable_by_key(|(slot, _)| *slot);
        // Lines may share a slot. If their stamps differ, the validation below detects it.
        wanted.dedup_by_key(|(slot, _)| *slot);
        for (slot, seen) in wanted {
            if !self.shared.lines.try_lock(slot, seen) {
                return false;
            }
            locked.push((slot, seen));
        }
        true
    }

    /// Returns whether every touched line is unchanged, except for this transaction's own locks.
    fn is_unchanged(&self) -> bool {
        if self.shared.mutations.include(Mutation::SkipValidation) {
            return true;
        }
        let Local { touched, locked, .. } = &self.local;
        touched.iter().all(|line| match locked.binary_search_by_key(&line.slot, |(slot, _)| *slot) {
            Ok(at) => locked[at].1 == line.stamp,
            Err(_) => self.shared.lines.stamp(line.slot) == line.stamp,
        })
    }

    fn check(&self) -> Result<(), TransactionAborted> {
        match self.doom {
            None => Ok(()),
            Some(_) => Err(TransactionAborted(())),
        }
    }

    fn doomed<T>(&mut self, cause: Cause) -> Result<T, TransactionAborted> {
        self.doom.get_or_insert(cause);
        Err(TransactionAborted(()))
    }

    /// Charges an access: time, a possible system event, and cache space.
    fn pay_for_access(&mut self, word: &Word, write: bool) -> Result<(), TransactionAborted> {
        self.check()?;
        let Local { clock, events, cache, .. } = &mut self.local;
        let one_in = self.shared.config.events_one_in;
        if clock.access() || (one_in > 0 && events.u32(0..one_in) == 0) {
            return self.doomed(Cause::System);
        }
        if cache.touch(word.line(), write).is_err() {
            return self.doomed(Cause::Capacity);
        }
        Ok(())
    }

    /// Returns the word's value, with its line's stamp, at a moment when everything touched before
    /// is unchanged.
    fn consistent_snapshot(&mut self, slot: Slot, word: &Word) -> Result<(Stamp, u64), TransactionAborted> {
        let waiter = Waiter::new();
        for _ in 0..PATIENCE {
            match self.shared.lines.snapshot(slot, word) {
                Some((stamp, value)) if stamp.version() <= self.as_of => return Ok((stamp, value)),
                Some(_) => {
                    // The line is newer than `as_of`. The transaction continues if everything it
                    // has touched is unchanged.
                    let now = self.shared.lines.now();
                    if !self.is_unchanged() {
                        return self.doomed(Cause::Conflict);
                    }
                    self.as_of = now;
                }
                None => waiter.step_aside(),
            }
        }
        self.doomed(Cause::Conflict)
    }

    /// Records a line at its first touch. At later touches, its stamp must be the same.
    fn remember(&mut self, line: usize, slot: Slot, stamp: Stamp, write: bool) -> Result<(), TransactionAborted> {
        let Local { touched, by_line, lines_read, .. } = &mut self.local;
        let at = *by_line.entry(line).or_insert_with(|| {
            touched.push(Touched { slot, stamp, read: false, written: false });
            touched.len() - 1
        });
        let known = &mut touched[at];
        if known.stamp != stamp {
            return self.doomed(Cause::Conflict);
        }
        known.written |= write;
        if !write && !known.read {
            known.read = true;
            *lines_read += 1;
            if *lines_read > self.shared.config.profile.read_lines {
                return self.doomed(Cause::Capacity);
            }
        }
        Ok(())
    }

    /// Touches the word's line. Returns the word's value in memory.
    fn touch(&mut self, word: &Word, write: bool) -> Result<u64, TransactionAborted> {
        self.pay_for_access(word, write)?;
        let line = word.line();
        let slot = self.shared.lines.slot(line);
        let (stamp, value) = self.consistent_snapshot(slot, word)?;
        self.remember(line, slot, stamp, write)?;
        Ok(value)
    }
}

impl<'m> Access<'m> for EmulatedTransaction<'m> {
    type Abort = TransactionAborted;

    fn load(&mut self, word: &'m Word) -> Result<u64, TransactionAborted> {
        let in_memory = self.touch(word, false)?;
        let stored = self.local.by_word.get(&word.address()).map(|&at| self.stores[at].1);
        Ok(stored.unwrap_or(in_memory))
    }

    fn store(&mut self, word: &'m Word, value: u64) -> Result<(), TransactionAborted> {
        self.touch(word, true)?;
        let at = *self.local.by_word.entry(word.address()).or_insert_with(|| {
            self.stores.push((word, value));
            self.stores.len() - 1
        });
        self.stores[at].1 = value;
        Ok(())
    }

    fn depth(&mut self) -> &mut u8 {
        &mut self.depth
    }

    fn spin(&mut self, iterations: u64) -> Result<(), TransactionAborted> {
        self.check()?;
        if self.local.clock.spin(iterations) {
            return self.doomed(Cause::System);
        }
        Ok(())
    }

    fn raise<const CODE: u8>(&mut self) -> TransactionAborted {
        self.doom.get_or_insert(code::cause(CODE));
        TransactionAborted(())
    }
}
