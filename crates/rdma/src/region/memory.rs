//! A NIC's accesses to memory, by lines or words.

use std::ops::Range;

use drtm_htm::{Engine, LINE_WORDS, Word};

use crate::{Remote, Tearing};

/// Reads words of one line atomically.
///
/// They are read until two readings are equal: then each word held its value from the first reading
/// to the second, and all held theirs in between. (A word that changed and changed back meanwhile
/// is not detected. A writer that keeps a version in the line never does that to the version.)
#[inline]
fn fetch_line<E: Engine>(engine: &E, words: &[Word], into: &mut [u64]) {
    // Most reads are of a whole line, whose loops are unrolled.
    if let (Ok(line), Ok(into)) =
        (<&[Word; LINE_WORDS]>::try_from(words), <&mut [u64; LINE_WORDS]>::try_from(&mut *into))
    {
        loop {
            let before = line.each_ref().map(|word| engine.load(word));
            let mut changed = 0;
            for (word, value) in line.iter().zip(before) {
                changed |= engine.load(word) ^ value;
            }
            if changed == 0 {
                *into = before;
                return;
            }
            std::hint::spin_loop();
        }
    }
    for (word, value) in words.iter().zip(into.iter_mut()) {
        *value = engine.load(word);
    }
    if words.len() == 1 {
        return;
    }
    loop {
        let mut stable = true;
        for (word, value) in words.iter().zip(into.iter_mut()) {
            let again = engine.load(word);
            stable &= again == std::mem::replace(value, again);
        }
        if stable {
            return;
        }
        std::hint::spin_loop();
    }
}

/// The units of a READ: its lines, or its words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Units {
    /// The words up to the first line's end, and in total.
    first: usize,
    words: usize,
    line: usize,
}

impl Units {
    #[inline(always)]
    pub(crate) fn of_read(at: Remote, words: usize, tearing: Tearing) -> Self {
        let line = match tearing {
            Tearing::Lines => LINE_WORDS,
            Tearing::Words => 1,
        };
        // Regions begin at a line boundary.
        let first = line - (at.offset.word() as usize % line);
        Self { first, words, line }
    }

    pub(crate) fn of_write(words: usize) -> Self {
        Self { first: 1, words, line: 1 }
    }

    #[inline(always)]
    pub(crate) fn count(&self) -> usize {
        match self.words {
            0 => 0,
            words => 1 + words.saturating_sub(self.first).div_ceil(self.line),
        }
    }

    /// Returns the words of one unit.
    #[inline(always)]
    pub(crate) fn range(&self, unit: usize) -> Range<usize> {
        let end = self.first + unit * self.line;
        end.saturating_sub(self.line)..end.min(self.words)
    }
}

/// Fetches all of a READ, by lines or words, in address order.
#[inline]
pub(crate) fn fetch_all<E: Engine>(engine: &E, words: &[Word], into: &mut [u64], at: Remote, tearing: Tearing) {
    // Most reads are of a record or a bucket within one line.
    if tearing == Tearing::Lines && at.offset.word() as usize % LINE_WORDS + into.len() <= LINE_WORDS {
        return fetch_line(engine, words, into);
    }
    let units = Units::of_read(at, into.len(), tearing);
    for unit in 0..units.count() {
        fetch(engine, words, into, units.range(unit));
    }
}

/// Fetches one unit of a READ.
#[inline]
pub(crate) fn fetch<E: Engine>(engine: &E, words: &[Word], into: &mut [u64], range: Range<usize>) {
    fetch_line(engine, &words[range.clone()], &mut into[range]);
}

/// Stores one unit of a WRITE.
#[inline]
pub(crate) fn store<E: Engine>(engine: &E, words: &[Word], from: &[u64], range: Range<usize>) {
    for (word, value) in words[range.clone()].iter().zip(&from[range]) {
        engine.store(word, *value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeId, Offset, RegionId};

    #[test]
    fn units_cover_every_word_once_and_end_at_lines() {
        for start in 0..10_u64 {
            for words in 0..30 {
                let at = Remote { node: NodeId(0), region: RegionId(0), offset: Offset::new(start * 8) };
                for tearing in [Tearing::Lines, Tearing::Words] {
                    let units = Units::of_read(at, words, tearing);
                    let ranges: Vec<_> = (0..units.count()).map(|unit| units.range(unit)).collect();
                    let covered: Vec<_> = ranges.iter().cloned().flatten().collect();
                    assert_eq!(covered, (0..words).collect::<Vec<_>>(), "{start} {words}");
                    for range in ranges {
                        let lines = range.map(|word| (start as usize + word) / LINE_WORDS).collect::<Vec<_>>();
                        assert!(lines.windows(2).all(|pair| pair[0] == pair[1]));
                    }
                }
            }
        }
    }
}
