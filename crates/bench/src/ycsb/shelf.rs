//! The table of records, hashed or ordered.

use std::hint::black_box;

use drtm_txn::{Db, Error, Hash, Kind, Ordered, PodRef, Setting, Table, TableDef, Tx};

use super::{Row, number};

pub(super) const RECORD: &str = "record";

/// The records.
pub(super) type Records<O, const FIELDS: usize> = Table<u64, PodRef<Row<FIELDS>>, O>;

/// Kinds of tables, as far as this workload sees that they differ.
pub(crate) trait Shelf: Kind {
    fn open<S: Setting, const FIELDS: usize>(db: &Db<S>, records: u64) -> Result<Records<Self, FIELDS>, Error>
    where
        Self: Sized;

    /// Reads so many rows from a key on; fewer, if there are no more. Gives how many.
    fn scan<S: Setting, const FIELDS: usize>(
        tx: &mut Tx<'_, S>,
        records: Records<Self, FIELDS>,
        from: u64,
        length: u16,
    ) -> Result<u16, Error>
    where
        Self: Sized;
}

impl Shelf for Hash {
    fn open<S: Setting, const FIELDS: usize>(db: &Db<S>, records: u64) -> Result<Records<Self, FIELDS>, Error> {
        db.table(TableDef::hash(RECORD).with_room_for(records))
    }

    fn scan<S: Setting, const FIELDS: usize>(
        _tx: &mut Tx<'_, S>,
        _records: Records<Self, FIELDS>,
        _from: u64,
        _length: u16,
    ) -> Result<u16, Error> {
        // The command line sees to it that nobody asks.
        Err(Error::aborted("a hash table cannot be scanned"))
    }
}

impl Shelf for Ordered {
    fn open<S: Setting, const FIELDS: usize>(db: &Db<S>, _records: u64) -> Result<Records<Self, FIELDS>, Error> {
        db.table(TableDef::ordered(RECORD))
    }

    fn scan<S: Setting, const FIELDS: usize>(
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
}

/// What reading is. A copy is only wanted where assertions are on, to be looked at together with its key.
#[inline(always)]
fn looked_at<const FIELDS: usize>(row: &Row<FIELDS>) -> Option<Row<FIELDS>> {
    black_box(row);
    cfg!(debug_assertions).then_some(*row)
}
