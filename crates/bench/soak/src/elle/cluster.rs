//! Random transactions of clients on several nodes: the workload that [`Args`](super::Args) runs on
//! a cluster. Clients note moments by the clock that all processes of the machine share, in a
//! simulation, too: what happens first in virtual time is carried out first.

use std::ops::AddAssign;

use drtm_drive::{
    Done,
    cluster::{Access, ClusterWorkload, InTurn, Place, Runner, at_once},
    spread,
};
use drtm_history::{Clock, Epoch, Outcome};
use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{
    Config, Error as DbError, Options, Ordered, Pod, Raw,
    cluster::{ClusterTable, ClusterTx, Node, NodeBuilder, Partition, Sets, Worker},
};
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::{
    draw::{Draw, Workload},
    journal::{GIVEN_UP, Journal, ON_PURPOSE},
    record::{Observed, Operation},
    store::{LISTS, REGISTERS, SORTED_LISTS, SORTED_REGISTERS, inserted, values},
};
use drtm_drive::Error;

/// How often a closure is run at most. Insertions into ranges that others scan make these fail, and
/// each other, also where they fail themselves. So few transactions are run again hundreds of
/// times, with pauses of up to 131 ms, and a history of all of them does not end soon.
const ATTEMPTS: u32 = 12;

/// Random transactions, on a cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Histories {
    pub(super) workload: Workload,
    pub(super) seed: u64,
    /// Of all workers.
    pub(super) clients: usize,
    pub(super) epoch: Epoch,
}

/// What clients have recorded.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Records(pub(super) Vec<Observed>);

impl AddAssign for Records {
    fn add_assign(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

/// Lists and registers, of odd keys in tables that keep their order, and of even keys in hash
/// tables. Where ranges are scanned, all registers are in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables {
    is_sorted: bool,
    lists: ClusterTable<u64, Raw>,
    sorted_lists: ClusterTable<u64, Raw, Ordered>,
    registers: ClusterTable<u64, Pod<u64>>,
    sorted_registers: ClusterTable<u64, Pod<u64>, Ordered>,
}

/// A client, which runs one transaction at a time.
#[derive(Debug)]
pub(crate) struct Client {
    draw: Draw,
    journal: Journal,
    /// Transactions that it has begun.
    begun: u64,
}

/// Runs an expression with the table of a key.
macro_rules! in_table {
    ($tables:expr, $hash:ident, $sorted:ident, $key:expr, |$table:ident| $body:expr) => {
        if $tables.is_sorted || $key % 2 == 1 {
            let $table = $tables.$sorted;
            $body
        } else {
            let $table = $tables.$hash;
            $body
        }
    };
}

impl Tables {
    /// Does one operation, and with it the next, if that writes what this reads: returns how many.
    async fn perform(
        self,
        tx: &mut impl Access,
        operations: &mut [Operation],
        random: &mut Rng,
        clock: &mut Clock,
    ) -> Result<usize, DbError> {
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
            [Operation::Read { key, seen }, ..] => {
                *seen = in_table!(self, registers, sorted_registers, *key, |table| tx.get(table, *key).await)?;
            }
            [Operation::Write { key, value, version }, ..] => {
                *version = clock.version();
                in_table!(self, registers, sorted_registers, *key, |table| tx.put(table, *key, value).await)?;
            }
            [Operation::Remove { key, version }, ..] => {
                *version = 0;
                if tx.remove(self.sorted_registers, *key).await?.is_some() {
                    *version = clock.version();
                }
            }
            [Operation::Scan { keys, seen }, ..] => {
                *seen = tx.range(self.sorted_registers, keys.clone()).await?;
            }
            [] => return Ok(0),
        }
        Ok(1)
    }

    /// Writes a register, and returns what was there.
    async fn exchange(
        self,
        tx: &mut impl Access,
        key: u64,
        value: u64,
        random: &mut Rng,
    ) -> Result<Option<u64>, DbError> {
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

    /// Names the rows of operations, but for one: what is not declared is found out.
    fn declare<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        self,
        sets: &mut Sets<'_, '_, F, S>,
        operations: &[Operation],
    ) -> Result<(), DbError> {
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
                Operation::Write { key, .. } => {
                    in_table!(self, registers, sorted_registers, *key, |table| sets.write(table, *key))
                }
                Operation::Remove { key, .. } => sets.write(self.sorted_registers, *key),
                Operation::Scan { keys, .. } => sets.range(self.sorted_registers, keys.clone()),
            }?;
        }
        Ok(())
    }

    async fn append(self, tx: &mut impl Access, key: u64, value: u64, random: &mut Rng) -> Result<(), DbError> {
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

    /// Looks up some of the rows that a transaction is about to use, all at once.
    async fn prefetch(self, tx: &mut impl Access, operations: &[Operation]) -> Result<(), DbError> {
        let keys = operations.iter().filter_map(|operation| match operation {
            Operation::List { key, .. } | Operation::Append { key, .. } if key % 2 == 0 => Some(*key),
            _ => None,
        });
        tx.prefetch(self.lists, keys).await
    }
}

impl Client {
    /// Runs a transaction until it commits, or is given up; or once, by hand.
    async fn run<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &mut self,
        worker: &Runner<'_, '_, F, S>,
        tables: Tables,
        operations: Vec<Operation>,
        is_last: bool,
    ) -> Result<bool, Error> {
        let is_fetched = worker.protocol().leases && !is_last && self.draw.random.u8(0..4) > 0;
        let mut open = self.journal.open(operations);
        let ended = if is_fetched {
            let declared = open.operations.clone();
            let ended = worker.transact_on(
                |sets| tables.declare(sets, &declared),
                |rows| {
                    self.journal.retry(&mut open, |operations| self.draw.again(operations));
                    let ended = at_once(self.steps(rows, tables, &mut open.operations, is_last));
                    self.journal.returns(&mut open);
                    ended
                },
            );
            ended.await
        } else if !is_last && self.draw.random.u8(0..3) == 0 {
            let mut tx = worker.begin().await;
            match self.optimistic(worker, &mut tx, tables, &mut open.operations, is_last).await {
                Ok(()) => tx.commit().await,
                Err(error) => {
                    tx.abort().await;
                    Err(error)
                }
            }
        } else {
            // The last one reads alone.
            let options = if is_last { Options::new() } else { Options::new().attempts(ATTEMPTS) };
            let ended = worker.transact_with(options, async |tx| {
                self.journal.retry(&mut open, |operations| self.draw.again(operations));
                let ended = self.optimistic(worker, tx, tables, &mut open.operations, is_last).await;
                self.journal.returns(&mut open);
                ended
            });
            ended.await
        };
        Ok(self.journal.complete(open, ended)? == Outcome::Committed)
    }

    async fn optimistic<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &mut self,
        worker: &Runner<'_, '_, F, S>,
        tx: &mut ClusterTx<'_, F, S>,
        tables: Tables,
        operations: &mut [Operation],
        is_last: bool,
    ) -> Result<(), DbError> {
        match worker.in_turn {
            true => self.steps(&mut InTurn(tx), tables, operations, is_last).await,
            false => self.steps(tx, tables, operations, is_last).await,
        }
    }

    async fn steps(
        &mut self,
        tx: &mut impl Access,
        tables: Tables,
        operations: &mut [Operation],
        is_last: bool,
    ) -> Result<(), DbError> {
        let Self { draw, journal, .. } = self;
        if draw.random.u8(0..4) == 0 {
            tables.prefetch(tx, operations).await?;
        }
        let mut done = 0;
        while done < operations.len() {
            done += tables.perform(tx, &mut operations[done..], &mut draw.random, &mut journal.clock).await?;
        }
        if !is_last && draw.random.u8(0..GIVEN_UP) == 0 { Err(DbError::aborted(ON_PURPOSE)) } else { Ok(()) }
    }
}

impl Histories {
    fn client_of(&self, number: usize) -> Result<Client, Error> {
        // The last client reads what is left.
        let draw = Draw::new(self.workload, spread(self.seed, number), number, self.clients + 1);
        let clock = self.epoch.clock(number as u64).map_err(Error::size)?;
        Ok(Client { draw, journal: Journal::new(clock, number), begun: 0 })
    }
}

impl ClusterWorkload for Histories {
    const NAME: &'static str = "history";
    const KINDS: &'static [&'static str] = &["random"];
    type Tables = Tables;
    type Client = Client;
    type Count = Records;

    fn size(&self) -> Vec<(&'static str, serde_json::Value)> {
        Vec::new()
    }

    fn open<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        node: &mut NodeBuilder<F, S>,
    ) -> Result<Tables, Error> {
        Ok(Tables {
            is_sorted: self.workload == Workload::Predicate,
            lists: node.table(LISTS, Partition::hash())?,
            sorted_lists: node.table(SORTED_LISTS, Partition::hash())?,
            registers: node.table(REGISTERS, Partition::hash())?,
            sorted_registers: node.table(SORTED_REGISTERS, Partition::hash())?,
        })
    }

    fn load<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        _node: &Node<F, S>,
        _place: Place,
    ) -> Result<(), Error> {
        Ok(())
    }

    fn client(&self, _place: Place, number: usize) -> Result<Client, Error> {
        self.client_of(number)
    }

    async fn run_next<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Runner<'_, '_, F, S>,
        tables: Tables,
        client: &mut Client,
    ) -> Result<Done, Error> {
        // About as many as all clients have begun.
        let operations = client.draw.transaction(client.begun * self.clients as u64);
        client.begun += 1;
        let is_committed = client.run(worker, tables, operations, false).await?;
        Ok(Done { kind: 0, is_committed })
    }

    fn count(client: Client) -> Records {
        Records(client.journal.record)
    }

    /// Reads what is left. The command judges, and tells.
    async fn check<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: Tables,
        records: &mut Records,
    ) -> Result<Vec<String>, Error> {
        let mut last = self.client_of(self.clients)?;
        for operations in self.workload.last_reads_of(records.0.iter().flat_map(|observed| &observed.operations)) {
            last.run(&Runner::new(worker, false), tables, operations, true).await?;
        }
        records.0.append(&mut last.journal.record);
        records.0.sort_by_key(|observed| (observed.invoked, observed.process));
        Ok(Vec::new())
    }

    async fn check_node<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        _worker: &Worker<'_, F, S>,
        _tables: Tables,
        _node: &Node<F, S>,
        _place: Place,
        _count: &Records,
    ) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }
}
