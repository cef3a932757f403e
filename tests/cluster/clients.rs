//! Clients that die: the one owner of a cluster frees what they had locked, and what they had sent
//! before happens as a whole or not at all.

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_kv::Holder;
use drtm_rdma::{
    Executor, Fabric, LocalConfig, LocalFabric, NodeId, Phase, ShmConfig, ShmFabric, block_on,
    rpc::{Encode as _, Procedure, Rpc},
};
use drtm_testing::rounds;
use drtm_txn::{
    Builder, Error, Mutation, Raw, Table, TableDef, Transaction as _,
    cluster::{ClusterError, Node, Partition, Protocol, Refusal, Worker},
};

use crate::{
    bed::{Bed, Rings, Setup, Size, Tested},
    drops::polled,
    history::{SIZES, logged_anomalies},
    hostile::Noise,
};

const PAIRS: TableDef<u64, Raw> = TableDef::hash("pairs");

type Pairs = Table<u64, Raw>;

/// What each protocol does one-sidedly differs, and so does what a client leaves behind.
const PROTOCOLS: [Protocol; 5] =
    [Protocol::FASST, Protocol::FARM, Protocol::DRTM_OCC, Protocol::DRTM_H, Protocol::DRTM];

/// A node of a cluster in which the first one owns all rows.
fn start<F: Fabric<Engine = NoHtm>>(fabric: &F, node: u16, protocol: Protocol) -> (Node<F, Tested>, Pairs) {
    let builder = Builder::new().memory(16 << 20);
    let builder = Node::<F, Tested>::builder_for(NoHtm, fabric, NodeId(node), builder, protocol);
    let mut builder = builder.and_then(|builder| builder.owners([NodeId(0)])).expect("one").frees_dead_clients();
    let pairs = builder.table(PAIRS, Partition::hash()).expect("memory");
    (builder.start().expect("an owner"), pairs)
}

/// Serves as a node until it is to end.
fn serve<F: Fabric<Engine = NoHtm>>(node: &Node<F, Tested>, ends: &AtomicBool) {
    let endpoint = node.endpoint().expect("room");
    let mut executor = Executor::new(&endpoint);
    node.worker(&endpoint).expect("few").serve(&executor.spawner());
    executor.spawn(endpoint.until(|| ends.load(SeqCst)));
    executor.run();
}

/// Gives two rows one value, another length, and moves a third.
async fn write<F: Fabric<Engine = NoHtm>>(
    worker: &Worker<'_, F, Tested>,
    pairs: Pairs,
    value: u8,
) -> Result<(), Error> {
    let bytes = vec![value; 8 + usize::from(value % 3) * 40];
    let written = worker.transact(async |tx| {
        for row in [1, 2] {
            tx.put(pairs, row, &bytes[..]).await?;
        }
        tx.remove(pairs, u64::from(value) + 9).await?;
        tx.put(pairs, u64::from(value) + 10, &bytes[..]).await
    });
    written.await
}

/// The value of both rows, which must be one.
async fn look<F: Fabric<Engine = NoHtm>>(worker: &Worker<'_, F, Tested>, pairs: Pairs) -> u8 {
    let seen = worker.transact(async |tx| tx.get_many(pairs, [1, 2]).await).await.expect("the owner is here");
    let [Some(one), Some(two)] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(one, two, "a transaction is whole");
    let value = one[0];
    let moved = worker.transact(async |tx| tx.get(pairs, u64::from(value) + 10).await).await;
    assert_eq!(moved.expect("the owner is here").as_ref(), Some(one));
    value
}

/// Lets a client die after this many polls of its transaction. Checks that other clients, or the
/// owner itself, can use what it has left. Returns whether the transaction had ended.
fn after_death(protocol: Protocol, polls: u32, by_owner: bool) -> bool {
    let fabric = LocalFabric::<NoHtm>::new(3, LocalConfig::perfect());
    let [(owner, pairs), (dying, _), (other, _)] = [0, 1, 2].map(|node| start(&fabric, node, protocol));
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(Setup::inherited(|| serve(&owner, done)));
        let has_ended = {
            let endpoint = dying.endpoint().expect("room");
            let worker = dying.worker(&endpoint).expect("few");
            block_on(&endpoint, write(&worker, pairs, 1)).expect("room");
            block_on(&endpoint, polled(write(&worker, pairs, 2), polls)).is_some()
        };
        fabric.kill(NodeId(1)).expect("it is here");
        if by_owner {
            // It does not know what a client is, and waits.
            let (db, local) = (owner.local(), owner.local().table(PAIRS).expect("it is there"));
            let seen = db.transact(|tx| Ok((tx.get(local, 1)?, tx.get(local, 2)?))).expect("free");
            assert_eq!(seen.0, seen.1);
            db.transact(|tx| {
                tx.put(local, 1, &[9; 8][..])?;
                tx.put(local, 2, &[9; 8][..])
            })
            .expect("free");
        }
        let endpoint = other.endpoint().expect("room");
        let worker = other.worker(&endpoint).expect("few");
        if !by_owner {
            let seen = block_on(&endpoint, look(&worker, pairs));
            assert!(seen == 2 || (seen == 1 && !has_ended), "{seen}");
        }
        block_on(&endpoint, write(&worker, pairs, 3)).expect("free");
        assert_eq!(block_on(&endpoint, look(&worker, pairs)), 3);
        done.store(true, SeqCst);
        has_ended
    })
}

#[test]
fn what_a_dead_client_had_locked_is_free_for_others() {
    for protocol in PROTOCOLS {
        assert!((1..200).any(|polls| after_death(protocol, polls, false)), "{}: it never ends", protocol.name);
    }
}

#[test]
fn what_a_dead_client_had_locked_is_free_for_the_owners_own_transactions() {
    for protocol in [Protocol::FASST, Protocol::DRTM_H] {
        assert!((1..200).any(|polls| after_death(protocol, polls, true)), "{}: it never ends", protocol.name);
    }
}

#[test]
fn histories_where_commits_are_carried_out_whole() {
    let rings = Rings { frees_dead: true, ..Rings::default() };
    for protocol in PROTOCOLS {
        for seed in 0..rounds(3) {
            let bed = [Bed::harsh_and_atomic(seed), Bed::rough(seed), Bed::Shm][seed as usize % 3].clone();
            let size = Size { protocol, ..SIZES[1] };
            let anomalies = logged_anomalies(&bed, size, ([2, 6, 40][seed as usize % 3], 25), seed, rings);
            let told: Vec<String> = anomalies.iter().map(ToString::to_string).collect();
            assert!(told.is_empty(), "seed {seed}, {size:?}:\n{}", told.join("\n"));
        }
    }
}

#[test]
fn a_transaction_that_fits_no_message_is_refused() {
    let fabric = LocalFabric::<NoHtm>::new(2, LocalConfig::perfect());
    let [(owner, pairs), (client, _)] = [0, 1].map(|node| start(&fabric, node, Protocol::FASST));
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(Setup::inherited(|| serve(&owner, done)));
        let endpoint = client.endpoint().expect("room");
        let worker = client.worker(&endpoint).expect("few");
        let most = endpoint.capabilities().max_message_bytes;
        let large = worker.transact(async |tx| {
            for row in 0..most as u64 / 64 {
                tx.put(pairs, row, vec![1; 64]).await?;
            }
            Ok(())
        });
        let refused = block_on(&endpoint, large);
        assert!(matches!(refused, Err(Error::Cluster(ClusterError::TooLargeForOne { .. }))), "{refused:?}");
        let seen = block_on(&endpoint, worker.transact(async |tx| tx.get(pairs, 0).await));
        assert_eq!(seen.expect("the owner is here"), None, "nothing of it has happened");
        done.store(true, SeqCst);
    });
}

/// The lock of a row, as it travels.
enum Lock {}

impl Procedure for Lock {
    const NUMBER: u16 = 4;
    type Request<'a> = Noise;
    type Reply<'a> = Noise;
}

/// Whether an owner, asked so often, refuses to lock a row in the name of a client that has died.
fn refuses_late_locks(tries: u32) -> bool {
    let fabric = LocalFabric::<NoHtm>::new(3, LocalConfig::perfect());
    let [(owner, pairs), (dying, _), (other, _)] = [0, 1, 2].map(|node| start(&fabric, node, Protocol::FASST));
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(Setup::inherited(|| serve(&owner, done)));
        {
            let endpoint = dying.endpoint().expect("room");
            let worker = dying.worker(&endpoint).expect("few");
            block_on(&endpoint, write(&worker, pairs, 1)).expect("room");
        }
        fabric.kill(NodeId(1)).expect("it is here");
        let endpoint = other.endpoint().expect("room");
        // The owner's incarnation, and the view.
        let owner_is = endpoint.presence(NodeId(0)).here().expect("it is here");
        let rpc = Rpc::new(endpoint.during(Phase::Lock)).tagged(u64::from(owner_is.0) << 32 | 1);
        let holder = Holder::new(1, 1, 0, 0);
        let mut bytes = Vec::new();
        (1_u16, (0_u8, 1_u64), 0_u64, (0_u64, holder.to_word(), false)).encode(&mut bytes);
        let refused = (0..tries).any(|_| {
            thread::sleep(Duration::from_millis(10));
            let said = block_on(&endpoint, rpc.call::<Lock>(NodeId(0), &Noise(bytes.clone()), None));
            let said = said.expect("an answer").get().err().and_then(|error| error.refused());
            said == Some(Refusal::Revoked as u32)
        });
        done.store(true, SeqCst);
        refused
    })
}

#[test]
fn what_a_dead_client_had_sent_is_refused_when_it_arrives() {
    assert!(refuses_late_locks(1_000));
}

#[test]
fn access_that_is_not_revoked_is_found() {
    assert!(!Setup::faulty(Mutation::AccessNotRevoked).run(|| refuses_late_locks(20)));
}

/// Tells a process that a test has started which protocol it has, and where its group is.
const CLIENT: &str = "DRTM_TEST_CLIENT";

/// Joins a group of processes.
fn join(directory: &str, node: u16) -> ShmFabric<NoHtm> {
    ShmFabric::join(NoHtm, ShmConfig::new("clients", NodeId(node)).directory(Path::new(directory))).expect("a group")
}

/// The process of a client, which writes until it is killed.
#[test]
fn a_client_that_is_killed() {
    let Ok(told) = env::var(CLIENT) else { return };
    let (name, directory) = told.split_once('=').expect("a protocol and a directory");
    let protocol = PROTOCOLS.into_iter().find(|protocol| protocol.name == name).expect("its name");
    let (node, pairs) = start(&join(directory, 1), 1, protocol);
    let endpoint = node.endpoint().expect("room");
    let worker = node.worker(&endpoint).expect("few");
    let mut executor = Executor::new(&endpoint);
    worker.serve(&executor.spawner());
    for coroutine in 0..4 {
        let worker = worker.clone();
        executor.spawn(async move {
            for turn in (0..50).cycle() {
                write(&worker, pairs, coroutine * 50 + turn).await.expect("room");
            }
        });
    }
    println!("begun");
    executor.run();
}

/// Starts such a process, waits until it writes, and kills it a while later.
fn kill_one(protocol: Protocol, directory: &str, after: Duration) {
    let mut command = Command::new(env::current_exe().expect("this one"));
    command.args(["--exact", "clients::a_client_that_is_killed", "--nocapture"]);
    command.env(CLIENT, format!("{}={directory}", protocol.name)).stdout(Stdio::piped());
    let mut client = command.spawn().expect("a process");
    let lines = BufReader::new(client.stdout.take().expect("piped")).lines();
    let has_begun = lines.map_while(Result::ok).any(|line| line.contains("begun"));
    thread::sleep(after);
    client.kill().expect("it runs");
    client.wait().expect("it was killed");
    assert!(has_begun, "it ended by itself");
}

#[test]
fn clients_that_are_killed_leave_whole_transactions_and_no_locks() {
    for protocol in PROTOCOLS {
        let directory = env::temp_dir().join(format!("drtm-clients-{}-{}", std::process::id(), protocol.name));
        let group = directory.to_str().expect("plain");
        let [(owner, pairs), (other, _)] = [0, 2].map(|node| start(&join(group, node), node, protocol));
        let done = &AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(Setup::inherited(|| serve(&owner, done)));
            let endpoint = other.endpoint().expect("room");
            let worker = other.worker(&endpoint).expect("few");
            block_on(&endpoint, write(&worker, pairs, 1)).expect("room");
            for round in 0..rounds(3) {
                kill_one(protocol, group, Duration::from_micros(1_700 * round + 300));
                block_on(&endpoint, look(&worker, pairs));
                block_on(&endpoint, write(&worker, pairs, 3)).expect("free");
                assert_eq!(block_on(&endpoint, look(&worker, pairs)), 3);
                let (db, local) = (owner.local(), owner.local().table(PAIRS).expect("it is there"));
                db.transact(|tx| tx.put(local, 1, &[3; 8][..]).and(tx.put(local, 2, &[3; 8][..]))).expect("free");
                block_on(&endpoint, write(&worker, pairs, 4)).expect("free");
            }
            done.store(true, SeqCst);
        });
        fs::remove_dir_all(&directory).expect("it is there");
    }
}
