//! A coordinator dies at any moment of one transaction, which writes rows of all owners. Another
//! node changes the view: the transaction is whole or not at all, everywhere.

use std::{
    future::{Future, poll_fn},
    panic::catch_unwind,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::ready,
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_rdma::{
    Atomicity, Chances, Fault, Incarnation, NicProfile, NodeId, Presence, RunEnd, Sim, SimConfig, SimFabric, Spawner,
};
use drtm_testing::rounds;
use drtm_txn::{
    Mutation, Options, Transaction as _,
    cluster::{Node, Protocol, Worker},
};

use crate::{
    bed::{Rings, Setup, Tables, Tested, backed_up},
    history::{value, version},
    takeover::without,
};

type Simulated = SimFabric<NoHtm>;

const OWNERS: u16 = 3;
const COORDINATOR: NodeId = NodeId(OWNERS);

/// The owner that dies, where it is not the coordinator.
const OWNER: NodeId = NodeId(OWNERS - 1);

/// Rows of all owners.
const ROWS: u64 = 6;

/// When the transaction begins. All rows are there by then.
const BEGINS: Duration = Duration::from_millis(8);

/// Some messages take far longer than others, so that they arrive in any order.
const SLOW: Chances = Chances { loss: 0.02, delay: 0.3, at_most: Duration::from_micros(10), ..Chances::NONE };

/// A few messages take so long that the view can change meanwhile.
const FAR: Chances = Chances { delay: 0.06, at_most: Duration::from_micros(300), ..Chances::NONE };

/// How the transaction has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// It has never happened.
    Undone,
    /// It has, and nobody was told.
    Completed,
    Acknowledged,
}

#[derive(Debug, Default)]
struct Run {
    /// An owner whose rows are not written: its backup cannot be reached when they are recorded.
    unwritten: Option<NodeId>,
    /// How often the transaction is polled before the view changes, if it is not polled meanwhile.
    polls: Option<u32>,
    /// Whether it is an owner that dies, and not the coordinator.
    is_owner: bool,
    /// Whether the driver finds out only while it changes the view that the coordinator has died.
    is_overlooked: bool,
    is_acknowledged: AtomicBool,
    has_happened: AtomicBool,
    is_over: AtomicBool,
}

impl Run {
    /// The rows that are written once.
    fn rows(&self) -> impl Iterator<Item = u64> {
        let unwritten = self.unwritten.map(|owner| u64::from(owner.0));
        (0..ROWS).filter(move |row| unwritten != Some(row % u64::from(OWNERS)))
    }

    /// Writes the rows once, when it is time.
    async fn writes(
        self: Arc<Self>,
        worker: Worker<'_, Simulated, Tested>,
        tables: Tables,
        driver: Node<Simulated, Tested>,
    ) {
        let begins = worker.endpoint().now() + BEGINS;
        // It knows all nodes when it is time.
        let met = worker.transact(async |tx| {
            for row in ROWS..2 * ROWS {
                tx.put(tables.words, row, value(1)).await?;
            }
            Ok(())
        });
        met.await.expect("all owners are here");
        worker.endpoint().sleep_until(begins).await;
        let written = worker.transact(async |tx| {
            // It is validated, which takes a round.
            let _ = tx.get_many(tables.words, ROWS..2 * ROWS).await?;
            for row in self.rows() {
                // Verbs lock what was read.
                let _ = tx.get(tables.words, row).await?;
                tx.put(tables.words, row, value(2)).await?;
            }
            if self.unwritten.is_some() { Ok(()) } else { tx.put(tables.sorted_words, 1, value(2)).await }
        });
        let is_changed = async {
            // The change waits for one that has begun to write records.
            while driver.view().number() == 1 && worker.endpoint().now() < begins + 3 * PAUSED {
                worker.endpoint().sleep(Duration::from_nanos(100)).await;
            }
        };
        // An owner that is cut off cannot be asked.
        let written = paused(written, self.polls, is_changed).await;
        self.is_acknowledged.store(written.is_ok(), SeqCst);
        // It tells backups what is settled until it dies.
        worker.endpoint().until(|| self.is_over.load(SeqCst)).await;
    }

    /// Fills the rows, changes the view when the coordinator has died, and looks at what is left.
    async fn judges(
        self: Arc<Self>,
        node: Node<Simulated, Tested>,
        worker: Worker<'_, Simulated, Tested>,
        tables: Tables,
    ) {
        let endpoint = worker.endpoint();
        let filled = worker.transact(async |tx| {
            for row in 0..ROWS {
                tx.put(tables.words, row, value(1)).await?;
            }
            Ok(())
        });
        filled.await.expect("all owners are here");
        let dead = if self.is_owner { OWNER } else { COORDINATOR };
        endpoint.until(|| matches!(endpoint.presence(dead), Presence::Died(_))).await;
        let next = without(&node.view(), &[dead]);
        let known = if self.is_overlooked { Vec::new() } else { vec![(dead, Incarnation(1))] };
        worker.change_view(next, &known).await.expect("all others are here");
        endpoint.until(|| !self.is_owner || self.is_acknowledged.load(SeqCst)).await;
        let seen = worker.transact(async |tx| {
            let words = tx.get_many(tables.words, self.rows()).await?;
            Ok((words, tx.get(tables.sorted_words, 1).await?))
        });
        let (words, sorted) = seen.await.expect("all owners are here");
        let words: Vec<u64> = words.iter().map(|word| version(word.as_ref().expect("it is there"))).collect();
        let is_new = words[0] == 2;
        assert_eq!(words, vec![1 + u64::from(is_new); self.rows().count()], "it is whole");
        let is_there = is_new && self.unwritten.is_none();
        assert_eq!(sorted.map(|word| version(&word)), is_there.then_some(2), "it is whole");
        assert!(is_new || !self.is_acknowledged.load(SeqCst), "it was acknowledged");
        self.has_happened.store(is_new, SeqCst);
        for row in 0..=ROWS {
            let soon = Options::new().within(Duration::from_millis(20));
            let put = worker.transact_with(soon, async |tx| match row {
                ROWS => tx.put(tables.sorted_words, 1, value(3)).await,
                row => tx.put(tables.words, row, value(3)).await,
            });
            put.await.unwrap_or_else(|error| panic!("row {row}: {error:?}"));
        }
        worker.catch_up().await.expect("backups apply");
        self.is_over.store(true, SeqCst);
    }
}

/// Who dies, and when, after the transaction's begin.
#[derive(Clone, Copy, Debug)]
enum Death {
    After(Duration),
    /// So long after, an owner can be reached by nobody any more, until the coordinator has died.
    CutOffAfter(Duration),
    /// It is an owner that dies.
    OfOwnerAfter(Duration),
    /// An owner dies, and the transaction is polled so often and no more until another node is in
    /// the next view, or has waited for it for a while.
    OfOwnerAtPoll(u32),
}

/// When an owner dies while the transaction is not polled.
const PAUSED: Duration = Duration::from_micros(200);

/// Polls a future so often, and goes on once another one has ended.
async fn paused<T>(future: impl Future<Output = T>, polls: Option<u32>, until: impl Future<Output = ()>) -> T {
    let (mut future, mut until, mut left) = (pin!(future), pin!(until), polls);
    poll_fn(|context| {
        match left {
            Some(0) => {
                ready!(until.as_mut().poll(context));
                left = None;
            }
            _ => left = left.map(|left| left - 1),
        }
        future.as_mut().poll(context)
    })
    .await
}

/// For how long an owner can be reached by nobody: connections break meanwhile, and the others hear
/// what is settled.
const CUT_OFF: Duration = Duration::from_millis(4);

/// Lets a node die. Fails with what is wrong.
fn after_death(protocol: Protocol, backups: usize, seed: u64, death: Death) -> End {
    let config = SimConfig::new(&NicProfile::CONNECTX_4).seed(seed);
    let unwritten = match death {
        Death::CutOffAfter(_) => Some(OWNER),
        Death::OfOwnerAtPoll(_) => Some(NodeId(OWNER.0 - 1)),
        _ => None,
    };
    let is_owner = matches!(death, Death::OfOwnerAfter(_) | Death::OfOwnerAtPoll(_));
    let polls = if let Death::OfOwnerAtPoll(polls) = death { Some(polls) } else { None };
    let config = match seed % 2 {
        _ if is_owner && polls.is_none() => config.chances(FAR),
        1 => config.chances(SLOW),
        _ => config,
    };
    // Verbs lock and write rows where swaps are atomic with the processors'. A node that dies may
    // have written a part of a row.
    let config = match seed % 4 {
        0 | 1 => config,
        _ => config.atomicity(Atomicity::Global).scattered(true).steps(Some(1)),
    };
    let sim = Sim::<NoHtm>::new(OWNERS + 1, config);
    let is_overlooked = seed % 8 >= 4;
    let run = Arc::new(Run { unwritten, is_owner, is_overlooked, polls, ..Run::default() });
    let rings = Rings { backups, recoverable: Some(true), ..Rings::default() };
    let mut nodes = Vec::new();
    for number in 0..=OWNERS {
        let (node, tables) = backed_up(sim.fabric(), number, OWNERS, protocol, rings);
        nodes.push(node.clone());
        let (run, driver) = (Arc::clone(&run), nodes[0].clone());
        let spawned = sim.spawn(NodeId(number), move |spawner: Spawner<'_, _>| {
            let worker = node.worker(spawner.endpoint()).expect("few workers");
            worker.serve(&spawner);
            let endpoint = spawner.endpoint();
            if number == COORDINATOR.0 {
                spawner.spawn(Arc::clone(&run).writes(worker, tables, driver)).expect("it runs");
            } else {
                if number == 0 {
                    spawner.spawn(Arc::clone(&run).judges(node, worker, tables)).expect("it runs");
                }
                spawner.spawn(async move { endpoint.until(|| run.is_over.load(SeqCst)).await }).expect("it runs");
            }
        });
        spawned.expect("room for an endpoint");
    }
    match death {
        Death::After(after) => sim.plan(BEGINS + after, Fault::Crash { node: COORDINATOR }),
        Death::OfOwnerAfter(after) => sim.plan(BEGINS + after, Fault::Crash { node: OWNER }),
        Death::OfOwnerAtPoll(_) => sim.plan(BEGINS + PAUSED, Fault::Crash { node: OWNER }),
        Death::CutOffAfter(after) => {
            sim.plan(BEGINS + after, Fault::Partition((1..=OWNERS).map(NodeId).collect()));
            sim.plan(BEGINS + after + CUT_OFF, Fault::Crash { node: COORDINATOR });
            sim.plan(BEGINS + after + CUT_OFF, Fault::Heal);
        }
    }
    let case = format!("{}, {backups} backups, seed {seed}, {death:?}", protocol.name);
    assert_eq!(sim.run_for(Duration::from_secs(1)), RunEnd::Done, "{case}: it hangs: {run:?}");
    let left = if is_owner { OWNER.0 } else { OWNERS };
    for owner in (0..OWNERS).map(NodeId) {
        let rows: Vec<_> =
            nodes[..usize::from(left)].iter().filter_map(|node| node.rows_of(owner).expect("a store")).collect();
        assert!(rows.windows(2).all(|pair| pair[0] == pair[1]), "{case}: replicas of {owner} differ: {rows:?}");
    }
    match (run.has_happened.load(SeqCst), run.is_acknowledged.load(SeqCst)) {
        (false, _) => End::Undone,
        (true, false) => End::Completed,
        (true, true) => End::Acknowledged,
    }
}

/// Moments of a transaction, from its begin until after its end, in turns of seeds.
fn moments(from: u64, usual: u64) -> impl Iterator<Item = (u64, Duration)> {
    (0..rounds(usual)).map(move |round| (round, Duration::from_nanos(from + round * 7_919 % (110_000 - from))))
}

#[test]
fn a_transaction_is_whole_whenever_its_coordinator_dies() {
    for protocol in Protocol::with_names() {
        let backups = [0, 1, 2].into_iter();
        let cases = backups.flat_map(|backups| moments(0, 14).map(move |(seed, after)| (backups, seed, after)));
        let dies = |(backups, seed, after)| after_death(protocol, backups, seed, Death::After(after));
        let ends: Vec<End> = cases.map(dies).collect();
        let has = |end| ends.contains(&end);
        assert!(has(End::Undone) && has(End::Acknowledged), "{}: too late, or too soon: {ends:?}", protocol.name);
    }
}

#[test]
fn what_an_owner_has_not_heard_is_carried_out_when_the_coordinator_dies() {
    for protocol in Protocol::with_names() {
        let ends: Vec<End> = moments(0, 14)
            .map(|(seed, after)| after_death(protocol, seed as usize / 2 % 2, seed, Death::CutOffAfter(after)))
            .collect();
        assert!(ends.iter().any(|end| *end != End::Undone), "{}: too soon: {ends:?}", protocol.name);
    }
}

#[test]
fn records_that_are_settled_before_an_owner_has_heard_are_found() {
    assert!(is_found(Mutation::SettledTooSoon, Death::CutOffAfter));
}

#[test]
fn a_transaction_goes_on_whenever_an_owner_dies() {
    for protocol in Protocol::with_names() {
        for (seed, after) in moments(0, 14) {
            let end = after_death(protocol, 1 + seed as usize % 2, seed, Death::OfOwnerAfter(after));
            assert_eq!(end, End::Acknowledged, "{}", protocol.name);
        }
    }
}

#[test]
fn a_transaction_goes_on_wherever_it_was_when_the_view_changed() {
    for protocol in Protocol::with_names() {
        for polls in 0..40 {
            let end = after_death(protocol, 1, 0, Death::OfOwnerAtPoll(polls));
            assert_eq!(end, End::Acknowledged, "{}", protocol.name);
        }
    }
}

#[test]
fn transactions_that_are_decided_in_a_closed_view_are_found() {
    let is_whole = |polls| after_death(Protocol::DRTM_H, 1, 0, Death::OfOwnerAtPoll(polls));
    let is_found =
        |polls| catch_unwind(|| Setup::faulty(Mutation::DecidedAfterPrepare).run(|| is_whole(polls))).is_err();
    assert!((0..40).any(is_found));
}

/// Whether a fault is found at some moment of the commit.
fn is_found(fault: Mutation, death: fn(Duration) -> Death) -> bool {
    moments(35_000, 200).any(|(seed, after)| {
        let protocol = [Protocol::FASST, Protocol::DRTM_H][seed as usize % 2];
        catch_unwind(|| Setup::faulty(fault).run(|| after_death(protocol, 1, seed / 2, death(after)))).is_err()
    })
}

#[test]
fn completing_all_that_has_records_is_found() {
    assert!(is_found(Mutation::AllCompleted, Death::After));
}

#[test]
fn undoing_all_is_found() {
    assert!(is_found(Mutation::AllUndone, Death::After));
}

#[test]
fn locks_that_are_freed_too_soon_are_found() {
    assert!(is_found(Mutation::UnlockedBeforeCarried, Death::After));
}

#[test]
fn nodes_that_end_while_the_view_changes_and_are_taken_for_quiet_are_found() {
    assert!(is_found(Mutation::EndsOverlooked, Death::After));
}

/// Moments at which verbs write rows, in clusters where they do.
fn writing() -> impl Iterator<Item = (u64, Duration)> {
    (0..rounds(60)).map(|round| (4 * round + 2, Duration::from_nanos(58_000 + round * 7_919 % 6_000)))
}

#[test]
fn a_row_of_which_a_part_was_written_is_carried_out() {
    for protocol in [Protocol::DRTM, Protocol::DRTM_H] {
        for (seed, after) in writing() {
            after_death(protocol, 1, seed, Death::After(after));
        }
    }
}

#[test]
fn rows_that_stay_torn_are_found() {
    let dies = |(seed, after)| after_death(Protocol::DRTM_H, 1, seed, Death::After(after));
    let is_found = |moment| catch_unwind(|| Setup::faulty(Mutation::TornRowsLeft).run(|| dies(moment))).is_err();
    assert!(writing().any(is_found));
}
