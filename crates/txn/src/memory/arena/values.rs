//! Bytes of values that a transaction has read, or keeps until it commits. The initialised memory
//! only grows, so that no bytes are zeroed before they are overwritten.

use std::{borrow::Borrow, hint::cold_path, ops::Range};

use drtm_kv::ValueSink;

use crate::{Codec, Error, db::name::Name};

/// The most bytes of keys, or of values, that one transaction can keep.
pub(crate) const MOST_BYTES: usize = u32::MAX as usize;

/// A range of the bytes. The bytes never exceed what half a word can count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ArenaRange {
    start: u32,
    length: u32,
}

impl ArenaRange {
    /// Returns the range between two offsets. Fails if they exceed the limit.
    #[inline(always)]
    pub(crate) fn between(start: usize, end: usize) -> Result<Self, Error> {
        match u32::try_from(end) {
            Ok(end) => Ok(Self { start: start as u32, length: end - start as u32 }),
            Err(_) => Err(Error::TooLarge { bytes: end, most: MOST_BYTES }),
        }
    }

    #[inline(always)]
    pub(crate) fn length(self) -> usize {
        self.length as usize
    }

    #[inline(always)]
    pub(crate) fn range(self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.length()
    }

    /// Returns the bytes in the range.
    #[inline(always)]
    pub(crate) fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.range()).unwrap_or(&[])
    }
}

/// Appends what `write` writes, and returns its range. If that fails, nothing is appended.
#[inline(always)]
pub(crate) fn append<T>(
    to: &mut Vec<u8>,
    start: usize,
    write: impl FnOnce(&mut Vec<u8>) -> Result<T, Error>,
) -> Result<(ArenaRange, T), Error> {
    let appended = write(to).and_then(|result| Ok((ArenaRange::between(start, to.len())?, result)));
    if appended.is_err() {
        to.truncate(start);
    }
    appended
}

/// The values of a transaction, stored contiguously.
#[derive(Debug, Default)]
pub(crate) struct Values {
    bytes: Vec<u8>,
    /// The number of bytes that belong to values. The bytes behind them are left over from earlier
    /// ones.
    length: usize,
}

impl Values {
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Discards the bytes from this offset on.
    #[inline(always)]
    pub(crate) fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Returns room for a value at this offset, which becomes the last one.
    #[inline(always)]
    pub(crate) fn room(&mut self, start: usize, length: usize) -> &mut [u8] {
        self.length = start + length;
        if self.bytes.len() < self.length {
            cold_path();
            self.bytes.resize(self.length, 0);
        }
        &mut self.bytes[start..self.length]
    }

    /// Keeps this value only.
    pub(crate) fn set(&mut self, value: &[u8]) {
        self.room(0, value.len()).copy_from_slice(value);
    }

    /// Keeps a value that `write` appends, and returns its range. If that fails, nothing is kept.
    #[inline(always)]
    pub(crate) fn append<T>(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Result<T, Error>,
    ) -> Result<(ArenaRange, T), Error> {
        self.bytes.truncate(self.length);
        let appended = append(&mut self.bytes, self.length, write);
        self.length = self.bytes.len();
        appended
    }

    /// Returns the bytes of the last value, from this offset on, to be changed in place.
    #[inline(always)]
    pub(crate) fn last(&mut self, start: usize) -> &mut [u8] {
        &mut self.bytes[start..self.length]
    }

    /// Keeps the last value after its bytes [have been changed](Self::last), and returns its range.
    /// If the change failed, the value is discarded.
    #[inline(always)]
    pub(crate) fn keep<T>(&mut self, start: usize, changed: Result<T, Error>) -> Result<(ArenaRange, T), Error> {
        match changed.and_then(|result| Ok((ArenaRange::between(start, self.length)?, result))) {
            Ok(kept) => Ok(kept),
            Err(error) => {
                cold_path();
                self.truncate(start);
                Err(error)
            }
        }
    }

    /// Changes the last value by its codec, and [keeps](Self::keep) it. If it is invalid, the error
    /// names the table.
    #[inline(always)]
    pub(crate) fn change<C: Codec, R>(
        &mut self,
        start: usize,
        table: &Name,
        change: impl FnOnce(&mut C::Value) -> R,
    ) -> Result<(ArenaRange, R), Error>
    where
        C::Value: Borrow<C::Given>,
    {
        let no_value = |source| Error::Codec { table: table.get(), source };
        if C::SIZE.is_some() {
            let changed = C::change(self.last(start), change).map_err(no_value);
            return self.keep(start, changed);
        }
        let decoded = C::decode(&self.bytes[start..self.length]);
        self.truncate(start);
        let mut value = decoded.map_err(no_value)?;
        let result = change(&mut value);
        let (kept, ()) = self.append(|bytes| C::encode(value.borrow(), bytes).map_err(no_value))?;
        Ok((kept, result))
    }

    /// Overwrites the bytes from this offset on.
    pub(crate) fn overwrite(&mut self, at: usize, with: &[u8]) {
        let bytes = self.bytes[..self.length].iter_mut().skip(at);
        bytes.zip(with).for_each(|(byte, with)| *byte = *with);
    }

    /// Copies some of the bytes to this offset.
    pub(crate) fn copy_within(&mut self, from: Range<usize>, to: usize) {
        self.bytes.copy_within(from, to);
    }

    /// Appends a copy of a value.
    pub(crate) fn repeat(&mut self, value: Range<usize>) {
        let start = self.length;
        self.room(start, value.len());
        self.copy_within(value, start);
    }
}

/// A buffer for one value, which replaces the one before.
impl ValueSink for Values {
    #[inline(always)]
    fn of(&mut self, length: usize) -> &mut [u8] {
        self.room(0, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CodecError, Pod, Serde};

    /// A codec of two bytes with the default `change`, which refuses some values.
    struct Even;

    impl Codec for Even {
        type Value = Vec<u8>;
        type Given = [u8];
        type View<'b> = &'b [u8];
        const FAMILY: &'static str = "even";
        const SIZE: Option<usize> = Some(2);

        fn encode(value: &[u8], bytes: &mut Vec<u8>) -> Result<(), CodecError> {
            bytes.extend_from_slice(value);
            Ok(())
        }

        fn decode(bytes: &[u8]) -> Result<Vec<u8>, CodecError> {
            match bytes.iter().all(|byte| byte % 2 == 0) {
                true => Ok(bytes.to_vec()),
                false => Err(CodecError::Decode { reason: "odd".to_owned() }),
            }
        }

        fn view(bytes: &[u8]) -> Result<&[u8], CodecError> {
            Ok(bytes)
        }
    }

    fn stretch(start: usize, end: usize) -> ArenaRange {
        ArenaRange::between(start, end).expect("few bytes")
    }

    #[test]
    fn what_was_before_is_never_part_of_a_value() {
        let mut values = Values::default();
        values.room(0, 6).copy_from_slice(b"abcdef");
        values.truncate(2);
        assert_eq!((values.bytes(), values.len()), (&b"ab"[..], 2));
        assert_eq!(values.room(2, 3).len(), 3);
        values.truncate(2);

        let append = |values: &mut Values, bytes: &[u8]| {
            values.append(|to| {
                to.extend_from_slice(bytes);
                Ok(())
            })
        };
        assert_eq!(append(&mut values, b"xyz").expect("room"), (stretch(2, 5), ()));
        assert_eq!(values.bytes(), b"abxyz");
        values.room(5, 2).copy_from_slice(b"12");
        let changed = std::mem::replace(&mut values.last(5)[0], b'3');
        assert_eq!(values.keep(5, Ok(changed)).expect("kept"), (stretch(5, 7), b'1'));
        assert_eq!(values.bytes(), b"abxyz32");
        values.repeat(0..2);
        assert_eq!(values.bytes(), b"abxyz32ab");
    }

    #[test]
    fn what_cannot_be_kept_is_not() {
        let mut values = Values::default();
        values.room(0, 2).copy_from_slice(b"ab");
        let full = || Error::TooLarge { bytes: 9, most: 8 };
        let refused = values.append(|to| {
            to.push(7);
            Err::<(), _>(full())
        });
        assert!(refused.is_err());
        assert_eq!(values.bytes(), b"ab");
        values.room(2, 2);
        assert!(values.keep(2, Err::<(), _>(full())).is_err());
        assert_eq!(values.bytes(), b"ab");
    }

    #[test]
    fn values_are_changed_whatever_their_codec() {
        let mut values = Values::default();
        values.room(0, 1);
        values.room(1, 4).copy_from_slice(&7_u32.to_le_bytes());
        let changed = values.change::<Pod<u32>, _>(1, &Name::new("numbers"), |number| *number += 1);
        assert_eq!(changed.expect("a number"), (stretch(1, 5), ()));
        assert_eq!(&values.bytes()[1..], 8_u32.to_le_bytes());

        let longer = |value: &mut String| value.push_str("er");
        values.append(|bytes| Serde::encode(&"long".to_owned(), bytes).map_err(|_| unreachable!())).expect("text");
        assert_eq!(
            values.change::<Serde<String>, _>(5, &Name::new("words"), longer).expect("text"),
            (stretch(5, 12), ())
        );
        assert_eq!(Serde::<String>::decode(&values.bytes()[5..]).as_deref(), Ok("longer"));

        values.room(12, 2).copy_from_slice(&[2, 4]);
        let even = &Name::new("even");
        assert_eq!(values.change::<Even, _>(12, even, |bytes| bytes[1] = 6).expect("even"), (stretch(12, 14), ()));
        assert_eq!(&values.bytes()[12..], [2, 6]);
        let grown = values.change::<Even, _>(12, even, |bytes| bytes.push(8));
        let source = CodecError::Size { found: 3, expected: 2 };
        assert!(matches!(grown, Err(Error::Codec { table: "even", source: found }) if found == source));
        values.room(12, 2).copy_from_slice(&[2, 5]);
        assert!(matches!(values.change::<Even, _>(12, even, |_| ()), Err(Error::Codec { table: "even", .. })));
        assert_eq!(values.len(), 12);
    }
}
