//! Memory for records: size classes, cut from spans page by page, and used again.
//!
//! While a [span](super::spans) serves a class, its memory is not cut differently, so that a stale
//! link to an object still finds the words of a record where they are expected. What makes a second
//! use of the memory harmless is the record's incarnation (see [`crate::record`]), so freed objects
//! can be used again at once, except those whose incarnation is about to wrap around (see
//! [`super::quarantine`]). A span that serves another class has been in quarantine until nothing
//! had a place in it.
//!
//! Workers allocate from pages and free lists of their own. Where some only insert and others only
//! remove, free objects travel in batches through a shared list, so that neither runs dry while the
//! other piles up.

use std::sync::Arc;

use drtm_htm::{Engine, LINE_WORDS, fence_release};
use drtm_rdma::{Offset, Region, RegionError};
use parking_lot::Mutex;

use crate::{
    KvError,
    store::{
        beside::Beside,
        bounds::PAGE_WORDS,
        layout::Place,
        spans::{Free, Retired, Run, Spans, Use},
        units::Units,
    },
};

/// Sizes of objects, in words: every size up to 32, then multiples of four, as large as wastes an
/// eighth at most.
const CLASSES: [u32; COUNT] = {
    let mut classes = [0; COUNT];
    let mut class = 0;
    let mut words = SMALLEST;
    while class < COUNT {
        classes[class] = words;
        let least = words + 1;
        words = if words < EVERY { least } else { (least + least / 8 + 1) / ALIGNED as u32 * ALIGNED as u32 };
        class += 1;
    }
    classes
};

const COUNT: usize = 78;
const SMALLEST: u32 = 4;
const EVERY: u32 = 32;

/// The words at a multiple of which an object begins whose size is such a multiple: half a line.
pub(crate) const ALIGNED: usize = 4;

const _: () = assert!(LINE_WORDS.is_multiple_of(ALIGNED));

/// Words in the largest object.
pub(crate) const LARGEST: usize = CLASSES[COUNT - 1] as usize;

const _: () = assert!(LARGEST > 8_800 && LARGEST < 16_384);

/// The class for each number of words that is not large.
const CLASS_FOR: [u8; NOT_LARGE] = {
    let mut class_for = [0; NOT_LARGE];
    let (mut words, mut class) = (0, 0);
    while words < NOT_LARGE {
        if CLASSES[class] < words as u32 {
            class += 1;
        }
        class_for[words] = class as u8;
        words += 1;
    }
    class_for
};

const NOT_LARGE: usize = 192;

/// How far ahead of an allocation fresh memory is prefetched, in words, and how many words of an
/// object.
const AHEAD: u64 = 64;
const MOST_ASKED: u64 = 64;

/// Words of a worker's first page of a class, and how often a page is twice the one before.
const FIRST_PAGE_WORDS: u64 = 64;
const DOUBLINGS: u32 = 7;

const _: () = assert!(FIRST_PAGE_WORDS << DOUBLINGS >= PAGE_WORDS);

/// Objects that move between a worker's free list and the shared one at once.
const BATCH: usize = 64;

/// A size class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class(pub(crate) u8);

impl Class {
    /// The smallest class for so many words.
    #[inline(always)]
    pub(crate) fn of(words: usize) -> Option<Self> {
        match CLASS_FOR.get(words) {
            Some(&class) => Some(Self(class)),
            None => Self::of_many(words),
        }
    }

    #[cold]
    fn of_many(words: usize) -> Option<Self> {
        let class = CLASSES.partition_point(|&size| (size as usize) < words);
        (class < COUNT).then_some(Self(class as u8))
    }

    #[inline]
    pub(crate) fn words(self) -> u64 {
        u64::from(CLASSES[usize::from(self.0)])
    }
}

/// An object: its class, and the word where it begins.
pub(crate) type Object = (Class, u64);

/// What the workers of a store share.
#[derive(Debug)]
pub(crate) struct Heap {
    /// Free objects that a worker had too many of.
    surplus: [Mutex<Vec<Free>>; COUNT],
    /// What is left of the span from which pages of a class are cut: the next page's word, and the
    /// end.
    cut: [Mutex<(u64, u64)>; COUNT],
    pub(crate) spans: Spans,
    units: Units,
    /// Free objects of spans that are being emptied, which are not given out.
    aside: Mutex<Vec<(Class, Free)>>,
    beside: Arc<Beside>,
}

impl Heap {
    pub(crate) fn new(beside: Arc<Beside>, capacity: u64) -> Self {
        Self {
            surplus: std::array::from_fn(|_| Mutex::default()),
            cut: std::array::from_fn(|_| Mutex::default()),
            spans: Spans::new(capacity),
            units: Units::default(),
            aside: Mutex::default(),
            beside,
        }
    }

    /// Returns how many bytes are in the common pool.
    pub(crate) fn pooled(&self) -> u64 {
        self.units.count() * self.unit_bytes()
    }

    fn unit_bytes(&self) -> u64 {
        8 * self.spans.unit_words()
    }

    /// Allocates zeroed memory for something other than an object, from a gap, the region, or the
    /// pool. It is never freed.
    #[inline(never)]
    pub(crate) fn extend<E: Engine>(&self, region: &Region<E>, bytes: u64, align: u64) -> Result<Offset, RegionError> {
        if let Some(at) = self.units.take_gap(bytes, align) {
            return Ok(at);
        }
        let full = match self.beside.extend(region, bytes, align) {
            Err(full) => full,
            at => return at,
        };
        if align > self.unit_bytes() {
            return Err(full);
        }
        let run = self.units.take(bytes.div_ceil(self.unit_bytes())).ok_or(full)?;
        self.clear(region, run);
        let begin = run.first * self.unit_bytes();
        self.units.keep_gap(begin + bytes, begin + run.units * self.unit_bytes());
        Ok(Offset::new(begin))
    }

    /// Fills units that were used before with zeros.
    fn clear<E: Engine>(&self, region: &Region<E>, run: Run) {
        let words = (run.units * self.spans.unit_words()) as usize;
        // They are in the region, since they were in use.
        for word in region.words(Offset::new(run.first * self.unit_bytes()), words).unwrap_or(&[]) {
            region.engine().store_relaxed(word, 0);
        }
        fence_release();
    }

    /// Makes a span of a class. Gives the words where it begins and ends.
    fn span<E: Engine>(&self, region: &Region<E>, class: Class) -> Result<(u64, u64), KvError> {
        let (words, unit) = (class.words(), self.spans.unit_words());
        let (engine, wanted) = (region.engine(), self.spans.units_for(words));
        loop {
            let run = self.units_for_span(region, wanted, words.div_ceil(unit))?;
            if let Some(span) = self.make(engine, run, class) {
                return Ok(span);
            }
        }
    }

    /// Makes a span of units. Gives the words where it begins and ends. `None`: they cannot be one
    /// any more.
    fn make<E: Engine>(&self, engine: &E, run: Run, class: Class) -> Option<(u64, u64)> {
        let (begin, objects) = (run.first * self.spans.unit_words(), self.objects(run.units, class));
        let end = begin + objects * class.words();
        debug_assert!(end <= Place::MAX_WORD + 1);
        self.spans.make(engine, run, class.0, objects).then_some((begin, end))
    }

    /// Returns how many objects a span of so many units has.
    fn objects(&self, units: u64, class: Class) -> u64 {
        units * self.spans.unit_words() / class.words()
    }

    /// Lets a retired span serve its class again. Its objects are as they were freed.
    pub(crate) fn revive<E: Engine>(&self, engine: &E, class: Class, run: Run) {
        let span = self.make(engine, run, class);
        debug_assert!(span.is_some(), "a span that was retired has another generation");
        if let Some(span) = span {
            self.cut_from(engine, class, span);
        }
    }

    /// Cuts the next pages from this span, and gives back what is left of the one before.
    fn cut_from<E: Engine>(&self, engine: &E, class: Class, span: (u64, u64)) {
        let left = std::mem::replace(&mut *self.cut[usize::from(class.0)].lock(), span);
        self.give_page(engine, class, left);
    }

    /// So many units in a row, all zeros: of the pool, or of the region. Where there are not so
    /// many, as many as there are, of as few as must be.
    fn units_for_span<E: Engine>(&self, region: &Region<E>, wanted: u64, least: u64) -> Result<Run, KvError> {
        let extend = |units| self.units.extend((&self.beside, region), units, self.unit_bytes());
        let pooled = match self.units.take(wanted) {
            Some(run) => run,
            None => match extend(wanted) {
                Ok(run) => return Ok(run),
                Err(full) => match (least..wanted).rev().find_map(|units| self.units.take(units)) {
                    Some(run) => run,
                    None if least < wanted => return Ok(extend(least)?),
                    None => return Err(full.into()),
                },
            },
        };
        self.clear(region, pooled);
        Ok(pooled)
    }

    /// A page of a class: the words where it begins and ends. Its objects are out.
    #[inline(never)]
    fn page<E: Engine>(&self, region: &Region<E>, class: Class, words: u64) -> Result<(u64, u64), KvError> {
        let cut = &self.cut[usize::from(class.0)];
        let taken = cut_page(&mut cut.lock(), words, class.words());
        if let Some(page) = taken {
            return Ok(page);
        }
        let mut span = self.span(region, class)?;
        let page = cut_page(&mut span, words, class.words()).unwrap_or_default();
        // Another thread may have made a span at the same time.
        self.cut_from(region.engine(), class, span);
        Ok(page)
    }

    /// Gives back what is left of a page, as objects.
    fn give_page<E: Engine>(&self, engine: &E, class: Class, (begin, end): (u64, u64)) {
        let objects = (begin..end).step_by(class.words() as usize).map(|word| self.spans.give(engine, word));
        let objects: Vec<_> = objects.collect();
        if !objects.is_empty() {
            self.surplus[usize::from(class.0)].lock().extend(objects);
        }
    }

    /// Takes an object back that no worker has.
    pub(crate) fn free<E: Engine>(&self, engine: &E, class: Class, word: u64) {
        let free = self.spans.give(engine, word);
        self.surplus[usize::from(class.0)].lock().push(free);
    }

    /// Makes free objects of what is left of the spans from which pages are cut.
    pub(crate) fn settle<E: Engine>(&self, engine: &E) {
        for (cut, index) in self.cut.iter().zip(0..) {
            let left = std::mem::take(&mut *cut.lock());
            self.give_page(engine, Class(index), left);
        }
    }

    /// Retires the spans of which no object is out.
    pub(crate) fn retire<E: Engine>(&self, engine: &E) -> Vec<Retired> {
        self.settle(engine);
        let retired = self.spans.retire(engine);
        if !retired.is_empty() {
            for surplus in &self.surplus {
                // Not locked while words are accessed.
                let mut listed = std::mem::take(&mut *surplus.lock());
                listed.retain(|free| self.spans.is_current(engine, *free));
                surplus.lock().append(&mut listed);
            }
        }
        retired
    }

    /// Keeps an object that could not be taken, if it will be free again. Otherwise it is none any
    /// more.
    #[cold]
    #[inline(never)]
    fn set_aside<E: Engine>(&self, engine: &E, class: Class, free: Free) {
        if self.spans.is_aside(engine, free) {
            self.aside.lock().push((class, free));
        } else if self.spans.is_current(engine, free) {
            // The span was being emptied a moment ago.
            self.surplus[usize::from(class.0)].lock().push(free);
        }
    }

    /// Returns how many bytes are free in spans of other classes than this one, and the size of the
    /// objects, in bytes, that most of them are for.
    #[inline(never)]
    pub(crate) fn free_for_others<E: Engine>(&self, engine: &E, class: Option<Class>) -> (u64, u64) {
        let mut free = [0; COUNT];
        for span in self.spans.uses(engine).filter(|span| class != Some(Class(span.class))) {
            let class = Class(span.class);
            let objects = self.objects(span.units, class).saturating_sub(span.out);
            free[usize::from(span.class)] += 8 * class.words() * objects;
        }
        let most = (0..COUNT).max_by_key(|class| free[*class]).unwrap_or(0);
        (free.iter().sum(), 8 * Class(most as u8).words())
    }

    /// Chooses spans to be emptied, of each class as many as the others have room for, and lets
    /// none of their free objects be given out.
    pub(crate) fn choose_sparse<E: Engine>(&self, engine: &E) -> Vec<u64> {
        let mut by_class: [Vec<Use>; COUNT] = std::array::from_fn(|_| Vec::new());
        self.spans.uses(engine).for_each(|span| by_class[usize::from(span.class)].push(span));
        let mut sparse = Vec::new();
        for (spans, class) in by_class.iter_mut().zip(0..) {
            spans.sort_unstable_by_key(|span| std::cmp::Reverse(span.out));
            let mut out: u64 = spans.iter().map(|span| span.out).sum();
            for span in spans {
                let has = self.objects(span.units, Class(class));
                if out == 0 {
                    sparse.push(span.first);
                }
                out = out.saturating_sub(has);
            }
        }
        sparse.retain(|first| self.spans.set_sparse(engine, *first, true));
        sparse
    }

    /// Lets the objects of spans that were to be emptied be given out again.
    pub(crate) fn leave_sparse<E: Engine>(&self, engine: &E, sparse: &[u64]) {
        for first in sparse {
            self.spans.set_sparse(engine, *first, false);
        }
        let aside = std::mem::take(&mut *self.aside.lock());
        for (class, free) in aside {
            if self.spans.is_current(engine, free) {
                self.surplus[usize::from(class.0)].lock().push(free);
            }
        }
    }

    /// Gives the memory of units that serve nothing back to the system. Returns how many bytes.
    pub(crate) fn discard<E: Engine>(&self, region: &Region<E>) -> Result<u64, RegionError> {
        let (bytes, mut discarded) = (self.unit_bytes(), 0);
        for run in self.units.runs() {
            if self.units.take_run(run) {
                let done = region.discard(Offset::new(run.first * bytes), run.units * bytes);
                self.units.give(run);
                discarded += done?;
            }
        }
        Ok(discarded)
    }

    /// Takes spans into the common pool in which nothing can have a place any more.
    pub(crate) fn pool<E: Engine>(&self, engine: &E, spans: Vec<Retired>) {
        for Retired { run, .. } in spans {
            self.spans.dissolve(engine, run);
            self.units.give(run);
        }
    }
}

/// Cuts a page of at most so many words off, which has whole objects, if one is left.
fn cut_page(left: &mut (u64, u64), words: u64, object: u64) -> Option<(u64, u64)> {
    let (begin, end) = *left;
    let objects = (words / object).max(1).min((end - begin) / object);
    left.0 = begin + objects * object;
    (objects > 0).then_some((begin, left.0))
}

/// One worker's pages and free objects.
#[derive(Debug)]
pub(crate) struct Arena {
    classes: Box<[Pool; COUNT]>,
}

#[derive(Debug, Default)]
struct Pool {
    free: Vec<Free>,
    /// What is left of the current page: the next object's word, and the page's end.
    next: u64,
    end: u64,
    /// How many pages there were, as far as it matters: each is twice as large as the one before,
    /// so that a worker that does little holds little.
    pages: u32,
}

impl Arena {
    pub(crate) fn new() -> Self {
        Self { classes: Box::new(std::array::from_fn(|_| Pool::default())) }
    }

    /// Bytes of the heap that it has.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.classes) + self.classes.iter().map(|pool| 8 * pool.free.capacity()).sum::<usize>()
    }

    /// An object of this class: the word where it begins, and never zero. Fresh ones are all zeros;
    /// others are as they were freed.
    #[inline(always)]
    pub(crate) fn allocate<E: Engine>(
        &mut self,
        heap: &Heap,
        region: &Region<E>,
        class: Class,
    ) -> Result<u64, KvError> {
        let pool = &mut self.classes[usize::from(class.0)];
        if let Some(word) = pool.take_free(heap, region.engine(), class) {
            return Ok(word);
        }
        if pool.end - pool.next >= class.words() {
            pool.next += class.words();
            prefetch(region, pool.next + AHEAD, class);
            return Ok(pool.next - class.words());
        }
        pool.refill(heap, region, class)
    }

    /// Takes an object back. No link to it may exist any more.
    pub(crate) fn free<E: Engine>(&mut self, heap: &Heap, engine: &E, class: Class, word: u64) {
        let pool = &mut self.classes[usize::from(class.0)];
        pool.free.push(heap.spans.give(engine, word));
        if pool.free.len() >= 2 * BATCH {
            let kept = pool.free.len() - BATCH;
            heap.surplus[usize::from(class.0)].lock().extend(pool.free.drain(kept..));
        }
    }

    /// Leaves everything to the other workers. What is left of the pages is too: as objects.
    pub(crate) fn leave<E: Engine>(&mut self, heap: &Heap, engine: &E) {
        for (pool, index) in self.classes.iter_mut().zip(0..) {
            heap.give_page(engine, Class(index), (pool.next, pool.end));
            (pool.next, pool.end) = (0, 0);
            if !pool.free.is_empty() {
                heap.surplus[usize::from(index)].lock().append(&mut pool.free);
            }
        }
    }
}

/// Prefetches fresh memory that will soon be allocated, so that its writer does not wait for it.
#[inline(always)]
fn prefetch<E: Engine>(region: &Region<E>, word: u64, class: Class) {
    // A prefetch behind the end does nothing.
    (0..class.words().min(MOST_ASKED)).step_by(LINE_WORDS).for_each(|skipped| region.prefetch(word + skipped));
}

impl Pool {
    /// Takes a free object of the list, unless all of them are set aside or their spans retired.
    #[inline(always)]
    fn take_free<E: Engine>(&mut self, heap: &Heap, engine: &E, class: Class) -> Option<u64> {
        while let Some(free) = self.free.pop() {
            if heap.spans.take(engine, free) {
                return Some(free.word());
            }
            heap.set_aside(engine, class, free);
        }
        None
    }

    #[cold]
    #[inline(never)]
    fn refill<E: Engine>(&mut self, heap: &Heap, region: &Region<E>, class: Class) -> Result<u64, KvError> {
        loop {
            let mut surplus = heap.surplus[usize::from(class.0)].lock();
            let kept = surplus.len().saturating_sub(BATCH);
            self.free.extend(surplus.drain(kept..));
            drop(surplus);
            if self.free.is_empty() {
                break;
            }
            if let Some(word) = self.take_free(heap, region.engine(), class) {
                return Ok(word);
            }
        }
        let words = (FIRST_PAGE_WORDS << self.pages).min(PAGE_WORDS).max(class.words());
        let (begin, end) = heap.page(region, class, words)?;
        self.pages = (self.pages + 1).min(DOUBLINGS);
        (self.next, self.end) = (begin + class.words(), end);
        Ok(begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_waste_at_most_an_eighth() {
        assert!(CLASSES.is_sorted());
        for words in 1..=LARGEST {
            let class = Class::of(words).expect("small enough");
            assert!(class.words() >= words as u64);
            let allowed = if words < 4 {
                4
            } else if words <= 32 {
                words
            } else {
                words + words / 8
            };
            assert!(class.words() <= allowed as u64 + 1, "{words} words in a class of {}", class.words());
        }
        assert_eq!(Class::of(LARGEST + 1), None);
    }
}
