//! What nodes ask of each other, one file for each subject.
//!
//! A [`Request`] says what it costs, what its bytes are, and how a node [serves](Request::serve)
//! it. A node that asks itself calls `serve` directly; another one calls it behind decoding. A
//! [`TxRequest`] is a request as a transaction makes it: by the number of what its state knows,
//! such as a row. The one alternative form of some is [verbs](Coordinator::reach).
//!
//! A request never waits at the node that serves it: it is carried out, or refused with a
//! [`Refusal`].
//!
//! A new request is a file, and a line of the [table](super::ask). See `docs/decisions/0085`.

pub(super) mod apply;
pub(super) mod change;
pub(super) mod check;
pub(super) mod learn;
#[cfg(feature = "hades")]
pub(super) mod lines;
pub(super) mod lock;
pub(super) mod log;
pub(super) mod node;
pub(super) mod orders;
pub(super) mod place;
pub(super) mod read;
pub(super) mod scan;
pub(super) mod status;
pub(super) mod tenure;

use std::marker::PhantomData;

#[cfg(feature = "hades")]
use self::lines::{CheckLines, End, Fetch, FetchRange, Intend, PlaceLines, Squash, Standing, Update};
use self::{
    apply::Apply,
    change::{Carry, Decide, Prepare, Recall, Report},
    check::{Check, Guard},
    learn::{CopyRows, Hold},
    lock::{Lock, Unlock},
    log::{Append, Log, OpenRing, Settle, Void},
    node::{Clock, Close, Count, Durable, Introduce, Line},
    orders::TakeOrder,
    place::{Place, Reap},
    read::{Lease, Read},
    scan::Scan,
    status::{CountRows, Status},
    tenure::{Probe, Renew},
};
use super::{
    ClusterError, Refusal,
    ask::{Ask, requests, with_lines},
    coordinator::Coordinator,
    participant::Participant,
    shard::ShardId,
    state::State,
    wire::stamp::{Binds, Stamp},
};
use crate::{Config, Error, mutation::Mutation};
use drtm_kv::{Handle, Holder};
use drtm_rdma::{
    Cost, Fabric, NodeId, Phase, Port, Sender,
    rpc::{Answered, Calls, Decode, Encode, InOrder, Incoming, Procedure, Refused, RpcError, Slot},
};

/// A request that nodes serve.
pub(super) trait Request {
    /// The number of its procedure.
    const NUMBER: u16;

    /// What a processor does for it, if that counts.
    const COST: Option<Cost>;

    /// Whether a smart NIC serves it for other nodes, which charges for it itself.
    const BY_NIC: bool = false;

    /// What of its [stamp](Stamp) must be the serving node's.
    const BINDS: Binds = Binds::View;

    /// Whether visitors may make it, which have the cluster's key and are no nodes.
    const FOR_VISITORS: bool = false;

    /// What it says.
    type Body<'a>: Encode + Decode<'a>;

    /// What is answered. It may borrow from the participant.
    type Reply<'a>: Encode + Decode<'a>;

    /// Returns how often its cost is due.
    fn times(_: &Self::Body<'_>) -> usize {
        1
    }

    /// Carries it out, or refuses it.
    fn serve<'p, F: Fabric, S: On<F>>(body: Self::Body<'_>, at: Serving<'p, '_, F, S>) -> Answer<'p, Self>;
}

/// What comes of serving a request.
pub(super) type Answer<'p, R> = Result<<R as Request>::Reply<'p>, Refusal>;

/// The configuration of nodes of a fabric.
pub(super) trait On<F: Fabric>: Config<Engine = F::Engine> {}

impl<F: Fabric, S: Config<Engine = F::Engine>> On<F> for S {}

/// What the number of a transaction's request is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    Row,
    Owner,
    Guard,
    Span,
    /// What the transaction changes at a node.
    Part,
    /// A piece of a record for a ring.
    Piece,
    /// A record in a ring.
    Record,
    /// What the transaction has in a node's NIC.
    #[cfg(feature = "hades")]
    NicPart,
}

/// A request as a transaction makes it, of something that its state knows by a number.
pub(super) trait TxRequest {
    /// The request.
    type Of: Request;

    /// What its number is of.
    const ABOUT: About = About::Row;

    /// Returns what it says.
    fn body<'a, P: Port>(state: &'a State<'_, P>, number: u32) -> <Self::Of as Request>::Body<'a>;

    /// Notes that it is on its way, before anything is known of its outcome.
    fn sent<P: Port>(_: &mut State<'_, P>, _: u32) {}

    /// Notes that it was not answered, or refused.
    fn failed<P: Port>(_: &mut State<'_, P>, _: u32, _: &RpcError) {}

    /// Notes the answer, if it says something.
    ///
    /// # Errors
    ///
    /// When the answer stops the transaction.
    fn answered<P: Port>(_: &mut State<'_, P>, _: u32, _: <Self::Of as Request>::Reply<'_>) -> Result<(), Error> {
        Ok(())
    }
}

/// A request as a procedure of `drtm_rdma::rpc`. What all requests of a message have in common is
/// the message's tag: a [`Stamp`]. That of the replies is the number of the view in which the
/// requests were served.
pub(super) struct Call<R>(PhantomData<R>);

impl<R: Request> Procedure for Call<R> {
    const NUMBER: u16 = R::NUMBER;
    type Request<'a> = R::Body<'a>;
    type Reply<'a> = R::Reply<'a>;
}

/// What serves a request: a worker, its participant, and which node asks.
pub(super) struct Serving<'p, 'e, F: Fabric, S: Config> {
    pub(super) worker: &'p Coordinator<'e, F, S>,
    pub(super) participant: &'p mut Participant<S>,
    pub(super) caller: NodeId,
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Serving<'_, '_, F, S> {
    /// Returns the refusal for a record that another transaction has locked. The record is free
    /// then, if its holder was a dead client.
    fn locked(&mut self, at: Handle) -> Refusal {
        let worker = self.worker;
        self.participant.locked(at, |holder| worker.is_dead(holder))
    }

    /// Checks that a ring is its caller's: it has one producer.
    fn check_producer(&self, producer: Holder) -> Result<(), Refusal> {
        if NodeId(producer.node().into()) == self.caller { Ok(()) } else { Err(Refusal::Other) }
    }
}

macro_rules! forms {
    ($($request:ident $(as $($ask:ident),+)?;)+) => {
        impl Ask {
            /// Returns what it is about.
            fn about(self) -> (About, u32) {
                match self { $($($(Self::$ask(number) => ($ask::ABOUT, number),)+)?)+ }
            }

            /// Adds it to a message.
            ///
            /// # Errors
            ///
            /// When the message has no room for it.
            pub(super) fn add<P: Port>(
                self,
                state: &State<'_, P>,
                to: &mut Calls<'_, P>,
            ) -> Result<(), RpcError> {
                match self {
                    $($($(Self::$ask(number) => {
                        to.add(&$ask::body(state, number)).map(slot_of::<$ask>)
                    })+)?)+
                }
            }

            /// Notes that it is on its way.
            pub(super) fn sent<P: Port>(self, state: &mut State<'_, P>) {
                match self { $($($(Self::$ask(number) => $ask::sent(state, number),)+)?)+ }
            }

            /// Carries it out on this node.
            ///
            /// # Errors
            ///
            /// When it is refused, or its answer stops the transaction.
            pub(super) fn here<'e, F: Fabric, S: On<F>>(
                self,
                worker: &Coordinator<'e, F, S>,
                state: &mut State<'e, F::Port>,
            ) -> Result<(), Error> {
                match self { $($($(Self::$ask(number) => here::<$ask, F, S>(worker, state, number),)+)?)+ }
            }

            /// Notes the answer of a node, which is the next of its message, and whether that says
            /// that the node was still in the transaction's view.
            ///
            /// # Errors
            ///
            /// When the request is refused, or its answer stops the transaction.
            pub(super) fn settle<P: Port>(
                self,
                state: &mut State<'_, P>,
                node: NodeId,
                (results, is_of_view): (&mut InOrder<'_>, bool),
            ) -> Result<(), Error> {
                match self {
                    $($($(Self::$ask(number) => {
                        let answer = results.take::<Call<<$ask as TxRequest>::Of>>();
                        settle_reply::<$ask, P>(state, node, number, (answer, is_of_view))
                    })+)?)+
                }
            }
        }

        impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
            /// Serves a request of another node.
            pub(super) fn serve(&self, call: Incoming<'_>) -> Answered {
                match call.procedure() {
                    $(<$request as Request>::NUMBER => self.answer::<$request>(call),)+
                    _ => call.unknown(),
                }
            }
        }

        /// Decodes bytes as each request and each reply that there is.
        #[cfg(test)]
        fn decode_as_all(bytes: &[u8]) {
            $(tests::decodes::<$request>(bytes);)+
        }
    };
}
requests!(forms);

/// Forgets where the answer is: it has the place of its request.
fn slot_of<A: TxRequest>(_: Slot<Call<A::Of>>) {}

impl Ask {
    /// Returns the node that it goes to.
    pub(super) fn node<P: Port>(self, state: &State<'_, P>) -> NodeId {
        match self.about() {
            (About::Row, row) => state.node_of(row),
            (About::Owner, owner) => state.owners[owner as usize].node,
            (About::Guard, guard) => state.node_at(state.guards.get(guard).head),
            (About::Span, span) => state.node_at(state.spans[span as usize].shard),
            (About::Part, part) => state.parts.node(part),
            (About::Piece, piece) => state.log.node_of_piece(piece),
            (About::Record, record) => state.log.node_of_record(record),
            #[cfg(feature = "hades")]
            (About::NicPart, part) => state.nic_part(part).node,
        }
    }

    /// Returns the shard that it is about, if it is about one. What ends a transaction is about no
    /// shard that is not served: a row of it was never locked.
    pub(super) fn shard<P: Port>(self, state: &State<'_, P>) -> Option<ShardId> {
        match self.about() {
            (About::Row, row) => Some(state.rows[row as usize].shard),
            (About::Guard, guard) => Some(state.guards.get(guard).head),
            (About::Span, span) => Some(state.spans[span as usize].shard),
            _ => None,
        }
    }

    /// Returns the row that it is about, if it is about one.
    pub(super) fn row(self) -> Option<u32> {
        if let (About::Row, row) = self.about() { Some(row) } else { None }
    }
}

/// Carries a request of a transaction out on this node.
fn here<'e, A: TxRequest, F: Fabric, S: Config<Engine = F::Engine>>(
    worker: &Coordinator<'e, F, S>,
    state: &mut State<'e, F::Port>,
    number: u32,
) -> Result<(), Error> {
    A::sent(state, number);
    let participant = &mut *worker.participant();
    let answer = serve::<A::Of, F, S>(A::body(state, number), Serving { worker, participant, caller: worker.id() });
    let answer = answer.map_err(|refusal| RpcError::Refused { reason: refusal as u32 });
    settle::<A, _>(state, worker.id(), number, answer)
}

/// Notes an answer.
fn settle<A: TxRequest, P: Port>(
    state: &mut State<'_, P>,
    node: NodeId,
    number: u32,
    answer: Result<<A::Of as Request>::Reply<'_>, RpcError>,
) -> Result<(), Error> {
    match answer {
        Ok(reply) => A::answered(state, number, reply),
        Err(error) => {
            A::failed(state, number, &error);
            Err(state.failed(node, error))
        }
    }
}

/// Notes an answer that came by message. It counts if the node was still in the transaction's view
/// after it had served the request.
fn settle_reply<A: TxRequest, P: Port>(
    state: &mut State<'_, P>,
    node: NodeId,
    number: u32,
    (answer, is_of_view): (Result<<A::Of as Request>::Reply<'_>, RpcError>, bool),
) -> Result<(), Error> {
    settle::<A, P>(state, node, number, answer)?;
    match is_of_view || <A::Of as Request>::BINDS != Binds::View {
        true => Ok(()),
        false => Err(state.failed_in_view(node)),
    }
}

/// Serves a request, and charges for it.
fn serve<'p, R: Request, F: Fabric, S: Config<Engine = F::Engine>>(
    body: R::Body<'_>,
    at: Serving<'p, '_, F, S>,
) -> Answer<'p, R> {
    let is_charged = !R::BY_NIC || at.caller == at.worker.id();
    if let Some(cost) = R::COST.filter(|_| is_charged) {
        (0..R::times(&body)).for_each(|_| at.worker.endpoint().charge(cost));
    }
    R::serve(body, at)
}

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Answers a request of another node. Each kind is a function of its own, so that profiles tell
    /// them apart.
    #[inline(never)]
    fn answer<R: Request>(&self, call: Incoming<'_>) -> Answered {
        let (participant, caller) = (&mut *self.participant(), call.from());
        let stamp = Stamp::of_tag(call.tag());
        call.answer::<Call<R>>(|body| {
            if caller == NodeId::VISITOR && !R::FOR_VISITORS && !S::has(Mutation::VisitorsBelieved) {
                return Err(Refused(Refusal::Other as u32));
            }
            let now = Stamp::new(self.node.view.served(), Some(self.node.incarnation));
            if !(stamp.is_served(R::BINDS, now) || S::has(Mutation::OldViewServed)) {
                return Err(Refused(stamp.refusal(now) as u32));
            }
            let served = serve::<R, F, S>(body, Serving { worker: self, participant, caller });
            served.map_err(|refusal| Refused(refusal as u32))
        })
    }

    /// Returns the tag of the answers to a message of this one: the number of the view in which
    /// they are given. This is asked behind all that was locked: another view may have been
    /// installed meanwhile, or the node may have begun to close.
    pub(super) fn tag_for(&self, tag: u64) -> u64 {
        let is_faulty = S::has(Mutation::OldViewServed);
        u64::from(if is_faulty { Stamp::of_tag(tag).view } else { self.node.view.served() })
    }

    /// Makes a request of any node that is no transaction's, and gives what `take` makes of the
    /// answer.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Refused`] and [`ClusterError::Unreachable`].
    pub(super) async fn call<R: Request, T>(
        &self,
        node: NodeId,
        body: R::Body<'_>,
        take: impl FnOnce(R::Reply<'_>) -> T,
    ) -> Result<T, ClusterError> {
        self.call_by::<R, T>(Sender::Message, node, body, take).await
    }

    /// Makes a request as [`call`](Self::call) does, by this.
    pub(super) async fn call_by<R: Request, T>(
        &self,
        sender: Sender,
        node: NodeId,
        body: R::Body<'_>,
        take: impl FnOnce(R::Reply<'_>) -> T,
    ) -> Result<T, ClusterError> {
        if node == self.id() {
            let participant = &mut *self.participant();
            let served = serve::<R, F, S>(body, Serving { worker: self, participant, caller: node });
            return served.map(take).map_err(|reason| ClusterError::Refused { node, reason });
        }
        let failed = |source: RpcError| match source.refused().and_then(Refusal::from_number) {
            Some(reason) => ClusterError::Refused { node, reason },
            None => ClusterError::Unreachable { node, source },
        };
        let incarnation = self.met(node).map(|met| met.life.incarnation);
        let rpc = self.rpc(Phase::Other).tagged(Stamp::new(self.node.view.number(), incarnation).tag()).sent_by(sender);
        let answer = rpc.call::<Call<R>>(node, &body, None).await.map_err(failed)?;
        answer.get().map(take).map_err(failed)
    }
}

#[cfg(test)]
mod tests;
