//! Nodes with threads of their own, and what becomes of transactions that are given to them.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
    mpsc,
};

use drtm_htm::NoHtm;
use drtm_rdma::{LocalConfig, LocalFabric};
use drtm_txn::{
    Error, Transaction as _,
    cluster::{Cluster, Protocol},
};

use crate::bed::{Tables, Tested, node};

type Local = Cluster<LocalFabric<NoHtm>, Tested>;

fn clusters(threads: usize) -> (Local, Local, Tables) {
    let fabric = LocalFabric::<NoHtm>::new(2, LocalConfig::perfect());
    let [(one, tables), (two, _)] = [0, 1].map(|number| node(&fabric, number, 2, Protocol::default()));
    (Cluster::start(one, threads).expect("threads"), Cluster::start(two, threads).expect("threads"), tables)
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

#[test]
fn many_threads_and_tasks_share_a_node() {
    let (one, two, tables) = clusters(2);
    let count = async |cluster: &Local, row: u64| {
        let counted = cluster.transact(async move |tx| {
            let before = tx.get(tables.words, row).await?.map_or(0, |bytes| number(&bytes));
            tx.put(tables.words, row, (before + 1).to_le_bytes().to_vec()).await
        });
        counted.await.expect("both are here");
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    std::thread::scope(|scope| {
        for cluster in [&one, &two, &one, &two] {
            scope.spawn(|| {
                for row in 0..40 {
                    let counted = cluster.transact(async move |tx| {
                        let before = tx.get(tables.words, row % 4).await?.map_or(0, |bytes| number(&bytes));
                        tx.put(tables.words, row % 4, (before + 1).to_le_bytes().to_vec()).await
                    });
                    counted.wait().expect("both are here");
                }
            });
        }
        runtime.block_on(async {
            for row in 0..40 {
                tokio::join!(count(&one, row % 4), count(&two, row % 4));
            }
        });
    });
    let all = one.transact(async move |tx| tx.get_many(tables.words, 0..4).await).wait().expect("both are here");
    let sum: u64 = all.iter().map(|bytes| number(bytes.as_deref().expect("it was written"))).sum();
    assert_eq!(sum, 4 * 40 + 2 * 40);
}

#[test]
fn a_panic_reaches_the_one_that_waits() {
    let (one, _two, tables) = clusters(1);
    let panicking = one.transact(async move |tx| {
        tx.put(tables.words, 1, vec![1]).await?;
        tx.get(tables.words, 2).await?;
        if tx.contains(tables.words, 1).await? {
            panic!("on purpose");
        }
        Ok(())
    });
    let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| panicking.wait()));
    let panic = waited.expect_err("a panic");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
    let found = one.transact(async move |tx| tx.get(tables.words, 1).await).wait().expect("both are here");
    assert_eq!(found, None, "nothing has happened");
}

#[test]
fn what_is_dropped_while_it_is_queued_is_not_run() {
    let (one, _two, tables) = clusters(1);
    let runs = Arc::new(AtomicU64::new(0));
    let (hold, held) = mpsc::channel::<()>();
    let (begun, has_begun) = mpsc::channel();
    // Holds the only thread, which a closure must not do.
    let holding = one.transact(async move |_tx| {
        begun.send(()).expect("it is waited for");
        held.recv().expect("it is let go");
        Ok(())
    });
    has_begun.recv().expect("it begins");
    let counted = Arc::clone(&runs);
    drop(one.transact(async move |tx| {
        counted.fetch_add(1, SeqCst);
        tx.put(tables.words, 1, vec![1]).await
    }));
    hold.send(()).expect("it is waited for");
    holding.wait().expect("nothing is in its way");
    one.close();
    assert_eq!(runs.load(SeqCst), 0);
    let refused = one.transact(async move |tx| tx.get(tables.words, 1).await).wait();
    assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
}
