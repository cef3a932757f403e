//! The responder's end of a reliable connection: messages arrive by it, and replies go back.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
};

use parking_lot::Mutex;

use crate::{
    Incarnation, NodeId,
    endpoint::port::{ReplyTo, Ticket},
    fabric::{
        die,
        header::{HEADER, Header},
        tcp::Caller,
    },
};

use super::{
    VerbsError,
    slots::{Slot, Slots},
    sys::{Action, Completion, CompletionQueue, Device, End, Exit, QueuePair, Requests, Slab},
};

/// Replies that may be under way.
pub(super) const DEPTH: usize = 32;

/// Every so many replies one is signaled, or earlier where memory is short.
const SIGNALED: usize = 8;

/// Replies of a few bytes, and of many, for which there is memory.
const SHORT: usize = 512;
const SHORTS: usize = 16;
const LONGS: usize = 4;

/// What became of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// It is sent, or its caller is gone.
    Done,
    /// Another thread uses the connection, or there is no room at the moment.
    Busy,
}

/// What a reply needs.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// The pair goes first, then what it uses.
    pair: QueuePair,
    queue: Arc<CompletionQueue>,
    slots: Slots,
    slab: Slab,
    /// Replies that are not known to be sent, from `first` on, each with its memory.
    under_way: VecDeque<Option<Slot>>,
    first: u64,
    since_signaled: usize,
    requests: Requests,
    completions: Vec<Completion>,
}

impl Outgoing {
    pub(super) fn new(
        device: &Arc<Device>,
        pair: QueuePair,
        queue: Arc<CompletionQueue>,
        message_bytes: usize,
    ) -> Result<Self, VerbsError> {
        let slots = Slots::new(&[(SHORT + HEADER, SHORTS), (message_bytes + HEADER, LONGS)]);
        let slab = Slab::new(device, slots.bytes(), false)?;
        Ok(Self {
            pair,
            queue,
            slots,
            slab,
            under_way: VecDeque::with_capacity(DEPTH),
            first: 0,
            since_signaled: 0,
            requests: Requests::default(),
            completions: Vec::new(),
        })
    }

    /// Takes memory back. Returns false if the connection is broken.
    fn reclaim(&mut self) -> bool {
        while self.queue.take(&mut self.completions) {}
        for completion in self.completions.drain(..) {
            if completion.failure.is_some() {
                return false;
            }
            while self.first <= completion.id
                && let Some(slot) = self.under_way.pop_front()
            {
                self.first += 1;
                if let Some(slot) = slot {
                    self.slots.put(slot);
                }
            }
        }
        true
    }
}

/// One endpoint of a peer, in one of its lives.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) node: NodeId,
    incarnation: Incarnation,
    pub(super) endpoint: u16,
    life: u32,
    /// By which TCP knows the connection that it belongs to.
    pub(super) token: u64,
}

impl Owner {
    pub(super) fn of(caller: &Caller) -> Self {
        let Caller { node, incarnation, endpoint, life, token, .. } = *caller;
        Self { node, incarnation, endpoint, life, token }
    }

    pub(super) fn is(&self, to: &ReplyTo) -> bool {
        (self.node, self.incarnation, self.endpoint, self.life) == (to.node, to.incarnation, to.endpoint, to.life)
    }

    /// Returns where a reply to one of its calls goes.
    pub(super) fn reply_to(&self, ticket: Ticket) -> ReplyTo {
        let Self { node, incarnation, endpoint, life, .. } = *self;
        ReplyTo { node, incarnation, endpoint, life, ticket }
    }
}

/// A node's end of the connection of one endpoint of a peer.
#[derive(Debug)]
pub(super) struct Responder {
    pub(super) owner: Owner,
    pub(super) pair: u32,
    closed: AtomicBool,
    out: Mutex<Option<Outgoing>>,
}

impl Responder {
    pub(super) fn new(caller: &Caller, pair: u32, out: Outgoing) -> Self {
        Self { owner: Owner::of(caller), pair, closed: AtomicBool::new(false), out: Mutex::new(Some(out)) }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    /// Connects it to the peer's endpoint.
    pub(super) fn connect(&self, exit: Exit, mine: &End, theirs: &End) -> Result<(), VerbsError> {
        match &*self.out.lock() {
            Some(out) => out.pair.connect(exit, mine, theirs),
            None => Ok(()),
        }
    }

    /// Ends it: nothing more comes by it.
    pub(super) fn close(&self) {
        self.closed.store(true, Release);
        if let Some(out) = self.out.lock().take() {
            // Memory for messages comes back.
            out.pair.disable();
        }
    }

    /// Sends a reply, or a refusal. Counts what was posted.
    pub(super) fn send(
        &self,
        head: Header,
        bytes: &[u8],
        inline: usize,
        count: impl FnOnce(bool),
    ) -> Result<Sent, VerbsError> {
        let Some(mut place) = self.out.try_lock() else { return Ok(Sent::Busy) };
        let Some(out) = &mut *place else { return Ok(Sent::Done) };
        let length = HEADER + bytes.len();
        if out.under_way.len() == DEPTH || out.since_signaled == 0 && !out.under_way.is_empty() {
            if !out.reclaim() {
                return Ok(Sent::Done);
            }
            if out.under_way.len() == DEPTH {
                return Ok(Sent::Busy);
            }
        }
        let mut slot = out.slots.take(length);
        if slot.is_none() {
            if !out.reclaim() {
                return Ok(Sent::Done);
            }
            slot = out.slots.take(length);
        }
        let Some(slot) = slot else { return Ok(Sent::Busy) };
        let at = slot.at as usize;
        out.slab.write(at, &head.encode());
        out.slab.write(at + HEADER, bytes);
        let inlined = length <= inline;
        let id = out.first + out.under_way.len() as u64;
        out.requests.push(id, Action::Send, out.slab.span(at, length), inlined);
        out.under_way.push_back((!inlined).then_some(slot));
        if inlined {
            // Its bytes are read when it is posted, before anything else is written there.
            out.slots.put(slot);
        }
        out.since_signaled += 1;
        // Where something is short afterwards, there is a completion to wait for.
        let signaled = out.since_signaled >= SIGNALED || !out.slots.has_each() || out.under_way.len() == DEPTH;
        if signaled {
            out.requests.signal_last();
            out.since_signaled = 0;
        }
        count(signaled);
        out.pair.post(&mut out.requests)?;
        die::site("nic.replied");
        Ok(Sent::Done)
    }
}
