//! What each phase of each protocol costs, counted exactly: messages, verbs and round trips.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
};

use drtm_htm::NoHtm;
use drtm_rdma::{Counters, Executor, LocalConfig, LocalFabric, Phase};
use drtm_txn::Transaction as _;
use drtm_txn::cluster::{Node, Protocol};

use crate::bed::{Tables, Tested, node};

type Local = LocalFabric<NoHtm>;

/// What a phase has done: calls, READs, compare-and-swaps, WRITEs, and doorbells that are waited
/// for.
type Spent = [u64; 5];

fn spent(counters: &Counters, phase: Phase) -> Spent {
    let of = counters[phase];
    [of.calls, of.reads, of.compare_swaps, of.writes, of.round_trips]
}

/// Runs transactions that read so many rows and write as many others, of so many owners. Gives what
/// the phases of the last one have done: reading, locking, validating, writing.
fn run(protocol: Protocol, owners: u16, reads: u64, writes: u64) -> [Spent; 4] {
    let fabric = Local::new(owners + 1, LocalConfig::perfect());
    let nodes: Vec<(Node<Local, Tested>, Tables)> =
        (0..=owners).map(|number| node(&fabric, number, owners, protocol)).collect();
    let done = &AtomicBool::new(false);
    let measured = Arc::new(Mutex::new(Counters::default()));
    thread::scope(|scope| {
        for (node, _) in &nodes[..usize::from(owners)] {
            scope.spawn(move || {
                let endpoint = node.endpoint().expect("room for an endpoint");
                let mut executor = Executor::new(&endpoint);
                node.worker(&endpoint).expect("few workers").serve(&executor.spawner());
                executor.spawn(endpoint.until(|| done.load(SeqCst)));
                executor.run();
            });
        }
        let (client, tables) = &nodes[usize::from(owners)];
        let endpoint = client.endpoint().expect("room for an endpoint");
        let worker = client.worker(&endpoint).expect("few workers");
        let mut executor = Executor::new(&endpoint);
        worker.serve(&executor.spawner());
        let (tables, seen) = (*tables, Arc::clone(&measured));
        executor.spawn(async move {
            let rows = reads + writes;
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
                    for row in 0..writes {
                        tx.update(tables.words, row, |value| value[0] += 1).await?;
                    }
                    Ok(())
                });
                changed.await.expect("no other client is here");
                worker.settle().await;
                *seen.lock().expect("no thread panics") = worker.endpoint().counters() - before;
            }
        });
        executor.run();
        done.store(true, SeqCst);
    });
    let counters = *measured.lock().expect("no thread panics");
    [Phase::Execute, Phase::Lock, Phase::Validate, Phase::Commit].map(|phase| spent(&counters, phase))
}

/// How many rows are read and how many are written, and of how many owners.
const CASES: [(u16, u64, u64); 6] = [(1, 0, 1), (1, 3, 3), (1, 10, 10), (3, 0, 3), (3, 3, 3), (3, 12, 12)];

const NOTHING: Spent = [0; 5];

/// What validating so many rows costs: of each, state, version and head, and the turn. The first
/// three are one READ, or three if they are in two lines, which is for the record's place to say.
/// Of each owner its view. All are one doorbell for each owner.
fn validated(rows: u64, owners: u64, [_, reads, ..]: Spent) -> Spent {
    let of_rows = reads - if rows == 0 { 0 } else { owners };
    assert!((2 * rows..=4 * rows).contains(&of_rows) && of_rows % 2 == 0, "{reads} READs for {rows} rows");
    [0, reads, 0, 0, if rows == 0 { 0 } else { owners }]
}

#[test]
fn by_message_a_phase_is_one_call_of_each_owner() {
    for (owners, reads, writes) in CASES {
        let each = u64::from(owners);
        let call = [each, 0, 0, 0, each];
        let validate = if reads == 0 { NOTHING } else { call };
        let spent = run(Protocol::FASST, owners, reads, writes);
        assert_eq!(spent, [call, call, validate, call], "{owners} owners, {reads} reads, {writes} writes");
    }
}

#[test]
fn rows_are_read_and_validated_one_sidedly() {
    for (owners, reads, writes) in CASES {
        let (each, rows) = (u64::from(owners), reads + writes);
        let call = [each, 0, 0, 0, each];
        // A bucket; then in one doorbell the record, and the turn, which tells its uses apart.
        let execute = [0, 3 * rows, 0, 0, 2 * each];
        let spent = run(Protocol::FARM, owners, reads, writes);
        let validate = validated(reads, each, spent[2]);
        assert_eq!(spent, [execute, call, validate, call], "{owners} owners, {reads} reads, {writes} writes");
    }
}

#[test]
fn every_phase_is_one_doorbell_for_each_owner() {
    for protocol in [Protocol::DRTM_OCC, Protocol::DRTM_H] {
        for (owners, reads, writes) in CASES {
            let each = u64::from(owners);
            // The bucket is remembered.
            let execute = [0, 2 * (reads + writes), 0, 0, each];
            // Of each row the lock, the record and the turn; of each owner the snapshot number with
            // how many snapshots are open, and the view.
            let lock = [0, 2 * writes + each, writes, 0, each];
            // The version is marked; the value; the version; the lock.
            let commit = [0, 0, 0, 4 * writes, each];
            let (name, spent) = (protocol.name, run(protocol, owners, reads, writes));
            let validate = validated(reads, each, spent[2]);
            assert_eq!(
                spent,
                [execute, lock, validate, commit],
                "{name}: {owners} owners, {reads} reads, {writes} writes"
            );
        }
    }
}

/// A read-only transaction reads and validates: two rounds. One that reads a single row by message
/// found it unlocked, and has nothing to validate.
#[test]
fn a_read_only_transaction_is_two_rounds_at_most() {
    for (owners, reads) in [(1, 1), (1, 3), (1, 10), (3, 3), (3, 9)] {
        let each = u64::from(owners);
        let call = [each, 0, 0, 0, each];
        let validate = if reads == 1 { NOTHING } else { call };
        let spent = run(Protocol::FASST, owners, reads, 0);
        assert_eq!(spent, [call, NOTHING, validate, NOTHING], "{owners} owners, {reads} reads");
        for (protocol, lookups) in [(Protocol::FARM, 1), (Protocol::DRTM_OCC, 0), (Protocol::DRTM_H, 0)] {
            // Buckets, unless they are remembered; records and turns.
            let execute = [0, (2 + lookups) * reads, 0, 0, (1 + lookups) * each];
            let spent = run(protocol, owners, reads, 0);
            let validate = validated(reads, each, spent[2]);
            let name = protocol.name;
            assert_eq!(spent, [execute, NOTHING, validate, NOTHING], "{name}: {owners} owners, {reads} reads");
        }
    }
}
