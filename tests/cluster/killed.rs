//! Processes of owners are killed under load, or stopped for longer than their lease: the others go
//! on by themselves, no money is lost, and nothing that was acknowledged. One that wakes up finds
//! itself out. One that is started again is given what it had.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread,
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_membership::Directory;
use drtm_rdma::{Executor, Fabric, Incarnation, NodeId, ShmConfig, ShmFabric, TcpConfig, TcpFabric, block_on};
use drtm_testing::{ports::free_addresses, rounds};
use drtm_txn::{
    Error, Options, Transaction as _,
    cluster::{ClusterError, Node, Protocol, Worker},
};
use fastrand::Rng;

use crate::{
    bed::{Rings, Setup, Tables, Tested, kept},
    process::Owner,
    replaced,
};

pub(crate) const OWNERS: u16 = 3;
const ACCOUNTS: u64 = 40;
const BALANCE: u64 = 1_000;

/// A row that counts what the client was told of.
const MARK: u64 = ACCOUNTS;

/// Tells a process that a test has started what it is: a fabric, a protocol, a node, and where its
/// group is.
const OWNER: &str = "DRTM_TEST_OWNER";

/// A fabric between processes that share a directory.
pub(crate) trait Joined: Fabric<Engine = NoHtm> {
    const NAME: &str;

    /// How long a process may be silent.
    const LEASE: Duration;

    /// Joins as a node.
    fn join_as(node: u16, directory: &Path) -> Self;
}

impl Joined for ShmFabric<NoHtm> {
    const NAME: &str = "shm";
    // The system tells of deaths, so that only one that is stopped is waited for.
    const LEASE: Duration = Duration::from_secs(3);

    fn join_as(node: u16, directory: &Path) -> Self {
        Self::join(NoHtm, ShmConfig::new("killed", NodeId(node)).directory(directory)).expect("a group")
    }
}

impl Joined for TcpFabric<NoHtm> {
    const NAME: &str = "tcp";
    // On a machine that does much else.
    const LEASE: Duration = Duration::from_secs(4);

    fn join_as(node: u16, directory: &Path) -> Self {
        Self::join(NoHtm, config_of(node, directory)).expect("a cluster")
    }
}

#[cfg(feature = "verbs")]
impl Joined for drtm_rdma::VerbsFabric<NoHtm> {
    const NAME: &str = "verbs";
    // NICs are emulated, on a machine that is emulated, too.
    const LEASE: Duration = Duration::from_secs(6);

    fn join_as(node: u16, directory: &Path) -> Self {
        let config = drtm_rdma::VerbsConfig::new(config_of(node, directory));
        Self::join(NoHtm, config.software_swaps(true)).expect("a cluster, and an RDMA device")
    }
}

/// Returns how a node of a directory joins.
fn config_of(node: u16, directory: &Path) -> TcpConfig {
    let addresses = fs::read_to_string(directory.join("addresses")).expect("they are chosen");
    let addresses: Vec<_> = addresses.lines().map(|line| line.parse().expect("an address")).collect();
    let config = TcpConfig::new(NodeId(node), addresses[usize::from(node)], [7; 32]);
    let others = (0..).zip(&addresses).filter(|(other, _)| *other != node);
    others.fold(config, |config, (other, address)| config.peer(NodeId(other), *address))
}

fn start<F: Joined>(directory: &Path, node: u16, protocol: Protocol) -> (Node<F, Tested>, Tables) {
    let fabric = F::join_as(node, directory);
    let membership = Directory::open(&directory.join("view")).expect("a directory");
    let rings = Rings { backups: 1, bytes: 1 << 16, ..Rings::default() };
    kept(&fabric, node, OWNERS, protocol, (rings, Some((Arc::new(membership), F::LEASE))))
}

fn balance(row: &Option<Vec<u8>>) -> u64 {
    let bytes = row.as_deref().expect("it is filled");
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

/// Moves money between two accounts, and counts that in the row of a mark.
async fn transfer<F: Joined>(
    worker: &Worker<'_, F, Tested>,
    tables: Tables,
    random: &mut Rng,
    mark: Option<u64>,
) -> Result<(), Error> {
    let (from, to) = (random.u64(0..ACCOUNTS), random.u64(0..ACCOUNTS));
    // Long enough for a change of the view on a machine that does much else.
    let soon = Options::new().within(Duration::from_secs(90));
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

/// Ends a node, also when a test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Runs a node: it serves, and moves money by coroutines once the accounts are filled, until it is
/// over or finds itself out. A client's is `counted`: how often it was told that it has.
fn run<F: Joined>(
    node: &Node<F, Tested>,
    tables: Tables,
    coroutines: u64,
    is_over: &AtomicBool,
    counted: Option<&AtomicU64>,
) {
    let endpoint = node.endpoint().expect("room");
    let worker = node.worker(&endpoint).expect("few");
    let mut executor = Executor::new(&endpoint);
    worker.serve(&executor.spawner());
    for coroutine in 0..coroutines {
        let (worker, endpoint) = (worker.clone(), &endpoint);
        executor.spawn(async move {
            let mut random = Rng::with_seed(coroutine << 16 | u64::from(worker.id().0));
            // All are to be here, and the accounts filled.
            while !is_over.load(Relaxed)
                && !matches!(worker.transact(async |tx| tx.get(tables.words, MARK).await).await, Ok(Some(_)))
            {
                endpoint.sleep(Duration::from_millis(1)).await;
            }
            for count in 1.. {
                if is_over.load(Relaxed) {
                    break;
                }
                match transfer(&worker, tables, &mut random, counted.map(|_| count)).await {
                    Ok(()) => {}
                    Err(Error::Cluster(ClusterError::Evicted { .. })) if counted.is_none() => {
                        println!("out");
                        break;
                    }
                    Err(error) => panic!("{}, in {}: {error:?}", worker.id(), node.view()),
                }
                if let Some(counted) = counted {
                    counted.store(count, SeqCst);
                }
            }
        });
    }
    executor.spawn(async {
        while !is_over.load(Relaxed) {
            endpoint.sleep(Duration::from_millis(1)).await;
        }
    });
    executor.run();
}

/// The process of an owner, which moves money until it is killed.
#[test]
fn an_owner_that_is_killed() {
    let Ok(told) = env::var(OWNER) else { return };
    let mut parts = told.splitn(4, '=');
    let mut part = || parts.next().expect("four parts");
    let (fabric, name, node) = (part(), part(), part().parse().expect("a number"));
    let protocol = Protocol::with_names().find(|protocol| protocol.name == name).expect("its name");
    let directory = Path::new(part());
    match fabric {
        "shm" => serve::<ShmFabric<NoHtm>>(directory, node, protocol),
        #[cfg(feature = "verbs")]
        "verbs" => serve::<drtm_rdma::VerbsFabric<NoHtm>>(directory, node, protocol),
        _ => serve::<TcpFabric<NoHtm>>(directory, node, protocol),
    }
}

fn serve<F: Joined>(directory: &Path, node: u16, protocol: Protocol) {
    let (node, tables) = start::<F>(directory, node, protocol);
    println!("begun");
    run(&node, tables, 2, &AtomicBool::new(false), None);
}

impl Owner {
    pub(crate) fn spawn<F: Joined>(protocol: Protocol, node: u16, directory: &Path) -> Self {
        let place = directory.to_str().expect("plain");
        let told = format!("{}={}={node}={place}", F::NAME, protocol.name);
        Self::that_runs("killed::an_owner_that_is_killed", OWNER, &told)
    }
}

/// What befalls the process of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Killed,
    Stopped,
    /// It is killed and started again, and so is each of the others in turn.
    Restarted,
    /// It is killed, and another one takes its place at another address. Then the next one is
    /// started again, which knows the old address, and the last one is replaced, too.
    Replaced,
}

/// A directory for a group, which is removed at the end.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns which life of a node is a member.
fn life_of<F: Joined>(client: &Node<F, Tested>, node: u16) -> Option<Incarnation> {
    client.view().members().iter().find(|member| member.node == NodeId(node))?.incarnation
}

/// Returns whether all owners are members, and each shard has two replicas.
fn is_whole<F: Joined>(client: &Node<F, Tested>) -> bool {
    let view = client.view();
    let mut shards = view.placements().iter();
    view.members().len() == usize::from(OWNERS) && shards.all(|at| at.backups.len() == 1 && at.learners.is_empty())
}

/// Ends the process of an owner so long after money began to move.
pub(crate) fn end_one<F: Joined>(protocol: Protocol, ended: u16, end: End, after: Duration) {
    // Tests run beside each other.
    let name = format!("drtm-killed-{}-{}-{}-{end:?}-{ended}", std::process::id(), F::NAME, protocol.name);
    let place = Place(env::temp_dir().join(name));
    fs::create_dir_all(&place.0).expect("a directory");
    let addresses = free_addresses(usize::from(OWNERS) + 1).into_iter().map(|at| format!("{at}\n"));
    fs::write(place.0.join("addresses"), addresses.collect::<String>()).expect("it is there");
    let mut owners: Vec<_> = (0..OWNERS).map(|node| Owner::spawn::<F>(protocol, node, &place.0)).collect();
    assert!(owners.iter_mut().all(|owner| owner.says("begun")), "one ended by itself");
    let (client, tables) = start::<F>(&place.0, OWNERS, protocol);
    let (is_over, counted) = (&AtomicBool::new(false), &AtomicU64::new(0));
    let mut moved = 0;
    thread::scope(|scope| {
        let moves = scope.spawn(Setup::inherited(|| run(&client, tables, 1, is_over, Some(counted))));
        let _over = Over(is_over);
        {
            let endpoint = client.endpoint().expect("room");
            let worker = client.worker(&endpoint).expect("few");
            let fill = async || {
                let filled = worker.transact(async |tx| {
                    for account in 0..ACCOUNTS {
                        tx.put(tables.words, account, &BALANCE.to_le_bytes()[..]).await?;
                    }
                    tx.put(tables.words, MARK, &0_u64.to_le_bytes()[..]).await
                });
                filled.await
            };
            block_on(&endpoint, async {
                // An owner may have met this node later than this node has met it.
                while fill().await.is_err() {
                    endpoint.sleep(Duration::from_millis(10)).await;
                }
            });
        }
        let until = |count| {
            while counted.load(SeqCst) < count && !moves.is_finished() {
                thread::sleep(Duration::from_millis(1));
            }
        };
        until(1);
        thread::sleep(after);
        if matches!(end, End::Restarted | End::Replaced) {
            let stale = replaced::Stale::new(&place.0);
            for (turn, ended) in (ended..ended + OWNERS).map(|node| node % OWNERS).enumerate() {
                let before = life_of(&client, ended);
                owners[usize::from(ended)].process.kill().expect("it runs");
                let is_out = || life_of(&client, ended).is_none_or(|life| Some(life) != before);
                while !is_out() && !moves.is_finished() {
                    thread::sleep(Duration::from_millis(1));
                }
                let mut at = &place.0;
                match (end, turn) {
                    (End::Replaced, 1) => at = &stale.0,
                    (End::Replaced, _) => replaced::replace(&client, protocol, ended, (&place.0, &stale)),
                    _ => {}
                }
                owners[usize::from(ended)] = Owner::spawn::<F>(protocol, ended, at);
                assert!(owners[usize::from(ended)].says("begun"), "it ended by itself");
                // Another one may be lost when all shards have two replicas again.
                let is_back = || is_whole(&client) && life_of(&client, ended) != before;
                while !is_back() && !moves.is_finished() {
                    thread::sleep(Duration::from_millis(1));
                }
                until(counted.load(SeqCst) + 40);
            }
            moved = counted.load(SeqCst);
            return;
        }
        let owner = &mut owners[usize::from(ended)];
        match end {
            End::Killed => owner.process.kill().expect("it runs"),
            End::Stopped | End::Restarted | End::Replaced => owner.signal("STOP"),
        }
        // Others need what it has served.
        let has_changed = || !client.view().has(NodeId(ended));
        while !has_changed() && !moves.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
        until(counted.load(SeqCst) + 40);
        if end == End::Stopped {
            // Where memory is shared, it was killed.
            let _ = Command::new("kill").args(["-CONT", &owner.process.id().to_string()]).status();
            assert_eq!(owner.says("out"), F::NAME != "shm", "it does not find itself out");
        }
        moved = counted.load(SeqCst);
    });
    {
        let (is_over, seen) = (&AtomicBool::new(false), &AtomicU64::new(0));
        thread::scope(|scope| {
            scope.spawn(Setup::inherited(|| run(&client, tables, 0, is_over, None)));
            let _over = Over(is_over);
            let endpoint = client.endpoint().expect("room");
            let worker = client.worker(&endpoint).expect("few");
            let all = worker.transact(async |tx| tx.get_many(tables.words, 0..=MARK).await);
            let all: Vec<u64> = block_on(&endpoint, all).expect("its backup is here").iter().map(balance).collect();
            let (money, mark) = (&all[..ACCOUNTS as usize], all[MARK as usize]);
            assert_eq!(money.iter().fold(0, |sum: u64, one| sum.wrapping_add(*one)), ACCOUNTS * BALANCE, "{all:?}");
            seen.store(mark, SeqCst);
        });
        assert!(seen.load(SeqCst) >= moved, "{seen:?}, and {moved} were acknowledged");
    }
    let (left, name) = (client.view(), protocol.name);
    let gone = usize::from(matches!(end, End::Killed | End::Stopped));
    assert_eq!(left.members().len(), usize::from(OWNERS) - gone, "{name}: {left}");
    drop(owners);
}

#[test]
fn owners_that_are_killed_are_done_without() {
    for (protocol, ended) in Protocol::with_names().zip([1, 2, 0].into_iter().cycle()) {
        for round in 0..rounds(1) {
            let after = Duration::from_micros(2_300 * round + 20_000);
            end_one::<ShmFabric<NoHtm>>(protocol, ended, End::Killed, after);
        }
    }
}

#[test]
fn owners_that_are_killed_on_machines_are_done_without() {
    for (protocol, ended) in [(Protocol::FASST, 1), (Protocol::DRTM_H, 0), (Protocol::DRTM, 2)] {
        for round in 0..rounds(1) {
            let after = Duration::from_micros(2_300 * round + 20_000);
            end_one::<TcpFabric<NoHtm>>(protocol, ended, End::Killed, after);
        }
    }
}

#[test]
fn owners_that_are_stopped_find_themselves_out() {
    for round in 0..rounds(1) {
        let after = Duration::from_micros(2_300 * round + 20_000);
        end_one::<TcpFabric<NoHtm>>(Protocol::FASST, 0, End::Stopped, after);
        end_one::<TcpFabric<NoHtm>>(Protocol::DRTM_H, 2, End::Stopped, after);
        end_one::<ShmFabric<NoHtm>>(Protocol::FARM, 1, End::Stopped, after);
    }
}

#[test]
fn owners_that_are_started_again_are_given_what_they_had() {
    for round in 0..rounds(1) {
        let after = Duration::from_micros(2_300 * round + 20_000);
        for (protocol, first) in [(Protocol::FASST, 0), (Protocol::DRTM_H, 1)] {
            end_one::<ShmFabric<NoHtm>>(protocol, first, End::Restarted, after);
            end_one::<TcpFabric<NoHtm>>(protocol, first, End::Restarted, after);
        }
    }
}

/// In a virtual machine: `scripts/rxe/test`.
#[cfg(feature = "verbs")]
#[test]
fn owners_of_rdma_nics_are_taken_over() {
    // Each takes a minute there.
    let cases =
        [(Protocol::DRTM_H, 1, End::Stopped), (Protocol::FASST, 0, End::Killed), (Protocol::DRTM, 2, End::Restarted)];
    for (protocol, ended, end) in cases.into_iter().take(rounds(1) as usize) {
        end_one::<drtm_rdma::VerbsFabric<NoHtm>>(protocol, ended, end, Duration::from_millis(20));
    }
}
