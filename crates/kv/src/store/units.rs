//! Units of memory that serve nothing: the common pool, from which spans of every class are cut;
//! and the gaps between units and what else is in the region.

use std::collections::BTreeMap;

use drtm_htm::Engine;
use drtm_rdma::{Offset, Region, RegionError};
use parking_lot::Mutex;

use crate::store::{beside::Beside, spans::Run};

/// A gap of fewer bytes is not kept in mind, and no more than so many are.
const LEAST_GAP: u64 = 512;
const MOST_GAPS: usize = 64;

/// Gaps begin at cache lines.
const LINE: u64 = 64;

/// Memory of a store that serves nothing.
#[derive(Debug, Default)]
pub(crate) struct Units {
    /// Runs of units that no other run is next to: how many there are, by the first.
    runs: Mutex<BTreeMap<u64, u64>>,
    /// Where bytes begin and end that are zeros, and serve nothing.
    gaps: Mutex<Vec<(u64, u64)>>,
}

impl Units {
    /// Takes units in.
    pub(crate) fn give(&self, run: Run) {
        let mut runs = self.runs.lock();
        let (mut first, mut units) = (run.first, run.units);
        if let Some((before, length)) = runs.range(..first).next_back().map(|(before, length)| (*before, *length))
            && before + length == first
        {
            (first, units) = (before, length + units);
        }
        if let Some(length) = runs.remove(&(run.first + run.units)) {
            units += length;
        }
        runs.insert(first, units);
    }

    /// Gives out so many units in a row, of the shortest run that has them.
    pub(crate) fn take(&self, units: u64) -> Option<Run> {
        let mut runs = self.runs.lock();
        let mut shortest: Option<(u64, u64)> = None;
        for (first, length) in &*runs {
            if *length >= units && shortest.is_none_or(|(_, shortest)| *length < shortest) {
                shortest = Some((*first, *length));
                if *length == units {
                    break;
                }
            }
        }
        let (first, length) = shortest?;
        runs.remove(&first);
        if length > units {
            runs.insert(first + units, length - units);
        }
        Some(Run { first, units })
    }

    /// Returns how many units there are.
    pub(crate) fn count(&self) -> u64 {
        self.runs.lock().values().sum()
    }

    /// Returns all runs.
    pub(crate) fn runs(&self) -> Vec<Run> {
        self.runs.lock().iter().map(|(first, units)| Run { first: *first, units: *units }).collect()
    }

    /// Takes a run out if it is still as it was seen.
    pub(crate) fn take_run(&self, run: Run) -> bool {
        let mut runs = self.runs.lock();
        let is_there = runs.get(&run.first) == Some(&run.units);
        if is_there {
            runs.remove(&run.first);
        }
        is_there
    }

    /// Extends a region by so many bytes, which begin at a multiple of them if they are a unit's.
    pub(crate) fn extend<E: Engine>(
        &self,
        (beside, region): (&Beside, &Region<E>),
        units: u64,
        unit_bytes: u64,
    ) -> Result<Run, RegionError> {
        let bytes = units * unit_bytes;
        loop {
            let end = region.allocated();
            let skipped = end.next_multiple_of(unit_bytes) - end;
            let at = beside.extend(region, skipped + bytes, 8)?.bytes();
            let (start, end) = (at.next_multiple_of(unit_bytes), at + skipped + bytes);
            if start + bytes <= end {
                self.keep_gap(at, start);
                self.keep_gap(start + bytes, end);
                return Ok(Run { first: start / unit_bytes, units });
            }
            // Another thread has extended the region meanwhile.
            self.keep_gap(at, end);
        }
    }

    /// Keeps bytes in mind that are zeros, and that nothing uses.
    pub(crate) fn keep_gap(&self, begin: u64, end: u64) {
        let begin = begin.next_multiple_of(LINE);
        if begin + LEAST_GAP <= end {
            let mut gaps = self.gaps.lock();
            gaps.push((begin, end));
            if gaps.len() > MOST_GAPS {
                let shortest = (0..gaps.len()).min_by_key(|gap| gaps[*gap].1 - gaps[*gap].0);
                shortest.map(|gap| gaps.swap_remove(gap));
            }
        }
    }

    /// Gives out bytes of a gap, which are zeros.
    pub(crate) fn take_gap(&self, bytes: u64, align: u64) -> Option<Offset> {
        let mut gaps = self.gaps.lock();
        let fits = |(begin, end): &(u64, u64)| begin.next_multiple_of(align.max(LINE)) + bytes <= *end;
        let gap = gaps.iter().position(fits)?;
        let (begin, end) = gaps.swap_remove(gap);
        let start = begin.next_multiple_of(align.max(LINE));
        drop(gaps);
        self.keep_gap(begin, start);
        self.keep_gap(start + bytes, end);
        Some(Offset::new(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: u64, units: u64) -> Run {
        Run { first, units }
    }

    #[test]
    fn neighbours_become_one_run() {
        let units = Units::default();
        [run(4, 2), run(8, 1), run(6, 2), run(2, 1), run(3, 1)].into_iter().for_each(|run| units.give(run));
        assert_eq!((units.count(), units.take(8)), (7, None));
        assert_eq!(units.take(7), Some(run(2, 7)));
        assert_eq!(units.count(), 0);
    }

    #[test]
    fn the_shortest_run_that_fits_is_taken_from() {
        let units = Units::default();
        [run(10, 5), run(20, 2), run(30, 3)].into_iter().for_each(|run| units.give(run));
        assert_eq!(units.take(2), Some(run(20, 2)));
        assert_eq!(units.take(2), Some(run(30, 2)));
        assert_eq!(units.runs(), [run(10, 5), run(32, 1)]);
        assert!(!units.take_run(run(10, 4)) && units.take_run(run(32, 1)));
        assert_eq!(units.runs(), [run(10, 5)]);
    }

    #[test]
    fn a_gap_is_given_out_once() {
        let units = Units::default();
        units.keep_gap(100, 4_096);
        let first = units.take_gap(1_024, 1_024).expect("there is room").bytes();
        let second = units.take_gap(1_024, 64).expect("there is room").bytes();
        assert!(first == 1_024 && (second + 1_024 <= first || second >= first + 1_024));
        assert_eq!(units.take_gap(4_096, 64), None);
    }
}
