//! A core's private caches, whose recorded bits say which accesses of the running transaction the
//! directory already knows (module 1 of the paper).
//!
//! Invariant: a set bit belongs to the running transaction, and the directory has recorded that
//! access of it.

use super::{
    cache::Cache,
    mutation::{Mutation, includes},
    profile::{Line, MachineProfile},
};

/// What an access does.
///
/// # Example
///
/// See [`Node::access`](super::Node::access).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A load.
    Read,
    /// A store.
    Write,
}

const READ: u8 = 1;
const WRITE: u8 = 2;

/// The recorded bits of a line. They are set only in the period in which they were set, so that all
/// can be cleared at once.
#[derive(Clone, Copy, Debug, Default)]
struct Recorded {
    period: u32,
    bits: u8,
}

#[derive(Clone, Debug)]
pub(super) struct Core {
    l1: Cache<Recorded>,
    /// It has all lines of `l1`, with the same bits.
    l2: Cache<Recorded>,
    latency: (u64, u64),
    period: u32,
    /// The filters of the running transaction, and their attempt.
    running: Option<(u16, u32)>,
}

impl Core {
    pub(super) fn new(profile: &MachineProfile) -> Self {
        let latency = (profile.l1.cycles, profile.l2.cycles);
        Self { l1: Cache::new(profile.l1, 1), l2: Cache::new(profile.l2, 1), latency, period: 1, running: None }
    }

    /// Runs this transaction from now on. If another one ran, no access is recorded.
    #[inline]
    pub(super) fn run(&mut self, slot: u16, attempt: u32) {
        if self.running != Some((slot, attempt)) {
            let was = self.running.replace((slot, attempt));
            let is_same = was.is_some_and(|(was, _)| was == slot);
            let keeps = if is_same { Mutation::RecordedOutlives } else { Mutation::RecordedSurvivesSwitch };
            if !includes(keeps) {
                self.forget();
            }
        }
    }

    /// Clears the recorded bits.
    pub(super) fn forget(&mut self) {
        self.period += 1;
    }

    /// Returns the cycles of an access that need not go to the directory. `None` if it must.
    #[inline]
    pub(super) fn find(&mut self, line: Line, kind: Kind) -> Option<u64> {
        let wanted = if kind == Kind::Read { READ | WRITE } else { WRITE };
        let is_recorded = |it: Recorded, period: u32| it.period == period && it.bits & wanted != 0;
        if let Some(place) = self.l1.touch(line) {
            return is_recorded(*self.l1.state(place), self.period).then_some(self.latency.0);
        }
        let place = self.l2.touch(line)?;
        let recorded = *self.l2.state(place);
        let (place, _) = self.l1.fill(line, |_| false);
        *self.l1.state(place) = recorded;
        is_recorded(recorded, self.period).then_some(self.latency.1)
    }

    /// Returns the cycles of an access of a line that it has, whatever is recorded. `None` if it
    /// has not.
    pub(super) fn level(&mut self, line: Line) -> Option<u64> {
        if self.l1.touch(line).is_some() {
            return Some(self.latency.0);
        }
        let place = self.l2.touch(line)?;
        let recorded = *self.l2.state(place);
        let (place, _) = self.l1.fill(line, |_| false);
        *self.l1.state(place) = recorded;
        Some(self.latency.1)
    }

    /// Has a line, and records an access of it.
    pub(super) fn fill(&mut self, line: Line, kind: Kind) {
        let bit = if kind == Kind::Read { READ } else { WRITE };
        let place = self.l2.touch(line).unwrap_or_else(|| {
            let (place, evicted) = self.l2.fill(line, |_| false);
            if let Some((evicted, _)) = evicted {
                self.l1.remove(evicted);
            }
            place
        });
        let state = self.l2.state(place);
        let before = if state.period == self.period { state.bits } else { 0 };
        let recorded = Recorded { period: self.period, bits: before | bit };
        *state = recorded;
        let place = self.l1.touch(line).unwrap_or_else(|| self.l1.fill(line, |_| false).0);
        *self.l1.state(place) = recorded;
    }

    /// Removes a line.
    pub(super) fn invalidate(&mut self, line: Line) {
        self.l1.remove(line);
        self.l2.remove(line);
    }

    /// Returns the lines of the second level with their recorded bits, and those of the first.
    #[cfg(test)]
    pub(super) fn contents(&self) -> [Vec<(Line, u8)>; 2] {
        let bits = |it: Recorded| if it.period == self.period { it.bits } else { 0 };
        [&self.l2, &self.l1]
            .map(|cache| cache.contents().into_iter().map(|(line, state)| (line, bits(state))).collect())
    }

    #[cfg(test)]
    pub(super) fn running(&self) -> Option<(u16, u32)> {
        self.running
    }
}
