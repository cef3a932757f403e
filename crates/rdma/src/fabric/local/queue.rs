//! A simulated queue pair: the operations that are pending from one endpoint to one node, in order.
//!
//! An operation begins after all before it have completed, except that a write or a message may
//! begin while earlier reads are pending. It may take several polls. Completions are reported in
//! order.

use std::collections::VecDeque;

use drtm_htm::Engine;

use crate::{
    endpoint::{
        port::{Activity, Events, Work},
        queues::{self, State},
    },
    sync::time,
};

use super::{
    LocalConfig,
    life::Life,
    nic::{Job, Nic, Outcome, Posted, Stage, Target},
};

pub(super) type Queue<E> = queues::Queue<Life<E>, Line>;

/// The operations or replies of a queue.
#[derive(Debug, Default)]
pub struct Line {
    pending: VecDeque<Posted>,
}

impl queues::Line for Line {
    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }
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

impl Line {
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
}

impl<E: Engine> Queue<E> {
    /// Carries out all entries, at once and in order.
    #[inline(always)]
    pub(super) fn finish(&mut self, by: &mut Polled<'_, E>, events: &mut impl Events) -> Activity {
        let Some(life) = &self.life else { return Activity::Idle };
        let to = by.target(life);
        while let Some(posted) = self.line.pending.front_mut() {
            let outcome = match self.state.broken() {
                Some(error) => Err(error),
                None => match by.nic.carry_out(&mut posted.job, &to) {
                    Some(outcome) => outcome,
                    None => return Activity::Blocked,
                },
            };
            let Some(posted) = self.line.pending.pop_front() else { break };
            self.state.note(!posted.job.is_unsignaled(), &outcome);
            report(&mut self.state, posted.job, outcome, by.home, events);
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
        for posted in &mut self.line.pending {
            if matches!(posted.stage, Stage::Over(_)) {
                continue;
            }
            if budget == 0 || (behind_a_read && !posted.job.may_pass_reads()) {
                activity = Activity::Busy;
                break;
            }
            if let (Stage::Waiting(_), Some(error)) = (&posted.stage, self.state.broken()) {
                posted.stage = Stage::Over(Err(error));
            } else {
                activity = activity.max(by.nic.advance(posted, &to, &mut budget));
            }
            match &posted.stage {
                Stage::Over(outcome) => self.state.note(!posted.job.is_unsignaled(), outcome),
                _ if by.config.passing && posted.job.is_read() => behind_a_read = true,
                _ => break,
            }
        }
        while matches!(self.line.pending.front(), Some(Posted { stage: Stage::Over(_), .. })) {
            let Some(Posted { job, stage: Stage::Over(outcome), .. }) = self.line.pending.pop_front() else { break };
            report(&mut self.state, job, outcome, by.home, events);
        }
        activity
    }

    /// Discards all entries. A simulated NIC that is between the halves of an atomic completes it,
    /// since other endpoints wait for its unit.
    pub(super) fn abandon(&mut self, home: &Life<E>) {
        for posted in self.line.pending.drain(..) {
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

#[inline(always)]
fn report<E: Engine>(state: &mut State, job: Job, outcome: Outcome, home: &Life<E>, events: &mut impl Events) {
    match job {
        Job::Work(Work { ticket, verb }) => state.complete(ticket, verb, outcome, events),
        // A caller that is gone needs no reply.
        Job::Reply(_, reply) => home.mail.recycle(reply.frame),
    }
}
