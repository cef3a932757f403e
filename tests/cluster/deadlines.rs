//! Bounds on how often a transaction is run, and until when; opacity; and the end of a node, which
//! waits for what was begun.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use drtm_htm::NoHtm;
use drtm_rdma::{Fabric, LocalConfig, LocalFabric};
use drtm_txn::{
    Conflict, Error, Options, Transaction as _,
    cluster::{Cluster, Protocol, Worker},
};

use crate::{
    bed::{Bed, Script, Size, Tables, Tested, node},
    directory::Person,
    hades::BY_LINES,
};

pub(crate) type Local = Cluster<LocalFabric<NoHtm>, Tested>;

pub(crate) fn clusters(protocol: Protocol) -> ([Local; 2], Tables) {
    let fabric = LocalFabric::<NoHtm>::new(2, LocalConfig::perfect());
    let [(one, tables), (two, _)] = [0, 1].map(|number| node(&fabric, number, 2, protocol));
    ([one, two].map(|node| Cluster::start(node, 1).expect("threads")), tables)
}

#[test]
fn a_transaction_is_given_up_after_so_many_runs() {
    for protocol in Protocol::ALL.into_iter().chain(BY_LINES) {
        let ([one, two], tables) = clusters(protocol);
        for row in [4, 5] {
            let runs = Arc::new(AtomicU64::new(0));
            let (counted, other) = (Arc::clone(&runs), two.clone());
            let failed = one.transact_with(Options::new().attempts(3), async move |tx| {
                let run = counted.fetch_add(1, SeqCst);
                tx.get(tables.words, row).await?;
                // Another one is always faster.
                other.transact(async move |tx| tx.put(tables.words, row, vec![run as u8; 8]).await).await?;
                tx.put(tables.words, row, vec![9; 8]).await
            });
            match failed.wait() {
                Err(Error::Contended { attempts: 3, table, key, .. }) => {
                    // Of a key that came where there was none, its name is not known.
                    assert!(table.is_none_or(|table| table == "words" && key == row.to_be_bytes()), "{table:?}");
                }
                other => panic!("{}: {other:?}", protocol.name),
            }
            assert_eq!(runs.load(SeqCst), 3);
        }
        // Now both are there.
        let other = two.clone();
        let failed = one.transact_with(Options::new().attempts(1), async move |tx| {
            tx.get_many(tables.words, [4, 5]).await?;
            other.transact(async move |tx| tx.put(tables.words, 5, vec![8; 8]).await).await?;
            tx.put(tables.words, 4, vec![9; 8]).await
        });
        match failed.wait() {
            Err(Error::Contended { attempts: 1, table: Some("words"), key, .. }) => {
                assert_eq!(key, 5_u64.to_be_bytes())
            }
            // Filters do not say which line it was.
            Err(Error::Contended { attempts: 1, table: None, .. }) if BY_LINES.contains(&protocol) => {}
            other => panic!("{}: {other:?}", protocol.name),
        }
        let left = one.transact(async move |tx| tx.get_many(tables.words, [4, 5]).await).wait();
        assert_eq!(left.expect("both are here"), [Some(vec![2; 8]), Some(vec![8; 8])], "{}", protocol.name);
    }
}

#[test]
fn a_conflict_over_an_entry_names_the_index() {
    let ([one, two], tables) = clusters(Protocol::FASST);
    let (people, by_nick) = (tables.directory.people, tables.directory.by_nick);
    let person = |nick| Person { nick, group: 1, stamp: 0, balance: 0 };
    one.transact(async move |tx| tx.insert(people, 1, person(7)).await).wait().expect("room");
    let failed = one.transact_with(Options::new().attempts(1), async move |tx| {
        tx.get(by_nick.keys(), 7).await?;
        two.transact(async move |tx| tx.update(people, 1, |row| row.nick = 8).await).await?;
        tx.put(tables.words, 1, vec![1]).await
    });
    match failed.wait() {
        Err(Error::Contended { table: Some("people by nick"), key, .. }) => assert_eq!(key, 7_u64.to_be_bytes()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_transaction_is_not_run_again_after_its_deadline() {
    let ([one, _two], tables) = clusters(Protocol::FASST);
    let in_vain = |options: Options| {
        let runs = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&runs);
        let failed = one.transact_with(options, async move |tx| {
            counted.fetch_add(1, SeqCst);
            tx.put(tables.words, 1, vec![1]).await?;
            Err::<(), _>(Conflict::Locked.into())
        });
        let failed = failed.wait();
        assert!(matches!(failed, Err(Error::Contended { conflict: Conflict::Locked, .. })), "{failed:?}");
        runs.load(SeqCst)
    };
    assert_eq!(in_vain(Options::new().within(Duration::ZERO)), 1);
    assert_eq!(in_vain(Options::new().deadline(Instant::now())), 1);
    assert!(in_vain(Options::new().within(Duration::from_millis(5))) > 1);
    assert!(in_vain(Options::new().deadline(Instant::now() + Duration::from_millis(5))) > 1);
    let sooner = Options::new().deadline(Instant::now() + Duration::from_secs(3_600)).within(Duration::ZERO);
    assert_eq!(in_vain(sooner), 1);
    assert_eq!(in_vain(Options::new().attempts(4).within(Duration::from_secs(3_600))), 4);
    // It has not happened, and one that succeeds is none the worse for it.
    let seen = one.transact_with(Options::new().attempts(1), async move |tx| tx.get(tables.words, 1).await);
    assert_eq!(seen.wait().expect("both are here"), None);
}

/// Gives up in virtual time.
#[derive(Clone)]
struct Patience;

impl Script for Patience {
    async fn run<'e, F: Fabric<Engine = NoHtm>>(self, worker: Worker<'e, F, Tested>, tables: Tables, number: u64) {
        let (began, patience) = (worker.endpoint().now(), Duration::from_millis(20));
        let failed = worker.transact_with(Options::new().within(patience), async |tx| {
            tx.put(tables.words, number, vec![1]).await?;
            Err::<(), _>(Conflict::Locked.into())
        });
        let failed = failed.await;
        assert!(matches!(failed, Err(Error::Contended { .. })), "{failed:?}");
        let waited = worker.endpoint().now().since(began);
        assert!(waited >= patience, "{waited:?}");
    }
}

#[test]
fn time_is_the_fabrics() {
    let size = Size { nodes: 2, owners: 2, coroutines: 1, protocol: Protocol::FASST };
    Bed::simulated(1).run(size, &Patience);
}

#[test]
fn an_opaque_transaction_sees_one_moment() {
    for protocol in Protocol::ALL.into_iter().chain(BY_LINES) {
        let ([one, two], tables) = clusters(protocol);
        let both = async move |cluster: &Local, value: u8| {
            let put = cluster.transact(async move |tx| {
                tx.put(tables.words, 1, vec![value]).await?;
                tx.put(tables.words, 2, vec![value]).await
            });
            put.await
        };
        for is_opaque in [false, true] {
            let torn = Arc::new(AtomicU64::new(0));
            let (counted, other) = (Arc::clone(&torn), two.clone());
            let options = if is_opaque { Options::new().opaque() } else { Options::new() };
            let mut runs = 0;
            let seen = one.transact_with(options, async move |tx| {
                runs += 1;
                let first = tx.get(tables.words, 1).await?;
                if runs == 1 {
                    both(&other, 100 + u8::from(is_opaque)).await?;
                }
                let second = tx.get(tables.words, 2).await?;
                counted.fetch_add(u64::from(first != second), SeqCst);
                Ok(first == second)
            });
            assert!(seen.wait().expect("both are here"), "what is committed is of one moment");
            assert_eq!(torn.load(SeqCst), u64::from(!is_opaque), "{}", protocol.name);
        }
    }
}

#[test]
fn closing_waits_for_what_was_begun() {
    for protocol in [Protocol::FASST, Protocol::DRTM_H, Protocol::HADES, Protocol::HADES_H] {
        let ([one, two], tables) = clusters(protocol);
        let add = |cluster: &Local, row: u64| {
            cluster.transact(async move |tx| {
                let before = tx.get(tables.words, row).await?.map_or(0, |bytes| bytes[0]);
                tx.put(tables.words, row, vec![before + 1]).await
            })
        };
        let begun: Vec<_> = (0..40).map(|number| add(&one, number % 4)).collect();
        // Those whose futures are dropped are cancelled, or run to their end: not in between.
        (0..10).for_each(|number| drop(add(&one, number % 4)));
        one.close();
        for submitted in begun {
            submitted.wait().expect("it was begun before");
        }
        let late = add(&one, 1).wait();
        assert!(matches!(late, Err(Error::Closed)), "{late:?}");
        // The rows of the other node are free.
        let rows = two.transact(async move |tx| tx.get_many(tables.words, [1, 3]).await).wait().expect("its own rows");
        let counts: Vec<u8> = rows.into_iter().map(|row| row.expect("it was written")[0]).collect();
        assert!(counts.iter().all(|count| (10..=13).contains(count)), "{counts:?}");
        two.transact(async move |tx| tx.put(tables.words, 1, vec![0]).await).wait().expect("nothing is locked");
    }
}
