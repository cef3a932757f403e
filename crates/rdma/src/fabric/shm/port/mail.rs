//! The messages to a node, which all its endpoints take.

use std::sync::atomic::Ordering::Acquire;

use drtm_htm::Engine;

use crate::{
    endpoint::port::{Received, ReplyTo},
    sync::ring::{FrameHead, FrameKind},
};

use super::{super::control::Traffic, ShmPort};

/// The number of polls between two checks of the inboxes of endpoints that do not receive.
const SELDOM: u32 = 64;

impl<E: Engine> ShmPort<E> {
    /// Returns the node's other endpoints, to whose inboxes requests may come that they do not
    /// take.
    fn others(&self) -> impl Iterator<Item = u16> + use<E> {
        let own = self.sender.endpoint;
        // Mail that arrived when there was no endpoint is in the first inbox.
        let used = self.shared.used.load(Acquire).max(1) as u16;
        (0..used).filter(move |endpoint| *endpoint != own)
    }

    /// Returns whether there seems to be mail in an inbox: another endpoint of the node may be
    /// about to take it.
    #[inline]
    fn is_mail_of(&self, endpoint: u16) -> bool {
        match self.shared.places[usize::from(endpoint)].inbox.try_lock() {
            Some(inbox) => inbox.may_have(&self.shared, endpoint),
            None => true,
        }
    }

    pub(super) fn mail_is_there(&self, all: bool) -> bool {
        self.is_mail_of(self.sender.endpoint) || (all && self.others().any(|endpoint| self.is_mail_of(endpoint)))
    }

    /// Takes the next message of an inbox.
    #[inline]
    fn take_from(&mut self, endpoint: u16) -> Option<Received> {
        let mut inbox = self.shared.places[usize::from(endpoint)].inbox.try_lock()?;
        let mut frame = self.spare.pop().unwrap_or_default();
        let Some((from, announced, head)) = inbox.take(&self.shared, (endpoint, Traffic::Requests), &mut frame) else {
            drop(inbox);
            self.keep(frame);
            return None;
        };
        let FrameHead { kind, endpoint, life, ticket } = head;
        let call = ReplyTo { node: from, incarnation: announced.incarnation, endpoint, life, ticket };
        Some(Received { from, frame, reply_to: (kind == FrameKind::Call).then_some(call) })
    }

    pub(super) fn set_receives(&mut self, receives: bool) {
        if self.receives != receives {
            self.receives = receives;
            self.shared.control().set_receives(self.sender.endpoint, receives);
        }
    }

    /// Returns whether there seems to be a message to take.
    #[inline]
    pub(super) fn looks_for_mail(&mut self) -> bool {
        self.set_receives(true);
        if self.until_look > 0 {
            self.until_look -= 1;
            return self.is_mail_of(self.sender.endpoint);
        }
        let found = self.mail_is_there(true);
        // If there is some, it may be in any inbox, and is taken from there while this is zero.
        if !found {
            self.until_look = SELDOM;
        }
        found
    }

    /// Takes the next message to the node.
    pub(super) fn take_mail(&mut self) -> Option<Received> {
        self.set_receives(true);
        let received = self.take_from(self.sender.endpoint);
        if received.is_some() {
            return received;
        }
        if self.until_look > 0 {
            self.until_look -= 1;
            return None;
        }
        let received = self.others().find_map(|endpoint| self.take_from(endpoint));
        if received.is_none() {
            self.until_look = SELDOM;
        }
        received
    }

    /// Wakes the node's other receiving endpoints, for mail that this one leaves.
    pub(super) fn pass_on(&self) {
        if self.mail_is_there(true) {
            let control = self.shared.control();
            for endpoint in self.others().filter(|endpoint| control.receives(*endpoint)) {
                control.alarm(endpoint).ring();
            }
        }
    }
}
