//! Making requests of what waits.

use drtm_htm::Engine;

use crate::{
    Remote, VerbError, die,
    ibv::{
        VerbsError,
        context::{Number, QueueContext},
        letters::{HEAD, Head},
        setup::Request,
        sys::Action,
    },
    port::Verb,
};

use super::{Line, PostOutcome, Queue, View};

/// Whether the NIC can be given an operation.
enum Check {
    /// With this key.
    Fits(u32),
    /// The node is asked.
    Asked,
    Fails(VerbError),
}

/// Where a process can die that has given the NIC an operation.
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
    /// Whether what an operation accesses is there, as the node has said; and it is asked where it
    /// may have more by now.
    #[inline]
    fn check<E: Engine>(
        &mut self,
        context: &mut QueueContext<'_, E>,
        at: Remote,
        words: usize,
    ) -> Result<Check, VerbsError> {
        let view = self.regions.get(usize::from(at.region.0));
        if let Some(Some(View::Known(known))) = view
            && let Some(key) = known.key(at.offset.bytes(), 8 * words as u64)
        {
            return Ok(Check::Fits(key));
        }
        if self.asked.is_some() {
            return Ok(Check::Asked);
        }
        if !self.answered {
            self.ask(context, Request::Ask(at.region))?;
            return Ok(Check::Asked);
        }
        Ok(Check::Fails(match view {
            Some(Some(View::Known(_))) => VerbError::OutOfBounds { at, words },
            _ => VerbError::UnknownRegion { node: at.node, region: at.region },
        }))
    }

    pub(super) fn fill<E: Engine>(&mut self, context: &mut QueueContext<'_, E>) {
        match self.gather(context) {
            Ok(()) if context.requests.len() == 0 => {}
            Ok(()) => {
                // All before it are over when it is.
                context.requests.signal_last();
                context.posted.doorbells += 1;
                context.posted.signaled += 1;
                context.posted.requests += context.requests.len() as u64;
                let Line::Up(pair) = &mut self.line else { return };
                if let Err(error) = pair.post(context.requests) {
                    self.sever(context.station, error);
                }
                if let Some((work, _)) = self.sent.back() {
                    die::site(posted(&work.verb));
                }
            }
            Err(error) => {
                context.requests.clear();
                self.sever(context.station, error);
            }
        }
    }

    /// Makes requests of what waits.
    fn gather<E: Engine>(&mut self, context: &mut QueueContext<'_, E>) -> Result<(), VerbsError> {
        let inline_bytes = context.station.capabilities.inline_bytes;
        let by_datagram = context.mouth.is_some();
        while let Some(work) = self.waiting.front() {
            let cast = by_datagram && work.verb.is_message();
            if cast && (self.posted > 0 || !self.is_talking()) || !cast && (self.casts > 0 || !self.is_up()) {
                break;
            }
            let place = match &work.verb {
                Verb::Read { from: at, into: words } | Verb::Write { to: at, from: words } => Some((*at, words.len())),
                Verb::CompareSwap { at, .. } | Verb::FetchAdd { at, .. } => Some((*at, 1)),
                Verb::Send { .. } | Verb::Call { .. } => None,
            };
            let mut failure = self.broken;
            let mut key = 0;
            if let (Some((at, words)), None) = (place, failure) {
                match self.check(context, at, words)? {
                    Check::Fits(found) => key = found,
                    Check::Asked => break,
                    Check::Fails(error) => failure = Some(error),
                }
            }
            let Some(work) = self.waiting.front() else { break };
            if let Some(error) = failure {
                // Unheard of, it takes the place of the next.
                self.broken = work.ticket.is_none().then_some(error);
                self.over(PostOutcome::Failed(error));
                continue;
            }
            if cast {
                self.cast();
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
                Verb::Send { bytes, .. } | Verb::Call { bytes, .. } => (Action::Send, HEAD + bytes.len()),
            };
            if bytes == 0 {
                self.over(PostOutcome::Done);
                continue;
            }
            let Some(slot) = context.slots.take(bytes) else { break };
            let at = slot.at as usize;
            match &work.verb {
                Verb::Write { from, .. } => context.slab.write(at, from),
                Verb::Send { bytes, .. } => {
                    context.slab.write(at, &Head::Message.encode());
                    context.slab.write(at + HEAD, bytes);
                }
                Verb::Call { bytes, .. } => {
                    // Calls always have a ticket, and there is memory for as many replies as there
                    // may be calls; the answers to some that are given up may still be on their
                    // way.
                    let (Some(ticket), Some(reply)) = (work.ticket, context.free_replies.pop()) else {
                        context.slots.put(slot);
                        break;
                    };
                    context.slab.write(at, &Head::Call(ticket).encode());
                    context.slab.write(at + HEAD, bytes);
                    self.calls.push_back(ticket);
                    self.receives.push(reply);
                    let number = Number { queue: self.node.0, connection: self.connection, request: reply };
                    let size = HEAD + context.station.message_bytes;
                    context.posted.receives += 1;
                    if let Line::Up(pair) = &mut self.line {
                        pair.post_receive(number.encode(), context.replies.span(reply as usize * size, size))?;
                    }
                }
                Verb::Read { .. } | Verb::CompareSwap { .. } | Verb::FetchAdd { .. } => {}
            }
            let carries = matches!(action, Action::Write { .. } | Action::Send);
            let inline = carries && bytes <= inline_bytes;
            context.posted.inlined += u64::from(inline);
            let request = self.first.wrapping_add(self.sent.len() as u32);
            let number = Number { queue: self.node.0, connection: self.connection, request };
            context.requests.push(number.encode(), action, context.slab.span(at, bytes), inline);
            self.over(PostOutcome::Posted(slot));
        }
        Ok(())
    }

    fn is_up(&self) -> bool {
        matches!(self.line, Line::Up(_))
    }

    /// The first that waits has got its fate.
    #[inline]
    pub(super) fn over(&mut self, fate: PostOutcome) {
        self.answered = false;
        match fate {
            PostOutcome::Posted(_) => self.posted += 1,
            PostOutcome::Cast => self.casts += 1,
            PostOutcome::Done | PostOutcome::Failed(_) => {}
        }
        if let Some(work) = self.waiting.pop_front() {
            self.sent.push_back((work, fate));
        }
    }
}
