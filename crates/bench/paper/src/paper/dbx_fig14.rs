//! DBX, Fig. 14: what snapshots do for long transactions that only read.

use drtm_htm::Native;
use drtm_report::{
    chart::{self, Axis},
    units::{self, Quantity},
};
use drtm_tpcc::{Chances, Kind as Transaction, MixName, READ_RERUNS, Reading, Scale, Tpcc};
use drtm_txn::DefaultConfig;

use super::{
    effort::{Effort, Sum},
    entries::{ABORT_RATE, Entry, Grid, PER_SECOND, THREADS},
    panel::{Measured, Panel, Published, Study},
};
use crate::Error;

pub(super) const STUDIES: &[Study] = &[Study { panels: &[THROUGHPUT, ABORTS, ABORTS_OF_READS, GAIN], measure }];

const RATIO: Axis = Axis { title: "over validated reads", quantity: Quantity::Ratio, scale: chart::Scale::Linear };

/// Ways to read, in the order in which they take turns.
const WAYS: [(&str, Reading); 3] =
    [(SNAPSHOT, Reading::Snapshot), (VALIDATED, Reading::Validated), (AUTO, Reading::Auto)];

const SNAPSHOT: &str = "snapshot";
const VALIDATED: &str = "validated";
const AUTO: &str = "auto";

const THROUGHPUT: Panel = Panel {
    name: "dbx-fig14a",
    title: "DBX Fig. 14: half NEW-ORDER, half STOCK-LEVEL: throughput",
    x: Some(THREADS),
    y: PER_SECOND,
    published: &[],
    note: "STOCK-LEVEL reads hundreds of rows: in a snapshot from the beginning; validated at the end, like \
           transactions that write; or as the database chooses (auto): in the present for the first thousand \
           rows, and in a snapshot afterwards or after a failure. A warehouse for two threads, as in the \
           paper. Memory is pre-faulted.",
};

const ABORTS: Panel = Panel {
    name: "dbx-fig14b",
    title: "DBX Fig. 14: abort rate of all transactions",
    x: Some(THREADS),
    y: ABORT_RATE,
    published: &[Published::at(SNAPSHOT, 8, 0.012), Published::at(VALIDATED, 8, 0.10)],
    note: "Failed attempts of both kinds of transactions, among all attempts.",
};

const ABORTS_OF_READS: Panel = Panel {
    name: "dbx-fig14c",
    title: "DBX Fig. 14: abort rate of STOCK-LEVEL",
    x: Some(THREADS),
    y: ABORT_RATE,
    published: &[],
    note: "Checked: in snapshots it is exactly zero. With auto it need not be: what was read before the \
           snapshot is opened may have changed by then.",
};

const GAIN: Panel = Panel {
    name: "dbx-fig14d",
    title: "DBX Fig. 14: throughput over that of validated reads",
    x: Some(THREADS),
    y: RATIO,
    published: &[Published::at(SNAPSHOT, 8, 1.41)],
    note: "Of medians within this run.",
};

/// Returns TPC-C with a warehouse for two threads.
fn tpcc(effort: &Effort, reading: Reading) -> impl Fn(usize) -> Result<Tpcc, Error> + use<> {
    let (seed, is_tiny) = (effort.seed, effort.is_quick);
    move |threads| {
        let scale = Scale::sized(threads.div_ceil(2), is_tiny)?;
        Ok(Tpcc::new(scale, MixName::StockLevelHalf, Chances::STANDARD, seed).reading(reading))
    }
}

fn measure(effort: &Effort) -> Result<Measured, Error> {
    let engine = Native::chosen()?;
    let pace = |threads| effort.pace_with_memory(threads);
    let entry = |(series, reading)| Entry::within::<DefaultConfig, _>(series, engine, pace, tpcc(effort, reading));
    let grid = Grid::measure(effort, &WAYS.map(entry), &effort.threads)?;
    let gain = |sum: &Sum, all: &[Option<Sum>]| {
        let validated = WAYS.iter().position(|(_, reading)| *reading == Reading::Validated)?;
        Some(sum.rates.median / all.get(validated)?.as_ref()?.rates.median)
    };
    let curves = vec![
        grid.throughput(),
        grid.curves(|sum, _| Some(sum.abort_rate())),
        grid.curves(|sum, _| Some(abort_rate_of_reads(sum))),
        grid.curves(gain),
    ];
    let source = format!("{}; the engine that this machine chooses", effort.source());
    Ok(Measured { curves, source, failure: aborted_in_snapshots(&grid.sums) })
}

fn abort_rate_of_reads(sum: &Sum) -> f64 {
    let ended = sum.ended.get(Transaction::StockLevel as usize).copied().unwrap_or(0);
    let reruns = sum.counted(READ_RERUNS);
    units::share(reruns, reruns + ended)
}

/// Returns an error if a transaction in a snapshot was refused.
fn aborted_in_snapshots(sums: &[(usize, Vec<Option<Sum>>)]) -> Option<Error> {
    let of_snapshots = |(threads, sums): &(usize, Vec<Option<Sum>>)| {
        let sum = WAYS.iter().zip(sums).find(|((_, reading), _)| *reading == Reading::Snapshot)?.1.as_ref();
        let reruns = sum.map_or(0, |sum| sum.counted(READ_RERUNS));
        (reruns > 0).then(|| Error::Figure {
            figure: ABORTS_OF_READS.name,
            what: format!("{reruns} STOCK-LEVELs in snapshots had to be run again, by {threads} threads"),
        })
    };
    sums.iter().find_map(of_snapshots)
}

#[cfg(test)]
mod tests {
    use drtm_report::Failure;

    use super::*;

    fn sum(reruns: u64) -> Sum {
        Sum::with(vec![10, 0, 0, 0, 30], 60, [(READ_RERUNS, reruns)])
    }

    #[test]
    fn a_refused_snapshot_is_a_failure_and_a_refused_validation_is_not() {
        let sums = |of_snapshots, of_others| {
            vec![(2, Vec::from([of_snapshots, of_others, of_others].map(|reruns| Some(sum(reruns)))))]
        };
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
