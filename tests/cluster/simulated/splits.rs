//! Insertions that split a leaf of a range which their own transaction has read.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{
    Error, Mutation, Transaction as _,
    cluster::{ClusterTx, Protocol, Worker},
};

use crate::{
    bed::{Bed, Script, Setup, Size, Tables, Tested},
    drops::polled,
};

/// More rows than a leaf has.
const MOST_ROWS: u64 = 40;

/// Polls within which a commit has placed its rows, and has not locked them.
const MOST_POLLS: u32 = 8;

/// A transaction counts the rows of a range, and inserts one more at its beginning, which may split
/// the leaf. While its commit is under way, another one does the same at the range's end.
#[derive(Clone, Default)]
struct Counts {
    /// Two transactions have committed that both found as many rows.
    is_skewed: Arc<AtomicBool>,
}

/// Counts the rows of a range, and inserts this one.
async fn count<F: Fabric<Engine = NoHtm>>(
    tx: &mut ClusterTx<'_, F, Tested>,
    tables: Tables,
    range: std::ops::Range<u64>,
    key: u64,
) -> Result<usize, Error> {
    let found = tx.range(tables.sorted_words, range).await?.len();
    tx.insert(tables.sorted_words, key, vec![7; 8]).await?;
    Ok(found)
}

impl Script for Counts {
    async fn run<'e, F: Fabric<Engine = NoHtm>>(self, worker: Worker<'e, F, Tested>, tables: Tables, number: u64) {
        // The owner only serves.
        if number == 0 {
            return;
        }
        for (rows, polls) in (1..MOST_ROWS).flat_map(|rows| (1..MOST_POLLS).map(move |polls| (rows, polls))) {
            let range = 1_000 * (rows * u64::from(MOST_POLLS) + u64::from(polls));
            let range = range..range + 1_000;
            let filled = worker.transact(async |tx| {
                for row in 1..=rows {
                    tx.put(tables.sorted_words, range.start + row, vec![7; 8]).await?;
                }
                Ok(())
            });
            filled.await.expect("room");
            let mut one = worker.begin().await;
            let found = count(&mut one, tables, range.clone(), range.start).await.expect("it is alone");
            let mut commit = pin!(one.commit());
            if polled(commit.as_mut(), polls).await.is_some() {
                continue;
            }
            let mut other = worker.begin().await;
            let also = match count(&mut other, tables, range.clone(), range.end - 1).await {
                Ok(also) => other.commit().await.map(|()| also),
                Err(error) => Err(error),
            };
            let is_one = commit.await.is_ok();
            self.is_skewed.fetch_or(is_one && also.is_ok_and(|also| also == found), SeqCst);
        }
    }
}

/// Whether two transactions have committed of which each missed the other's row.
fn is_skewed() -> bool {
    let size = Size { nodes: 2, owners: 1, coroutines: 1, protocol: Protocol::FASST };
    let counts = Counts::default();
    Bed::simulated(1).run(size, &counts);
    counts.is_skewed.load(SeqCst)
}

#[test]
fn a_leaf_that_is_split_off_is_guarded() {
    assert!(!is_skewed());
}

#[test]
fn a_leaf_that_is_split_off_and_not_guarded_is_found() {
    assert!(Setup::faulty(Mutation::SplitsNotGuarded).run(is_skewed));
}
