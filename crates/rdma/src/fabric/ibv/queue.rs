//! What one endpoint has under way to one node: requests that wait for the connection or for room,
//! and those that its NIC has.

mod fill;
mod session;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use drtm_htm::Engine;

use crate::{
    RegionId, Time, VerbError,
    endpoint::{
        port::{Activity, Events, Frame, Ticket, Verb, Work},
        queues,
    },
    fabric::{
        die,
        header::{HEADER, Header},
        lifetime::Life as _,
        tcp::Peer,
    },
    sync::time,
};

use super::{
    VerbsError,
    adapter::Adapter,
    exports::Known,
    nic::Nic,
    number::Number,
    setup::{Answer, Request},
    slots::Slot,
    sys::{End, QueuePair},
};
use session::SessionState;

/// A message that is not taken in this time waits for room in the node's mailbox, as far as can be
/// told: its NIC says nothing until there is some.
const PATIENCE: Duration = Duration::from_millis(50);

/// The connection of a queue.
#[derive(Debug, Default)]
enum Connection {
    /// The first operation connects it.
    #[default]
    Down,
    /// The node is asked to make its end.
    Dialing(Box<(QueuePair, End)>),
    Up(Box<QueuePair>),
}

/// What becomes of an operation when it is its turn.
#[derive(Clone, Copy, Debug)]
enum PostOutcome {
    /// As the NIC says.
    Posted(Slot),
    /// As the node says, to which it goes by datagrams.
    Message,
    /// It is done: there was nothing to do.
    Done,
    Failed(VerbError),
}

/// What is known of a region of the node.
#[derive(Debug)]
enum View {
    Known(Known),
    Unregistered,
}

pub(super) type Queue = queues::Queue<Peer, Line>;

/// The operations of a queue, and the connection that carries them.
#[derive(Debug, Default)]
pub struct Line {
    connection: Connection,
    /// What carries messages, if datagrams do.
    session: SessionState,
    /// How many of those that are sent are up to the NIC, and to the node. They are never both, so
    /// that they take effect in the order of posting.
    posted: usize,
    messages: usize,
    /// The number of the connection, so that completions of an earlier one are recognized.
    number: u16,
    /// Not posted yet.
    waiting: VecDeque<Work>,
    /// Posted, or failed, and not reported: the first has the number `first`.
    sent: VecDeque<(Work, PostOutcome)>,
    first: u32,
    /// Calls that the node has, or will have, and has not answered.
    calls: VecDeque<Ticket>,
    /// Memory that the NIC has for replies.
    receives: Vec<u32>,
    /// The node's regions, by number.
    regions: Vec<Option<View>>,
    /// Whether the node was asked about the region of the first that waits, and has answered.
    answered: bool,
    /// What the node is asked.
    asked: Option<(Ticket, Request)>,
    /// Since when the first that is posted is a message that the node has not taken.
    stuck: Option<Time>,
    /// Whether the connection has failed, which is to be reported.
    severed: bool,
}

impl queues::Line for Line {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.sent.is_empty()
    }

    fn is_quiet(&self) -> bool {
        self.is_empty() && !self.severed && !self.waits_for_datagrams()
    }

    fn has_failed(&self) -> bool {
        self.severed
    }

    fn reset(&mut self) {
        (self.severed, self.answered, self.asked) = (false, false, None);
        self.regions.clear();
    }
}

impl Line {
    #[inline(always)]
    pub(super) fn push(&mut self, work: Work) {
        self.waiting.push_back(work);
    }

    /// Returns whether a completion belongs to the present connection.
    fn is_of(&self, number: Number) -> bool {
        number.connection == self.number && matches!(self.connection, Connection::Up(_))
    }

    /// Fails the connection, which the next poll reports.
    #[cold]
    fn sever<E: Engine>(&mut self, adapter: &Adapter<E>, error: VerbsError) {
        self.severed = true;
        adapter.fail(error);
    }

    fn learn(&mut self, region: RegionId, view: View) {
        let index = usize::from(region.0);
        if self.regions.len() <= index {
            self.regions.resize_with(index + 1, || None);
        }
        self.regions[index] = Some(view);
        self.answered = true;
    }
}

impl Queue {
    /// Fails it, since the connection over which it was set up has ended.
    pub(super) fn cut(&mut self) {
        self.line.severed |= self.life.is_some() && !self.state.has_ended();
    }

    /// Posts what waits, as far as it can be, by one doorbell.
    #[inline]
    pub(super) fn post<E: Engine>(&mut self, nic: &mut Nic<E>) {
        let Some(first) = self.line.waiting.front() else { return };
        if self.line.severed || self.state.has_ended() {
            return;
        }
        if nic.datagrams.is_some() && first.verb.is_message() {
            return self.post_messages(nic);
        }
        match &self.line.connection {
            Connection::Up(_) => self.fill(nic),
            Connection::Down => self.dial(nic),
            Connection::Dialing(_) => {}
        }
    }

    /// Begins to connect.
    #[cold]
    fn dial<E: Engine>(&mut self, nic: &mut Nic<E>) {
        if self.line.asked.is_some() {
            return;
        }
        if self.is_over() {
            self.line.severed = true;
            return;
        }
        let adapter = Arc::clone(&nic.adapter);
        let most = (adapter.capabilities.queue_depth, adapter.capabilities.max_calls);
        let room = nic.room.take_one(&adapter, &nic.completed);
        let made =
            room.and_then(|()| QueuePair::new(&nic.device, &adapter.shape(&nic.completed, &nic.completed, most)));
        let asked = made.and_then(|pair| {
            let end = adapter.end_of(&pair);
            self.ask(nic, Request::Connect(end))?;
            Ok((pair, end))
        });
        match asked {
            Ok(dialing) => {
                self.line.number = self.line.number.wrapping_add(1);
                self.line.connection = Connection::Dialing(Box::new(dialing));
            }
            Err(error) => {
                nic.room.pairs = nic.room.pairs.saturating_sub(1);
                self.line.sever(&adapter, error);
            }
        }
    }

    /// Asks the node something, by TCP.
    #[cold]
    fn ask<E: Engine>(&mut self, nic: &mut Nic<E>, request: Request) -> Result<(), VerbsError> {
        let ticket = nic.control.ask(&mut nic.tcp, self.state.node, &request)?;
        self.line.asked = Some((ticket, request));
        Ok(())
    }

    /// Handles the node's answer to a question.
    #[cold]
    pub(super) fn hear<E: Engine>(&mut self, adapter: &Adapter<E>, ticket: Ticket, answer: Option<&[u8]>) {
        let Some((_, request)) = self.line.asked.take_if(|(asked, _)| *asked == ticket) else { return };
        let answer = answer.and_then(Answer::decode);
        match (request, answer) {
            (Request::Connect(_), Some(Answer::Connected(theirs))) => {
                let Connection::Dialing(dialing) = std::mem::take(&mut self.line.connection) else { return };
                let (pair, mine) = *dialing;
                let connected = pair.connect(adapter.exit, &mine, &theirs);
                self.line.connection = Connection::Up(Box::new(pair));
                die::site("nic.connects");
                if let Err(error) = connected {
                    self.line.sever(adapter, error);
                }
            }
            (Request::Ask(region), Some(Answer::Region { allocated, extents })) => {
                self.line.learn(region, View::Known(Known::new(allocated, extents)));
            }
            (Request::Ask(region), Some(Answer::UnknownRegion)) => self.line.learn(region, View::Unregistered),
            (Request::OpenSession(mine), Some(Answer::SessionOpened(theirs))) => {
                self.begin_session(adapter, &mine, theirs)
            }
            (_, Some(Answer::Refused(why))) => self.line.sever(adapter, VerbsError::Refused { why }),
            (_, answer) => {
                self.line.sever(adapter, VerbsError::Refused { why: format!("{answer:?} is no answer") });
            }
        }
    }

    /// Reports what is over by itself, with all before it.
    #[inline]
    fn report_done<E: Engine>(&mut self, nic: &mut Nic<E>, events: &mut impl Events) {
        while let Some((_, PostOutcome::Done | PostOutcome::Failed(_))) = self.line.sent.front() {
            self.report_first(nic, events);
        }
    }

    #[inline]
    fn report_first<E: Engine>(&mut self, nic: &mut Nic<E>, events: &mut impl Events) {
        let Some((mut work, fate)) = self.line.sent.pop_front() else { return };
        self.line.stuck = None;
        self.line.first = self.line.first.wrapping_add(1);
        let outcome = match fate {
            PostOutcome::Message => {
                self.line.messages -= 1;
                Ok(0)
            }
            PostOutcome::Posted(slot) => {
                self.line.posted -= 1;
                let at = slot.at as usize;
                let mut found = [0];
                match &mut work.verb {
                    Verb::Read { into, .. } => nic.slab.read(at, into),
                    Verb::CompareSwap { .. } | Verb::FetchAdd { .. } => nic.slab.read(at, &mut found),
                    Verb::Write { .. } | Verb::Send { .. } | Verb::Call { .. } => {}
                }
                nic.slots.put(slot);
                Ok(found[0])
            }
            PostOutcome::Done => Ok(0),
            PostOutcome::Failed(error) => {
                if let (Verb::Call { .. }, Some(ticket)) = (&work.verb, work.ticket) {
                    self.line.calls.retain(|call| *call != ticket);
                }
                Err(error)
            }
        };
        self.state.complete(work.ticket, work.verb, outcome, events);
    }

    /// Completes the request of this number, and all before it.
    #[inline]
    pub(super) fn complete<E: Engine>(&mut self, nic: &mut Nic<E>, number: Number, events: &mut impl Events) {
        if !self.line.is_of(number) {
            return;
        }
        let count = number.request.wrapping_sub(self.line.first).wrapping_add(1) as usize;
        die::site("nic.completed");
        // A NIC does not say so twice.
        for _ in 0..count.min(self.line.sent.len()) {
            self.report_first(nic, events);
        }
        self.report_done(nic, events);
    }

    /// Handles a reply that has arrived.
    pub(super) fn receive<E: Engine>(
        &mut self,
        nic: &mut Nic<E>,
        number: Number,
        length: usize,
        spare: &mut Vec<Frame>,
        events: &mut impl Events,
    ) {
        if !self.line.is_of(number) {
            return;
        }
        let Some(place) = self.line.receives.iter().position(|receive| *receive == number.request) else { return };
        self.line.receives.swap_remove(place);
        nic.free_replies.push(number.request);
        let at = number.request as usize * (HEADER + nic.adapter.message_bytes);
        let mut head = [0; HEADER];
        nic.replies.read(at, &mut head);
        let answered = match Header::decode(&head) {
            Some(Header::Reply(ticket)) => Some((ticket, true)),
            Some(Header::Refusal(ticket)) => Some((ticket, false)),
            _ => None,
        };
        let place = answered.and_then(|(ticket, _)| self.line.calls.iter().position(|call| *call == ticket));
        let (Some((ticket, replied)), Some(place), Some(bytes)) = (answered, place, length.checked_sub(HEADER)) else {
            return self.line.sever(&nic.adapter, VerbsError::Refused { why: "what came is no reply".into() });
        };
        self.line.calls.swap_remove_front(place);
        die::site("nic.replies.heard");
        let frame = replied.then(|| {
            let mut frame = spare.pop().unwrap_or_default();
            frame.resize(bytes, 0);
            nic.replies.read(at + HEADER, &mut frame);
            frame
        });
        events.replied(ticket, self.state.node, frame);
    }

    /// Fails the connection, one of whose requests has failed, with all after it.
    #[cold]
    pub(super) fn fail<E: Engine>(&mut self, adapter: &Adapter<E>, number: Number, status: u32) {
        if self.line.is_of(number) && !self.line.severed {
            self.line.sever(adapter, VerbsError::Failed { status });
        }
    }

    /// Moves everything along that waits, and reports what is over.
    pub(super) fn advance<E: Engine>(&mut self, nic: &mut Nic<E>, events: &mut impl Events) -> Activity {
        let over = self.is_over();
        if !over {
            self.post(nic);
        }
        if over || self.line.severed {
            self.end(nic, events);
            return Activity::Idle;
        }
        self.report_done(nic, events);
        if self.keep_session(nic) {
            return Activity::Busy;
        }
        match self.line.sent.front() {
            Some((work, _)) if work.verb.is_message() => {
                let now = time::of_this_machine();
                let since = *self.line.stuck.get_or_insert(now);
                if now.since(since) > PATIENCE { Activity::Blocked } else { Activity::Remote }
            }
            Some(_) => Activity::Remote,
            None if self.line.waiting.is_empty() => Activity::Idle,
            None => Activity::Remote,
        }
    }

    /// Ends everything: what was posted may have taken effect, and what was not has not.
    #[cold]
    pub(super) fn end<E: Engine>(&mut self, nic: &mut Nic<E>, events: &mut impl Events) {
        let Some(life) = self.life.clone() else { return };
        let cut_off = life.cut_off();
        // The NIC has none of the memory any more when the queue pair is gone.
        let before = std::mem::take(&mut self.line.connection);
        nic.room.pairs -= usize::from(!matches!(before, Connection::Down));
        drop(before);
        (self.line.session, self.line.posted, self.line.messages) = (SessionState::Down, 0, 0);
        self.line.calls.clear();
        self.state.end(cut_off, events);
        self.line.severed = false;
        self.line.asked = None;
        nic.free_replies.append(&mut self.line.receives);
        while let Some((work, fate)) = self.line.sent.pop_front() {
            let outcome = match fate {
                PostOutcome::Posted(slot) => {
                    nic.slots.put(slot);
                    Err(cut_off)
                }
                PostOutcome::Message => Err(cut_off),
                PostOutcome::Done => Ok(0),
                PostOutcome::Failed(error) => Err(error),
            };
            self.state.complete(work.ticket, work.verb, outcome, events);
        }
        while let Some(work) = self.line.waiting.pop_front() {
            self.state.complete(work.ticket, work.verb, Err(life.gone()), events);
        }
    }
}
