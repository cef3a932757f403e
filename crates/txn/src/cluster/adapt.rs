//! Which forms transactions take under [`Protocol::AUTO`](super::Protocol::AUTO): a node tries all
//! ways from time to time, and keeps to the one under which its transactions end soonest.
//!
//! What a form costs others is as important as what it costs the one that uses it: a message takes
//! the owner's processor, and a verb its NIC. So all nodes try a way at the same time: time is
//! divided into slots, by the fabric's clock, and some slots are for trying. Then a node sees in
//! its own transactions what all pay. Where nodes' clocks differ, each sees what the others do now,
//! and its own part.
//!
//! - The workers of a node share what they find: a [`Chooser`] adds up times by itself, and takes
//!   them to the node's [`Board`] once a slot.
//! - A way is tried the more seldom, the worse it was, so that all trials cost about as little.
//! - When the times of the present way change by half, everything is tried again at once.
//!
//! `docs/decisions/0067` has the reasons.

#[cfg(test)]
mod tests;

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use drtm_rdma::Time;
use parking_lot::Mutex;

use super::protocol::{Form, Forms};

/// What is chosen from: a row is locked one-sidedly only where it was read so.
pub(super) const WAYS: [Forms; COUNT] = [
    Forms { read: Form::Message, lock: Form::Message },
    Forms { read: Form::OneSided, lock: Form::Message },
    Forms { read: Form::OneSided, lock: Form::OneSided },
];

const COUNT: usize = 3;

/// The place of the present way's times, after those of trials.
const PRESENT: usize = COUNT;

/// After everything was tried, a way is tried in one slot of so many.
const PERIOD: u64 = 16;

/// How often the period of a way that is as good as the best is doubled, a time for each trial, and
/// that of any way.
const DOUBLED: [u8; 2] = [2, 5];

/// The shortest and the longest slot: two to this power of nanoseconds. All nodes are to have slots
/// of one length, so that they try a way together. So there are few lengths, far apart: what a node
/// tries by itself, it measures beside others that do not.
const SLOT: [u8; 2] = [17, 26];
const SLOT_STEP: u8 = 3;

/// How many transactions are remembered of a way.
const MEMORY: u64 = 128;

/// How many transactions show how good a way is, and how many that it is [`HOPELESS`].
const ENOUGH: [u64; 2] = [64, 16];

/// A way that takes so much longer is not tried further at first.
const HOPELESS: f64 = 1.5;

/// Another way is taken if it takes less than this part of the time.
const BETTER: f64 = 0.97;

/// How many transactions are compared with those before them, to see a change.
const WINDOW: u64 = 256;

/// Times have changed if they are longer, or shorter, by this factor.
const CHANGED: f64 = 1.5;

/// What all workers of a node do. It fits a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    best: u8,
    /// Slots are two to this power of nanoseconds long.
    power: u8,
    /// The ways of which too few transactions were measured: a bit for each.
    unknown: u8,
    /// How often each way's period is doubled.
    doubled: [u8; COUNT],
    /// Times of transactions that began under another plan do not count.
    era: u16,
}

impl Plan {
    fn to_word(self) -> u64 {
        let Self { best, power, unknown, doubled: [one, two, three], era } = self;
        let [low, high] = era.to_le_bytes();
        u64::from_le_bytes([best, power, unknown, one, two, three, low, high])
    }

    fn from_word(word: u64) -> Self {
        let [best, power, unknown, one, two, three, low, high] = word.to_le_bytes();
        Self { best, power, unknown, doubled: [one, two, three], era: u16::from_le_bytes([low, high]) }
    }

    fn slot(self, now: Time) -> u64 {
        now.nanos() >> self.power
    }

    fn choice(self, now: Time) -> Choice {
        let slot = self.slot(now);
        let is_in_turn = |way: u8| match self.unknown {
            0 => slot % (PERIOD << self.doubled[usize::from(way)]) == u64::from(way),
            unknown => unknown & 1 << way != 0 && slot % COUNT as u64 == u64::from(way),
        };
        let tried = (0..COUNT as u8).find(|way| is_in_turn(*way));
        // Those that began in the slot before are still at it in the first half.
        let is_settled = now.nanos() >> (self.power - 1) & 1 != 0;
        let place = match tried {
            Some(way) => Some(way),
            None => (self.unknown == 0).then_some(PRESENT as u8),
        };
        Choice { way: tried.unwrap_or(self.best), place: place.filter(|_| is_settled), era: self.era }
    }
}

/// A transaction's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    way: u8,
    /// Among which times its own counts. `None` if it tells nothing.
    place: Option<u8>,
    era: u16,
}

impl Choice {
    pub(super) fn forms(self) -> Forms {
        WAYS[usize::from(self.way)]
    }
}

/// How many transactions there were, and how long they took together.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: u64,
    nanos: u64,
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.nanos = self.nanos.saturating_add(other.nanos);
    }

    fn mean(self) -> f64 {
        self.nanos as f64 / self.count.max(1) as f64
    }
}

/// How long the last transactions took.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    nanos: f64,
    seen: u64,
}

impl Mean {
    fn add(&mut self, sum: Sum) {
        if sum.count > 0 {
            self.seen = (self.seen + sum.count).min(MEMORY.max(sum.count));
            self.nanos += (sum.mean() - self.nanos) * sum.count as f64 / self.seen as f64;
        }
    }
}

/// What is concluded from times.
#[derive(Debug, Default)]
struct Found {
    /// By trials.
    ways: [Mean; COUNT],
    /// In how many slots each was tried since all were known, and the last such slot.
    tried: [(u8, u64); COUNT],
    /// Everything, while ways are unknown.
    all: Sum,
    /// The last times of the present way, and the usual ones if they are known.
    recent: Sum,
    usual: Option<f64>,
}

impl Found {
    /// Adds times of a slot, and returns the plan from now on.
    fn plan(&mut self, old: Plan, slot: u64, sums: &[Sum; COUNT + 1]) -> Plan {
        let mut plan = old;
        for (mean, sum) in self.ways.iter_mut().zip(sums) {
            mean.add(*sum);
            self.all.add(*sum);
        }
        if old.unknown == 0 {
            for ((count, last), _) in self.tried.iter_mut().zip(sums).filter(|(_, sum)| sum.count > 0) {
                *count = count.saturating_add(u8::from(*last != slot));
                *last = slot;
            }
        }
        self.recent.add(sums[PRESENT]);
        if self.recent.count >= WINDOW {
            let now = std::mem::take(&mut self.recent).mean();
            match self.usual {
                Some(usual) if now > CHANGED * usual || usual > CHANGED * now => {
                    // What is known is of other transactions.
                    *self = Self::default();
                    plan.unknown = UNKNOWN;
                }
                Some(usual) => self.usual = Some(usual + (now - usual) / 4.0),
                None => self.usual = Some(now),
            }
        }
        plan.power = self.power(plan);
        if plan.power > old.power {
            // In shorter slots, ways were mixed.
            (self.ways, self.all, self.tried) = Default::default();
            plan.unknown = UNKNOWN;
        }
        self.decide(&mut plan);
        if plan.unknown == 0 && old.unknown != 0 {
            // Other nodes may have learned at other times, so the next trials count for more.
            self.ways.iter_mut().for_each(|mean| mean.seen = mean.seen.min(ENOUGH[1]));
        }
        if (plan.best, plan.power, plan.unknown) != (old.best, old.power, old.unknown) {
            (self.recent, self.usual) = Default::default();
        }
        if (plan.best, plan.power) != (old.best, old.power) || plan.unknown & !old.unknown != 0 {
            plan.era = old.era.wrapping_add(1);
        }
        plan
    }

    /// Returns the length of slots, as a power of two: two transactions at least, since those that
    /// began before still run in the first half, and 32 at most.
    fn power(&self, Plan { power, best, unknown, .. }: Plan) -> u8 {
        let mean = match self.usual {
            Some(usual) => usual,
            None if unknown == 0 => self.ways[usize::from(best)].nanos,
            None if self.all.count >= ENOUGH[1] => self.all.mean(),
            None => return power,
        };
        let slot = (1_u64 << power) as f64;
        if 2.0 * mean > slot && power < SLOT[1] {
            power + SLOT_STEP
        } else if 32.0 * mean < slot && power > SLOT[0] {
            power - SLOT_STEP
        } else {
            power
        }
    }

    /// Chooses the way that takes the least time, and how often the others are tried.
    fn decide(&self, plan: &mut Plan) {
        let seen = self.ways.iter().enumerate().filter(|(_, mean)| mean.seen >= ENOUGH[1]);
        let Some((least, mean)) = seen.min_by(|(_, one), (_, other)| one.nanos.total_cmp(&other.nanos)) else { return };
        let best = &self.ways[usize::from(plan.best)];
        if best.seen < ENOUGH[1] || mean.nanos < BETTER * best.nanos {
            plan.best = least as u8;
        }
        let best = self.ways[usize::from(plan.best)].nanos.max(1.0);
        for (way, mean) in self.ways.iter().enumerate() {
            let is_hopeless = mean.seen >= ENOUGH[1] && mean.nanos > HOPELESS * best;
            if mean.seen >= ENOUGH[0] || is_hopeless {
                plan.unknown &= !(1 << way);
            }
            // Trials of all ways are to cost about as little.
            let worse = (mean.nanos / best - 1.0).max(0.0);
            let least = (1.0 + 8.0 * worse).log2() as u8;
            plan.doubled[way] = self.tried[way].0.clamp(least, DOUBLED[0] + least).min(DOUBLED[1]);
        }
    }
}

const UNKNOWN: u8 = (1 << COUNT) - 1;

/// What the workers of a node have found out.
#[derive(Debug)]
pub(super) struct Board {
    plan: Line,
    /// No worker waits for it: one that finds it locked comes back with its next transaction.
    found: Mutex<Found>,
}

/// A plan's word, on a line of its own: it is read far more often than anything else.
#[derive(Debug)]
#[repr(align(128))]
struct Line(AtomicU64);

impl Board {
    /// Creates a board whose workers begin with this way.
    pub(super) fn new(forms: Forms) -> Self {
        let best = WAYS.iter().position(|way| *way == forms).unwrap_or_default() as u8;
        let plan = Plan { best, power: SLOT[0], unknown: UNKNOWN, doubled: [0; COUNT], era: 0 };
        Self { plan: Line(AtomicU64::new(plan.to_word())), found: Mutex::default() }
    }

    fn plan(&self) -> Plan {
        Plan::from_word(self.plan.0.load(Relaxed))
    }
}

/// One worker's choices. See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Chooser {
    /// Its transactions since it was last at the board, in this slot.
    sums: [Sum; COUNT + 1],
    slot: u64,
    era: u16,
}

impl Chooser {
    /// Chooses the way of a transaction that begins now.
    pub(super) fn choose(&mut self, board: &Board, now: Time) -> Choice {
        let mut plan = board.plan();
        if (plan.slot(now), plan.era) != (self.slot, self.era)
            && let Some(mut found) = board.found.try_lock()
        {
            // Another worker may have changed it meanwhile.
            plan = board.plan();
            let sums = std::mem::take(&mut self.sums);
            if plan.era == self.era {
                plan = found.plan(plan, self.slot, &sums);
                board.plan.0.store(plan.to_word(), Relaxed);
            }
            (self.slot, self.era) = (plan.slot(now), plan.era);
        }
        plan.choice(now)
    }

    /// Adds the time that a committed transaction took.
    pub(super) fn ended(&mut self, choice: Choice, took: Duration) {
        if let Some(place) = choice.place
            && choice.era == self.era
        {
            let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            self.sums[usize::from(place)].add(Sum { count: 1, nanos });
        }
    }
}
