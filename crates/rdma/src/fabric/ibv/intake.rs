//! What has come for a node: messages by connections of peers' endpoints, and by datagrams.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use crate::{
    endpoint::port::Frame,
    fabric::{die, mailbox::Kind, tcp::Inbox},
};

use super::{
    Posted, VerbsError,
    guest::Guest,
    lane::{Lane, Owner},
    letters::{HEAD, Head},
    mouth::{DATAGRAMS, Mouth},
    number::Number,
    sys::{Completion, CompletionQueue, Device, SharedReceives, Slab},
};

/// Receives beyond those for what the mailbox has: a connection that breaks may take one along.
const SPARE: usize = 16;

/// Datagrams that can come between two looks, beyond those for what the mailbox has.
pub(super) const BURST: usize = 256;

/// A message that there is no room for in the mailbox.
#[derive(Debug)]
enum Waiting {
    /// By which connection, in which of the receives, and how long.
    Held(Arc<Lane>, u64, usize),
    /// With its head.
    Taken(Arc<Guest>, Vec<u8>),
}

/// Messages that have come, before they are in the mailbox.
#[derive(Debug)]
pub(super) struct Intake {
    /// The connections' and the mouth's.
    pub(super) queue: Arc<CompletionQueue>,
    pub(super) receives: Arc<SharedReceives>,
    slab: Slab,
    size: usize,
    /// Connections by the numbers of their queue pairs.
    pub(super) lanes: HashMap<u32, Arc<Lane>>,
    completions: Vec<Completion>,
    waiting: VecDeque<Waiting>,
    frame: Frame,
    pub(super) mouth: Option<Mouth>,
    /// Talks by the tokens of what they send.
    pub(super) guests: HashMap<u64, Arc<Guest>>,
    /// Messages of datagrams that may wait: no more are taken.
    most_waiting: usize,
    spare: Vec<Vec<u8>>,
    /// What the mouth was given.
    pub(super) posted: Posted,
}

impl Intake {
    pub(super) fn new(
        device: &Arc<Device>,
        messages: usize,
        message_bytes: usize,
        huge: bool,
    ) -> Result<Self, VerbsError> {
        let (count, size) = (messages + SPARE, HEAD + message_bytes);
        // An error takes an entry, too.
        let queue = Arc::new(CompletionQueue::new(device, 2 * count + messages + BURST, true)?);
        let receives = Arc::new(SharedReceives::new(device, count)?);
        let slab = Slab::new(device, count * size, huge)?;
        for index in 0..count {
            receives.post(index as u64, slab.span(index * size, size))?;
        }
        let (lanes, completions, waiting, frame, guests, spare) = Default::default();
        Ok(Self {
            queue,
            receives,
            slab,
            size,
            lanes,
            completions,
            waiting,
            frame,
            mouth: None,
            guests,
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
            match (received, self.lanes.get(&pair)) {
                (Some(length), Some(lane)) => self.waiting.push_back(Waiting::Held(Arc::clone(lane), id, length)),
                // The connection is over.
                _ => self.repost(id)?,
            }
        }
        self.completions = completions;
        if let Some(mouth) = &mut self.mouth {
            mouth.flush(&mut self.posted)?;
        }
        outcome
    }

    /// Takes what a datagram says, and answers what it asks. One that is of no talk, or not from
    /// the endpoint that has it, is dropped.
    fn hear(&mut self, place: u32, length: usize, from: u32) -> Result<(), VerbsError> {
        let Some(mouth) = &mut self.mouth else { return Ok(()) };
        let prefix = mouth.read(place, length, &mut self.frame);
        mouth.repost(place)?;
        let Some(prefix) = prefix else { return Ok(()) };
        let Some(guest) = self.guests.get(&prefix.token) else { return Ok(()) };
        if guest.contact.pair != from || guest.is_closed() {
            return Ok(());
        }
        let room = self.waiting.len() < self.most_waiting;
        let (waiting, spare) = (&mut self.waiting, &mut self.spare);
        let mut talk = guest.talk.lock();
        let heard = talk.hear(&prefix, &self.frame, room, |message| {
            let mut bytes = spare.pop().unwrap_or_default();
            bytes.clear();
            bytes.extend_from_slice(message);
            waiting.push_back(Waiting::Taken(Arc::clone(guest), bytes));
        });
        match heard {
            Ok(_) => mouth.speak(&mut talk, &guest.contact),
            Err(nonsense) => {
                // It has the token, so it is the endpoint, which is then not answered any more.
                guest.close();
                Err(VerbsError::Refused { why: nonsense.0.into() })
            }
        }
    }

    /// Moves messages into the mailbox, as far as there is room. Returns whether all are there.
    pub(super) fn deliver(&mut self, inbox: &Inbox) -> Result<bool, VerbsError> {
        while let Some(first) = self.waiting.front() {
            let mut head = [0; HEAD];
            let (owner, length): (&Owner, usize) = match first {
                Waiting::Held(lane, id, length) => {
                    self.slab.read(*id as usize * self.size, &mut head);
                    (&lane.owner, *length)
                }
                Waiting::Taken(guest, bytes) => {
                    if let Some(first) = bytes.first_chunk() {
                        head = *first;
                    }
                    (&guest.owner, bytes.len())
                }
            };
            let kind = match Head::decode(&head) {
                Some(Head::Message) => Some(Kind::Message),
                Some(Head::Call(ticket)) => Some(Kind::Call(owner.reply_to(ticket))),
                // A peer that has the key, and says what makes no sense.
                Some(Head::Reply(_) | Head::Refusal(_)) | None => None,
            };
            if let (Some(kind), Some(count)) = (kind, length.checked_sub(HEAD)) {
                let bytes = match first {
                    Waiting::Held(_, id, _) => {
                        self.frame.resize(count, 0);
                        self.slab.read(*id as usize * self.size + HEAD, &mut self.frame);
                        &self.frame
                    }
                    Waiting::Taken(_, bytes) => &bytes[HEAD..],
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
