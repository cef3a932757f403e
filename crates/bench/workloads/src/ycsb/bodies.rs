//! Bodies of transactions on records, on several nodes.

use std::hint::black_box;

use drtm_drive::{Body, Reads, expect_row};
use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{Config, Error as DbError, Transaction, cluster::Sets};

use super::{
    Row, key,
    layout::{Layout, RECORD, Records},
    number,
};

/// Consumes a row that was copied out of the store. It is checked at the end and, with assertions,
/// at each read.
#[inline(always)]
pub(super) fn see<const FIELDS: usize>(key: u64, row: &Row<FIELDS>) {
    debug_assert!(row.writes(number(key)).is_some(), "record {} is torn", number(key));
    black_box(row);
}

/// A transaction that reads records, or writes a field of each.
pub(super) struct Accesses<O, I, const N: usize> {
    pub(super) records: Records<O, N>,
    /// The numbers of the records, and the fields that are written.
    pub(super) accesses: I,
}

impl<O: Layout, I: Iterator<Item = (u64, Option<u8>)> + Clone, const N: usize> Body for Accesses<O, I, N> {
    type Output = ();

    fn declare<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        sets: &mut Sets<'_, '_, F, S>,
    ) -> Result<(), DbError> {
        self.accesses.clone().try_for_each(|(number, writes)| match writes {
            Some(_) => sets.write(self.records, key(number)),
            None => sets.read(self.records, key(number)),
        })
    }

    #[inline(always)]
    async fn run(&self, tx: &mut impl Transaction, reads: Reads) -> Result<(), DbError> {
        let records = self.records;
        if self.accesses.clone().nth(1).is_some() {
            reads.prefetch(tx, records, self.accesses.clone().map(|(number, _)| key(number))).await?;
        }
        for (number, writes) in self.accesses.clone() {
            match writes {
                Some(field) => {
                    expect_row(tx.update(records, key(number), |row| row.write(number, field)).await?, RECORD)?;
                }
                None => {
                    let key = key(number);
                    expect_row(tx.view(records, key, |row| see(key, row)).await?, RECORD)?;
                }
            }
        }
        Ok(())
    }
}

/// A transaction that inserts a record.
pub(super) struct Insert<O, const N: usize> {
    pub(super) records: Records<O, N>,
    pub(super) number: u64,
}

impl<O: Layout, const N: usize> Body for Insert<O, N> {
    type Output = ();

    fn declare<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        sets: &mut Sets<'_, '_, F, S>,
    ) -> Result<(), DbError> {
        sets.write(self.records, key(self.number))
    }

    #[inline(always)]
    async fn run(&self, tx: &mut impl Transaction, _reads: Reads) -> Result<(), DbError> {
        tx.insert(self.records, key(self.number), &Row::inserted(self.number)).await
    }
}

/// A transaction that reads records in the order of their keys, from one on. Which these are is not
/// known before.
pub(super) struct Scan<O, const N: usize> {
    pub(super) records: Records<O, N>,
    pub(super) from: u64,
    pub(super) length: u16,
}

impl<O: Layout, const N: usize> Body for Scan<O, N> {
    type Output = u16;

    #[inline(always)]
    async fn run(&self, tx: &mut impl Transaction, _reads: Reads) -> Result<u16, DbError> {
        O::scan_nodes(tx, self.records, self.from, self.length).await
    }
}
