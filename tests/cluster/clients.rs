//! Clients that are killed, where owners have no backups: what they had begun at both owners is
//! completed or undone by the records there, and what they had locked is free.

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_membership::Directory;
use drtm_rdma::{Executor, NodeId, Presence, ShmConfig, ShmFabric, block_on};
use drtm_testing::rounds;
use drtm_txn::{
    Error, Options, Transaction as _,
    cluster::{Node, Protocol, Worker},
};

use crate::bed::{Rings, SetAtEnd, Setup, Tables, Tested, WORDS, kept};

type Shm = ShmFabric<NoHtm>;

const OWNERS: u16 = 2;

/// The client that is killed, and one that is not.
const DYING: u16 = OWNERS;
const OTHER: u16 = OWNERS + 1;

/// The system tells of deaths.
const LEASE: Duration = Duration::from_secs(3);

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Tells a process that a test has started which protocol it has, and where its group is.
const CLIENT: &str = "DRTM_TEST_CLIENT";

/// Starts a node of a group of processes. Owners have no backups.
fn start(directory: &Path, node: u16, protocol: Protocol) -> (Node<Shm, Tested>, Tables) {
    let config = ShmConfig::new("clients", NodeId(node)).directory(directory);
    let fabric = ShmFabric::join(NoHtm, config).expect("a group");
    let membership = Arc::new(Directory::open(&directory.join("view")).expect("a directory"));
    kept(&fabric, node, OWNERS, protocol, (Rings::default(), Some((membership, LEASE))))
}

/// Serves as a node until it is to end.
fn serve(node: &Node<Shm, Tested>, ends: &AtomicBool) {
    let endpoint = node.endpoint().expect("room");
    let mut executor = Executor::new(&endpoint);
    node.worker(&endpoint).expect("few").serve(&executor.spawner());
    executor.spawn(endpoint.until(|| ends.load(SeqCst)));
    executor.run();
}

/// Gives a row of each owner one value, another length, and moves a third.
async fn write(worker: &Worker<'_, Shm, Tested>, tables: Tables, value: u8) -> Result<(), Error> {
    let bytes = vec![value; 8 + usize::from(value % 3) * 40];
    let written = worker.transact_with(Options::new().within(PATIENCE), async |tx| {
        for row in [1, 2] {
            // Verbs lock what was read.
            let _ = tx.get(tables.words, row).await?;
            tx.put(tables.words, row, &bytes[..]).await?;
        }
        tx.remove(tables.words, u64::from(value) + 9).await?;
        tx.put(tables.words, u64::from(value) + 10, &bytes[..]).await
    });
    written.await
}

/// The value of both rows, which must be one.
async fn look(worker: &Worker<'_, Shm, Tested>, tables: Tables) -> u8 {
    let seen = worker.transact_with(Options::new().within(PATIENCE), async |tx| {
        let pair = tx.get_many(tables.words, [1, 2]).await?;
        let value = pair[0].as_ref().map_or(0, |one| one[0]);
        Ok((pair, tx.get(tables.words, u64::from(value) + 10).await?))
    });
    let (pair, moved) = seen.await.expect("both owners are here");
    let [Some(one), Some(two)] = &pair[..] else { panic!("{pair:?}") };
    assert_eq!(one, two, "a transaction is whole");
    assert_eq!(moved.as_ref(), Some(one), "a transaction is whole");
    one[0]
}

/// The process of a client, which writes until it is killed.
#[test]
fn a_client_that_is_killed() {
    let Ok(told) = env::var(CLIENT) else { return };
    let (name, directory) = told.split_once('=').expect("a protocol and a directory");
    let protocol = Protocol::with_names().find(|protocol| protocol.name == name).expect("its name");
    let (node, tables) = start(Path::new(directory), DYING, protocol);
    let endpoint = node.endpoint().expect("room");
    let worker = node.worker(&endpoint).expect("few");
    let mut executor = Executor::new(&endpoint);
    worker.serve(&executor.spawner());
    for coroutine in 0..4 {
        let worker = worker.clone();
        executor.spawn(async move {
            for turn in (0..50).cycle() {
                write(&worker, tables, coroutine * 50 + turn).await.expect("room");
                if (coroutine, turn) == (0, 1) {
                    println!("begun");
                }
            }
        });
    }
    executor.run();
}

/// Starts such a process, waits until it writes, and kills it a while later.
fn kill_one(protocol: Protocol, directory: &Path, after: Duration) {
    let mut command = Command::new(env::current_exe().expect("this one"));
    command.args(["--exact", "clients::a_client_that_is_killed", "--nocapture"]);
    command.env(CLIENT, format!("{}={}", protocol.name, directory.to_str().expect("plain"))).stdout(Stdio::piped());
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
    for protocol in Protocol::with_names() {
        let directory = env::temp_dir().join(format!("drtm-clients-{}-{}", std::process::id(), protocol.name));
        let directory = &*directory;
        let owners = [0, 1].map(|node| start(directory, node, protocol).0);
        let (other, tables) = start(directory, OTHER, protocol);
        let done = &AtomicBool::new(false);
        thread::scope(|scope| {
            let _done = SetAtEnd(done);
            for node in owners.iter().chain([&other]) {
                scope.spawn(Setup::inherited(|| serve(node, done)));
            }
            let endpoint = other.endpoint().expect("room");
            let worker = other.worker(&endpoint).expect("few");
            block_on(&endpoint, write(&worker, tables, 1)).expect("room");
            for round in 0..rounds(3) {
                let before = other.view().number();
                kill_one(protocol, directory, Duration::from_micros(1_700 * round + 300));
                block_on(&endpoint, look(&worker, tables));
                block_on(&endpoint, write(&worker, tables, 3)).expect("free");
                assert_eq!(block_on(&endpoint, look(&worker, tables)), 3);
                // An owner's own transactions know nothing of clients, and wait.
                let (db, local) = (owners[0].local(), owners[0].local().table(WORDS).expect("it is there"));
                db.transact(|tx| tx.put(local, 2, &[3; 8][..])).expect("free");
                block_on(&endpoint, write(&worker, tables, 4)).expect("free");
                let is_known = || matches!(endpoint.presence(NodeId(DYING)), Presence::Died(_));
                block_on(&endpoint, endpoint.until(|| is_known() && other.view().number() > before));
            }
        });
        fs::remove_dir_all(directory).expect("it is there");
    }
}
