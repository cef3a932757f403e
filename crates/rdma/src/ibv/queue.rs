//! What one endpoint has under way to one node: requests that wait for the connection or for room,
//! and those that its NIC has.

mod fill;
mod spoken;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use drtm_htm::Engine;

use crate::{
    NodeId, Time, VerbError, die,
    port::{Activity, Events, Frame, Ticket, Verb, Work},
    tcp::Peer,
    time,
};

use super::{
    VerbsError,
    context::{Number, QueueContext},
    exports::Known,
    letters::{HEAD, Head},
    setup::{Answer, Request},
    slots::Slot,
    station::Station,
    sys::{End, QueuePair},
};
use spoken::Spoken;

/// A message that is not taken in this time waits for room in the node's mailbox, as far as can be
/// told: its NIC says nothing until there is some.
const PATIENCE: Duration = Duration::from_millis(50);

/// How a queue is connected.
#[derive(Debug)]
enum Line {
    /// Not yet: the first operation connects it.
    Down,
    /// The node is asked to make its end.
    Dialing(Box<(QueuePair, End)>),
    Up(Box<QueuePair>),
    /// Not any more, until it is reconnected.
    Over,
}

/// What becomes of an operation when it is its turn.
#[derive(Clone, Copy, Debug)]
enum PostOutcome {
    /// As the NIC says.
    Posted(Slot),
    /// As the node says, to which it goes by datagrams.
    Cast,
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

#[derive(Debug)]
pub(super) struct Queue {
    node: NodeId,
    life: Option<Arc<Peer>>,
    line: Line,
    /// What carries messages, if datagrams do.
    spoken: Spoken,
    /// How many of those that are sent are up to the NIC, and to the node. They are never both, so
    /// that they take effect in the order of posting.
    posted: usize,
    casts: usize,
    /// Grows with each connection, so that what is told of an earlier one is not mistaken.
    connection: u16,
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
    /// The failure of an unsignaled operation that is still to be heard of.
    broken: Option<VerbError>,
    /// Since when the first that is posted is a message that the node has not taken.
    stuck: Option<Time>,
    /// Whether the connection has failed, which is to be reported.
    pub(super) severed: bool,
    /// Whether it is on the port's list.
    pub(super) active: bool,
    /// Places taken.
    pub(super) taken: usize,
}

impl Queue {
    pub(super) fn new(node: NodeId) -> Self {
        Self {
            node,
            life: None,
            line: Line::Down,
            spoken: Spoken::Down,
            posted: 0,
            casts: 0,
            connection: 0,
            waiting: VecDeque::new(),
            sent: VecDeque::new(),
            first: 0,
            calls: VecDeque::new(),
            receives: Vec::new(),
            regions: Vec::new(),
            answered: false,
            asked: None,
            broken: None,
            stuck: None,
            severed: false,
            active: false,
            taken: 0,
        }
    }

    pub(super) fn life(&self) -> Option<&Arc<Peer>> {
        self.life.as_ref()
    }

    /// Makes the queue belong to an incarnation.
    #[cold]
    pub(super) fn connect(&mut self, life: Arc<Peer>) {
        debug_assert!(self.is_empty(), "what is for one incarnation is not carried out on another");
        (self.life, self.line, self.broken, self.severed) = (Some(life), Line::Down, None, false);
        self.spoken = Spoken::Down;
        self.regions.clear();
        (self.answered, self.asked) = (false, None);
    }

    /// Whether the queue belongs to this, and can be used.
    pub(super) fn is_of(&self, life: &Arc<Peer>) -> bool {
        self.life.as_ref().is_some_and(|now| Arc::ptr_eq(now, life)) && !self.is_over() && !self.severed
    }

    fn is_over(&self) -> bool {
        matches!(self.line, Line::Over)
    }

    /// Whether nothing that belongs to an incarnation before is still to be reported.
    pub(super) fn may_connect(&self) -> bool {
        self.life.is_none() || (self.is_over() && self.is_empty())
    }

    /// Whether its incarnation is over, and that was not reported.
    pub(super) fn has_departed(&self) -> bool {
        self.life.as_ref().is_some_and(|life| life.is_over()) && !self.is_over()
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.sent.is_empty()
    }

    /// The connection over which it was set up has ended.
    pub(super) fn cut(&mut self) {
        self.severed |= !self.is_over() && self.life.is_some();
    }

    /// Whether nothing needs to be done before something comes.
    pub(super) fn is_quiet(&self) -> bool {
        self.is_empty() && (!self.severed || self.is_over()) && !self.waits_for_datagrams()
    }

    #[inline(always)]
    pub(super) fn push(&mut self, work: Work) {
        self.waiting.push_back(work);
    }

    /// Posts what waits, as far as it can be, by one doorbell.
    #[inline]
    pub(super) fn post<E: Engine>(&mut self, context: &mut QueueContext<'_, E>) {
        let Some(first) = self.waiting.front() else { return };
        if self.severed {
            return;
        }
        if context.mouth.is_some() && first.verb.is_message() {
            return self.post_spoken(context);
        }
        match &self.line {
            Line::Up(_) => self.fill(context),
            Line::Down => self.dial(context),
            Line::Dialing(_) | Line::Over => {}
        }
    }

    /// Begins to connect.
    #[cold]
    fn dial<E: Engine>(&mut self, context: &mut QueueContext<'_, E>) {
        if self.asked.is_some() {
            return;
        }
        if self.life.as_ref().is_none_or(|life| life.is_over()) {
            self.severed = true;
            return;
        }
        let station = context.station;
        let most = (station.capabilities.queue_depth, station.capabilities.max_calls);
        let room = context.room.take_one(station, context.queue);
        let made =
            room.and_then(|()| QueuePair::new(context.device, &station.shape(context.queue, context.queue, most)));
        let asked = made.and_then(|pair| {
            let end = station.end_of(&pair);
            self.ask(context, Request::Connect(end))?;
            Ok((pair, end))
        });
        match asked {
            Ok(dialing) => {
                self.connection = self.connection.wrapping_add(1);
                self.line = Line::Dialing(Box::new(dialing));
            }
            Err(error) => {
                context.room.pairs = context.room.pairs.saturating_sub(1);
                self.sever(station, error);
            }
        }
    }

    /// Asks the node something, by TCP.
    #[cold]
    fn ask<E: Engine>(&mut self, context: &mut QueueContext<'_, E>, request: Request) -> Result<(), VerbsError> {
        let ticket = context.control.ask(context.tcp, self.node, &request)?;
        self.asked = Some((ticket, request));
        Ok(())
    }

    #[cold]
    fn sever<E: Engine>(&mut self, station: &Station<E>, error: VerbsError) {
        self.severed = true;
        station.fail(error);
    }

    /// What the node has answered.
    #[cold]
    pub(super) fn hear<E: Engine>(&mut self, station: &Station<E>, ticket: Ticket, answer: Option<&[u8]>) {
        let Some((_, request)) = self.asked.take_if(|(asked, _)| *asked == ticket) else { return };
        let answer = answer.and_then(Answer::decode);
        match (request, answer) {
            (Request::Connect(_), Some(Answer::Connected(theirs))) => {
                let Line::Dialing(dialing) = std::mem::replace(&mut self.line, Line::Over) else { return };
                let (pair, mine) = *dialing;
                let connected = pair.connect(station.exit, &mine, &theirs);
                self.line = Line::Up(Box::new(pair));
                die::site("nic.connects");
                if let Err(error) = connected {
                    self.sever(station, error);
                }
            }
            (Request::Ask(region), Some(Answer::Region { allocated, extents })) => {
                self.learn(region, View::Known(Known::new(allocated, extents)));
            }
            (Request::Ask(region), Some(Answer::UnknownRegion)) => self.learn(region, View::Unregistered),
            (Request::Greet(mine), Some(Answer::Greeted(theirs))) => self.begin_talk(station, &mine, theirs),
            (_, Some(Answer::Refused(why))) => self.sever(station, VerbsError::Refused { why }),
            (_, answer) => {
                self.sever(station, VerbsError::Refused { why: format!("{answer:?} is no answer") });
            }
        }
    }

    fn learn(&mut self, region: crate::RegionId, view: View) {
        let index = usize::from(region.0);
        if self.regions.len() <= index {
            self.regions.resize_with(index + 1, || None);
        }
        self.regions[index] = Some(view);
        self.answered = true;
    }

    /// Reports what is over by itself, with all before it.
    #[inline]
    fn report_done<E: Engine>(&mut self, context: &mut QueueContext<'_, E>, events: &mut impl Events) {
        while let Some((_, PostOutcome::Done | PostOutcome::Failed(_))) = self.sent.front() {
            self.report_first(context, events);
        }
    }

    #[inline]
    fn report_first<E: Engine>(&mut self, context: &mut QueueContext<'_, E>, events: &mut impl Events) {
        let Some((mut work, fate)) = self.sent.pop_front() else { return };
        self.stuck = None;
        self.first = self.first.wrapping_add(1);
        self.taken -= 1;
        let outcome = match fate {
            PostOutcome::Cast => {
                self.casts -= 1;
                Ok(0)
            }
            PostOutcome::Posted(slot) => {
                self.posted -= 1;
                let at = slot.at as usize;
                let mut found = [0];
                match &mut work.verb {
                    Verb::Read { into, .. } => context.slab.read(at, into),
                    Verb::CompareSwap { .. } | Verb::FetchAdd { .. } => context.slab.read(at, &mut found),
                    Verb::Write { .. } | Verb::Send { .. } | Verb::Call { .. } => {}
                }
                context.slots.put(slot);
                Ok(found[0])
            }
            PostOutcome::Done => Ok(0),
            PostOutcome::Failed(error) => {
                if let (Verb::Call { .. }, Some(ticket)) = (&work.verb, work.ticket) {
                    self.calls.retain(|call| *call != ticket);
                }
                Err(error)
            }
        };
        events.completed(work.ticket, work.verb, outcome);
    }

    /// The request of this number, and all before it, are carried out.
    #[inline]
    pub(super) fn complete<E: Engine>(
        &mut self,
        context: &mut QueueContext<'_, E>,
        number: Number,
        events: &mut impl Events,
    ) {
        if number.connection != self.connection || !matches!(self.line, Line::Up(_)) {
            return;
        }
        let count = number.request.wrapping_sub(self.first).wrapping_add(1) as usize;
        die::site("nic.completed");
        // A NIC does not say so twice.
        for _ in 0..count.min(self.sent.len()) {
            self.report_first(context, events);
        }
        self.report_done(context, events);
    }

    /// A reply has come.
    pub(super) fn receive<E: Engine>(
        &mut self,
        context: &mut QueueContext<'_, E>,
        number: Number,
        length: usize,
        spare: &mut Vec<Frame>,
        events: &mut impl Events,
    ) {
        if number.connection != self.connection || !matches!(self.line, Line::Up(_)) {
            return;
        }
        let Some(place) = self.receives.iter().position(|receive| *receive == number.request) else { return };
        self.receives.swap_remove(place);
        context.free_replies.push(number.request);
        let at = number.request as usize * (HEAD + context.station.message_bytes);
        let mut head = [0; HEAD];
        context.replies.read(at, &mut head);
        let answered = match Head::decode(&head) {
            Some(Head::Reply(ticket)) => Some((ticket, true)),
            Some(Head::Refusal(ticket)) => Some((ticket, false)),
            _ => None,
        };
        let place = answered.and_then(|(ticket, _)| self.calls.iter().position(|call| *call == ticket));
        let (Some((ticket, replied)), Some(place), Some(bytes)) = (answered, place, length.checked_sub(HEAD)) else {
            return self.sever(context.station, VerbsError::Refused { why: "what came is no reply".into() });
        };
        self.calls.swap_remove_front(place);
        die::site("nic.replies.heard");
        let frame = replied.then(|| {
            let mut frame = spare.pop().unwrap_or_default();
            frame.resize(bytes, 0);
            context.replies.read(at + HEAD, &mut frame);
            frame
        });
        events.replied(ticket, self.node, frame);
    }

    /// A request of the connection has failed, and all after it.
    #[cold]
    pub(super) fn fail<E: Engine>(&mut self, station: &Station<E>, number: Number, status: u32) {
        if number.connection == self.connection && matches!(self.line, Line::Up(_)) && !self.severed {
            self.sever(station, VerbsError::Failed { status });
        }
    }

    /// Moves everything along that waits, and reports what is over.
    pub(super) fn advance<E: Engine>(
        &mut self,
        context: &mut QueueContext<'_, E>,
        events: &mut impl Events,
    ) -> Activity {
        let over = self.life.as_ref().is_none_or(|life| life.is_over()) || self.is_over();
        if !over {
            self.post(context);
        }
        if over || self.severed {
            self.end(context, events);
            return Activity::Idle;
        }
        self.report_done(context, events);
        if self.keep_talking(context) {
            return Activity::Busy;
        }
        match self.sent.front() {
            Some((work, _)) if work.verb.is_message() => {
                let now = time::of_this_machine();
                let since = *self.stuck.get_or_insert(now);
                if now.since(since) > PATIENCE { Activity::Blocked } else { Activity::Remote }
            }
            Some(_) => Activity::Remote,
            None if self.waiting.is_empty() => Activity::Idle,
            None => Activity::Remote,
        }
    }

    /// Ends everything: what was posted may have taken effect, and what was not has not.
    #[cold]
    fn end<E: Engine>(&mut self, context: &mut QueueContext<'_, E>, events: &mut impl Events) {
        let Some(life) = self.life.clone() else { return };
        let cut_off = life.cut_off();
        // The NIC has none of the memory any more when the queue pair is gone.
        let before = std::mem::replace(&mut self.line, Line::Over);
        context.room.pairs -= usize::from(matches!(before, Line::Dialing(_) | Line::Up(_)));
        (self.spoken, self.posted, self.casts) = (Spoken::Down, 0, 0);
        if !matches!(before, Line::Over) {
            drop(before);
            self.calls.clear();
            events.departed(self.node, cut_off);
        }
        self.severed = false;
        self.asked = None;
        context.free_replies.append(&mut self.receives);
        while let Some((work, fate)) = self.sent.pop_front() {
            self.taken -= 1;
            let outcome = match fate {
                PostOutcome::Posted(slot) => {
                    context.slots.put(slot);
                    Err(cut_off)
                }
                PostOutcome::Cast => Err(cut_off),
                PostOutcome::Done => Ok(0),
                PostOutcome::Failed(error) => Err(error),
            };
            events.completed(work.ticket, work.verb, outcome);
        }
        while let Some(work) = self.waiting.pop_front() {
            self.taken -= 1;
            events.completed(work.ticket, work.verb, Err(life.gone()));
        }
    }
}
