//! Mailboxes: messages that wait to be received.
//!
//! A mailbox has a fixed number of frames, and a message needs one. If none is free, the sender's
//! queue waits, like a reliable connection whose receiver is not ready. Frames keep their memory,
//! so after a while nothing is allocated.

use crossbeam_queue::ArrayQueue;

use crate::{
    NodeId,
    endpoint::port::{Frame, Received, ReplyTo, Ticket},
};

/// The kind of a message.
#[derive(Debug)]
pub(crate) enum Kind {
    Message,
    Call(ReplyTo),
    Reply { life: u32, ticket: Ticket, refused: bool },
}

#[derive(Debug)]
pub(crate) struct Envelope {
    pub(crate) from: NodeId,
    pub(crate) kind: Kind,
    pub(crate) frame: Frame,
}

#[derive(Debug)]
pub(crate) struct Mailbox {
    envelopes: ArrayQueue<Envelope>,
    frames: ArrayQueue<Frame>,
}

impl Mailbox {
    pub(crate) fn new(capacity: usize) -> Self {
        let frames = ArrayQueue::new(capacity);
        while frames.push(Frame::new()).is_ok() {}
        Self { envelopes: ArrayQueue::new(capacity), frames }
    }

    /// Delivers a copy of a message. Returns false if no frame is free.
    #[must_use]
    pub(crate) fn deliver(&self, from: NodeId, kind: Kind, bytes: &[u8]) -> bool {
        let Some(mut frame) = self.frames.pop() else { return false };
        frame.clear();
        frame.extend_from_slice(bytes);
        match self.envelopes.push(Envelope { from, kind, frame }) {
            Ok(()) => true,
            // There are as many places as frames.
            Err(envelope) => {
                debug_assert!(false, "a mailbox has a place for each of its frames");
                self.recycle(envelope.frame);
                false
            }
        }
    }

    /// Returns whether there is nothing to receive. It is cheaper than to receive.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.envelopes.is_empty()
    }

    pub(crate) fn receive(&self) -> Option<Envelope> {
        self.envelopes.pop()
    }

    /// Takes the next message, from a mailbox without replies.
    pub(crate) fn receive_message(&self) -> Option<Received> {
        if self.is_empty() {
            return None;
        }
        let Envelope { from, kind, frame } = self.receive()?;
        let reply_to = match kind {
            Kind::Call(reply_to) => Some(reply_to),
            Kind::Message | Kind::Reply { .. } => None,
        };
        Some(Received { from, frame, reply_to })
    }

    /// Returns whether a message can be delivered.
    #[cfg(not(feature = "model"))]
    #[cfg_attr(not(feature = "tcp"), allow(dead_code, reason = "the fabric over TCP uses it"))]
    pub(crate) fn has_room(&self) -> bool {
        !self.frames.is_empty()
    }

    /// Returns a frame to the mailbox, so that another message can be delivered.
    pub(crate) fn recycle(&self, frame: Frame) {
        let returned = self.frames.push(frame);
        debug_assert!(returned.is_ok(), "a frame returns to the mailbox that it came from, once");
    }
}
