//! Rows that a client chooses by whether they are its own node's.

use std::ops::RangeInclusive;

use super::workload::Place;
use crate::Random;

/// Moves the numbers of rows, so that a share of what a client accesses is its own node's. Other
/// nodes have equal parts of the rest.
///
/// Rows are divided by their numbers, as [`Place::owns`] says. A number moves by less than there
/// are nodes, so that a row stays about as likely as it was.
#[derive(Clone, Debug)]
pub struct Nearby {
    /// In percent.
    local: u8,
    place: Place,
    random: Random,
}

impl Nearby {
    /// Creates it for a client at a place, with a share in percent.
    pub fn new(local: u8, place: Place, seed: u64) -> Self {
        Self { local, place, random: Random::seeded(seed) }
    }

    /// Returns a number near this one, within a range of numbers that is at least twice as long as
    /// there are nodes.
    pub fn of(&mut self, number: u64, range: RangeInclusive<u64>) -> u64 {
        let (nodes, own) = (u64::from(self.place.nodes), u64::from(self.place.node));
        let node = if nodes == 1 || self.random.percent(self.local) {
            own
        } else {
            (own + self.random.within(1, nodes - 1)) % nodes
        };
        let moved = number - number % nodes + node;
        if moved > *range.end() {
            moved - nodes
        } else if moved < *range.start() {
            moved + nodes
        } else {
            moved
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_what_is_accessed_is_local() {
        let place = Place { node: 2, nodes: 5, clients: 10 };
        for local in [0, 20, 80, 100] {
            let mut nearby = Nearby::new(local, place, 7);
            let mut own = 0;
            for number in 1..=10_000 {
                let moved = nearby.of(number, 1..=10_000);
                assert!((1..=10_000).contains(&moved) && moved.abs_diff(number) < 10, "{number} to {moved}");
                own += u64::from(place.owns(moved));
            }
            assert!(own.abs_diff(100 * u64::from(local)) < 200, "{own} of 10000, where {local} % are to be local");
        }
    }

    #[test]
    fn one_node_has_all() {
        let mut nearby = Nearby::new(0, Place { node: 0, nodes: 1, clients: 1 }, 7);
        assert!((0..10).all(|number| nearby.of(number, 0..=9) == number));
    }
}
