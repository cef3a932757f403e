//! Which shard a key maps to.

use std::fmt;

use super::shard::ShardId;
use crate::{Key, memory::storage::KeyRef};

/// How the rows of a table are divided among the cluster's shards: a function of the key, and its
/// name.
///
/// All nodes must divide a table alike. Functions cannot be compared, so their names are.
///
/// A table that is [replicated](Self::replicated) is not divided: every node has all of it.
///
/// # Example
///
/// ```
/// use drtm::cluster::Partition;
///
/// // All districts of a warehouse are in the warehouse's shard.
/// const BY_WAREHOUSE: Partition<(u32, u8)> = Partition::by("warehouse", |key| u64::from(key.0));
/// assert_eq!(BY_WAREHOUSE.name(), "warehouse");
/// ```
pub struct Partition<K> {
    name: &'static str,
    of: Of<K>,
}

/// What a key's shard follows from.
enum Of<K> {
    /// A hash of its encoding.
    Hash,
    /// A number, modulo the number of shards.
    Number(fn(&K) -> u64),
    /// The shard's number.
    Shard(fn(&K) -> Option<usize>),
    /// Nothing: every node has the row.
    Everywhere,
}

/// The home of a key's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// In this shard, or [here](ShardId::HERE).
    Shard(ShardId),
    /// In no shard: the partition names none.
    NoValue,
    /// In no shard: the bytes are not a key.
    NotAKey,
}

impl<K> Partition<K> {
    /// Divides rows by a hash of the key: evenly, whatever the keys are.
    #[must_use]
    pub const fn hash() -> Self {
        Self { name: "hash", of: Of::Hash }
    }

    /// Divides rows by a function of the key, modulo the number of shards. Shards are dealt to the
    /// owners in turn, and there are [as many](super::NodeBuilder::shards) for each of them unless
    /// chosen otherwise: so this is also modulo the number of owners. Another function must have
    /// another name.
    #[must_use]
    pub const fn by(name: &'static str, of: fn(&K) -> u64) -> Self {
        Self { name, of: Of::Number(of) }
    }

    /// Divides rows by a function that returns the shard of a key. In a cluster's first view, these
    /// are dealt in turn to the nodes given to
    /// [`NodeBuilder::owners`](super::NodeBuilder::owners): the first owner has the first shard. A
    /// key without a shard, `None` or a number that is too high, is refused with
    /// [`ClusterError::NoShard`](super::ClusterError::NoShard).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::cluster::Partition;
    ///
    /// /// The first owner has the north, the second the south, and there is nothing else.
    /// const BY_REGION: Partition<(u8, u32)> = Partition::at("region", |key| match key.0 {
    ///     b'n' => Some(0),
    ///     b's' => Some(1),
    ///     _ => None,
    /// });
    /// assert_eq!(BY_REGION.name(), "region");
    /// ```
    #[must_use]
    pub const fn at(name: &'static str, of: fn(&K) -> Option<usize>) -> Self {
        Self { name, of: Of::Shard(of) }
    }

    /// Replicates the table: every node, clients included, has all rows, and reads them in its own
    /// memory.
    ///
    /// Such a table is filled at each node [before it is started](super::NodeBuilder::local), with
    /// the same rows everywhere, and is only read from then on.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Error, Pod, TableDef, Transaction, cluster::{Cluster, Partition}};
    ///
    /// const PRICES: TableDef<u64, Pod<u64>> = TableDef::hash("prices");
    ///
    /// let mut builder = Cluster::builder();
    /// let prices = builder.table(PRICES, Partition::replicated());
    /// builder.load(|db| {
    ///     let prices = db.table(PRICES)?;
    ///     db.transact(|tx| tx.insert(prices, 7, &100))
    /// });
    /// let nodes = builder.start()?;
    /// assert_eq!(nodes[0].transact(async move |tx| tx.get(prices, 7).await).wait()?, Some(100));
    /// let refused = nodes[0].transact(async move |tx| tx.put(prices, 7, &90).await).wait();
    /// assert!(matches!(refused, Err(Error::Replicated { table: "prices" })));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn replicated() -> Self {
        Self { name: "replicated", of: Of::Everywhere }
    }

    /// Returns the name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    pub(super) const fn is_replicated(&self) -> bool {
        matches!(self.of, Of::Everywhere)
    }
}

impl<K: Key> Partition<K> {
    /// Returns the home of a key's row among this many shards.
    pub(super) fn home(&self, key: KeyRef<'_>, shards: usize) -> Home {
        let number = match self.of {
            Of::Number(of) => match key.decode::<K>() {
                Some(key) => of(&key),
                None => return Home::NotAKey,
            },
            Of::Shard(of) => {
                let Some(key) = key.decode::<K>() else { return Home::NotAKey };
                let shard = of(&key).filter(|shard| *shard < shards);
                return shard.map_or(Home::NoValue, |shard| Home::Shard(ShardId(shard as u16)));
            }
            Of::Everywhere => return Home::Shard(ShardId::HERE),
            Of::Hash => match key {
                KeyRef::Word(word) => mix(word),
                KeyRef::Bytes(bytes) => digest(bytes),
            },
        };
        Home::Shard(ShardId((number % shards as u64) as u16))
    }
}

/// How a table is divided among shards, without the type of its keys.
pub(super) trait Divide: Send + Sync {
    /// Returns the home of a key's row among this many shards.
    fn home(&self, key: KeyRef<'_>, shards: usize) -> Home;
}

impl<K: Key> Divide for Partition<K> {
    fn home(&self, key: KeyRef<'_>, shards: usize) -> Home {
        Self::home(self, key, shards)
    }
}

impl fmt::Debug for dyn Divide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Divide(..)")
    }
}

/// Returns a hash of bytes, which is part of the protocol, like [`mix`].
pub(super) fn digest(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(bytes.len() as u64, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(hash ^ u64::from_le_bytes(word))
    })
}

/// Spreads words evenly: the finalizer of MurmurHash3. Part of the protocol: all nodes must agree.
pub(super) fn mix(word: u64) -> u64 {
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

impl<K> Clone for Of<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Of<K> {}

impl<K> fmt::Debug for Partition<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Partition").field(&self.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts<K: Key>(partition: Partition<K>, keys: impl Iterator<Item = K>) -> [u32; 4] {
        let mut counts = [0; 4];
        for key in keys {
            let mut bytes = Vec::new();
            match partition.home(crate::tx::encode(&key, &mut bytes), 4) {
                Home::Shard(shard) => counts[shard.index()] += 1,
                home => panic!("{home:?}"),
            }
        }
        counts
    }

    #[test]
    fn rows_are_divided_evenly_or_as_one_says() {
        let of_numbers = counts(Partition::hash(), 0..4_000_u64);
        assert!(of_numbers.iter().all(|count| (900..1_100).contains(count)), "{of_numbers:?}");
        let of_texts = counts(Partition::hash(), (0..4_000).map(|number| format!("customer-{number}")));
        assert!(of_texts.iter().all(|count| (900..1_100).contains(count)), "{of_texts:?}");

        let by_first = Partition::<(u32, u32)>::by("first", |key| key.0.into());
        assert_eq!(by_first.home(KeyRef::Word(7 << 32 | 99), 4), Home::Shard(ShardId(3)));
        assert_eq!(Partition::<u8>::by("itself", |key| (*key).into()).home(KeyRef::Word(300), 4), Home::NotAKey);
    }

    #[test]
    fn a_key_may_have_no_shard() {
        let at = Partition::<u8>::at("below nine", |key| (*key < 9).then_some(usize::from(*key)));
        assert_eq!(at.home(KeyRef::Word(3), 4), Home::Shard(ShardId(3)));
        assert_eq!(at.home(KeyRef::Word(4), 4), Home::NoValue, "there are four shards");
        assert_eq!(at.home(KeyRef::Word(9), 4), Home::NoValue);
        assert_eq!(at.home(KeyRef::Word(300), 4), Home::NotAKey);
        assert_eq!(Partition::<u8>::replicated().home(KeyRef::Word(3), 4), Home::Shard(ShardId::HERE));
    }
}
