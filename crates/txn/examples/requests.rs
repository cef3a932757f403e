//! Transactions over three nodes by messages, in one thread on a simulated fabric: for counting the
//! instructions of each kind of request. See `scripts/request-cost`.
//!
//! ```text
//! requests READS WRITES INSERTS COUNT [PROTOCOL [BACKUPS]]
//! ```
//!
//! Each node runs `COUNT` transactions. One of them reads rows of the next node, changes others and
//! inserts new ones, all in one hash table, with values of 40 bytes. The third node is the backup,
//! unless there are to be none. The protocol is `fasst` if none is named.

use std::{
    env,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use drtm_htm::NoHtm;
use drtm_rdma::{Atomicity, NicProfile, NodeId, RunEnd, Sim, SimConfig};
use drtm_txn::{
    Builder, Config, PodRef, Table, TableDef, Transaction as _,
    cluster::{Node, Partition, Protocol, Worker},
};

type Failure = Box<dyn std::error::Error>;
type Fabric = drtm_rdma::SimFabric<NoHtm>;
type Value = [u8; 40];

const NODES: u16 = 3;

/// Rows of each node at first.
const ROWS: u64 = 1_000;

const OF_ROWS: TableDef<u64, PodRef<Value>> = TableDef::hash("rows");

#[derive(Debug)]
struct Plain;

impl Config for Plain {
    type Engine = NoHtm;
}

/// Returns the key of a node's row.
fn row(number: u64, node: u64) -> u64 {
    u64::from(NODES) * number + node
}

/// How many rows of each kind a transaction has.
#[derive(Clone, Copy)]
struct Rows {
    reads: u64,
    writes: u64,
    inserts: u64,
}

impl Rows {
    async fn run(
        self,
        worker: &Worker<'_, Fabric, Plain>,
        rows: Table<u64, PodRef<Value>>,
        (other, turn): (u64, u64),
    ) -> Result<(), drtm_txn::Error> {
        let first = turn.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let keys = (0..self.reads + self.writes).map(|place| row((first + 61 * place) % ROWS, other));
        let new = (0..self.inserts).map(|place| row(ROWS + turn * self.inserts + place, other));
        let changed = worker.transact(async |tx| {
            let read = tx.get_many(rows, keys.clone()).await?;
            for (key, value) in keys.clone().zip(read).skip(self.reads as usize) {
                let mut value = value.unwrap_or([0; 40]);
                value[0] = value[0].wrapping_add(1);
                tx.put(rows, key, &value).await?;
            }
            for key in new.clone() {
                tx.insert(rows, key, &[1; 40]).await?;
            }
            Ok(())
        });
        changed.await
    }
}

fn run(arguments: &[String]) -> Result<(), Failure> {
    let (numbers, others) = arguments.split_at(arguments.len().min(4));
    let protocol = others.first().map_or(Some(Protocol::FASST), |name| Protocol::named(name));
    let backups: usize = others.get(1).map_or(Ok(1), |backups| backups.parse())?;
    let ([reads, writes, inserts, count], Some(protocol)) = (numbers, protocol) else {
        return Err(
            "usage: requests READS WRITES INSERTS COUNT [PROTOCOL [BACKUPS]], such as `9 0 0 100 drtm+h`".into()
        );
    };
    let shape = Rows { reads: reads.parse()?, writes: writes.parse()?, inserts: inserts.parse()? };
    let count: u64 = count.parse()?;
    let sim = Sim::<NoHtm>::new(NODES, SimConfig::new(&NicProfile::CONNECTX_4).atomicity(Atomicity::Global));
    let ended = Arc::new(AtomicUsize::new(0));
    for number in 0..NODES {
        let builder = Builder::new().memory(256 << 20);
        let builder = Node::<_, Plain>::builder_for(NoHtm, sim.fabric(), NodeId(number), builder, protocol)?;
        let mut builder = builder.owners((0..NODES).map(NodeId))?.backups(backups)?.loads_alone();
        let rows = builder.table(OF_ROWS, Partition::by("node", |key| *key))?;
        let node = builder.start()?;
        let (db, own, other) = (node.local(), u64::from(number), u64::from((number + 1) % NODES));
        let local = db.table(OF_ROWS)?;
        (0..ROWS).try_for_each(|number| db.transact(|tx| tx.insert(local, row(number, own), &[0; 40])))?;
        let ended = Arc::clone(&ended);
        sim.spawn(NodeId(number), move |spawner| {
            let worker = node.worker(spawner.endpoint()).expect("few workers");
            worker.serve(&spawner);
            let transactions = async move {
                for turn in 0..count {
                    shape.run(&worker, rows, (other, turn)).await.expect("no other writes these rows");
                }
                ended.fetch_add(1, SeqCst);
                worker.endpoint().until(|| ended.load(SeqCst) == usize::from(NODES)).await;
            };
            spawner.spawn(transactions).expect("few coroutines");
        })?;
    }
    match sim.run() {
        RunEnd::Done => Ok(()),
        end => Err(format!("the simulation has ended early: {end:?}").into()),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("requests: {error}");
            ExitCode::FAILURE
        }
    }
}
