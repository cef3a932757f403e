//! Hints: the probable places of a key's record and of the entry that leads to it. A key that is
//! present is found by its hint, without a descent.
//!
//! # The content of a hint, and its validation
//!
//! A hint has a leaf's place, one of the leaf's slots, and the link that was there. If the leaf is
//! part of the tree, and the slot still has that link, then the record that it leads to is the
//! tree's. If that record says that it is the key's, then the key is present, and this is its
//! record. Neither the leaf's range nor its layer matters for that, and neither does the origin of
//! the hint. So hints are never invalidated. A hint is safe as soon as its place is one of a node
//! of this tree, which the node's memory stays. A wrong or missing hint says nothing about a key.
//!
//! The leaf and the record are loaded at the same time, and only two cache lines of the leaf are
//! touched. So a lookup by a hint waits for memory once. A descent waits for the leaf first, and
//! then for the record.
//!
//! # Where hints are
//!
//! Hints are in memory of the process, in *sets* of eight hints. A tree gets such memory when it is
//! large enough. A set has a word with a *tag* of eight bits for each of its hints. These words are
//! stored together, so that they stay in the processor's caches. A set's tags alone show that a key
//! has no hint. The lowest bits of a key's hash name its set.
//!
//! A lookup that has found a key by a descent leaves a hint for it. In a tree of integers it also
//! leaves hints for the leaf's other keys that have none, as far as there is room.
//!
//! There are about as many hints as keys. When there are more keys, one more bit of the hash is
//! used, and half of the hints stay where they are found. This repeats until the memory of a
//! *generation* of sets is in use. Then the next generation, of sixteen times the size, begins
//! empty.
//!
//! The memory counts against that of the store (see `beside`). It is returned to the system when
//! another generation is in use, when there are far fewer keys, or when the store needs it. The
//! hints in it are lost then.
//!
//! ```text
//! tags    8 bits for each hint; 0: none
//! hint    word 0   leaf's place, in lines (37), slot (5), lines of the record behind its first (2), check (20)
//!         word 1   link
//! ```
//!
//! All accesses are without locks. Concurrent writes may mix two hints, which makes a wrong hint.

use std::sync::{
    Arc, OnceLock, Weak,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use drtm_htm::{Engine, LINE_WORDS, NoHtm, Word};
use drtm_rdma::{Offset, Region};

use parking_lot::Mutex;

use super::{Table, insert_point::InsertPoint, kind::Kind};
use crate::{
    KvError,
    mutation::{self, Mutation},
    record::{HEADER_WORDS, Record},
    store::{
        beside::{Beside, Holds},
        bounds::{FIRST_BITS, HINTS_BESIDES, MODEL},
        layout::{FANOUT, Field, PLACE_BITS, Place},
    },
};

/// The number of hints in a set: as many as a word has bytes.
const WAYS: usize = 8;

const HINT_WORDS: usize = 2;

/// The number of a set's hints that share a cache line.
const HALF: usize = LINE_WORDS / HINT_WORDS;

const _: () = assert!(WAYS == 2 * HALF);

/// The number of bytes of a set, including its tags.
const SET_BYTES: u64 = (8 + 8 * HINT_WORDS * WAYS) as u64;

/// The memory of hints is freed when there are this many times fewer keys than hints.
const FEWER: u64 = 8;

/// Trees with fewer keys have no hints: their inner nodes are in the processor's caches.
const LEAST_KEYS: u64 = 1 << 10;

/// The least memory of a store that a key takes. There are never more hints than keys could be.
const BYTES_PER_KEY: u64 = 64;

/// The number of hash bits that each generation adds to those of the previous one.
const GENERATION_BITS: u32 = 4;

/// Enough for any store.
const GENERATIONS: usize = 8;

const _: () =
    assert!(MODEL || largest(GENERATIONS - 1) as u128 * (BYTES_PER_KEY * WAYS as u64) as u128 >= 8 << PLACE_BITS);

/// One of this many lookups of keys without a hint checks the number of keys.
const ASKING: u64 = 1 << 6;

const LINE: Field = Field::new(0, PLACE_BITS - LINE_WORDS.ilog2());
const SLOT: Field = LINE.then(5);
const BEYOND: Field = SLOT.then(2);
const CHECK: Field = BEYOND.then(20);

const _: () = assert!(CHECK.ends_word() && FANOUT as u64 <= SLOT.max() + 1);

/// The lowest bit of a hash that is in the check. The set's bits are below, those of the tag above.
const CHECKED: u32 = 36;
const TAGGED: u32 = 56;

const ONES: u64 = u64::from_le_bytes([1; 8]);

/// The probable place of a key's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hint {
    /// The leaf's place.
    leaf: u64,
    slot: usize,
    link: u64,
    /// The number of cache lines that the record has behind its first.
    beyond: usize,
}

/// A tree's hints.
#[derive(Debug)]
pub(super) struct Hints {
    generations: [OnceLock<Option<Sets>>; GENERATIONS],
    /// See [`InUse`].
    in_use: AtomicU64,
    /// The most sets that there can be: a power of two, or zero.
    most: u64,
    /// The bytes that are taken from the store's budget for the sets in use.
    taken: Mutex<u64>,
    beside: Arc<Beside>,
}

/// The generation of sets that is in use (8 bits), and above that the number of its sets minus one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct InUse(u64);

impl InUse {
    fn of(sets: u64) -> Self {
        let generation = (0..GENERATIONS).find(|generation| sets <= largest(*generation)).unwrap_or(GENERATIONS - 1);
        Self((sets - 1) << 8 | generation as u64)
    }

    #[inline(always)]
    fn generation(self) -> usize {
        (self.0 % (1 << 8)) as usize
    }

    #[inline(always)]
    fn mask(self) -> u64 {
        self.0 >> 8
    }

    fn sets(self) -> u64 {
        self.mask() + 1
    }
}

/// Returns the most sets of a generation.
const fn largest(generation: usize) -> u64 {
    1 << (FIRST_BITS + GENERATION_BITS * generation as u32)
}

/// The memory of the sets of a generation. The system provides it as it is used.
#[derive(Debug)]
struct Sets {
    memory: Region<NoHtm>,
    tags: Offset,
    hints: Offset,
}

impl Hints {
    /// Makes the hints of a tree in a store of this capacity, with this memory beside it. With
    /// `at_once`, hints are kept even when there are few keys.
    pub(super) fn new(capacity: u64, beside: &Arc<Beside>, at_once: bool) -> Arc<Self> {
        let most = match capacity / (BYTES_PER_KEY * WAYS as u64) {
            _ if beside.is_off() => 0,
            _ if MODEL => 1,
            sets => 1 << sets.max(1).ilog2(),
        };
        let generations = [const { OnceLock::new() }; GENERATIONS];
        let (in_use, taken, beside) = (AtomicU64::new(InUse::of(1).0), Mutex::new(0), Arc::clone(beside));
        let hints = Arc::new(Self { generations, in_use, most, taken, beside });
        if at_once && most > 0 {
            hints.generation(0);
        }
        if most > 0 {
            let holder: Weak<Self> = Arc::downgrade(&hints);
            hints.beside.add(holder);
        }
        hints
    }

    /// Returns a key's hash, from its key word.
    #[inline(always)]
    pub(super) fn hash(word: u64) -> u64 {
        // Uses both halves of the product, so that each bit of the word affects all bits of the
        // hash.
        let product = u128::from(word ^ 0x2D35_8DCC_AA6C_78A5) * 0x9E37_79B9_7F4A_7C15;
        (product >> 64) as u64 ^ product as u64
    }

    /// Returns the hint for a key with this hash.
    #[inline(always)]
    fn find(&self, hash: u64) -> Option<Hint> {
        let (sets, mask) = self.sets()?;
        let set = hash & mask;
        // Prefetched so that a hint in its preferred half is not delayed by the tags.
        sets.memory.prefetch(sets.place(set, HALF * half(hash)));
        let way = first(NoHtm.load_relaxed(sets.tags(set)?), tag(hash))?;
        let [told, link] = sets.hint(set, way)?;
        let (told, link) = (NoHtm.load_relaxed(told), NoHtm.load_relaxed(link));
        let hint = Hint {
            leaf: LINE.get(told) * LINE_WORDS as u64,
            slot: SLOT.get(told) as usize,
            link,
            beyond: BEYOND.get(told) as usize,
        };
        (CHECK.get(told) == check(hash)).then_some(hint)
    }

    /// Returns the sets, and the mask of the hash bits that name a set. `None`: there are no hints.
    #[inline(always)]
    fn sets(&self) -> Option<(&Sets, u64)> {
        let in_use = InUse(self.in_use.load(Relaxed));
        let sets = self.generations.get(in_use.generation())?.get()?.as_ref()?;
        Some((sets, in_use.mask()))
    }

    fn are_kept(&self) -> bool {
        self.sets().is_some()
    }

    /// Returns a generation's memory. `None`: the system has none.
    fn generation(&self, generation: usize) -> Option<&Sets> {
        self.generations.get(generation)?.get_or_init(|| Sets::new(largest(generation).min(self.most))).as_ref()
    }

    /// Makes room for the hints of this many keys, as far as the region's capacity allows beside
    /// the allocated bytes. Frees memory if there are far fewer keys than hints.
    #[cold]
    pub(super) fn make_room(&self, keys: u64, allocated: impl FnOnce() -> u64) {
        if self.most == 0 || keys < LEAST_KEYS && !self.are_kept() {
            return;
        }
        let now = InUse::of(keys.div_ceil(WAYS as u64).max(1).next_power_of_two().min(self.most));
        let before = InUse(self.in_use.load(Relaxed));
        let is_first = !self.are_kept();
        // Changed only if necessary, since other threads are reading it.
        if is_first || before.mask() < now.mask() {
            self.grow(now, allocated());
        } else if before.sets() >= FEWER * now.sets() && before.sets() > 1 {
            self.give_all_back();
        }
    }

    /// Starts to use this many sets, if the budget has room for their memory.
    fn grow(&self, now: InUse, allocated: u64) {
        let mut taken = self.taken.lock();
        let before = InUse(self.in_use.load(Relaxed));
        let bytes = now.sets() * SET_BYTES;
        // Another thread may have been first.
        if bytes <= *taken || !self.beside.take(bytes - *taken, allocated) {
            return;
        }
        if self.generation(now.generation()).is_none() {
            self.beside.give_back(bytes - *taken);
            return;
        }
        *taken = bytes;
        self.in_use.store(now.0, Relaxed);
        if before.generation() != now.generation() {
            self.discard(before.generation());
        }
    }

    /// Frees the memory of a generation that is no longer in use. Its hints are lost.
    fn discard(&self, generation: usize) {
        if let Some(Some(sets)) = self.generations.get(generation).and_then(OnceLock::get) {
            sets.discard();
        }
    }

    /// Keeps a hint for a key with this hash. It replaces the key's old hint, or else takes a free
    /// way, or else replaces any hint of its set.
    fn keep(&self, hash: u64, hint: Hint) {
        let any = HALF * half(hash) + (hash >> CHECKED) as usize % HALF;
        self.keep_in(hash, hint, |its_own, free| its_own.or(free).or(Some(any)));
    }

    /// Keeps a hint for a key that was not looked up, only in a free way, and only if the key has
    /// no hint.
    fn keep_besides(&self, hash: u64, hint: Hint) {
        self.keep_in(hash, hint, |its_own, free| if its_own.is_none() { free } else { None });
    }

    /// Keeps a hint in the way of its set that `choose` returns, if any. Its arguments are the way
    /// that the key has already, and the first free way.
    #[inline(always)]
    fn keep_in(&self, hash: u64, hint: Hint, choose: impl FnOnce(Option<usize>, Option<usize>) -> Option<usize>) {
        let Some((sets, mask)) = self.sets() else { return };
        let set = hash & mask;
        let Some(tags_word) = sets.tags(set) else { return };
        let (tags, tag) = (NoHtm.load_relaxed(tags_word), tag(hash));
        let begin = HALF * half(hash);
        let free = first(tags.rotate_right(8 * begin as u32), 0).map(|way| (begin + way) % WAYS);
        let Some(way) = choose(first(tags, tag), free) else { return };
        let Some([told_word, link_word]) = sets.hint(set, way) else { return };
        let told = LINE.set(0, hint.leaf / LINE_WORDS as u64);
        let told = BEYOND.set(SLOT.set(told, hint.slot as u64), (hint.beyond as u64).min(BEYOND.max()));
        NoHtm.store_relaxed(told_word, CHECK.set(told, check(hash)));
        NoHtm.store_relaxed(link_word, hint.link);
        let shift = 8 * way as u32;
        let tagged = tags & !(0xFF << shift) | tag << shift;
        // The word shares a cache line with those of many other sets.
        if tagged != tags {
            NoHtm.store_relaxed(tags_word, tagged);
        }
    }

    /// Replaces hints by random words and by parts of other hints. Places of leaves stay those of
    /// leaves of this tree, or are far out of bounds.
    pub(super) fn scribble(&self, seed: u64) {
        let Some((sets, mask)) = self.sets() else { return };
        let mut random = seed;
        let mut draw = |below: u64| {
            random = Self::hash(random.wrapping_add(ONES));
            random % below
        };
        let many = mask + 1;
        for set in 0..many {
            for way in 0..WAYS {
                let (Some([told, link]), Some(other)) =
                    (sets.hint(set, way), sets.hint(draw(many), draw(WAYS as u64) as usize))
                else {
                    continue;
                };
                let elsewhere = NoHtm.load_relaxed(&other[0]);
                let kept = NoHtm.load_relaxed(told);
                match draw(5) {
                    0 => NoHtm.store_relaxed(told, LINE.set(kept, LINE.get(elsewhere))),
                    1 => NoHtm.store_relaxed(told, SLOT.set(kept, draw(SLOT.max() + 1))),
                    2 => NoHtm.store_relaxed(link, NoHtm.load_relaxed(&other[1])),
                    3 => NoHtm.store_relaxed(told, LINE.set(kept, draw(LINE.max() + 1) | 1 << 36)),
                    _ => {}
                }
            }
        }
    }
}

impl<E: Engine> Table<E> {
    /// Returns the record of the hint for keys with this hash. It may be another key's, but is a
    /// record of this tree.
    #[inline(always)]
    pub(super) fn hinted(&self, hash: u64) -> Option<Record<'_, E>> {
        let hint = self.hints.find(hash)?;
        hint.prefetch_record(self.region());
        let Hint { leaf, slot, link, .. } = hint;
        let node = self.node_at(leaf).ok()?;
        let stamp = node.stamp();
        let leads_there =
            stamp.is_readable_at(0) && slot < stamp.count() && node.link(slot) == link && node.still(stamp);
        let is_there = leads_there || mutation::includes(Mutation::HintWithoutLeaf);
        if is_there { Record::at(self.region(), Place::from_link(link)).ok() } else { None }
    }

    /// Prefetches the memory that a lookup of a key with this hash reads. Returns whether there is
    /// a hint.
    #[inline(always)]
    pub(super) fn prefetch_hinted(&self, hash: u64) -> bool {
        let Some(hint) = self.hints.find(hash) else { return false };
        hint.prefetch_record(self.region());
        self.node_at(hint.leaf).is_ok_and(|leaf| {
            leaf.prefetch_link(hint.slot);
            true
        })
    }

    /// Keeps a hint of where a key was found.
    #[inline(never)]
    pub(super) fn leave_hint<K: Kind>(
        &self,
        hash: u64,
        point: &InsertPoint<'_, E>,
        record: &Record<'_, E>,
    ) -> Result<(), KvError> {
        // A descent of two levels is as fast as a hint.
        let is_low = point.root.stamp.level() < 2 && point.depth == 0;
        if !is_low && (hash >> CHECKED).is_multiple_of(ASKING) {
            self.hints.make_room(self.base.keys()?, || self.region().allocated());
        }
        if self.hints.are_kept() {
            // The record's memory may be another's by now, and the number arbitrary. It only says
            // how many lines are prefetched.
            let words = record.words::<K::InRecord>().unwrap_or(HEADER_WORDS);
            let hint = |slot, link: u64| {
                let beyond = (Place::from_link(link).word as usize % LINE_WORDS + words - 1) / LINE_WORDS;
                Hint { leaf: point.leaf.node.place, slot, link, beyond }
            };
            self.hints.keep(hash, hint(point.slot, record.place().to_link()));
            // The model checker checks only the hint above: more would take too long, and these are
            // kept in the same way.
            if K::FITS && !MODEL {
                for slot in 0..point.leaf.stamp.count() {
                    let (key, link) = point.leaf.node.entry(slot);
                    self.hints.keep_besides(Hints::hash(key), hint(slot, link));
                }
            }
        }
        Ok(())
    }
}

impl Holds for Hints {
    fn give_all_back(&self) {
        if MODEL {
            return;
        }
        let mut taken = self.taken.lock();
        let before = InUse(self.in_use.swap(InUse::of(1).0, Relaxed));
        self.discard(before.generation());
        // A thread that still uses the old sets may write to a page or two of them.
        self.beside.give_back(std::mem::take(&mut *taken));
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        self.beside.give_back(*self.taken.get_mut());
    }
}

impl Hint {
    #[inline(always)]
    fn prefetch_record<E: Engine>(&self, region: &Region<E>) {
        let first = Place::from_link(self.link).word;
        for line in 0..=BEYOND.max() as usize {
            if line <= self.beyond {
                region.prefetch(first + (line * LINE_WORDS) as u64);
            }
        }
    }
}

impl Sets {
    fn new(sets: u64) -> Option<Self> {
        let memory = Region::anonymous(NoHtm, sets * SET_BYTES + HINTS_BESIDES).ok()?;
        let tags = memory.extend(8 * sets, 64).ok()?;
        let hints = memory.extend((SET_BYTES - 8) * sets, 64).ok()?;
        Some(Self { memory, tags, hints })
    }

    /// Returns the memory to the system. There are no hints afterwards.
    fn discard(&self) {
        let bytes = self.memory.allocated().saturating_sub(self.tags.bytes());
        // If the system refuses, the hints stay, which does no harm.
        let _ = self.memory.discard(self.tags, bytes);
    }

    #[inline(always)]
    fn tags(&self, set: u64) -> Option<&Word> {
        let [word] = self.memory.array(self.tags + 8 * set).ok()?;
        Some(word)
    }

    /// Returns the place of a hint in the memory, in words.
    #[inline(always)]
    fn place(&self, set: u64, way: usize) -> u64 {
        self.hints.word() + HINT_WORDS as u64 * (set * WAYS as u64 + way as u64)
    }

    #[inline(always)]
    fn hint(&self, set: u64, way: usize) -> Option<&[Word; HINT_WORDS]> {
        self.memory.array(Offset::new(8 * self.place(set, way))).ok()
    }
}

/// Returns the half of its set in which a key's hint is kept if there is room.
#[inline(always)]
fn half(hash: u64) -> usize {
    (hash >> (CHECKED - 1)) as usize % 2
}

/// Returns a hash's tag, which is never zero.
#[inline(always)]
fn tag(hash: u64) -> u64 {
    (hash >> TAGGED).max(1)
}

#[inline(always)]
fn check(hash: u64) -> u64 {
    hash >> CHECKED & CHECK.max()
}

/// Returns the index of the first of a word's bytes that is equal to `byte`.
#[inline(always)]
fn first(bytes: u64, byte: u64) -> Option<usize> {
    let other = bytes ^ (byte * ONES);
    // The lowest bit that is set is the highest bit of the first byte that is zero. Bits above it
    // may be set by mistake.
    let zero = other.wrapping_sub(ONES) & !other & ONES << 7;
    (zero != 0).then(|| zero.trailing_zeros() as usize / 8)
}

#[cfg(all(test, not(feature = "model")))]
mod tests;
