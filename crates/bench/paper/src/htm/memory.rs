//! The memory that htm transactions touch. Each thread has its own, aligned to pages, so that a
//! line's cache set depends on its offset alone.

use drtm_htm::{LINE_BYTES, Line, Word};

use crate::Error;

pub(super) const PAGE_LINES: usize = 64;
pub(super) const PAGE_BYTES: usize = PAGE_LINES * LINE_BYTES;

/// 4 GiB in pages. Beyond the emulation's own bound, lines could conflict falsely; this is below
/// it.
const MOST_PAGES: usize = (4 << 30) / PAGE_BYTES;

/// Lines aligned to a page of the processor.
#[derive(Debug)]
#[repr(align(4096))]
pub(super) struct Page([Line; PAGE_LINES]);

const _: () = assert!(size_of::<Page>() == PAGE_BYTES && align_of::<Page>() == PAGE_BYTES);

impl Page {
    /// Writes the page, so that no transaction takes the page fault of a first touch.
    fn new() -> Self {
        Self(std::array::from_fn(|_| Line::default()))
    }
}

/// All threads' memory, contiguous: with as many tracked lines as memory lines, no two share an
/// entry.
#[derive(Debug)]
pub(super) struct Memory {
    pages: Vec<Page>,
    pages_each: usize,
}

impl Memory {
    pub(super) fn new(threads: usize, pages_each: usize) -> Result<Self, Error> {
        let needed = threads.saturating_mul(pages_each);
        if needed > MOST_PAGES {
            const MIB: usize = (1 << 20) / PAGE_BYTES;
            return Err(Error::TooMuchMemory { needed_mib: needed / MIB, most_mib: MOST_PAGES / MIB });
        }
        Ok(Self { pages: (0..needed).map(|_| Page::new()).collect(), pages_each })
    }

    pub(super) fn pages_each(&self) -> usize {
        self.pages_each
    }

    pub(super) fn lines(&self) -> usize {
        self.pages.len() * PAGE_LINES
    }

    /// Returns the memory of one thread.
    pub(super) fn area(&self, thread: usize) -> &[Page] {
        &self.pages[thread * self.pages_each..][..self.pages_each]
    }
}

/// Iterates over the first word of each of the first `lines` lines, in order.
pub(super) fn words(pages: &[Page], lines: usize) -> impl Iterator<Item = &Word> + Clone {
    pages.iter().flat_map(|page| &page.0).map(|line| &line[0]).take(lines)
}

/// Draws distinct random lines repeatedly.
#[derive(Debug)]
pub(super) struct Draw<'m> {
    /// The first word of every line. Whatever its order, its shuffled front is a uniform draw.
    deck: Vec<&'m Word>,
    random: fastrand::Rng,
}

impl<'m> Draw<'m> {
    pub(super) fn new(pages: &'m [Page], random: fastrand::Rng) -> Self {
        Self { deck: words(pages, pages.len() * PAGE_LINES).collect(), random }
    }

    /// Draws `count` lines, or all if there are fewer.
    pub(super) fn draw(&mut self, count: usize) -> &[&'m Word] {
        let count = count.min(self.deck.len());
        for place in 0..count {
            let other = self.random.usize(place..self.deck.len());
            self.deck.swap(place, other);
        }
        &self.deck[..count]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn areas_are_disjoint_aligned_and_contiguous() {
        let memory = Memory::new(3, 2).expect("small");
        let addresses: Vec<usize> = (0..3)
            .flat_map(|thread| words(memory.area(thread), 128))
            .map(|word| std::ptr::from_ref(word).addr())
            .collect();
        assert_eq!(memory.lines(), addresses.len());
        assert_eq!(addresses[0] % PAGE_BYTES, 0);
        assert!(addresses.windows(2).all(|pair| pair[1] - pair[0] == LINE_BYTES));
    }

    #[test]
    fn a_draw_is_of_distinct_lines_and_another_each_time() {
        let memory = Memory::new(1, 4).expect("small");
        let mut draw = Draw::new(memory.area(0), fastrand::Rng::with_seed(1));
        let mut drawn =
            || draw.draw(100).iter().map(|word| std::ptr::from_ref::<Word>(word).addr()).collect::<HashSet<_>>();
        let (one, other) = (drawn(), drawn());
        assert_eq!((one.len(), other.len()), (100, 100));
        assert_ne!(one, other);
    }

    #[test]
    fn too_much_is_refused_before_it_is_allocated() {
        assert!(matches!(Memory::new(usize::MAX, 2), Err(Error::TooMuchMemory { .. })));
    }
}
