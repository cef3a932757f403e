//! HADES' Figs. 3 and 9 to 11: HADES, HADES-H and transactions by software, on a simulated cluster
//! of machines.
//!
//! Nothing is tuned to these figures: see `docs/hades.md` for what is charged, and where it is
//! from.

use drtm_rdma::Overhead;
use drtm_report::{
    chart::{Axis, Scale as AxisScale},
    units::Quantity,
};

use super::{
    effort::Effort,
    hades_runs::{App, Cluster, PROTOCOLS},
    panel::{Curve, Kind, Measured, Panel, Published, Study},
    seeds::medians,
};
use crate::Error;

pub(super) const STUDIES: &[Study] = &[
    Study { panels: &[OVERHEADS], measure: |effort| medians(&effort.of_usual_seeds(1), overheads) },
    Study { panels: &[THROUGHPUT, MEAN, TAIL], measure: |effort| medians(&effort.of_usual_seeds(1), protocols) },
];

const PERCENT: Axis = Axis { title: "share of time", quantity: Quantity::Percent, scale: AxisScale::Linear };
const WRITES: Axis = Axis { title: "requests that write", quantity: Quantity::Percent, scale: AxisScale::Linear };

const ALL: &str = "all";
const SETS: &str = "read and write sets";
const VERSIONS: &str = "versions";
const WHOLE: &str = "atomicity of reads";
const BEFORE: &str = "reads before writes";
const CONFLICTS: &str = "detection of conflicts";

const OVERHEADS: Panel = Panel {
    name: "hades-fig3",
    title: "HADES Fig. 3: overheads of transactions by software, hash table, 5 requests, by the share of writes",
    x: Some(WRITES),
    y: PERCENT,
    published: &[Published::at(ALL, 100, 59.0), Published::at(ALL, 50, 65.0), Published::at(ALL, 0, 71.0)],
    note: "Shares of a transaction's time. The paper measured 4 nodes of 48 cores with ConnectX-4; this is the machine \
           of the other figures. Reads before writes and detection of conflicts are rounds of requests, with waiting \
           for them and for the processor; sets, versions and atomicity are counted instructions.",
};

pub(super) const TIMES: Axis = Axis { title: "over software", quantity: Quantity::Ratio, scale: AxisScale::Linear };

/// The means over workloads, with each protocol.
pub(super) const MEANS: [&str; 2] = ["mean: HADES", "mean: HADES-H"];

const THROUGHPUT: Panel = Panel {
    name: "hades-fig9",
    title: "HADES Fig. 9: throughput over that of transactions by software",
    x: None,
    y: TIMES,
    published: &[Published::of(MEANS[0], 2.7), Published::of(MEANS[1], 2.3)],
    note: "TPC-C is NEW-ORDER with all items remote. Map and BTree are rows of the hash table, found by walks through \
           trees of the client's node. The text gives the means alone. Rows are read one after the other, and whole.",
};

const MEAN: Panel = Panel {
    name: "hades-fig10",
    title: "HADES Fig. 10: mean latency over that of transactions by software",
    published: &[Published::of(MEANS[0], 0.40), Published::of(MEANS[1], 0.46)],
    ..THROUGHPUT
};

const TAIL: Panel = Panel {
    name: "hades-fig11",
    title: "HADES Fig. 11: 95th percentile of latencies over that of transactions by software",
    published: &[],
    ..THROUGHPUT
};

fn overheads(effort: &Effort) -> Result<Measured, Error> {
    let cluster = Cluster::new(effort, 2_500);
    let longer = Cluster { counted: 2 * cluster.counted, ..cluster };
    let [software, ..] = PROTOCOLS;
    let mut found = Vec::new();
    for writes in [100, 50, 0] {
        let app = App::writing(writes);
        let once = cluster.run(effort, &[app], software)?;
        let twice = longer.run(effort, &[app], software)?;
        // What the longer run has more, it has for transactions. It is half as long again as its
        // window, like the other.
        let more_time = 1.5 * cluster.clients() * cluster.counted.as_secs_f64();
        let share = |of: Overhead| {
            let [more, less] = [&twice, &once].map(|run| run.of_machines.overheads[of as usize]);
            100.0 * more.saturating_sub(less).as_secs_f64() / more_time
        };
        let [sets, versions, whole] =
            [Overhead::ManageSets, Overhead::UpdateVersion, Overhead::ReadAtomicity].map(share);
        let [executing, conflicts] = twice.waited;
        let shares = [sets, versions, whole, executing * f64::from(writes) / 100.0, conflicts];
        found.push((usize::from(writes), shares));
    }
    let curve =
        |(at, series)| Curve::new(series, Kind::Simulated, found.iter().map(|(writes, shares)| (*writes, shares[at])));
    let sums = found.iter().map(|(writes, shares)| (*writes, shares.iter().sum()));
    let mut curves = vec![Curve::new(ALL, Kind::Simulated, sums)];
    curves.extend([SETS, VERSIONS, WHOLE, BEFORE, CONFLICTS].into_iter().enumerate().map(curve));
    Ok(Measured { curves: vec![curves], source: cluster.source("a hash table, Zipf"), failure: None })
}

fn protocols(effort: &Effort) -> Result<Measured, Error> {
    // Long beside the latencies of workloads whose rows are hot, of which some are milliseconds.
    let cluster = Cluster::new(effort, 5_000);
    let ratios = App::all(effort).iter().map(|app| Ok((app.series, ratios(effort, &cluster, &[*app])?)));
    let ratios = ratios.collect::<Result<Vec<_>, Error>>()?;
    let curves = (0..3).map(|figure| singles(&ratios, |ratios| ratios[figure])).collect();
    Ok(Measured { curves, source: cluster.source("each workload alone"), failure: None })
}

/// What HADES and HADES-H give over the software: throughput, the mean latency and its 95th
/// percentile.
pub(super) type Ratios = [[f64; 2]; 3];

/// Runs workloads that share the cores, by all protocols.
pub(super) fn ratios(effort: &Effort, cluster: &Cluster, apps: &[App]) -> Result<Ratios, Error> {
    let mut figures = [[0.0; 3]; 3];
    for (figures, protocol) in figures.iter_mut().zip(PROTOCOLS) {
        *figures = cluster.run(effort, apps, protocol)?.figures;
    }
    let [software, hades, hybrid] = figures;
    Ok(std::array::from_fn(|of| [hades[of] / software[of], hybrid[of] / software[of]]))
}

/// Returns the series of two values of each of some runs, and their means.
pub(super) fn singles<T>(runs: &[([&'static str; 2], T)], values: impl Fn(&T) -> [f64; 2]) -> Vec<Curve> {
    let all = runs.iter().map(|(series, run)| (*series, values(run)));
    let means = all.clone().fold([0.0; 2], |sums, (_, of)| [sums[0] + of[0], sums[1] + of[1]]);
    let means = means.map(|sum| sum / runs.len() as f64);
    let all = all.chain([(MEANS, means)]);
    all.flat_map(|(series, values)| [0, 1].map(|of| Curve::single(series[of], Kind::Simulated, values[of]))).collect()
}
