//! DBX, Figs. 16 and 17: TPC-C with a log.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use drtm_drive::EngineName;
use drtm_report::{
    chart::{Axis, Scale as AxisScale},
    units::Quantity,
};
use drtm_tpcc::{Chances, MixName, Tpcc};
use drtm_txn::Durability;

use super::{
    drtm_fig15::{least_and_most, size, source},
    effort::{Effort, Sum},
    entries::{Entry, Grid, PER_SECOND, THREADS},
    panel::{Curve, Found, Kind, Measured, Panel, Published, Study},
    silo::{NOT_GIVEN, Silo},
};
use crate::Error;

pub(super) const STUDIES: &[Study] = &[
    Study { panels: &[THROUGHPUT, GAIN], measure: throughput },
    Study { panels: &[LATENCY, LATENCIES], measure: latency },
];

const RATIO: Axis = Axis { title: "ratio", quantity: Quantity::Ratio, scale: AxisScale::Linear };
const TIME: Axis = Axis { title: "until durable", quantity: Quantity::Microseconds, scale: AxisScale::Linear };

const NO_LOG: &str = "no log";
const ASYNC: &str = "commits that do not wait";
const SYNC: &str = "commits that wait";
const SILO: &str = "Silo-Masstree";

const THROUGHPUT: Panel = Panel {
    name: "dbx-fig16a",
    title: "DBX Fig. 16: TPC-C with a log, a warehouse for each thread",
    x: Some(THREADS),
    y: PER_SECOND,
    published: &[],
    note: "The standard mix. DBX's workers go on before their transactions are durable, as commits do here \
           that do not wait. One that waits has its thread wait for the disk.",
};

const GAIN: Panel = Panel {
    name: "dbx-fig16b",
    title: "DBX Fig. 16: TPC-C with a log, commits that do not wait over others",
    x: None,
    y: RATIO,
    published: &[Published::of(SILO, 1.30)],
    note: "The mean over all numbers of threads, as in the paper.",
};

const LATENCY: Panel = Panel {
    name: "dbx-fig17a",
    title: "DBX Fig. 17: TPC-C with a log, how long a transaction takes until it is durable",
    x: Some(THREADS),
    y: TIME,
    published: &[],
    note: "The median of all transactions, those that only read included, and the mean of Silo.",
};

const LATENCIES: Panel = Panel {
    name: "dbx-fig17b",
    title: "DBX Fig. 17: the same, the least and the most by threads",
    x: None,
    y: TIME,
    published: &[
        Published::of(OURS_BETWEEN.0, 38_000.0),
        Published::of(OURS_BETWEEN.1, 63_000.0),
        Published::of(SILO_BETWEEN.0, 117_000.0),
        Published::of(SILO_BETWEEN.1, 480_000.0),
    ],
    note: "The papers' systems write their logs by epochs of 40 ms, whatever waits for them. This one writes \
           when a commit waits, and what others have committed meanwhile goes with it.",
};

const OURS_BETWEEN: (&str, &str) = ("commits that wait, least", "commits that wait, most");
const SILO_BETWEEN: (&str, &str) = ("Silo-Masstree, least", "Silo-Masstree, most");

/// A directory for logs, which is removed at the end.
struct Ground(PathBuf);

impl Ground {
    fn new() -> Result<Self, Error> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("drtm-paper-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).map_err(drtm_report::Error::file(&path))?;
        Ok(Self(path))
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // Only logs are left, and nothing needs them.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns TPC-C, whose commits are durable in this mode.
fn ours<'e>(series: &'static str, effort: &'e Effort, below: &'e Path, mode: Durability) -> Entry<'e> {
    Entry::of(series, Kind::Measured, move |threads| {
        let tpcc: Tpcc = Tpcc::new(size(effort, threads)?, MixName::Standard, Chances::STANDARD, effort.seed);
        Ok(Some(effort.logged(tpcc, EngineName::Auto, threads, (below, mode))))
    })
}

fn silo<'e>(effort: &Effort, below: &Path) -> Entry<'e> {
    let Some(program) = &effort.silo else { return Entry::absent(SILO, NOT_GIVEN) };
    let silo = Silo { program: program.clone(), seconds: effort.time(), log: Some(below.join("silo")) };
    Entry::of(SILO, Kind::Measured, move |threads| {
        let silo = silo.clone();
        Ok(Some(Box::new(move || silo.run(threads))))
    })
}

fn throughput(effort: &Effort) -> Result<Measured, Error> {
    let (effort, ground) = (&effort.of_many(), Ground::new()?);
    let without =
        |threads: usize| Ok(Tpcc::new(size(effort, threads)?, MixName::Standard, Chances::STANDARD, effort.seed));
    let entries = [
        Entry::on::<Tpcc>(NO_LOG, effort, EngineName::Auto, without),
        ours(ASYNC, effort, &ground.0, Durability::Async),
        ours(SYNC, effort, &ground.0, Durability::Sync),
        silo(effort, &ground.0),
    ];
    let grid = Grid::measure(effort, &entries, &effort.threads)?;
    let rate = |sums: &[Option<Sum>], place: usize| Some(sums.get(place)?.as_ref()?.rates.median);
    let over = |series, place, why| {
        let ratios: Vec<f64> =
            grid.sums.iter().filter_map(|(_, sums)| Some(rate(sums, 1)? / rate(sums, place)?)).collect();
        if ratios.is_empty() {
            return Curve::absent(series, why);
        }
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        Curve { series, found: Found::Points { kind: Kind::Measured, points: vec![(None, mean)] } }
    };
    let gains = vec![over(NO_LOG, 0, ""), over(SYNC, 2, ""), over(SILO, 3, NOT_GIVEN)];
    Ok(Measured { curves: vec![grid.throughput(), gains], source: source(effort), failure: None })
}

fn latency(effort: &Effort) -> Result<Measured, Error> {
    let (effort, ground) = (&effort.of_many(), Ground::new()?);
    let entries = [ours(SYNC, effort, &ground.0, Durability::Sync), silo(effort, &ground.0)];
    let grid = Grid::measure(effort, &entries, &effort.threads)?;
    let median = |sum: &Sum| Some(sum.latencies.as_ref()?.percentiles()?.p50);
    let between = |place: usize, names, why| {
        let values = grid.sums.iter().filter_map(|(_, sums)| median(sums.get(place)?.as_ref()?));
        least_and_most(values.collect(), names, Kind::Measured, why)
    };
    let ranges = [between(0, OURS_BETWEEN, ""), between(1, SILO_BETWEEN, NOT_GIVEN)];
    let curves = vec![grid.curves(|sum, _| median(sum)), ranges.into_iter().flatten().collect()];
    Ok(Measured { curves, source: source(effort), failure: None })
}
