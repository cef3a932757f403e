//! A bank on several machines: accounts are partitioned among them, and each machine moves money
//! between any two accounts.
//!
//! On one machine, two nodes on threads of this process:
//!
//! ```text
//! cargo run --release --features tcp --example machines
//! ```
//!
//! On two machines, run it on each with its own number (`docs/cluster.md`):
//!
//! ```text
//! head -c 32 /dev/urandom > cluster.key    # once, and copied to both
//! machines 0 cluster.key 10.0.0.1:7000 10.0.0.2:7000
//! machines 1 cluster.key 10.0.0.1:7000 10.0.0.2:7000
//! ```
//!
//! With the feature `verbs`, `--device NAME` in front of these arguments uses RDMA NICs.

use std::{
    error::Error,
    net::{SocketAddr, TcpListener},
    thread,
    time::{Duration, Instant},
};

use drtm::{
    Db, DefaultConfig, Pod, TableDef,
    cluster::{Cluster, ClusterError, ClusterTable, Node, Partition},
    htm::Native,
    rdma::{Fabric, NodeId, TcpConfig, TcpFabric},
};

const ACCOUNTS: TableDef<u64, Pod<i64>> = TableDef::hash("accounts");
/// The nodes that have finished their transfers.
const DONE: TableDef<u64, Pod<u8>> = TableDef::hash("done");

/// Accounts of each node, and their initial balance.
const EACH: u64 = 100;
const START: i64 = 1_000;

/// How long to wait for the other machines to start.
const PATIENCE: Duration = Duration::from_secs(60);

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;
type Bank<F> = Cluster<F, DefaultConfig>;

/// Retries until all nodes have joined.
fn when_all_are_there<T>(mut ask: impl FnMut() -> Result<T, drtm::Error>) -> Result<T, drtm::Error> {
    let begun = Instant::now();
    loop {
        match ask() {
            Err(drtm::Error::Cluster(ClusterError::Unreachable { .. })) if begun.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(50));
            }
            outcome => return outcome,
        }
    }
}

/// Joins the cluster, by an RDMA device if one is named, and runs one node.
fn run_node(
    number: u16,
    key: [u8; 32],
    addresses: &[SocketAddr],
    device: Option<&str>,
    transfers: u64,
) -> Outcome<i64> {
    let nodes = addresses.len() as u16;
    let mut config = TcpConfig::new(NodeId(number), addresses[usize::from(number)], key);
    for (other, address) in (0..nodes).zip(addresses).filter(|(other, _)| *other != number) {
        config = config.peer(NodeId(other), *address);
    }
    match device {
        None => work(&TcpFabric::join(Native::chosen()?, config)?, number, nodes, transfers),
        #[cfg(feature = "verbs")]
        Some(device) => {
            let config = drtm::rdma::VerbsConfig::new(config).device(device);
            work(&drtm::rdma::VerbsFabric::join(Native::chosen()?, config)?, number, nodes, transfers)
        }
        #[cfg(not(feature = "verbs"))]
        Some(_) => Err("devices are used by a program that is built with `--features verbs`".into()),
    }
}

/// Opens a node's accounts, moves money between those of all nodes, and waits for the others.
/// Returns the total of all accounts.
fn work<F: Fabric<Engine = Native>>(fabric: &F, number: u16, nodes: u16, transfers: u64) -> Outcome<i64> {
    let me = NodeId(number);
    let memory = Db::builder().memory(64 << 20);
    let mut builder = Node::builder(Native::chosen()?, fabric, me, memory)?.owners((0..nodes).map(NodeId))?;
    // A node's accounts are those whose number begins with the node's.
    let accounts = builder.table(ACCOUNTS, Partition::by("hundreds", |number| number / EACH))?;
    let done = builder.table(DONE, Partition::by("node", |number| *number))?;
    let bank: Bank<F> = Cluster::start(builder.start()?, 1)?;

    let first = u64::from(number) * EACH;
    let opening = bank.transact(async move |tx| {
        for account in first..first + EACH {
            tx.put(accounts, account, &START).await?;
        }
        Ok(())
    });
    opening.wait()?;

    let all = EACH * u64::from(nodes);
    for turn in 0..transfers {
        let (from, to) = (first + turn % EACH, (first + 7 * turn + 13) % all);
        when_all_are_there(|| transfer(&bank, accounts, from, to, 1 + turn as i64 % 5))?;
    }

    bank.transact(async move |tx| tx.put(done, u64::from(number), &1).await).wait()?;
    let sum = loop {
        let are_all_done = when_all_are_there(|| {
            let asked = bank.transact(async move |tx| {
                let done = tx.get_many(done, 0..u64::from(nodes)).await?;
                Ok(done.iter().all(Option::is_some))
            });
            asked.wait()
        });
        if are_all_done? {
            let balances = bank.transact(async move |tx| tx.get_many(accounts, 0..all).await).wait()?;
            break balances.iter().flatten().sum();
        }
        thread::sleep(Duration::from_millis(20));
    };
    // The other nodes are still reading.
    thread::sleep(Duration::from_millis(500));
    bank.close();
    Ok(sum)
}

/// Moves money from an account of this node to any other.
fn transfer<F: Fabric<Engine = Native>>(
    bank: &Bank<F>,
    accounts: ClusterTable<u64, Pod<i64>>,
    from: u64,
    to: u64,
    amount: i64,
) -> Result<(), drtm::Error> {
    let moved = bank.transact(async move |tx| {
        // One round trip reads both.
        tx.prefetch(accounts, [from, to]).await?;
        let Some(()) = tx.update(accounts, to, |balance| *balance += amount).await? else {
            // The other node has not opened its accounts yet.
            return Ok(());
        };
        tx.update(accounts, from, |balance| *balance -= amount).await?;
        Ok(())
    });
    moved.wait()
}

/// Runs nodes on threads of this process. Returns the total that each node found, and the expected
/// total.
pub(crate) fn run(nodes: u16, transfers: u64) -> Outcome<(Vec<i64>, i64)> {
    let listeners = (0..nodes).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<Vec<_>, _>>()?;
    let addresses = listeners.iter().map(TcpListener::local_addr).collect::<Result<Vec<_>, _>>()?;
    drop(listeners);
    // A fixed key, for one run on one machine. Real clusters need a secret one.
    let key = [7; 32];
    let sums = thread::scope(|scope| {
        let addresses = &addresses;
        let start = |number| scope.spawn(move || run_node(number, key, addresses, None, transfers));
        let threads: Vec<_> = (0..nodes).map(start).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a node has panicked")?).collect::<Outcome<_>>()
    })?;
    Ok((sums, i64::from(nodes) * EACH as i64 * START))
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let begun = Instant::now();
    let (device, arguments) = match &arguments[..] {
        [option, device, rest @ ..] if option == "--device" => (Some(device.as_str()), rest),
        all => (None, all),
    };
    match arguments {
        [] => {
            let (sums, expected) = run(2, 2_000)?;
            println!("two nodes moved money 4000 times in {:.1?}; each finds {sums:?} of {expected}", begun.elapsed());
        }
        [number, key, addresses @ ..] if !addresses.is_empty() => {
            let key = std::fs::read(key)?.try_into().map_err(|_| "the key must have 32 bytes")?;
            let addresses = addresses.iter().map(|address| address.parse()).collect::<Result<Vec<SocketAddr>, _>>()?;
            let number: u16 = number.parse()?;
            if usize::from(number) >= addresses.len() {
                return Err("the node's number must be that of one of the addresses, from zero".into());
            }
            let sum = run_node(number, key, &addresses, device, 2_000)?;
            println!("node {number} moved money 2000 times in {:.1?}, and finds {sum} in all", begun.elapsed());
        }
        _ => return Err("usage: machines [[--device NAME] NUMBER KEY-FILE ADDRESS...]".into()),
    }
    Ok(())
}
