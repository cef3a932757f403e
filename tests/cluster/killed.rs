//! Processes of owners are killed under load: the others go on by themselves, no money is lost, and
//! nothing that was acknowledged.

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread,
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_membership::Directory;
use drtm_rdma::{Executor, NodeId, ShmConfig, ShmFabric, block_on};
use drtm_testing::rounds;
use drtm_txn::{
    Error, Options, Transaction as _,
    cluster::{Node, Protocol, Worker},
};
use fastrand::Rng;

use crate::bed::{Rings, Setup, Tables, Tested, kept};

type Shm = ShmFabric<NoHtm>;

const OWNERS: u16 = 3;
const ACCOUNTS: u64 = 40;
const BALANCE: u64 = 1_000;

/// How long a process may be silent.
const LEASE: Duration = Duration::from_secs(10);

/// A row that counts what the client was told of.
const MARK: u64 = ACCOUNTS;

/// Tells a process that a test has started what it is: a protocol, a node, and where its group is.
const OWNER: &str = "DRTM_TEST_OWNER";

fn start(directory: &str, node: u16, protocol: Protocol) -> (Node<Shm, Tested>, Tables) {
    let config = ShmConfig::new("killed", NodeId(node)).directory(Path::new(directory));
    let fabric = Shm::join(NoHtm, config).expect("a group");
    let membership = Directory::open(&Path::new(directory).join("view")).expect("a directory");
    let rings = Rings { backups: 1, bytes: 1 << 16, ..Rings::default() };
    kept(&fabric, node, OWNERS, protocol, (rings, Some((Arc::new(membership), LEASE))))
}

fn balance(row: &Option<Vec<u8>>) -> u64 {
    let bytes = row.as_deref().expect("it is filled");
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

/// Moves money between two accounts, and counts that in the row of a mark.
async fn transfer(
    worker: &Worker<'_, Shm, Tested>,
    tables: Tables,
    random: &mut Rng,
    mark: Option<u64>,
) -> Result<(), Error> {
    let (from, to) = (random.u64(0..ACCOUNTS), random.u64(0..ACCOUNTS));
    // Long enough for a change of the view on a machine that does much else.
    let soon = Options::new().within(Duration::from_secs(20));
    worker
        .transact_with(soon, async |tx| {
            for (account, by) in [(from, u64::MAX), (to, 1)] {
                let before = balance(&tx.get(tables.words, account).await?);
                tx.put(tables.words, account, &before.wrapping_add(by).to_le_bytes()[..]).await?;
            }
            match mark {
                Some(count) => tx.put(tables.words, MARK, &count.to_le_bytes()[..]).await,
                None => Ok(()),
            }
        })
        .await
}

/// When nodes end.
#[derive(Debug, Default)]
struct Ends {
    /// Money moves no more.
    is_done: AtomicBool,
    /// Coroutines of this process that still move it.
    moving: AtomicUsize,
    /// Nodes serve no more.
    is_over: AtomicBool,
}

/// Ends nodes, also when a test fails.
struct Over<'a>(&'a Ends);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.is_done.store(true, SeqCst);
        self.0.is_over.store(true, SeqCst);
    }
}

/// Runs a node: it serves, and moves money by coroutines once the accounts are filled. A client's
/// is `counted`: how often it was told that it has.
fn run(node: &Node<Shm, Tested>, tables: Tables, coroutines: u64, ends: &Ends, counted: Option<&AtomicU64>) {
    let endpoint = node.endpoint().expect("room");
    let worker = node.worker(&endpoint).expect("few");
    let mut executor = Executor::new(&endpoint);
    worker.serve(&executor.spawner());
    for coroutine in 0..coroutines {
        let (worker, endpoint) = (worker.clone(), &endpoint);
        executor.spawn(async move {
            let mut random = Rng::with_seed(coroutine << 16 | u64::from(worker.id().0));
            while worker.transact(async |tx| tx.get(tables.words, MARK).await).await.is_ok_and(|row| row.is_none()) {
                endpoint.sleep(Duration::from_millis(1)).await;
            }
            ends.moving.fetch_add(1, SeqCst);
            for count in 1.. {
                if ends.is_done.load(Relaxed) {
                    break;
                }
                let moved = transfer(&worker, tables, &mut random, counted.map(|_| count)).await;
                moved.unwrap_or_else(|error| panic!("{}, in {}: {error:?}", worker.id(), node.view()));
                if let Some(counted) = counted {
                    counted.store(count, SeqCst);
                }
            }
            ends.moving.fetch_sub(1, SeqCst);
        });
    }
    executor.spawn(async {
        while !ends.is_over.load(Relaxed) {
            endpoint.sleep(Duration::from_millis(1)).await;
        }
    });
    executor.run();
}

/// The process of an owner, which moves money until it is killed.
#[test]
fn an_owner_that_is_killed() {
    let Ok(told) = env::var(OWNER) else { return };
    let mut parts = told.splitn(3, '=');
    let (name, node) = (parts.next().expect("a protocol"), parts.next().expect("a node"));
    let directory = parts.next().expect("a directory");
    let protocol = Protocol::with_names().find(|protocol| protocol.name == name).expect("its name");
    let (node, tables) = start(directory, node.parse().expect("a number"), protocol);
    println!("begun");
    run(&node, tables, 2, &Ends::default(), None);
}

fn spawn(protocol: Protocol, node: u16, directory: &str) -> Child {
    let mut command = Command::new(env::current_exe().expect("this one"));
    command.args(["--exact", "killed::an_owner_that_is_killed", "--nocapture"]);
    command.env(OWNER, format!("{}={node}={directory}", protocol.name)).stdout(Stdio::piped());
    let mut child = command.spawn().expect("a process");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("begun")), "it ended by itself");
    child
}

/// Kills the process of an owner so long after money began to move.
fn kill_one(protocol: Protocol, killed: u16, after: Duration) {
    let directory = env::temp_dir().join(format!("drtm-killed-{}-{}", std::process::id(), protocol.name));
    let group = directory.to_str().expect("plain");
    let mut owners = [1, 2].map(|node| spawn(protocol, node, group));
    let [(own, tables), (client, _)] = [0, OWNERS].map(|node| start(group, node, protocol));
    let (ends, counted) = (&Ends::default(), &AtomicU64::new(0));
    thread::scope(|scope| {
        let serves = scope.spawn(Setup::inherited(|| run(&own, tables, 2, ends, None)));
        let _over = Over(ends);
        {
            let endpoint = client.endpoint().expect("room");
            let worker = client.worker(&endpoint).expect("few");
            let filled = worker.transact(async |tx| {
                for account in 0..ACCOUNTS {
                    tx.put(tables.words, account, &BALANCE.to_le_bytes()[..]).await?;
                }
                tx.put(tables.words, MARK, &0_u64.to_le_bytes()[..]).await
            });
            block_on(&endpoint, filled).expect("all owners are here");
        }
        let moves = scope.spawn(Setup::inherited(|| run(&client, tables, 1, ends, Some(counted))));
        let until = |count| {
            while counted.load(SeqCst) < count && !moves.is_finished() {
                thread::sleep(Duration::from_millis(1));
            }
        };
        until(1);
        thread::sleep(after);
        owners[usize::from(killed) - 1].kill().expect("it runs");
        owners[usize::from(killed) - 1].wait().expect("it was killed");
        // Some of these need what it has served.
        until(counted.load(SeqCst) + 40);
        ends.is_done.store(true, SeqCst);
        let endpoint = client.endpoint().expect("room");
        let worker = client.worker(&endpoint).expect("few");
        let mut executor = Executor::new(&endpoint);
        worker.serve(&executor.spawner());
        let worker = worker.clone();
        executor.spawn(async move {
            let all = worker.transact(async |tx| tx.get_many(tables.words, 0..=MARK).await).await;
            let all: Vec<u64> = all.expect("its backup is here").iter().map(balance).collect();
            let (money, mark) = (&all[..ACCOUNTS as usize], all[MARK as usize]);
            assert_eq!(money.iter().fold(0, |sum: u64, one| sum.wrapping_add(*one)), ACCOUNTS * BALANCE, "{all:?}");
            assert!(mark >= counted.load(SeqCst), "{mark}, and {counted:?} were acknowledged");
        });
        executor.run();
        let (left, name) = (own.view(), protocol.name);
        assert!(!left.has(NodeId(killed)) && left.has(NodeId(3 - killed)), "{name}: {left}");
        while ends.moving.load(SeqCst) > 0 && !moves.is_finished() && !serves.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
        owners[usize::from(2 - killed)].kill().expect("it runs");
        owners[usize::from(2 - killed)].wait().expect("it was killed");
    });
    drop((own, client));
    fs::remove_dir_all(&directory).expect("it is there");
}

#[test]
fn owners_that_are_killed_are_done_without() {
    for (protocol, killed) in Protocol::with_names().zip([1, 2].into_iter().cycle()) {
        for round in 0..rounds(1) {
            kill_one(protocol, killed, Duration::from_micros(2_300 * round + 20_000));
        }
    }
}
