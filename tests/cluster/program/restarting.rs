//! Random programs beside owners that crash or close, and start again with their disks.

use std::{
    cell::Cell,
    panic::catch_unwind,
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread,
    time::Duration,
};

use drtm_history::{History, Order, Recorder, check};
use drtm_htm::NoHtm;
use drtm_rdma::{Executor, LocalConfig, LocalFabric, NodeId};
use drtm_testing::rounds;
use drtm_txn::{
    Error, Mutation,
    cluster::{ClusterError, Protocol},
    durability::storage::Image,
};
use fastrand::Rng;

use super::Program;
use crate::{
    bed::{Rings, Script, Setup, backed_up, disks},
    cooperative::Memory,
    restarts::Owner,
};

/// How long a coroutine waits before it asks again whether an owner is back.
pub(super) const PAUSE: Duration = Duration::from_micros(200);

/// The nodes that only run transactions.
const CLIENTS: u16 = 2;
/// Of each of them.
const COROUTINES: u64 = 3;
const TRANSACTIONS: u64 = 12;

/// How far a program has come, and whether its owners stay from now on.
#[derive(Debug, Default)]
pub(crate) struct Restarts {
    attempts: AtomicU64,
    /// How many have met an owner that was away.
    interrupted: AtomicU64,
    are_over: AtomicBool,
    /// Whether a thread has panicked: the others need not wait.
    has_failed: AtomicBool,
}

/// Tells the other threads of a run if this one panics.
struct TellsOfPanic<'a>(&'a Restarts);

impl Drop for TellsOfPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.has_failed.store(true, SeqCst);
            self.0.are_over.store(true, SeqCst);
        }
    }
}

impl Restarts {
    /// Counts a transaction.
    pub(super) fn note(&self) {
        self.attempts.fetch_add(1, Relaxed);
    }

    /// Counts a transaction whose owner was away.
    pub(super) fn note_interrupted(&self) {
        self.interrupted.fetch_add(1, Relaxed);
    }

    pub(super) fn are_over(&self) -> bool {
        self.are_over.load(SeqCst)
    }

    /// Panics if another thread of the run has: an owner that it waits for may never come back.
    pub(super) fn check(&self) {
        assert!(!self.has_failed.load(SeqCst), "another thread has failed");
    }

    /// Waits for so many transactions.
    fn wait_for(&self, attempts: u64) {
        while self.attempts.load(Relaxed) < attempts {
            self.check();
            thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Returns whether an error says that an owner is not here, or is another one now.
pub(super) fn is_away(error: &Error) -> bool {
    use ClusterError::{ClockUncertain, Interrupted, Lookup, OneSided, OutcomeUnknown, Refused, Unreachable};
    matches!(
        error,
        Error::Cluster(
            Unreachable { .. }
                | OneSided { .. }
                | Lookup { .. }
                | OutcomeUnknown { .. }
                | Interrupted { .. }
                // Its clock was the cluster's.
                | ClockUncertain { .. }
                | Refused { .. }
        )
    )
}

/// How owners leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    /// The one owner: a transaction of several would be torn.
    Crash,
    /// One of two.
    Closing,
    /// One of two: logs in memory that outlives the process keep transactions whole.
    CrashWithLogs,
}

/// Runs a program. Returns what was wrong with it, and how many of its transactions met an owner
/// that was away.
fn anomalies(protocol: Protocol, seed: u64, leaving: Leaving) -> (Vec<String>, u64) {
    let owners = if leaving == Leaving::Crash { 1 } else { 2 };
    let memory = (leaving == Leaving::CrashWithLogs).then(Memory::new);
    let rings = memory.as_ref().map_or(Rings::default(), Memory::rings);
    let config = match seed % 3 {
        0 => LocalConfig::perfect(),
        1 => LocalConfig::harsh(seed),
        _ => LocalConfig::harsh(seed).atomicity(drtm_rdma::Atomicity::Global),
    };
    let fabric = LocalFabric::<NoHtm>::new(owners + CLIENTS, config);
    let mut disks: Vec<Image> = disks(owners).to_vec();
    let start = |number, disks: &[Image]| {
        Owner::one_of(&fabric, (number, owners), protocol, Rings { disks: Vec::leak(disks.to_vec()), ..rings })
    };
    let mut running: Vec<Option<Owner>> = (0..owners).map(|number| Some(start(number, &disks))).collect();
    let mut recorder = Recorder::start();
    let all = u64::from(CLIENTS) * COROUTINES;
    let logs: Vec<_> = (0..all).map(|_| Some(recorder.log().expect("a few logs"))).collect();
    let restarts = Arc::new(Restarts::default());
    let program = Program {
        keys: [2, 5, 12][seed as usize % 3],
        transactions: TRANSACTIONS,
        seed,
        rings,
        logs: Arc::new(Mutex::new(logs)),
        restarts: Some(Arc::clone(&restarts)),
    };
    thread::scope(|scope| {
        let _tells = TellsOfPanic(&restarts);
        for client in 0..CLIENTS {
            let (fabric, program) = (&fabric, program.clone());
            scope.spawn(Setup::inherited(move || run(fabric, (client, owners), protocol, &program)));
        }
        let (mut random, mut attempts) = (Rng::with_seed(seed), 0);
        for _ in 0..2 {
            attempts += random.u64(1..all * TRANSACTIONS / 3);
            restarts.wait_for(attempts);
            let number = random.u16(0..owners);
            let (owner, node) = (running[usize::from(number)].take().expect("it runs"), NodeId(number));
            let disk = &mut disks[usize::from(number)];
            let mut choose = |choices| random.u64(0..choices);
            if leaving == Leaving::Closing {
                let database = owner.node.local().clone();
                owner.close();
                database.close().expect("the disk has room");
                *disk = disk.after_crash(&mut choose);
            } else {
                // What it syncs from now on, it can tell nobody.
                fabric.kill(node).expect("it is here");
                *disk = disk.after_crash(&mut choose);
                owner.end();
            }
            fabric.revive(node).expect("it is gone");
            running[usize::from(number)] = Some(start(number, &disks));
        }
        restarts.are_over.store(true, SeqCst);
    });
    running.into_iter().flatten().for_each(Owner::end);
    let logs = std::mem::take(&mut *program.logs.lock().expect("no thread panics"));
    let history = History::of(logs.into_iter().flatten()).with_insertions_in_order();
    let anomalies = check(&history, Order::RealTime).expect("a history");
    (anomalies.iter().map(ToString::to_string).collect(), restarts.interrupted.load(Relaxed))
}

/// Runs coroutines of a program as a client.
fn run(fabric: &LocalFabric<NoHtm>, (client, owners): (u16, u16), protocol: Protocol, program: &Program) {
    let restarts = program.restarts.as_deref().expect("owners restart");
    let _tells = TellsOfPanic(restarts);
    let (node, tables) = backed_up(fabric, owners + client, owners, protocol, program.rings);
    let endpoint = node.endpoint().expect("room");
    let worker = node.worker(&endpoint).expect("few");
    let mut executor = Executor::new(&endpoint).patience(Duration::from_secs(20));
    worker.serve(&executor.spawner());
    let done = Rc::new(Cell::new(0));
    for number in 0..COROUTINES {
        let (done, number) = (Rc::clone(&done), u64::from(client) * COROUTINES + number);
        let run = program.clone().run(worker.clone(), tables, number);
        executor.spawn(async move {
            let _tells = TellsOfPanic(restarts);
            run.await;
            done.set(done.get() + 1);
        });
    }
    executor.spawn(async move {
        worker.endpoint().until(|| done.get() == COROUTINES || restarts.has_failed.load(SeqCst)).await;
        worker.settle().await;
    });
    executor.run();
}

fn check_all(leaving: Leaving, seeds: u64) {
    let mut all = 0;
    for seed in 0..rounds(seeds) {
        for protocol in Protocol::with_names() {
            let (told, interrupted) = anomalies(protocol, seed, leaving);
            assert!(told.is_empty(), "{}, seed {seed}, {leaving:?}:\n{}", protocol.name, told.join("\n"));
            all += interrupted;
        }
    }
    // With logs, transactions wait until the owner is back.
    assert!(all > 0 || leaving == Leaving::CrashWithLogs, "no transaction met a restart");
}

/// Whether a fault is found within some runs: by the history, or since a run panics.
fn is_found(fault: Mutation, leaving: Leaving, seeds: u64) -> bool {
    let is_wrong = |protocol, seed| {
        let run = || Setup::faulty(fault).run(|| anomalies(protocol, seed, leaving));
        catch_unwind(run).map_or(true, |(told, _)| !told.is_empty())
    };
    (0..rounds(seeds)).any(|seed| Protocol::with_names().any(|protocol| is_wrong(protocol, seed)))
}

#[test]
fn programs_beside_crashes_of_their_owner_are_serializable() {
    check_all(Leaving::Crash, 6);
}

#[test]
fn programs_beside_closings_of_their_owners_are_serializable() {
    check_all(Leaving::Closing, 6);
}

#[test]
fn programs_beside_crashes_of_owners_with_logs_in_memory_are_serializable() {
    check_all(Leaving::CrashWithLogs, 6);
}

#[test]
fn owners_that_restore_nothing_from_logs_are_found() {
    assert!(is_found(Mutation::RestoreLeftOut, Leaving::CrashWithLogs, 20));
}

#[test]
fn commits_that_are_not_durable_when_they_return_are_found_by_crashes() {
    assert!(is_found(Mutation::OwnersNotAwaited, Leaving::Crash, 20));
}

#[test]
fn owners_that_close_at_once_are_found() {
    assert!(is_found(Mutation::ClosedAtOnce, Leaving::Closing, 60));
}
