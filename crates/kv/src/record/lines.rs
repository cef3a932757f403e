//! Asking for a record's memory before it is come to.

use std::ops::Range;

use drtm_htm::{Engine, LINE_WORDS};
use drtm_rdma::{Region, words_for};

use super::HEADER_WORDS;

/// The most bytes of a part of a value that are asked for ahead: the processor goes on by itself then.
const MOST_PREFETCHED: usize = 512;

/// The most words of one record by which it is asked for: several parts of several lines. A multiple of how many are asked for in one turn.
const MOST_ASKED: usize = 24;

/// How many are asked for in one turn, without a look whether there are as many.
const TURN: usize = 4;

/// The words of a record, as seen from its beginning, by which the lines are asked for that its header and some parts of its value are in. The same for all records,
/// wherever in a line they begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lines {
    /// Behind those that count, the last one again.
    words: [u16; MOST_ASKED],
    count: usize,
}

impl Lines {
    #[inline]
    pub(crate) fn of(parts: &[Range<usize>]) -> Self {
        let mut lines = Self { words: [0; MOST_ASKED], count: 1 };
        let begins = parts.first().map_or(0, |part| part.start / 8);
        if parts.is_empty() || begins + HEADER_WORDS > LINE_WORDS {
            lines.go_to(HEADER_WORDS - 1);
        }
        for part in parts {
            let (first, end) = (part.start / 8, words_for(part.end.min(part.start.saturating_add(MOST_PREFETCHED))));
            if first < end {
                lines.cover(HEADER_WORDS + first, HEADER_WORDS + end - 1);
            }
        }
        let last = lines.last();
        let turns = lines.count.next_multiple_of(TURN);
        lines.words[lines.count..turns].fill(last);
        lines
    }

    fn last(&self) -> u16 {
        self.words[self.count - 1]
    }

    /// Asks for the lines of these words, too.
    fn cover(&mut self, first: usize, last: usize) {
        let before = usize::from(self.last());
        if (before..=before + LINE_WORDS).contains(&first) || self.add(first) {
            self.go_to(last);
        }
    }

    /// Goes on from the last word, in steps of a line, up to this one.
    fn go_to(&mut self, last: usize) {
        let mut before = usize::from(self.last());
        while before < last {
            before = last.min(before + LINE_WORDS);
            if !self.add(before) {
                return;
            }
        }
    }

    /// One more, unless there are too many, or it is too far away: then there is no hint.
    fn add(&mut self, word: usize) -> bool {
        let (Ok(word), Some(next)) = (u16::try_from(word), self.words.get_mut(self.count)) else { return false };
        *next = word;
        self.count += 1;
        true
    }

    /// Asks for a record's lines. Behind the last record there may be less memory, and no hint then.
    #[inline(always)]
    pub(crate) fn ask_for<E: Engine>(&self, region: &Region<E>, record: u64) {
        for turn in self.words.as_chunks::<TURN>().0.iter().take(self.count.div_ceil(TURN)) {
            turn.iter().for_each(|word| region.prefetch(record + u64::from(*word)));
        }
    }
}

#[cfg(all(test, not(drtm_loom)))]
#[expect(clippy::single_range_in_vec_init, reason = "several parts, of which there may be one")]
mod tests {
    use super::*;

    fn words(parts: &[Range<usize>]) -> Vec<u16> {
        let lines = Lines::of(parts);
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
        // Whatever the record's place in a line: no line of what is wanted is left out.
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
