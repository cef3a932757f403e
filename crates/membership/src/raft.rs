//! Agreement among the nodes themselves: Raft, by the crate openraft.
//!
//! This room gives openraft what it leaves open: a [disk](disk) for log and votes, a
//! [state machine](machine) that is one [ledger](crate::ledger), and [calls] over messages that a
//! [`Transport`] carries. A replacement is a log entry. A read asks a majority whether its leader
//! still leads. Both go to the leader, by message from other voters, and again to the next one
//! until an answer has come or patience has ended; a repeated entry changes nothing.
//!
//! Voters begin as one: [`Raft::bootstrap`] makes a cluster of the one that is told so, and each
//! other [joins](Raft::join) it. A node that comes back without its directory joins in the same
//! way, in place of its former voter. [`Raft::enter`] does what fits, by [asking](entry) the
//! others.

mod calls;
mod disk;
mod entry;
mod log;
mod machine;
mod message;
mod server;
#[cfg(test)]
mod tests;
mod types;

use std::{
    fmt,
    ops::Range,
    path::Path,
    sync::{Arc, mpsc as threads},
    thread::{self, JoinHandle},
    time::Duration,
};

use openraft::{Config, SnapshotPolicy};
use parking_lot::Mutex;
use tokio::{
    runtime,
    sync::{Semaphore, mpsc},
};
pub use types::Voter;

use self::{
    calls::Calls,
    disk::Disk,
    message::Envelope,
    server::{Command, Metrics, Server},
};
use crate::{
    Membership,
    answer::{Answer, Promise},
    configuration::{Configuration, MOST_BYTES},
    error::Error,
    latest::Latest,
    ledger,
    mutation::Mutation,
};

/// The longest message that a [`Transport`] is given, in bytes.
///
/// # Example
///
/// ```
/// assert!(drtm_membership::LONGEST_MESSAGE > drtm_membership::MOST_BYTES);
/// ```
pub const LONGEST_MESSAGE: usize = 4 << 20;

// The longest that follow from the longest content: entries that are appended together, or a
// snapshot with the names of former requests.
const _: () = assert!(LONGEST_MESSAGE >= 3 * MOST_BYTES + (64 << 10));

/// Memory of messages that wait, in units of 1 KiB. A message that finds no room is lost.
const ROOM: usize = 16 << 10;

/// Carries messages between voters: a cluster's own connections.
///
/// Messages are independent. They may be lost, late, repeated, and in another order, but must not
/// be changed or forged: connections are authenticated by whoever has them.
///
/// # Example
///
/// See [`Raft`].
pub trait Transport: Send + Sync + 'static {
    /// Sends a message, to be given to [`Raft::receive`] of the voter's node. It never blocks: what
    /// cannot be sent now is dropped.
    fn send(&self, to: &Voter, message: Vec<u8>);
}

/// Options of a [`Raft`].
///
/// # Example
///
/// ```
/// use std::time::Duration;
///
/// use drtm_membership::RaftOptions;
///
/// let mut options = RaftOptions::default();
/// options.heartbeat = Duration::from_millis(20);
/// options.election = Duration::from_millis(100)..Duration::from_millis(200);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RaftOptions {
    /// How often a leader says that it leads.
    pub heartbeat: Duration,
    /// After how long without a leader a voter stands for election: a random time of these.
    pub election: Range<Duration>,
    /// How long a request is tried.
    pub patience: Duration,
    /// Log entries after which a snapshot replaces them. The log has twice as many at most, and
    /// those of one request.
    pub snapshot_after: u32,
    #[doc(hidden)]
    pub fault: Option<Mutation>,
}

impl Default for RaftOptions {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(50),
            election: Duration::from_millis(200)..Duration::from_millis(400),
            patience: Duration::from_secs(3),
            snapshot_after: 16,
            fault: None,
        }
    }
}

/// A voter of a cluster that agrees by Raft.
///
/// # Example
///
/// ```
/// use std::sync::Arc;
///
/// use drtm_membership::{Membership, Raft, RaftOptions, Transport, Voter};
///
/// /// The connections of a cluster of one node.
/// struct NoOthers;
///
/// impl Transport for NoOthers {
///     fn send(&self, _: &Voter, _: Vec<u8>) {}
/// }
///
/// let directory = std::env::temp_dir().join(format!("drtm-raft-{}", std::process::id()));
/// let options = RaftOptions::default();
/// let node = Raft::start(Some(&directory), 0, "localhost:7400", Arc::new(NoOthers), options)?;
/// node.bootstrap().wait()?;
/// assert_eq!(node.replace(0, b"one node").wait()?.number(), 1);
/// assert_eq!(node.voters()[0].address, "localhost:7400");
/// # drop(node);
/// # std::fs::remove_dir_all(&directory).expect("it is here");
/// # Ok::<(), drtm_membership::Error>(())
/// ```
pub struct Raft {
    calls: Arc<Calls>,
    latest: Arc<Latest>,
    metrics: Metrics,
    commands: mpsc::UnboundedSender<Command>,
    /// Room for messages that wait.
    room: Arc<Semaphore>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Raft {
    /// Starts the voter of a directory, or makes another one if there is none in it. Without a
    /// directory, each start makes another one.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`], [`Error::Disk`], [`Error::InUse`], or [`Error::Refused`] for options
    /// that contradict each other and for the directory of another node.
    pub fn start(
        directory: Option<&Path>,
        node: u32,
        address: &str,
        transport: Arc<dyn Transport>,
        options: RaftOptions,
    ) -> Result<Self, Error> {
        let config = config(&options)?;
        let (disk, kept) = Disk::open(directory, node, options.fault)?;
        let own = Voter { id: kept.identity.id, node, address: address.to_owned() };
        let calls = Arc::new(Calls::new(own, kept.identity.group, transport));
        let latest = Arc::new(Latest::new(Configuration::none(), options.fault));
        let (commands, receiver) = mpsc::unbounded_channel();
        let (started, starting) = threads::channel();
        let (its_calls, its_latest) = (Arc::clone(&calls), Arc::clone(&latest));
        let run = move || {
            let runtime = match runtime::Builder::new_current_thread().enable_time().build() {
                Ok(runtime) => runtime,
                Err(why) => return drop(started.send(Err(Error::unavailable(why)))),
            };
            runtime.block_on(async {
                match Server::start(config, disk, kept, its_calls, Arc::clone(&its_latest), options).await {
                    Ok(server) => {
                        // Whoever started it waits for this, and has not gone.
                        let _ = started.send(Ok(server.metrics()));
                        server.run(receiver).await;
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
            });
            its_latest.end(&Error::Closed);
        };
        let thread = thread::Builder::new().name("drtm-raft".into()).spawn(run).map_err(Error::unavailable)?;
        let metrics = starting.recv().map_err(|_| Error::Closed)??;
        let room = Arc::new(Semaphore::new(ROOM));
        Ok(Self { calls, latest, metrics, commands, room, thread: Mutex::new(Some(thread)) })
    }

    /// Returns this voter's number, node and address.
    #[must_use]
    pub fn own(&self) -> &Voter {
        self.calls.own()
    }

    /// Returns the voters that this one knows of.
    #[must_use]
    pub fn voters(&self) -> Vec<Voter> {
        server::voters(&self.metrics.borrow())
    }

    /// Returns the leader that this voter knows of.
    #[must_use]
    pub fn leader(&self) -> Option<u64> {
        self.metrics.borrow().current_leader
    }

    /// Makes a cluster of this voter alone. Exactly one of a cluster's nodes is told so, once in
    /// the cluster's life.
    ///
    /// The answer is [`Error::Refused`] if the voter belongs to a cluster.
    pub fn bootstrap(&self) -> Answer<()> {
        let (answer, promise) = Answer::awaited(Error::unknown("the voter is closed"));
        self.command(Command::Bootstrap(promise));
        answer
    }

    /// Joins the cluster that a node at an address belongs to, in place of this node's former
    /// voter if there is one. A voter that has joined tells its new address so.
    ///
    /// The answer is [`Error::Unknown`] if no leader admits it in time; it can join again.
    pub fn join(&self, address: &str) -> Answer<()> {
        let (answer, promise) = Answer::awaited(Error::unknown("the voter is closed"));
        self.command(Command::Join(address.to_owned(), promise));
        answer
    }

    /// Joins the cluster that one of the other nodes belongs to, given their numbers and addresses.
    /// It tries until it is in, and a voter that is a member already notes that. If `founds` is
    /// true, all other nodes answer, and none belongs to a cluster, it makes one: see
    /// [`bootstrap`](Self::bootstrap). If several are told so, the one with the lowest number does.
    ///
    /// The answer is [`Error::Refused`] if it has been told before.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use drtm_membership::{Membership, Raft, RaftOptions, Transport, Voter};
    /// # struct NoOthers;
    /// # impl Transport for NoOthers {
    /// #     fn send(&self, _: &Voter, _: Vec<u8>) {}
    /// # }
    /// let node = Raft::start(None, 0, "localhost:7400", Arc::new(NoOthers), RaftOptions::default())?;
    /// node.enter(Vec::new(), true).wait()?;
    /// assert_eq!(node.voters().len(), 1);
    /// # Ok::<(), drtm_membership::Error>(())
    /// ```
    pub fn enter(&self, others: Vec<(u32, String)>, founds: bool) -> Answer<()> {
        let (answer, promise) = Answer::awaited(Error::unknown("the voter is closed"));
        self.command(Command::Enter { others, founds, promise });
        answer
    }

    /// Takes a message that another voter's transport was given.
    ///
    /// # Errors
    ///
    /// [`Error::Message`] if it is none, or is for another voter or from another cluster, as those
    /// are that voters send which were replaced; or if too many wait.
    pub fn receive(&self, message: &[u8]) -> Result<(), Error> {
        let envelope = Envelope::decode(message)?;
        server::admits(&self.calls, &envelope)?;
        let units = (message.len() >> 10) as u32 + 1;
        match Arc::clone(&self.room).try_acquire_many_owned(units) {
            Ok(room) => self.command(Command::Message(envelope, room)),
            Err(_) => return Err(Error::Message { why: "there is no room for it" }),
        }
        Ok(())
    }

    /// Ends the voter for all its handles, and returns when its directory can be used again. What
    /// it is asked from then on fails.
    ///
    /// # Example
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use drtm_membership::{Membership, Raft, RaftOptions, Transport, Voter};
    /// # struct NoOthers;
    /// # impl Transport for NoOthers {
    /// #     fn send(&self, _: &Voter, _: Vec<u8>) {}
    /// # }
    /// let node = Raft::start(None, 0, "localhost:7400", Arc::new(NoOthers), RaftOptions::default())?;
    /// node.bootstrap().wait()?;
    /// node.stop();
    /// assert!(node.read().wait().is_err() && node.watch(1).wait().is_err());
    /// # Ok::<(), drtm_membership::Error>(())
    /// ```
    pub fn stop(&self) {
        let mut thread = self.thread.lock();
        self.command(Command::Stop);
        if let Some(thread) = thread.take() {
            // A panic of the voter's thread has been reported by then.
            let _ = thread.join();
        }
        self.latest.end(&Error::Closed);
    }

    /// Hands a command to the voter's thread. If that has ended, the command's promise is dropped,
    /// and answers.
    fn command(&self, command: Command) {
        let _ = self.commands.send(command);
    }

    fn request(
        &self,
        dropped: Error,
        command: impl FnOnce(Promise<Configuration>) -> Command,
    ) -> Answer<Configuration> {
        let (answer, promise) = Answer::awaited(dropped);
        self.command(command(promise));
        answer
    }
}

/// Returns openraft's options.
fn config(options: &RaftOptions) -> Result<Arc<Config>, Error> {
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let entries = u64::from(options.snapshot_after);
    let config = Config {
        cluster_name: "drtm".into(),
        heartbeat_interval: milliseconds(options.heartbeat),
        election_timeout_min: milliseconds(options.election.start),
        election_timeout_max: milliseconds(options.election.end),
        install_snapshot_timeout: milliseconds(options.patience),
        snapshot_policy: SnapshotPolicy::LogsSinceLast(entries),
        max_in_snapshot_log_to_keep: entries,
        replication_lag_threshold: 2 * entries,
        max_payload_entries: 2 * entries,
        ..Config::default()
    };
    let config = config.validate().map_err(|why| Error::Refused { why: why.to_string() })?;
    Ok(Arc::new(config))
}

impl Membership for Raft {
    fn read(&self) -> Answer<Configuration> {
        self.request(Error::unavailable("the voter is closed"), Command::Read)
    }

    fn replace(&self, expected: u32, content: &[u8]) -> Answer<Configuration> {
        if let Err(error) = ledger::next_number(expected, content) {
            return Answer::ready(Err(error));
        }
        let content = content.to_vec();
        let replace = |promise| Command::Replace { expected, content, promise };
        self.request(Error::unknown("the voter is closed"), replace)
    }

    fn watch(&self, after: u32) -> Answer<Configuration> {
        let answer = self.latest.watch(after);
        if self.thread.lock().is_none() {
            // Nothing comes any more.
            self.latest.end(&Error::Closed);
        }
        answer
    }

    fn known(&self) -> Configuration {
        self.latest.known()
    }
}

impl Drop for Raft {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Raft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Raft").field("own", self.own()).field("known", &self.known()).finish_non_exhaustive()
    }
}
