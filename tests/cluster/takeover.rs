//! A backup takes over: in the next view it serves the shards of a node that is gone.

use drtm_htm::NoHtm;
use drtm_rdma::{Incarnation, LocalConfig, LocalFabric, NodeId, block_on};
use drtm_txn::{
    Error, Transaction as _,
    cluster::{ClusterError, Node, Placement, Protocol, Refusal, View, Worker},
};

use crate::{
    bed::{Rings, Tables, Tested, backed_up},
    drops::polled,
    history::{name, value, version},
    restarts::Owner,
};

type Local = LocalFabric<NoHtm>;

const OWNERS: u16 = 3;
const ROWS: u64 = 60;

/// The next view, without nodes: what they have served, the first backup that is left serves.
pub(crate) fn without(view: &View, gone: &[NodeId]) -> View {
    let members = view.members().iter().filter(|member| !gone.contains(&member.node)).cloned().collect();
    let placement = |at: &Placement| {
        let nodes = [at.primary].into_iter().chain(at.backups.iter().copied());
        let mut nodes = nodes.filter(|node| !gone.contains(node));
        let primary = nodes.next().expect("each shard has a backup");
        Placement { primary, backups: nodes.collect(), learners: Vec::new(), lost: None }
    };
    view.next(members, view.placements().iter().map(placement).collect()).expect("as many shards")
}

/// Writes all rows, a few in each transaction; of each round, some are removed.
async fn write(worker: &Worker<'_, Local, Tested>, tables: Tables, round: u64) {
    for first in (0..ROWS).step_by(4) {
        let written = worker.transact(async |tx| {
            for row in first..first + 4 {
                if row % 5 == round % 5 {
                    tx.remove(tables.words, row).await?;
                    tx.remove(tables.sorted_names, name(row)).await?;
                } else {
                    tx.put(tables.words, row, value(round)).await?;
                    tx.put(tables.sorted_names, name(row), value(round)).await?;
                }
            }
            Ok(())
        });
        written.await.expect("all owners are here");
    }
}

/// Reads all rows, and those of a range: they are of this round.
async fn check(worker: &Worker<'_, Local, Tested>, tables: Tables, round: u64, case: &str) {
    let is_there = |row: &u64| row % 5 != round % 5;
    let (words, names) = worker
        .transact(async |tx| {
            let words = tx.get_many(tables.words, 0..ROWS).await?;
            Ok((words, tx.range(tables.sorted_names, name(0)..name(ROWS)).await?))
        })
        .await
        .expect("all owners are here");
    let words: Vec<u64> =
        (0..).zip(words).filter_map(|(row, word)| (version(&word?) == round).then_some(row)).collect();
    assert_eq!(words, (0..ROWS).filter(is_there).collect::<Vec<_>>(), "{case}");
    let names: Vec<_> = names.into_iter().map(|(name, value)| (name, version(&value))).collect();
    assert_eq!(names, (0..ROWS).filter(is_there).map(|row| (name(row), round)).collect::<Vec<_>>(), "{case}");
}

/// Whether replicas are equal where there are any.
fn replicas_agree(nodes: &[&Node<Local, Tested>]) {
    for owner in 0..OWNERS {
        let rows: Vec<_> = nodes.iter().filter_map(|node| node.rows_of(NodeId(owner)).expect("a store")).collect();
        assert!(rows.windows(2).all(|pair| pair[0] == pair[1]), "of the group of {owner}");
        assert!(!rows.is_empty(), "they are somewhere");
    }
}

#[test]
fn backups_take_over_where_nothing_is_under_way() {
    for protocol in Protocol::with_names() {
        for (backups, gone) in [(1, 0), (1, 2), (2, 1)] {
            let case = format!("{}, {backups} backups, {gone} is gone", protocol.name);
            let fabric = Local::new(OWNERS + 1, LocalConfig::perfect());
            let rings = Rings { backups, ..Rings::default() };
            let mut owners: Vec<Option<Owner>> =
                (0..OWNERS).map(|node| Some(Owner::one_of(&fabric, (node, OWNERS), protocol, rings))).collect();
            let (client, tables) = backed_up(&fabric, OWNERS, OWNERS, protocol, rings);
            let endpoint = client.endpoint().expect("room");
            let worker = client.worker(&endpoint).expect("few");
            block_on(&endpoint, async {
                for round in 1..4 {
                    write(&worker, tables, round).await;
                }
                check(&worker, tables, 3, &case).await;
                worker.catch_up().await.expect("backups apply");
            });
            let next = without(&client.view(), &[NodeId(gone)]);
            owners[usize::from(gone)].take().expect("it is here").end();
            fabric.kill(NodeId(gone)).expect("it is here");
            for node in owners.iter().flatten().map(|owner| &owner.node).chain([&client]) {
                assert!(node.install(next.clone()).expect("as many shards"));
            }
            block_on(&endpoint, async {
                check(&worker, tables, 3, &case).await;
                for round in 4..8 {
                    write(&worker, tables, round).await;
                    check(&worker, tables, round, &case).await;
                }
                worker.catch_up().await.expect("backups apply");
            });
            let left: Vec<&Node<_, _>> = owners.iter().flatten().map(|owner| &owner.node).collect();
            replicas_agree(&left);
            drop(worker);
            owners.into_iter().flatten().for_each(Owner::end);
        }
    }
}

#[test]
fn a_client_that_does_not_serve_is_left_behind() {
    for protocol in Protocol::with_names() {
        let fabric = Local::new(OWNERS + 2, LocalConfig::perfect());
        let rings = Rings { backups: 1, ..Rings::default() };
        let owners: Vec<Owner> =
            (0..OWNERS).map(|node| Owner::one_of(&fabric, (node, OWNERS), protocol, rings)).collect();
        let (silent, tables) = backed_up(&fabric, OWNERS, OWNERS, protocol, rings);
        let (driver, _) = backed_up(&fabric, OWNERS + 1, OWNERS, protocol, rings);
        let endpoint = silent.endpoint().expect("room");
        let worker = silent.worker(&endpoint).expect("few");
        // They stay as they were when nobody waited for them any more: before rows were locked,
        // with locks, with records, and decided.
        block_on(&endpoint, async {
            write(&worker, tables, 1).await;
            for row in 0..ROWS {
                let written = worker.transact(async |tx| tx.put(tables.words, row, value(2)).await);
                let _ = polled(written, row as u32).await;
            }
        });
        let (endpoint, next) = (driver.endpoint().expect("room"), without(&driver.view(), &[]));
        let other = driver.worker(&endpoint).expect("few");
        block_on(&endpoint, async {
            let failed = other.change_view(next.clone(), &[]).await;
            let is_told = matches!(
                failed,
                Err(Error::Cluster(ClusterError::NotReady { node })) if node == silent.id()
            );
            assert!(is_told, "{}: {failed:?}", protocol.name);
            let dead = (silent.id(), Incarnation(1));
            other.change_view(next, &[dead]).await.expect("the others are ready");
            // No row stays locked, and each has been written or has not.
            let words = other.transact(async |tx| tx.get_many(tables.words, 0..ROWS).await).await;
            for (row, word) in (0..).zip(words.expect("all owners are here")) {
                let expected: &[u64] = if row % 5 == 1 { &[0, 2] } else { &[1, 2] };
                assert!(expected.contains(&word.map_or(0, |word| version(&word))), "{}: {row}", protocol.name);
            }
            for round in 3..5 {
                write(&other, tables, round).await;
                check(&other, tables, round, protocol.name).await;
            }
        });
        let late = block_on(worker.endpoint(), worker.transact(async |tx| tx.put(tables.words, 1, value(9)).await));
        let is_refused = matches!(late, Err(Error::Cluster(ClusterError::Refused { reason: Refusal::Revoked, .. })));
        assert!(is_refused, "{}: {late:?}", protocol.name);
        drop((worker, other));
        owners.into_iter().for_each(Owner::end);
    }
}

/// A driver tells some nodes that a client is dead, and goes on no more. The next one has not named
/// it, and finds it here: it is out all the same, since its records are not taken everywhere.
#[test]
fn a_node_that_a_driver_before_has_called_dead_is_out() {
    let mut is_out = 0;
    for polls in (1..40).step_by(3) {
        let fabric = Local::new(OWNERS + 2, LocalConfig::perfect());
        let rings = Rings { backups: 1, ..Rings::default() };
        let owners: Vec<Owner> =
            (0..OWNERS).map(|node| Owner::one_of(&fabric, (node, OWNERS), Protocol::FASST, rings)).collect();
        let (silent, tables) = backed_up(&fabric, OWNERS, OWNERS, Protocol::FASST, rings);
        let (driver, _) = backed_up(&fabric, OWNERS + 1, OWNERS, Protocol::FASST, rings);
        let endpoint = silent.endpoint().expect("room");
        let worker = silent.worker(&endpoint).expect("few");
        block_on(&endpoint, write(&worker, tables, 1));
        let (endpoint, next) = (driver.endpoint().expect("room"), without(&driver.view(), &[]));
        let other = driver.worker(&endpoint).expect("few");
        let dead = (silent.id(), Incarnation(1));
        block_on(&endpoint, async {
            if polled(other.change_view(next.clone(), &[dead]), polls).await.is_some() {
                return;
            }
            match other.change_view(next, &[]).await {
                Ok(()) => {
                    assert!(driver.is_without(dead.0, dead.1), "after {polls} polls");
                    is_out += 1;
                }
                // It had installed the view.
                Err(Error::Cluster(ClusterError::ViewChanged { .. })) => {}
                // None had heard of it.
                Err(Error::Cluster(ClusterError::NotReady { node })) => assert_eq!(node, silent.id()),
                Err(error) => panic!("after {polls} polls: {error:?}"),
            }
        });
        drop((worker, other));
        owners.into_iter().for_each(Owner::end);
    }
    assert!(is_out > 0, "it was waited for each time");
}
