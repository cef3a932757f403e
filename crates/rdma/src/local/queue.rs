//! A simulated queue pair: the operations that are pending from one endpoint to one node, in order.
//!
//! An operation begins after all before it have completed, except that a write or a message may
//! begin while earlier reads are pending. It may take several polls. Completions are reported in
//! order.

use std::{collections::VecDeque, sync::Arc};

use drtm_htm::Engine;

use crate::{
    Incarnation, VerbError,
    port::{Activity, Events, Work},
    time,
};

use super::{
    LocalConfig,
    life::Life,
    nic::{Job, Nic, Outcome, Posted, Stage, Target},
};

#[derive(Debug)]
pub(super) struct Queue<E: Engine> {
    /// The incarnation that the queue belongs to, since its first use or the last reconnection.
    life: Option<Arc<Life<E>>>,
    /// Whether the port has reported the end of this incarnation.
    departed: bool,
    pending: VecDeque<Posted>,
    /// Whether it is on the port's list.
    pub(super) active: bool,
    /// The number of places taken.
    pub(super) taken: usize,
    /// The failure of an unsignaled operation, until it is reported.
    broken: Option<VerbError>,
}

/// What a port passes to its queues while it polls.
pub(super) struct Polled<'a, E: Engine> {
    pub(super) nic: &'a mut Nic,
    pub(super) home: &'a Life<E>,
    pub(super) config: &'a LocalConfig,
    /// Whether the home has died.
    pub(super) silenced: bool,
}

impl<'a, E: Engine> Polled<'a, E> {
    #[inline(always)]
    fn target<'t>(&self, life: &'t Life<E>) -> Target<'t, E>
    where
        'a: 't,
    {
        let poster = (self.nic.address.node, self.nic.address.incarnation);
        Target { life, config: self.config, silenced: self.silenced, poster }
    }
}

impl<E: Engine> Default for Queue<E> {
    fn default() -> Self {
        Self { life: None, departed: false, pending: VecDeque::new(), active: false, taken: 0, broken: None }
    }
}

impl<E: Engine> Queue<E> {
    pub(super) fn life(&self) -> Option<&Arc<Life<E>>> {
        self.life.as_ref()
    }

    /// Connects the queue to an incarnation. Operations that it still holds for the previous one
    /// fail at the next polls.
    #[cold]
    pub(super) fn connect(&mut self, life: Arc<Life<E>>) {
        if let Some(before) = self.life.replace(life) {
            for posted in &mut self.pending {
                posted.stage = Stage::Over(Self::cut_off(posted, &before));
            }
        }
        (self.departed, self.broken) = (false, None);
    }

    /// Returns the outcome of an operation whose incarnation is replaced.
    fn cut_off(posted: &Posted, before: &Life<E>) -> Outcome {
        let Job::Work(work) = &posted.job else { return Ok(0) };
        let (node, incarnation) = (work.verb.node(), before.incarnation);
        match posted.stage {
            Stage::Waiting(_) => Err(VerbError::Gone { node, incarnation }),
            Stage::Moving(_) => Err(VerbError::Disconnected { node, incarnation }),
            Stage::Between { old } => Nic::end_atomic(old, before),
            Stage::Over(outcome) => outcome,
        }
    }

    /// Returns whether all operations of the previous incarnation are reported.
    pub(super) fn may_connect(&self) -> bool {
        self.life.is_none() || self.departed
    }

    /// Returns the incarnation once, when it is over. `None` otherwise.
    pub(super) fn departure(&mut self) -> Option<Incarnation> {
        let life = self.life.as_ref().filter(|life| life.is_over())?;
        (!std::mem::replace(&mut self.departed, true)).then_some(life.incarnation)
    }

    /// Adds an entry that begins at the next poll.
    #[inline(always)]
    pub(super) fn push(&mut self, job: Job) {
        self.pending.push_back(Posted { job, stage: Stage::Waiting(0), due: None });
    }

    /// Adds an entry that begins after the configured delay.
    pub(super) fn push_for_later(&mut self, job: Job, nic: &mut Nic, config: &LocalConfig) {
        let delay = if config.delay == 0 { 0 } else { nic.rng.u32(..=config.delay) };
        let due = (!config.latency.is_zero()).then(|| time::of_this_machine() + config.latency);
        self.pending.push_back(Posted { job, stage: Stage::Waiting(delay), due });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Carries out all entries, at once and in order.
    #[inline(always)]
    pub(super) fn finish(&mut self, by: &mut Polled<'_, E>, events: &mut impl Events) -> Activity {
        let Some(life) = &self.life else { return Activity::Idle };
        let to = by.target(life);
        while let Some(posted) = self.pending.front_mut() {
            let outcome = match self.broken {
                Some(error) => Err(error),
                None => match by.nic.carry_out(&mut posted.job, &to) {
                    Some(outcome) => outcome,
                    None => return Activity::Blocked,
                },
            };
            let Some(posted) = self.pending.pop_front() else { break };
            Self::note(&mut self.broken, &posted.job, &outcome);
            Self::report(&mut self.taken, posted.job, outcome, by.home, events);
        }
        Activity::Idle
    }

    /// Advances the entries a little.
    pub(super) fn advance(&mut self, by: &mut Polled<'_, E>, events: &mut impl Events) -> Activity {
        let Some(life) = &self.life else { return Activity::Idle };
        let to = by.target(life);
        let mut budget = by.config.steps.map_or(u32::MAX, |steps| by.nic.rng.u32(1..=steps));
        let mut behind_a_read = false;
        let mut activity = Activity::Idle;
        for posted in &mut self.pending {
            if matches!(posted.stage, Stage::Over(_)) {
                continue;
            }
            if budget == 0 || (behind_a_read && !posted.job.may_pass_reads()) {
                activity = Activity::Busy;
                break;
            }
            if let (Stage::Waiting(_), Some(error)) = (&posted.stage, self.broken) {
                posted.stage = Stage::Over(Err(error));
            } else {
                activity = activity.max(by.nic.advance(posted, &to, &mut budget));
            }
            match &posted.stage {
                Stage::Over(outcome) => {
                    Self::note(&mut self.broken, &posted.job, outcome);
                }
                _ if by.config.passing && posted.job.is_read() => behind_a_read = true,
                _ => break,
            }
        }
        while matches!(self.pending.front(), Some(Posted { stage: Stage::Over(_), .. })) {
            let Some(Posted { job, stage: Stage::Over(outcome), .. }) = self.pending.pop_front() else { break };
            Self::report(&mut self.taken, job, outcome, by.home, events);
        }
        activity
    }

    /// Stores a failure that is not reported, or clears it when one is.
    #[inline(always)]
    fn note(broken: &mut Option<VerbError>, job: &Job, outcome: &Outcome) {
        if let Err(error) = outcome {
            *broken = job.is_unsignaled().then_some(*error);
        }
    }

    #[inline(always)]
    fn report(taken: &mut usize, job: Job, outcome: Outcome, home: &Life<E>, events: &mut impl Events) {
        match job {
            Job::Work(Work { ticket, verb }) => {
                *taken -= 1;
                events.completed(ticket, verb, outcome);
            }
            // A caller that is gone needs no reply.
            Job::Reply(_, reply) => home.mail.recycle(reply.frame),
        }
    }

    /// Discards the queue of a dropped endpoint. A simulated NIC that is between the halves of an
    /// atomic completes it, since other endpoints wait for its unit.
    pub(super) fn abandon(&mut self, home: &Life<E>) {
        for posted in self.pending.drain(..) {
            match (posted.job, posted.stage) {
                (Job::Work(_), Stage::Between { .. }) => {
                    if let Some(life) = &self.life {
                        life.end_atomic();
                    }
                }
                (Job::Reply(_, reply), _) => home.mail.recycle(reply.frame),
                (Job::Work(_), _) => {}
            }
        }
    }
}
