//! Fetched sets over emulated transactional memory: a node's rows are locked and validated in htm
//! transactions, which verbs of other nodes abort.
#![cfg(not(feature = "model"))]

use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    thread,
    time::Duration,
};

use drtm_htm::Emulated;
use drtm_rdma::{Executor, LocalConfig, LocalFabric, NodeId};
use drtm_txn::{
    Builder, Config, Pod, Table, TableDef, Transaction as _,
    cluster::{Node, Partition, Protocol, Timing},
};

#[derive(Debug)]
struct Tested;

impl Config for Tested {
    type Engine = Emulated;
    const HTM_FROM: usize = 1;
}

const ACCOUNTS: TableDef<u64, Pod<i64>> = TableDef::hash("accounts");

/// The first half are rows of node 0, to which account 0 belongs.
const OPENED: u64 = 4;
const START: i64 = 1_000;

type Fabric = LocalFabric<Emulated>;

fn start(fabric: &Fabric, engine: &Emulated, node: u16) -> (Node<Fabric, Tested>, Table<u64, Pod<i64>>) {
    let timing = Timing { most: Duration::from_secs(10), ..Timing::default() };
    let builder = Builder::new().memory(16 << 20);
    let mut builder = Node::<_, Tested>::builder_for(engine.clone(), fabric, NodeId(node), builder, Protocol::DRTM)
        .and_then(|builder| builder.timing(timing).owners([NodeId(0), NodeId(1)]))
        .expect("the node is here");
    let accounts = builder.table(ACCOUNTS, Partition::by("number", |number| *number)).expect("memory");
    (builder.start().expect("owners"), accounts)
}

#[test]
fn rows_of_a_node_are_locked_and_looked_at_again_in_htm_transactions() {
    const CLIENTS: u64 = 3;
    const ROUNDS: u64 = 40;
    const MOST: u64 = 4_000;
    let engine = Emulated::default();
    let fabric = Fabric::new(2, LocalConfig::perfect());
    let nodes = [0, 1].map(|node| start(&fabric, &engine, node));
    let (opened, left) = (&AtomicUsize::new(0), &AtomicUsize::new(2 * CLIENTS as usize));
    thread::scope(|scope| {
        for (node, accounts) in &nodes {
            scope.spawn(move || {
                let endpoint = node.endpoint().expect("room for an endpoint");
                let worker = node.worker(&endpoint).expect("few workers");
                let mut executor = Executor::new(&endpoint).patience(Duration::from_secs(60));
                worker.serve(&executor.spawner());
                for client in 0..CLIENTS {
                    let (worker, accounts, id) = (worker.clone(), *accounts, u64::from(node.id().0));
                    executor.spawn(async move {
                        if id == 0 && client == 0 {
                            let all = worker.transact_on(
                                |_| Ok(()),
                                async |rows| {
                                    for account in 0..OPENED {
                                        rows.put(accounts, account, &START).await?;
                                    }
                                    Ok(())
                                },
                            );
                            all.await.expect("room");
                            opened.store(1, SeqCst);
                        }
                        worker.endpoint().until(|| opened.load(SeqCst) == 1).await;
                        // On a busy machine verbs of the other node abort most htm transactions.
                        let enough = |round| round >= ROUNDS && node.local().htm_stats().commits > 0;
                        for round in (0..MOST).take_while(|round| !enough(*round)) {
                            let (from, to) = ((round + client + id) % OPENED, (round * 3 + id + 1) % OPENED);
                            let seen = worker.transact_on(
                                |sets| {
                                    sets.write(accounts, from)?;
                                    sets.write(accounts, to)?;
                                    (0..OPENED).try_for_each(|account| sets.read(accounts, account))
                                },
                                async |rows| {
                                    rows.update(accounts, from, |balance| *balance -= 5).await?;
                                    rows.update(accounts, to, |balance| *balance += 5).await?;
                                    let mut sum = 0;
                                    for account in 0..OPENED {
                                        sum += rows.get(accounts, account).await?.expect("it was opened");
                                    }
                                    Ok(sum)
                                },
                            );
                            assert_eq!(seen.await.expect("both are here"), START * OPENED as i64);
                        }
                        left.fetch_sub(1, SeqCst);
                    });
                }
                executor.spawn(endpoint.until(|| left.load(SeqCst) == 0));
                executor.run();
            });
        }
    });
    let commits = nodes.map(|(node, _)| node.local().htm_stats().commits);
    assert!(commits.iter().all(|commits| *commits > 0), "no htm transaction has committed: {commits:?}");
}
