//! Prefetching of a record's cache lines.

use std::ops::Range;

use drtm_htm::{Engine, LINE_WORDS};
use drtm_rdma::{Region, words_for};

use super::HEADER_WORDS;

/// The most bytes of a part of a value that are prefetched. Beyond that, the processor's own
/// prefetcher continues.
const MOST_PREFETCHED: usize = 512;

/// The most prefetched words of one record, of several parts of several lines. A multiple of
/// [`TURN`].
const MOST_ASKED: usize = 24;

/// How many words are prefetched per iteration, without a check whether there are as many.
const TURN: usize = 4;

/// The parts of a value to prefetch, as cache lines. Includes the record's header, wherever in a
/// line the record begins.
///
/// # Example
///
/// ```
/// use drtm_kv::PrefetchMask;
///
/// // The rows are read at the front, and again further behind.
/// const WANTED: PrefetchMask = PrefetchMask::of(&[0..16, 200..240]);
/// ```
///
/// See [`HashTable::locate`](crate::HashTable::locate).
#[derive(Clone, Copy, Debug)]
pub struct PrefetchMask {
    /// The words to prefetch, counted from the record's beginning. The last one is repeated behind
    /// `count`.
    words: [u16; MOST_ASKED],
    count: usize,
}

impl PrefetchMask {
    /// Makes the mask of the lines of these bytes of a value.
    ///
    /// # Example
    ///
    /// See [`PrefetchMask`].
    #[must_use]
    pub const fn of(parts: &[Range<usize>]) -> Self {
        let mut lines = Self { words: [0; MOST_ASKED], count: 1 };
        if parts.is_empty() || parts[0].start / 8 + HEADER_WORDS > LINE_WORDS {
            lines = lines.up_to(HEADER_WORDS - 1);
        }
        let mut next = 0;
        while next < parts.len() {
            let Range { start, end } = parts[next];
            let most = start.saturating_add(MOST_PREFETCHED);
            let (first, end) = (start / 8, words_for(if end < most { end } else { most }));
            if first < end {
                lines = lines.with(HEADER_WORDS + first, HEADER_WORDS + end - 1);
            }
            next += 1;
        }
        let mut rest = lines.count;
        while !rest.is_multiple_of(TURN) {
            lines.words[rest] = lines.words[lines.count - 1];
            rest += 1;
        }
        lines
    }

    /// Returns the last word.
    const fn last(&self) -> usize {
        self.words[self.count - 1] as usize
    }

    /// Adds the lines of these words. Words that are too many or too far away are not prefetched.
    const fn with(self, first: usize, last: usize) -> Self {
        let before = self.last();
        if before <= first && first <= before + LINE_WORDS {
            self.up_to(last)
        } else if first <= u16::MAX as usize && self.count < MOST_ASKED {
            self.and(first).up_to(last)
        } else {
            self
        }
    }

    /// Adds words from the last one up to this one, in steps of a line.
    const fn up_to(mut self, last: usize) -> Self {
        let mut before = self.last();
        while before < last && before + LINE_WORDS <= u16::MAX as usize && self.count < MOST_ASKED {
            before = if before + LINE_WORDS < last { before + LINE_WORDS } else { last };
            self = self.and(before);
        }
        self
    }

    const fn and(mut self, word: usize) -> Self {
        self.words[self.count] = word as u16;
        self.count += 1;
        self
    }

    /// Prefetches a record's lines. Lines behind the end of the region are not prefetched.
    #[inline(always)]
    pub(crate) fn prefetch<E: Engine>(&self, region: &Region<E>, record: u64) {
        for turn in self.words.as_chunks::<TURN>().0.iter().take(self.count.div_ceil(TURN)) {
            turn.iter().for_each(|word| region.prefetch(record + u64::from(*word)));
        }
    }
}

#[cfg(all(test, not(feature = "model")))]
#[expect(clippy::single_range_in_vec_init, reason = "several parts, of which there may be one")]
mod tests {
    use super::*;

    fn words(parts: &[Range<usize>]) -> Vec<u16> {
        let lines = PrefetchMask::of(parts);
        lines.words[..lines.count].to_vec()
    }

    #[test]
    fn every_line_of_the_parts_is_asked_for() {
        assert_eq!(words(&[]), [0, 3], "its header");
        assert_eq!(words(&[0..8]), [0, 4]);
        assert_eq!(words(&[0..100]), [0, 8, 16]);
        assert_eq!(words(&[0..16, 200..216]), [0, 5, 29, 30]);
        assert_eq!(words(&[200..216, 0..16]), [0, 3, 29, 30, 4, 5], "in any order");
        assert_eq!(words(&[48..48, 40..40]), [0, 3], "a part may be nothing");
        // Wherever the record begins in a line, each line of the parts is prefetched.
        let several =
            [vec![3..75, 120..128, 140..400, 16..24], vec![33..40, 100..101], vec![8..9], vec![100..300], vec![]];
        for (parts, begin) in several.iter().flat_map(|parts| (0..LINE_WORDS).map(move |begin| (parts, begin))) {
            let line = |word: usize| (begin + word) / LINE_WORDS;
            let asked: Vec<_> = words(parts).iter().map(|word| line(usize::from(*word))).collect();
            let wanted = parts.iter().flat_map(|part| part.clone().map(|byte| HEADER_WORDS + byte / 8)).chain(0..4);
            assert!(wanted.clone().all(|word| asked.contains(&line(word))), "{begin}: {asked:?}");
        }
    }

    #[test]
    fn there_is_an_end_to_it() {
        assert_eq!(words(&[0..1 << 40]).len(), 2 + MOST_PREFETCHED / 64, "some before it, and the last");
        assert_eq!(words(&[0..512, 1000..1512, 2000..2512, 3000..usize::MAX]).len(), MOST_ASKED);
        assert_eq!(words(&[1 << 30..(1 << 30) + 8]), [0, 3], "no value is so long");
        assert_eq!(words(&[usize::MAX..usize::MAX]), [0, 3]);
    }
}
