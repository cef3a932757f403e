//! One bucket: the meaning of its words, and how they are changed.
//!
//! A thread that changes a chain (a main bucket and the overflow buckets it links to) holds the
//! main bucket's lock. Releasing the lock increments the bucket's version.
//!
//! Readers take no lock. A slot is filled key first and place last. So a place that is found with a
//! key leads to that key's record, or to one that says it is another's. A search that finds nothing
//! is only valid if the version is unchanged afterwards, and the bucket was the right one to
//! search.

use std::hint::{cold_path, select_unpredictable};

use drtm_htm::{Engine, LINE_WORDS, Word, fence_acquire};

use super::segments::Bucket;
use crate::{
    mutation::{self, Mutation},
    store::layout::{Bits, LINE_SLOTS, Place, SLOTS, key_word, meta_word},
};

/// A chain's version and lock as they were seen: enough to detect a later change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen(u64);

impl Seen {
    /// Returns the bucket's version.
    pub(super) fn version(self) -> u32 {
        Bits::version(self.0)
    }

    pub(super) fn is_locked(self) -> bool {
        Bits::is_locked(self.0)
    }
}

#[inline(always)]
pub(super) fn version_meta(bucket: &Bucket) -> &Word {
    &bucket[meta_word(Bits::VERSION_SLOT)]
}

/// Loads the bucket's version and lock.
#[inline(always)]
pub(super) fn seen<E: Engine>(engine: &E, bucket: &Bucket) -> Seen {
    Seen(engine.load(version_meta(bucket)))
}

/// Returns the slots with this key word, as bits. Empty slots may be among them.
///
/// The code has no branches, since which slot matches cannot be predicted. A misprediction would
/// keep the processor from starting the next operation while this one waits for memory.
#[inline(always)]
pub(super) fn matches<E: Engine>(engine: &E, bucket: &Bucket, key: u64) -> u32 {
    (0..SLOTS).fold(0, |found, slot| found | u32::from(engine.load_relaxed(&bucket[key_word(slot)]) == key) << slot)
}

/// A mask with a bit for each slot of a bucket.
pub(super) const ALL_SLOTS: u32 = (1 << SLOTS) - 1;

/// Returns the first of some slots of a bucket, which are given as bits. Slots of this line come
/// before the others.
#[inline(always)]
pub(super) fn first_of(slots: u32, line: usize) -> usize {
    let first = first_slot(line);
    let turned = slots >> first | slots << (SLOTS - first);
    turned.trailing_zeros() as usize ^ first
}

/// Returns the first slot of a line.
pub(super) const fn first_slot(line: usize) -> usize {
    line * LINE_SLOTS
}

/// Returns the first slot of a bucket or a line with this key word, or the number of slots if there
/// is none. Uses conditional moves instead of branches, as [`matches`] does.
///
/// Of several slots with the same key word, the first is almost always the one in use. A key is put
/// into the first free slot of its line, so stale copies are behind it.
#[inline(always)]
pub(super) fn first_match<E: Engine, const WORDS: usize>(engine: &E, slots: &[Word; WORDS], key: u64) -> usize {
    let is_it = |slot: usize| engine.load_relaxed(&slots[key_word(slot)]) == key;
    (0..WORDS / 2).rev().fold(WORDS / 2, |found, slot| select_unpredictable(is_it(slot), slot, found))
}

/// Returns the first slot of a bucket with this key word, line by line. Starts with the given line:
/// the key is there if there was room, so the other line is seldom loaded.
#[inline(always)]
pub(super) fn first_match_from<E: Engine>(engine: &E, bucket: &Bucket, line: usize, key: u64) -> usize {
    let in_line = |line: usize| {
        let slot = first_match(engine, bucket[line * LINE_WORDS..].first_chunk::<LINE_WORDS>()?, key);
        (slot < LINE_SLOTS).then_some(first_slot(line) + slot)
    };
    in_line(line).or_else(|| in_line(line ^ 1)).unwrap_or(SLOTS)
}

/// A slot as it was seen, for a reader that follows it without checking anything else.
#[derive(Debug)]
pub(super) struct SeenSlot<'b> {
    /// The chain's main bucket.
    main: &'b Bucket,
    seen: Seen,
    slot: &'b Word,
    meta: u64,
}

impl<'b> SeenSlot<'b> {
    /// Loads a slot of a bucket in the chain of `main`, which was seen before. `None`: the slot is
    /// empty.
    #[inline(always)]
    pub(super) fn of<E: Engine>(
        engine: &E,
        main: &'b Bucket,
        seen: Seen,
        bucket: &'b Bucket,
        slot: usize,
    ) -> Option<Self> {
        let slot = &bucket[meta_word(slot % SLOTS)];
        let meta = engine.load(slot);
        (Bits::place(meta) != 0).then_some(Self { main, seen, slot, meta })
    }

    /// Returns the record's place, as a word.
    #[inline(always)]
    pub(super) fn word(&self) -> u64 {
        Bits::place(self.meta)
    }

    /// Returns whether the slot has led to its key's record all the while: the slot is unchanged,
    /// and no change of the chain has completed. Then the record's incarnation need not be checked.
    #[inline(always)]
    pub(super) fn holds<E: Engine>(&self, engine: &E) -> bool {
        fence_acquire();
        let is_same = seen(engine, self.main) == self.seen && engine.load_relaxed(self.slot) == self.meta;
        is_same || mutation::includes(Mutation::FollowWithoutSight)
    }
}

/// Returns the place of a slot's record. `None`: the slot is empty. Has one branch, which is seldom
/// taken, for the reason given at [`matches`].
#[inline(always)]
pub(super) fn place<E: Engine>(engine: &E, bucket: &Bucket, slot: usize) -> Option<Place> {
    let meta = engine.load(&bucket[meta_word(slot % SLOTS)]);
    // Loaded for every slot: a superfluous load is cheaper than a branch.
    let [low, high] = Bits::lenders(slot).map(|lender| Bits::spare(engine.load_relaxed(&bucket[meta_word(lender)])));
    let lent = u16::from_le_bytes([low, high]);
    let incarnation = if Bits::lends_its_tag(slot) { lent } else { Bits::tag(meta) };
    let word = Bits::place(meta);
    (word != 0).then_some(Place { word, incarnation })
}

/// Returns the link to the chain's next overflow bucket, or zero.
#[inline(always)]
pub(super) fn link<E: Engine>(engine: &E, bucket: &Bucket) -> u64 {
    Bits::link(engine.load(&bucket[meta_word(Bits::LINK_SLOT)]))
}

/// Returns how many bits of the hash are in the bucket's number. `None`: the bucket is not in use.
#[inline(always)]
pub(super) fn depth<E: Engine>(engine: &E, bucket: &Bucket) -> Option<u32> {
    Bits::depth(engine.load(&bucket[meta_word(Bits::DEPTH_SLOT)]))
}

/// Takes the bucket's lock if it is free and the bucket is unchanged since it was `seen`.
pub(super) fn try_lock<E: Engine>(engine: &E, bucket: &Bucket, seen: Seen) -> bool {
    !seen.is_locked() && engine.compare_exchange(version_meta(bucket), seen.0, Bits::locked(seen.0)).is_ok()
}

/// Returns the empty slots as bits, without branches.
#[inline(always)]
pub(super) fn empty<E: Engine>(engine: &E, bucket: &Bucket) -> u32 {
    let is_empty = |slot: usize| Bits::place(engine.load(&bucket[meta_word(slot)])) == 0;
    (0..SLOTS).fold(0, |empty, slot| empty | u32::from(is_empty(slot)) << slot)
}

// The functions below change a bucket of a chain that the caller has locked, or that no thread
// knows yet.

pub(super) fn set_depth<E: Engine>(engine: &E, bucket: &Bucket, depth: u32) {
    update(engine, bucket, Bits::DEPTH_SLOT, |meta| Bits::with_depth(meta, depth));
}

pub(super) fn set_link<E: Engine>(engine: &E, bucket: &Bucket, link: u64) {
    update(engine, bucket, Bits::LINK_SLOT, |meta| Bits::with_link(meta, link));
}

/// Fills a slot: the key, the tag, and last the place.
#[inline(always)]
pub(super) fn fill<E: Engine>(engine: &E, bucket: &Bucket, slot: usize, key: u64, place: Place) {
    engine.store(&bucket[key_word(slot)], key);
    point(engine, bucket, slot, place);
}

/// Sets a slot's place.
#[inline(always)]
pub(super) fn point<E: Engine>(engine: &E, bucket: &Bucket, slot: usize, place: Place) {
    if Bits::lends_its_tag(slot) {
        for (lender, half) in Bits::lenders(slot).into_iter().zip(place.incarnation.to_le_bytes()) {
            update(engine, bucket, lender, |meta| Bits::with_spare(meta, half));
        }
        update(engine, bucket, slot, |meta| Bits::with_place(meta, place.word));
    } else {
        update(engine, bucket, slot, |meta| Bits::with_tag(Bits::with_place(meta, place.word), place.incarnation));
    }
}

/// Empties a slot. Its key word stays, without meaning.
pub(super) fn clear<E: Engine>(engine: &E, bucket: &Bucket, slot: usize) {
    update(engine, bucket, slot, |meta| Bits::with_place(meta, 0));
}

/// Unlocks the bucket and increments its version: the last step of a change. Calls `turn_over`
/// first if the new version begins a quarter of all versions.
#[inline(always)]
pub(super) fn release<E: Engine>(engine: &E, bucket: &Bucket, turn_over: impl FnOnce()) {
    let word = version_meta(bucket);
    let released = Bits::released(engine.load(word));
    if Bits::begins_quarter(released) {
        cold_path();
        turn_over();
    }
    engine.store(word, released);
}

/// Unlocks a bucket that has not been changed. Its version stays.
pub(super) fn release_unchanged<E: Engine>(engine: &E, bucket: &Bucket) {
    let word = version_meta(bucket);
    engine.store(word, Bits::unlocked(engine.load(word)));
}

#[inline(always)]
fn update<E: Engine>(engine: &E, bucket: &Bucket, slot: usize, change: impl FnOnce(u64) -> u64) {
    let word = &bucket[meta_word(slot)];
    engine.store(word, change(engine.load(word)));
}
