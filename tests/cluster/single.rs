//! Single reads: what a transaction of one row has seen is no older than what others saw before it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_rdma::{Atomicity, Chances, Fabric, SimConfig, Tearing};
use drtm_testing::rounds;
use drtm_txn::{
    Mutation, Transaction as _,
    cluster::{Protocol, Worker},
};

use crate::bed::{Bed, Script, Setup, Size, Tables, Tested};

const WRITES: u64 = 60;

/// One coroutine counts in a row of each owner, all in one transaction. The others read these rows
/// in turn, each in a transaction of its own.
#[derive(Clone, Default)]
struct Readers {
    written: Arc<AtomicU64>,
    /// How often a row was older than one that was read before it.
    older: Arc<AtomicU64>,
}

/// The coroutine that writes, on the node that owns nothing.
const WRITER: u64 = 8;

impl Script for Readers {
    async fn run<'e, F: Fabric<Engine = NoHtm>>(self, worker: Worker<'e, F, Tested>, tables: Tables, number: u64) {
        if number == WRITER {
            for turn in 0..WRITES {
                let written = worker.transact(async |tx| {
                    tx.get_many(tables.words, [0, 1]).await?;
                    tx.put(tables.words, 0, &turn.to_le_bytes()[..]).await?;
                    tx.put(tables.words, 1, &turn.to_le_bytes()[..]).await
                });
                written.await.expect("all nodes are here");
                self.written.store(turn + 1, SeqCst);
            }
            return;
        }
        worker.endpoint().until(|| self.written.load(SeqCst) > 0).await;
        let mut last = 0;
        for row in [0, 1].into_iter().cycle() {
            let read = worker.transact(async |tx| tx.get(tables.words, row).await).await;
            let value = read.expect("all nodes are here").expect("it was written");
            let value = u64::from_le_bytes(value[..].try_into().expect("eight bytes"));
            self.older.fetch_add(u64::from(value < last), SeqCst);
            last = value;
            if self.written.load(SeqCst) == WRITES {
                break;
            }
        }
    }
}

/// How often a row was older than one that was read before it, where a READ fetches each word by
/// itself: the version before the row is written, for example, and the state after it is unlocked.
/// READs are slow, so that a whole WRITE fits between two words, and WRITEs are often late.
fn older(seed: u64) -> u64 {
    let late = Chances { delay: 0.2, at_most: Duration::from_micros(40), loss: 0.01, ..Chances::NONE };
    let config = SimConfig::harsh(seed).tearing(Tearing::Words).steps(Some(1)).atomicity(Atomicity::Global);
    let config = config.read_step(Duration::from_micros(2)).jitter(Duration::from_micros(3)).chances(late);
    let readers = Readers::default();
    let size = Size { nodes: 3, owners: 2, coroutines: 4, protocol: Protocol::DRTM_H };
    Bed::Sim(Box::new(config)).run(size, &readers);
    readers.older.load(SeqCst)
}

#[test]
fn single_reads_follow_each_other() {
    assert!((0..rounds(10)).all(|seed| older(seed) == 0));
}

#[test]
fn single_reads_that_are_not_validated_are_found() {
    let found = Setup::faulty(Mutation::SingleReadsBelieved).run(|| (0..rounds(200)).any(|seed| older(seed) > 0));
    assert!(found, "no row is older than one that was read before it");
}
