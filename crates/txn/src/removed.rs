//! Ranges of keys in which a transaction has removed every row: a range that it reads again passes
//! them at once.
//!
//! A row that a transaction removes keeps its record until the commit, so a range finds it, looks
//! it up in the write set, and passes it. A loop that removes the first row of a range again and
//! again would pass all rows that it has removed before, every time. So a range that passes removed
//! rows, one after the other, notes the span of keys from the first to the last, and jumps over it
//! when it comes there again.
//!
//! That no other transaction has inserted a row into the span is validated with everything else
//! that was read: the range that has passed it has left its guards. A row that the transaction
//! itself inserts there divides the span.

use std::collections::BTreeMap;

use crate::storage::KeyRef;

/// A key as spans have it: its encoding, of which a word's has eight bytes. Both are in the order
/// of the keys.
pub(crate) type Bytes = Vec<u8>;

/// The encoding of a key.
pub(crate) fn bytes_of(key: KeyRef<'_>) -> Bytes {
    match key {
        KeyRef::Word(word) => word.to_be_bytes().to_vec(),
        KeyRef::Bytes(bytes) => bytes.to_vec(),
    }
}

/// The least string of bytes after this one.
fn successor(mut bytes: Bytes) -> Bytes {
    bytes.push(0);
    bytes
}

/// Spans of several tables, each from its first key to before its end. No two of a table touch.
#[derive(Debug, Default)]
pub(crate) struct RemovedSpans {
    ends: BTreeMap<(u16, Bytes), Bytes>,
}

impl RemovedSpans {
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        if !self.is_empty() {
            self.ends.clear();
        }
    }

    /// Returns the span that has this key: its first key, and its end.
    pub(crate) fn around(&self, table: u16, key: &Bytes) -> Option<(&Bytes, &Bytes)> {
        let (start, end) = self.at_or_before(table, key)?;
        (key < end).then_some((start, end))
    }

    fn at_or_before(&self, table: u16, key: &Bytes) -> Option<(&Bytes, &Bytes)> {
        let here = (table, Bytes::new())..=(table, key.clone());
        self.ends.range(here).next_back().map(|((_, start), end)| (start, end))
    }

    /// Adds the span of all keys from one to another, both included, between which there is no row.
    pub(crate) fn add(&mut self, table: u16, one: Bytes, other: Bytes) {
        let (low, high) = if one <= other { (one, other) } else { (other, one) };
        let mut end = successor(high);
        // With a span that begins before it and reaches it, it is one.
        let start = match self.at_or_before(table, &low) {
            Some((start, before)) if *before >= low => start.clone(),
            _ => low,
        };
        let key = (table, start);
        while let Some((inside, its_end)) = self.ends.range(&key..=&(table, end.clone())).next() {
            let inside = inside.clone();
            end = end.max(its_end.clone());
            self.ends.remove(&inside);
        }
        self.ends.insert(key, end);
    }

    /// Takes a key out of its span, since there is a row again.
    #[inline(always)]
    pub(crate) fn cut(&mut self, table: u16, key: KeyRef<'_>) {
        if !self.is_empty() {
            self.cut_slow(table, &bytes_of(key));
        }
    }

    #[cold]
    fn cut_slow(&mut self, table: u16, key: &Bytes) {
        let Some((start, end)) = self.around(table, key) else { return };
        let (start, end) = (start.clone(), end.clone());
        let next = successor(key.clone());
        self.ends.remove(&(table, start.clone()));
        if start < *key {
            self.ends.insert((table, start), key.clone());
        }
        if next < end {
            self.ends.insert((table, next), end);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Add(u8, u8),
        Cut(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0..40_u8, 0..12_u8).prop_map(|(one, more)| Step::Add(one, one + more)),
            1 => (0..52_u8).prop_map(Step::Cut),
        ];
        prop::collection::vec(step, 0..40)
    }

    fn key(number: u8) -> Bytes {
        bytes_of(KeyRef::Bytes(&[number]))
    }

    proptest! {
        #[test]
        fn spans_have_the_keys_that_were_added_and_not_cut(steps in steps()) {
            let (mut spans, mut model) = (RemovedSpans::default(), BTreeSet::new());
            spans.add(6, key(0), key(99));
            spans.add(8, key(0), key(99));
            for step in steps {
                match step {
                    Step::Add(one, other) => {
                        spans.add(7, key(other), key(one));
                        model.extend(one..=other);
                    }
                    Step::Cut(number) => {
                        spans.cut(7, KeyRef::Bytes(&[number]));
                        model.remove(&number);
                    }
                }
                for number in 0..60 {
                    let around = spans.around(7, &key(number));
                    prop_assert_eq!(around.is_some(), model.contains(&number), "{}", number);
                    let Some((start, end)) = around else { continue };
                    // All between are in it, and it reaches as far as it can.
                    let first = if start.len() > 1 { start[0] + 1 } else { start[0] };
                    let last = if end.len() > 1 { end[0] } else { end[0] - 1 };
                    prop_assert!((first..=last).all(|number| model.contains(&number)));
                }
            }
        }
    }

    #[test]
    fn spans_that_touch_are_one() {
        let mut spans = RemovedSpans::default();
        for number in 0..1_000_u64 {
            let word = |number: u64| bytes_of(KeyRef::Word(number));
            spans.add(1, word(number.saturating_sub(1)), word(number));
        }
        assert_eq!(spans.ends.len(), 1);
    }
}
