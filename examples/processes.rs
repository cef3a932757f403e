//! Three processes and one table. Two peers change rows of an owner's memory by one-sided verbs,
//! which its processors do not notice, and insert rows by messages.
//!
//! ```text
//! cargo run --release --features cluster --example processes
//! ```
//!
//! The program starts itself twice more. At the end, the owner checks that every update and every
//! insertion is in its table.

use std::{
    error::Error,
    path::Path,
    process::{Child, Command, ExitCode},
};

use drtm::{
    Db, Pod, Table, TableDef, Transaction as _,
    cluster::{Node, Partition, Protocol, Worker},
    htm::Native,
    rdma::{Executor, NodeId, ShmConfig, ShmFabric, block_on},
};

const OWNER: NodeId = NodeId(0);
const PEERS: [NodeId; 2] = [NodeId(1), NodeId(2)];
const ROWS: TableDef<u64, Pod<u64>> = TableDef::hash("rows");

/// Counters that all peers increment, and the number of increments of each peer.
const COUNTERS: u64 = 100;
const ADDITIONS: u64 = 20_000;
/// Rows that each peer inserts.
const INSERTIONS: u64 = 1_000;

type Rows = Table<u64, Pod<u64>>;
type Group = ShmFabric<Native>;

/// Starts a node of the group. The first node owns all rows.
fn start(fabric: &Group, node: NodeId) -> Result<(Node<Group>, Rows), Box<dyn Error>> {
    // Every phase of a transaction that can be one-sided is: lookup, lock, validation and write.
    let memory = Db::builder().memory(64 << 20);
    let builder = Node::builder_for(Native::chosen()?, fabric, node, memory, Protocol::DRTM_OCC)?;
    let mut builder = builder.owners([OWNER])?;
    let rows = builder.table(ROWS, Partition::by("all", |_| 0))?;
    Ok((builder.start()?, rows))
}

fn join(directory: &Path, node: NodeId) -> Result<Group, Box<dyn Error>> {
    Ok(ShmFabric::join(Native::chosen()?, ShmConfig::new("example", node).directory(directory))?)
}

fn own(directory: &Path) -> Result<(), Box<dyn Error>> {
    let (node, _) = start(&join(directory, OWNER)?, OWNER)?;
    let rows = node.local().table(ROWS)?;
    node.local().transact(|tx| (0..COUNTERS).try_for_each(|counter| tx.insert(rows, counter, &0)))?;
    let endpoint = node.endpoint()?;
    let worker = node.worker(&endpoint)?;
    let peers = PEERS.iter().map(|peer| run_peer(directory, *peer)).collect::<Result<Vec<Child>, _>>()?;

    let mut executor = Executor::new(&endpoint);
    worker.serve(&executor.spawner());
    // The owner only serves messages until both peers have left.
    executor.spawn(async {
        let mut left = PEERS.len();
        while left > 0 {
            let event = endpoint.next_event().await;
            println!("owner: {} is {:?}", event.node, event.presence);
            left -= usize::from(event.presence.here().is_none());
        }
    });
    executor.run();
    for mut peer in peers {
        let status = peer.wait()?;
        if !status.success() {
            return Err(format!("a peer has failed: {status}").into());
        }
    }

    let (total, count) = node.local().transact(|tx| {
        let counters = (0..COUNTERS).map(|counter| tx.get(rows, counter));
        let total = counters.sum::<Result<Option<u64>, _>>()?;
        Ok((total, tx.len(rows)?))
    })?;
    println!("owner: {total:?} additions, {count} rows, and {} naps", endpoint.naps());
    let peers = PEERS.len() as u64;
    if total != Some(peers * ADDITIONS) || count != COUNTERS + peers * INSERTIONS {
        return Err("something of what the peers did is missing".into());
    }
    Ok(())
}

/// Starts this program again as a peer.
fn run_peer(directory: &Path, peer: NodeId) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?).arg(directory).arg(peer.0.to_string()).spawn()
}

fn be_a_peer(directory: &Path, number: NodeId) -> Result<(), Box<dyn Error>> {
    let (node, rows) = start(&join(directory, number)?, number)?;
    let endpoint = node.endpoint()?;
    let worker = node.worker(&endpoint)?;
    let begun = endpoint.now();
    // It owns no rows, so it need not serve.
    block_on(&endpoint, work(&worker, rows))?;
    let (conflicts, spent) = (worker.stats().retries(), worker.stats().counters.total());
    println!(
        "{number}: {ADDITIONS} additions and {INSERTIONS} insertions in {:?}, with {conflicts} conflicts: {} one-sided \
         operations, {} calls",
        endpoint.now().since(begun),
        spent.operations(),
        spent.calls,
    );
    Ok(())
}

/// Increments counters and inserts rows.
async fn work(worker: &Worker<'_, Group>, rows: Rows) -> Result<(), drtm::Error> {
    let node = u64::from(worker.id().0);
    let mut rng = fastrand::Rng::with_seed(node);
    for addition in 0..ADDITIONS {
        let counter = rng.u64(0..COUNTERS);
        // A conflict with the other peer aborts the transaction, which runs again.
        worker.transact(async |tx| tx.update(rows, counter, |value| *value += 1).await).await?;
        if addition.is_multiple_of(ADDITIONS / INSERTIONS) {
            worker.transact(async |tx| tx.insert(rows, node << 32 | addition, &addition).await).await?;
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.as_slice() {
        [directory, node] => match node.parse() {
            Ok(node) => be_a_peer(Path::new(directory), NodeId(node)),
            Err(error) => Err(error.into()),
        },
        _ => {
            let directory = std::env::temp_dir().join(format!("drtm-processes-{}", std::process::id()));
            let outcome = own(&directory);
            // The directory is not needed any more.
            let _ = std::fs::remove_dir_all(&directory);
            outcome
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
