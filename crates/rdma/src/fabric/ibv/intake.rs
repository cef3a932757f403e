//! What has come for a node: messages by connections of peers' endpoints, and by datagrams.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use crate::{
    endpoint::port::Frame,
    fabric::{
        die,
        header::{HEADER, Header},
        mailbox::Kind,
        tcp::Inbox,
    },
};

use super::{
    Posted, VerbsError,
    datagram_pair::{DATAGRAMS, DatagramPair},
    number::Number,
    responder::{Owner, Responder},
    server_session::ServerSession,
    sys::{Completion, CompletionQueue, Device, SharedReceives, Slab},
};

/// Receives beyond those for what the mailbox has: a connection that breaks may take one along.
const SPARE: usize = 16;

/// Datagrams that can arrive between two looks, beyond those for what the mailbox has.
pub(super) const BURST: usize = 256;

/// A message that there is no room for in the mailbox.
#[derive(Debug)]
enum Waiting {
    /// By which connection, in which of the receives, and how long.
    Held(Arc<Responder>, u64, usize),
    /// With its head.
    Taken(Arc<ServerSession>, Vec<u8>),
}

/// Messages that have come, before they are in the mailbox.
#[derive(Debug)]
pub(super) struct Intake {
    /// The completions of messages, by connections and by datagrams.
    pub(super) queue: Arc<CompletionQueue>,
    pub(super) receives: Arc<SharedReceives>,
    slab: Slab,
    size: usize,
    /// Connections by the numbers of their queue pairs.
    pub(super) responders: HashMap<u32, Arc<Responder>>,
    completions: Vec<Completion>,
    waiting: VecDeque<Waiting>,
    frame: Frame,
    pub(super) datagrams: Option<DatagramPair>,
    /// Talks by the tokens of what they send.
    pub(super) sessions: HashMap<u64, Arc<ServerSession>>,
    /// Messages of datagrams that may wait: no more are taken.
    most_waiting: usize,
    spare: Vec<Vec<u8>>,
    /// What was posted for datagrams.
    pub(super) posted: Posted,
}

impl Intake {
    pub(super) fn new(
        device: &Arc<Device>,
        messages: usize,
        message_bytes: usize,
        huge: bool,
    ) -> Result<Self, VerbsError> {
        let (count, size) = (messages + SPARE, HEADER + message_bytes);
        // An error takes an entry, too.
        let queue = Arc::new(CompletionQueue::new(device, 2 * count + messages + BURST, true)?);
        let receives = Arc::new(SharedReceives::new(device, count)?);
        let slab = Slab::new(device, count * size, huge)?;
        for index in 0..count {
            receives.post(index as u64, slab.span(index * size, size))?;
        }
        let (responders, completions, waiting, frame, sessions, spare) = Default::default();
        Ok(Self {
            queue,
            receives,
            slab,
            size,
            responders,
            completions,
            waiting,
            frame,
            datagrams: None,
            sessions,
            most_waiting: count,
            spare,
            posted: Posted::default(),
        })
    }

    /// Takes what has come, and says by which connections: those may be gone when there is room.
    pub(super) fn take(&mut self) -> Result<(), VerbsError> {
        while self.queue.take(&mut self.completions) {}
        let mut completions = std::mem::take(&mut self.completions);
        let mut outcome = Ok(());
        for Completion { id, failure, received, pair, from } in completions.drain(..) {
            let number = Number::decode(id);
            if number.queue == DATAGRAMS {
                let heard = match (received, failure) {
                    (Some(length), _) => self.hear(number.request, length, from),
                    (None, Some(status)) => Err(VerbsError::Failed { status }),
                    (None, None) => Ok(()),
                };
                // The others' are taken all the same.
                outcome = outcome.and(heard);
                continue;
            }
            match (received, self.responders.get(&pair)) {
                (Some(length), Some(responder)) => {
                    self.waiting.push_back(Waiting::Held(Arc::clone(responder), id, length))
                }
                // The connection is over.
                _ => self.repost(id)?,
            }
        }
        self.completions = completions;
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.flush(&mut self.posted)?;
        }
        outcome
    }

    /// Takes what a datagram says, and answers what it asks. One that is of no session, or not from
    /// the endpoint that has it, is dropped.
    fn hear(&mut self, place: u32, length: usize, from: u32) -> Result<(), VerbsError> {
        let Some(datagrams) = &mut self.datagrams else { return Ok(()) };
        let prefix = datagrams.read(place, length, &mut self.frame);
        datagrams.repost(place)?;
        let Some(prefix) = prefix else { return Ok(()) };
        let Some(session) = self.sessions.get(&prefix.token) else { return Ok(()) };
        if session.contact.pair != from || session.is_closed() {
            return Ok(());
        }
        let room = self.waiting.len() < self.most_waiting;
        let (waiting, spare) = (&mut self.waiting, &mut self.spare);
        let mut stream = session.stream.lock();
        let heard = stream.hear(&prefix, &self.frame, room, |message| {
            let mut bytes = spare.pop().unwrap_or_default();
            bytes.clear();
            bytes.extend_from_slice(message);
            waiting.push_back(Waiting::Taken(Arc::clone(session), bytes));
        });
        match heard {
            Ok(_) => datagrams.send_datagrams(&mut stream, &session.contact),
            Err(nonsense) => {
                // It has the token, so it is the endpoint, which is then not answered any more.
                session.close();
                Err(VerbsError::Refused { why: nonsense.0.into() })
            }
        }
    }

    /// Moves messages into the mailbox, as far as there is room. Returns whether all are there.
    pub(super) fn deliver(&mut self, inbox: &Inbox) -> Result<bool, VerbsError> {
        while let Some(first) = self.waiting.front() {
            let mut head = [0; HEADER];
            let (owner, length): (&Owner, usize) = match first {
                Waiting::Held(responder, id, length) => {
                    self.slab.read(*id as usize * self.size, &mut head);
                    (&responder.owner, *length)
                }
                Waiting::Taken(session, bytes) => {
                    if let Some(first) = bytes.first_chunk() {
                        head = *first;
                    }
                    (&session.owner, bytes.len())
                }
            };
            let kind = match Header::decode(&head) {
                Some(Header::Message) => Some(Kind::Message),
                Some(Header::Call(ticket)) => Some(Kind::Call(owner.reply_to(ticket))),
                // A peer that has the key, and says what makes no sense.
                Some(Header::Reply(_) | Header::Refusal(_)) | None => None,
            };
            if let (Some(kind), Some(count)) = (kind, length.checked_sub(HEADER)) {
                let bytes = match first {
                    Waiting::Held(_, id, _) => {
                        self.frame.resize(count, 0);
                        self.slab.read(*id as usize * self.size + HEADER, &mut self.frame);
                        &self.frame
                    }
                    Waiting::Taken(_, bytes) => &bytes[HEADER..],
                };
                if !inbox.mail.deliver(owner.node, kind, bytes) {
                    return Ok(false);
                }
            }
            die::site("nic.collected");
            match self.waiting.pop_front() {
                Some(Waiting::Held(_, id, _)) => self.repost(id)?,
                Some(Waiting::Taken(_, bytes)) if self.spare.len() < BURST => self.spare.push(bytes),
                Some(Waiting::Taken(..)) | None => {}
            }
        }
        Ok(true)
    }

    fn repost(&self, id: u64) -> Result<(), VerbsError> {
        self.receives.post(id, self.slab.span(id as usize * self.size, self.size))
    }
}
