//! The work of one thread: it prepares, then begins one htm transaction after another, without
//! retries.
//!
//! The bodies keep the contract of an htm transaction: they do not allocate or panic, and call
//! nothing that might. In random order, a transaction also reads the list of its words, which adds
//! an eighth to its read set on hardware. In sequence it reads only its lines.

use std::{hint::black_box, time::Duration, time::Instant};

use clap::ValueEnum;
use drtm_htm::{Access, Engine, EngineKind, FallbackLock, NoHtm, Policy, Word, Worker};
use serde::Serialize;

use super::{
    Load,
    memory::{Draw, PAGE_BYTES, PAGE_LINES, Page, words},
};

/// The order in which an htm transaction touches lines.
///
/// # Example
///
/// See [`htm`](crate::htm).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[non_exhaustive]
pub enum Order {
    /// Adjacent lines from the start of a page: all sets of the cache are used evenly
    #[default]
    #[serde(rename = "seq")]
    #[value(name = "seq")]
    Sequential,
    /// Distinct lines of a much larger area, drawn anew for every transaction
    #[serde(rename = "random")]
    Random,
}

impl Order {
    /// The smallest area from which a thread draws random lines: 64 MB, sixteen times the read
    /// tracker of the profiles.
    pub(super) const LEAST_RANDOM_PAGES: usize = (64 << 20) / PAGE_BYTES;
}

/// Every abort is final, so that each begun transaction counts as one attempt.
const ONE_TRY: Policy = Policy::DBX.divided_by(u32::MAX);

/// A thread's prepared work.
#[derive(Debug)]
pub(super) enum Work<'m> {
    Sequential { reads: (&'m [Page], usize), writes: (&'m [Page], usize), reads_first: bool },
    Random { draw: Draw<'m>, lines_read: usize, lines_written: usize, reads_first: bool },
    Spin { turns: u64 },
}

impl<'m> Work<'m> {
    /// Prepares everything that is not measured. The area must be as large as [`pages_for`] says.
    pub(super) fn prepare(
        load: Load,
        order: Order,
        engine: EngineKind,
        area: &'m [Page],
        random: fastrand::Rng,
    ) -> Self {
        match (load, order) {
            (Load::Touch { lines_read, lines_written, reads_first }, Order::Sequential) => {
                let (front, back) = area.split_at(lines_read.div_ceil(PAGE_LINES));
                Self::Sequential { reads: (front, lines_read), writes: (back, lines_written), reads_first }
            }
            (Load::Touch { lines_read, lines_written, reads_first }, Order::Random) => {
                Self::Random { draw: Draw::new(area, random), lines_read, lines_written, reads_first }
            }
            (Load::Spin(duration), _) => Self::Spin { turns: turns(engine, duration) },
        }
    }

    /// Begins `attempts` htm transactions.
    pub(super) fn run<E: Engine>(self, worker: &mut Worker<E>, attempts: u64) {
        match self {
            Self::Sequential { reads, writes, reads_first } => {
                for _ in 0..attempts {
                    touch(worker, words(reads.0, reads.1), words(writes.0, writes.1), reads_first);
                }
            }
            Self::Random { mut draw, lines_read, lines_written, reads_first } => {
                for _ in 0..attempts {
                    let (reads, writes) = draw.draw(lines_read + lines_written).split_at(lines_read);
                    touch(worker, reads.iter().copied(), writes.iter().copied(), reads_first);
                }
            }
            Self::Spin { turns } => {
                for _ in 0..attempts {
                    let _ = worker.attempt(ONE_TRY, |tx| tx.spin(turns));
                }
            }
        }
    }
}

/// Returns the pages that a thread needs for a load. In random order this area is much larger than
/// what one transaction touches.
pub(super) fn pages_for(load: Load, order: Order) -> usize {
    let Load::Touch { lines_read, lines_written, .. } = load else { return 0 };
    match order {
        Order::Sequential => lines_read.div_ceil(PAGE_LINES).saturating_add(lines_written.div_ceil(PAGE_LINES)),
        Order::Random => {
            lines_read.saturating_add(lines_written).div_ceil(PAGE_LINES / 8).max(Order::LEAST_RANDOM_PAGES)
        }
    }
}

/// Runs one htm transaction once.
fn touch<'m, E: Engine>(
    worker: &mut Worker<E>,
    reads: impl Iterator<Item = &'m Word> + Clone,
    writes: impl Iterator<Item = &'m Word> + Clone,
    reads_first: bool,
) {
    let outcome = worker.attempt(ONE_TRY, |tx| {
        if reads_first {
            let sum = load_all(tx, reads.clone())?;
            store_all(tx, writes.clone())?;
            Ok(sum)
        } else {
            store_all(tx, writes.clone())?;
            load_all(tx, reads.clone())
        }
    });
    // Keeps the compiler from removing unused loads. The worker counts the outcome.
    black_box(outcome.committed());
}

#[inline(always)]
fn load_all<'m, A: Access<'m>>(tx: &mut A, words: impl Iterator<Item = &'m Word>) -> Result<u64, A::Abort> {
    let mut sum = 0_u64;
    for word in words {
        sum = sum.wrapping_add(tx.load(word)?);
    }
    Ok(sum)
}

#[inline(always)]
fn store_all<'m, A: Access<'m>>(tx: &mut A, words: impl Iterator<Item = &'m Word>) -> Result<(), A::Abort> {
    for word in words {
        tx.store(word, 1)?;
    }
    Ok(())
}

/// Returns the iterations of the spin loop that take this long. The emulation's virtual timer
/// counts nanoseconds; on hardware the same loop is timed outside of any transaction.
fn turns(engine: EngineKind, duration: Duration) -> u64 {
    const TRIAL: u64 = 1 << 20;
    const TRIALS: usize = 8;
    let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    if engine != EngineKind::Rtm {
        return ns;
    }
    let lock = FallbackLock::new();
    let timed = |_| {
        let start = Instant::now();
        let _ = lock.run(&NoHtm, |held| held.spin(TRIAL));
        start.elapsed().as_nanos().max(1)
    };
    // The fastest trial was not interrupted.
    let fastest = (0..TRIALS).map(timed).min().unwrap_or(1);
    u64::try_from(u128::from(ns) * u128::from(TRIAL) / fastest).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_a_nanosecond_of_the_virtual_timer_and_calibrated_on_hardware() {
        let (short, long) = (Duration::from_micros(1), Duration::from_millis(1));
        assert_eq!(turns(EngineKind::Emulated, short), 1000);
        assert!(turns(EngineKind::Rtm, short) < turns(EngineKind::Rtm, long));
    }

    #[test]
    fn a_random_area_is_at_least_eight_times_what_is_touched() {
        for load in [Load::read(64), Load::read(9 << 20), Load::read_then_write(8 << 20, 8 << 20)] {
            let touched = load.bytes_read() + load.bytes_written();
            assert!(pages_for(load, Order::Random) * super::super::memory::PAGE_BYTES >= 8 * touched);
        }
        assert_eq!(pages_for(Load::read_then_write(1, 65 * 64), Order::Sequential), 3);
        assert_eq!(pages_for(Load::spin(Duration::from_secs(1)), Order::Random), 0);
    }
}
