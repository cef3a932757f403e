//! A bank on several machines: accounts are partitioned among them, and each machine moves money
//! between any two accounts.
//!
//! On one machine, three nodes on threads of this process:
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

use std::{error, net::TcpListener, thread, time::Duration};

use drtm::{
    Error, Pod, Table, TableDef, Transaction,
    cluster::{Cluster, ClusterBuilder, OnTcp, Partition},
};

const ACCOUNTS: TableDef<u64, Pod<i64>> = TableDef::hash("accounts");
/// How far each node is, as it has told each: it has opened its accounts, moved all its money, or
/// seen the total.
const STEPS: TableDef<u64, Pod<u8>> = TableDef::hash("steps");
/// Steps that each node is told, at most.
const TOLD: u64 = 1 << 16;
/// Accounts of each node.
const EACH: u64 = 100;

type Outcome<T> = Result<T, Box<dyn error::Error + Send + Sync>>;

/// Moves money between any two accounts.
async fn pay(tx: &mut impl Transaction, accounts: Table<u64, Pod<i64>>, parties: [u64; 2]) -> Result<(), Error> {
    // One round trip reads both.
    tx.prefetch(accounts, parties).await?;
    tx.update(accounts, parties[0], |balance| *balance -= 1).await?;
    tx.update(accounts, parties[1], |balance| *balance += 1).await.map(drop)
}

/// Runs one node: opens its accounts, moves money, and returns the total of all accounts.
fn run_node(mut builder: ClusterBuilder<OnTcp>, me: u64, nodes: u64, payments: u64) -> Outcome<i64> {
    // A node's accounts are those whose number begins with the node's.
    let accounts = builder.table(ACCOUNTS, Partition::by("hundreds", |number| number / EACH));
    // Those that it is told are its own rows, so that it can read them when the others have ended.
    let steps = builder.table(STEPS, Partition::by("told", |step| step / TOLD));
    let (bank, first, all) = (builder.start()?, me * EACH, nodes * EACH);
    bank.wait_for_nodes(Duration::from_secs(60))?;
    // Tells all how far this node is, and waits until they are as far.
    let step = |step: u8| {
        let tell = bank.transact(async move |tx| {
            for told in 0..nodes {
                tx.put(steps, told * TOLD + me, &step).await?;
            }
            Ok(())
        });
        tell.wait()?;
        let all_steps = || bank.transact(async move |tx| tx.get_many(steps, me * TOLD..me * TOLD + nodes).await).wait();
        while all_steps()?.iter().any(|is| *is < Some(step)) {
            thread::sleep(Duration::from_millis(10));
        }
        Ok::<_, Error>(())
    };
    bank.transact(async move |tx| tx.insert_many(accounts, (first..first + EACH).map(|own| (own, &1_000))).await)
        .wait()?;
    step(1)?;
    for payment in 0..payments {
        let parties = [first + payment % EACH, (first + 7 * payment + 13) % all];
        bank.transact(async move |tx| pay(tx, accounts, parties).await).wait()?;
    }
    step(2)?;
    let balances = bank.transact(async move |tx| tx.get_many(accounts, 0..all).await).wait()?;
    // None leaves before all have read.
    step(3)?;
    Ok(balances.iter().flatten().sum())
}

/// Runs nodes on threads of this process. Returns the total that each finds, and the expected one.
pub(crate) fn run(nodes: u16, payments: u64) -> Outcome<(Vec<i64>, i64)> {
    let free = (0..nodes).map(|_| TcpListener::bind("127.0.0.1:0")?.local_addr()).collect::<Result<Vec<_>, _>>()?;
    let sums = thread::scope(|scope| {
        // A fixed key, for one run on one machine. Real clusters need a secret one. The cluster is
        // new, and the first node makes it.
        let builder = |me| Cluster::builder().addresses(me, &free).key([7; 32]).bootstrap();
        let node = |(me, builder)| scope.spawn(move || run_node(builder, me, nodes.into(), payments));
        let threads: Vec<_> = (0..).zip((0..nodes).map(builder)).map(node).collect();
        threads.into_iter().map(|node| node.join().map_err(|_| "a node has panicked")?).collect::<Outcome<_>>()
    })?;
    Ok((sums, i64::from(nodes) * EACH as i64 * 1_000))
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [number, key, addresses @ ..] = &arguments[..] {
        let builder = Cluster::builder().addresses(number.parse()?, addresses).key_file(key).bootstrap();
        let sum = run_node(builder, number.parse()?, addresses.len() as u64, 2_000)?;
        println!("node {number} moved money 2000 times, and finds {sum} in all");
    } else {
        println!("the nodes have found {:?}", run(3, 2_000)?);
    }
    Ok(())
}
