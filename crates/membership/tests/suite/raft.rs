//! Voters in one process: partitions, lost, late and repeated messages, restarts.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use drtm_membership::{Answer, Configuration, Error, Membership, Raft, RaftOptions, mutation::Mutation};

use crate::{
    directory::Folder,
    driver::{self, RealTime, Scene},
    transport::{Faults, Hub},
};

/// How long anything may take on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn options(fault: Option<Mutation>) -> RaftOptions {
    let mut options = RaftOptions::default();
    options.heartbeat = Duration::from_millis(30);
    options.election = Duration::from_millis(150)..Duration::from_millis(300);
    options.patience = Duration::from_millis(1500);
    options.snapshot_after = 8;
    options.fault = fault;
    options
}

/// Waits until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A cluster of voters.
struct Voters {
    hub: Arc<Hub>,
    folder: Folder,
    nodes: Vec<Option<Arc<Raft>>>,
    fault: Option<Mutation>,
}

impl Voters {
    /// Starts some voters: the first makes the cluster, and the others join it.
    fn start(name: &str, nodes: usize, fault: Option<Mutation>) -> Self {
        let mut voters = Self { hub: Hub::new(7), folder: Folder::new(name), nodes: vec![None; nodes], fault };
        for node in 0..nodes {
            voters.run(node);
        }
        voters.node(0).bootstrap().wait().expect("the first");
        (1..nodes).for_each(|node| voters.join(node));
        voters
    }

    fn directory(&self, node: usize) -> PathBuf {
        self.folder.0.join(node.to_string())
    }

    /// Starts a node, with the directory that it has or had.
    fn run(&mut self, node: usize) {
        let (address, directory) = (node.to_string(), self.directory(node));
        let transport = self.hub.end(&address);
        let raft = Raft::start(Some(&directory), node as u32, &address, transport, options(self.fault));
        let raft = Arc::new(raft.expect("it starts"));
        self.hub.attach(&address, &raft);
        self.nodes[node] = Some(raft);
    }

    fn node(&self, node: usize) -> &Arc<Raft> {
        self.nodes[node].as_ref().expect("it runs")
    }

    fn join(&self, node: usize) {
        until("it joins", || self.node(node).join("0").wait().is_ok() || self.node(node).join("1").wait().is_ok());
    }

    /// Stops a node. It loses what it has not written.
    fn stop(&mut self, node: usize) {
        let raft = self.nodes[node].take().expect("it runs");
        // The hub may be handing it a message.
        until("it stops", || Arc::strong_count(&raft) == 1);
    }

    fn leader(&self) -> usize {
        let mut found = None;
        until("there is a leader", || {
            let running = self.nodes.iter().enumerate().filter_map(|(at, node)| Some((at, node.as_ref()?)));
            found = running.into_iter().find(|(_, node)| node.leader() == Some(node.own().id)).map(|(at, _)| at);
            found.is_some()
        });
        found.expect("it was found")
    }

    fn members(&self) -> Vec<Arc<dyn Membership>> {
        self.nodes.iter().flatten().map(|node| Arc::clone(node) as Arc<dyn Membership>).collect()
    }
}

impl Drop for Voters {
    fn drop(&mut self) {
        self.nodes.clear();
        self.hub.close();
    }
}

/// Waits for an answer other than that there is none now.
pub(crate) fn insist(ask: impl Fn() -> Answer<Configuration>) -> Result<Configuration, Error> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask().wait() {
            Err(Error::Unavailable { .. }) if Instant::now() < deadline => {}
            outcome => return outcome,
        }
    }
}

/// Real time, in which the network changes.
struct Weather<F>(RealTime, F, u64);

impl<F: FnMut(u64)> Scene for Weather<F> {
    fn now(&self) -> u64 {
        self.0.now()
    }

    fn step(&mut self) {
        self.0.step();
        let turn = self.0.now() / 100_000_000;
        if turn != self.2 {
            self.2 = turn;
            (self.1)(turn);
        }
    }
}

#[test]
fn histories_are_linearizable() {
    for nodes in [3, 5] {
        let voters = Voters::start(&format!("histories-{nodes}"), nodes, None);
        voters.hub.set_faults(Faults { lost: 0.02, repeated: 0.1, delay: Duration::from_millis(3) });
        let names: Vec<String> = (0..nodes).map(|node| node.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut random = fastrand::Rng::with_seed(nodes as u64);
        let weather = |turn: u64| match turn % 8 {
            // Whole for half of the time, then one node or two are alone.
            0 => voters.hub.divide(&[]),
            4 => {
                let mut names = names.clone();
                random.shuffle(&mut names);
                let (few, many) = names.split_at(random.usize(1..=nodes / 2));
                voters.hub.divide(&[few, many]);
            }
            _ => {}
        };
        let mut scene = Weather(RealTime::new(), weather, 0);
        let requests = 40 * drtm_testing::rounds(1) as usize;
        let history = driver::run(voters.members(), &mut scene, requests, nodes as u64);
        let summary = history.and_then(|history| history.judge()).unwrap_or_else(|why| panic!("{nodes}: {why}"));
        assert!(summary.replaced > 10 && summary.reads > 10, "{summary:?}");
    }
}

#[test]
fn an_old_leader_reads_nothing_and_a_fault_that_lets_it_is_found() {
    for fault in [None, Some(Mutation::LeaderNotAsked)] {
        let voters = Voters::start(&format!("old-leader-{}", fault.is_some()), 3, fault);
        let first = insist(|| voters.node(0).replace(0, b"one")).expect("the first");
        let old = voters.leader();
        let others: Vec<usize> = (0..3).filter(|node| *node != old).collect();
        until("all know it", || voters.members().iter().all(|member| member.known() == first));
        let [a, b] = [0, 1].map(|other| others[other].to_string());
        voters.hub.divide(&[&[&old.to_string()], &[&a, &b]]);
        let second = insist(|| voters.node(others[0]).replace(1, b"two")).expect("a majority");
        let stale = voters.node(old).read().wait();
        match fault {
            None => assert!(matches!(stale, Err(Error::Unavailable { .. })), "{stale:?}"),
            Some(_) => assert_eq!(stale, Ok(first.clone()), "the fault shows"),
        }
        assert_eq!(voters.node(old).known(), first, "what it knows stays");
        let lost = voters.node(old).replace(1, b"lost").wait().expect_err("no majority");
        assert!(lost.may_have_happened() || fault.is_some(), "{lost}");
        voters.hub.divide(&[]);
        assert_eq!(voters.node(old).watch(1).wait(), Ok(second));
    }
}

/// A leader restarts before the others elect another one, and is read at once.
#[test]
fn a_restarted_leader_is_read_and_a_fault_that_reads_it_too_early_is_found() {
    for (fault, rounds) in [(None, 5), (Some(Mutation::BarrierLeftOut), 100)] {
        let mut voters = Voters::start(&format!("restarted-{}", fault.is_some()), 3, fault);
        let mut current = Configuration::none();
        let is_stale = (0..rounds).any(|_| {
            let leader = voters.leader();
            current = insist(|| voters.node(leader).replace(current.number(), b"next")).expect("a majority");
            voters.stop(leader);
            voters.run(leader);
            insist(|| voters.node(leader).read()) != Ok(current.clone())
        });
        assert_eq!(is_stale, fault.is_some(), "{fault:?}");
    }
}

#[test]
fn a_lost_answer_is_unknown_and_a_fault_that_denies_it_is_found() {
    for fault in [None, Some(Mutation::LostTakenForRefused)] {
        let voters = Voters::start(&format!("lost-{}", fault.is_some()), 3, fault);
        insist(|| voters.node(0).replace(0, b"one")).expect("the first");
        let old = voters.leader();
        let others: Vec<String> = (0..3).filter(|node| *node != old).map(|node| node.to_string()).collect();
        voters.hub.divide(&[&[&old.to_string()], &[&others[0], &others[1]]]);
        let lost = voters.node(old).replace(1, b"lost").wait().expect_err("no majority");
        assert_eq!(lost.may_have_happened(), fault.is_none(), "{lost}");
    }
}

#[test]
fn restarted_voters_remember_and_the_log_is_bounded() {
    let mut voters = Voters::start("restart", 3, None);
    let mut current = Configuration::none();
    for round in 0..3 {
        for count in 0..40 {
            let content = [count; 100];
            current = insist(|| voters.node(0).replace(current.number(), &content)).expect("a majority");
        }
        let ids: Vec<u64> = (0..3).map(|node| voters.node(node).own().id).collect();
        until("all know it", || voters.members().iter().all(|member| member.known() == current));
        for node in 0..3 {
            let log = fs::metadata(voters.directory(node).join("log")).expect("a file").len();
            assert!(log < 40 * 150, "round {round}: the log has {log} bytes");
        }
        // All at once.
        (0..3).for_each(|node| voters.stop(node));
        (0..3).for_each(|node| voters.run(node));
        assert_eq!((0..3).map(|node| voters.node(node).own().id).collect::<Vec<_>>(), ids);
        assert_eq!(insist(|| voters.node(1).read()), Ok(current.clone()));
    }
}

#[test]
fn a_node_without_its_directory_is_another_voter() {
    let mut voters = Voters::start("another", 3, None);
    let mut current = insist(|| voters.node(0).replace(0, b"one")).expect("the first");
    for lost in [2, 0, 1] {
        let former = voters.node(lost).own().id;
        voters.stop(lost);
        fs::remove_dir_all(voters.directory(lost)).expect("it is here");
        voters.run(lost);
        assert_ne!(voters.node(lost).own().id, former);
        let helper = ((lost + 1) % 3).to_string();
        // It is in no cluster until it is admitted, and makes none by itself.
        assert!(matches!(voters.node(lost).read().wait(), Err(Error::Unavailable { .. })));
        until("it is admitted", || voters.node(lost).join(&helper).wait().is_ok());
        let current_before = current.clone();
        until("it knows", || voters.node(lost).known() == current_before);
        let ids: BTreeSet<u64> = voters.nodes.iter().flatten().map(|node| node.own().id).collect();
        until("all know the voters", || {
            let knows = |node: &Arc<Raft>| node.voters().iter().map(|voter| voter.id).collect::<BTreeSet<u64>>() == ids;
            voters.nodes.iter().flatten().all(knows)
        });
        let content = [lost as u8];
        current = insist(|| voters.node(lost).replace(current.number(), &content)).expect("it votes");
    }
}

#[test]
fn a_voter_that_is_told_to_bootstrap_twice_refuses() {
    let mut voters = Voters::start("bootstrap", 2, None);
    for node in 0..2 {
        assert!(matches!(voters.node(node).bootstrap().wait(), Err(Error::Refused { .. })));
    }
    // A second cluster does not hear the first.
    let other = Voters::start("bootstrap-other", 1, None);
    voters.stop(1);
    fs::remove_dir_all(voters.directory(1)).expect("it is here");
    fs::create_dir_all(voters.directory(1)).expect("a folder");
    drop(other);
    voters.run(1);
    voters.node(1).bootstrap().wait().expect("it is a voter of its own");
    assert!(voters.node(1).join("0").wait().is_err(), "it is in a cluster of its own");
    assert_eq!(voters.node(0).voters().len(), 2);
}

#[test]
fn limits_hold() {
    let voters = Voters::start("limits", 1, None);
    crate::limits(&**voters.node(0), |answer| answer.wait());
}

#[test]
fn directories_are_refused_that_are_not_whole_or_not_its_own() {
    let mut voters = Voters::start("damage", 1, None);
    let mut current = Configuration::none();
    for count in 0..20 {
        current = insist(|| voters.node(0).replace(current.number(), &[count])).expect("alone");
    }
    let directory = voters.directory(0);
    let start = |node: u32| Raft::start(Some(&directory), node, "0", voters.hub.end("0"), options(None)).map(drop);
    assert!(matches!(start(0), Err(Error::InUse { .. })));
    let _running = voters.nodes[0].take();
    drop(_running);
    assert!(matches!(start(1), Err(Error::Refused { .. })), "it is node 0's");
    for name in ["identity", "vote", "log", "snapshot"] {
        let path = directory.join(name);
        let whole = fs::read(&path).expect("a file");
        assert!(whole.len() > 24, "{name} has something in it");
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).expect("a file");
            assert!(matches!(start(0), Err(Error::Damaged { .. })), "{name} of {length} bytes");
        }
        for at in 0..whole.len() {
            let mut other = whole.clone();
            other[at] ^= 1 << (at % 8);
            fs::write(&path, &other).expect("a file");
            assert!(matches!(start(0), Err(Error::Damaged { .. })), "byte {at} of {name}");
        }
        if name != "identity" {
            fs::remove_file(&path).expect("a file");
            assert!(matches!(start(0), Err(Error::Damaged { .. })), "{name} is gone");
        }
        fs::write(&path, &whole).expect("a file");
    }
    // What a crash leaves beside them is not looked at.
    fs::write(directory.join("log.new"), b"half of a fi").expect("a file");
    voters.run(0);
    assert_eq!(insist(|| voters.node(0).read()), Ok(current));
}
