//! Voters that find their cluster by asking the others, and one that makes it.

use std::{
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use drtm_membership::{Answer, Configuration, Error, MOST_BYTES, Membership, Raft};

use crate::{
    directory::Folder,
    raft::{insist, options},
    transport::Hub,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// Voters of one process.
struct Voters {
    hub: Arc<Hub>,
    folder: Folder,
    nodes: Vec<Option<Arc<Raft>>>,
}

impl Voters {
    fn new(name: &str, nodes: usize) -> Self {
        Self { hub: Hub::new(11), folder: Folder::new(name), nodes: vec![None; nodes] }
    }

    fn directory(&self, node: usize) -> PathBuf {
        self.folder.0.join(node.to_string())
    }

    /// Starts a voter, which tries to enter. Without a directory, it forgets all.
    fn enter(&mut self, node: usize, founds: bool, is_durable: bool) -> Answer<()> {
        let (address, directory) = (node.to_string(), is_durable.then(|| self.directory(node)));
        let transport = self.hub.end(&address);
        let raft = Raft::start(directory.as_deref(), node as u32, &address, transport, options(None));
        let raft = Arc::new(raft.expect("it starts"));
        self.hub.attach(&address, &raft);
        let others = (0..self.nodes.len()).filter(|other| *other != node);
        let entering = raft.enter(others.map(|other| (other as u32, other.to_string())).collect(), founds);
        self.nodes[node] = Some(raft);
        entering
    }

    fn stop(&mut self, node: usize) {
        let raft = self.nodes[node].take().expect("it runs");
        // The hub may be handing it a message.
        while Arc::strong_count(&raft) > 1 {
            thread::yield_now();
        }
    }

    fn node(&self, node: usize) -> &Arc<Raft> {
        self.nodes[node].as_ref().expect("it runs")
    }
}

impl Drop for Voters {
    fn drop(&mut self) {
        self.nodes.clear();
        self.hub.close();
    }
}

fn is_in(mut entering: Answer<()>) {
    entering.wait_for(PATIENCE).expect("it enters in time").expect("it enters");
}

#[test]
fn of_several_that_are_told_one_makes_the_cluster_when_all_are_here() {
    for told in [[true, true, true], [false, true, true], [false, false, true]] {
        let mut voters = Voters::new(&format!("entry-{told:?}").replace(", ", "-"), 3);
        let mut early: Vec<_> = (0..2).map(|node| voters.enter(node, told[node], false)).collect();
        // One that is told, and does not know of all others yet, makes none.
        assert!(early.iter_mut().all(|entering| entering.wait_for(Duration::from_millis(500)).is_none()));
        let last = voters.enter(2, told[2], false);
        early.into_iter().chain([last]).for_each(is_in);
        let first = insist(|| voters.node(1).replace(0, b"one")).expect("they agree");
        for node in 0..3 {
            assert_eq!(insist(|| voters.node(node).read()), Ok(first.clone()));
            assert_eq!(voters.node(node).voters().len(), 3);
        }
        let again = voters.node(0).enter(Vec::new(), true).wait();
        assert!(matches!(again, Err(Error::Refused { .. })), "{again:?}");
    }
}

#[test]
fn one_that_has_forgotten_its_cluster_and_is_told_to_make_one_joins_it() {
    for is_durable in [false, true] {
        let mut voters = Voters::new(&format!("entry-again-{is_durable}"), 3);
        let entering: Vec<_> = (0..3).map(|node| voters.enter(node, node == 0, is_durable)).collect();
        entering.into_iter().for_each(is_in);
        let mut current = insist(|| voters.node(0).replace(0, b"one")).expect("they agree");
        for node in [0, 1, 0, 2] {
            let former = voters.node(node).own().id;
            voters.stop(node);
            let entering = voters.enter(node, true, is_durable);
            is_in(entering);
            assert_eq!(voters.node(node).own().id == former, is_durable);
            current = insist(|| voters.node(node).replace(current.number(), b"next")).expect("it votes");
        }
        assert_eq!(current.number(), 5);
    }
}

#[test]
fn all_that_have_directories_are_a_cluster_again_and_none_is_made() {
    let mut voters = Voters::new("entry-all", 3);
    let entering: Vec<_> = (0..3).map(|node| voters.enter(node, node == 0, true)).collect();
    entering.into_iter().for_each(is_in);
    let first = insist(|| voters.node(0).replace(0, b"one")).expect("they agree");
    (0..3).for_each(|node| voters.stop(node));
    // One that has lost its directory makes none, though it is told to: others belong to one.
    let entering: Vec<_> = (0..3).map(|node| voters.enter(node, true, node != 0)).collect();
    entering.into_iter().for_each(is_in);
    assert_eq!(insist(|| voters.node(0).read()), Ok(first));
}

/// A voter that was away gets the longest configurations, more of them than one message takes.
#[test]
fn the_longest_entries_are_appended_in_parts() {
    let mut voters = Voters::new("entry-long", 3);
    let entering: Vec<_> = (0..3).map(|node| voters.enter(node, node == 0, true)).collect();
    entering.into_iter().for_each(is_in);
    voters.stop(2);
    let mut current = Configuration::none();
    for count in 0..6 {
        let content = vec![count; MOST_BYTES];
        current = insist(|| voters.node(0).replace(current.number(), &content)).expect("a majority");
    }
    let entering = voters.enter(2, false, true);
    is_in(entering);
    let deadline = Instant::now() + PATIENCE;
    while voters.node(2).known() != current {
        assert!(Instant::now() < deadline, "it does not get them");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(voters.hub.longest() <= drtm_membership::LONGEST_MESSAGE, "{} bytes", voters.hub.longest());
}
