//! What each phase of each protocol costs, counted exactly: messages, verbs and round trips.

use std::sync::{Arc, Mutex};

use drtm_htm::NoHtm;
use drtm_rdma::{Counters, Fabric, Phase};
use drtm_txn::Transaction as _;
use drtm_txn::cluster::{Protocol, Worker};

use crate::bed::{Bed, Script, Size, Tables, Tested};

/// What a phase has done: calls, READs, compare-and-swaps, WRITEs, and doorbells that are waited
/// for.
type Spent = [u64; 5];

fn spent(counters: &Counters, phase: Phase) -> Spent {
    let of = counters[phase];
    [of.calls, of.reads, of.compare_swaps, of.writes, of.round_trips]
}

/// Transactions of the last node, which read so many rows and write as many others of the others.
#[derive(Clone)]
struct Counted {
    owners: u16,
    reads: u64,
    writes: u64,
    /// What the last transaction has done.
    measured: Arc<Mutex<Counters>>,
}

impl Script for Counted {
    async fn run<'e, F: Fabric<Engine = NoHtm>>(self, worker: Worker<'e, F, Tested>, tables: Tables, number: u64) {
        if number < u64::from(self.owners) {
            return;
        }
        let rows = self.reads + self.writes;
        let filled = worker.transact(async |tx| {
            for row in 0..rows {
                tx.put(tables.words, row, vec![0; 8]).await?;
            }
            Ok(())
        });
        filled.await.expect("room");
        // The first makes acquaintance with all.
        for _ in 0..3 {
            worker.settle().await;
            let before = worker.endpoint().counters();
            let changed = worker.transact(async |tx| {
                tx.prefetch(tables.words, 0..rows).await?;
                for row in 0..self.writes {
                    tx.update(tables.words, row, |value| value[0] += 1).await?;
                }
                Ok(())
            });
            changed.await.expect("no other client is here");
            worker.settle().await;
            *self.measured.lock().expect("no thread panics") = worker.endpoint().counters() - before;
        }
    }
}

/// Runs transactions that read so many rows and write as many others, of so many owners. Gives what
/// the phases of the last one have done: reading, locking, validating, writing.
fn run(bed: &Bed, protocol: Protocol, owners: u16, reads: u64, writes: u64) -> [Spent; 4] {
    let measured = Arc::new(Mutex::new(Counters::default()));
    let script = Counted { owners, reads, writes, measured: Arc::clone(&measured) };
    bed.run(Size { nodes: owners + 1, owners, coroutines: 1, protocol }, &script);
    let counters = *measured.lock().expect("no thread panics");
    [Phase::Execute, Phase::Lock, Phase::Validate, Phase::Commit].map(|phase| spent(&counters, phase))
}

/// Cases on a bed of each kind, where swaps are atomic with the processors'.
fn on_beds<C: Copy>(cases: impl IntoIterator<Item = C> + Clone) -> impl Iterator<Item = (Bed, C)> {
    let beds = [Bed::perfect(), Bed::Shm, Bed::Tcp, Bed::atomic(1)];
    beds.into_iter().flat_map(move |bed| cases.clone().into_iter().map(move |case| (bed.clone(), case)))
}

fn name(bed: &Bed) -> &'static str {
    match bed {
        Bed::Local(_) => "in a process",
        Bed::Shm => "on shared memory",
        Bed::Tcp => "over TCP",
        Bed::Sim(_) => "in simulation",
        #[cfg(feature = "verbs")]
        Bed::Verbs(_) => "by a NIC",
    }
}

/// What reading rows costs that are looked up: of each the bucket, and then the record. Buckets
/// that come at different times are followed by doorbells of their own.
fn looked_up(bed: &Bed, (rows, owners): (u64, u64), [.., round_trips]: Spent) -> Spent {
    let doorbells = match bed {
        Bed::Local(_) => 2 * owners,
        _ => round_trips.clamp(2 * owners, owners + rows),
    };
    [0, 2 * rows, 0, 0, doorbells]
}

/// How many rows are read and how many are written, and of how many owners.
const CASES: [(u16, u64, u64); 6] = [(1, 0, 1), (1, 3, 3), (1, 10, 10), (3, 0, 3), (3, 3, 3), (3, 12, 12)];

fn cases() -> impl Iterator<Item = (Bed, (u16, u64, u64))> {
    on_beds(CASES)
}

const NOTHING: Spent = [0; 5];

/// What validating so many rows costs: of each the line with its header, and of each owner its view
/// and its turn, in one doorbell for each owner.
fn validated(rows: u64, owners: u64) -> Spent {
    if rows == 0 { NOTHING } else { [0, rows + owners, 0, 0, owners] }
}

#[test]
fn by_message_a_phase_is_one_call_of_each_owner() {
    for (bed, (owners, reads, writes)) in cases() {
        let (on, each) = (name(&bed), u64::from(owners));
        let call = [each, 0, 0, 0, each];
        let validate = if reads == 0 { NOTHING } else { call };
        let spent = run(&bed, Protocol::FASST, owners, reads, writes);
        assert_eq!(spent, [call, call, validate, call], "{on}: {owners} owners, {reads} reads, {writes} writes");
    }
}

#[test]
fn rows_are_read_and_validated_one_sidedly() {
    for (bed, (owners, reads, writes)) in cases() {
        let (on, each, rows) = (name(&bed), u64::from(owners), reads + writes);
        let call = [each, 0, 0, 0, each];
        let spent = run(&bed, Protocol::FARM, owners, reads, writes);
        let execute = looked_up(&bed, (rows, each), spent[0]);
        let validate = validated(reads, each);
        assert_eq!(spent, [execute, call, validate, call], "{on}: {owners} owners, {reads} reads, {writes} writes");
    }
}

#[test]
fn every_phase_is_one_doorbell_for_each_owner() {
    for protocol in [Protocol::DRTM_OCC, Protocol::DRTM_H] {
        for (bed, (owners, reads, writes)) in cases() {
            let (on, each) = (name(&bed), u64::from(owners));
            // The bucket is remembered.
            let execute = [0, reads + writes, 0, 0, each];
            // Of each row the lock and the record; of each owner its line.
            let lock = [0, writes + each, writes, 0, each];
            // Of each row the version with the value, and the lock.
            let commit = [0, 0, 0, 2 * writes, each];
            let (name, spent) = (protocol.name, run(&bed, protocol, owners, reads, writes));
            let validate = validated(reads, each);
            assert_eq!(
                spent,
                [execute, lock, validate, commit],
                "{name} {on}: {owners} owners, {reads} reads, {writes} writes"
            );
        }
    }
}

/// A read-only transaction reads and validates: two rounds. One that reads a single row by message
/// found it unlocked, and has nothing to validate.
#[test]
fn a_read_only_transaction_is_two_rounds_at_most() {
    for (bed, (owners, reads)) in on_beds([(1, 1), (1, 3), (1, 10), (3, 3), (3, 9)]) {
        let (on, each) = (name(&bed), u64::from(owners));
        let call = [each, 0, 0, 0, each];
        let validate = if reads == 1 { NOTHING } else { call };
        let spent = run(&bed, Protocol::FASST, owners, reads, 0);
        assert_eq!(spent, [call, NOTHING, validate, NOTHING], "{on}: {owners} owners, {reads} reads");
        let validate = validated(reads, each);
        for (protocol, remembers) in [(Protocol::FARM, false), (Protocol::DRTM_OCC, true), (Protocol::DRTM_H, true)] {
            let spent = run(&bed, protocol, owners, reads, 0);
            let execute = if remembers { [0, reads, 0, 0, each] } else { looked_up(&bed, (reads, each), spent[0]) };
            let name = protocol.name;
            assert_eq!(spent, [execute, NOTHING, validate, NOTHING], "{name} {on}: {owners} owners, {reads} reads");
        }
    }
}

/// What transactions do in an ordered table of another node, beside the same in a hash table.
#[derive(Clone)]
struct Sorted {
    owners: u16,
    /// What scans of 10 and of 100 rows have done, and insertions into a hash table and into an
    /// ordered one.
    measured: Arc<Mutex<[Counters; 4]>>,
}

impl Script for Sorted {
    async fn run<'e, F: Fabric<Engine = NoHtm>>(self, worker: Worker<'e, F, Tested>, tables: Tables, number: u64) {
        if number < u64::from(self.owners) {
            return;
        }
        for first in (0..200).step_by(20) {
            let filled = worker.transact(async |tx| {
                for row in first..first + 20 {
                    tx.put(tables.sorted_words, row, vec![0; 8]).await?;
                }
                tx.put(tables.words, first, vec![0; 8]).await
            });
            filled.await.expect("room");
        }
        let scan = async |rows: u64| {
            let found = worker
                .transact(async |tx| Ok(tx.range_limit(tables.sorted_words, 0..rows, usize::MAX).await?.len() as u64));
            assert_eq!(found.await.expect("no other client is here"), rows);
        };
        let before = worker.endpoint().counters();
        scan(10).await;
        let ten = worker.endpoint().counters();
        scan(100).await;
        let hundred = worker.endpoint().counters();
        worker.transact(async |tx| tx.insert(tables.words, 1_001, vec![1; 8]).await).await.expect("room");
        worker.settle().await;
        let hashed = worker.endpoint().counters();
        worker.transact(async |tx| tx.insert(tables.sorted_words, 1_001, vec![1; 8]).await).await.expect("room");
        worker.settle().await;
        let sorted = worker.endpoint().counters();
        *self.measured.lock().expect("no thread panics") =
            [ten - before, hundred - ten, hashed - hundred, sorted - hashed];
    }
}

/// A range is one round trip to read, and one to validate; inserting into an ordered table takes no
/// more than inserting into a hash table, where verbs look for the key first.
#[test]
fn an_ordered_table_takes_no_more_rounds_than_a_hash_table() {
    for protocol in [Protocol::FASST, Protocol::FARM, Protocol::DRTM_H] {
        for (bed, owners) in on_beds([1, 3]) {
            let measured = Arc::new(Mutex::new([Counters::default(); 4]));
            let script = Sorted { owners, measured: Arc::clone(&measured) };
            bed.run(Size { nodes: owners + 1, owners, coroutines: 1, protocol }, &script);
            let [ten, hundred, hashed, sorted] = *measured.lock().expect("no thread panics");
            let (on, each) = (name(&bed), u64::from(owners));
            let call = [each, 0, 0, 0, each];
            for scanned in [ten, hundred] {
                let spent = [Phase::Execute, Phase::Validate].map(|phase| spent(&scanned, phase));
                assert_eq!(spent, [call, call], "{} {on}: {owners} owners", protocol.name);
            }
            for phase in [Phase::Execute, Phase::Lock, Phase::Validate, Phase::Commit] {
                let [hashed, sorted] = [hashed, sorted].map(|inserted| spent(&inserted, phase));
                assert!(sorted[4] <= hashed[4], "{} {on}: {phase:?}: {sorted:?}, {hashed:?}", protocol.name);
            }
        }
    }
}
