//! Spans of keys in which a transaction has removed every row, so that its later ranges skip them.
//!
//! A row that a transaction removes keeps its record until the commit. So a range finds it, looks
//! it up in the write set, and skips it. A loop that repeatedly removes the first row of a range
//! would visit all rows that it has removed before, every time. So a range that passes consecutive
//! removed rows records the span of keys from the first to the last, and later ranges jump over it.
//!
//! The guards of the range that has passed the span validate that no other transaction has inserted
//! a row into it. A row that the transaction itself inserts there splits the span.

use std::collections::BTreeMap;

use crate::memory::storage::KeyRef;

/// A key in a span: its encoding, which has eight bytes for a word. The order of encodings is that
/// of the keys.
pub(crate) type Bytes = Vec<u8>;

/// Returns the encoding of a key.
pub(crate) fn bytes_of(key: KeyRef<'_>) -> Bytes {
    match key {
        KeyRef::Word(word) => word.to_be_bytes().to_vec(),
        KeyRef::Bytes(bytes) => bytes.to_vec(),
    }
}

/// Returns the least string of bytes after this one.
fn successor(mut bytes: Bytes) -> Bytes {
    bytes.push(0);
    bytes
}

/// Spans of several tables, each from its first key to before its end. Spans of one table do not
/// touch.
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

    /// Returns the span that contains this key: its first key, and its end.
    pub(crate) fn around(&self, table: u16, key: &Bytes) -> Option<(&Bytes, &Bytes)> {
        let (start, end) = self.at_or_before(table, key)?;
        (key < end).then_some((start, end))
    }

    fn at_or_before(&self, table: u16, key: &Bytes) -> Option<(&Bytes, &Bytes)> {
        let here = (table, Bytes::new())..=(table, key.clone());
        self.ends.range(here).next_back().map(|((_, start), end)| (start, end))
    }

    /// Adds the span between two keys, both included, in which there is no row.
    pub(crate) fn add(&mut self, table: u16, one: Bytes, other: Bytes) {
        let (low, high) = if one <= other { (one, other) } else { (other, one) };
        let mut end = successor(high);
        // It is merged with a span that begins before it and reaches it.
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

    /// Removes a key from its span, since its row exists again.
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
                    // All keys between are in it, and it cannot be extended.
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
