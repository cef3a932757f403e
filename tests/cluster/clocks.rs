//! The cluster's time, what fetched sets cost, and what leases keep out.

use std::{
    mem::discriminant,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_rdma::{Atomicity, Executor, Fabric, LocalConfig, LocalFabric, NicProfile, NodeId, Phase, SimConfig};
use drtm_txn::{
    Conflict, Error, Transaction as _,
    cluster::{ClusterError, Node, Protocol, Timing, Worker},
};

use crate::bed::{Bed, Script, Setup, Size, Tables, Tested, node};

const SIZE: Size = Size { nodes: 2, owners: 1, coroutines: 1, protocol: Protocol::DRTM };

/// By how much the time is uncertain for each node, or why it is refused.
type Told = Arc<Mutex<Vec<(NodeId, Result<Duration, String>)>>>;

/// Asks for the time, and gives what becomes of that to a check.
#[derive(Clone)]
struct Asks {
    after: Duration,
    told: Told,
}

impl Script for Asks {
    async fn run<'e, F: Fabric<Engine = NoHtm>>(self, worker: Worker<'e, F, Tested>, tables: Tables, _number: u64) {
        // Node 0 must be there as long as it is asked.
        let waits = if worker.id() == NodeId(0) { self.after * 2 } else { self.after };
        worker.endpoint().sleep(waits).await;
        let told = match worker.time().await {
            Ok(time) => Ok(time.uncertainty()),
            Err(Error::Cluster(error @ (ClusterError::ClockWrong { .. } | ClusterError::ClockUncertain { .. }))) => {
                // A transaction that needs leases is refused for the same reason.
                let ended = worker
                    .transact_on(|sets| sets.read(tables.words, 7), async |rows| rows.get(tables.words, 7).await)
                    .await;
                assert!(
                    matches!(ended, Err(Error::Cluster(refused)) if discriminant(&refused) == discriminant(&error))
                );
                Err(error.to_string())
            }
            Err(error) => panic!("{error}"),
        };
        self.told.lock().expect("no thread panics").push((worker.id(), told));
    }
}

fn ask(skew: i64, drift: i64, after: Duration) -> Result<Duration, String> {
    let config = SimConfig::new(&NicProfile::CONNECTX_4).clock(NodeId(1), skew, drift);
    let script = Asks { after, told: Arc::default() };
    Bed::Sim(Box::new(config)).run(SIZE, &script);
    let told = script.told.lock().expect("no thread panics");
    let of = |node| told.iter().find(|(id, _)| *id == node).expect("both have asked").1.clone();
    assert_eq!(of(NodeId(0)), Ok(Duration::ZERO), "its clock is the cluster's");
    of(NodeId(1))
}

#[test]
fn the_time_is_known_within_a_round_trip_and_what_clocks_drift() {
    for (skew, drift) in [(0, 0), (400_000_000, 0), (-400_000_000, 500_000), (7, -900_000)] {
        let uncertainty = ask(skew, drift, Duration::from_millis(200)).expect("within the bounds");
        // Half a round trip, and 10 ms of 1,000 parts per million.
        assert!(uncertainty < Duration::from_micros(15), "{uncertainty:?}");
    }
}

#[test]
fn a_clock_that_drifts_more_than_it_may_is_refused() {
    for drift in [3_000_000, -3_000_000] {
        let refused = ask(0, drift, Duration::from_millis(200)).expect_err("three times what it may");
        assert!(refused.contains("parts per million"), "{refused}");
    }
}

/// Its time must be known better than any message can tell.
const EXACT: Timing = Timing { most: Duration::from_nanos(10), ..Setup::SOUND.timing };

#[test]
fn a_time_that_is_too_uncertain_is_refused() {
    let refused =
        Setup::SOUND.timed(EXACT).run(|| ask(0, 0, Duration::from_millis(1))).expect_err("no message is so fast");
    assert!(refused.contains("uncertain"), "{refused}");
}

type Local = LocalFabric<NoHtm>;

/// Runs something on node 1, while node 0, which owns all rows, serves it.
fn beside_an_owner(
    protocol: Protocol,
    config: LocalConfig,
    act: impl AsyncFnOnce(Worker<'_, Local, Tested>, &Node<Local, Tested>, Tables),
) {
    let fabric = Local::new(2, config);
    let (owner, _) = node(&fabric, 0, 1, protocol);
    let (client, tables) = node(&fabric, 1, 1, protocol);
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        let serving = owner.clone();
        scope.spawn(Setup::inherited(move || {
            let endpoint = serving.endpoint().expect("room for an endpoint");
            let mut executor = Executor::new(&endpoint);
            serving.worker(&endpoint).expect("few workers").serve(&executor.spawner());
            executor.spawn(endpoint.until(|| done.load(SeqCst)));
            executor.run();
        }));
        let endpoint = client.endpoint().expect("room for an endpoint");
        let worker = client.worker(&endpoint).expect("few workers");
        let mut executor = Executor::new(&endpoint);
        worker.serve(&executor.spawner());
        executor.spawn(async {
            act(worker, &owner, tables).await;
            done.store(true, SeqCst);
        });
        executor.run();
        done.store(true, SeqCst);
    });
}

/// Round trips and compare-and-swaps of a transaction, of all phases of its own.
async fn cost(worker: &Worker<'_, Local, Tested>, tables: Tables, writes: bool) -> (u64, u64) {
    let before = worker.endpoint().counters();
    let ended = worker.transact_on(
        |sets| if writes { sets.write(tables.words, 7) } else { sets.read(tables.words, 7) },
        async |rows| match writes {
            true => rows.update(tables.words, 7, |value| value[0] += 1).await.map(|_| ()),
            false => rows.get(tables.words, 7).await.map(|_| ()),
        },
    );
    ended.await.expect("nothing is in its way");
    let spent = worker.endpoint().counters() - before;
    let phases = [Phase::Execute, Phase::Lock, Phase::Validate, Phase::Commit].map(|phase| spent[phase]);
    let sum = |of: fn(&drtm_rdma::Tally) -> u64| phases.iter().map(of).sum();
    (sum(|phase| phase.round_trips), sum(|phase| phase.compare_swaps))
}

/// Its leases last longer than a busy machine takes for a transaction.
const LASTING: Timing =
    Timing { lease: Duration::from_millis(100), read_only_lease: Duration::from_millis(100), ..Setup::SOUND.timing };

/// What a read costs of a free row; of one whose lease has expired; and a write of one whose lease
/// has expired, and of a free row.
fn costs(protocol: Protocol, config: LocalConfig) -> [(u64, u64); 4] {
    let costs = Arc::new(Mutex::new([(0, 0); 4]));
    let told = Arc::clone(&costs);
    let act = async move |worker: Worker<'_, Local, Tested>, _: &Node<Local, Tested>, tables: Tables| {
        let filled = worker.transact(async |tx| tx.put(tables.words, 7, vec![0; 8]).await);
        filled.await.expect("room");
        // Where rows are is remembered, perhaps, and the clock is known. Then the row is free.
        cost(&worker, tables, true).await;
        worker.time().await.expect("the owner answers");
        // Longer than any lease, and than the time is uncertain.
        let rest = async || worker.endpoint().sleep(Duration::from_millis(300)).await;
        let mut costs = [(0, 0); 4];
        costs[0] = cost(&worker, tables, false).await;
        rest().await;
        costs[1] = cost(&worker, tables, false).await;
        rest().await;
        costs[2] = cost(&worker, tables, true).await;
        costs[3] = cost(&worker, tables, true).await;
        *told.lock().expect("no thread panics") = costs;
    };
    Setup::SOUND.timed(LASTING).run(|| beside_an_owner(protocol, config, act));
    *costs.lock().expect("no thread panics")
}

#[test]
fn a_remote_read_is_two_round_trips_and_a_remote_write_three() {
    let uncached = Protocol { name: "drtm without a cache", caches: false, ..Protocol::DRTM };
    // A bucket; the lease with the value. A bucket; the lock with the value; what is written. An
    // expired lease costs one swap more.
    assert_eq!(costs(uncached, LocalConfig::perfect()), [(2, 1), (3, 2), (4, 2), (3, 1)]);
    assert_eq!(costs(Protocol::DRTM, LocalConfig::perfect()), [(1, 1), (2, 2), (3, 2), (2, 1)]);
    // By message, the owner looks rows up and swaps.
    let by_message = LocalConfig::perfect().atomicity(Atomicity::Hca);
    let costs = costs(Protocol { name: "drtm by message", ..Protocol::FASST }, by_message.clone());
    // Without leases a read locks: it is read, locked, and unlocked.
    assert_eq!(costs, [(3, 0); 4]);
    let leased = Protocol { name: "drtm by message", leases: true, ..Protocol::FASST };
    assert_eq!(self::costs(leased, by_message), [(1, 0), (1, 0), (3, 0), (3, 0)]);
}

/// Its leases last longer than any test.
const LONG: Timing =
    Timing { lease: Duration::from_secs(3_600), read_only_lease: Duration::from_secs(3_600), ..Setup::SOUND.timing };

#[test]
fn the_owner_s_own_transactions_respect_leases() {
    let act = async |worker: Worker<'_, Local, Tested>, owner: &Node<Local, Tested>, tables: Tables| {
        let filled = worker.transact(async |tx| tx.put(tables.words, 7, vec![0; 8]).await);
        filled.await.expect("room");
        let db = owner.local();
        let words = db.table(crate::bed::WORDS).expect("it is there");
        let put = |value: u8| {
            let mut tx = db.begin()?;
            tx.put(words, 7, &[value; 8][..]).and_then(|_| tx.commit())
        };
        put(1).expect("it is free");
        cost(&worker, tables, false).await;
        let refused = put(2).expect_err("it is leased");
        assert!(matches!(refused, Error::Conflict(Conflict::Locked)), "{refused}");
        let read = db.transact(|tx| tx.get(words, 7)).expect("readers need no lock");
        assert_eq!(read, Some(vec![1; 8]));
        // Of the cluster's transactions, others share the lease, and writers fail.
        cost(&worker, tables, false).await;
        let mut tx = worker.begin().await;
        tx.put(tables.words, 7, vec![3; 8]).await.expect("no other node is asked");
        let refused = tx.commit().await.expect_err("it is leased");
        assert!(matches!(refused, Error::Conflict(Conflict::Locked)), "{refused}");
    };
    Setup::SOUND.timed(LONG).run(|| beside_an_owner(Protocol::DRTM, LocalConfig::perfect(), act));
}

#[test]
fn the_owner_s_own_transactions_wait_leases_out() {
    beside_an_owner(Protocol::DRTM, LocalConfig::perfect(), async |worker, owner, tables| {
        let filled = worker.transact(async |tx| tx.put(tables.words, 7, vec![0; 8]).await);
        filled.await.expect("room");
        let db = owner.local();
        let words = db.table(crate::bed::WORDS).expect("it is there");
        for round in 0..5_u8 {
            cost(&worker, tables, false).await;
            db.transact(|tx| tx.put(words, 7, &[round; 8][..])).expect("the lease ends");
            let read = worker
                .transact_on(|sets| sets.read(tables.words, 7), async |rows| rows.get(tables.words, 7).await)
                .await;
            assert_eq!(read.expect("nothing is in its way"), Some(vec![round; 8]));
        }
    });
}
