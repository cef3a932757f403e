//! The table of records, hashed or ordered.

use std::hint::black_box;

use drtm_txn::{Config, Error, Hash, Kind, Ordered, PodRef, Table, TableDef, Transaction, Tx};

use super::{Row, number};

pub(super) const RECORD: &str = "record";

/// The stored form of a record.
pub(super) type Record<const FIELDS: usize> = PodRef<Row<FIELDS>>;

/// The table of records.
pub(super) type Records<O, const FIELDS: usize> = Table<u64, Record<FIELDS>, O>;

/// Kinds of tables that this workload distinguishes.
pub trait Layout: Kind {
    /// Defines a table of this name for this many records.
    fn def<const FIELDS: usize>(name: &'static str, records: u64) -> TableDef<u64, Record<FIELDS>, Self>
    where
        Self: Sized;

    /// Reads up to a number of rows in order, starting at a key. Returns how many it read.
    fn scan<S: Config, const FIELDS: usize>(
        tx: &mut Tx<'_, S>,
        records: Records<Self, FIELDS>,
        from: u64,
        length: u16,
    ) -> Result<u16, Error>
    where
        Self: Sized;

    /// Like [`scan`](Self::scan), over several nodes.
    #[expect(async_fn_in_trait, reason = "coroutines stay on their thread, so that no future needs to be `Send`")]
    async fn scan_nodes<const FIELDS: usize>(
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
    fn def<const FIELDS: usize>(name: &'static str, records: u64) -> TableDef<u64, Record<FIELDS>, Self> {
        TableDef::hash(name).with_room_for(records)
    }

    fn scan<S: Config, const FIELDS: usize>(
        _tx: &mut Tx<'_, S>,
        _records: Records<Self, FIELDS>,
        _from: u64,
        _length: u16,
    ) -> Result<u16, Error> {
        Err(not_in_order())
    }

    async fn scan_nodes<const FIELDS: usize>(
        _tx: &mut impl Transaction,
        _records: Records<Self, FIELDS>,
        _from: u64,
        _length: u16,
    ) -> Result<u16, Error> {
        Err(not_in_order())
    }
}

impl Layout for Ordered {
    fn def<const FIELDS: usize>(name: &'static str, _records: u64) -> TableDef<u64, Record<FIELDS>, Self> {
        TableDef::ordered(name)
    }

    fn scan<S: Config, const FIELDS: usize>(
        tx: &mut Tx<'_, S>,
        records: Records<Self, FIELDS>,
        from: u64,
        length: u16,
    ) -> Result<u16, Error> {
        let mut rows = tx.range(records, from..)?;
        for seen in 0..length {
            let Some((key, row)) = rows.view_next(looked_at)? else { return Ok(seen) };
            debug_assert!(row.is_none_or(|row| row.writes(number(key)).is_some()), "record {} is torn", number(key));
        }
        Ok(length)
    }

    async fn scan_nodes<const FIELDS: usize>(
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

/// Reads a row. Returns a copy only with assertions, to be checked together with its key.
#[inline(always)]
fn looked_at<const FIELDS: usize>(row: &Row<FIELDS>) -> Option<Row<FIELDS>> {
    black_box(row);
    cfg!(debug_assertions).then_some(*row)
}
