//! Transactions that run in pieces in a cluster: the tables that they use.

#[cfg(not(feature = "verbs"))]
mod deaths;
#[cfg(not(feature = "verbs"))]
mod drops;
#[cfg(not(feature = "verbs"))]
mod ends;
#[cfg(not(feature = "verbs"))]
mod random;

use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{
    Column, Config, Error, Hash, Pod, Postcard, Table, TableDef,
    cluster::{NodeBuilder, Partition, chopped::Progress},
};

use crate::drawn::{BITS, Counted, Done, NAMES, ROWS, TABLES};

/// What transactions have done, by a number of theirs: so that it is known of those that were
/// resumed, too.
const ENDED: TableDef<u64, Postcard<Vec<Done>>> = TableDef::hash("ended");

#[derive(Clone, Copy)]
pub(crate) struct Chopped {
    rows: [Table<u64, Pod<Counted>>; TABLES],
    ended: Table<u64, Postcard<Vec<Done>>>,
    progress: Progress,
}

impl Chopped {
    /// The rows of one key are at different nodes.
    pub(crate) fn define<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        node: &mut NodeBuilder<F, S>,
    ) -> Result<Self, Error> {
        let partitions: [Partition<u64>; TABLES] = [
            Partition::by("itself", |key| *key),
            Partition::by("one more", |key| key + 1),
            Partition::by("two more", |key| key + 2),
            Partition::by("three more", |key| key + 3),
        ];
        let mut table = |number: usize| node.table(ROWS.named(NAMES[number]), partitions[number]);
        let rows = [table(0)?, table(1)?, table(2)?, table(3)?];
        let ended = node.table(ENDED, Partition::by("itself", |key| *key))?;
        Ok(Self { rows, ended, progress: node.progress("random")? })
    }

    /// Returns the columns that are added to.
    fn bits(&self) -> [Column<u64, Pod<Counted>, Hash, u64>; TABLES] {
        self.rows.map(|table| table.column(BITS))
    }
}
