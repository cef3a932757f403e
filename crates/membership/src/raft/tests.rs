//! What openraft relies on: the suite that it has for storages, and what a voter that restarts
//! must not have forgotten.

use std::{
    fs,
    path::PathBuf,
    process,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Duration,
};

use openraft::{
    CommittedLeaderId, EntryPayload, RaftSnapshotBuilder as _,
    raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest},
    storage::{RaftLogStorage as _, RaftStateMachine as _},
    testing::{StoreBuilder, Suite},
};
use tokio::{sync::watch, time};

use super::{
    Raft, RaftOptions, Transport,
    disk::Disk,
    log::{LogStore, Reach},
    machine::Machine,
    message::{Ask, Body, Envelope, Reply},
    types::{Entry, LogId, StorageError, Types, Vote, Voter},
};
use crate::{configuration::Configuration, latest::Latest, mutation::Mutation};

/// A folder that is removed with this.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static FOLDERS: AtomicUsize = AtomicUsize::new(0);
        let name = format!("drtm-raft-store-{}-{}", process::id(), FOLDERS.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        // Left by a run that was killed, with the same id.
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It may never have been made.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Stores for openraft's suite, which purges without a snapshot.
struct Stores(watch::Sender<Reach>);

impl StoreBuilder<Types, LogStore, Machine, Folder> for Stores {
    async fn build(&self) -> Result<(Folder, LogStore, Machine), StorageError> {
        let folder = Folder::new();
        let (disk, kept) = Disk::open(Some(&folder.0), 0, None).expect("a directory");
        let log = LogStore::new(disk.clone(), &kept, self.0.subscribe(), None);
        let latest = Arc::new(Latest::new(Configuration::none(), None));
        let (machine, _) = Machine::new(disk, latest, None, None).expect("a new one");
        Ok((folder, log, machine))
    }
}

#[test]
fn the_store_is_as_openraft_asks_for() {
    let last = LogId::new(CommittedLeaderId::new(u64::MAX, 0), u64::MAX);
    let (stores, _snapshots) = watch::channel(Ok(Some(last)));
    Suite::test_all(Stores(stores)).expect("every part of the suite");
}

#[test]
fn a_log_is_purged_after_its_snapshot_is_durable_and_a_fault_that_hurries_is_found() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    for fault in [None, Some(Mutation::PurgedTooEarly)] {
        runtime.block_on(async {
            let folder = Folder::new();
            let (disk, kept) = Disk::open(Some(&folder.0), 0, None).expect("a directory");
            let latest = Arc::new(Latest::new(Configuration::none(), None));
            let (mut machine, snapshots) = Machine::new(disk.clone(), latest, None, None).expect("a new one");
            let mut log = LogStore::new(disk, &kept, snapshots, fault);
            let log_id = |index| LogId::new(CommittedLeaderId::new(1, 1), index);
            let entries = (0..4).map(|index| Entry { log_id: log_id(index), payload: EntryPayload::Blank });
            machine.apply(entries.clone().take(2)).await.expect("they are applied");
            machine.build_snapshot().await.expect("a snapshot up to 1");
            assert!(log.purge(log_id(1)).await.is_ok());
            let hurried = time::timeout(Duration::from_millis(50), log.purge(log_id(3))).await;
            assert_eq!(hurried.is_ok(), fault.is_some(), "{fault:?}");
            machine.apply(entries.skip(2)).await.expect("they are applied");
            machine.build_snapshot().await.expect("a snapshot up to 3");
            assert!(log.purge(log_id(3)).await.is_ok());
        });
    }
}

/// Keeps what a voter replies.
struct Replies(mpsc::Sender<Vec<u8>>);

impl Transport for Replies {
    fn send(&self, _: &Voter, message: Vec<u8>) {
        // A reply may come when the test has what it wants.
        let _ = self.0.send(message);
    }
}

/// One life of a voter, from its start to its stop.
struct Life {
    raft: Raft,
    replies: mpsc::Receiver<Vec<u8>>,
}

impl Life {
    fn start(folder: &Folder, fault: Option<Mutation>) -> Self {
        let (sender, replies) = mpsc::channel();
        let options = RaftOptions { fault, ..RaftOptions::default() };
        let raft = Raft::start(Some(&folder.0), 0, "here", Arc::new(Replies(sender)), options);
        Self { raft: raft.expect("it starts"), replies }
    }

    fn ask(&self, ask: Ask) -> Reply {
        let from = Voter { id: 99, node: 1, address: "there".into() };
        let envelope = Envelope { group: 5, from, to: self.raft.own().id, call: 1, body: Body::Ask(ask) };
        self.raft.receive(&envelope.encode().expect("a message")).expect("it is for this voter");
        let reply = self.replies.recv_timeout(Duration::from_secs(30)).expect("a reply");
        match Envelope::decode(&reply).expect("a message") {
            Envelope { body: Body::Reply(reply), call: 1, .. } => reply,
            other => panic!("{other:?}"),
        }
    }

    fn votes_for(&self, term: u64, candidate: u64) -> bool {
        let request = VoteRequest { vote: Vote::new(term, candidate), last_log_id: None };
        match self.ask(Ask::Vote(request)) {
            Reply::Vote(reply) => reply.vote_granted,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_vote_is_remembered_and_a_fault_that_forgets_it_is_found() {
    for (fault, votes) in [(None, [true, false]), (Some(Mutation::VoteNotSynced), [true, true])] {
        let folder = Folder::new();
        // Two candidates of one term.
        let life = |candidate| Life::start(&folder, fault).votes_for(1, candidate);
        assert_eq!([9, 3].map(life), votes, "{fault:?}");
    }
}

#[test]
fn an_acknowledged_entry_is_remembered_and_a_fault_that_forgets_it_is_found() {
    for fault in [None, Some(Mutation::LogNotSynced)] {
        let folder = Folder::new();
        let log_id = LogId::new(CommittedLeaderId::new(1, 9), 0);
        let entries = vec![Entry { log_id, payload: EntryPayload::Blank }];
        let vote = Vote::new_committed(1, 9);
        let append = AppendEntriesRequest { vote, prev_log_id: None, entries, leader_commit: None };
        let reply = Life::start(&folder, fault).ask(Ask::Append(append));
        assert!(matches!(reply, Reply::Append(AppendEntriesResponse::Success)), "{reply:?}");
        // A candidate without the entry. The voter believes for a while that its leader leads.
        let life = Life::start(&folder, fault);
        let mut votes = (2..12).map(|term| {
            thread::sleep(Duration::from_millis(100));
            life.votes_for(term, 3)
        });
        assert_eq!(votes.any(|granted| granted), fault.is_some(), "{fault:?}");
    }
}

#[test]
fn messages_that_are_none_are_refused() {
    let folder = Folder::new();
    let (sender, _replies) = mpsc::channel();
    let options = RaftOptions::default();
    let raft = Raft::start(Some(&folder.0), 0, "here", Arc::new(Replies(sender)), options).expect("it starts");
    raft.bootstrap().wait().expect("alone");
    let from = Voter { id: 99, node: 1, address: "there".into() };
    let group = raft.calls.group();
    let envelope = |group, to, ask| Envelope { group, from: from.clone(), to, call: 1, body: Body::Ask(ask) };
    let own = raft.own().id;
    let good = envelope(group, own, Ask::Read).encode().expect("a message");
    assert_eq!(raft.receive(&good), Ok(()));
    for length in 0..good.len() {
        assert!(raft.receive(&good[..length]).is_err(), "{length} bytes");
    }
    assert!(raft.receive(&[&good[..], &[0]].concat()).is_err());
    let refused =
        [(group + 1, own, Ask::Read), (group, own + 1, Ask::Read), (group, 0, Ask::Read), (0, own, Ask::Read)];
    for (group, to, ask) in refused {
        assert!(raft.receive(&envelope(group, to, ask).encode().expect("a message")).is_err(), "{group} {to}");
    }
    let stranger = envelope(0, 0, Ask::Admit(from.clone())).encode().expect("a message");
    assert_eq!(raft.receive(&stranger), Ok(()), "a voter that wants to join");
}
