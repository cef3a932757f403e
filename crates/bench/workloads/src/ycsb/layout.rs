//! The table of records, hashed or ordered.

use std::hint::black_box;

use drtm_txn::{Error, Hash, Kind, Ordered, PodRef, Table, TableDef, Transaction};

use super::{Row, number};

pub(super) const RECORD: &str = "record";

/// The stored form of a record.
pub(super) type Record<const FIELDS: usize> = PodRef<Row<FIELDS>>;

/// The table of records.
pub(super) type Records<O, const FIELDS: usize> = Table<u64, Record<FIELDS>, O>;

/// Kinds of tables that this workload distinguishes.
pub trait Layout: Kind {
    /// Defines a table for this many records.
    fn def<const FIELDS: usize>(records: u64) -> TableDef<u64, Record<FIELDS>, Self>
    where
        Self: Sized;

    /// Reads up to a number of rows in order, starting at a key. Returns how many it read.
    #[expect(async_fn_in_trait, reason = "coroutines stay on their thread, so that no future needs to be `Send`")]
    async fn scan<const FIELDS: usize>(
        tx: &mut impl Transaction,
        records: Records<Self, FIELDS>,
        from: u64,
        length: u16,
    ) -> Result<u16, Error>
    where
        Self: Sized;
}

/// Returns the error of scanning a hash table. The command line prevents it.
fn not_in_order() -> Error {
    Error::aborted("a hash table cannot be scanned")
}

impl Layout for Hash {
    fn def<const FIELDS: usize>(records: u64) -> TableDef<u64, Record<FIELDS>, Self> {
        TableDef::hash(RECORD).with_room_for(records)
    }

    async fn scan<const FIELDS: usize>(
        _tx: &mut impl Transaction,
        _records: Records<Self, FIELDS>,
        _from: u64,
        _length: u16,
    ) -> Result<u16, Error> {
        Err(not_in_order())
    }
}

impl Layout for Ordered {
    fn def<const FIELDS: usize>(_records: u64) -> TableDef<u64, Record<FIELDS>, Self> {
        TableDef::ordered(RECORD)
    }

    async fn scan<const FIELDS: usize>(
        tx: &mut impl Transaction,
        records: Records<Self, FIELDS>,
        from: u64,
        length: u16,
    ) -> Result<u16, Error> {
        let mut seen = 0;
        let scanned = tx.view_each(records, from.., length.into(), |key, row| {
            debug_assert!(row.writes(number(key)).is_some(), "record {} is torn", number(key));
            black_box(row);
            seen += 1;
        });
        scanned.await?;
        Ok(seen)
    }
}
