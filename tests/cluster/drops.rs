//! A transaction that is dropped at any of its awaits holds nothing afterwards, and has happened as
//! a whole or not at all.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    task::Poll,
};

use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::Transaction as _;
use drtm_txn::cluster::{Protocol, Worker};

use crate::bed::{Bed, Rings, Script, Size, Tables, Tested};
use crate::hades::BY_LINES;

#[derive(Clone, Default)]
struct Drops {
    /// Whether transactions fetch their rows before they run.
    fetches: bool,
    /// How many transactions have happened though they were dropped.
    happened: Arc<AtomicU32>,
    rings: Rings,
}

/// Polls a future so often, and then drops it. Returns its output, if it has come to its end.
pub(crate) async fn polled<T>(future: impl Future<Output = T>, times: u32) -> Option<T> {
    let mut future = pin!(future);
    let mut left = times;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

impl Script for Drops {
    fn rings(&self) -> Rings {
        self.rings
    }

    async fn run<'e, F: Fabric<Engine = NoHtm>>(self, worker: Worker<'e, F, Tested>, tables: Tables, number: u64) {
        if number > 0 {
            return;
        }
        // Rows of all nodes: one that is changed, one that is moved, one that comes and one that
        // goes.
        let write = async |value: u64, is_longer: bool, is_dropped_after: Option<u32>| {
            let bytes = value.to_le_bytes();
            let longer = [&bytes[..], &[7; 200][..usize::from(is_longer) * 200]].concat();
            let (comes, goes) = (100 + value, 100 + value - 1);
            let optimistic = worker.transact(async |tx| {
                tx.put(tables.words, 1, &bytes[..]).await?;
                tx.update(tables.words, 2, |all| all.clone_from(&longer)).await?;
                tx.insert(tables.words, comes, &bytes[..]).await?;
                tx.put(tables.words, 3, &bytes[..]).await?;
                tx.remove(tables.words, goes).await
            });
            let fetched = worker.transact_on(
                |sets| [1, 2, comes, 3].into_iter().try_for_each(|row| sets.write(tables.words, row)),
                async |rows| {
                    rows.put(tables.words, 1, &bytes[..]).await?;
                    rows.update(tables.words, 2, |all| all.clone_from(&longer)).await?;
                    rows.insert(tables.words, comes, &bytes[..]).await?;
                    rows.put(tables.words, 3, &bytes[..]).await?;
                    // Not declared: it is found out, and then all is locked once more.
                    rows.remove(tables.words, goes).await
                },
            );
            let transaction = async { if self.fetches { fetched.await } else { optimistic.await } };
            match is_dropped_after {
                Some(polls) => polled(transaction, polls).await.is_some(),
                None => {
                    transaction.await.expect("all nodes are here");
                    true
                }
            }
        };
        let opened = worker.transact(async |tx| {
            for row in [1, 2, 3, 100] {
                tx.put(tables.words, row, &0_u64.to_le_bytes()[..]).await?;
            }
            Ok(())
        });
        opened.await.expect("room");
        let (value, happened) = (Cell::new(1), Cell::new(0));
        // With each number of polls the row that is moved becomes shorter once, and longer once.
        let mut have_ended = [false; 2];
        for (polls, is_longer) in (1..).flat_map(|polls| [false, true].map(|is_longer| (polls, is_longer))) {
            let has_ended = write(value.get(), is_longer, Some(polls)).await;
            worker.settle().await;
            let seen = worker.transact(async |tx| {
                let mut seen = Vec::new();
                for row in [1, 2, 3] {
                    let bytes = tx.get(tables.words, row).await?.expect("it was opened");
                    seen.push(u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")));
                }
                let (comes, goes) = (100 + value.get(), 100 + value.get() - 1);
                Ok((seen, tx.contains(tables.words, comes).await?, tx.contains(tables.words, goes).await?))
            });
            let (seen, has_come, has_stayed) = seen.await.expect("all nodes are here");
            let is_done = seen[0] == value.get();
            assert!(seen.iter().all(|row| *row == seen[0]), "after {polls} polls: {seen:?}");
            assert_eq!((has_come, has_stayed), (is_done, !is_done), "after {polls} polls");
            assert!(is_done || !has_ended, "it has committed");
            if is_done {
                value.set(value.get() + 1);
                happened.set(happened.get() + u32::from(!has_ended));
            }
            // Whatever it had locked is free.
            write(value.get(), is_longer, None).await;
            value.set(value.get() + 1);
            have_ended[usize::from(is_longer)] = has_ended;
            if have_ended == [true; 2] {
                break;
            }
        }
        self.happened.fetch_add(happened.get(), SeqCst);
    }
}

const SIZE: Size = Size { nodes: 3, owners: 3, coroutines: 1, protocol: Protocol::FASST };

#[test]
fn a_dropped_transaction_holds_nothing() {
    for protocol in Protocol::ALL.into_iter().chain([Protocol::DRTM]).chain(BY_LINES) {
        let drops = Drops { fetches: protocol.leases, ..Drops::default() };
        for bed in [Bed::perfect(), Bed::Shm, Bed::Tcp, Bed::harsh(1), Bed::atomic(1), Bed::rough(1), Bed::rough(2)] {
            if bed.has(protocol) {
                bed.run(Size { protocol, ..SIZE }, &drops);
            }
        }
        let happened = drops.happened.load(SeqCst);
        // A passive commit waits for nothing once it is decided.
        assert!(protocol.is_passive || happened > 0, "{}: one that is decided is carried out", protocol.name);
    }
}

/// Nothing, and no space in the rings of backups, which are equal to their owners in the end.
#[test]
fn a_dropped_transaction_that_is_logged_holds_nothing() {
    let mut happened = 0;
    for protocol in [Protocol::FASST, Protocol::FARM, Protocol::DRTM_H] {
        let drops = Drops { rings: Rings { backups: 2, bytes: 16 << 10, ..Rings::default() }, ..Drops::default() };
        let simulated = (1..5).flat_map(|seed| [Bed::atomic(seed), Bed::rough(seed)]);
        for bed in [Bed::perfect(), Bed::Shm, Bed::Tcp, Bed::harsh(1)].into_iter().chain(simulated) {
            bed.run(Size { protocol, ..SIZE }, &drops);
        }
        happened += drops.happened.load(SeqCst);
    }
    // In which phase so many polls end depends on when answers come.
    assert!(happened > 0, "one that is decided is carried out");
}
