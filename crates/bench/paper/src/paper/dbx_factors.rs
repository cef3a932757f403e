//! DBX, Figs. 12, 13 and 15: kinds of tables, and what else adds to throughput.

use drtm_htm::{Native, Rtm};
use drtm_report::{
    chart::{Axis, Scale},
    units::Quantity,
};
use drtm_tpcc::{Chances, Layout, MixName, Reading, Scale as Size, Tpcc};
use drtm_txn::{DefaultConfig, Hash, Ordered};

use super::{
    effort::{Effort, Sum},
    entries::{Entry, Grid, NO_RTM, PER_SECOND, THREADS},
    panel::{Measured, Panel, Published, Study},
};
use crate::Error;

pub(super) const STUDIES: &[Study] = &[
    Study { panels: &[NEW_ORDERS], measure: new_orders },
    Study { panels: &[STANDARD], measure: standard },
    Study { panels: &[FACTORS, GAINS], measure: factors },
];

const RATIO: Axis = Axis { title: "relative to the first", quantity: Quantity::Ratio, scale: Scale::Linear };

const MIXTURE: &str = "hash tables and trees";
const TREES: &str = "trees only";
const HASH_TABLES: &str = "hash tables only";

const NO_RANGES: &str = "ORDER-LINE and NEW-ORDER are read by ranges, which a hash table does not have";

const NEW_ORDERS: Panel = Panel {
    name: "dbx-fig12",
    title: "DBX Fig. 12: NEW-ORDER only, by kinds of tables",
    x: Some(THREADS),
    y: PER_SECOND,
    published: &[],
    note: "Commits lock records. Either tables found by key are hash tables and those read by ranges are \
           trees, or all are trees. From 4 threads on, the paper's mixture is faster than its hash tables \
           alone, and those than trees.",
};

const STANDARD: Panel = Panel {
    name: "dbx-fig13",
    title: "DBX Fig. 13: TPC-C's standard mix, by kinds of tables",
    x: Some(THREADS),
    y: PER_SECOND,
    published: &[Published::at(MIXTURE, 8, 506_817.0), Published::at(TREES, 8, 442_230.0)],
    note: "As for Fig. 12.",
};

const BASE: &str = "trees only, record locks";
const WITH_HASH: &str = "+ hash tables";
const WITH_MEMORY: &str = "+ pre-faulted memory";
const WITH_RTM: &str = "+ commits in RTM";
const WITHOUT_SNAPSHOTS: &str = "+ no snapshots";

const FACTORS: Panel = Panel {
    name: "dbx-fig15a",
    title: "DBX Fig. 15: factors, in TPC-C's standard mix",
    x: Some(THREADS),
    y: PER_SECOND,
    published: &[],
    note: "Each with all factors above it. Pre-faulted memory: the system provides pages before the run, and \
           not when rows are inserted. That is most of what an allocator can cost a store that has its own. \
           No snapshots: read-only transactions are validated like all others.",
};

const GAINS: Panel = Panel {
    name: "dbx-fig15b",
    title: "DBX Fig. 15: factors, relative to the first",
    x: Some(THREADS),
    y: RATIO,
    published: &[],
    note: "Of medians within this run.",
};

/// Returns TPC-C with a warehouse for each thread, and tables of this kind where no range is
/// needed.
fn tpcc<O: Layout>(
    effort: &Effort,
    mix: MixName,
    reading: Reading,
) -> impl Fn(usize) -> Result<Tpcc<O>, Error> + use<O> {
    let (seed, is_tiny) = (effort.seed, effort.is_quick);
    move |threads| Ok(Tpcc::new(Size::sized(threads, is_tiny)?, mix, Chances::STANDARD, seed).reading(reading))
}

/// Returns a series whose commits lock records.
fn plain<'e, O: Layout>(series: &'static str, effort: &'e Effort, mix: MixName) -> Entry<'e> {
    let workload = tpcc::<O>(effort, mix, Reading::Auto);
    let pace = |threads| effort.pace(threads);
    Entry::within::<DefaultConfig, _>(series, Native::without_htm(), pace, workload)
}

fn by_tables(effort: &Effort, mix: MixName) -> Result<Grid, Error> {
    let entries = [
        plain::<Hash>(MIXTURE, effort, mix),
        plain::<Ordered>(TREES, effort, mix),
        Entry::absent(HASH_TABLES, NO_RANGES),
    ];
    Grid::measure(effort, &entries, &effort.threads)
}

fn new_orders(effort: &Effort) -> Result<Measured, Error> {
    let curves = vec![by_tables(effort, MixName::NewOrder)?.throughput()];
    Ok(Measured { curves, source: effort.source(), failure: None })
}

fn standard(effort: &Effort) -> Result<Measured, Error> {
    let curves = vec![by_tables(effort, MixName::Standard)?.throughput()];
    Ok(Measured { curves, source: effort.source(), failure: None })
}

fn factors(effort: &Effort) -> Result<Measured, Error> {
    let prefault = |threads| effort.pace_with_memory(threads);
    let hash = |reading| tpcc::<Hash>(effort, MixName::Standard, reading);
    let on_rtm = |series, reading| match Rtm::detect() {
        Ok(rtm) => Entry::within::<DefaultConfig, _>(series, rtm.into(), prefault, hash(reading)),
        Err(_) => Entry::absent(series, NO_RTM),
    };
    // The last factor is added to the best of the others.
    let best = Native::chosen()?;
    let entries = [
        plain::<Ordered>(BASE, effort, MixName::Standard),
        plain::<Hash>(WITH_HASH, effort, MixName::Standard),
        Entry::within::<DefaultConfig, _>(WITH_MEMORY, Native::without_htm(), prefault, hash(Reading::Auto)),
        on_rtm(WITH_RTM, Reading::Auto),
        Entry::absent(
            "+ fallback handler",
            "the thresholds of a commit's region are those of the paper, without a switch",
        ),
        Entry::absent("+ node buffer", "there is no switch for how a transaction finds what it has read"),
        Entry::absent(
            "+ no GC",
            "there is no collection to switch off: the transaction that removes a row takes it out",
        ),
        Entry::within::<DefaultConfig, _>(WITHOUT_SNAPSHOTS, best, prefault, hash(Reading::Validated)),
    ];
    let most = effort.threads.iter().max().copied().unwrap_or(1);
    let grid = Grid::measure(effort, &entries, &[most])?;
    let gain = |sum: &Sum, all: &[Option<Sum>]| Some(sum.rates.median / all.first()?.as_ref()?.rates.median);
    Ok(Measured { curves: vec![grid.throughput(), grid.curves(gain)], source: effort.source(), failure: None })
}
