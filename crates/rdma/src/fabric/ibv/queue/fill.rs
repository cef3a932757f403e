//! Making requests of what waits.

use drtm_htm::Engine;

use crate::{
    Remote, VerbError,
    endpoint::port::Verb,
    fabric::{
        die,
        header::{HEADER, Header},
        ibv::{VerbsError, nic::Nic, number::Number, setup::Request, sys::Action},
    },
};

use super::{Connection, PostOutcome, Queue, View};

/// Whether the NIC can be given an operation.
enum Check {
    /// With this key.
    Fits(u32),
    /// The node is asked.
    Asked,
    Fails(VerbError),
}

/// Returns the kill point of an operation that was posted.
fn posted(verb: &Verb) -> &'static str {
    match verb {
        Verb::Read { .. } => "nic.posted.read",
        Verb::Write { .. } => "nic.posted.write",
        Verb::CompareSwap { .. } => "nic.posted.swap",
        Verb::FetchAdd { .. } => "nic.posted.add",
        Verb::Send { .. } => "nic.posted.message",
        Verb::Call { .. } => "nic.posted.call",
    }
}

impl Queue {
    /// Checks whether the memory of an operation is there, as far as the node has said. Asks the
    /// node if it may have more by now.
    #[inline]
    fn check<E: Engine>(&mut self, nic: &mut Nic<E>, at: Remote, words: usize) -> Result<Check, VerbsError> {
        let view = self.line.regions.get(usize::from(at.region.0));
        if let Some(Some(View::Known(known))) = view
            && let Some(key) = known.key(at.offset.bytes(), 8 * words as u64)
        {
            return Ok(Check::Fits(key));
        }
        if self.line.asked.is_some() {
            return Ok(Check::Asked);
        }
        if !self.line.answered {
            self.ask(nic, Request::Ask(at.region))?;
            return Ok(Check::Asked);
        }
        Ok(Check::Fails(match view {
            Some(Some(View::Known(_))) => VerbError::OutOfBounds { at, words },
            _ => VerbError::UnknownRegion { node: at.node, region: at.region },
        }))
    }

    pub(super) fn fill<E: Engine>(&mut self, nic: &mut Nic<E>) {
        match self.gather(nic) {
            Ok(()) if nic.requests.len() == 0 => {}
            Ok(()) => {
                // All before it are over when it is.
                nic.requests.signal_last();
                nic.posted.doorbells += 1;
                nic.posted.signaled += 1;
                nic.posted.requests += nic.requests.len() as u64;
                let Connection::Up(pair) = &mut self.line.connection else { return };
                if let Err(error) = pair.post(&mut nic.requests) {
                    self.line.sever(&nic.adapter, error);
                }
                if let Some((work, _)) = self.line.sent.back() {
                    die::site(posted(&work.verb));
                }
            }
            Err(error) => {
                nic.requests.clear();
                self.line.sever(&nic.adapter, error);
            }
        }
    }

    /// Makes requests of what waits.
    fn gather<E: Engine>(&mut self, nic: &mut Nic<E>) -> Result<(), VerbsError> {
        let inline_bytes = nic.adapter.capabilities.inline_bytes;
        let by_datagram = nic.datagrams.is_some();
        while let Some(work) = self.line.waiting.front() {
            let cast = by_datagram && work.verb.is_message();
            if cast && (self.line.posted > 0 || !self.has_session())
                || !cast && (self.line.messages > 0 || !self.is_up())
            {
                break;
            }
            let place = match &work.verb {
                Verb::Read { from: at, into: words } | Verb::Write { to: at, from: words } => Some((*at, words.len())),
                Verb::CompareSwap { at, .. } | Verb::FetchAdd { at, .. } => Some((*at, 1)),
                Verb::Send { .. } | Verb::Call { .. } => None,
            };
            let mut failure = self.state.broken();
            let mut key = 0;
            if let (Some((at, words)), None) = (place, failure) {
                match self.check(nic, at, words)? {
                    Check::Fits(found) => key = found,
                    Check::Asked => break,
                    Check::Fails(error) => failure = Some(error),
                }
            }
            let Some(work) = self.line.waiting.front() else { break };
            if let Some(error) = failure {
                self.state.note(work.ticket.is_some(), &Err(error));
                self.over(PostOutcome::Failed(error));
                continue;
            }
            if cast {
                self.post_message();
                continue;
            }
            let address = place.map_or(0, |(at, _)| at.offset.bytes());
            let (action, bytes) = match &work.verb {
                Verb::Read { into, .. } => (Action::Read { address, key }, 8 * into.len()),
                Verb::Write { from, .. } => (Action::Write { address, key }, 8 * from.len()),
                Verb::CompareSwap { expected, new, .. } => {
                    (Action::CompareSwap { address, key, expected: *expected, new: *new }, 8)
                }
                Verb::FetchAdd { add, .. } => (Action::FetchAdd { address, key, add: *add }, 8),
                Verb::Send { bytes, .. } | Verb::Call { bytes, .. } => (Action::Send, HEADER + bytes.len()),
            };
            if bytes == 0 {
                self.over(PostOutcome::Done);
                continue;
            }
            let Some(slot) = nic.slots.take(bytes) else { break };
            let at = slot.at as usize;
            match &work.verb {
                Verb::Write { from, .. } => nic.slab.write(at, from),
                Verb::Send { bytes, .. } => {
                    nic.slab.write(at, &Header::Message.encode());
                    nic.slab.write(at + HEADER, bytes);
                }
                Verb::Call { bytes, .. } => {
                    // Calls always have a ticket, and there is memory for as many replies as there
                    // may be calls; the answers to some that are given up may still be on their
                    // way.
                    let (Some(ticket), Some(reply)) = (work.ticket, nic.free_replies.pop()) else {
                        nic.slots.put(slot);
                        break;
                    };
                    nic.slab.write(at, &Header::Call(ticket).encode());
                    nic.slab.write(at + HEADER, bytes);
                    self.line.calls.push_back(ticket);
                    self.line.receives.push(reply);
                    let number = Number { queue: self.state.node.0, connection: self.line.number, request: reply };
                    let size = HEADER + nic.adapter.message_bytes;
                    nic.posted.receives += 1;
                    if let Connection::Up(pair) = &mut self.line.connection {
                        pair.post_receive(number.encode(), nic.replies.span(reply as usize * size, size))?;
                    }
                }
                Verb::Read { .. } | Verb::CompareSwap { .. } | Verb::FetchAdd { .. } => {}
            }
            let carries = matches!(action, Action::Write { .. } | Action::Send);
            let inline = carries && bytes <= inline_bytes;
            nic.posted.inlined += u64::from(inline);
            let request = self.line.first.wrapping_add(self.line.sent.len() as u32);
            let number = Number { queue: self.state.node.0, connection: self.line.number, request };
            nic.requests.push(number.encode(), action, nic.slab.span(at, bytes), inline);
            self.over(PostOutcome::Posted(slot));
        }
        Ok(())
    }

    fn is_up(&self) -> bool {
        matches!(self.line.connection, Connection::Up(_))
    }

    /// Moves the first waiting operation to those that are sent, with its outcome so far.
    #[inline]
    pub(super) fn over(&mut self, fate: PostOutcome) {
        self.line.answered = false;
        match fate {
            PostOutcome::Posted(_) => self.line.posted += 1,
            PostOutcome::Message => self.line.messages += 1,
            PostOutcome::Done | PostOutcome::Failed(_) => {}
        }
        if let Some(work) = self.line.waiting.pop_front() {
            self.line.sent.push_back((work, fate));
        }
    }
}
