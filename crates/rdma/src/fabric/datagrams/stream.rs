//! Both directions between an endpoint and a node.

use super::{
    inbox::{Inbox, Nonsense},
    mutation::{Mutation, includes},
    outbox::Outbox,
    prefix::Prefix,
};

/// What a datagram has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    /// How many messages, the oldest first, are complete at the other side by it.
    pub(crate) complete: usize,
    /// Whether parcels were taken, by either side.
    pub(crate) progress: bool,
}

/// One side's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stream {
    /// The token of what this side sends.
    token: u64,
    /// The token of what it gets.
    expects: u64,
    /// The most bytes of a parcel, and of a message with its head.
    parcel: usize,
    message: usize,
    out: Outbox,
    inbox: Inbox,
    /// An acknowledgement that no parcel has carried yet.
    owes: bool,
    /// The highest number of a parcel that has asked, and what the other side was told last.
    asked: u64,
    told: u64,
    /// The answer to a probe.
    owes_answer: bool,
    probes: bool,
}

impl Stream {
    pub(crate) fn new(token: u64, expects: u64, parcel: usize, message: usize) -> Self {
        let (out, inbox) = (Outbox::new(), Inbox::new());
        Self {
            token,
            expects,
            parcel,
            message,
            out,
            inbox,
            owes: false,
            asked: 0,
            told: 0,
            owes_answer: false,
            probes: false,
        }
    }

    /// Adds a message. `asks` if its delivery is waited for, and no reply will tell of it.
    pub(crate) fn post(&mut self, head: &[u8], bytes: &[u8], asks: bool) {
        debug_assert!(head.len() + bytes.len() <= self.message, "the endpoint checks the length");
        self.out.push(head, bytes, self.parcel, asks);
    }

    /// Returns whether a datagram is of this stream.
    pub(crate) fn is_of(&self, prefix: &Prefix) -> bool {
        prefix.token == self.expects
    }

    /// Takes what a datagram says, if it is of this stream, and delivers the messages that are
    /// complete by it. Without `room`, its parcel is as good as lost.
    pub(crate) fn hear(
        &mut self,
        prefix: &Prefix,
        bytes: &[u8],
        room: bool,
        mut deliver: impl FnMut(&[u8]),
    ) -> Result<Heard, Nonsense> {
        if !self.is_of(prefix) {
            return Err(Nonsense("a wrong token"));
        }
        let complete = self.out.taken(prefix.taken);
        let complete = complete.ok_or(Nonsense("an acknowledgement of what was not sent"))?;
        let mut progress = complete > 0;
        if prefix.number == 0 {
            // Both a probe and its answer say what has arrived, some time after all was sent.
            if (prefix.asks || prefix.more) && !includes(Mutation::RepeatNothing) {
                self.out.again();
            }
            self.owes_answer |= prefix.asks;
        } else {
            if room {
                progress |= self.inbox.take(prefix.number, bytes, prefix.more, self.message, &mut deliver)?;
                if prefix.asks {
                    self.asked = self.asked.max(prefix.number);
                }
            }
            // One that asks may have arrived before those that it asks for.
            self.owes |= prefix.asks || self.asked > self.told && self.inbox.taken() > self.told;
            self.owes &= !includes(Mutation::OweNothing);
        }
        Ok(Heard { complete, progress })
    }

    /// Returns what to send next: a prefix, and a parcel if there is one. Call
    /// [`sent`](Self::sent) when it was sent. Parcels come first, since they acknowledge, too.
    pub(crate) fn next(&self) -> Option<(Prefix, &[u8])> {
        let (token, taken) = (self.token, self.inbox.taken());
        if let Some((number, parcel, asks)) = self.out.next() {
            return Some((Prefix { token, number, more: parcel.more, taken, asks }, &parcel.bytes));
        }
        let says = self.owes || self.owes_answer || self.probes;
        says.then_some((Prefix { token, number: 0, more: self.owes_answer, taken, asks: self.probes }, &[]))
    }

    /// Notes that what [`next`](Self::next) returned was sent.
    pub(crate) fn sent(&mut self) {
        if self.out.next().is_some() {
            self.out.sent_next();
        } else {
            (self.owes_answer, self.probes) = (false, false);
        }
        (self.owes, self.told) = (false, self.inbox.taken());
    }

    /// Sends a probe.
    pub(crate) fn probe(&mut self) {
        self.probes = true;
    }

    /// Returns whether a window or more is not acknowledged, so that the last message waits.
    pub(crate) fn is_full(&self) -> bool {
        self.out.is_full()
    }

    /// Returns whether the other side has acknowledged all messages.
    pub(crate) fn is_quiet(&self) -> bool {
        self.out.is_empty()
    }

    /// Returns how many datagrams a message of so many bytes takes, with its head.
    pub(crate) fn parcels(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.parcel)
    }
}
