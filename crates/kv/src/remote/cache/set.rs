//! One set of a cache: some entries, and the stamp by which all readers and writers synchronise.
//!
//! ```text
//! word 0      stamp
//!      1..8   keys of the entries: which place each is of; 0: none
//!      8..    the entries, one after the other
//! ```
//!
//! The stamp:
//!
//! ```text
//!  63                                                   15 14            1   0
//! +-------------------------------------------------------+---------------+------+
//! | version (49)                                          | hits (7 x 2)  | lock |
//! +-------------------------------------------------------+---------------+------+
//! ```
//!
//! Keys and entries change only under the lock, and unlocking increments the version. Hits change
//! without the lock, by a CAS of the whole stamp.
//!
//! Stamp and keys fill a cache line, so a miss touches one line.

use drtm_htm::{Engine, NoHtm, Word, fence_acquire, fence_release};

pub(super) use crate::store::bounds::WAYS;
use crate::store::{bounds::MODEL, layout::Field};

const KEYS: usize = 1;
const ENTRIES: usize = KEYS + WAYS;

const HIT_BITS: u32 = 2;
const LOCK: Field = Field::new(0, 1);
const HITS: Field = LOCK.then(HIT_BITS * WAYS as u32);
const VERSION: Field = HITS.then(63 - HIT_BITS * WAYS as u32);

const _: () = assert!(VERSION.ends_word() && (MODEL || ENTRIES == 8));

/// Returns the number of words of a set of entries of this many words.
pub(super) const fn set_words(entry: usize) -> usize {
    ENTRIES + WAYS * entry
}

/// A set's first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp(u64);

impl Stamp {
    const fn is_locked(self) -> bool {
        LOCK.get(self.0) != 0
    }

    const fn locked(self) -> Self {
        Self(LOCK.set(self.0, 1))
    }

    /// Returns the stamp after a change.
    const fn changed(self) -> Self {
        Self(LOCK.set(VERSION.set(self.0, VERSION.get(self.0) + 1), 0))
    }

    const fn is_same_version(self, other: Self) -> bool {
        VERSION.get(self.0) == VERSION.get(other.0) && !other.is_locked()
    }

    const fn hits_of(way: usize) -> Field {
        Field::new(1 + HIT_BITS * way as u32, HIT_BITS)
    }

    const fn hits(self, way: usize) -> u64 {
        Self::hits_of(way).get(self.0)
    }

    const fn with_hits(self, way: usize, hits: u64) -> Self {
        Self(Self::hits_of(way).set(self.0, hits))
    }

    /// Returns the stamp with one more hit. `None`: the counter is at its maximum.
    fn hit(self, way: usize) -> Option<Self> {
        let hits = self.hits(way);
        (hits < Self::hits_of(way).max()).then(|| self.with_hits(way, hits + 1))
    }

    /// Returns the stamp with one hit less for each entry.
    fn faded(self) -> Self {
        (0..WAYS).fold(self, |stamp, way| stamp.with_hits(way, stamp.hits(way).saturating_sub(1)))
    }

    /// Returns an entry without hits. Starts at another one each time, so that each has the same
    /// time to get a hit.
    fn without_hits(self) -> Option<usize> {
        let first = VERSION.get(self.0) as usize;
        (0..WAYS).map(|way| (first + way) % WAYS).find(|way| self.hits(*way) == 0)
    }
}

/// A set's words, in a cache's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Set<'c, const WORDS: usize> {
    words: &'c [Word],
}

impl<'c, const WORDS: usize> Set<'c, WORDS> {
    #[inline(always)]
    pub(super) fn new(words: &'c [Word]) -> Self {
        debug_assert_eq!(words.len(), set_words(WORDS));
        Self { words }
    }

    #[inline(always)]
    fn stamp(self) -> Stamp {
        Stamp(NoHtm.load(&self.words[0]))
    }

    #[inline(always)]
    fn way_of(self, key: u64) -> Option<usize> {
        (0..WAYS).find(|way| NoHtm.load_relaxed(&self.words[KEYS + way]) == key)
    }

    #[inline(always)]
    fn entry(self, way: usize) -> &'c [Word] {
        &self.words[ENTRIES + way * WORDS..][..WORDS]
    }

    /// Returns the entry of this key, consistently, and counts a hit. `None`: it is missing, or
    /// being changed.
    #[inline(always)]
    pub(super) fn get(self, key: u64) -> Option<[u64; WORDS]> {
        let before = self.stamp();
        let way = self.way_of(key)?;
        let mut copy = [0; WORDS];
        for (to, from) in copy.iter_mut().zip(self.entry(way)) {
            *to = NoHtm.load_relaxed(from);
        }
        fence_acquire();
        let after = Stamp(NoHtm.load_relaxed(&self.words[0]));
        if before.is_locked() || !before.is_same_version(after) {
            return None;
        }
        if let Some(hit) = after.hit(way) {
            // If this fails, another hit was counted instead, or the entry is being replaced. Both
            // are harmless.
            let _ = NoHtm.compare_exchange(&self.words[0], after.0, hit.0);
        }
        Some(copy)
    }

    /// Stores an entry. It replaces the key's old entry, or else a free one, or else one without
    /// hits.
    pub(super) fn put(self, key: u64, entry: &[u64; WORDS]) {
        let seen = self.stamp();
        let known = self.way_of(key);
        match known.or_else(|| self.way_of(0)).or_else(|| seen.without_hits()) {
            Some(way) => {
                let stamp = if known.is_some() { seen } else { seen.with_hits(way, 0) };
                self.change(seen, stamp, || {
                    NoHtm.store_relaxed(&self.words[KEYS + way], key);
                    for (to, from) in self.entry(way).iter().zip(entry) {
                        NoHtm.store_relaxed(to, *from);
                    }
                });
            }
            None if seen.is_locked() => {}
            None => {
                // If this fails, other threads use the set, and count for themselves.
                let _ = NoHtm.compare_exchange(&self.words[0], seen.0, seen.faded().0);
            }
        }
    }

    /// Changes a set that is unchanged since it was seen, and leaves it with this stamp and the
    /// next version. Does nothing if the set has changed or is being changed.
    #[inline(always)]
    fn change(self, seen: Stamp, stamp: Stamp, change: impl FnOnce()) {
        if seen.is_locked() || NoHtm.compare_exchange(&self.words[0], seen.0, seen.locked().0).is_err() {
            return;
        }
        fence_release();
        change();
        NoHtm.store(&self.words[0], stamp.changed().0);
    }
}
