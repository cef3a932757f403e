//! The errors of the store.

use std::fmt;

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
#[derive(Debug)]
#[non_exhaustive]
pub enum KvError {
    /// The value is longer than a record can hold.
    ValueTooLong {
        /// Its length.
        length: usize,
        /// The longest possible value.
        longest: usize,
    },
    /// The key is longer than a record can hold.
    KeyTooLong {
        /// Its length.
        length: usize,
        /// The longest possible key.
        longest: usize,
    },
    /// The part to write is not within the value, or ends within a word of it.
    NotThisPart {
        /// The value's length.
        length: usize,
        /// Where the part begins.
        begin: usize,
        /// Where it ends.
        end: usize,
    },
    /// Memory is full.
    Full(Box<Shortage>),
    /// Memory cannot be allocated.
    Region(RegionError),
    /// A link leads out of memory.
    Corrupt(OutOfBounds),
    /// The store contradicts itself.
    Inconsistent {
        /// The place.
        at: drtm_rdma::Offset,
        /// The contradiction.
        what: &'static str,
    },
    /// The region is larger than a place in a table can address.
    RegionTooLarge {
        /// The region's capacity.
        capacity: u64,
        /// The largest possible capacity.
        most: u64,
    },
    /// There is no table at the place to open, or one of another kind.
    NotThisTable {
        /// The place.
        at: drtm_rdma::Offset,
        /// The word of the requested table.
        expected: u64,
        /// The word that was found.
        found: u64,
    },
    /// The configuration is invalid.
    Config {
        /// The setting.
        what: &'static str,
        /// The allowed values.
        must_be: &'static str,
        /// The given value.
        is: String,
    },
    /// As many workers are alive as locks can name.
    TooManyWorkers {
        /// The most workers.
        most: u32,
    },
    /// A table leads to a bucket that does not exist.
    NoBucket {
        /// The bucket's number.
        bucket: u64,
    },
    /// The table has as many overflow buckets as links can address.
    TooCrowded,
    /// Another holder has locked the record for longer than an impatient handle of the table waits.
    /// Nothing has changed.
    Busy,
}

impl fmt::Display for KvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ValueTooLong { length, longest } => {
                write!(f, "a value of {length} bytes; the longest is {longest}: split it over several records")
            }
            Self::KeyTooLong { length, longest } => {
                write!(f, "a key of {length} bytes; the longest is {longest}: use a digest of it")
            }
            Self::NotThisPart { length, begin, end } => write!(
                f,
                "bytes {begin} to {end} are not to be written of a value of {length}: a part ends where a word \
                 does, or the value; write all of it"
            ),
            Self::Full(why) => write!(f, "{why}"),
            Self::Region(why) => write!(f, "{why}"),
            Self::Corrupt(why) => write!(f, "the store is corrupt: {why}"),
            Self::Inconsistent { at, what } => write!(f, "the store is corrupt: at {at}, {what}"),
            Self::RegionTooLarge { capacity, most } => {
                write!(f, "a region of {capacity} bytes; a store can use at most {most}")
            }
            Self::NotThisTable { at, expected, found } => write!(
                f,
                "no such table at {at}: expected {expected:#018x}, found {found:#018x}; was it opened with the \
                 shape it was made with?"
            ),
            Self::Config { what, must_be, is } => write!(f, "{what} must be {must_be}, and is {is}"),
            Self::TooManyWorkers { most } => write!(
                f,
                "{most} workers of this store are alive, as many as locks can name; let some end, or share them"
            ),
            Self::NoBucket { bucket } => write!(f, "the hash table is corrupt: bucket {bucket} is not there"),
            Self::TooCrowded => {
                f.write_str("the hash table has run out of overflow buckets; let it grow, or make it with more buckets")
            }
            Self::Busy => f.write_str(
                "the record is locked, or being written, for longer than an impatient handle waits; try again later",
            ),
        }
    }
}

impl std::error::Error for KvError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Region(why) => why.source(),
            Self::Corrupt(why) => Some(why),
            _ => None,
        }
    }
}

impl From<RegionError> for KvError {
    fn from(why: RegionError) -> Self {
        Self::Region(why)
    }
}

impl From<OutOfBounds> for KvError {
    fn from(why: OutOfBounds) -> Self {
        Self::Corrupt(why)
    }
}

impl KvError {
    /// Makes the error of an invalid setting.
    pub(crate) fn config(what: &'static str, must_be: &'static str, is: impl ToString) -> Self {
        Self::Config { what, must_be, is: is.to_string() }
    }
}
