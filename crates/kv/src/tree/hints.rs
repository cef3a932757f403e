//! Hints: where a key's record and the entry that leads there probably are, so that a key that is
//! there is found without a way down.
//!
//! # What a hint says, and what it is worth
//!
//! A hint has a leaf's place, one of the leaf's slots, and the link that was there. If the leaf is
//! part of the tree, and the slot still has that link, then the record that it leads to is the
//! tree's; and if that record says that it is the key's, then the key is there, and this is its
//! record. Neither the leaf's range nor the layer that it is in matters for that, and where the
//! hint comes from does not either: so hints are never taken back, and are correct as soon as the
//! place is one of a node of this tree, which its memory stays. Nothing is ever concluded from a
//! hint that is wrong, or missing.
//!
//! Leaf and record are at hand at once, and of the leaf only two cache lines are touched: what
//! follows from a hint waits for memory once, where a way down waits for the leaf first and then
//! for the record.
//!
//! # Where they are
//!
//! In memory of the process, of which each tree has some when it is large enough: *sets* of eight
//! hints. A set has a word with a *tag* of eight bits for each of its hints, and these words lie
//! together, so that they stay in the processor's caches: a key without a hint is told by its set's
//! tags alone. Which set is a key's is said by the lowest bits of its hash.
//!
//! They are left by whoever has found a key by a way down: for that key, and, in a tree of
//! integers, for the others of its leaf that have none, as far as there is room.
//!
//! There are about as many hints as keys. When there are more keys, one more bit of the hash is
//! used, and half of the hints stay where they are found. That goes on until the memory of
//! a *generation* of sets is in use; then comes one of sixteen times the size, which begins empty.
//!
//! The memory counts against that of the store (see `beside`). It is the system's again when
//! another generation is in use, when there are far fewer keys, or when the store needs it: the
//! hints that were there are missing then.
//!
//! ```text
//! tags    8 bits for each hint; 0: none
//! hint    word 0   leaf's place, in lines (37), slot (5), lines of the record behind its first (2), check (20)
//!         word 1   link
//! ```
//!
//! Nobody locks anything, and what several write at once may become a mixture: a hint that is
//! wrong.

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
    beside::{Beside, Holds},
    bounds::{FIRST_BITS, HINTS_BESIDES, MODEL},
    layout::{FANOUT, Field, PLACE_BITS, Place},
    mutation::{self, Mutation},
    record::{HEADER_WORDS, Record},
};

/// Hints in a set: as many as a word has bytes.
const WAYS: usize = 8;

const HINT_WORDS: usize = 2;

/// Hints of a set that share a cache line.
const HALF: usize = LINE_WORDS / HINT_WORDS;

const _: () = assert!(WAYS == 2 * HALF);

/// Bytes of a set, its tags included.
const SET_BYTES: u64 = (8 + 8 * HINT_WORDS * WAYS) as u64;

/// When there are so many times fewer keys than hints, the memory of hints is given back.
const FEWER: u64 = 8;

/// Trees with fewer keys have none: their inner nodes are in the processor's caches.
const LEAST_KEYS: u64 = 1 << 10;

/// So much of a store's memory is needed for a key at least: there are never more hints than keys
/// could be.
const BYTES_PER_KEY: u64 = 64;

/// Each generation has so many more bits of the hash for its sets than the one before.
const GENERATION_BITS: u32 = 4;

/// Enough for any store.
const GENERATIONS: usize = 8;

const _: () =
    assert!(MODEL || largest(GENERATIONS - 1) as u128 * (BYTES_PER_KEY * WAYS as u64) as u128 >= 8 << PLACE_BITS);

/// Of the keys without a hint, one in so many asks how many keys there are.
const ASKING: u64 = 1 << 6;

const LINE: Field = Field::new(0, PLACE_BITS - LINE_WORDS.ilog2());
const SLOT: Field = LINE.then(5);
const BEYOND: Field = SLOT.then(2);
const CHECK: Field = BEYOND.then(20);

const _: () = assert!(CHECK.ends_word() && FANOUT as u64 <= SLOT.max() + 1);

/// Of a hash, what the check is made of. Below are bits that tell the set, above those of the tag.
const CHECKED: u32 = 36;
const TAGGED: u32 = 56;

const ONES: u64 = u64::from_le_bytes([1; 8]);

/// Where a key's record probably is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hint {
    /// The place of the leaf.
    leaf: u64,
    slot: usize,
    link: u64,
    /// How many cache lines the record has behind its first.
    beyond: usize,
}

/// A tree's hints.
#[derive(Debug)]
pub(super) struct Hints {
    generations: [OnceLock<Option<Sets>>; GENERATIONS],
    /// See [`InUse`].
    in_use: AtomicU64,
    /// How many sets there can be: a power of two, or none.
    most: u64,
    /// Bytes that the store has noted for those that are in use.
    taken: Mutex<u64>,
    beside: Arc<Beside>,
}

/// Which generation of sets is in use (8 bits), and above that one less than how many of them are.
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

/// The most sets of a generation.
const fn largest(generation: usize) -> u64 {
    1 << (FIRST_BITS + GENERATION_BITS * generation as u32)
}

/// Memory for the sets of a generation. The system provides it as it is used.
#[derive(Debug)]
struct Sets {
    memory: Region<NoHtm>,
    tags: Offset,
    hints: Offset,
}

impl Hints {
    /// For a tree in a store of so many bytes, which has this memory beside them. `at_once`: not
    /// only when there are many keys.
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

    /// A key's hash, from the word that stands for it.
    #[inline(always)]
    pub(super) fn hash(word: u64) -> u64 {
        // Both halves of the product, so that all bits of the word have a part in all bits of the
        // hash.
        let product = u128::from(word ^ 0x2D35_8DCC_AA6C_78A5) * 0x9E37_79B9_7F4A_7C15;
        (product >> 64) as u64 ^ product as u64
    }

    /// The hint for a key with this hash.
    #[inline(always)]
    fn find(&self, hash: u64) -> Option<Hint> {
        let (sets, mask) = self.sets()?;
        let set = hash & mask;
        // So that nothing waits for the tags, should the hint be where it is kept first.
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

    /// The sets, and the bits of a hash that tell which is a key's. None, if there are no hints.
    #[inline(always)]
    fn sets(&self) -> Option<(&Sets, u64)> {
        let in_use = InUse(self.in_use.load(Relaxed));
        let sets = self.generations.get(in_use.generation())?.get()?.as_ref()?;
        Some((sets, in_use.mask()))
    }

    fn are_kept(&self) -> bool {
        self.sets().is_some()
    }

    /// A generation's memory; `None` if the system has none.
    fn generation(&self, generation: usize) -> Option<&Sets> {
        self.generations.get(generation)?.get_or_init(|| Sets::new(largest(generation).min(self.most))).as_ref()
    }

    /// Makes room for the hints of so many keys, as far as there can be beside a region of which so
    /// many bytes are allocated. Gives memory back if there are far fewer keys than hints.
    #[cold]
    pub(super) fn make_room(&self, keys: u64, allocated: impl FnOnce() -> u64) {
        if self.most == 0 || keys < LEAST_KEYS && !self.are_kept() {
            return;
        }
        let now = InUse::of(keys.div_ceil(WAYS as u64).max(1).next_power_of_two().min(self.most));
        let before = InUse(self.in_use.load(Relaxed));
        let is_first = !self.are_kept();
        // Only if it is news: others are reading it.
        if is_first || before.mask() < now.mask() {
            self.grow(now, allocated());
        } else if before.sets() >= FEWER * now.sets() && before.sets() > 1 {
            self.give_all_back();
        }
    }

    /// Uses so many sets, if their memory may be used.
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

    /// Gives the memory of a generation back, which is not in use any more: its hints are missing.
    fn discard(&self, generation: usize) {
        if let Some(Some(sets)) = self.generations.get(generation).and_then(OnceLock::get) {
            sets.discard();
        }
    }

    /// Keeps a hint for a key with this hash: in place of what was for it, where there was none, or
    /// else of any in its set.
    fn keep(&self, hash: u64, hint: Hint) {
        let any = HALF * half(hash) + (hash >> CHECKED) as usize % HALF;
        self.keep_in(hash, hint, |its_own, free| its_own.or(free).or(Some(any)));
    }

    /// Keeps a hint for a key with this hash that nobody has asked for: only where there was none,
    /// and if there is none for it.
    fn keep_besides(&self, hash: u64, hint: Hint) {
        self.keep_in(hash, hint, |its_own, free| if its_own.is_none() { free } else { None });
    }

    /// Keeps a hint in the way of its set that is chosen, if one is: from the one that is for the
    /// key already, and from the first that is for none.
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
        // It is in one cache line with those of many others.
        if tagged != tags {
            NoHtm.store_relaxed(tags_word, tagged);
        }
    }

    /// Puts random words, and what is elsewhere among them, in place of hints. Leaves stay leaves
    /// of this tree, or are nowhere near any.
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
    /// The record that is hinted at for keys with this hash. It may be another key's, but is the
    /// tree's.
    #[inline(always)]
    pub(super) fn hinted(&self, hash: u64) -> Option<Record<'_, E>> {
        let hint = self.hints.find(hash)?;
        hint.ask_for_record(self.region());
        let Hint { leaf, slot, link, .. } = hint;
        let node = self.node_at(leaf).ok()?;
        let stamp = node.stamp();
        let leads_there =
            stamp.is_readable_at(0) && slot < stamp.count() && node.link(slot) == link && node.still(stamp);
        let is_there = leads_there || mutation::includes(Mutation::HintWithoutLeaf);
        if is_there { Record::at(self.region(), Place::from_link(link)).ok() } else { None }
    }

    /// Asks for the memory that is looked at when a key with this hash is searched. Whether there
    /// is a hint.
    #[inline(always)]
    pub(super) fn ask_for_hinted(&self, hash: u64) -> bool {
        let Some(hint) = self.hints.find(hash) else { return false };
        hint.ask_for_record(self.region());
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
        // Two levels are passed as fast.
        let is_low = point.root.stamp.level() < 2 && point.depth == 0;
        if !is_low && (hash >> CHECKED).is_multiple_of(ASKING) {
            self.hints.make_room(self.base.keys()?, || self.region().allocated());
        }
        if self.hints.are_kept() {
            // By now its memory may be another's, and the number nonsense: so many lines are asked
            // for, and nothing else comes of it.
            let words = record.words::<K::Kept>().unwrap_or(HEADER_WORDS);
            let hint = |slot, link: u64| {
                let beyond = (Place::from_link(link).word as usize % LINE_WORDS + words - 1) / LINE_WORDS;
                Hint { leaf: point.leaf.node.place, slot, link, beyond }
            };
            self.hints.keep(hash, hint(point.slot, record.place().to_link()));
            // The model checker has its hands full with the hint above, which is kept in the same
            // way.
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
        // What a thread writes that still goes by what was in use is a page or two.
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
    fn ask_for_record<E: Engine>(&self, region: &Region<E>) {
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

    /// Gives the memory back to the system. There is no hint then.
    fn discard(&self) {
        let bytes = self.memory.allocated().saturating_sub(self.tags.bytes());
        // If the system refuses, hints are where they were, which does no harm.
        let _ = self.memory.discard(self.tags, bytes);
    }

    #[inline(always)]
    fn tags(&self, set: u64) -> Option<&Word> {
        let [word] = self.memory.array(self.tags + 8 * set).ok()?;
        Some(word)
    }

    /// The place of a hint in the memory.
    #[inline(always)]
    fn place(&self, set: u64, way: usize) -> u64 {
        self.hints.word() + HINT_WORDS as u64 * (set * WAYS as u64 + way as u64)
    }

    #[inline(always)]
    fn hint(&self, set: u64, way: usize) -> Option<&[Word; HINT_WORDS]> {
        self.memory.array(Offset::new(8 * self.place(set, way))).ok()
    }
}

/// In which half of its set a key's hint is kept, if there is room.
#[inline(always)]
fn half(hash: u64) -> usize {
    (hash >> (CHECKED - 1)) as usize % 2
}

/// Never zero.
#[inline(always)]
fn tag(hash: u64) -> u64 {
    (hash >> TAGGED).max(1)
}

#[inline(always)]
fn check(hash: u64) -> u64 {
    hash >> CHECKED & CHECK.max()
}

/// The first of a word's bytes that is this one.
#[inline(always)]
fn first(bytes: u64, byte: u64) -> Option<usize> {
    let other = bytes ^ (byte * ONES);
    // The lowest bit that is set is the highest of the first byte that is zero. (Above it, others
    // may be set.)
    let zero = other.wrapping_sub(ONES) & !other & ONES << 7;
    (zero != 0).then(|| zero.trailing_zeros() as usize / 8)
}

#[cfg(all(test, not(feature = "model")))]
mod tests;
