//! Calls: requests with replies, over a transport that may lose, delay and repeat messages.

use std::{
    collections::HashMap,
    fmt, future,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use openraft::{
    EntryPayload, RPCTypes, RaftNetwork, RaftNetworkFactory, Snapshot,
    error::{Fatal, NetworkError, PayloadTooLarge, RPCError, RaftError, ReplicationClosed, StreamingError, Timeout},
    network::RPCOption,
    raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse},
};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::{sync::oneshot, time};

use super::{
    Transport,
    message::{Ask, Body, Envelope, Reply},
    types::{Entry, Logged, Types, Vote, Voter},
};
use crate::{configuration::MOST_BYTES, error::Error};

/// The calls of one voter.
pub(crate) struct Calls {
    own: Voter,
    group: AtomicU64,
    transport: Arc<dyn Transport>,
    /// The number of the next call. It begins at random, so that a reply to an earlier life of
    /// this voter is not taken for one to this.
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Reply>>>,
}

impl Calls {
    pub(crate) fn new(own: Voter, group: u64, transport: Arc<dyn Transport>) -> Self {
        let next = AtomicU64::new(fastrand::u64(..));
        Self { own, group: AtomicU64::new(group), transport, next, waiting: Mutex::default() }
    }

    pub(crate) fn own(&self) -> &Voter {
        &self.own
    }

    pub(crate) fn group(&self) -> u64 {
        self.group.load(Relaxed)
    }

    pub(crate) fn set_group(&self, group: u64) {
        self.group.store(group, Relaxed);
    }

    /// Returns a number that no other call and no other request of this voter has.
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    /// Asks a voter, and waits for the reply for some time. `None` if it does not come.
    pub(crate) async fn ask(&self, to: &Voter, ask: Ask, patience: Duration) -> Result<Option<Reply>, Error> {
        let call = self.number();
        let (sender, receiver) = oneshot::channel();
        let _forgotten = Forgotten { calls: self, call };
        self.waiting.lock().insert(call, sender);
        self.send(to, call, Body::Ask(ask))?;
        Ok(time::timeout(patience, receiver).await.ok().and_then(Result::ok))
    }

    pub(crate) fn reply(&self, to: &Voter, call: u64, reply: Reply) -> Result<(), Error> {
        self.send(to, call, Body::Reply(reply))
    }

    fn send(&self, to: &Voter, call: u64, body: Body) -> Result<(), Error> {
        let envelope = Envelope { group: self.group(), from: self.own.clone(), to: to.id, call, body };
        let message = envelope.encode().map_err(Error::unavailable)?;
        self.transport.send(to, message);
        Ok(())
    }

    /// Hands a reply to what waits for it, if that still does.
    pub(crate) fn arrived(&self, call: u64, reply: Reply) {
        if let Some(sender) = self.waiting.lock().remove(&call) {
            // What asked may have given up at this moment.
            let _ = sender.send(reply);
        }
    }
}

/// Forgets a call when nothing waits for its reply any more.
struct Forgotten<'c> {
    calls: &'c Calls,
    call: u64,
}

impl Drop for Forgotten<'_> {
    fn drop(&mut self) {
        self.calls.waiting.lock().remove(&self.call);
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").field("own", &self.own).finish_non_exhaustive()
    }
}

/// Calls to one voter, as openraft makes them.
pub(crate) struct Peer {
    calls: Arc<Calls>,
    to: Voter,
}

type CallError = RPCError<u64, Voter, RaftError<u64>>;

impl Peer {
    async fn call(&self, ask: Ask, kind: RPCTypes, timeout: Duration) -> Result<Reply, CallError> {
        let failed = |why: String| RPCError::Network(NetworkError::new(&Error::unavailable(why)));
        match self.calls.ask(&self.to, ask, timeout).await {
            Ok(Some(Reply::Failed(why))) => Err(failed(why)),
            Ok(Some(reply)) => Ok(reply),
            Ok(None) => {
                Err(RPCError::Timeout(Timeout { action: kind, id: self.calls.own.id, target: self.to.id, timeout }))
            }
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

/// Bytes of contents in the entries of one message, unless it is one entry.
const MOST_APPENDED: usize = 2 * MOST_BYTES;

/// Returns how many of some entries are sent together: one at least.
fn fit(entries: &[Entry]) -> usize {
    let mut bytes = 0;
    let fits = |entry: &&Entry| {
        if let EntryPayload::Normal(Logged::Proposal(proposal)) = &entry.payload {
            bytes += proposal.content.len();
        }
        bytes <= MOST_APPENDED
    };
    entries.iter().take_while(fits).count().max(1)
}

fn misplaced<E: std::error::Error>() -> RPCError<u64, Voter, E> {
    RPCError::Network(NetworkError::new(&Error::Message { why: "the reply answers another question" }))
}

impl RaftNetwork<Types> for Peer {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, CallError> {
        let fits = fit(&request.entries);
        if fits < request.entries.len() {
            return Err(PayloadTooLarge::new_entries_hint(fits as u64).into());
        }
        match self.call(Ask::Append(request), RPCTypes::AppendEntries, option.hard_ttl()).await? {
            Reply::Append(reply) => Ok(reply),
            _ => Err(misplaced()),
        }
    }

    async fn vote(&mut self, request: VoteRequest<u64>, option: RPCOption) -> Result<VoteResponse<u64>, CallError> {
        match self.call(Ask::Vote(request), RPCTypes::Vote, option.hard_ttl()).await? {
            Reply::Vote(reply) => Ok(reply),
            _ => Err(misplaced()),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot<Types>,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<u64>, StreamingError<Types, Fatal<u64>>> {
        let ask = Ask::Snapshot { vote, meta: snapshot.meta, data: *snapshot.snapshot };
        let mut call = std::pin::pin!(self.call(ask, RPCTypes::InstallSnapshot, option.hard_ttl()));
        let mut cancel = std::pin::pin!(cancel);
        let answered = future::poll_fn(|context| match cancel.as_mut().poll(context) {
            std::task::Poll::Ready(closed) => std::task::Poll::Ready(Err(closed)),
            std::task::Poll::Pending => call.as_mut().poll(context).map(Ok),
        });
        match answered.await? {
            Ok(Reply::Snapshot(reply)) => Ok(reply),
            Ok(_) => Err(StreamingError::Network(NetworkError::new(&Error::Message {
                why: "the reply answers another question",
            }))),
            Err(RPCError::Timeout(timeout)) => Err(StreamingError::Timeout(timeout)),
            Err(error) => Err(StreamingError::Network(NetworkError::new(&error))),
        }
    }
}

/// Makes [`Peer`]s.
#[derive(Clone, Debug)]
pub(crate) struct Peers(pub(crate) Arc<Calls>);

impl RaftNetworkFactory<Types> for Peers {
    type Network = Peer;

    async fn new_client(&mut self, _target: u64, voter: &Voter) -> Peer {
        Peer { calls: Arc::clone(&self.0), to: voter.clone() }
    }
}
