//! A queue pair, simulated: what one endpoint has under way to one node, in order.
//!
//! An operation begins when all before it are over, except that a write or a message may begin while reads before it are
//! still under way. It may take several polls. Completions are reported in order.

use std::{collections::VecDeque, time::Instant};

use drtm_htm::Engine;

use crate::{
    NodeId, VerbError,
    port::{Activity, Events, Work},
};

use super::{
    LocalConfig, Shared,
    nic::{Job, Nic, Outcome, Posted, Stage},
};

#[derive(Debug, Default)]
pub(super) struct Queue {
    pending: VecDeque<Posted>,
    /// Whether it is on the port's list.
    pub(super) active: bool,
    /// Places taken.
    pub(super) taken: usize,
    /// The failure of an unsignaled operation that nobody has heard of yet.
    broken: Option<VerbError>,
}

impl Queue {
    #[inline(always)]
    pub(super) fn push(&mut self, job: Job, nic: &mut Nic, config: &LocalConfig) {
        let delay = if config.delay == 0 { 0 } else { nic.rng.u32(..=config.delay) };
        let due = (!config.latency.is_zero()).then(|| Instant::now() + config.latency);
        self.pending.push_back(Posted { job, stage: Stage::Waiting(delay), due });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Carries out everything, at once and in order.
    #[inline(always)]
    pub(super) fn finish<E: Engine>(
        &mut self,
        nic: &mut Nic,
        shared: &Shared<E>,
        events: &mut impl Events,
    ) -> Activity {
        while let Some(posted) = self.pending.front_mut() {
            let outcome = match self.broken {
                Some(error) => Err(error),
                None => match nic.carry_out(&mut posted.job, shared) {
                    Some(outcome) => outcome,
                    None => return Activity::Blocked,
                },
            };
            let Some(posted) = self.pending.pop_front() else { break };
            Self::note(&mut self.broken, &posted.job, &outcome);
            self.report(posted.job, outcome, shared, nic.address.node, events);
        }
        Activity::Idle
    }

    /// Carries out a little.
    pub(super) fn advance<E: Engine>(
        &mut self,
        nic: &mut Nic,
        shared: &Shared<E>,
        events: &mut impl Events,
    ) -> Activity {
        let mut budget = shared.config.steps.map_or(u32::MAX, |steps| nic.rng.u32(1..=steps));
        let mut behind_a_read = false;
        let mut activity = Activity::Idle;
        for index in 0..self.pending.len() {
            let posted = &mut self.pending[index];
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
                activity = activity.max(nic.advance(posted, shared, &mut budget));
            }
            match &posted.stage {
                Stage::Over(outcome) => {
                    Self::note(&mut self.broken, &posted.job, outcome);
                }
                _ if shared.config.passing && posted.job.is_read() => behind_a_read = true,
                _ => break,
            }
        }
        while matches!(self.pending.front(), Some(Posted { stage: Stage::Over(_), .. })) {
            let Some(Posted { job, stage: Stage::Over(outcome), .. }) = self.pending.pop_front() else { break };
            self.report(job, outcome, shared, nic.address.node, events);
        }
        activity
    }

    /// Remembers a failure that nobody hears of, or forgets it when somebody has.
    #[inline(always)]
    fn note(broken: &mut Option<VerbError>, job: &Job, outcome: &Outcome) {
        if let Err(error) = outcome {
            *broken = job.is_unsignaled().then_some(*error);
        }
    }

    #[inline(always)]
    fn report<E: Engine>(
        &mut self,
        job: Job,
        outcome: Outcome,
        shared: &Shared<E>,
        me: NodeId,
        events: &mut impl Events,
    ) {
        match job {
            Job::Work(Work { ticket, verb }) => {
                self.taken -= 1;
                events.completed(ticket, verb, outcome);
            }
            // A caller that is gone misses nothing.
            Job::Reply(_, reply) => {
                if let Some(node) = shared.node(me) {
                    node.mail.recycle(reply.frame);
                }
            }
        }
    }

    /// The endpoint goes away. A simulated NIC that is between the halves of an atomic ends it, for the sake of others.
    pub(super) fn abandon<E: Engine>(&mut self, shared: &Shared<E>, me: NodeId) {
        for posted in self.pending.drain(..) {
            match (posted.job, posted.stage) {
                (Job::Work(work), Stage::Between { old }) => {
                    // The words were there when the atomic began, and regions do not shrink.
                    let _ = Nic::end_atomic(&work.verb, old, shared);
                }
                (Job::Reply(_, reply), _) => {
                    if let Some(node) = shared.node(me) {
                        node.mail.recycle(reply.frame);
                    }
                }
                (Job::Work(_), _) => {}
            }
        }
    }
}
