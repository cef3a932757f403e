//! DBX, Fig. 1: the working set and the duration that a region can have.

use std::time::Duration;

use drtm_htm::Profile;
use drtm_report::{
    chart::{Axis, Scale},
    units::{KIB as K, MIB as M, Quantity, sizes},
};

use super::{
    panel::{Panel, Published, Study},
    regions::{Line, Regions, line},
};
use crate::{
    Error,
    htm::{Load, Setup, Testbed, abort_rate},
};

pub(super) const WORKING_SET: Axis = Axis { title: "working set", quantity: Quantity::Bytes, scale: Scale::Doubling };
pub(super) const ABORT_RATE: Axis = Axis { title: "abort rate", quantity: Quantity::AbortRate, scale: Scale::Linear };

pub(super) const STUDIES: &[Study] = &[
    Study {
        panels: &[A],
        measure: |effort| Regions { profile: Profile::L1_32K_8, threads: 4, measure: in_sequence }.measure(effort),
    },
    Study {
        panels: &[B],
        measure: |effort| {
            Regions { profile: Profile::L1_32K_8.hyperthreaded(), threads: 8, measure: in_sequence }.measure(effort)
        },
    },
    Study {
        panels: &[C],
        measure: |effort| Regions { profile: Profile::L1_32K_8, threads: 1, measure: frontiers }.measure(effort),
    },
    Study {
        panels: &[D],
        measure: |effort| Regions { profile: Profile::L1_32K_8, threads: 1, measure: by_duration }.measure(effort),
    },
];

const A: Panel = Panel {
    name: "dbx-fig1a",
    title: "DBX Fig. 1a: abort rate against working set",
    x: Some(WORKING_SET),
    y: ABORT_RATE,
    published: &[Published::at("write", 31 * K, 0.90), Published::at("read", 4 * M, 0.47)],
    note: "Model: writes end where the sets and ways of the cache do, at 32 KB; reads where the tracker does, whose size \
            is a parameter set to the 4 MB that the paper found. The slope before that is the timer, at 5 ns an \
            access. The paper's rates at 31 KB and at 4 MB are higher: the model has no stack, code or operating \
            system that take a part of the cache and of the time, and its tracker is exact up to its size.",
};

const B: Panel = Panel {
    name: "dbx-fig1b",
    title: "DBX Fig. 1b: abort rate against working set, two hardware threads to a core",
    x: Some(WORKING_SET),
    y: ABORT_RATE,
    published: &[Published::at("write", 22 * K, 0.99), Published::at("read", 2 * M, 0.58)],
    note: "Model: a sibling takes half of the ways and half of the tracker, always. So writes end at 16 KB and reads at \
            2 MB. In the paper writes end near 22 KB: there siblings compete for lines, and no one halves them.",
};

const C: Panel = Panel {
    name: "dbx-fig1c",
    title: "DBX Fig. 1c: how much a region can read, for how much it writes",
    x: Some(Axis { title: "written", quantity: Quantity::Bytes, scale: Scale::Linear }),
    y: Axis { title: "most that can be read", quantity: Quantity::Bytes, scale: Scale::Doubling },
    published: &[Published::at("read before write", 28 * K, (3 * M) as f64)],
    note: "Model: feasible is what aborts less than half of the time; the most that can be read is found by bisection, \
            to 4 KB, up to 8 MB. Writes that do not commit even alone have no point, and zero has no place on the \
            chart's axis. A read behind the writes evicts the least recently used line, a written one as soon as \
            the set is full, so reads and writes together are held to the cache; reads ahead of the writes are \
            held to the tracker only, and so to 4 MB, where the paper found 3 MB.",
};

const D: Panel = Panel {
    name: "dbx-fig1d",
    title: "DBX Fig. 1d: abort rate against duration",
    x: Some(Axis { title: "duration of a region", quantity: Quantity::Microseconds, scale: Scale::Linear }),
    y: ABORT_RATE,
    published: &[Published::at("spin", 4000, 1.0)],
    note: "Model: an interrupt every 4 ms of virtual time, and nothing else. Regions follow each other \
           without a pause, and an aborted one ends at the interrupt. So a period holds a whole number of \
           commits and one abort, and the curve has steps: one half from 2 ms to 4 ms, then one.",
};

/// Measures reads and writes separately, of adjacent lines.
pub(super) fn in_sequence(setup: Setup) -> Result<Vec<Line>, Error> {
    const WRITES: [usize; 18] = sizes([1, 2, 4, 8, 12, 14, 16, 17, 20, 22, 24, 28, 31, 32, 33, 36, 48, 64], K);
    const READS: [usize; 14] = sizes([1, 4, 16, 64, 128, 256, 512, 1024, 2048, 2304, 3072, 4096, 4352, 8192], K);
    Ok(vec![line("write", setup, &WRITES, Load::write)?, line("read", setup, &READS, Load::read)?])
}

fn by_duration(setup: Setup) -> Result<Vec<Line>, Error> {
    const DURATIONS: [usize; 22] =
        sizes([1, 2, 4, 6, 8, 10, 12, 13, 14, 16, 18, 20, 22, 24, 28, 32, 36, 38, 39, 40, 45, 50], 100);
    Ok(vec![line("spin", setup, &DURATIONS, |us| Load::spin(Duration::from_micros(us as u64)))?])
}

fn frontiers(setup: Setup) -> Result<Vec<Line>, Error> {
    Ok(vec![
        frontier("read before write", setup, Load::read_then_write)?,
        frontier("write before read", setup, |read, written| Load::write_then_read(written, read))?,
    ])
}

/// Returns, for each amount written, the most that can be read with it. Amounts that cannot be
/// written have no point.
fn frontier(series: &'static str, setup: Setup, load: fn(usize, usize) -> Load) -> Result<Line, Error> {
    const WRITTEN: [usize; 11] = sizes([0, 4, 8, 12, 16, 20, 24, 28, 31, 32, 36], K);
    const MOST_READ: usize = 8 << 20;
    let largest = WRITTEN.map(|written| load(MOST_READ, written));
    let testbed = Testbed::new(setup, &largest)?;
    let mut points = Vec::new();
    for written in WRITTEN {
        if let Some(read) = most_read(&testbed, MOST_READ, |read| load(read, written))? {
            points.push((written, read as f64));
        }
    }
    Ok(Line { series, points })
}

/// Returns the largest read up to `limit` with which the load is feasible, to a page. `None` if it
/// is not feasible without reads.
fn most_read(testbed: &Testbed, limit: usize, load: impl Fn(usize) -> Load) -> Result<Option<usize>, Error> {
    const ATTEMPTS: u64 = 16;
    const FEASIBLE_BELOW: f64 = 0.5;
    const PAGE: usize = 4 << 10;
    let feasible =
        |pages: usize| Ok::<_, Error>(abort_rate(&testbed.run(load(pages * PAGE), ATTEMPTS)?) < FEASIBLE_BELOW);
    if !feasible(0)? {
        return Ok(None);
    }
    let (mut feasible_to, mut infeasible_from) = (0, limit / PAGE + 1);
    while infeasible_from - feasible_to > 1 {
        let middle = feasible_to.midpoint(infeasible_from);
        if feasible(middle)? {
            feasible_to = middle;
        } else {
            infeasible_from = middle;
        }
    }
    Ok(Some(feasible_to * PAGE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::htm::Machine;

    /// A cache of 4 KB behind which 64 KB of reads are tracked.
    fn small() -> Testbed {
        let profile = Profile::new(16, 4, 1024);
        Testbed::new(Setup::on(Machine::Emulated(profile)), &[Load::read_then_write(128 << 10, 8 << 10)])
            .expect("small")
    }

    #[test]
    fn bisection_finds_the_tracker_and_the_cache() {
        let testbed = small();
        let behind =
            |written| most_read(&testbed, 128 << 10, |read| Load::write_then_read(written, read)).expect("runs");
        let ahead =
            |written| most_read(&testbed, 128 << 10, |read| Load::read_then_write(read, written)).expect("runs");
        assert_eq!((ahead(0), ahead(4 << 10)), (Some(64 << 10), Some(64 << 10)));
        assert_eq!((behind(0), behind(4 << 10)), (Some(64 << 10), Some(0)));
        assert_eq!((ahead(5 << 10), behind(5 << 10)), (None, None));
    }

    #[test]
    fn bisection_stops_at_its_limit() {
        assert_eq!(most_read(&small(), 32 << 10, Load::read).expect("runs"), Some(32 << 10));
    }
}
