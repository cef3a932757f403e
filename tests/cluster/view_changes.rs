//! The next view: a node refuses requests of another one, and a requester that is behind gets the
//! newer view and runs its transaction again.

use std::cell::Cell;

use drtm_htm::NoHtm;
use drtm_rdma::{LocalConfig, LocalFabric, NodeId, Phase, block_on};
use drtm_txn::{
    Conflict, Error, Mutation, Options, Transaction as _,
    cluster::{Node, Protocol, Sets, View},
};

use crate::{
    bed::{Rings, Setup, Tested, backed_up},
    restarts::Owner,
};

type Local = LocalFabric<NoHtm>;

/// The view after a node's, with the same shards at the same nodes.
fn next(node: &Node<Local, Tested>) -> View {
    let view = node.view();
    view.next(view.members().to_vec(), view.placements().to_vec()).expect("as many shards")
}

/// What a transaction does while an owner enters the next view.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Writes a row that it has not read.
    Blind,
    /// Reads a row before, and writes it.
    Write,
    /// Reads a row before, and writes another one.
    Skew,
    /// Reads one of two rows before.
    Read,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Blind, Self::Write, Self::Skew, Self::Read];
}

/// Installs the next view at an owner, while a client's transaction runs. Returns how often the
/// client's transaction has run, and the number of its view then.
fn after_change(protocol: Protocol, kind: Kind) -> (Result<u32, Error>, u32) {
    let fabric = Local::new(2, LocalConfig::perfect());
    let owner = Owner::start(&fabric, protocol, &[]);
    let (client, tables) = backed_up(&fabric, 1, 1, protocol, Rings::default());
    let endpoint = client.endpoint().expect("room");
    let worker = client.worker(&endpoint).expect("few");
    let written = worker.transact(async |tx| {
        tx.put(tables.words, 1, &[1; 8][..]).await?;
        tx.put(tables.words, 2, &[1; 8][..]).await
    });
    block_on(&endpoint, written).expect("it is here");
    let runs = Cell::new(0);
    let options = Options::new().attempts(20);
    let moved = worker.transact_with(options, async |tx| {
        runs.set(runs.get() + 1);
        if !matches!(kind, Kind::Blind) {
            tx.get(tables.words, 1).await?;
        }
        if runs.get() == 1 {
            assert!(owner.node.install(next(&owner.node)).expect("as many shards"));
        }
        match kind {
            Kind::Blind | Kind::Write => tx.put(tables.words, 1, &[2; 8][..]).await,
            Kind::Skew => tx.put(tables.words, 2, &[2; 8][..]).await,
            Kind::Read => tx.get(tables.words, 2).await.map(drop),
        }
    });
    let moved = block_on(&endpoint, moved);
    assert_eq!(worker.stats().conflicts(Conflict::View) > 0, runs.get() > 1);
    let outcome = moved.map(|()| runs.get());
    let view = client.view().number();
    drop(worker);
    owner.end();
    (outcome, view)
}

#[test]
fn a_requester_that_is_behind_gets_the_view_and_runs_again() {
    for protocol in Protocol::with_names() {
        for kind in Kind::ALL {
            let (runs, view) = after_change(protocol, kind);
            assert_eq!((runs.ok(), view), (Some(2), 2), "{}, {kind:?}", protocol.name);
        }
    }
}

#[test]
fn rows_are_fetched_in_the_newest_view() {
    for protocol in Protocol::with_names() {
        let fabric = Local::new(2, LocalConfig::perfect());
        let owner = Owner::start(&fabric, protocol, &[]);
        let (client, tables) = backed_up(&fabric, 1, 1, protocol, Rings::default());
        let endpoint = client.endpoint().expect("room");
        let worker = client.worker(&endpoint).expect("few");
        let fetch = async |reads: &[u64], written: Option<u64>| {
            let declare = |sets: &mut Sets<'_, '_, Local, Tested>| {
                reads.iter().try_for_each(|row| sets.read(tables.words, *row))?;
                written.map_or(Ok(()), |row| sets.write(tables.words, row))
            };
            let fetched = worker.transact_on(declare, async |rows| {
                for row in reads {
                    rows.get(tables.words, *row).await?;
                }
                match written {
                    Some(row) => rows.put(tables.words, row, &[1; 8][..]).await,
                    None => Ok(()),
                }
            });
            fetched.await.expect("it is here");
        };
        block_on(&endpoint, fetch(&[], Some(1)));
        block_on(&endpoint, fetch(&[], Some(2)));
        for (reads, written) in [(&[1, 2][..], None), (&[1], Some(2)), (&[], Some(2))] {
            assert!(owner.node.install(next(&owner.node)).expect("as many shards"));
            block_on(&endpoint, fetch(reads, written));
            assert_eq!(client.view(), owner.node.view(), "{}: {reads:?}, {written:?}", protocol.name);
        }
        assert_eq!(worker.stats().conflicts(Conflict::View), 3, "{}", protocol.name);
        drop(worker);
        owner.end();
    }
}

#[test]
fn an_owner_that_is_behind_gets_the_view() {
    let fabric = Local::new(2, LocalConfig::perfect());
    let owner = Owner::start(&fabric, Protocol::FASST, &[]);
    let (client, tables) = backed_up(&fabric, 1, 1, Protocol::FASST, Rings::default());
    let endpoint = client.endpoint().expect("room");
    let worker = client.worker(&endpoint).expect("few");
    let write = async || worker.transact(async |tx| tx.put(tables.words, 1, &[1; 8][..]).await).await;
    block_on(&endpoint, write()).expect("it is here");
    assert!(client.install(next(&client)).expect("as many shards"));
    block_on(&endpoint, write()).expect("it is told");
    assert_eq!((owner.node.view().number(), worker.stats().conflicts(Conflict::View)), (2, 0));
    drop(worker);
    owner.end();
}

#[test]
fn a_view_that_verbs_do_not_read_is_found() {
    for kind in Kind::ALL {
        let changed = || after_change(Protocol::DRTM_OCC, kind);
        let (outcome, view) = Setup::faulty(Mutation::ViewNotRead).run(changed);
        // A row that has not been read is looked up by its owner, which refuses that.
        let is_asked = matches!(kind, Kind::Blind | Kind::Skew);
        assert_eq!((outcome.ok(), view) == (Some(2), 2), is_asked, "{kind:?}");
    }
}

#[test]
fn a_refusal_without_the_newer_view_is_found() {
    let (outcome, view) = Setup::faulty(Mutation::ViewWithheld).run(|| after_change(Protocol::FASST, Kind::Write));
    assert!(matches!(outcome, Err(Error::Contended { conflict: Conflict::View, .. })), "{outcome:?}");
    assert_eq!(view, 1);
}

#[test]
fn an_old_view_that_is_served_is_found() {
    let (outcome, view) = Setup::faulty(Mutation::OldViewServed).run(|| after_change(Protocol::FASST, Kind::Write));
    assert_ne!((outcome.ok(), view), (Some(2), 2));
}

#[test]
fn a_transaction_that_is_behind_its_own_node_is_not_decided() {
    let fabric = Local::new(1, LocalConfig::perfect());
    let (node, tables) = backed_up(&fabric, 0, 1, Protocol::FASST, Rings::default());
    let endpoint = node.endpoint().expect("room");
    let worker = node.worker(&endpoint).expect("few");
    let runs = Cell::new(0);
    let written = worker.transact(async |tx| {
        runs.set(runs.get() + 1);
        if runs.get() == 1 {
            node.install(next(&node)).expect("as many shards");
        }
        tx.put(tables.words, 1, &[1; 8][..]).await
    });
    block_on(&endpoint, written).expect("it is here");
    assert_eq!((runs.get(), worker.stats().conflicts(Conflict::View)), (2, 1));
}

#[test]
fn requests_to_shards_of_one_node_travel_together() {
    let fabric = Local::new(2, LocalConfig::perfect());
    let owner = Owner::start(&fabric, Protocol::FASST, &[]);
    let (client, tables) = backed_up(&fabric, 1, 1, Protocol::FASST, Rings::default());
    let endpoint = client.endpoint().expect("room");
    let worker = client.worker(&endpoint).expect("few");
    let read = async || worker.transact(async |tx| tx.get_many(tables.words, 0..8).await).await.expect("it is here");
    block_on(&endpoint, read());
    let view = client.view();
    assert_eq!(view.placements().iter().filter(|at| at.primary == NodeId(0)).count(), 8, "eight for an owner");
    let sent = || Phase::ALL.map(|phase| endpoint.counters()[phase].calls).iter().sum::<u64>();
    let (rounds, before) = (worker.stats().rounds(Phase::Execute).count, sent());
    block_on(&endpoint, read());
    // One to read, and one to validate.
    assert_eq!((worker.stats().rounds(Phase::Execute).count - rounds, sent() - before), (1, 2));
    drop(worker);
    owner.end();
}
