//! Carrying out what a peer's endpoint asks for: in order, as many operations as have come, with
//! one system call for all that is said to that.

use std::{io, sync::Arc};

use drtm_htm::Engine;

use crate::{
    Incarnation, NodeId, Offset, RegionId, Remote, Tearing,
    endpoint::port::{ReplyTo, Ticket},
    fabric::{die, mailbox::Kind},
    region::memory,
};

use super::{
    Refusal,
    caller::Caller,
    connection::{Liveness, Served},
    dial::Wire,
    flow::{Came, Outflow},
    noise::Forged,
    shared::Shared,
    shares::UNIT,
    wire::{self, Failure, Request, Response},
};

/// What is carried out for one connection before it is another's turn: bytes that are moved, with
/// so many for each operation.
const TURN: usize = 256 << 10;
const OPERATION: usize = UNIT;

/// What the thread that drives has at hand.
#[derive(Default)]
pub(super) struct Hand {
    /// For words on their way.
    words: Vec<u64>,
    /// It receives a message itself, so no other endpoint is woken for one.
    receives: bool,
    /// It replies to messages itself, and tells of their delivery by the way.
    pub(super) replies: bool,
    /// Connections on which it has only that to tell.
    pub(super) unwritten: Vec<Arc<Caller>>,
}

impl Hand {
    /// Begins a turn, of an endpoint that waits for messages or of another thread.
    pub(super) fn begin(&mut self, receiving: bool) {
        (self.receives, self.replies) = (receiving, false);
    }
}

/// What became of an operation.
enum Step {
    Done,
    Delivered,
    Value(u64),
    /// The words are in the scratch memory.
    Words(usize),
    /// What a call is answered by.
    Answer(Ticket, Vec<u8>),
    /// The mailbox is full.
    Full,
}

/// Returns how a connection ends whose record is forged.
fn refusal(error: Forged) -> Liveness {
    let Forged = error;
    Liveness::Closed(Some(Refusal::Forged))
}

impl<E: Engine> Shared<E> {
    /// Carries out what has come on a connection.
    pub(super) fn serve(
        &self,
        wire: &mut Wire,
        caller: &Arc<Caller>,
        served: &mut Served,
        hand: &mut Hand,
    ) -> Liveness {
        let most = self.config.limits.held_bytes;
        served.turn = 0;
        let mut came = Came::Nothing;
        let unfinished = std::mem::take(&mut served.unfinished);
        if !served.stalled && !served.paused && !unfinished && wire.input.held() <= most {
            match wire.fill() {
                Ok(Came::Nothing) if wire.input.held() == 0 => return Liveness::Stays(false),
                Ok(found) => came = found,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Liveness::Closed(None),
            }
        }
        let mut out = caller.out.lock();
        let mut done = 0;
        let mut worked = false;
        // Nothing is to be told but that messages were delivered.
        let mut mail_only = out.pending() == 0;
        loop {
            if served.turn > TURN {
                served.unfinished = true;
                break;
            }
            if out.pending() > most {
                say_done(&mut done, &mut out);
                match out.flush(&caller.socket) {
                    Ok(true) => {}
                    Ok(false) => {
                        served.paused = true;
                        break;
                    }
                    Err(_) => return Liveness::Closed(None),
                }
            }
            let (request, signaled, length) = match wire::decode_request(wire.input.frames()) {
                Ok(Some(((request, signaled), length))) => (request, signaled, length),
                Ok(None) => match wire.input.open() {
                    Ok(true) => continue,
                    Ok(false) => break,
                    Err(error) => return refusal(error),
                },
                Err(wire::Malformed) => return Liveness::Closed(Some(Refusal::Malformed)),
            };
            served.turn += OPERATION + request.bytes();
            let outcome = match served.broken {
                Some(failure) => Err(failure),
                None => self.carry_out(&request, caller, hand),
            };
            mail_only &= matches!(outcome, Ok(Step::Delivered));
            match outcome {
                Ok(Step::Full) => {
                    say_done(&mut done, &mut out);
                    if !std::mem::replace(&mut served.stalled, true) {
                        wire::response(&Response::Stalled, out.frames());
                    }
                    break;
                }
                Ok(Step::Value(value)) if signaled => {
                    say_done(&mut done, &mut out);
                    wire::response(&Response::Value(value), out.frames());
                }
                Ok(Step::Words(count)) if signaled => {
                    say_done(&mut done, &mut out);
                    wire::words(&hand.words[..count], out.frames());
                }
                Ok(Step::Answer(ticket, bytes)) => {
                    done += 1;
                    say_done(&mut done, &mut out);
                    wire::response(&Response::Reply { ticket, bytes: &bytes }, out.frames());
                }
                Ok(_) => done += 1,
                Err(failure) => {
                    say_done(&mut done, &mut out);
                    wire::response(&Response::Failed(failure), out.frames());
                    if served.broken.is_none() {
                        self.refusals.count(Refusal::OutOfGrant);
                    }
                    // Unheard of, it takes the place of the next.
                    served.broken = (!signaled).then_some(failure);
                }
            }
            die::site("tcp.carried.out");
            served.stalled = false;
            worked = true;
            wire.input.consume(length);
        }
        say_done(&mut done, &mut out);
        served.deferred = worked && mail_only && hand.replies && came != Came::End;
        if served.deferred {
            hand.unwritten.push(Arc::clone(caller));
            return Liveness::Stays(true);
        }
        // The rest is written when the socket takes it.
        if out.flush(&caller.socket).is_err() || came == Came::End {
            return Liveness::Closed(None);
        }
        die::site("tcp.answered");
        Liveness::Stays(worked || came == Came::Some)
    }

    fn carry_out(&self, request: &Request<'_>, caller: &Caller, hand: &mut Hand) -> Result<Step, Failure> {
        let scratch = &mut hand.words;
        let at = |region: RegionId, offset: Offset| Remote { node: self.node, region, offset };
        if caller.is_visitors() && !matches!(request, Request::Call { .. }) {
            return Err(Failure::UnknownRegion);
        }
        match *request {
            Request::Read { region, offset, words: count } => {
                let (engine, words) = self.words(region, offset, count)?;
                if scratch.len() < count {
                    scratch.resize(count, 0);
                }
                memory::fetch_all(engine, words, &mut scratch[..count], at(region, offset), Tearing::Lines);
                die::site("tcp.read");
                Ok(Step::Words(count))
            }
            Request::Write { region, offset, words: bytes } => {
                let count = bytes.len() / 8;
                let (engine, words) = self.words(region, offset, count)?;
                if scratch.len() < count {
                    scratch.resize(count, 0);
                }
                wire::get_words(bytes, &mut scratch[..count]);
                die::site("tcp.writes");
                memory::store(engine, words, &scratch[..count], 0..count);
                die::site("tcp.written");
                Ok(Step::Done)
            }
            Request::CompareSwap { region, offset, expected, new } => {
                let (engine, words) = self.words(region, offset, 1)?;
                let found = engine.compare_exchange(&words[0], expected, new).unwrap_or_else(|found| found);
                die::site("tcp.swapped");
                Ok(Step::Value(found))
            }
            Request::FetchAdd { region, offset, add } => {
                let (engine, words) = self.words(region, offset, 1)?;
                let found = engine.fetch_add(&words[0], add);
                die::site("tcp.added");
                Ok(Step::Value(found))
            }
            Request::Call { ticket, bytes } if let Some(handler) = &self.handler => {
                let mut reply = Vec::new();
                handler.answer(caller, bytes, &mut reply);
                Ok(Step::Answer(ticket, reply))
            }
            Request::Send { .. } if self.handler.is_some() => Err(Failure::UnknownRegion),
            Request::Send { bytes } => Ok(self.deliver(caller.node, Kind::Message, bytes, hand)),
            Request::Call { ticket, bytes } => {
                Ok(self.deliver(caller.node, Kind::Call(reply_to(caller, ticket)), bytes, hand))
            }
        }
    }

    fn deliver(&self, from: NodeId, kind: Kind, bytes: &[u8], hand: &mut Hand) -> Step {
        if !self.inbox.mail.deliver(from, kind, bytes) {
            return Step::Full;
        }
        die::site("tcp.delivered");
        if !std::mem::take(&mut hand.receives) {
            self.inbox.places.wake_for_mail();
        }
        Step::Delivered
    }
}

fn reply_to(caller: &Caller, ticket: Ticket) -> ReplyTo {
    let (node, incarnation): (NodeId, Incarnation) = (caller.node, caller.incarnation);
    ReplyTo { node, incarnation, endpoint: caller.endpoint, life: caller.life, ticket }
}

/// Reports operations without a value, by their number.
fn say_done(done: &mut u32, out: &mut Outflow) {
    if *done > 0 {
        wire::response(&Response::Done(*done), out.frames());
        *done = 0;
    }
}
