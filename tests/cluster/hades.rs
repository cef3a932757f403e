//! Protocols that find conflicts by cache lines: what random transactions saw and left must be
//! strictly serializable, and deliberate faults of the simulated hardware must be found.
//!
//! What transactions do besides is tested where it is for all protocols: programs whose futures are
//! dropped, indexes, ranges, savepoints, claims, deadlines, nodes that close.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc,
    thread,
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_rdma::{
    Fabric, LocalConfig, LocalFabric, NodeId, ShmConfig, ShmFabric,
    machine::{Mutation as Fault, with_fault},
};
use drtm_testing::rounds;
use drtm_txn::{
    Builder, Db, Error, Mutation, Transaction as _,
    cluster::{ClusterError, Node, Protocol, Worker},
};
use fastrand::Rng;

use crate::{
    bed::{Bed, Rings, Script, Setup, Size, Tables, Tested, WORDS, disks},
    history::{SIZES, anomalies, logged_anomalies, slow_anomalies},
};

/// All such protocols.
pub(crate) const BY_LINES: [Protocol; 2] = [Protocol::HADES, Protocol::HADES_H];

/// The most nanoseconds between two steps of slow transactions.
const PAUSE: u64 = 2_000;

/// How long a run may take that usually takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

fn check(bed: impl Fn(u64) -> Bed, seeds: u64) {
    for protocol in BY_LINES {
        for seed in 0..rounds(seeds) {
            let (size, keys) = (Size { protocol, ..SIZES[seed as usize % 2] }, [2, 6, 40][seed as usize % 3]);
            let anomalies = anomalies(&bed(seed), size, keys, 25, seed);
            let told: Vec<String> = anomalies.iter().map(ToString::to_string).collect();
            assert!(told.is_empty(), "seed {seed}, {size:?}:\n{}", told.join("\n"));
        }
    }
}

#[test]
fn histories_of_simulated_clusters_are_serializable() {
    check(Bed::simulated, 20);
}

#[test]
fn histories_of_simulated_clusters_that_lose_messages_are_serializable() {
    check(Bed::rough, 20);
}

#[test]
fn histories_of_simulated_clusters_of_datagrams_are_serializable() {
    check(Bed::of_datagrams, 10);
}

#[test]
fn histories_of_threads_are_serializable() {
    check(|_| Bed::perfect(), 4);
}

#[test]
fn histories_of_threads_on_a_harsh_fabric_are_serializable() {
    check(Bed::harsh, 4);
}

/// On two processors of each node, and with pauses, so that transactions of one node meet.
#[test]
fn histories_of_slow_transactions_are_serializable() {
    for protocol in BY_LINES {
        for seed in 0..rounds(6) {
            let nodes = if seed % 2 == 0 { 1 } else { 3 };
            let size = Size { nodes, owners: nodes, coroutines: 4, protocol };
            let anomalies = slow_anomalies(&Bed::simulated(seed), size, (2 + seed % 3, 25), seed, PAUSE);
            assert!(anomalies.is_empty(), "{}, seed {seed}", protocol.name);
        }
    }
}

/// More transactions at a time than a node has filters: they wait for each other's.
#[test]
fn histories_of_many_transactions_of_one_node_are_serializable() {
    for protocol in BY_LINES {
        let size = Size { nodes: 2, owners: 2, coroutines: 14, protocol };
        for seed in 0..rounds(3) {
            assert!(anomalies(&Bed::simulated(seed), size, 40, 10, seed).is_empty(), "{}, seed {seed}", protocol.name);
        }
    }
}

/// Each node's log has whole commits.
#[test]
fn histories_of_nodes_with_disks_are_serializable() {
    for protocol in BY_LINES {
        for seed in 0..rounds(3) {
            let (size, rings) = (Size { protocol, ..SIZES[0] }, Rings { disks: disks(3), ..Rings::default() });
            let anomalies = logged_anomalies(&Bed::simulated(seed), size, (6, 15), seed, rings);
            assert!(anomalies.is_empty(), "{}, seed {seed}", protocol.name);
        }
    }
}

/// Transactions that insert rows under the next number, as orders have lines: how many, each run
/// draws anew. So a row that a run has inserted in vain may be inserted by none later.
#[derive(Clone)]
struct Orders {
    seed: u64,
}

impl Orders {
    /// Of each coroutine.
    const TRANSACTIONS: u64 = 20;
    /// The row that has the next number, before all others.
    const NEXT: u64 = 0;
    /// The most lines of an order.
    const LINES: u64 = 8;
    /// How many local transactions there are between attempts to take out what was left behind.
    const TURN: u64 = 32;

    /// Has what was left behind taken out of the node, but for what a transaction keeps.
    fn take_out(db: &Db<Tested>) {
        let words = db.table(WORDS).expect("it is there");
        for _ in 0..Self::TURN {
            assert!(!db.transact(|tx| tx.contains(words, u64::MAX)).expect("nothing is written"));
        }
    }
}

impl Script for Orders {
    async fn run<'e, F: Fabric<Engine = NoHtm>>(self, worker: Worker<'e, F, Tested>, tables: Tables, number: u64) {
        let (words, mut random) = (tables.words, Rng::with_seed(self.seed << 16 | number));
        for _ in 0..Self::TRANSACTIONS {
            let ended = worker.transact(async |tx| {
                let next = tx.get(words, Self::NEXT).await?.map_or(1, |row| u64::from(row[0]) | u64::from(row[1]) << 8);
                for line in 0..random.u64(1..=Self::LINES) {
                    tx.insert(words, next * Self::LINES + line, [7; 20]).await?;
                    Self::take_out(worker.local());
                }
                tx.put(words, Self::NEXT, ((next + 1) as u16).to_le_bytes()).await
            });
            ended.await.expect("it commits");
        }
    }

    /// There is a record for each row, and no other.
    fn look<F: Fabric<Engine = NoHtm>>(&self, nodes: &[Node<F, Tested>]) {
        let most = Self::TRANSACTIONS * SIZES[0].coroutines * nodes.len() as u64;
        for node in nodes {
            let db = node.local();
            let words = db.table(WORDS).expect("it is there");
            Self::take_out(db);
            let is_there = |key: &u64| db.transact(|tx| tx.contains(words, key)).expect("no others run");
            let rows = (0..(most + 2) * Self::LINES).filter(is_there).count() as u64;
            let records = db.tables().expect("a store").into_iter().find(|(name, _)| *name == "words");
            assert_eq!(records, Some(("words", rows)), "at {}, seed {}", node.id(), self.seed);
        }
    }
}

/// A record that was made in vain stays while another transaction has its lines locked, which may
/// insert the same row, or one in the same lines. Afterwards it is taken out all the same, if none
/// is about to write it.
#[test]
fn no_records_are_left_of_insertions_that_do_not_commit() {
    for protocol in BY_LINES {
        for seed in 0..rounds(4) {
            Bed::simulated(seed).run(Size { protocol, ..SIZES[0] }, &Orders { seed });
        }
    }
}

/// Runs random transactions on a cluster with a fault, until an anomaly is found, or a run fails.
fn finds(what: &str, with: impl Fn(&mut dyn FnMut()) + Copy + Send + 'static, protocol: Protocol) {
    finds_in(what, with, (Size { protocol, ..SIZES[0] }, 0));
}

/// Like [`finds`], on a cluster of this size, and with pauses of so many nanoseconds at most.
fn finds_in(what: &str, with: impl Fn(&mut dyn FnMut()) + Copy + Send + 'static, (size, pause): (Size, u64)) {
    let found = (0..rounds(100)).any(|seed| {
        let keys = 2 + seed % 3;
        let run = move || {
            let mut found = false;
            with(&mut || {
                let anomalies = slow_anomalies(&Bed::simulated(seed), size, (keys, 40), seed, pause);
                found = !anomalies.is_empty();
            });
            found
        };
        let (tell, told) = mpsc::channel();
        thread::spawn(move || tell.send(catch_unwind(AssertUnwindSafe(run))));
        // A transaction may notice before the checker does, or wait for ever.
        !matches!(told.recv_timeout(PATIENCE), Ok(Ok(false)))
    });
    assert!(found, "nothing of {what} with {}", size.protocol.name);
}

/// Runs on machines with this fault.
fn finds_fault(fault: Fault, protocols: &[Protocol]) {
    for protocol in protocols {
        finds(&format!("{fault:?}"), move |run| with_fault(Some(fault), run), *protocol);
    }
}

#[test]
fn lines_that_are_intended_and_not_locked_are_found() {
    finds_fault(Fault::IntendedNotLocked, &BY_LINES);
}

#[test]
fn squashes_that_mark_no_filter_are_found() {
    finds_fault(Fault::SquashesNotMarked, &BY_LINES);
}

#[test]
fn recorded_bits_that_outlive_their_transaction_are_found() {
    finds_fault(Fault::RecordedOutlives, &[Protocol::HADES]);
}

/// On one processor, a transaction accesses what it has written again when it commits, as another
/// one ran meanwhile. That finds the reader.
#[test]
fn tags_that_are_not_checked_are_found() {
    let size = Size { nodes: 1, owners: 1, coroutines: 4, protocol: Protocol::HADES };
    let with = |run: &mut dyn FnMut()| with_fault(Some(Fault::TagsNotChecked), run);
    finds_in("unchecked tags", with, (size, PAUSE));
}

#[test]
fn readers_of_a_node_that_its_writers_do_not_check_are_found() {
    finds_fault(Fault::ReadersNotChecked, &[Protocol::HADES]);
}

#[test]
fn write_filters_that_committers_do_not_check_are_found() {
    finds_fault(Fault::WritesNotChecked, &[Protocol::HADES]);
}

#[test]
fn transactions_of_a_node_that_committers_do_not_squash_are_found() {
    finds_fault(Fault::LocalsNotSquashed, &[Protocol::HADES]);
}

#[test]
fn transactions_of_other_nodes_that_committers_do_not_squash_are_found() {
    finds_fault(Fault::GuestsNotSquashed, &BY_LINES);
}

#[test]
fn acknowledgements_without_a_lock_are_found() {
    finds_fault(Fault::AckWithoutLock, &BY_LINES);
}

#[test]
fn accesses_of_other_nodes_that_pass_locks_are_found() {
    finds_fault(Fault::FetchPassesLock, &BY_LINES);
}

#[test]
fn accesses_of_a_node_that_pass_locks_are_found() {
    finds_fault(Fault::AccessPassesLock, &[Protocol::HADES]);
}

#[test]
fn filters_that_outlive_their_transaction_are_found() {
    finds_fault(Fault::FiltersOutlive, &BY_LINES);
}

/// In HADES-H, lines do not show what its own node has changed.
#[test]
fn commits_without_a_validation_of_what_lines_do_not_show_are_found() {
    for protocol in BY_LINES {
        let without = |run: &mut dyn FnMut()| Setup::faulty(Mutation::CommitWithoutValidation).run(run);
        finds("no validation by software", without, protocol);
    }
}

#[test]
fn guards_of_ranges_that_are_not_validated_are_found() {
    for protocol in BY_LINES {
        let despite = |run: &mut dyn FnMut()| Setup::faulty(Mutation::CommitDespitePhantoms).run(run);
        finds("no guards", despite, protocol);
    }
}

fn start<F: Fabric<Engine = NoHtm>>(fabric: &F, protocol: Protocol, backups: usize) -> Result<Node<F, Tested>, Error> {
    let builder = Builder::new().memory(16 << 20);
    let node = Node::<F, Tested>::builder_for(NoHtm, fabric, NodeId(0), builder, protocol)?;
    node.owners((0..2).map(NodeId))?.backups(backups)?.start()
}

#[test]
fn a_fabric_without_a_smart_nic_is_refused() {
    let directory = std::env::temp_dir().join(format!("drtm-lines-{}", std::process::id()));
    let config = ShmConfig::new("lines", NodeId(0)).directory(&directory);
    let fabric = ShmFabric::join(NoHtm, config).expect("a group");
    for protocol in BY_LINES {
        let refused = start(&fabric, protocol, 0).expect_err("no NIC tracks lines");
        let Error::Cluster(ClusterError::NoSmartNic { protocol: name }) = &refused else { panic!("{refused}") };
        assert!(*name == protocol.name && refused.to_string().contains("choose another protocol"), "{refused}");
    }
    assert!(start(&fabric, Protocol::FASST, 0).is_ok());
    std::fs::remove_dir_all(&directory).expect("it is there");
}

#[test]
fn backups_are_refused() {
    let fabric = LocalFabric::<NoHtm>::new(2, LocalConfig::perfect());
    for protocol in BY_LINES {
        let refused = start(&fabric, protocol, 1).expect_err("no records are written");
        assert!(matches!(refused, Error::Cluster(ClusterError::NotWithProtocol { what: "backups", .. })), "{refused}");
        assert_eq!(Protocol::named(protocol.name), Some(protocol));
    }
}
