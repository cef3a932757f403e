//! DBX, Figs. 5 and 8 to 10: TPC-C on each engine, and beside simpler uses of RTM.

use drtm_drive::EngineName;
use drtm_report::{
    chart::{self, Axis},
    units::{self, Quantity},
};
use drtm_tpcc::{Chances, MixName, Scale, Tpcc};

use super::{
    effort::{Effort, Sum},
    entries::{ABORT_RATE, Entry, Grid, PER_SECOND, THREADS},
    panel::{Curve, Kind, Measured, Panel, Published, Study},
};
use crate::{
    Error,
    htm::{
        EngineName as RegionEngine,
        working_set::{Name, Scope},
    },
    whole::FALLBACKS,
};

pub(super) const STUDIES: &[Study] = &[
    Study { panels: &[END_TO_END], measure: end_to_end },
    Study { panels: &[SCALABILITY], measure: scalability },
    Study { panels: &[ABORTS, LOCKS], measure: in_regions },
    Study { panels: &[WHOLE, WHOLE_LOCKS], measure: whole },
];

const LOCK_RATE: Axis = Axis { title: "under the lock", quantity: Quantity::LockRate, scale: chart::Scale::Linear };

const RTM: &str = "commits in RTM";
const LOCKS_ONLY: &str = "record locks";
const WHOLE_IN_RTM: &str = "whole in RTM";
const ONE_LOCK: &str = "one lock";
const SIMULATED_WHOLE: &str = "whole, simulated";
const SILO: &str = "Silo";
const SILO_MASSTREE: &str = "Silo-Masstree";
const ENCODED: &str = "DBX'";
const SPINLOCK: &str = "spinlock commits";

const ANOTHER_SYSTEM: &str = "another system, which is not part of this program";
const NO_SPINLOCK: &str = "no commit of ours takes one global lock: without regions it locks records";
const NO_ENCODING: &str = "a variant of DBX that copies and encodes as Silo-Masstree does";

const END_TO_END: Panel = Panel {
    name: "dbx-fig5",
    title: "DBX Fig. 5: TPC-C's standard mix, a warehouse for each thread",
    x: Some(THREADS),
    y: PER_SECOND,
    published: &[
        Published::at(RTM, 1, 119_868.0),
        Published::at(RTM, 8, 442_230.0),
        Published::at(SILO_MASSTREE, 1, 78_816.0),
        Published::at(SILO_MASSTREE, 8, 314_684.0),
        Published::at(ENCODED, 8, 356_911.0),
    ],
    note: "DBX is \"commits in RTM\". The paper also has its workload without isolation, which is no longer built here. \
           The paper has trees only here; these are hash tables where no range is needed, as in its Fig. 13.",
};

const SCALABILITY: Panel = Panel {
    name: "dbx-fig8",
    title: "DBX Fig. 8: TPC-C with up to four threads for each processor",
    x: Some(THREADS),
    y: PER_SECOND,
    published: &[Published::at(RTM, 8, 442_230.0)],
    note: "With more threads than processors, a lock's holder may wait for its time slice, and all others for \
           the holder. The paper finds 10 % less with 32 threads on 8 hardware threads, and that its spinlock \
           does not scale beyond 4.",
};

const ABORTS: Panel = Panel {
    name: "dbx-fig9a",
    title: "DBX Fig. 9: abort rate of the regions that commit TPC-C",
    x: Some(THREADS),
    y: ABORT_RATE,
    published: &[Published::at(RTM, 1, 0.0005), Published::at(RTM, 8, 0.014)],
    note: "Aborts by conflict, capacity and system events among regions begun. A region that finds that its transaction \
           cannot commit, or that a record is locked, ends by its own decision, and is not counted as aborted.",
};

const LOCKS: Panel = Panel {
    name: "dbx-fig9b",
    title: "DBX Fig. 9: how many transactions regions give up",
    x: Some(THREADS),
    y: LOCK_RATE,
    published: &[Published::at(RTM, 1, 0.000_01), Published::at(RTM, 8, 0.000_02)],
    note: "In the paper, these fall back on one lock for all. Here they lock their records.",
};

const WHOLE: Panel = Panel {
    name: "dbx-fig10a",
    title: "DBX Fig. 10: whole transactions in one region: throughput",
    x: Some(THREADS),
    y: PER_SECOND,
    published: &[],
    note: "\"Whole in RTM\" runs each transaction, its commit included, in one region, and takes one global \
           lock when the region is given up; \"one lock\" always takes it.",
};

const WHOLE_LOCKS: Panel = Panel {
    name: "dbx-fig10b",
    title: "DBX Fig. 10: whole transactions in one region: how many end under the lock",
    x: Some(THREADS),
    y: LOCK_RATE,
    published: &[
        Published::at(WHOLE_IN_RTM, 1, 0.42),
        Published::at(WHOLE_IN_RTM, 8, 0.82),
        Published::at(SIMULATED_WHOLE, 1, 0.42),
        Published::at(SIMULATED_WHOLE, 8, 0.82),
    ],
    note: "Simulated: the cache lines of the store that transactions access, in a cache of 32 KB in 8 ways, \
           and for 8 threads of 4 cores in half of the ways; nothing else uses that cache. Measured values \
           are for this machine's first-level cache.",
};

/// Returns TPC-C with a warehouse for each thread.
fn tpcc(effort: &Effort, mix: MixName) -> impl Fn(usize) -> Result<Tpcc, Error> + use<> {
    let (seed, is_tiny) = (effort.seed, effort.is_quick);
    move |threads| Ok(Tpcc::new(Scale::sized(threads, is_tiny)?, mix, Chances::STANDARD, seed))
}

fn end_to_end(effort: &Effort) -> Result<Measured, Error> {
    let entries = [
        Entry::on(RTM, effort, EngineName::Rtm, tpcc(effort, MixName::Standard)),
        Entry::on(LOCKS_ONLY, effort, EngineName::None, tpcc(effort, MixName::Standard)),
        Entry::absent(SILO, ANOTHER_SYSTEM),
        Entry::absent(SILO_MASSTREE, ANOTHER_SYSTEM),
        Entry::absent(ENCODED, NO_ENCODING),
    ];
    let grid = Grid::measure(effort, &entries, &effort.threads)?;
    Ok(Measured { curves: vec![grid.throughput()], source: effort.source(), failure: None })
}

fn scalability(effort: &Effort) -> Result<Measured, Error> {
    let most = effort.threads.iter().max().copied().unwrap_or(1);
    let threads: Vec<usize> = effort.threads.iter().copied().chain([2 * most, 4 * most]).collect();
    let entries = [
        Entry::on(RTM, effort, EngineName::Rtm, tpcc(effort, MixName::Standard)),
        Entry::on(LOCKS_ONLY, effort, EngineName::None, tpcc(effort, MixName::Standard)),
        Entry::absent(SPINLOCK, NO_SPINLOCK),
        Entry::absent(SILO_MASSTREE, ANOTHER_SYSTEM),
    ];
    let grid = Grid::measure(effort, &entries, &threads)?;
    Ok(Measured { curves: vec![grid.throughput()], source: effort.source(), failure: None })
}

fn in_regions(effort: &Effort) -> Result<Measured, Error> {
    let engine = if effort.engine.simulates() { EngineName::Emulated } else { EngineName::Rtm };
    let entries = [Entry::on(RTM, effort, engine, tpcc(effort, MixName::Standard))];
    let grid = Grid::measure(effort, &entries, &effort.threads)?;
    let abort_rate = |sum: &Sum| {
        let aborts = sum.regions.conflict + sum.regions.capacity + sum.regions.system;
        units::share(aborts, sum.regions.attempts())
    };
    let lock_rate = |sum: &Sum| {
        let given_up = sum.regions.fallbacks.saturating_sub(sum.regions.explicit);
        units::share(given_up, sum.all_ended())
    };
    let curves = vec![grid.curves(|sum, _| Some(abort_rate(sum))), grid.curves(|sum, _| Some(lock_rate(sum)))];
    let source = match effort.engine {
        RegionEngine::Emulated => {
            "SIMULATED on the emulated engine: 64 sets, 8 ways, with conflicts of its own threads".to_owned()
        }
        RegionEngine::Rtm => effort.source(),
    };
    Ok(Measured { curves, source, failure: None })
}

fn whole(effort: &Effort) -> Result<Measured, Error> {
    let entries = [
        Entry::whole(WHOLE_IN_RTM, effort, true, tpcc(effort, MixName::Standard)),
        Entry::whole(ONE_LOCK, effort, false, tpcc(effort, MixName::Standard)),
        Entry::on(RTM, effort, EngineName::Rtm, tpcc(effort, MixName::Standard)),
        Entry::on(LOCKS_ONLY, effort, EngineName::None, tpcc(effort, MixName::Standard)),
    ];
    let grid = Grid::measure(effort, &entries, &effort.threads)?;
    let under_the_lock = |sum: &Sum| Some(units::share(sum.counted(FALLBACKS), sum.all_ended()));
    let mut locks: Vec<Curve> = grid
        .curves(|sum, _| under_the_lock(sum))
        .into_iter()
        .filter(|curve| [WHOLE_IN_RTM, ONE_LOCK].contains(&curve.series))
        .collect();
    locks.push(simulated_whole(effort)?);
    Ok(Measured { curves: vec![grid.throughput(), locks], source: effort.source(), failure: None })
}

/// Simulates the paper's processor: four cores, of two hardware threads each.
fn simulated_whole(effort: &Effort) -> Result<Curve, Error> {
    let alone = drtm_htm::Profile::L1_32K_8;
    let mut points = Vec::new();
    for (threads, profile) in [(1, alone), (8, alone.hyperthreaded())] {
        let scope = Scope { profile, ..effort.scope() };
        let rows = Name::Tpcc.rows(&Scope { engine: RegionEngine::Emulated, ..scope })?;
        let (mut too_large, mut all) = (0.0, 0.0);
        for row in rows {
            too_large += row.fallback_rate * row.count as f64;
            all += row.count as f64;
        }
        points.push((threads, too_large / all));
    }
    Ok(Curve::new(SIMULATED_WHOLE, Kind::Simulated, points))
}
