//! The arena: the bytes of keys and values that a transaction keeps until it ends, stored
//! contiguously.

mod values;

#[cfg(test)]
pub(crate) use values::MOST_BYTES;
pub(crate) use values::{ArenaRange, Values, append};

use crate::{AsKey, Error, Key, memory::storage::KeyRef};

/// Bytes of keys and values.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    /// Values to be written, and values that are being changed.
    pub(crate) values: Values,
    /// Keys of rows to be written.
    pub(crate) keys: Vec<u8>,
    /// The value that was read last.
    pub(crate) value: Values,
    /// A copy of the row that a closure is shown.
    pub(crate) copy: Values,
    /// The key that is being looked up.
    pub(crate) key: Vec<u8>,
}

impl Arena {
    /// Returns its size on the heap, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let values = self.values.capacity() + self.value.capacity() + self.copy.capacity();
        values + self.keys.capacity() + self.key.capacity()
    }

    /// Keeps a key until the transaction ends.
    #[inline(always)]
    pub(crate) fn keep_key(&mut self, key: KeyRef<'_>) -> Result<ArenaKey, Error> {
        Ok(match key {
            KeyRef::Word(word) => ArenaKey::Word(word),
            KeyRef::Bytes(key) => {
                let begin = self.keys.len();
                let (range, ()) = append(&mut self.keys, begin, |bytes| {
                    bytes.extend_from_slice(key);
                    Ok(())
                })?;
                ArenaKey::Bytes(range)
            }
        })
    }

    /// Keeps a value that `encode` appends.
    #[inline(always)]
    pub(crate) fn keep_value(
        &mut self,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<ArenaRange, Error> {
        let (value, ()) = self.values.append(encode)?;
        Ok(value)
    }

    /// Empties the arena without freeing its memory.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.values.truncate(0);
        self.keys.clear();
    }
}

/// A key in the arena: the word itself, or the range of its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ArenaKey {
    Word(u64),
    Bytes(ArenaRange),
}

impl ArenaKey {
    /// Appends a key to `bytes`, unless it packs into a word.
    #[inline(always)]
    pub(crate) fn keep<K: Key>(bytes: &mut Vec<u8>, key: impl AsKey<K>) -> Result<Self, Error> {
        if K::FITS {
            return Ok(Self::Word(key.packed()));
        }
        let (range, ()) = append(bytes, bytes.len(), |bytes| {
            key.write_key(bytes, true);
            Ok(())
        })?;
        Ok(Self::Bytes(range))
    }

    /// Returns the key, whose bytes are in `bytes`.
    #[inline(always)]
    pub(crate) fn in_bytes(self, bytes: &[u8]) -> KeyRef<'_> {
        match self {
            Self::Word(word) => KeyRef::Word(word),
            Self::Bytes(range) => KeyRef::Bytes(range.of(bytes)),
        }
    }
}
