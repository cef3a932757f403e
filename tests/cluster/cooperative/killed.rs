//! The process of a coordinator is killed at each point of its transactions, on shared memory:
//! cases (a) and (b) as they happen.

use std::{
    env,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_rdma::{Executor, NodeId, Presence, ShmConfig, ShmFabric, block_on};
use drtm_txn::{
    Error, Options, Transaction as _,
    cluster::{Node, Protocol, Worker},
};

use super::Memory;
use crate::bed::{Rings, SetAtEnd, Setup, Tables, Tested, backed_up};

type Shm = ShmFabric<NoHtm>;

const OWNERS: u16 = 2;
const COORDINATOR: u16 = OWNERS;
const OTHER: u16 = OWNERS + 1;

/// Rows of both owners, which always have one value.
const ROWS: u64 = 4;

/// Tells a process that a test has started where its group is.
const PROCESS: &str = "DRTM_TEST_COOPERATIVE";

/// Where it is to die, and how often it comes there before.
const DIE_AT: &str = "DRTM_DIE_AT";

fn join(directory: &str, node: u16) -> (Node<Shm, Tested>, Tables) {
    let config = ShmConfig::new("logged", NodeId(node)).directory(&Path::new(directory).join("group"));
    let fabric = Shm::join(NoHtm, config).expect("a group");
    let logs = format!("{directory}/logs").leak();
    let rings = Rings { memory: Some(logs), ..Rings::default() };
    backed_up(&fabric, node, OWNERS, Protocol::DRTM, rings)
}

/// Gives all rows a value, of one length.
async fn write(worker: &Worker<'_, Shm, Tested>, tables: Tables, value: u64) -> Result<(), Error> {
    let written = worker.transact_on(
        |sets| (0..ROWS).try_for_each(|row| sets.write(tables.words, row)),
        async |rows| {
            for row in 0..ROWS {
                rows.put(tables.words, row, value.to_le_bytes().to_vec()).await?;
            }
            Ok(())
        },
    );
    written.await
}

/// Returns the value of all rows.
async fn look(worker: &Worker<'_, Shm, Tested>, tables: Tables) -> u64 {
    let soon = Options::new().within(Duration::from_secs(20));
    let seen = worker.transact_with(soon, async |tx| tx.get_many(tables.words, 0..ROWS).await);
    let seen = seen.await.expect("all rows are free");
    assert!(seen.iter().all(|row| *row == seen[0]), "a transaction is whole: {seen:?}");
    let row = seen[0].as_deref().expect("it is there");
    u64::from_le_bytes(row.try_into().expect("eight bytes"))
}

/// The process of a coordinator, which writes until it dies. It tells what was acknowledged.
#[test]
fn a_coordinator_that_is_killed() {
    let Ok(directory) = env::var(PROCESS) else { return };
    let (node, tables) = join(&directory, COORDINATOR);
    let endpoint = node.endpoint().expect("room");
    let worker = node.worker(&endpoint).expect("few");
    let mut executor = Executor::new(&endpoint);
    worker.serve(&executor.spawner());
    executor.spawn(async move {
        let first = look(&worker, tables).await;
        println!("begun");
        for value in first + 1..first + 20 {
            write(&worker, tables, value).await.expect("all owners are here");
            println!("wrote {value}");
        }
        println!("all");
        worker.endpoint().sleep(Duration::from_secs(60)).await;
    });
    executor.run();
}

/// Starts a coordinator that dies at a site, or is killed when it has written all. Returns the last
/// value that was acknowledged, and whether it has died by itself.
fn run_until_killed(directory: &str, site: &str) -> (u64, bool) {
    let mut command = Command::new(env::current_exe().expect("this one"));
    command.args(["--exact", "cooperative::killed::a_coordinator_that_is_killed", "--nocapture"]);
    let mut process =
        command.env(PROCESS, directory).env(DIE_AT, site).stdout(Stdio::piped()).spawn().expect("a process");
    let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
    let (mut acknowledged, mut has_died) = (0, true);
    for line in lines.map_while(Result::ok) {
        if let Some((_, value)) = line.split_once("wrote ") {
            acknowledged = value.parse().expect("a number");
        }
        if line.ends_with("all") {
            has_died = false;
            break;
        }
    }
    process.kill().expect("it is a child");
    process.wait().expect("it was killed");
    (acknowledged, has_died)
}

/// Kills coordinators at these sites, one after the other.
fn check(sites: &[&str], times: &[u32]) {
    let memory = Memory::new();
    std::fs::create_dir_all(memory.path()).expect("a directory");
    let directory = memory.path().to_str().expect("plain").to_owned();
    let [one, other, judge] = [0, 1, OTHER].map(|node| join(&directory, node));
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        for (owner, _) in [one, other] {
            scope.spawn(Setup::inherited(move || {
                let endpoint = owner.endpoint().expect("room");
                let mut executor = Executor::new(&endpoint);
                owner.worker(&endpoint).expect("few").serve(&executor.spawner());
                executor.spawn(endpoint.until(|| done.load(SeqCst)));
                executor.run();
            }));
        }
        let _ends = SetAtEnd(done);
        let (node, tables) = judge;
        let endpoint = node.endpoint().expect("room");
        let worker = node.worker(&endpoint).expect("few");
        let insert = worker.transact(async |tx| {
            for row in 0..ROWS {
                tx.put(tables.words, row, 1_u64.to_le_bytes().to_vec()).await?;
            }
            Ok(())
        });
        block_on(&endpoint, insert).expect("room");
        for site in sites {
            for count in times {
                let before = block_on(&endpoint, look(&worker, tables));
                let (acknowledged, has_died) = run_until_killed(&directory, &format!("{site}:{count}"));
                let is_dead = || matches!(endpoint.presence(NodeId(COORDINATOR)), Presence::Died(_));
                block_on(&endpoint, endpoint.until(is_dead));
                let after = block_on(&endpoint, look(&worker, tables));
                let told = acknowledged.max(before);
                assert!(after == told || after == told + 1, "{site}:{count}: {told} and {after}");
                if env::var("DRTM_BUILT_WITH").is_ok_and(|features| features.contains("kill-points")) {
                    assert!(has_died, "{site}:{count} is not reached");
                }
                block_on(&endpoint, write(&worker, tables, after + 1)).expect("all rows are free");
            }
        }
    });
}

#[test]
fn a_coordinator_that_is_killed_before_it_decides_leaves_nothing() {
    check(&["cooperative.ahead", "cooperative.locked", "nv.named", "nv.held", "nv.redo.written"], &[1, 2, 5]);
}

#[test]
fn a_coordinator_that_is_killed_after_it_has_decided_is_completed() {
    check(&["nv.redo.whole", "nv.stored", "nv.cleared", "cooperative.decided"], &[1, 2, 6]);
    check(&["cooperative.written", "cooperative.settled"], &[1, 3]);
}

#[test]
fn a_coordinator_that_is_killed_while_verbs_write_is_completed() {
    check(&["verb.write", "verb.written.half", "verb.written", "verb.swap", "verb.swapped"], &[1, 2, 3, 4, 9]);
}
