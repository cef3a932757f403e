//! YCSB on several nodes: the core package's workloads, and transactions of several operations, on
//! records that are divided by their numbers. No client prefers a node.
//!
//! Nodes share no memory, so clients do not know how many records others have inserted. Each
//! chooses among those of the beginning and its own.

#[cfg(test)]
mod tests;

use std::{fmt, hint::black_box, iter, marker::PhantomData, ops::AddAssign};

use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{
    Config, Error as DbError, Hash, Ordered,
    cluster::{ClusterTx, Node, NodeBuilder, Partition, Worker},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Operation, Row, Shape, Transaction, check, key,
    layout::{ClusterRecords, Layout, RECORD},
    load::{Dist, Load, MixName},
    number, population,
    worker::{KINDS, SEVERAL, Task},
};
use crate::{
    Error,
    drive::{
        Done,
        cluster::{ClusterWorkload, Place, read},
        expect_row, miscounted, spread,
    },
};

/// Records of a cluster, of so many fields (`FIELDS` is a name that serde takes), and what is done
/// with them.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub(crate) struct Distributed<O, const N: usize> {
    records: u64,
    load: Load,
    /// Only reported, where the run was started.
    #[serde(skip)]
    size: Vec<(&'static str, Value)>,
    seed: u64,
    /// Whether rows are fetched before a transaction runs, whatever the protocol.
    fetches: bool,
    order: PhantomData<fn() -> O>,
}

impl<O, const N: usize> Clone for Distributed<O, N> {
    fn clone(&self) -> Self {
        let Self { records, load, size, seed, fetches, order } = self;
        Self { records: *records, load: *load, size: size.clone(), seed: *seed, fetches: *fetches, order: *order }
    }
}

impl<O, const N: usize> fmt::Debug for Distributed<O, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Distributed").field("records", &self.records).field("load", &self.load).finish_non_exhaustive()
    }
}

impl<O: Layout, const N: usize> Distributed<O, N> {
    pub(super) fn new(records: u64, load: Load, size: Vec<(&'static str, Value)>, seed: u64) -> Result<Self, Error> {
        let distributed = Self { records, load, size, seed, fetches: false, order: PhantomData };
        // Whether there are enough records, before they are loaded.
        distributed.task(0)?;
        Ok(distributed)
    }

    /// What a client does. Its own plan has one worker: itself.
    fn task(&self, client: usize) -> Result<Task, Error> {
        self.load.shared(self.records, 0, 1)?.task(self.records, 0, spread(self.seed, client))
    }
}

/// Of a hundred bytes.
pub(crate) type SmallRecords = Distributed<Hash, 1>;

impl SmallRecords {
    /// Transactions of several operations, whose rows are fetched before they run.
    pub(crate) fn fetched(records: u64, shape: Shape, seed: u64) -> Result<Self, Error> {
        let load = Load { mix: MixName::X, dist: Dist::Zipf, fields: 1, shape };
        Ok(Self { fetches: true, ..Self::new(records, load, Vec::new(), seed)? })
    }
}

/// Of a thousand bytes.
pub(crate) type Records = Distributed<Hash, 10>;

/// Of a thousand bytes, which can be scanned.
pub(crate) type OrderedRecords = Distributed<Ordered, 10>;

/// What clients have done to records.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Written {
    /// Fields, each once more.
    fields: u64,
    /// Numbers of records that were inserted.
    inserted: Vec<u64>,
}

impl AddAssign for Written {
    fn add_assign(&mut self, other: Self) {
        self.fields += other.fields;
        self.inserted.extend(other.inserted);
    }
}

/// A coroutine with its task.
#[derive(Debug)]
pub(crate) struct Client {
    task: Task,
    number: u64,
    /// Of all nodes.
    clients: u64,
    written: Written,
}

impl Client {
    /// The number that a record has in the cluster, of the number that it has in the client's plan:
    /// clients take turns at the numbers of new ones.
    fn number(&self, records: u64, number: u64) -> u64 {
        match number.checked_sub(records) {
            Some(inserted) => records + inserted * self.clients + self.number,
            None => number,
        }
    }
}

/// Reads a record, or writes a field of one.
async fn access<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>, O: Layout, const N: usize>(
    tx: &mut ClusterTx<'_, F, S>,
    records: ClusterRecords<O, N>,
    number: u64,
    writes: Option<u8>,
) -> Result<(), DbError> {
    match writes {
        Some(field) => expect_row(tx.update(records, key(number), |row| row.write(number, field)).await?, RECORD),
        None => {
            black_box(expect_row(tx.get(records, key(number)).await?, RECORD)?);
            Ok(())
        }
    }
}

/// Accesses all records of a transaction, which are looked up at once.
async fn access_all<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>, O: Layout, const N: usize>(
    tx: &mut ClusterTx<'_, F, S>,
    records: ClusterRecords<O, N>,
    transaction: &Transaction,
) -> Result<(), DbError> {
    tx.prefetch(records, transaction.accesses().iter().map(|access| key(access.number))).await?;
    for of in transaction.accesses() {
        access(tx, records, of.number, of.writes.then_some(0)).await?;
    }
    Ok(())
}

/// Accesses records in a transaction that fetches them before it runs.
async fn access_fetched<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>, O: Layout, const N: usize>(
    worker: &Worker<'_, F, S>,
    records: ClusterRecords<O, N>,
    accesses: impl Iterator<Item = (u64, Option<u8>)> + Clone,
) -> Result<(), DbError> {
    let declared = accesses.clone();
    let accessed = worker.transact_on(
        |sets| {
            for (number, writes) in declared {
                match writes {
                    Some(_) => sets.write(records, key(number))?,
                    None => sets.read(records, key(number))?,
                }
            }
            Ok(())
        },
        |rows| {
            for (number, writes) in accesses.clone() {
                match writes {
                    Some(field) => {
                        expect_row(rows.update(records, key(number), |row| row.write(number, field))?, RECORD)?
                    }
                    None => {
                        black_box(expect_row(rows.get(records, key(number))?, RECORD)?);
                    }
                }
            }
            Ok(())
        },
    );
    accessed.await
}

/// What names a size to a process.
trait Named {
    const NAME: &'static str;
}

impl Named for SmallRecords {
    const NAME: &'static str = "ycsb-100";
}

impl Named for Records {
    const NAME: &'static str = "ycsb-1000";
}

impl Named for OrderedRecords {
    const NAME: &'static str = "ycsb-ordered";
}

impl<O: Layout, const N: usize> ClusterWorkload for Distributed<O, N>
where
    Self: Named,
{
    const NAME: &'static str = "ycsb";
    const MEMBER: &'static str = <Self as Named>::NAME;
    const KINDS: &'static [&'static str] = KINDS;
    type Tables = ClusterRecords<O, N>;
    type Client = Client;
    type Count = Written;

    fn size(&self) -> Vec<(&'static str, Value)> {
        self.size.clone()
    }

    fn open<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        node: &mut NodeBuilder<F, S>,
    ) -> Result<Self::Tables, Error> {
        Ok(node.table(O::def(self.records), Partition::by("record", |key| number(*key)))?)
    }

    fn load<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        node: &Node<F, S>,
        place: Place,
    ) -> Result<(), Error> {
        let db = node.local();
        let records = db.table(O::def::<N>(self.records))?;
        for (key, row) in population(0..self.records).filter(|(key, _)| place.owns(number(*key))) {
            db.transact(|tx| tx.insert(records, key, &row))?;
        }
        Ok(())
    }

    fn client(&self, place: Place, number: usize) -> Result<Client, Error> {
        let clients = place.all_clients() as u64;
        Ok(Client { task: self.task(number)?, number: number as u64, clients, written: Written::default() })
    }

    async fn run_next<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        records: Self::Tables,
        client: &mut Client,
    ) -> Result<Done, Error> {
        let fetches = self.fetches || worker.protocol().leases;
        let operation = match &mut client.task {
            Task::Core(inputs) => inputs.draw(),
            Task::Transactions(transactions) => {
                let transaction = transactions.draw();
                if fetches {
                    let accesses = transaction.accesses().iter().map(|of| (of.number, of.writes.then_some(0)));
                    access_fetched(worker, records, accesses).await?;
                } else {
                    worker.transact(async |tx| access_all(tx, records, transaction).await).await?;
                }
                client.written.fields += transaction.writes() as u64;
                return Ok(Done { kind: SEVERAL, is_committed: true });
            }
        };
        match operation {
            Operation::Read { number } if fetches => {
                let number = client.number(self.records, number);
                access_fetched(worker, records, iter::once((number, None))).await?;
            }
            Operation::Update { number, field } | Operation::ReadModifyWrite { number, field } if fetches => {
                let number = client.number(self.records, number);
                access_fetched(worker, records, iter::once((number, Some(field)))).await?;
                client.written.fields += 1;
            }
            Operation::Read { number } => {
                let number = client.number(self.records, number);
                worker.transact(async |tx| access(tx, records, number, None).await).await?;
            }
            Operation::Update { number, field } | Operation::ReadModifyWrite { number, field } => {
                let number = client.number(self.records, number);
                worker.transact(async |tx| access(tx, records, number, Some(field)).await).await?;
                client.written.fields += 1;
            }
            Operation::Insert { number } => {
                let number = client.number(self.records, number);
                let row = Row::inserted(number);
                worker.transact(async |tx| tx.insert(records, key(number), &row).await).await?;
                client.written.inserted.push(number);
                if let Task::Core(inputs) = &mut client.task {
                    inputs.inserted();
                }
            }
            Operation::Scan { number, length } => {
                let from = key(client.number(self.records, number));
                let scanned = worker.transact(async |tx| O::scan_nodes(tx, records, from, length).await);
                black_box(scanned.await?);
            }
        }
        Ok(Done { kind: operation.kind() as usize, is_committed: true })
    }

    fn count(client: Client) -> Written {
        client.written
    }

    async fn check<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        records: Self::Tables,
        written: &mut Written,
    ) -> Result<Vec<String>, Error> {
        let numbers = (0..self.records).chain(written.inserted.iter().copied());
        let rows = read(worker, records, numbers.map(key)).await?.into_iter().map(Ok::<_, Error>);
        let count = self.records + written.inserted.len() as u64;
        Ok(check(rows, count, written.fields)?.iter().map(ToString::to_string).collect())
    }

    async fn check_node<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        _worker: &Worker<'_, F, S>,
        _records: Self::Tables,
        node: &Node<F, S>,
        place: Place,
        written: &Written,
    ) -> Result<Vec<String>, Error> {
        let numbers = (0..self.records).chain(written.inserted.iter().copied());
        miscounted(node.local(), &[(RECORD, numbers.filter(|number| place.owns(*number)).count() as u64)])
    }
}
