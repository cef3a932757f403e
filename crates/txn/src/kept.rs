//! Where that is which a transaction keeps: values and keys, one behind the other.

use std::ops::Range;

use crate::{Error, Key, index::Encoded};

/// The most bytes of keys, or of values, that one transaction can keep.
const MOST_BYTES: usize = u32::MAX as usize;

/// Some of the bytes, of which there are never more than half a word can count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stretch {
    start: u32,
    length: u32,
}

impl Stretch {
    /// From here to there, unless they are too many.
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

    /// What is there.
    #[inline(always)]
    pub(crate) fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.range()).unwrap_or(&[])
    }
}

/// Appends something from here on, and tells where it is; nothing is appended if that fails.
#[inline(always)]
pub(crate) fn append<T>(
    to: &mut Vec<u8>,
    start: usize,
    write: impl FnOnce(&mut Vec<u8>) -> Result<T, Error>,
) -> Result<(Stretch, T), Error> {
    let appended = write(to).and_then(|result| Ok((Stretch::between(start, to.len())?, result)));
    if appended.is_err() {
        to.truncate(start);
    }
    appended
}

/// A key that a transaction keeps: itself, or where it is among its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kept {
    Word(u64),
    Bytes(Stretch),
}

/// Keeps a key among these bytes, if it is not itself a word.
#[inline(always)]
pub(crate) fn keep<K: Key>(keys: &mut Vec<u8>, key: &K) -> Result<Kept, Error> {
    if K::FITS {
        return Ok(Kept::Word(key.word()));
    }
    let (bytes, ()) = append(keys, keys.len(), |keys| {
        key.write(keys, true);
        Ok(())
    })?;
    Ok(Kept::Bytes(bytes))
}

/// A key that was kept among these bytes.
#[inline(always)]
pub(crate) fn encoded(keys: &[u8], key: Kept) -> Encoded<'_> {
    match key {
        Kept::Word(word) => Encoded::Word(word),
        Kept::Bytes(bytes) => Encoded::Bytes(bytes.of(keys)),
    }
}
