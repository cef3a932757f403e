//! An endpoint's side of a session: messages by datagrams, and the replies to calls.

use std::time::Duration;

use drtm_htm::Engine;

use crate::{
    Time,
    endpoint::port::{Events, Frame, Ticket, Verb},
    fabric::{
        datagrams::{PREFIX, Pace, Prefix, Step, Stream},
        die,
        header::{HEADER, Header},
        ibv::{
            VerbsError,
            adapter::Adapter,
            nic::Nic,
            setup::{Contact, Request},
        },
    },
    sync::time,
};

use super::{Line, PostOutcome, Queue};

/// How long to wait before the first probe. Loss is rare where NICs are, so this need not be short.
const FIRST: Duration = Duration::from_millis(4);

/// The state of the session with the node.
#[derive(Debug, Default)]
pub(super) enum SessionState {
    /// The first message opens it.
    #[default]
    Down,
    /// The node is asked where it gets datagrams.
    Opening,
    Up(Box<ClientSession>),
}

#[derive(Debug)]
pub(super) struct ClientSession {
    stream: Stream,
    pace: Pace,
    /// Where the node gets datagrams.
    contact: Contact,
}

impl Line {
    /// Returns whether datagrams are awaited, or to be sent.
    pub(super) fn waits_for_datagrams(&self) -> bool {
        let SessionState::Up(session) = &self.session else { return false };
        !self.calls.is_empty() || !session.stream.is_quiet() || session.stream.next().is_some()
    }

    /// Returns when the next probe is due. `None` if nothing is awaited.
    pub(in crate::fabric::ibv) fn next_probe(&self) -> Option<Time> {
        let SessionState::Up(session) = &self.session else { return None };
        session.pace.due()
    }
}

impl Queue {
    /// Sends waiting messages, as far as possible.
    pub(super) fn post_messages<E: Engine>(&mut self, nic: &mut Nic<E>) {
        match &self.line.session {
            SessionState::Up(_) => {
                self.fill(nic);
                self.send_datagrams(nic);
            }
            SessionState::Down => self.open_session(nic),
            SessionState::Opening => {}
        }
    }

    /// Asks the node to open a session.
    #[cold]
    fn open_session<E: Engine>(&mut self, nic: &mut Nic<E>) {
        if self.line.asked.is_some() {
            return;
        }
        let Some(datagrams) = &nic.datagrams else { return };
        // The node's number is within, so that what comes is found by it.
        let contact = datagrams.contact(u64::from(self.state.node.0) << 48 | crate::fabric::ibv::random() >> 16);
        match self.ask(nic, Request::OpenSession(contact)) {
            Ok(()) => self.line.session = SessionState::Opening,
            Err(error) => self.line.sever(&nic.adapter, error),
        }
    }

    /// Begins the session with a node that has told its contact.
    #[cold]
    pub(super) fn begin_session<E: Engine>(&mut self, adapter: &Adapter<E>, mine: &Contact, theirs: Contact) {
        let parcel = mine.datagram().min(theirs.datagram()) - PREFIX;
        let stream = Stream::new(theirs.token, mine.token, parcel, HEADER + adapter.message_bytes);
        let pace = Pace::new(FIRST, adapter.silence);
        self.line.session = SessionState::Up(Box::new(ClientSession { stream, pace, contact: theirs }));
        die::site("nic.connects");
    }

    pub(super) fn has_session(&self) -> bool {
        matches!(self.line.session, SessionState::Up(_))
    }

    /// Posts the first waiting operation, which is a message, to the stream.
    pub(super) fn post_message(&mut self) {
        let (SessionState::Up(session), Some(work)) = (&mut self.line.session, self.line.waiting.front()) else {
            return;
        };
        match (&work.verb, work.ticket) {
            (Verb::Send { bytes, .. }, _) => session.stream.post(&Header::Message.encode(), bytes, true),
            (Verb::Call { bytes, .. }, Some(ticket)) => {
                session.stream.post(&Header::Call(ticket).encode(), bytes, false);
                self.line.calls.push_back(ticket);
            }
            // Calls always have a ticket.
            (_, _) => debug_assert!(false, "a message"),
        }
        self.over(PostOutcome::Message);
    }

    /// Sends the datagrams of the stream, as far as there is room.
    fn send_datagrams<E: Engine>(&mut self, nic: &mut Nic<E>) {
        let (SessionState::Up(session), Some(datagrams)) = (&mut self.line.session, &mut nic.datagrams) else { return };
        if let Err(error) = datagrams.send_datagrams(&mut session.stream, &session.contact) {
            self.line.sever(&nic.adapter, error);
        }
    }

    /// Sends what is due, and probes for what may be lost. Returns whether there was no room to
    /// send.
    #[inline]
    pub(super) fn keep_session<E: Engine>(&mut self, nic: &mut Nic<E>) -> bool {
        let SessionState::Up(session) = &mut self.line.session else { return false };
        let waits = !self.line.calls.is_empty() || !session.stream.is_quiet();
        match session.pace.step(time::of_this_machine(), waits) {
            Step::Wait => {}
            Step::Probe => session.stream.probe(),
            Step::GiveUp => self.line.sever(&nic.adapter, VerbsError::Silent { node: self.state.node }),
        }
        self.send_datagrams(nic);
        matches!(&self.line.session, SessionState::Up(session) if session.stream.next().is_some())
    }

    /// Handles a datagram. One of another session is dropped.
    pub(in crate::fabric::ibv) fn receive_datagram<E: Engine>(
        &mut self,
        nic: &mut Nic<E>,
        prefix: &Prefix,
        parcel: &[u8],
        spare: &mut Vec<Frame>,
        replies: &mut Vec<(Ticket, Option<Frame>)>,
        events: &mut impl Events,
    ) {
        let SessionState::Up(session) = &mut self.line.session else { return };
        if !session.stream.is_of(prefix) || self.line.severed {
            return;
        }
        let mut malformed = false;
        let heard = session.stream.hear(prefix, parcel, true, |message| {
            let (ticket, replied) = match Header::split(message) {
                Some((Header::Reply(ticket), bytes)) => (ticket, Some(bytes)),
                Some((Header::Refusal(ticket), _)) => (ticket, None),
                _ => return malformed = true,
            };
            let Some(place) = self.line.calls.iter().position(|call| *call == ticket) else { return malformed = true };
            self.line.calls.swap_remove_front(place);
            let frame = replied.map(|bytes| {
                let mut frame = spare.pop().unwrap_or_default();
                frame.clear();
                frame.extend_from_slice(bytes);
                frame
            });
            replies.push((ticket, frame));
        });
        match heard {
            Ok(heard) if !malformed => {
                session.pace.heard(time::of_this_machine(), heard.progress);
                for _ in 0..heard.complete {
                    self.report_done(nic, events);
                    self.report_first(nic, events);
                }
                self.report_done(nic, events);
            }
            Ok(_) => self.line.sever(&nic.adapter, VerbsError::Refused { why: "what came is no reply".into() }),
            Err(nonsense) => self.line.sever(&nic.adapter, VerbsError::Refused { why: nonsense.0.into() }),
        }
        for (ticket, frame) in replies.drain(..) {
            die::site("nic.replies.heard");
            events.replied(ticket, self.state.node, frame);
        }
    }
}
