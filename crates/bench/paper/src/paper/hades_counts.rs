//! HADES' section VIII-C: squashes by evictions, and false positives of filters; and how much its
//! ratios depend on constants.

use drtm_rdma::machine::{Counts, Replacement};
use drtm_report::{
    chart::{Axis, Scale as AxisScale},
    units::Quantity,
};

use super::{
    effort::Effort,
    hades_protocols::{TIMES, ratios},
    hades_runs::{App, Cluster, PROTOCOLS, Rows, Varied},
    panel::{Curve, Kind, Measured, Panel, Published, Study},
    seeds::medians,
};
use crate::Error;

pub(super) const STUDIES: &[Study] = &[
    Study { panels: &[EVICTIONS], measure: |effort| medians(&effort.of_usual_seeds(1), evictions) },
    Study { panels: &[FALSE], measure: |effort| medians(&effort.of_usual_seeds(1), false_positives) },
    Study { panels: &[VARIED], measure: |effort| medians(&effort.of_usual_seeds(1), varied) },
];

const OF_RUNS: Axis = Axis { title: "runs squashed", quantity: Quantity::FalsePositives, scale: AxisScale::Linear };
const OF_CHECKS: Axis = Axis { title: "of all checks", quantity: Quantity::FalsePositives, scale: AxisScale::Linear };
const FACTOR: Axis = Axis { title: "of the constant", quantity: Quantity::Percent, scale: AxisScale::Linear };

const MEANS: [&str; 2] = ["mean", "mean, any line evicted"];

const EVICTIONS: Panel = Panel {
    name: "hades-evictions",
    title: "HADES section VIII-C: runs of transactions that are squashed by evictions, all requests local",
    x: None,
    y: OF_RUNS,
    published: &[Published::of(MEANS[0], 0.1), Published::of("TPC-C", 0.7)],
    note: "One node of a cluster with the published number of rows, of which it has a fifth. As in the paper, a line \
           that a transaction under way has written is evicted only if its set has no other; beside it, by age alone.",
};

const FALSE: Panel = Panel {
    name: "hades-false",
    title: "HADES section VIII-C: detections of conflicts that are false positives",
    x: None,
    y: OF_CHECKS,
    published: &[Published::of("HADES", 0.04), Published::of("HADES-H", 0.02)],
    note: "Of all workloads together: checks of a written line against a pair of filters.",
};

const VARIED: Panel = Panel {
    name: "hades-vary",
    title: "HADES: throughput over software, with each constant varied by a quarter",
    x: Some(FACTOR),
    y: TIMES,
    published: &[],
    note: "Means over TPC-C, TATP and SmallBank, in which no row is hot. Network: the round trip. Instructions: the cycles of each. \
           Memory: the last-level cache and memory. Posting: a processor's part of requests. NIC: verbs and messages.",
};

fn evictions(effort: &Effort) -> Result<Measured, Error> {
    let full = Rows::FULL;
    let fifth = Rows {
        records: full.records / 5,
        subscribers: full.subscribers / 5,
        customers: full.customers / 5,
        items: full.items / 5,
    };
    let usual = Cluster::new(effort, 5_000);
    let rows = if effort.is_quick { usual.rows } else { fifth };
    let alone = Cluster { nodes: 1, local: Some(100), rows, ..usual };
    let series = [
        ["HT-wA", "HT-wA, any line evicted"],
        ["TPC-C", "TPC-C, any line evicted"],
        ["TATP", "TATP, any line evicted"],
        ["SmallBank", "SmallBank, any line evicted"],
        MEANS,
    ];
    let mut shares = Vec::new();
    for app in App::FEW {
        let mut of_app = [0.0; 2];
        for (share, replacement) in of_app.iter_mut().zip([Replacement::SparesWritten, Replacement::Lru]) {
            let counts = Cluster { replacement, ..alone }.run(effort, &[app], PROTOCOLS[1])?.of_machines.counts;
            *share = percent(counts.evictions, counts.begun);
        }
        shares.push(of_app);
    }
    let mean = |of: usize| shares.iter().map(|shares| shares[of]).sum::<f64>() / shares.len() as f64;
    shares.push([mean(0), mean(1)]);
    let curves = series
        .into_iter()
        .zip(&shares)
        .flat_map(|(series, shares)| [0, 1].map(|of| Curve::single(series[of], Kind::Simulated, shares[of])));
    let curves = vec![curves.collect()];
    Ok(Measured { curves, source: alone.source("each workload alone, all requests local"), failure: None })
}

fn false_positives(effort: &Effort) -> Result<Measured, Error> {
    let cluster = Cluster::new(effort, 2_000);
    let [_, hades, hybrid] = PROTOCOLS;
    let mut curves = Vec::new();
    for (series, protocol) in [("HADES", hades), ("HADES-H", hybrid)] {
        let mut counts = Counts::default();
        for app in App::all(effort) {
            counts += cluster.run(effort, &[*app], protocol)?.of_machines.counts;
        }
        curves.push(Curve::single(series, Kind::Simulated, percent(counts.false_positives, counts.checks)));
    }
    Ok(Measured { curves: vec![curves], source: cluster.source("each workload alone"), failure: None })
}

fn percent(part: u64, of: u64) -> f64 {
    100.0 * part as f64 / of.max(1) as f64
}

/// Where rows are hot, a short window varies by more than a constant does.
const VARIED_APPS: [App; 3] = [App::TPCC, App::TATP, App::BANK];

/// A constant that is varied.
type Constant = ([&'static str; 2], fn(f64) -> Varied);

fn varied(effort: &Effort) -> Result<Measured, Error> {
    let constants: [Constant; 5] = [
        (["network: HADES", "network: HADES-H"], |network| Varied { network, ..Varied::NOTHING }),
        (["instructions: HADES", "instructions: HADES-H"], |instructions| Varied { instructions, ..Varied::NOTHING }),
        (["memory: HADES", "memory: HADES-H"], |memory| Varied { memory, ..Varied::NOTHING }),
        (["posting: HADES", "posting: HADES-H"], |posting| Varied { posting, ..Varied::NOTHING }),
        (["NIC: HADES", "NIC: HADES-H"], |nic| Varied { nic, ..Varied::NOTHING }),
    ];
    let cluster = Cluster::new(effort, 750);
    let mean = |varied: Varied| {
        let mut means = [0.0; 2];
        for app in VARIED_APPS {
            let [throughput, ..] = ratios(effort, &Cluster { varied, ..cluster }, &[app])?;
            means.iter_mut().zip(throughput).for_each(|(mean, ratio)| *mean += ratio / VARIED_APPS.len() as f64);
        }
        Ok::<_, Error>(means)
    };
    let plain = mean(Varied::NOTHING)?;
    let mut curves = Vec::new();
    for (series, vary) in constants {
        let [less, more] = [mean(vary(0.75))?, mean(vary(1.25))?];
        for (of, series) in series.into_iter().enumerate() {
            let points = [(75, less[of]), (100, plain[of]), (125, more[of])];
            curves.push(Curve::new(series, Kind::Simulated, points));
        }
    }
    Ok(Measured { curves: vec![curves], source: cluster.source("each workload alone"), failure: None })
}
