//! A voter at work: what it does for its node, and what it answers to other voters.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use openraft::{
    ChangeMembers, Config, RaftMetrics, Snapshot,
    error::{ClientWriteError, RaftError},
};
use tokio::{
    sync::{Mutex as Turn, OwnedSemaphorePermit, mpsc, watch},
    task,
    time::{self, Instant},
};

use super::{
    RaftOptions,
    calls::{Calls, Peers},
    disk::{Disk, Identity, Kept},
    log::LogStore,
    machine::Machine,
    message::{Ask, Body, Envelope, Reply},
    types::{Logged, Proposal, Types, Voter},
};
use crate::{
    answer::Promise, configuration::Configuration, error::Error, latest::Latest, ledger::RequestName,
    mutation::Mutation,
};

/// What a voter's thread is told to do.
#[derive(Debug)]
pub(crate) enum Command {
    Read(Promise<Configuration>),
    Replace {
        expected: u32,
        content: Vec<u8>,
        promise: Promise<Configuration>,
    },
    Bootstrap(Promise<()>),
    Join(String, Promise<()>),
    Enter {
        others: Vec<(u32, String)>,
        founds: bool,
        promise: Promise<()>,
    },
    /// With the room that it takes until it is dealt with.
    Message(Envelope, OwnedSemaphorePermit),
    Stop,
}

pub(crate) type Metrics = watch::Receiver<RaftMetrics<u64, Voter>>;

/// Returns the voters of a configuration of Raft's. Those that only learn do not count.
pub(crate) fn voters(metrics: &RaftMetrics<u64, Voter>) -> Vec<Voter> {
    let membership = metrics.membership_config.membership();
    let ids: BTreeSet<u64> = membership.voter_ids().collect();
    ids.iter().filter_map(|id| membership.get_node(id)).cloned().collect()
}

/// Checks whether a message is for this voter, and from its cluster.
pub(crate) fn admits(calls: &Calls, envelope: &Envelope) -> Result<(), Error> {
    let asks_to_join = matches!(envelope.body, Body::Ask(Ask::Admit(_) | Ask::Stands));
    if envelope.to != calls.own().id && !(asks_to_join && envelope.to == 0) {
        return Err(Error::Message { why: "it is for another voter" });
    }
    let is_known = envelope.group == calls.group() || calls.group() == 0 || (envelope.group == 0 && asks_to_join);
    if is_known { Ok(()) } else { Err(Error::Message { why: "it is from another cluster" }) }
}

pub(crate) struct Server {
    pub(super) raft: openraft::Raft<Types>,
    pub(super) calls: Arc<Calls>,
    disk: Disk,
    identity: Turn<Identity>,
    latest: Arc<Latest>,
    pub(super) options: RaftOptions,
    /// Voters are admitted one after the other.
    admission: Turn<()>,
    /// The term in which this life of the voter has committed a barrier, as its leader.
    barrier: AtomicU64,
    /// Whether it is to make a cluster if there is none. `None`: it has not been said yet.
    pub(super) founds: OnceLock<bool>,
}

impl Server {
    pub(crate) async fn start(
        config: Arc<Config>,
        disk: Disk,
        kept: Kept,
        calls: Arc<Calls>,
        latest: Arc<Latest>,
        options: RaftOptions,
    ) -> Result<Arc<Self>, Error> {
        let refused = |why: String| Error::Refused { why };
        let (machine, snapshots) =
            Machine::new(disk.clone(), Arc::clone(&latest), kept.snapshot.clone(), options.fault)?;
        let log = LogStore::new(disk.clone(), &kept, snapshots, options.fault);
        let id = kept.identity.id;
        let raft = openraft::Raft::new(id, config, Peers(Arc::clone(&calls)), log, machine).await;
        let raft = raft.map_err(|why| refused(why.to_string()))?;
        // It has begun if it answers: openraft checks then whether log and snapshot fit.
        raft.is_initialized().await.map_err(|why| disk.damaged_snapshot(why))?;
        let identity = Turn::new(kept.identity);
        Ok(Arc::new(Self {
            raft,
            calls,
            disk,
            identity,
            latest,
            options,
            admission: Turn::default(),
            barrier: AtomicU64::new(0),
            founds: OnceLock::new(),
        }))
    }

    pub(crate) fn metrics(&self) -> Metrics {
        self.raft.metrics()
    }

    /// Does what it is told, each in a task of its own, until it is told to stop.
    pub(crate) async fn run(self: Arc<Self>, mut commands: mpsc::UnboundedReceiver<Command>) {
        while let Some(command) = commands.recv().await {
            let server = Arc::clone(&self);
            match command {
                Command::Stop => break,
                // What waits is woken at once, in the order of arrival.
                Command::Message(Envelope { call, body: Body::Reply(reply), .. }, _) => {
                    server.calls.arrived(call, reply);
                }
                Command::Message(Envelope { group, from, call, body: Body::Ask(ask), .. }, room) => {
                    task::spawn(async move {
                        server.answer(group, from, call, ask).await;
                        drop(room);
                    });
                }
                Command::Read(promise) => {
                    task::spawn(async move { promise.keep(server.read().await) });
                }
                Command::Replace { expected, content, promise } => {
                    task::spawn(async move { promise.keep(server.replace(expected, content).await) });
                }
                Command::Bootstrap(promise) => {
                    task::spawn(async move { promise.keep(server.bootstrap().await) });
                }
                Command::Join(address, promise) => {
                    task::spawn(async move { promise.keep(server.join(address).await) });
                }
                Command::Enter { others, founds, promise } => {
                    task::spawn(async move { promise.keep(server.find_cluster(&others, founds).await) });
                }
            }
        }
        // An error means that it has stopped already.
        let _ = self.raft.shutdown().await;
    }

    async fn read(&self) -> Result<Configuration, Error> {
        match self.lead(None, || Ask::Read).await {
            Ok(Reply::Read(number, content)) => {
                let configuration = Configuration::new(number, content);
                self.latest.publish(&configuration);
                Ok(configuration)
            }
            Ok(_) => Err(Error::Message { why: "the reply answers another question" }),
            Err(Failure { why, .. }) => Err(Error::unavailable(why)),
        }
    }

    async fn replace(&self, expected: u32, content: Vec<u8>) -> Result<Configuration, Error> {
        let name = RequestName { author: self.calls.own().id, request: self.calls.number() };
        let proposal = Proposal { name, expected, content };
        match self.lead(None, || Ask::Replace(proposal.clone())).await {
            Ok(Reply::Replace(applied)) => {
                let outcome = applied.outcome();
                if let Ok(seen) | Err(Error::Outdated { current: seen }) = &outcome {
                    self.latest.publish(seen);
                }
                outcome
            }
            Ok(_) => Err(Error::unknown("the reply answers another question")),
            Err(Failure { why, is_certain }) => {
                let lost = self.options.fault == Some(Mutation::LostTakenForRefused);
                Err(if is_certain || lost { Error::unavailable(why) } else { Error::unknown(why) })
            }
        }
    }

    pub(super) async fn bootstrap(&self) -> Result<(), Error> {
        let refused = |why: String| Error::Refused { why };
        if self.raft.is_initialized().await.map_err(|why| refused(why.to_string()))? {
            return Err(refused("the voter belongs to a cluster: it can only join".into()));
        }
        self.enter(fastrand::u64(1..)).await?;
        let own = self.calls.own().clone();
        let begun = self.raft.initialize([(own.id, own)].into_iter().collect::<BTreeMap<_, _>>());
        begun.await.map_err(|why| refused(why.to_string()))
    }

    /// Makes a cluster's number this voter's, durably.
    async fn enter(&self, group: u64) -> Result<(), Error> {
        let mut identity = self.identity.lock().await;
        if identity.group != group {
            let entered = Identity { group, ..*identity };
            let disk = self.disk.clone();
            task::spawn_blocking(move || disk.save_identity(entered)).await.map_err(Error::unavailable)??;
            *identity = entered;
            self.calls.set_group(group);
        }
        Ok(())
    }

    pub(super) async fn join(&self, address: String) -> Result<(), Error> {
        let own = self.calls.own();
        let contact = Voter { address, ..Voter::default() };
        match self.lead(Some(contact), || Ask::Admit(own.clone())).await {
            Ok(Reply::Admitted) => Ok(()),
            Ok(_) => Err(Error::unknown("the reply answers another question")),
            Err(Failure { why, .. }) => Err(Error::unknown(why)),
        }
    }

    /// Asks the leader, and the next leader if there is no answer, until patience ends. A
    /// voter that joins asks its `contact` instead, until that names a leader.
    async fn lead(&self, contact: Option<Voter>, ask: impl Fn() -> Ask) -> Result<Reply, Failure> {
        let deadline = Instant::now() + self.options.patience;
        let once = (2 * self.options.election.end).min(self.options.patience);
        let mut failure = Failure { why: "no leader is known".into(), is_certain: true };
        let mut hint = None;
        while Instant::now() < deadline {
            let known = hint.take().or_else(|| contact.clone()).or_else(|| self.leader());
            let left = once.min(deadline.saturating_duration_since(Instant::now()));
            let reply = match known {
                None => Some(Reply::NotLeader(None)),
                Some(leader) if leader.id == self.calls.own().id => time::timeout(left, self.led(ask())).await.ok(),
                Some(leader) => match self.calls.ask(&leader, ask(), left).await {
                    Ok(reply) => reply,
                    // It was not sent.
                    Err(error) => return Err(Failure { why: error.to_string(), ..failure }),
                },
            };
            match reply {
                Some(Reply::NotLeader(leader)) => hint = leader,
                Some(Reply::Failed(why)) => failure = Failure { why, is_certain: false },
                Some(reply) => return Ok(reply),
                None => failure = Failure { why: "the leader did not answer".into(), is_certain: false },
            }
            time::sleep(self.options.heartbeat / 4).await;
        }
        Err(failure)
    }

    fn leader(&self) -> Option<Voter> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let leader = metrics.current_leader?;
        metrics.membership_config.membership().get_node(&leader).cloned()
    }

    pub(super) fn leads(&self) -> bool {
        self.raft.metrics().borrow().current_leader == Some(self.calls.own().id)
    }

    /// Answers another voter.
    async fn answer(&self, group: u64, from: Voter, call: u64, ask: Ask) {
        let is_replicated = matches!(ask, Ask::Append(_) | Ask::Snapshot { .. });
        if self.calls.group() == 0 && is_replicated {
            // The leader has admitted it, as it has asked for.
            if self.enter(group).await.is_err() {
                return;
            }
        }
        let reply = match ask {
            Ask::Append(request) => self.raft.append_entries(request).await.map(Reply::Append).or_else(failed),
            Ask::Vote(request) => self.raft.vote(request).await.map(Reply::Vote).or_else(failed),
            Ask::Snapshot { vote, meta, data } => {
                let snapshot = Snapshot { meta, snapshot: Box::new(data) };
                let installed = self.raft.install_full_snapshot(vote, snapshot).await;
                installed.map(Reply::Snapshot).or_else(|why| failed(RaftError::Fatal(why)))
            }
            Ask::Stands => self.stands().await,
            ask => Ok(time::timeout(self.options.patience, self.led(ask)).await.unwrap_or(slow())),
        };
        if let Ok(reply) = reply {
            // A reply that cannot be sent is one that is lost.
            let _ = self.calls.reply(&from, call, reply);
        }
    }

    /// Does what only the leader can do.
    async fn led(&self, ask: Ask) -> Reply {
        if !self.leads() {
            return Reply::NotLeader(self.leader());
        }
        match ask {
            Ask::Read => match self.confirm().await {
                Ok(()) => {
                    let configuration = self.latest.known();
                    Reply::Read(configuration.number(), configuration.content().to_vec())
                }
                Err(why) => Reply::Failed(why),
            },
            Ask::Replace(proposal) => match self.raft.client_write(Logged::Proposal(proposal)).await {
                Ok(written) => Reply::Replace(written.data),
                // Also if it says that another one leads: the entry may be in some logs, and the
                // leader after that may commit it.
                Err(why) => Reply::Failed(why.to_string()),
            },
            Ask::Admit(voter) => match self.admit(voter).await {
                Ok(()) => Reply::Admitted,
                Err(why) => Reply::Failed(why.to_string()),
            },
            Ask::Append(_) | Ask::Vote(_) | Ask::Snapshot { .. } | Ask::Stands => Reply::NotLeader(None),
        }
    }

    /// Waits until everything is applied that was committed before, and confirms that no other
    /// voter leads.
    ///
    /// A leader that restarts within its term goes on leading, and openraft then takes its first
    /// entry of the term for what must be applied: it does not know what it had committed after
    /// that. So this life of the voter commits an entry first, once in a term.
    async fn confirm(&self) -> Result<(), String> {
        if self.options.fault == Some(Mutation::LeaderNotAsked) {
            return Ok(());
        }
        let term = self.raft.metrics().borrow().current_term;
        if self.barrier.load(Relaxed) != term && self.options.fault != Some(Mutation::BarrierLeftOut) {
            let written = self.raft.client_write(Logged::Barrier).await.map_err(|why| why.to_string())?;
            self.barrier.store(written.log_id.leader_id.term, Relaxed);
        }
        self.raft.ensure_linearizable().await.map(drop).map_err(|why| why.to_string())
    }

    /// Makes a voter one of the cluster's, in place of those of the same node.
    async fn admit(&self, voter: Voter) -> Result<(), RaftError<u64, ClientWriteError<u64, Voter>>> {
        let _turn = self.admission.lock().await;
        let membership = self.raft.metrics().borrow().membership_config.membership().clone();
        let current: BTreeSet<u64> = membership.voter_ids().collect();
        let is_former =
            |id: &u64| *id != voter.id && membership.get_node(id).is_some_and(|other| other.node == voter.node);
        if membership.get_node(&voter.id).is_some_and(|known| *known != voter) {
            let moved = ChangeMembers::SetNodes([(voter.id, voter.clone())].into_iter().collect());
            self.raft.change_membership(moved, true).await?;
        }
        if !current.contains(&voter.id) {
            // It votes when it has the log: before that, it would only be one more to wait for.
            self.raft.add_learner(voter.id, voter.clone(), true).await?;
        }
        let mut wanted: BTreeSet<u64> = current.iter().copied().filter(|id| !is_former(id)).collect();
        wanted.insert(voter.id);
        if wanted != current || membership.get_joint_config().len() > 1 {
            self.raft.change_membership(wanted, false).await?;
        }
        let learners: BTreeSet<u64> = membership.learner_ids().filter(|id| is_former(id)).collect();
        if !learners.is_empty() {
            self.raft.change_membership(ChangeMembers::RemoveNodes(learners), false).await?;
        }
        Ok(())
    }
}

/// Why the leader could not be asked, and whether nothing has happened for certain.
struct Failure {
    why: String,
    is_certain: bool,
}

fn slow() -> Reply {
    Reply::Failed("it took too long".into())
}

/// A voter that has stopped does not answer.
fn failed(_: RaftError<u64>) -> Result<Reply, ()> {
    Err(())
}
