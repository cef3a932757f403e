//! How a node's thread divides its work between members and handshakes.
//!
//! Work is counted in units: one is a small operation, or 64 bytes that are moved. In a round in
//! which members had work, handshakes get a quarter of what members have got so far, so that
//! members have four parts in five of all. What handshakes do not use is saved, up to a bound. In a
//! round in which members had nothing, nothing is taken from them: then handshakes cost nothing.
//! But it is soon time for the next round, in which members may have something.
//!
//! The order of a round sees to the rest: members come first.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes that count as one unit.
pub(super) const UNIT: usize = 64;

/// What a handshake takes, in units: to be accepted, to be read, and to be answered.
pub(super) const ACCEPT: u64 = 16;
pub(super) const HEAR: u64 = 4;
pub(super) const ANSWER: u64 = 128;

/// The most that one step of a handshake takes. A step begins where there is credit for all of it.
const STEP: u64 = ACCEPT + HEAR + ANSWER;

/// What handshakes get: one unit for so many of the members'.
const SHARE: u64 = 4;

/// The most that is saved for handshakes, in units.
const SAVED: u64 = 16 * STEP;

/// What handshakes take of a round in which members have nothing, before it is time for the next,
/// in units.
const FREE: u64 = 4 * STEP;

/// What a node's thread has done, in units of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)]
#[non_exhaustive]
pub struct WorkUnits {
    /// For holders of the key.
    pub members: u64,
    /// For others, in rounds in which holders of the key had work.
    pub handshakes: u64,
    /// For others, in rounds in which holders of the key had none.
    pub aside: u64,
    /// The most for one connection of a peer in one turn.
    pub longest_turn: u64,
    /// Reports of sockets whose connections were closed before. Each ends a sleep for nothing.
    pub strays: u64,
}

/// The totals, for others to read.
#[derive(Debug, Default)]
pub(super) struct Totals([AtomicU64; 5]);

impl Totals {
    fn write(&self, units: &WorkUnits) {
        let WorkUnits { members, handshakes, aside, longest_turn, strays } = *units;
        for (total, units) in self.0.iter().zip([members, handshakes, aside, longest_turn, strays]) {
            total.store(units, Relaxed);
        }
    }

    pub(super) fn read(&self) -> WorkUnits {
        let [members, handshakes, aside, longest_turn, strays] =
            [0, 1, 2, 3, 4].map(|index: usize| self.0[index].load(Relaxed));
        WorkUnits { members, handshakes, aside, longest_turn, strays }
    }
}

/// The division, as it stands.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Units of members in this round.
    round: u64,
    /// Units of handshakes in this round that cost them nothing.
    free: u64,
    /// What handshakes may still take: [`SHARE`] of these are a unit.
    credit: u64,
    units: WorkUnits,
    changed: bool,
}

impl Shares {
    /// Begins a round, and adds the units of the last one to the totals.
    pub(super) fn begin_round(&mut self, totals: &Totals) {
        (self.round, self.free) = (0, 0);
        if std::mem::take(&mut self.changed) {
            totals.write(&self.units);
        }
    }

    /// Returns whether members had work in this round.
    pub(super) fn had_members(&self) -> bool {
        self.round > 0
    }

    /// Counts a turn of a member's connection.
    pub(super) fn member(&mut self, units: u64) {
        if units == 0 {
            return;
        }
        self.round += units;
        self.credit = (self.credit + units).min(SHARE * SAVED);
        self.units.members += units;
        self.units.longest_turn = self.units.longest_turn.max(units);
        self.changed = true;
    }

    /// Counts an event of a socket that belongs to no connection.
    pub(super) fn stray(&mut self) {
        self.units.strays += 1;
        self.changed = true;
    }

    /// Returns whether a handshake may take a step now.
    pub(super) fn admits(&self) -> bool {
        match self.round {
            0 => self.free < FREE,
            _ => self.credit >= SHARE * STEP,
        }
    }

    /// Counts a part of a handshake's step.
    pub(super) fn handshake(&mut self, units: u64) {
        if self.round == 0 {
            self.units.aside += units;
            self.free += units;
        } else {
            debug_assert!(SHARE * units <= self.credit, "a step is admitted first, and takes no more than it may");
            self.credit = self.credit.saturating_sub(SHARE * units);
            self.units.handshakes += units;
        }
        self.changed = true;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Something that a thread does.
    #[derive(Clone, Copy, Debug)]
    enum Deed {
        Round,
        Member(u64),
        /// A handshake wants to take a step, of which this is a part.
        Handshake(u64),
    }

    fn deeds() -> impl Strategy<Value = Vec<Deed>> {
        let deed = prop_oneof![
            Just(Deed::Round),
            (0..5_000_u64).prop_map(Deed::Member),
            (1..=STEP).prop_map(Deed::Handshake),
            Just(Deed::Handshake(STEP)),
        ];
        proptest::collection::vec(deed, 1..400)
    }

    proptest! {
        /// Whatever comes in whatever order, members have four parts in five of what is done in
        /// rounds in which they have work, and handshakes are admitted in the others, for a while.
        #[test]
        fn members_have_their_share(deeds in deeds()) {
            let (totals, mut shares) = (Totals::default(), Shares::default());
            let (mut members, mut beside, mut aside) = (0, 0, 0);
            let (mut of_round, mut free) = (0, 0);
            for deed in deeds {
                match deed {
                    Deed::Round => {
                        shares.begin_round(&totals);
                        (of_round, free) = (0, 0);
                    }
                    Deed::Member(units) => {
                        shares.member(units);
                        members += units;
                        of_round += units;
                    }
                    Deed::Handshake(units) if shares.admits() => {
                        shares.handshake(units);
                        match of_round {
                            0 => (aside, free) = (aside + units, free + units),
                            _ => beside += units,
                        }
                        prop_assert!(free < FREE + STEP, "it is time for the next round");
                    }
                    Deed::Handshake(_) => prop_assert!(of_round > 0 || free >= FREE, "no other has work"),
                }
                prop_assert!(SHARE * beside <= members);
            }
            shares.begin_round(&totals);
            let found = totals.read();
            prop_assert_eq!((found.members, found.handshakes, found.aside), (members, beside, aside));
        }

        /// However little members do in each round, handshakes are admitted by and by.
        #[test]
        fn handshakes_are_not_kept_out_for_ever(each in 1..100_u64) {
            let (totals, mut shares) = (Totals::default(), Shares::default());
            let mut rounds = 0;
            while !shares.admits() || rounds == 0 {
                shares.begin_round(&totals);
                shares.member(each);
                rounds += 1;
            }
            prop_assert!(rounds <= SHARE * STEP / each + 1);
        }
    }
}
