//! The simulated NIC: it carries out an operation, at once or by lines or words.

use std::sync::atomic::Ordering::Acquire;

use drtm_htm::{Engine, Word};
use fastrand::Rng;

use crate::{
    Atomicity, Buffers, Incarnation, NodeId, Remote, Time, VerbError,
    endpoint::port::{Activity, Reply, ReplyTo, Verb, Work},
    fabric::{lifetime::Life as _, mailbox::Kind},
    region::memory::{self, Units},
};

use super::{LocalConfig, life::Life};

/// An entry of a queue.
#[derive(Debug)]
pub(super) enum Job {
    Work(Work),
    Reply(ReplyTo, Reply),
}

impl Job {
    pub(super) fn may_pass_reads(&self) -> bool {
        let Self::Work(work) = self else { return true };
        matches!(work.verb, Verb::Write { .. } | Verb::Send { .. } | Verb::Call { .. })
    }

    pub(super) fn is_read(&self) -> bool {
        matches!(self, Self::Work(Work { verb: Verb::Read { .. }, .. }))
    }

    pub(super) fn is_unsignaled(&self) -> bool {
        matches!(self, Self::Work(Work { ticket: None, .. }))
    }
}

/// The progress of an operation.
#[derive(Debug)]
pub(super) enum Stage {
    /// It begins after this many polls.
    Waiting(u32),
    /// It has these lines or words left to move.
    Moving(Vec<u32>),
    /// An atomic that has read and not yet written. It holds the target's atomic unit.
    Between {
        old: u64,
    },
    Over(Result<u64, VerbError>),
}

/// An operation in its queue.
#[derive(Debug)]
pub(super) struct Posted {
    pub(super) job: Job,
    pub(super) stage: Stage,
    /// The earliest time at which it may begin.
    pub(super) due: Option<Time>,
}

pub(super) type Outcome = Result<u64, VerbError>;

/// The endpoint's own part of the simulated NIC.
#[derive(Debug)]
pub(super) struct Nic {
    /// The endpoint, to which replies go.
    pub(super) address: ReplyTo,
    pub(super) rng: Rng,
    /// Lists for the access orders of lines and words, for reuse.
    pub(super) spare: Vec<Vec<u32>>,
    /// The time of this poll, if the configuration needs it.
    pub(super) now: Option<Time>,
}

/// The target of a queue.
pub(super) struct Target<'a, E: Engine> {
    /// The incarnation that the queue belongs to.
    pub(super) life: &'a Life<E>,
    pub(super) config: &'a LocalConfig,
    /// Whether the poster's own node has died, and posts no more.
    pub(super) silenced: bool,
    pub(super) poster: (NodeId, Incarnation),
}

impl<'a, E: Engine> Target<'a, E> {
    /// Returns the incarnation, if it is here.
    #[inline(always)]
    fn here(&self) -> Result<&'a Life<E>, VerbError> {
        if self.life.is_over() || self.silenced {
            return Err(self.gone());
        }
        Ok(self.life)
    }

    #[cold]
    fn gone(&self) -> VerbError {
        let (node, incarnation) = self.poster;
        if self.silenced { VerbError::Gone { node, incarnation } } else { self.life.gone() }
    }

    /// Returns words of the target, and the engine to access them with.
    #[inline(always)]
    fn words(&self, at: Remote, count: usize) -> Result<(&'a E, &'a [Word]), VerbError> {
        self.here()?.words(at, count)
    }
}

/// Returns what an atomic writes if it found `old`. `None` if it writes nothing.
fn change(verb: &Verb, old: u64) -> Option<u64> {
    match *verb {
        Verb::CompareSwap { expected, new, .. } => (old == expected).then_some(new),
        Verb::FetchAdd { add, .. } => Some(old.wrapping_add(add)),
        Verb::Read { .. } | Verb::Write { .. } | Verb::Send { .. } | Verb::Call { .. } => None,
    }
}

impl Nic {
    /// Carries out an operation completely. Returns `None` for a message that has no room.
    #[inline(always)]
    pub(super) fn carry_out<E: Engine>(&mut self, job: &mut Job, to: &Target<'_, E>) -> Option<Outcome> {
        let Job::Work(work) = job else { return self.deliver(job, to) };
        let outcome = match &mut work.verb {
            Verb::Read { from, into } => Self::read(to, *from, into),
            Verb::Write { to: at, from } => Self::write(to, *at, from),
            Verb::CompareSwap { at, .. } | Verb::FetchAdd { at, .. } => {
                let at = *at;
                Self::atomic(&work.verb, at, to)
            }
            Verb::Send { .. } | Verb::Call { .. } => return self.deliver(job, to),
        };
        Some(outcome)
    }

    #[inline]
    fn read<E: Engine>(to: &Target<'_, E>, from: Remote, into: &mut [u64]) -> Outcome {
        let (engine, words) = to.words(from, into.len())?;
        memory::fetch_all(engine, words, into, from, to.config.tearing);
        Ok(0)
    }

    #[inline]
    fn write<E: Engine>(to: &Target<'_, E>, at: Remote, from: &[u64]) -> Outcome {
        let (engine, words) = to.words(at, from.len())?;
        memory::store(engine, words, from, 0..from.len());
        Ok(0)
    }

    #[inline]
    fn atomic<E: Engine>(verb: &Verb, at: Remote, to: &Target<'_, E>) -> Outcome {
        let (engine, words) = to.words(at, 1)?;
        if to.config.atomicity == Atomicity::Global {
            return Ok(match *verb {
                Verb::CompareSwap { expected, new, .. } => {
                    engine.compare_exchange(&words[0], expected, new).unwrap_or_else(|found| found)
                }
                Verb::FetchAdd { add, .. } => engine.fetch_add(&words[0], add),
                _ => engine.load(&words[0]),
            });
        }
        Ok(to.life.atomic_at_once(
            || engine.load(&words[0]),
            |old| {
                if let Some(new) = change(verb, old) {
                    engine.store(&words[0], new);
                }
            },
        ))
    }

    /// Carries out the second half of an atomic that is atomic only with other atomics.
    fn end_atomic<E: Engine>(old: u64, life: &Life<E>) -> Outcome {
        life.end_atomic();
        Ok(old)
    }

    /// Delivers a message to its receiver. Returns `None` if there is no room.
    fn deliver<E: Engine>(&self, job: &Job, to: &Target<'_, E>) -> Option<Outcome> {
        let (bytes, kind) = match job {
            Job::Reply(reply_to, reply) => return self.deliver_reply(*reply_to, reply, to).then_some(Ok(0)),
            Job::Work(Work { verb: Verb::Send { bytes, .. }, .. }) => (bytes, Kind::Message),
            Job::Work(Work { verb: Verb::Call { bytes, .. }, ticket: Some(ticket) }) => {
                (bytes, Kind::Call(ReplyTo { ticket: *ticket, ..self.address }))
            }
            Job::Work(Work { verb: Verb::Call { bytes, .. }, ticket: None }) => (bytes, Kind::Message),
            Job::Work(_) => return Some(Ok(0)),
        };
        let life = match to.here() {
            Ok(life) => life,
            Err(error) => return Some(Err(error)),
        };
        if !life.mail.deliver(self.address.node, kind, bytes) {
            return None;
        }
        life.places.wake_for_mail();
        Some(Ok(0))
    }

    /// Delivers a reply to the endpoint that waits for it, if that still exists. Returns false if
    /// there is no room.
    fn deliver_reply<E: Engine>(&self, reply_to: ReplyTo, reply: &Reply, to: &Target<'_, E>) -> bool {
        let Some(place) = to.life.places.get(reply_to.endpoint) else { return true };
        let stale = reply_to.incarnation != to.life.incarnation() || place.tenancy.life.load(Acquire) != reply_to.life;
        // A dead endpoint never makes room.
        if stale || to.life.has_died() || to.silenced {
            return true;
        }
        let kind = Kind::Reply { life: reply_to.life, ticket: reply_to.ticket, refused: reply.refused };
        let delivered = place.replies.deliver(self.address.node, kind, &reply.frame);
        if delivered {
            place.alarm.ring();
        }
        delivered
    }

    /// Advances one operation, by at most `budget` lines or words.
    pub(super) fn advance<E: Engine>(&mut self, posted: &mut Posted, to: &Target<'_, E>, budget: &mut u32) -> Activity {
        loop {
            posted.stage = match &mut posted.stage {
                Stage::Waiting(_) if posted.due > self.now => return Activity::Busy,
                Stage::Waiting(polls @ 1..) => {
                    *polls -= 1;
                    return Activity::Busy;
                }
                Stage::Waiting(0) => match self.begin(&mut posted.job, to) {
                    Ok(stage) => stage,
                    Err(activity) => return activity,
                },
                Stage::Moving(order) => {
                    let Job::Work(work) = &mut posted.job else { return Activity::Idle };
                    match Self::transfer(&mut work.verb, to, order, budget) {
                        Ok(()) if !order.is_empty() => return Activity::Busy,
                        outcome => {
                            self.spare.push(std::mem::take(order));
                            Stage::Over(outcome.map(|()| 0))
                        }
                    }
                }
                Stage::Between { old } => Stage::Over(Self::end_atomic(*old, to.life)),
                Stage::Over(_) => return Activity::Idle,
            };
            if let Stage::Between { .. } = posted.stage
                && to.config.steps.is_some()
                && self.rng.bool()
            {
                // Another operation may come in between here.
                *budget = 0;
                return Activity::Busy;
            }
        }
    }

    /// Begins an operation. An error says why it cannot begin yet.
    fn begin<E: Engine>(&mut self, job: &mut Job, to: &Target<'_, E>) -> Result<Stage, Activity> {
        if let Job::Work(work) = &*job {
            let units = match &work.verb {
                Verb::Read { from, into } => Units::of_read(*from, into.len(), to.config.tearing),
                Verb::Write { from, .. } => Units::of_write(from.len()),
                Verb::CompareSwap { at, .. } | Verb::FetchAdd { at, .. }
                    if to.config.atomicity != Atomicity::Global =>
                {
                    return Self::begin_atomic(&work.verb, *at, to);
                }
                _ => return self.whole(job, to),
            };
            return Ok(match to.here() {
                Ok(_) => Stage::Moving(self.order(units.count(), to.config.scattered)),
                Err(error) => Stage::Over(Err(error)),
            });
        }
        self.whole(job, to)
    }

    fn whole<E: Engine>(&mut self, job: &mut Job, to: &Target<'_, E>) -> Result<Stage, Activity> {
        self.carry_out(job, to).map(Stage::Over).ok_or(Activity::Blocked)
    }

    fn begin_atomic<E: Engine>(verb: &Verb, at: Remote, to: &Target<'_, E>) -> Result<Stage, Activity> {
        match to.words(at, 1) {
            Ok((engine, words)) => {
                let begun = to.life.begin_atomic(at, || engine.load(&words[0]), |old| change(verb, old));
                begun.map(|old| Stage::Between { old }).ok_or(Activity::Busy)
            }
            Err(error) => Ok(Stage::Over(Err(error))),
        }
    }

    /// Returns the access order of an operation's units, last one first.
    fn order(&mut self, units: usize, scattered: bool) -> Vec<u32> {
        // It has room for a small buffer at once, so that lists stop growing.
        let mut order = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(Buffers::SMALL / 8));
        order.extend((0..units as u32).rev());
        if scattered {
            self.rng.shuffle(&mut order);
        }
        order
    }

    fn transfer<E: Engine>(
        verb: &mut Verb,
        to: &Target<'_, E>,
        order: &mut Vec<u32>,
        budget: &mut u32,
    ) -> Result<(), VerbError> {
        let (at, count) = match verb {
            Verb::Read { from, into } => (*from, into.len()),
            Verb::Write { to: at, from } => (*at, from.len()),
            _ => return Ok(()),
        };
        let (engine, words) = to.words(at, count).map_err(|error| {
            order.clear();
            match error {
                // Part of it may have been moved.
                VerbError::Gone { node, incarnation } => VerbError::Disconnected { node, incarnation },
                other => other,
            }
        })?;
        while *budget > 0
            && let Some(unit) = order.pop()
        {
            *budget -= 1;
            match verb {
                Verb::Read { from, into } => {
                    let range = Units::of_read(*from, count, to.config.tearing).range(unit as usize);
                    memory::fetch(engine, words, into, range);
                }
                Verb::Write { from, .. } => {
                    memory::store(engine, words, from, Units::of_write(count).range(unit as usize));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
