//! The operations on the database, of one node or several. Each is implemented in several ways, as
//! applications do it.

use drtm_drive::Reads;
use drtm_history::Clock;
use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{
    Config, Db, Error, Mode, Ordered, Pod, Raw, Table, TableDef, Transaction, Tx,
    cluster::{NodeBuilder, Partition, Sets},
};
use fastrand::Rng;

use super::record::Operation;

const LISTS: TableDef<u64, Raw> = TableDef::hash("lists");
const SORTED_LISTS: TableDef<u64, Raw, Ordered> = TableDef::ordered("sorted lists");
const REGISTERS: TableDef<u64, Pod<u64>> = TableDef::hash("registers");
const SORTED_REGISTERS: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("sorted registers");

/// A value that no client writes: marks a list whose length is no whole number of values.
const TORN: u64 = u64::MAX;

/// Lists and registers. Odd keys are in trees, and even keys in hash tables. With scans, all
/// registers are in a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Store {
    lists: Table<u64, Raw>,
    sorted_lists: Table<u64, Raw, Ordered>,
    registers: Table<u64, Pod<u64>>,
    sorted_registers: Table<u64, Pod<u64>, Ordered>,
    is_sorted: bool,
}

/// Runs an expression with the table of a key.
macro_rules! in_table {
    ($store:expr, $hash:ident, $sorted:ident, $key:expr, |$table:ident| $body:expr) => {
        if $store.is_sorted || $key % 2 == 1 {
            let $table = $store.$sorted;
            $body
        } else {
            let $table = $store.$hash;
            $body
        }
    };
}

impl Store {
    pub(super) fn open<S: Config>(db: &Db<S>, is_sorted: bool) -> Result<Self, Error> {
        Ok(Self {
            lists: db.table(LISTS)?,
            sorted_lists: db.table(SORTED_LISTS)?,
            registers: db.table(REGISTERS)?,
            sorted_registers: db.table(SORTED_REGISTERS)?,
            is_sorted,
        })
    }

    /// Opens them at a node, each divided among the owners.
    pub(super) fn open_at<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        node: &mut NodeBuilder<F, S>,
        is_sorted: bool,
    ) -> Result<Self, Error> {
        Ok(Self {
            lists: node.table(LISTS, Partition::hash())?,
            sorted_lists: node.table(SORTED_LISTS, Partition::hash())?,
            registers: node.table(REGISTERS, Partition::hash())?,
            sorted_registers: node.table(SORTED_REGISTERS, Partition::hash())?,
            is_sorted,
        })
    }

    /// Runs one operation of a read-only transaction.
    pub(super) fn read<S: Config, M: Mode>(&self, tx: &Tx<'_, S, M>, operation: &mut Operation) -> Result<(), Error> {
        match operation {
            Operation::List { key, seen } => {
                let bytes = in_table!(self, lists, sorted_lists, *key, |table| tx.get(table, *key))?;
                *seen = bytes.as_deref().map_or_else(Vec::new, values);
            }
            Operation::Read { key, seen } => {
                *seen = in_table!(self, registers, sorted_registers, *key, |table| tx.get(table, *key))?;
            }
            Operation::Scan { keys, seen } => {
                *seen = tx.range(self.sorted_registers, keys.clone())?.rows().collect::<Result<_, _>>()?;
            }
            Operation::Append { .. } | Operation::Write { .. } | Operation::Remove { .. } => {
                return Err(Error::aborted("a transaction that only reads was drawn with a write"));
            }
        }
        Ok(())
    }

    /// Runs one operation, and also the next if that writes the key that this one reads. Returns
    /// how many it ran.
    pub(super) async fn perform(
        &self,
        tx: &mut impl Transaction,
        operations: &mut [Operation],
        random: &mut Rng,
        clock: &mut Clock,
    ) -> Result<usize, Error> {
        match operations {
            [Operation::List { key, seen }, ..] => {
                let bytes = in_table!(self, lists, sorted_lists, *key, |table| tx.get(table, *key).await)?;
                *seen = bytes.as_deref().map_or_else(Vec::new, values);
            }
            [Operation::Append { key, value }, ..] => self.append(tx, *key, *value, random).await?,
            [Operation::Read { key, seen }, Operation::Write { key: written, value, version }, ..]
                if key == written && random.bool() =>
            {
                *seen = self.exchange(tx, *key, *value, random).await?;
                *version = clock.version();
                return Ok(2);
            }
            [Operation::Read { key, seen }, Operation::Remove { key: removed, version }, ..]
                if key == removed && random.bool() =>
            {
                *version = 0;
                *seen = in_table!(self, registers, sorted_registers, *key, |table| tx.remove(table, *key).await)?;
                *version = if seen.is_some() { clock.version() } else { 0 };
                return Ok(2);
            }
            [Operation::Read { key, seen }, ..] => {
                *seen = in_table!(self, registers, sorted_registers, *key, |table| tx.get(table, *key).await)?;
            }
            [Operation::Write { key, value, version }, ..] => {
                *version = clock.version();
                in_table!(self, registers, sorted_registers, *key, |table| tx.put(table, *key, &*value).await)?;
            }
            [Operation::Remove { key, version }, ..] => {
                *version = 0;
                let removed = in_table!(self, registers, sorted_registers, *key, |table| tx.remove(table, *key).await)?;
                *version = if removed.is_some() { clock.version() } else { 0 };
            }
            [Operation::Scan { keys, seen }, ..] => {
                *seen = tx.range(self.sorted_registers, keys.clone()).await?;
            }
            [] => return Ok(0),
        }
        Ok(1)
    }

    /// Writes a register, and returns its old value.
    async fn exchange(
        &self,
        tx: &mut impl Transaction,
        key: u64,
        value: u64,
        random: &mut Rng,
    ) -> Result<Option<u64>, Error> {
        in_table!(self, registers, sorted_registers, key, |table| {
            if random.bool() && inserted(tx.insert(table, key, &value).await)? {
                return Ok(None);
            }
            let seen = tx.update(table, key, |register| std::mem::replace(register, value)).await?;
            if seen.is_none() {
                tx.put(table, key, &value).await?;
            }
            Ok(seen)
        })
    }

    async fn append(&self, tx: &mut impl Transaction, key: u64, value: u64, random: &mut Rng) -> Result<(), Error> {
        let value = value.to_le_bytes();
        in_table!(self, lists, sorted_lists, key, |table| {
            if random.bool() {
                let mut list = tx.get(table, key).await?.unwrap_or_default();
                list.extend(value);
                return tx.put(table, key, &list[..]).await;
            }
            if random.bool() && inserted(tx.insert(table, key, &value[..]).await)? {
                return Ok(());
            }
            match tx.update(table, key, |list: &mut Vec<u8>| list.extend(value)).await? {
                Some(()) => Ok(()),
                None => tx.put(table, key, &value[..]).await,
            }
        })
    }

    /// Looks up some of the rows that a transaction is about to use.
    pub(super) async fn prefetch(
        &self,
        tx: &mut impl Transaction,
        reads: Reads,
        operations: &[Operation],
    ) -> Result<(), Error> {
        let keys = operations.iter().filter_map(|operation| match operation {
            Operation::List { key, .. } | Operation::Append { key, .. } if key % 2 == 0 => Some(*key),
            _ => None,
        });
        reads.prefetch(tx, self.lists, keys).await
    }

    /// Names the rows of operations, but for one: what is not declared is found out.
    pub(super) fn declare<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        sets: &mut Sets<'_, '_, F, S>,
        operations: &[Operation],
    ) -> Result<(), Error> {
        for operation in operations.iter().skip(1) {
            match operation {
                Operation::List { key, .. } => {
                    in_table!(self, lists, sorted_lists, *key, |table| sets.read(table, *key))
                }
                Operation::Append { key, .. } => {
                    in_table!(self, lists, sorted_lists, *key, |table| sets.write(table, *key))
                }
                Operation::Read { key, .. } => {
                    in_table!(self, registers, sorted_registers, *key, |table| sets.read(table, *key))
                }
                Operation::Write { key, .. } | Operation::Remove { key, .. } => {
                    in_table!(self, registers, sorted_registers, *key, |table| sets.write(table, *key))
                }
                Operation::Scan { keys, .. } => sets.range(self.sorted_registers, keys.clone()),
            }?;
        }
        Ok(())
    }
}

/// Returns whether a row was inserted; `false` if it exists.
fn inserted(result: Result<(), Error>) -> Result<bool, Error> {
    match result {
        Ok(()) => Ok(true),
        Err(Error::Exists { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Decodes the values of a list.
fn values(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks(8).map(|value| value.try_into().map_or(TORN, u64::from_le_bytes)).collect()
}
