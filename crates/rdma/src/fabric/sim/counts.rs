//! The instructions with which a node serves requests, and their time on a simulated processor
//! (`docs/decisions/0100`).
//!
//! `scripts/request-cost --check` counts them again and compares.

use super::clock::Picos;

/// The instructions of serving one request of a kind, with decoding and encoding, for rows of 40
/// bytes.
pub(super) struct Counts {
    /// `Read`: a row is looked up by its key and copied.
    pub(super) read: u64,
    /// `Lock`: a record is locked by its handle, and memory for its next value reserved.
    pub(super) lock: u64,
    /// `Check`: a record is compared with what was seen.
    pub(super) check: u64,
    /// A row of `Apply`, of nine: it is written, and unlocked.
    pub(super) apply: u64,
    /// `Place`: a record is made for a key that was missing.
    pub(super) place: u64,
    /// `Append`: a log record of one row is written into a ring.
    pub(super) append: u64,
}

/// What `scripts/request-cost` has counted. Its check reads this line.
pub(super) const COUNTED: Counts = Counts { read: 549, lock: 436, check: 176, apply: 651, place: 1_838, append: 364 };

/// A processor's speed.
pub(super) struct Speed {
    pub(super) megahertz: u64,
    /// Instructions in a hundred cycles.
    pub(super) in_100_cycles: u64,
}

impl Speed {
    /// Returns the time that this many instructions take.
    pub(super) const fn takes(&self, instructions: u64) -> Picos {
        instructions * 100 * 1_000_000 / (self.megahertz * self.in_100_cycles)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_take_the_time_of_their_cycles() {
        let (plain, wide) =
            (Speed { megahertz: 2_000, in_100_cycles: 100 }, Speed { megahertz: 2_000, in_100_cycles: 200 });
        assert_eq!((plain.takes(0), plain.takes(1), plain.takes(COUNTED.read)), (0, 500, 500 * COUNTED.read));
        assert_eq!(wide.takes(COUNTED.place), plain.takes(COUNTED.place) / 2);
    }
}
