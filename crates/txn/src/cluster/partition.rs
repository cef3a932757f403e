//! Which node owns a row.

use std::fmt;

use crate::{Key, storage::KeyRef};

/// How the rows of a table are divided among the nodes that own rows: a function of the key, and
/// its name.
///
/// All nodes must divide a table alike. Functions cannot be compared, so their names are.
///
/// # Example
///
/// ```
/// use drtm_txn::cluster::Partition;
///
/// // All districts of a warehouse are where the warehouse is.
/// const BY_WAREHOUSE: Partition<(u32, u8)> = Partition::by("warehouse", |key| u64::from(key.0));
/// assert_eq!(BY_WAREHOUSE.name(), "warehouse");
/// ```
pub struct Partition<K> {
    name: &'static str,
    of: Option<fn(&K) -> u64>,
}

impl<K> Partition<K> {
    /// By a hash of the key: evenly, whatever the keys are.
    #[must_use]
    pub const fn hash() -> Self {
        Self { name: "hash", of: None }
    }

    /// By what a function makes of the key, modulo the number of owners. Another function must have
    /// another name.
    #[must_use]
    pub const fn by(name: &'static str, of: fn(&K) -> u64) -> Self {
        Self { name, of: Some(of) }
    }

    /// The name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<K: Key> Partition<K> {
    /// Which of the owners has the row of a key. `None` if the bytes are none of a key.
    pub(super) fn owner(&self, key: KeyRef<'_>, owners: usize) -> Option<usize> {
        let number = match self.of {
            Some(of) => of(&key.decode::<K>()?),
            None => match key {
                KeyRef::Word(word) => mix(word),
                KeyRef::Bytes(bytes) => bytes.chunks(8).fold(bytes.len() as u64, |hash, chunk| {
                    let mut word = [0; 8];
                    word[..chunk.len()].copy_from_slice(chunk);
                    mix(hash ^ u64::from_le_bytes(word))
                }),
            },
        };
        Some((number % owners as u64) as usize)
    }
}

/// Spreads words evenly: the finalizer of MurmurHash3. Part of the protocol: all nodes must agree.
fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    let word = (word ^ word >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    word ^ word >> 33
}

impl<K> Clone for Partition<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Partition<K> {}

impl<K> fmt::Debug for Partition<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Partition").field(&self.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_divided_evenly_or_as_one_says() {
        let mut counts = [0; 4];
        for key in 0..4_000_u64 {
            counts[Partition::<u64>::hash().owner(KeyRef::Word(key), 4).expect("a key")] += 1;
        }
        assert!(counts.iter().all(|count| (900..1_100).contains(count)), "{counts:?}");

        let texts = (0..4_000).map(|number| format!("customer-{number}"));
        let mut counts = [0; 4];
        for text in texts {
            counts[Partition::<String>::hash().owner(KeyRef::Bytes(text.as_bytes()), 4).expect("a key")] += 1;
        }
        assert!(counts.iter().all(|count| (900..1_100).contains(count)), "{counts:?}");

        let by_first = Partition::<(u32, u32)>::by("first", |key| key.0.into());
        assert_eq!(by_first.owner(KeyRef::Word(7 << 32 | 99), 4), Some(3));
        assert_eq!(Partition::<u8>::by("itself", |key| (*key).into()).owner(KeyRef::Word(300), 4), None);
    }
}
