//! YCSB on several nodes: the core package's workloads, and transactions of several operations, on
//! records that are divided by their numbers. No client prefers a node.
//!
//! Nodes share no memory, so clients do not know how many records others have inserted. Each
//! chooses among those of the beginning and its own.

#[cfg(test)]
mod tests;

use std::{fmt, hint::black_box, iter, marker::PhantomData, ops::AddAssign};

use drtm_drive::{
    Done, Error, Runner,
    cluster::{ClusterWorkload, Nearby, Place, look_up, read},
    miscounted, spread, transact_if,
};
use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{
    Config, Hash, Ordered,
    cluster::{Node, NodeBuilder, Partition, Worker},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Operation, Shape,
    bodies::{Accesses, Insert, Scan},
    check,
    hotspot::{Hotspot, Hotspots},
    key,
    layout::{self, Layout, RECORD},
    load::{Dist, Load, MixName},
    number, population,
    walk::Walk,
    worker::{KINDS, SEVERAL, Task},
};

/// Records of a cluster, of so many fields (`FIELDS` is a name that serde takes), and what is done
/// with them.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Distributed<O, const N: usize> {
    records: u64,
    load: Load,
    /// Only reported, where the run was started.
    #[serde(skip)]
    size: Vec<(&'static str, Value)>,
    seed: u64,
    /// Whether rows are fetched before a transaction runs, whatever the protocol.
    fetches: bool,
    /// Instead of the load's transactions.
    hotspot: Option<Hotspot>,
    /// The table's name: several of them can be in one database.
    #[serde(skip, default = "usual_table")]
    table: &'static str,
    /// The percentage of accesses of a client's own node. `None`: as it happens.
    local: Option<u8>,
    /// What a client walks through to find a record.
    walk: Option<Walk>,
    order: PhantomData<fn() -> O>,
}

impl<O, const N: usize> Clone for Distributed<O, N> {
    fn clone(&self) -> Self {
        Self { size: self.size.clone(), ..*self }
    }
}

impl<O, const N: usize> fmt::Debug for Distributed<O, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Distributed").field("records", &self.records).field("load", &self.load).finish_non_exhaustive()
    }
}

impl<O: Layout, const N: usize> Distributed<O, N> {
    pub(super) fn new(records: u64, load: Load, size: Vec<(&'static str, Value)>, seed: u64) -> Result<Self, Error> {
        let distributed = Self {
            records,
            load,
            size,
            seed,
            fetches: false,
            hotspot: None,
            table: RECORD,
            local: None,
            walk: None,
            order: PhantomData,
        };
        // Whether there are enough records, before they are loaded.
        distributed.task(0)?;
        Ok(distributed)
    }

    /// What a client does. Its own plan has one worker: itself.
    fn task(&self, client: usize) -> Result<Task, Error> {
        self.load.shared(self.records, 0, 1)?.task(self.records, 0, spread(self.seed, client))
    }
}

/// The usual name of the table.
fn usual_table() -> &'static str {
    RECORD
}

/// Of a hundred bytes.
pub type SmallRecords = Distributed<Hash, 1>;

impl SmallRecords {
    /// Hotspot transactions, whose rows are fetched before they run.
    pub fn hotspots(records: u64, shape: Hotspot, seed: u64) -> Result<Self, Error> {
        let load = Load { mix: MixName::X, dist: Dist::Zipf, fields: 1, shape: Shape::STANDARD };
        Ok(Self { fetches: true, hotspot: Some(shape), ..Self::new(records, load, Vec::new(), seed)? })
    }
}

impl<O: Layout, const N: usize> Distributed<O, N> {
    /// Returns transactions of so many requests, of which a share in percent are reads and the
    /// others updates, by Zipf's distribution.
    pub fn requests(records: u64, accesses: u8, reads: u8, seed: u64) -> Result<Self, Error> {
        let shape = Shape { accesses, reads, ..Shape::STANDARD };
        let load = Load { mix: MixName::X, dist: Dist::Zipf, fields: N as u8, shape };
        Self::new(records, load, Vec::new(), seed)
    }

    /// Names the table, so that several workloads can be in one database.
    pub fn in_table(self, table: &'static str) -> Self {
        Self { table, ..self }
    }

    /// Sets the percentage of accesses of a client's own node.
    pub fn with_local(self, local: Option<u8>) -> Self {
        Self { local, ..self }
    }

    /// Has clients find each record by a walk through an index of their own node, which has all
    /// records. On a simulated machine, the walk takes the time of its caches.
    pub fn found_by(self, walk: Option<Walk>) -> Self {
        Self { walk, ..self }
    }
}

/// Of a hundred bytes, which can be scanned.
pub type SmallOrderedRecords = Distributed<Ordered, 1>;

/// Of a thousand bytes.
pub type Records = Distributed<Hash, 10>;

/// Of a thousand bytes, which can be scanned.
pub type OrderedRecords = Distributed<Ordered, 10>;

/// What clients have done to records.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Written {
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
pub struct Client {
    task: Task,
    hotspots: Option<Hotspots>,
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

/// What names a size to a process.
trait Named {
    const NAME: &'static str;
}

impl Named for SmallRecords {
    const NAME: &'static str = "ycsb-100";
}

impl Named for SmallOrderedRecords {
    const NAME: &'static str = "ycsb-ordered-100";
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
    type Tables = layout::Records<O, N>;
    type Client = Client;
    type Count = Written;

    fn size(&self) -> Vec<(&'static str, Value)> {
        self.size.clone()
    }

    fn open<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        node: &mut NodeBuilder<F, S>,
    ) -> Result<Self::Tables, Error> {
        Ok(node.table(O::def(self.table, self.records), Partition::by("record", |key| number(*key)))?)
    }

    fn load<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        node: &Node<F, S>,
        place: Place,
    ) -> Result<(), Error> {
        let db = node.local();
        let records = db.table(O::def::<N>(self.table, self.records))?;
        for (key, row) in population(0..self.records).filter(|(key, _)| place.owns(number(*key))) {
            db.transact(|tx| tx.insert(records, key, &row))?;
        }
        Ok(())
    }

    fn client(&self, place: Place, number: usize) -> Result<Client, Error> {
        let clients = place.all_clients() as u64;
        let seed = spread(self.seed, number);
        let hotspots = self.hotspot.map(|shape| shape.client(self.records, place, number, seed)).transpose()?;
        let task = match self.task(number)? {
            Task::Transactions(all) => {
                // The number of a client that there is not.
                let seed = spread(seed, place.all_clients());
                Task::Transactions(all.near(self.local.map(|local| Nearby::new(local, place, seed))))
            }
            core @ Task::Core(_) => core,
        };
        Ok(Client { task, hotspots, number: number as u64, clients, written: Written::default() })
    }

    async fn warm<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        records: Self::Tables,
        place: Place,
        (worker_number, workers): (usize, usize),
    ) -> Result<(), Error> {
        let others = (0..self.records).filter(|number| !place.owns(*number)).map(key);
        look_up(worker, records, others.skip(worker_number).step_by(workers)).await
    }

    async fn run_next<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Runner<'_, '_, F, S>,
        records: Self::Tables,
        client: &mut Client,
    ) -> Result<Done, Error> {
        let fetches = self.fetches || worker.protocol().leases;
        if let Some(hotspots) = &mut client.hotspots {
            let accesses = hotspots.draw().iter().copied();
            client.written.fields += accesses.len() as u64 - 1;
            transact_if(fetches, worker, &Accesses { records, accesses }).await?;
            return Ok(Done { kind: SEVERAL, is_committed: true });
        }
        let operation = match &mut client.task {
            Task::Core(inputs) => inputs.draw(),
            Task::Transactions(transactions) => {
                let transaction = transactions.draw();
                if let Some(walk) = self.walk {
                    let numbers = transaction.accesses().iter().map(|of| of.number);
                    numbers.for_each(|number| walk.charge(worker.endpoint(), number, self.records));
                }
                let accesses = transaction.accesses().iter().map(|of| (of.number, of.writes.then_some(0)));
                transact_if(fetches, worker, &Accesses { records, accesses }).await?;
                client.written.fields += transaction.writes() as u64;
                return Ok(Done { kind: SEVERAL, is_committed: true });
            }
        };
        match operation {
            Operation::Read { number } => {
                let accesses = iter::once((client.number(self.records, number), None));
                transact_if(fetches, worker, &Accesses { records, accesses }).await?;
            }
            Operation::Update { number, field } | Operation::ReadModifyWrite { number, field } => {
                let accesses = iter::once((client.number(self.records, number), Some(field)));
                transact_if(fetches, worker, &Accesses { records, accesses }).await?;
                client.written.fields += 1;
            }
            Operation::Insert { number } => {
                let number = client.number(self.records, number);
                transact_if(fetches, worker, &Insert { records, number }).await?;
                client.written.inserted.push(number);
                if let Task::Core(inputs) = &mut client.task {
                    inputs.inserted();
                }
            }
            Operation::Scan { number, length } => {
                let from = key(client.number(self.records, number));
                black_box(transact_if(fetches, worker, &Scan { records, from, length }).await?);
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
        miscounted(node.local(), &[(self.table, numbers.filter(|number| place.owns(*number)).count() as u64)])
    }
}
