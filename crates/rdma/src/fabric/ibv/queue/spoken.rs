//! Messages that go by datagrams, and the replies to calls.

use drtm_htm::Engine;

use crate::{
    Time,
    endpoint::port::{Events, Frame, Ticket, Verb},
    fabric::{
        datagrams::{PREFIX, Pace, Prefix, Step, Talk},
        die,
        ibv::{
            VerbsError,
            letters::{HEAD, Head},
            nic::Nic,
            setup::{Contact, Request},
            station::Station,
        },
    },
    sync::time,
};

use super::{Line, PostOutcome, Queue};

/// How far the talk with the node is.
#[derive(Debug, Default)]
pub(super) enum Spoken {
    /// Not begun: the first message begins it.
    #[default]
    Down,
    /// The node is asked where it gets datagrams.
    Greeting,
    Up(Box<Conversation>),
}

#[derive(Debug)]
pub(super) struct Conversation {
    talk: Talk,
    pace: Pace,
    /// Where the node gets datagrams.
    contact: Contact,
}

impl Line {
    /// Whether something is to come, or to be said.
    pub(super) fn waits_for_datagrams(&self) -> bool {
        let Spoken::Up(conversation) = &self.spoken else { return false };
        !self.calls.is_empty() || !conversation.talk.is_quiet() || conversation.talk.next().is_some()
    }

    /// When the node is asked what has arrived, unless it says so before.
    pub(in crate::fabric::ibv) fn next_probe(&self) -> Option<Time> {
        let Spoken::Up(conversation) = &self.spoken else { return None };
        conversation.pace.due()
    }
}

impl Queue {
    /// Sends what waits by datagrams, as far as it can be.
    pub(super) fn post_spoken<E: Engine>(&mut self, nic: &mut Nic<E>) {
        match &self.line.spoken {
            Spoken::Up(_) => {
                self.fill(nic);
                self.speak(nic);
            }
            Spoken::Down => self.greet(nic),
            Spoken::Greeting => {}
        }
    }

    /// Begins to talk.
    #[cold]
    fn greet<E: Engine>(&mut self, nic: &mut Nic<E>) {
        if self.line.asked.is_some() {
            return;
        }
        let Some(mouth) = &nic.mouth else { return };
        // The node's number is within, so that what comes is found by it.
        let contact = mouth.contact(u64::from(self.state.node.0) << 48 | crate::fabric::ibv::random() >> 16);
        match self.ask(nic, Request::Greet(contact)) {
            Ok(()) => self.line.spoken = Spoken::Greeting,
            Err(error) => self.line.sever(&nic.station, error),
        }
    }

    /// The node has said where it gets datagrams.
    #[cold]
    pub(super) fn begin_talk<E: Engine>(&mut self, station: &Station<E>, mine: &Contact, theirs: Contact) {
        let parcel = mine.datagram().min(theirs.datagram()) - PREFIX;
        let talk = Talk::new(theirs.token, mine.token, parcel, HEAD + station.message_bytes);
        let pace = Pace::new(station.silence);
        self.line.spoken = Spoken::Up(Box::new(Conversation { talk, pace, contact: theirs }));
        die::site("nic.connects");
    }

    pub(super) fn is_talking(&self) -> bool {
        matches!(self.line.spoken, Spoken::Up(_))
    }

    /// Gives the first that waits, which is a message, to the talk.
    pub(super) fn cast(&mut self) {
        let (Spoken::Up(conversation), Some(work)) = (&mut self.line.spoken, self.line.waiting.front()) else { return };
        match (&work.verb, work.ticket) {
            (Verb::Send { bytes, .. }, _) => conversation.talk.post(&Head::Message.encode(), bytes, true),
            (Verb::Call { bytes, .. }, Some(ticket)) => {
                conversation.talk.post(&Head::Call(ticket).encode(), bytes, false);
                self.line.calls.push_back(ticket);
            }
            // Calls always have a ticket.
            (_, _) => debug_assert!(false, "a message"),
        }
        self.over(PostOutcome::Cast);
    }

    /// Sends what the talk has to say, as far as there is room.
    fn speak<E: Engine>(&mut self, nic: &mut Nic<E>) {
        let (Spoken::Up(conversation), Some(mouth)) = (&mut self.line.spoken, &mut nic.mouth) else { return };
        if let Err(error) = mouth.speak(&mut conversation.talk, &conversation.contact) {
            self.line.sever(&nic.station, error);
        }
    }

    /// Says what is to be said, and looks after what may be lost. Returns whether it had no room.
    #[inline]
    pub(super) fn keep_talking<E: Engine>(&mut self, nic: &mut Nic<E>) -> bool {
        let Spoken::Up(conversation) = &mut self.line.spoken else { return false };
        let waits = !self.line.calls.is_empty() || !conversation.talk.is_quiet();
        match conversation.pace.step(time::of_this_machine(), waits) {
            Step::Wait => {}
            Step::Probe => conversation.talk.probe(),
            Step::GiveUp => self.line.sever(&nic.station, VerbsError::Silent { node: self.state.node }),
        }
        self.speak(nic);
        matches!(&self.line.spoken, Spoken::Up(conversation) if conversation.talk.next().is_some())
    }

    /// A datagram has come. One that is not of this talk is dropped.
    pub(in crate::fabric::ibv) fn hear_datagram<E: Engine>(
        &mut self,
        nic: &mut Nic<E>,
        prefix: &Prefix,
        parcel: &[u8],
        spare: &mut Vec<Frame>,
        replies: &mut Vec<(Ticket, Option<Frame>)>,
        events: &mut impl Events,
    ) {
        let Spoken::Up(conversation) = &mut self.line.spoken else { return };
        if !conversation.talk.is_of(prefix) || self.line.severed {
            return;
        }
        let mut malformed = false;
        let heard = conversation.talk.hear(prefix, parcel, true, |message| {
            let head = message.first_chunk().and_then(Head::decode);
            let (ticket, replied) = match head {
                Some(Head::Reply(ticket)) => (ticket, true),
                Some(Head::Refusal(ticket)) => (ticket, false),
                _ => return malformed = true,
            };
            let Some(place) = self.line.calls.iter().position(|call| *call == ticket) else { return malformed = true };
            self.line.calls.swap_remove_front(place);
            let frame = replied.then(|| {
                let mut frame = spare.pop().unwrap_or_default();
                frame.clear();
                frame.extend_from_slice(&message[HEAD..]);
                frame
            });
            replies.push((ticket, frame));
        });
        match heard {
            Ok(heard) if !malformed => {
                conversation.pace.heard(time::of_this_machine(), heard.progress);
                for _ in 0..heard.complete {
                    self.report_done(nic, events);
                    self.report_first(nic, events);
                }
                self.report_done(nic, events);
            }
            Ok(_) => self.line.sever(&nic.station, VerbsError::Refused { why: "what came is no reply".into() }),
            Err(nonsense) => self.line.sever(&nic.station, VerbsError::Refused { why: nonsense.0.into() }),
        }
        for (ticket, frame) in replies.drain(..) {
            die::site("nic.replies.heard");
            events.replied(ticket, self.state.node, frame);
        }
    }
}
