//! Owners on machines agree on the view among themselves, by Raft, and no test does anything for
//! that: their processes are killed under load, stopped, and started again, with their directories
//! and without; and one is left alone.

use std::{fs, thread, time::Duration};

use drtm_rdma::NodeId;
use drtm_testing::ports::free_addresses;
use drtm_txn::{
    Builder, Options, Transaction as _,
    cluster::{Cluster, ClusterBuilder, OnTcp, Partition},
};
use fastrand::Rng;

use crate::{
    agreeing::{Bank, CLIENT, LEASE, MONEY, Money, OWN, OWNERS, Place, fill, is_whole, judge, run, start, transfer},
    process::Owner,
};

/// The first owner leads the view, and the voters, too, since it has made their cluster.
#[test]
fn owners_that_are_killed_are_done_without_and_come_back_as_other_voters() {
    let place = Place::new("killed", false);
    run(&place, |scene| {
        scene.kill(0);
        // It is told to make a cluster each time, and there is one.
        scene.start_again(0, true);
        scene.kill(1);
        scene.start_again(1, false);
    });
}

#[test]
fn owners_with_directories_are_the_same_voters_and_others_without() {
    let place = Place::new("durable", true);
    run(&place, |scene| {
        scene.kill(0);
        scene.start_again(0, false);
        scene.kill(1);
        place.forget(1);
        scene.start_again(1, true);
    });
}

#[test]
fn an_owner_that_is_left_alone_changes_nothing_and_all_begin_anew() {
    let place = Place::new("minority", true);
    let spawn = || (0..OWN).map(|node| Owner::that_agrees(node, &place.path, node == 0)).collect::<Vec<_>>();
    let mut owners = spawn();
    let (bank, money) = start(&place.path, OWN, false);
    fill(&bank, money);
    let mut random = Rng::with_seed(7);
    for count in 1..=40 {
        transfer(&bank, money, &mut random, Some(count)).expect("all are here");
    }
    let before = bank.node().view().number();
    // A transaction that is decided is torn if all replicas of a shard end before it is carried out
    // there (decision 120).
    place.rests(&mut owners);
    owners.iter_mut().for_each(Owner::kill);
    let soon = Options::new().within(Duration::from_millis(500));
    // When its lease has ended, it returns nothing that it has.
    while bank.transact_with(soon, async move |tx| tx.get(money, u64::from(OWN)).await).wait().is_ok() {
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(bank.node().view().number(), before);
    drop(bank);
    // All have ended, and each has its directory, and its vote.
    let owners = spawn();
    let (bank, money) = start(&place.path, OWN, true);
    // Shards are lost until their last primaries have joined.
    while bank.node().view().number() <= before || !is_whole(&bank.node().view()) {
        thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(judge(&bank, money), 40);
    drop(owners);
}

#[test]
fn a_voter_at_another_address_takes_the_place_of_a_dead_one() {
    let place = Place::new("replaced", false);
    run(&place, |scene| {
        scene.kill(1);
        let stale = place.path.join("stale");
        fs::create_dir(&stale).expect("a disk");
        let file = place.path.join("addresses");
        fs::copy(&file, stale.join("addresses")).expect("a disk");
        let mut addresses: Vec<String> = {
            let lines = fs::read_to_string(&file).expect("they are chosen");
            lines.lines().map(ToOwned::to_owned).collect()
        };
        let address = free_addresses(1)[0];
        scene.bank.replace(NodeId(1), address).wait().expect("it is gone");
        addresses[1] = address.to_string();
        fs::write(&file, addresses.join("\n")).expect("it is there");
        scene.start_again(1, false);
        // One that is told the old address learns the new one.
        scene.kill(0);
        scene.start_again_in(0, &stale, false);
    });
}

/// Starts three owners in this process.
fn three(place: &Place, what: impl Fn(ClusterBuilder<OnTcp>) -> ClusterBuilder<OnTcp>) -> Vec<(Bank, Money)> {
    let addresses = fs::read_to_string(place.path.join("addresses")).expect("they are chosen");
    let start = |node| {
        let database = Builder::new().memory(16 << 20);
        let builder =
            Cluster::builder().addresses(node, addresses.lines()).owners(OWNERS).key([7; 32]).database(database);
        let mut builder = what(builder.lease(LEASE));
        let money = builder.table(MONEY, Partition::by("number", |number| *number));
        (builder.start().expect("a port"), money)
    };
    (0..OWNERS).map(start).collect()
}

#[test]
fn owners_that_agree_on_nothing_keep_their_view() {
    let place = Place::new("fixed", false);
    let banks = three(&place, ClusterBuilder::fixed);
    banks.iter().for_each(|(bank, money)| fill(bank, *money));
    assert!(banks.iter().all(|(bank, _)| bank.node().view().number() == 1));
    assert!(banks[0].0.node().view().placements().iter().all(|at| at.backups.is_empty()));
}

#[test]
fn owners_of_which_none_is_told_make_no_cluster_and_all_may_be_told() {
    let place = Place::new("told", false);
    let banks = three(&place, |builder| builder);
    let (bank, money) = &banks[0];
    let (soon, money) = (Options::new().within(Duration::from_millis(500)), *money);
    bank.wait_for_nodes(Duration::from_millis(500)).expect_err("no view has begun");
    bank.transact_with(soon, async move |tx| tx.put(money, 0, &1).await).wait().expect_err("there is no cluster");
    assert_eq!(bank.node().view().number(), 1);
    drop(banks);
    let place = Place::new("all-told", false);
    let banks = three(&place, ClusterBuilder::bootstrap);
    fill(&banks[0].0, banks[0].1);
    assert!(banks.iter().all(|(bank, money)| judge(bank, *money) == 0));
    assert!(banks[0].0.node().view().number() > 1);
}

/// It has no vote and no handle of the agreement: it learns the view from owners.
#[test]
fn a_client_goes_on_without_owners_that_die_and_comes_back_by_itself() {
    let place = Place::new("client", false);
    run(&place, |scene| {
        let mut client = Owner::that_agrees(CLIENT, &place.path, false);
        assert!(client.says("moves"), "it has ended");
        // The one that leads.
        scene.kill(0);
        scene.start_again(0, false);
        let view = scene.view().number();
        client.signal("STOP");
        scene.until(|scene| scene.view().number() > view);
        scene.goes_on();
        client.signal("CONT");
        for said in ["evicted", "returned", "moves again"] {
            assert!(client.says(said), "{said}: it does not come back");
        }
        scene.kill(1);
        assert!(client.process.try_wait().expect("it is a child").is_none(), "it goes on");
        scene.start_again(1, false);
    });
}
