//! The simulated NIC: carries one operation out, at once or a line or a word at a time.

use std::time::Instant;

use drtm_htm::Engine;
use fastrand::Rng;

use crate::{
    Atomicity, Buffers, NodeId, Remote, VerbError,
    port::{Activity, Reply, ReplyTo, Verb, Work},
};

use super::{
    Shared,
    mailbox::Kind,
    memory::{self, Units},
    node::Node,
};

/// What a queue holds.
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

/// How far an operation has come.
#[derive(Debug)]
pub(super) enum Stage {
    /// Begins after so many polls.
    Waiting(u32),
    /// These lines or words remain.
    Moving(Vec<u32>),
    /// An atomic that has read, and not yet written. It holds the target's atomic unit.
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
    /// Not before.
    pub(super) due: Option<Instant>,
}

pub(super) type Outcome = Result<u64, VerbError>;

/// The endpoint's own part of the simulated NIC.
#[derive(Debug)]
pub(super) struct Nic {
    /// Whose it is, and where replies to it go.
    pub(super) address: ReplyTo,
    pub(super) rng: Rng,
    /// Lists for the orders in which lines and words are accessed.
    pub(super) spare: Vec<Vec<u32>>,
    /// When this poll is, where that matters.
    pub(super) now: Option<Instant>,
}

fn target<E: Engine>(shared: &Shared<E>, node: NodeId) -> Result<&Node<E>, VerbError> {
    match shared.node(node) {
        None => Err(VerbError::UnknownNode { node }),
        Some(target) if target.is_closed() => Err(VerbError::Disconnected { node }),
        Some(target) => Ok(target),
    }
}

/// What an atomic writes, having found `old`.
fn change(verb: &Verb, old: u64) -> Option<u64> {
    match *verb {
        Verb::CompareSwap { expected, new, .. } => (old == expected).then_some(new),
        Verb::FetchAdd { add, .. } => Some(old.wrapping_add(add)),
        Verb::Read { .. } | Verb::Write { .. } | Verb::Send { .. } | Verb::Call { .. } => None,
    }
}

impl Nic {
    /// Carries an operation out completely. `None`: a message for which there is no room.
    #[inline(always)]
    pub(super) fn carry_out<E: Engine>(&mut self, job: &mut Job, shared: &Shared<E>) -> Option<Outcome> {
        let Job::Work(work) = job else { return self.deliver(job, shared) };
        let outcome = match &mut work.verb {
            Verb::Read { from, into } => Self::read(shared, *from, into),
            Verb::Write { to, from } => Self::write(shared, *to, from),
            Verb::CompareSwap { at, .. } | Verb::FetchAdd { at, .. } => {
                let at = *at;
                Self::atomic(&work.verb, at, shared)
            }
            Verb::Send { .. } | Verb::Call { .. } => return self.deliver(job, shared),
        };
        Some(outcome)
    }

    #[inline]
    fn read<E: Engine>(shared: &Shared<E>, from: Remote, into: &mut [u64]) -> Outcome {
        let (engine, words) = target(shared, from.node)?.words(from, into.len())?;
        let units = Units::of_read(from, into.len(), shared.config.tearing);
        for unit in 0..units.count() {
            memory::fetch(engine, words, into, units.range(unit));
        }
        Ok(0)
    }

    #[inline]
    fn write<E: Engine>(shared: &Shared<E>, to: Remote, from: &[u64]) -> Outcome {
        let (engine, words) = target(shared, to.node)?.words(to, from.len())?;
        memory::store(engine, words, from, 0..from.len());
        Ok(0)
    }

    #[inline]
    fn atomic<E: Engine>(verb: &Verb, at: Remote, shared: &Shared<E>) -> Outcome {
        let node = target(shared, at.node)?;
        let (engine, words) = node.words(at, 1)?;
        if shared.config.atomicity == Atomicity::Global {
            return Ok(match *verb {
                Verb::CompareSwap { expected, new, .. } => {
                    engine.compare_exchange(&words[0], expected, new).unwrap_or_else(|found| found)
                }
                Verb::FetchAdd { add, .. } => engine.fetch_add(&words[0], add),
                _ => engine.load(&words[0]),
            });
        }
        node.atomics().take();
        let old = engine.load(&words[0]);
        Self::end_atomic(verb, old, shared)
    }

    /// The second half of an atomic that is atomic only with its like.
    pub(super) fn end_atomic<E: Engine>(verb: &Verb, old: u64, shared: &Shared<E>) -> Outcome {
        let (Verb::CompareSwap { at, .. } | Verb::FetchAdd { at, .. }) = *verb else { return Ok(old) };
        let node = shared.node(at.node).ok_or(VerbError::UnknownNode { node: at.node })?;
        let stored = node.words(at, 1).map(|(engine, words)| {
            if let Some(new) = change(verb, old) {
                engine.store(&words[0], new);
            }
            old
        });
        node.atomics().release();
        stored
    }

    /// Hands a message to its receiver, if there is room for it.
    fn deliver<E: Engine>(&self, job: &Job, shared: &Shared<E>) -> Option<Outcome> {
        let (node, bytes, reply_to) = match job {
            Job::Reply(to, reply) => {
                let Some(place) = shared.node(to.node).and_then(|node| node.place(to.endpoint)) else {
                    return Some(Ok(0));
                };
                if place.life.load(std::sync::atomic::Ordering::Acquire) != to.life {
                    return Some(Ok(0));
                }
                let kind = Kind::Reply { life: to.life, ticket: to.ticket, refused: reply.refused };
                return place.replies.deliver(self.address.node, kind, &reply.frame).then_some(Ok(0));
            }
            Job::Work(Work { verb: Verb::Send { to, bytes }, .. }) => (*to, bytes, None),
            Job::Work(Work { verb: Verb::Call { to, bytes }, ticket }) => (*to, bytes, *ticket),
            Job::Work(_) => return Some(Ok(0)),
        };
        let target = match target(shared, node) {
            Ok(target) => target,
            Err(error) => return Some(Err(error)),
        };
        let kind = match reply_to {
            Some(ticket) => Kind::Call(ReplyTo { ticket, ..self.address }),
            None => Kind::Message,
        };
        target.mail.deliver(self.address.node, kind, bytes).then_some(Ok(0))
    }

    /// Moves one operation along, by at most `budget` lines or words.
    pub(super) fn advance<E: Engine>(&mut self, posted: &mut Posted, shared: &Shared<E>, budget: &mut u32) -> Activity {
        loop {
            posted.stage = match &mut posted.stage {
                Stage::Waiting(_) if posted.due > self.now => return Activity::Busy,
                Stage::Waiting(polls @ 1..) => {
                    *polls -= 1;
                    return Activity::Busy;
                }
                Stage::Waiting(0) => match self.begin(&mut posted.job, shared) {
                    Ok(stage) => stage,
                    Err(activity) => return activity,
                },
                Stage::Moving(order) => {
                    let Job::Work(work) = &mut posted.job else { return Activity::Idle };
                    match Self::transfer(&mut work.verb, shared, order, budget) {
                        Ok(()) if !order.is_empty() => return Activity::Busy,
                        outcome => {
                            self.spare.push(std::mem::take(order));
                            Stage::Over(outcome.map(|()| 0))
                        }
                    }
                }
                Stage::Between { old } => {
                    let Job::Work(work) = &posted.job else { return Activity::Idle };
                    Stage::Over(Self::end_atomic(&work.verb, *old, shared))
                }
                Stage::Over(_) => return Activity::Idle,
            };
            if let Stage::Between { .. } = posted.stage
                && shared.config.steps.is_some()
                && self.rng.bool()
            {
                // Here another may come between.
                *budget = 0;
                return Activity::Busy;
            }
        }
    }

    /// An operation's first step. An error is that it cannot begin yet, and why.
    fn begin<E: Engine>(&mut self, job: &mut Job, shared: &Shared<E>) -> Result<Stage, Activity> {
        if let Job::Work(work) = &*job {
            let (at, units) = match &work.verb {
                Verb::Read { from, into } => (*from, Units::of_read(*from, into.len(), shared.config.tearing)),
                Verb::Write { to, from } => (*to, Units::of_write(from.len())),
                Verb::CompareSwap { at, .. } | Verb::FetchAdd { at, .. }
                    if shared.config.atomicity != Atomicity::Global =>
                {
                    return Self::begin_atomic(*at, shared);
                }
                _ => return self.whole(job, shared),
            };
            return Ok(match target(shared, at.node) {
                Ok(_) => Stage::Moving(self.order(units.count(), shared.config.scattered)),
                Err(error) => Stage::Over(Err(error)),
            });
        }
        self.whole(job, shared)
    }

    fn whole<E: Engine>(&mut self, job: &mut Job, shared: &Shared<E>) -> Result<Stage, Activity> {
        self.carry_out(job, shared).map(Stage::Over).ok_or(Activity::Blocked)
    }

    fn begin_atomic<E: Engine>(at: Remote, shared: &Shared<E>) -> Result<Stage, Activity> {
        let found = target(shared, at.node).and_then(|node| Ok((node, node.words(at, 1)?)));
        match found {
            Ok((node, (engine, words))) => {
                if !node.atomics().try_take() {
                    return Err(Activity::Busy);
                }
                Ok(Stage::Between { old: engine.load(&words[0]) })
            }
            Err(error) => Ok(Stage::Over(Err(error))),
        }
    }

    /// In which order the units of an operation are accessed: the last of the list first.
    fn order(&mut self, units: usize, scattered: bool) -> Vec<u32> {
        // With room for a small buffer at once, so that lists do not grow one after the other for ever.
        let mut order = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(Buffers::SMALL / 8));
        order.extend((0..units as u32).rev());
        if scattered {
            self.rng.shuffle(&mut order);
        }
        order
    }

    fn transfer<E: Engine>(
        verb: &mut Verb,
        shared: &Shared<E>,
        order: &mut Vec<u32>,
        budget: &mut u32,
    ) -> Result<(), VerbError> {
        let (at, count) = match verb {
            Verb::Read { from, into } => (*from, into.len()),
            Verb::Write { to, from } => (*to, from.len()),
            _ => return Ok(()),
        };
        let found = target(shared, at.node).and_then(|node| node.words(at, count));
        let (engine, words) = found.inspect_err(|_| order.clear())?;
        while *budget > 0
            && let Some(unit) = order.pop()
        {
            *budget -= 1;
            match verb {
                Verb::Read { from, into } => {
                    let range = Units::of_read(*from, count, shared.config.tearing).range(unit as usize);
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
