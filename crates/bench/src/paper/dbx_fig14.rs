//! DBX, Fig. 14: what snapshots do for long transactions that only read.

use super::{
    effort::{Effort, Subject, Sum},
    panel::{Curve, Kind, Means, Measured, Panel, Published, Study},
};
use crate::{
    Error,
    drive::EngineName,
    report::chart::{Axis, Scale},
    tpcc::{Chances, Kind as Transaction, MixName, Reading, Tpcc},
    units::{self, Quantity},
};

pub(super) const STUDIES: &[Study] =
    &[Study { panels: &[THROUGHPUT, ABORTS, ABORTS_OF_READS, GAIN], means: Means::Workloads(measure) }];

pub(super) const THREADS: Axis = Axis { title: "threads", quantity: Quantity::Threads, scale: Scale::Linear };
pub(super) const PER_SECOND: Axis =
    Axis { title: "transactions/s", quantity: Quantity::Throughput, scale: Scale::Linear };
const ABORT_RATE: Axis = Axis { title: "abort rate", quantity: Quantity::AbortRate, scale: Scale::Linear };
const RATIO: Axis = Axis { title: "over validated reads", quantity: Quantity::Ratio, scale: Scale::Linear };

const SNAPSHOT: &str = "snapshot";
const VALIDATED: &str = "validated";
const AUTO: &str = "auto";

const THROUGHPUT: Panel = Panel {
    name: "dbx-fig14a",
    title: "DBX Fig. 14: half NEW-ORDER, half STOCK-LEVEL: throughput",
    x: Some(THREADS),
    y: PER_SECOND,
    published: &[],
    note: "STOCK-LEVEL reads hundreds of rows: in a snapshot from the beginning; as transactions that write do, \
           validated in the end; or as the database does it by itself (auto): in the present for the first rows, and then \
           in a snapshot. A warehouse for two threads, as in the paper. Without RTM on any machine: commits lock records.",
};

const ABORTS: Panel = Panel {
    name: "dbx-fig14b",
    title: "DBX Fig. 14: abort rate of all transactions",
    x: Some(THREADS),
    y: ABORT_RATE,
    published: &[Published::at(SNAPSHOT, 8, 0.012), Published::at(VALIDATED, 8, 0.10)],
    note: "Attempts of either kind that came to nothing, among all.",
};

const ABORTS_OF_READS: Panel = Panel {
    name: "dbx-fig14c",
    title: "DBX Fig. 14: abort rate of STOCK-LEVEL",
    x: Some(THREADS),
    y: ABORT_RATE,
    published: &[],
    note: "Checked: in snapshots it is zero, exactly; if not, that is a failure. With auto it need not be: what was read \
           before the snapshot may be true no more when it is opened.",
};

const GAIN: Panel = Panel {
    name: "dbx-fig14d",
    title: "DBX Fig. 14: throughput over that of validated reads",
    x: Some(THREADS),
    y: RATIO,
    published: &[Published::at(SNAPSHOT, 8, 1.41)],
    note: "Of medians within this run.",
};

/// Ways to read, in the order in which they take turns.
const WAYS: [(&str, Reading); 3] =
    [(SNAPSHOT, Reading::Snapshot), (VALIDATED, Reading::Validated), (AUTO, Reading::Auto)];

fn measure(effort: &Effort) -> Result<Measured, Error> {
    let mut sums: Vec<(usize, Vec<Sum>)> = Vec::new();
    for &threads in &effort.threads {
        let scale = effort.scale(threads.div_ceil(2))?;
        let subject = |(_, reading)| -> Subject<'_> {
            let tpcc = Tpcc::new(scale, MixName::StockLevelHalf, Chances::STANDARD, effort.seed);
            effort.subject(tpcc.reading(reading), EngineName::None, effort.pace(threads))
        };
        sums.push((threads, effort.in_turns(&WAYS.map(subject))?));
    }
    let panel = |y: &dyn Fn(&[Sum], usize) -> f64| {
        let curve = |(way, (series, _)): (usize, (&'static str, Reading))| {
            let points = sums.iter().map(|(threads, sums)| (*threads, y(sums, way)));
            Curve::new(series, Kind::Measured, points)
        };
        WAYS.into_iter().enumerate().map(curve).collect::<Vec<_>>()
    };
    let validated = WAYS.iter().position(|(_, reading)| *reading == Reading::Validated).unwrap_or_default();
    let curves = vec![
        panel(&|sums, way| sums[way].rates.median),
        panel(&|sums, way| sums[way].abort_rate()),
        panel(&|sums, way| abort_rate_of_reads(&sums[way])),
        panel(&|sums, way| sums[way].rates.median / sums[validated].rates.median),
    ];
    Ok(Measured { curves, source: effort.source(), failure: aborted_in_snapshots(&sums) })
}

fn abort_rate_of_reads(sum: &Sum) -> f64 {
    let ended = sum.ended.get(Transaction::StockLevel as usize).copied().unwrap_or(0);
    units::share(sum.read_reruns, sum.read_reruns + ended)
}

/// What must not be: a transaction that was refused though it was in a snapshot.
fn aborted_in_snapshots(sums: &[(usize, Vec<Sum>)]) -> Option<Error> {
    let of_snapshots = |(threads, sums): &(usize, Vec<Sum>)| {
        let sum = WAYS.iter().zip(sums).find(|((_, reading), _)| *reading == Reading::Snapshot)?.1;
        (sum.read_reruns > 0).then(|| Error::Figure {
            figure: ABORTS_OF_READS.name,
            what: format!("{} STOCK-LEVELs in snapshots had to be run again, by {threads} threads", sum.read_reruns),
        })
    };
    sums.iter().find_map(of_snapshots)
}

#[cfg(test)]
mod tests {
    use drtm_htm::Stats;

    use super::*;
    use crate::rates::Rates;

    fn sum(reruns: u64) -> Sum {
        let rates = Rates::of(vec![1.0]);
        Sum { rates, ended: vec![10, 0, 0, 0, 30], conflicts: 60, read_reruns: reruns, regions: Stats::default() }
    }

    #[test]
    fn a_refused_snapshot_is_a_failure_and_a_refused_validation_is_not() {
        let sums = |of_snapshots, of_others| vec![(2, vec![sum(of_snapshots), sum(of_others), sum(of_others)])];
        assert!(aborted_in_snapshots(&sums(0, 7)).is_none());
        let failure = aborted_in_snapshots(&sums(3, 0)).expect("refused");
        assert!(failure.to_string().contains("3 STOCK-LEVELs") && failure.exit_status() == 1, "{failure}");
    }

    #[test]
    fn rates_are_of_attempts() {
        assert_eq!(
            (sum(10).abort_rate(), abort_rate_of_reads(&sum(10)), abort_rate_of_reads(&sum(0))),
            (0.6, 0.25, 0.0)
        );
    }
}
