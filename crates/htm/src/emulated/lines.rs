//! Conflict detection: a version for every cache line, and one clock that orders them.
//!
//! # The protocol
//!
//! Each line has a *stamp*, a version and a lock bit. A writer to a line, which is a committing
//! transaction or a plain access, holds its lock while it writes. It then stores a version that the
//! clock has just issued.
//!
//! - A *plain read* loads the stamp, the word, and the stamp again, until the stamp was unlocked
//!   and the same both times. So it never sees the middle of a commit. If it sees one word of a
//!   commit, every line of that commit is locked or already new.
//! - A *plain write* locks, writes, and releases the line with a new version.
//! - A *transaction* records the stamp of each line at its first touch (see
//!   [`super::transaction`]). It commits in three steps: it locks the lines it writes, provided
//!   their stamps are unchanged, validates the stamps of all others, and writes.
//!
//! Versions only grow: a version is issued while the line's lock is held, and the next holder's is
//! issued later.
//!
//! # Orderings
//!
//! Words and stamps are read with acquire and written with release. A lock is taken by an
//! acquire-release compare-and-swap before any word is written. So a reader that sees a new word
//! also sees the lock, or what came after it.
//!
//! Two threads that each write one line and then read the other's need more. For example, a
//! transaction locks what it writes and checks the fallback lock, while a thread takes that lock
//! and reads what the transaction writes. They need a sequentially consistent fence between write
//! and read, on both sides. Plain stores have none, as on x86, where a later load may overtake a
//! store. Read-modify-writes and commits have one.

use crossbeam_utils::CachePadded;

use crate::{
    Word,
    sync::{
        AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
        Waiter,
    },
};

/// A line's version, and whether a thread is writing to it.
///
/// ```text
///  63                                  1      0
/// +-------------------------------------+--------+
/// |               version               | locked |
/// +-------------------------------------+--------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp(u64);

impl Stamp {
    const LOCKED: u64 = 1;

    fn released_at(version: u64) -> Self {
        Self(version << 1)
    }

    fn locked(self) -> Self {
        Self(self.0 | Self::LOCKED)
    }

    pub(super) fn is_locked(self) -> bool {
        self.0 & Self::LOCKED != 0
    }

    pub(super) fn version(self) -> u64 {
        self.0 >> 1
    }
}

/// The index of a line's stamp. Lines that are far apart may share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot(usize);

#[derive(Debug)]
pub(super) struct Lines {
    clock: CachePadded<AtomicU64>,
    stamps: Box<[AtomicU64]>,
}

impl Lines {
    /// Makes `count` stamps, which must be a power of two.
    pub(super) fn new(count: usize) -> Self {
        debug_assert!(count.is_power_of_two());
        Self { clock: CachePadded::new(AtomicU64::new(0)), stamps: (0..count).map(|_| AtomicU64::new(0)).collect() }
    }

    pub(super) fn slot(&self, line: usize) -> Slot {
        Slot(line & (self.stamps.len() - 1))
    }

    pub(super) fn stamp(&self, slot: Slot) -> Stamp {
        Stamp(self.stamps[slot.0].load(Acquire))
    }

    /// Returns the last issued version.
    pub(super) fn now(&self) -> u64 {
        self.clock.load(Acquire)
    }

    /// Issues a version. The caller holds the locks of all lines that will get it.
    pub(super) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, AcqRel) + 1
    }

    /// Locks a line whose stamp is still `seen`.
    pub(super) fn try_lock(&self, slot: Slot, seen: Stamp) -> bool {
        !seen.is_locked() && self.stamps[slot.0].compare_exchange(seen.0, seen.locked().0, AcqRel, Relaxed).is_ok()
    }

    /// Releases a line that was written to.
    pub(super) fn release(&self, slot: Slot, version: u64) {
        self.stamps[slot.0].store(Stamp::released_at(version).0, Release);
    }

    /// Releases a line that was locked and not written to.
    pub(super) fn restore(&self, slot: Slot, seen: Stamp) {
        self.stamps[slot.0].store(seen.0, Release);
    }

    /// Reads a word consistently, with its line's stamp. `None`: another thread is writing to the
    /// line.
    pub(super) fn snapshot(&self, slot: Slot, word: &Word) -> Option<(Stamp, u64)> {
        let before = self.stamp(slot);
        if before.is_locked() {
            return None;
        }
        let value = word.get(Acquire);
        (self.stamp(slot) == before).then_some((before, value))
    }

    /// Does a plain read.
    pub(super) fn read(&self, word: &Word) -> u64 {
        let slot = self.slot(word.line());
        let waiter = Waiter::new();
        loop {
            match self.snapshot(slot, word) {
                Some((_, value)) => return value,
                None => waiter.pause(),
            }
        }
    }

    /// Does a plain write of `change` applied to the old value. Returns the old value.
    pub(super) fn write(&self, word: &Word, change: impl FnOnce(u64) -> u64) -> u64 {
        let slot = self.slot(word.line());
        let waiter = Waiter::new();
        while !self.try_lock(slot, self.stamp(slot)) {
            waiter.pause();
        }
        let old = word.get(Relaxed);
        word.set(change(old), Release);
        self.release(slot, self.tick());
        old
    }
}
