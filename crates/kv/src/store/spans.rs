//! Spans: how memory for objects is divided, so that it can serve other sizes when it is free.
//!
//! A region is divided into *units* of one size. A *span* is one unit, or several in a row, and
//! serves one size class. Each unit has a word. That of a span's first unit says its class and
//! counts the objects that are *out*: those in a table, those in quarantine, and those in a
//! worker's page. A free object is in a worker's list, or in the common one, as a [`Free`]. It has
//! the span's *generation*, and is only taken if that is still the span's. So a span whose objects
//! are all free can be *retired* by one swap of its word, wherever they are listed.
//!
//! A retired span is in quarantine until nothing can refer to a place in it any more
//! (`docs/decisions/0056`). Then its units are in the common [pool](super::units), and can be
//! divided for another class.
//!
//! ```text
//!  63         40 39     33 32   27 26                 3 2     0
//! +-------------+---------+-------+--------------------+-------+
//! | generation  | class   | zero  | objects out        | kind  |   of a span's first unit, or of one in the pool
//! | (24)        | (7)     |       | (24)               | (3)   |
//! +-------------+---------+-------+--------------------+-------+
//! | zero        | units to the first one (37)          | PART  |   of another
//! +-------------+--------------------------------------+-------+
//! ```
//!
//! A unit whose word is zero is not this store's: another handle of the same region may have
//! divided it. Objects there are reused like others, are not counted, and keep their class for
//! ever.

use std::ops::Range;

use drtm_htm::{Engine, Word};

use crate::store::bounds::{GENERATION_USED, MODEL};

/// Nothing is known of the unit.
const UNKNOWN: u64 = 0;
/// The first unit of a span that is in use.
const LIVE: u64 = 1;
/// Another unit of a span.
const PART: u64 = 2;
/// The first unit of a span that is being emptied: its free objects are not given out.
const SPARSE: u64 = 3;
/// The first unit of a span in quarantine.
const RETIRED: u64 = 4;
/// A unit in the common pool, or one that has left it for another use than objects.
const POOLED: u64 = 5;

const KIND: u64 = 0b111;
const ONE: u64 = 1 << 3;
const COUNT: u64 = ((1 << 24) - 1) << 3;
const CLASS_AT: u32 = 33;
const CLASS: u64 = (1 << 7) - 1;
const GENERATION_AT: u32 = 40;

/// The last generation of a unit. It keeps its class then: no generation comes again.
const LAST: u64 = (1 << GENERATION_USED) - 1;

const WORD_BITS: u32 = 40;
const WORD: u64 = (1 << WORD_BITS) - 1;

/// Units of a store, unless they would be larger or smaller than these bytes.
const UNITS: u64 = 1 << 10;
const LEAST_BYTES: u64 = 4 << 10;
const MOST_BYTES: u64 = 64 << 10;

/// The most units of a store: of a larger store, units are larger.
const MOST_UNITS: u64 = 1 << 18;

/// Words in a cache line, as a power of two.
const LINE_BITS: u32 = 3;

/// Of a span, at most one part in so many is not used by objects.
const WASTED: u64 = 8;

/// A free object: where it begins, and the generation of its span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Free(u64);

impl Free {
    #[inline(always)]
    const fn of(word: u64, generation: u64) -> Self {
        Self(word | generation << WORD_BITS)
    }

    #[inline(always)]
    pub(crate) const fn word(self) -> u64 {
        self.0 & WORD
    }

    #[inline(always)]
    const fn generation(self) -> u64 {
        self.0 >> WORD_BITS
    }
}

/// Units in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: u64,
    pub(crate) units: u64,
}

impl Run {
    fn all(self) -> Range<u64> {
        self.first..self.first + self.units
    }
}

/// A retired span, and the class that it served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retired {
    pub(crate) run: Run,
    /// [`NO_CLASS`] if it cannot serve its class again, since its objects were not freed one by
    /// one: their incarnations are those of records.
    pub(crate) class: u8,
}

/// A number that is no class's, and fits into a span's word.
pub(crate) const NO_CLASS: u8 = CLASS as u8;

/// What a span is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) first: u64,
    pub(crate) units: u64,
    pub(crate) class: u8,
    /// Its objects that are out.
    pub(crate) out: u64,
}

/// The words of a store's units.
#[derive(Debug)]
pub(crate) struct Spans {
    /// A power of two. Those of units next to each other are in different cache lines.
    words: Box<[Word]>,
    /// How many units there are.
    count: u64,
    /// The power of two that says how many words a unit has.
    shift: u32,
    /// The power of two that says how many lines of words there are.
    lines: u32,
}

impl Spans {
    pub(crate) fn new(capacity: u64) -> Self {
        let bytes = match (capacity / UNITS).next_power_of_two().clamp(LEAST_BYTES, MOST_BYTES) {
            _ if MODEL => 64,
            bytes => bytes.max((capacity / MOST_UNITS).next_power_of_two()),
        };
        let count = capacity.div_ceil(bytes);
        let words = count.next_power_of_two().max(1 << LINE_BITS);
        let lines = words.ilog2() - LINE_BITS;
        let words = (0..words).map(|_| Word::new(UNKNOWN)).collect();
        Self { words, count, shift: (bytes / 8).ilog2(), lines }
    }

    /// Returns a unit's word, or another's if there is no such unit.
    #[inline(always)]
    fn word(&self, unit: u64) -> &Word {
        let spread = unit << LINE_BITS | unit >> self.lines & ((1 << LINE_BITS) - 1);
        &self.words[spread as usize & (self.words.len() - 1)]
    }

    /// Returns how many words a unit has.
    pub(crate) fn unit_words(&self) -> u64 {
        1 << self.shift
    }

    /// Returns how many units a span has for objects of so many words: as few as waste little.
    pub(crate) fn units_for(&self, words: u64) -> u64 {
        let mut units = words.div_ceil(self.unit_words());
        while !MODEL && (units << self.shift) % words > (units << self.shift) / WASTED {
            units += 1;
        }
        units
    }

    /// Returns the word of the span that an object is in, and what it says.
    #[inline(always)]
    fn span_of<E: Engine>(&self, engine: &E, word: u64) -> (&Word, u64) {
        let unit = word >> self.shift;
        let first = self.word(unit);
        let says = engine.load_relaxed(first);
        if says & KIND == PART { self.first_of(engine, unit, says) } else { (first, says) }
    }

    #[cold]
    #[inline(never)]
    fn first_of<E: Engine>(&self, engine: &E, unit: u64, says: u64) -> (&Word, u64) {
        let first = self.word(unit.wrapping_sub(says >> 3));
        (first, engine.load_relaxed(first))
    }

    /// Takes a free object. `false`: its span has been retired, and it is none any more; or it is
    /// [set aside](Self::is_aside).
    #[inline(always)]
    pub(crate) fn take<E: Engine>(&self, engine: &E, free: Free) -> bool {
        let (span, mut says) = self.span_of(engine, free.word());
        loop {
            if says & KIND != LIVE || says >> GENERATION_AT != free.generation() {
                return says == UNKNOWN;
            }
            match engine.compare_exchange(span, says, says + ONE) {
                Ok(_) => return true,
                Err(found) => says = found,
            }
        }
    }

    /// Returns whether a free object is not given out, because its span is being emptied.
    pub(crate) fn is_aside<E: Engine>(&self, engine: &E, free: Free) -> bool {
        self.is_of(engine, free, SPARSE)
    }

    /// Returns whether a free object is still one.
    pub(crate) fn is_current<E: Engine>(&self, engine: &E, free: Free) -> bool {
        self.is_of(engine, free, LIVE) || self.is_aside(engine, free)
    }

    fn is_of<E: Engine>(&self, engine: &E, free: Free, kind: u64) -> bool {
        let (_, says) = self.span_of(engine, free.word());
        says == UNKNOWN && kind == LIVE || says & KIND == kind && says >> GENERATION_AT == free.generation()
    }

    /// Takes an object back that was out.
    #[inline(always)]
    pub(crate) fn give<E: Engine>(&self, engine: &E, word: u64) -> Free {
        let (span, says) = self.span_of(engine, word);
        if says == UNKNOWN {
            return Free::of(word, 0);
        }
        // As long as the object is out, the span's generation stays the same.
        let before = engine.fetch_add(span, ONE.wrapping_neg());
        debug_assert!(before & COUNT != 0 && matches!(before & KIND, LIVE | SPARSE), "{before:x} of {word:x}");
        Free::of(word, before >> GENERATION_AT)
    }

    /// Makes a span of units that are nothing yet, were in the pool, or are a retired span. All of
    /// its objects are out. `false`: it cannot be one any more.
    pub(crate) fn make<E: Engine>(&self, engine: &E, run: Run, class: u8, objects: u64) -> bool {
        let generations = run.all().map(|unit| engine.load(self.word(unit)) >> GENERATION_AT);
        // What is listed of any of its units is of an earlier generation than this.
        let generation = generations.max().unwrap_or(0) + 1;
        if generation > LAST {
            return false;
        }
        for unit in run.all().skip(1) {
            engine.store(self.word(unit), (unit - run.first) << 3 | PART);
        }
        let class = u64::from(class) << CLASS_AT;
        engine.store(self.word(run.first), generation << GENERATION_AT | class | objects << 3 | LIVE);
        true
    }

    /// Retires the spans of which no object is out, but for those that have been retired too often.
    pub(crate) fn retire<E: Engine>(&self, engine: &E) -> Vec<Retired> {
        let mut retired = Vec::new();
        for first in 0..self.count {
            let word = self.word(first);
            let says = engine.load_relaxed(word);
            if !matches!(says & KIND, LIVE | SPARSE) || says & COUNT != 0 || says >> GENERATION_AT >= LAST {
                continue;
            }
            // From here on, no object of it can be taken.
            if engine.compare_exchange(word, says, says & !KIND | RETIRED).is_ok() {
                let run = Run { first, units: self.units_of(engine, first) };
                retired.push(Retired { run, class: (says >> CLASS_AT & CLASS) as u8 });
            }
        }
        retired
    }

    /// Returns how many units the span has that begins with this one.
    fn units_of<E: Engine>(&self, engine: &E, first: u64) -> u64 {
        let is_part = |unit: &u64| engine.load_relaxed(self.word(*unit)) == (unit - first) << 3 | PART;
        1 + (first + 1..self.count).take_while(is_part).count() as u64
    }

    /// Returns the first unit of an object's span. `None` if this store has not made the span.
    pub(crate) fn first_unit_of<E: Engine>(&self, engine: &E, word: u64) -> Option<u64> {
        let unit = word >> self.shift;
        let says = engine.load_relaxed(self.word(unit));
        match says & KIND {
            UNKNOWN => None,
            PART => unit.checked_sub(says >> 3),
            _ => Some(unit),
        }
    }

    /// Returns whether this many objects of a sparse span are out, and the span can be retired.
    pub(crate) fn is_sparse_with<E: Engine>(&self, engine: &E, first: u64, out: u64) -> bool {
        let says = engine.load(self.word(first));
        says & KIND == SPARSE && (says & COUNT) >> 3 == out && says >> GENERATION_AT < LAST
    }

    /// Takes so many objects of a sparse span back at once, and retires the span. `None` if it is
    /// not sparse, or others are out: it is [retired](Self::retire) after those were given back.
    pub(crate) fn retire_whole<E: Engine>(&self, engine: &E, first: u64, objects: u64) -> Option<Retired> {
        let word = self.word(first);
        let mut says = engine.load(word);
        while says & KIND == SPARSE {
            debug_assert!(says & COUNT >= objects * ONE, "{says:x} has no {objects} objects out");
            // None of its objects can be taken while it is sparse.
            let left = (says - objects * ONE) | u64::from(NO_CLASS) << CLASS_AT;
            let is_whole = left & COUNT == 0;
            match engine.compare_exchange(word, says, if is_whole { left & !KIND | RETIRED } else { left }) {
                Ok(_) if is_whole => {
                    let run = Run { first, units: self.units_of(engine, first) };
                    return Some(Retired { run, class: NO_CLASS });
                }
                Ok(_) => return None,
                Err(found) => says = found,
            }
        }
        None
    }

    /// Notes that a retired span is none any more.
    pub(crate) fn dissolve<E: Engine>(&self, engine: &E, run: Run) {
        let generation = engine.load(self.word(run.first)) >> GENERATION_AT;
        run.all().for_each(|unit| engine.store(self.word(unit), generation << GENERATION_AT | POOLED));
    }

    /// Returns the spans that are in use.
    pub(crate) fn uses<E: Engine>(&self, engine: &E) -> impl Iterator<Item = Use> {
        (0..self.count).filter_map(|first| {
            let says = engine.load_relaxed(self.word(first));
            let class = (says >> CLASS_AT & CLASS) as u8;
            let units = || self.units_of(engine, first);
            (says & KIND == LIVE).then(|| Use { first, units: units(), class, out: (says & COUNT) >> 3 })
        })
    }

    /// Returns how many units there are.
    pub(crate) fn units(&self) -> u64 {
        self.count
    }

    /// Lets no object of a span be given out, or lets them be again. Returns whether this has
    /// changed anything.
    pub(crate) fn set_sparse<E: Engine>(&self, engine: &E, first: u64, is_sparse: bool) -> bool {
        let (from, to) = if is_sparse { (LIVE, SPARSE) } else { (SPARSE, LIVE) };
        let span = self.word(first);
        let mut says = engine.load(span);
        while says & KIND == from {
            match engine.compare_exchange(span, says, says & !KIND | to) {
                Ok(_) => return true,
                Err(found) => says = found,
            }
        }
        false
    }

    /// Returns whether an object is in a span that is being emptied.
    pub(crate) fn is_sparse<E: Engine>(&self, engine: &E, word: u64) -> bool {
        self.span_of(engine, word).1 & KIND == SPARSE
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use drtm_htm::NoHtm;

    use super::*;

    const SPAN: Run = Run { first: 2, units: 3 };

    #[test]
    fn every_unit_has_a_word_of_its_own() {
        for capacity in [4 << 10, 1 << 20, 65 << 20, 3 << 30, 64 << 30] {
            let spans = Spans::new(capacity);
            assert!(spans.count * 8 * spans.unit_words() >= capacity && spans.count <= MOST_UNITS);
            let mut words: Vec<_> = (0..spans.count).map(|unit| std::ptr::from_ref(spans.word(unit))).collect();
            words.sort_unstable();
            words.dedup();
            assert_eq!(words.len() as u64, spans.count);
        }
    }

    #[test]
    fn spans_waste_at_most_an_eighth() {
        let spans = Spans::new(1 << 20);
        for words in 4..9_000 {
            let all = spans.units_for(words) * spans.unit_words();
            assert!(all >= words && all % words <= all / WASTED, "{words}");
        }
    }

    #[test]
    fn an_object_is_taken_only_in_the_generation_in_which_it_was_free() {
        let spans = Spans::new(1 << 20);
        let unit = spans.unit_words();
        assert!(spans.make(&NoHtm, SPAN, 7, 2));
        let objects = [2 * unit, 4 * unit - 1];
        let free = objects.map(|word| spans.give(&NoHtm, word));
        assert!(spans.take(&NoHtm, free[1]) && spans.retire(&NoHtm).is_empty(), "one is out");
        assert_eq!(spans.give(&NoHtm, objects[1]), free[1]);
        assert_eq!(spans.retire(&NoHtm), [Retired { run: SPAN, class: 7 }]);
        assert!(free.iter().all(|free| !spans.take(&NoHtm, *free)), "it is retired");
        spans.dissolve(&NoHtm, SPAN);
        assert!(free.iter().all(|free| !spans.take(&NoHtm, *free) && !spans.is_current(&NoHtm, *free)));
        // Of one unit of the first span.
        let part = Run { first: 4, units: 1 };
        assert!(spans.make(&NoHtm, part, 3, 1));
        assert!(free.iter().all(|free| !spans.take(&NoHtm, *free)), "it is another span");
        let again = spans.give(&NoHtm, 4 * unit);
        assert!(spans.take(&NoHtm, again));
    }

    /// Lists of its free objects may still have them, and may not: which is unknown.
    #[test]
    fn a_span_that_serves_its_class_again_lists_its_objects_anew() {
        let spans = Spans::new(1 << 20);
        assert!(spans.make(&NoHtm, SPAN, 7, 1));
        let before = spans.give(&NoHtm, 2 * spans.unit_words());
        assert_eq!(spans.retire(&NoHtm).len(), 1);
        assert!(spans.make(&NoHtm, SPAN, 7, 1));
        let after = spans.give(&NoHtm, 2 * spans.unit_words());
        assert!(!spans.take(&NoHtm, before) && spans.take(&NoHtm, after));
    }

    #[test]
    fn a_sparse_span_is_retired_whole_if_no_other_object_is_out() {
        let spans = Spans::new(1 << 20);
        assert!(spans.make(&NoHtm, SPAN, 7, 3));
        let last = 4 * spans.unit_words();
        assert_eq!((spans.first_unit_of(&NoHtm, last), spans.first_unit_of(&NoHtm, 0)), (Some(2), None));
        assert_eq!(spans.retire_whole(&NoHtm, 2, 3), None, "its objects can be taken");
        assert!(spans.set_sparse(&NoHtm, 2, true) && !spans.set_sparse(&NoHtm, 2, true));
        assert!(!spans.is_sparse_with(&NoHtm, 2, 2) && spans.is_sparse_with(&NoHtm, 2, 3));
        assert_eq!(spans.retire_whole(&NoHtm, 2, 3), Some(Retired { run: SPAN, class: NO_CLASS }));
        assert!(spans.retire(&NoHtm).is_empty() && spans.uses(&NoHtm).next().is_none());
    }

    /// Another thread may free an object that it has taken out, while the others are taken back.
    #[test]
    fn a_span_of_which_an_object_is_still_out_is_retired_once_that_is_given_back() {
        let spans = Spans::new(1 << 20);
        assert!(spans.make(&NoHtm, SPAN, 7, 3) && spans.set_sparse(&NoHtm, 2, true));
        assert!(spans.retire_whole(&NoHtm, 2, 2).is_none() && spans.retire(&NoHtm).is_empty());
        let free = spans.give(&NoHtm, 2 * spans.unit_words());
        assert!(!spans.take(&NoHtm, free));
        assert_eq!(spans.retire(&NoHtm), [Retired { run: SPAN, class: NO_CLASS }]);
        assert!(!spans.take(&NoHtm, free));
    }

    #[test]
    fn no_generation_comes_again() {
        let spans = Spans::new(1 << 20);
        let mut before = Vec::new();
        for _ in 0..20 {
            if !spans.make(&NoHtm, SPAN, 7, 1) {
                break;
            }
            let free = spans.give(&NoHtm, 2 * spans.unit_words());
            assert!(!before.contains(&free));
            before.push(free);
            for retired in spans.retire(&NoHtm) {
                spans.dissolve(&NoHtm, retired.run);
            }
        }
        let most = if GENERATION_USED == 3 { 7 } else { 20 };
        assert_eq!(before.len(), most, "with three bits, it keeps its class in the end");
    }

    #[test]
    fn a_sparse_span_gives_out_nothing() {
        let spans = Spans::new(1 << 20);
        assert!(spans.make(&NoHtm, SPAN, 7, 2));
        let free = spans.give(&NoHtm, 2 * spans.unit_words());
        spans.set_sparse(&NoHtm, SPAN.first, true);
        assert!(!spans.take(&NoHtm, free) && spans.is_aside(&NoHtm, free) && spans.uses(&NoHtm).next().is_none());
        spans.set_sparse(&NoHtm, SPAN.first, false);
        assert_eq!(spans.uses(&NoHtm).next(), Some(Use { first: 2, units: 3, class: 7, out: 1 }));
        assert!(spans.take(&NoHtm, free));
    }
}
