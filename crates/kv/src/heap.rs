//! Memory for records: size classes, cut from the region page by page, and used again.
//!
//! An object has a size class for ever: its memory is never cut differently, so that a stale link
//! to it still finds the words of a record where they are expected ("type-stable"). What makes a
//! second use of the memory harmless is the record's incarnation (see [`crate::record`]), so freed
//! objects can be used again without waiting for anyone; but for those whose incarnation is about
//! to come round (see [`crate::quarantine`]).
//!
//! Workers allocate from pages and free lists of their own. Where some only insert and others only
//! remove, free objects travel in batches through a shared list, so that neither runs dry while the
//! other piles up.

use std::sync::Arc;

use drtm_htm::{Engine, LINE_WORDS};
use drtm_rdma::Region;
use parking_lot::Mutex;

use crate::{KvError, beside::Beside, bounds::PAGE_WORDS, layout::Place};

/// Sizes of objects, in words: every size up to 32, then each an eighth larger than the one before.
const CLASSES: [u32; COUNT] = {
    let mut classes = [0; COUNT];
    let mut class = 0;
    let mut words = SMALLEST;
    while class < COUNT {
        classes[class] = words;
        words += if words < EVERY { 1 } else { words / 8 };
        class += 1;
    }
    classes
};

const COUNT: usize = 78;
const SMALLEST: u32 = 4;
const EVERY: u32 = 32;

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

/// How far ahead of what is given out fresh memory is asked for, in words, and how many words of an
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
pub struct Class(u8);

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

/// What the workers of a store share: free objects that one had too many of.
#[derive(Debug)]
pub(crate) struct Heap {
    surplus: [Mutex<Vec<u64>>; COUNT],
    beside: Arc<Beside>,
}

impl Heap {
    pub(crate) fn new(beside: Arc<Beside>) -> Self {
        Self { surplus: std::array::from_fn(|_| Mutex::default()), beside }
    }
}

/// One worker's pages and free objects.
#[derive(Debug)]
pub(crate) struct Arena {
    classes: Box<[Pool; COUNT]>,
}

#[derive(Debug, Default)]
struct Pool {
    free: Vec<u64>,
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
        if let Some(word) = pool.free.pop() {
            return Ok(word);
        }
        if pool.end - pool.next >= class.words() {
            pool.next += class.words();
            prefetch(region, pool.next + AHEAD, class);
            return Ok(pool.next - class.words());
        }
        pool.refill(heap, region, class)
    }

    /// Takes an object back. Nobody new can find it any more.
    pub(crate) fn free(&mut self, heap: &Heap, class: Class, word: u64) {
        let pool = &mut self.classes[usize::from(class.0)];
        pool.free.push(word);
        if pool.free.len() >= 2 * BATCH {
            let kept = pool.free.len() - BATCH;
            heap.surplus[usize::from(class.0)].lock().extend(pool.free.drain(kept..));
        }
    }

    /// Leaves everything to the other workers. What is left of the pages is too: as objects.
    pub(crate) fn leave(&mut self, heap: &Heap) {
        for (index, pool) in self.classes.iter_mut().enumerate() {
            let words = Class(index as u8).words();
            while pool.end - pool.next >= words {
                pool.free.push(pool.next);
                pool.next += words;
            }
            if !pool.free.is_empty() {
                heap.surplus[index].lock().append(&mut pool.free);
            }
        }
    }
}

/// Asks for fresh memory that is soon to be given out, so that who fills it does not wait for it.
#[inline(always)]
fn prefetch<E: Engine>(region: &Region<E>, word: u64, class: Class) {
    // Behind the end there is nothing to be asked for, and no harm in it.
    (0..class.words().min(MOST_ASKED)).step_by(LINE_WORDS).for_each(|skipped| region.prefetch(word + skipped));
}

impl Pool {
    #[cold]
    fn refill<E: Engine>(&mut self, heap: &Heap, region: &Region<E>, class: Class) -> Result<u64, KvError> {
        let mut surplus = heap.surplus[usize::from(class.0)].lock();
        let kept = surplus.len().saturating_sub(BATCH);
        self.free.extend(surplus.drain(kept..));
        drop(surplus);
        if let Some(word) = self.free.pop() {
            return Ok(word);
        }
        let words = (FIRST_PAGE_WORDS << self.pages).min(PAGE_WORDS).max(class.words());
        self.pages = (self.pages + 1).min(DOUBLINGS);
        let page = match heap.beside.extend(region, 8 * words, 64) {
            // Near the end of the region an object may still fit where a page does not.
            Err(_) if words > class.words() => {
                heap.beside.extend(region, 8 * class.words(), 8).map(|at| (at, class.words()))?
            }
            page => (page?, words),
        };
        let (at, words) = page;
        debug_assert!(at.word() + words <= Place::MAX_WORD);
        (self.next, self.end) = (at.word() + class.words(), at.word() + words);
        Ok(at.word())
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
