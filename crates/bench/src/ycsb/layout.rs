//! The table of records, hashed or ordered.

use std::hint::black_box;

use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{
    Config, Error, Hash, Kind, Ordered, PodRef, Table, TableDef, Tx,
    cluster::{ClusterTable, ClusterTx},
};

use super::{Row, number};

pub(super) const RECORD: &str = "record";

/// What is stored of a record.
pub(super) type Record<const FIELDS: usize> = PodRef<Row<FIELDS>>;

/// The records.
pub(super) type Records<O, const FIELDS: usize> = Table<u64, Record<FIELDS>, O>;

/// The records of several nodes.
pub(super) type ClusterRecords<O, const FIELDS: usize> = ClusterTable<u64, Record<FIELDS>, O>;

/// Kinds of tables, as far as this workload sees that they differ.
pub(crate) trait Layout: Kind {
    /// How a table for so many records is made.
    fn def<const FIELDS: usize>(records: u64) -> TableDef<u64, Record<FIELDS>, Self>
    where
        Self: Sized;

    /// Reads so many rows from a key on; fewer, if there are no more. Gives how many.
    fn scan<S: Config, const FIELDS: usize>(
        tx: &mut Tx<'_, S>,
        records: Records<Self, FIELDS>,
        from: u64,
        length: u16,
    ) -> Result<u16, Error>
    where
        Self: Sized;

    /// Like [`scan`](Self::scan), over several nodes.
    async fn scan_nodes<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>, const FIELDS: usize>(
        tx: &mut ClusterTx<'_, F, S>,
        records: ClusterRecords<Self, FIELDS>,
        from: u64,
        length: u16,
    ) -> Result<u16, Error>
    where
        Self: Sized;
}

/// The command line sees to it that this is never needed.
fn not_in_order() -> Error {
    Error::aborted("a hash table cannot be scanned")
}

impl Layout for Hash {
    fn def<const FIELDS: usize>(records: u64) -> TableDef<u64, Record<FIELDS>, Self> {
        TableDef::hash(RECORD).with_room_for(records)
    }

    fn scan<S: Config, const FIELDS: usize>(
        _tx: &mut Tx<'_, S>,
        _records: Records<Self, FIELDS>,
        _from: u64,
        _length: u16,
    ) -> Result<u16, Error> {
        Err(not_in_order())
    }

    async fn scan_nodes<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>, const FIELDS: usize>(
        _tx: &mut ClusterTx<'_, F, S>,
        _records: ClusterRecords<Self, FIELDS>,
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

    async fn scan_nodes<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>, const FIELDS: usize>(
        tx: &mut ClusterTx<'_, F, S>,
        records: ClusterRecords<Self, FIELDS>,
        from: u64,
        length: u16,
    ) -> Result<u16, Error> {
        let rows = tx.range_limit(records, from.., length.into()).await?;
        for (key, row) in &rows {
            let row = looked_at(row);
            debug_assert!(row.is_none_or(|row| row.writes(number(*key)).is_some()), "record {key} is torn");
        }
        // The length at most.
        Ok(rows.len() as u16)
    }
}

/// What reading is. A copy is only wanted where assertions are on, to be looked at together with
/// its key.
#[inline(always)]
fn looked_at<const FIELDS: usize>(row: &Row<FIELDS>) -> Option<Row<FIELDS>> {
    black_box(row);
    cfg!(debug_assertions).then_some(*row)
}
