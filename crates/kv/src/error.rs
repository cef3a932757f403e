//! The errors of the store.

use drtm_rdma::{OutOfBounds, RegionError};

use crate::Shortage;

/// An operation that the store refuses, or cannot execute. The table stays usable.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::{HashConfig, KvError, KvTable, Store};
///
/// let store = Store::in_memory(NoHtm, 16 << 20)?;
/// let table = store.hash_table(HashConfig::default())?;
/// let error = table.insert(&mut store.worker()?, 1, &[0; 1 << 20]).unwrap_err();
/// assert!(matches!(error, KvError::ValueTooLong { length: 1048576, .. }));
/// # Ok::<(), KvError>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KvError {
    /// The value is longer than a record can hold.
    #[error("a value of {length} bytes; the longest is {longest}: split it over several records")]
    ValueTooLong {
        /// Its length.
        length: usize,
        /// The longest possible value.
        longest: usize,
    },
    /// The key is longer than a record can hold.
    #[error("a key of {length} bytes; the longest is {longest}: use a digest of it")]
    KeyTooLong {
        /// Its length.
        length: usize,
        /// The longest possible key.
        longest: usize,
    },
    /// The part to write is not within the value, or ends within a word of it.
    #[error(
        "bytes {begin} to {end} are not to be written of a value of {length}: a part ends where a word does, or the value; write all of it"
    )]
    NotThisPart {
        /// The value's length.
        length: usize,
        /// Where the part begins.
        begin: usize,
        /// Where it ends.
        end: usize,
    },
    /// Memory is full.
    #[error("{0}")]
    Full(Box<Shortage>),
    /// Memory cannot be allocated.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// A link leads out of memory.
    #[error("the store is corrupt: {0}")]
    Corrupt(#[from] OutOfBounds),
    /// The store contradicts itself.
    #[error("the store is corrupt: at {at}, {what}")]
    Inconsistent {
        /// The place.
        at: drtm_rdma::Offset,
        /// The contradiction.
        what: &'static str,
    },
    /// The region is larger than a place in a table can address.
    #[error("a region of {capacity} bytes; a store can use at most {most}")]
    RegionTooLarge {
        /// The region's capacity.
        capacity: u64,
        /// The largest possible capacity.
        most: u64,
    },
    /// There is no table at the place to open, or one of another kind.
    #[error(
        "no such table at {at}: expected {expected:#018x}, found {found:#018x}; was it opened with the shape it was made with?"
    )]
    NotThisTable {
        /// The place.
        at: drtm_rdma::Offset,
        /// The word of the requested table.
        expected: u64,
        /// The word that was found.
        found: u64,
    },
    /// The configuration is invalid.
    #[error("{what} must be {must_be}, and is {is}")]
    Config {
        /// The setting.
        what: &'static str,
        /// The allowed values.
        must_be: &'static str,
        /// The given value.
        is: String,
    },
    /// As many workers are alive as locks can name.
    #[error("{most} workers of this store are alive, as many as locks can name; let some end, or share them")]
    TooManyWorkers {
        /// The most workers.
        most: u32,
    },
    /// A table leads to a bucket that does not exist.
    #[error("the hash table is corrupt: bucket {bucket} is not there")]
    NoBucket {
        /// The bucket's number.
        bucket: u64,
    },
    /// The table has as many overflow buckets as links can address.
    #[error("the hash table has run out of overflow buckets; let it grow, or make it with more buckets")]
    TooCrowded,
    /// Another holder has locked the record for longer than an impatient handle of the table waits.
    /// Nothing has changed.
    #[error("the record is locked, or being written, for longer than an impatient handle waits; try again later")]
    Busy,
}

impl KvError {
    /// Makes the error of an invalid setting.
    pub(crate) fn config(what: &'static str, must_be: &'static str, is: impl ToString) -> Self {
        Self::Config { what, must_be, is: is.to_string() }
    }
}
