//! HADES' Figs. 12 to 15: other networks, shares of local requests, larger clusters, and several
//! workloads at a time.

use drtm_report::{
    chart::{Axis, Scale as AxisScale},
    units::Quantity,
};

use super::{
    effort::Effort,
    hades_protocols::{MEANS, TIMES, ratios, singles},
    hades_runs::{App, Cluster, PROTOCOLS, Varied},
    panel::{Curve, Kind, Measured, Panel, Published, Study},
    seeds::medians,
};
use crate::Error;

pub(super) const STUDIES: &[Study] = &[
    Study { panels: &[NETWORKS], measure: |effort| medians(&effort.of_usual_seeds(1), networks) },
    Study { panels: &[LOCAL], measure: |effort| medians(&effort.of_usual_seeds(1), local) },
    Study { panels: &[TEN_NODES], measure: |effort| medians(&effort.of_usual_seeds(1), ten_nodes) },
    Study { panels: &[PAIRS], measure: |effort| medians(&effort.of_usual_seeds(1), pairs) },
    Study { panels: &[MIXES], measure: |effort| medians(&effort.of_usual_seeds(1), mixes) },
];

const LATENCY: Axis = Axis { title: "round trip", quantity: Quantity::Microseconds, scale: AxisScale::Linear };
const SHARE: Axis = Axis { title: "local requests", quantity: Quantity::Percent, scale: AxisScale::Linear };

const SOFTWARE: &str = "software";
const SERIES: [&str; 3] = [SOFTWARE, "HADES", "HADES-H"];

const NETWORKS: Panel = Panel {
    name: "hades-fig12a",
    title: "HADES Fig. 12a: throughput by the network's round trip, over software with 2 us",
    x: Some(LATENCY),
    y: Axis { title: "over software, 2 us", quantity: Quantity::Ratio, scale: AxisScale::Linear },
    published: &[Published::at(SOFTWARE, 2, 1.0)],
    note: "Means over all workloads. The text gives no values: the faster the network, the more HADES and HADES-H \
           are to be ahead.",
};

const LOCAL: Panel = Panel {
    name: "hades-fig12b",
    title: "HADES Fig. 12b: throughput by the share of local requests, over software with 20 %",
    x: Some(SHARE),
    y: Axis { title: "over software, 20 %", quantity: Quantity::Ratio, scale: AxisScale::Linear },
    published: &[Published::at(SOFTWARE, 20, 1.0)],
    note: "Means over all workloads. The text gives no values: with more local requests, HADES is to be further \
           ahead, and HADES-H less. Of TPC-C, it is the share of items, and of TATP that of subscribers.",
};

const TEN_NODES: Panel = Panel {
    name: "hades-fig13",
    title: "HADES Fig. 13: throughput over software, 10 nodes of 5 cores",
    x: None,
    y: TIMES,
    published: &[],
    note: "The text gives no values: they are to be similar to those of 5 nodes.",
};

const PAIRS: Panel = Panel {
    name: "hades-fig14",
    title: "HADES Fig. 14: throughput of two workloads together over software, 5 nodes of 10 cores",
    x: None,
    y: TIMES,
    published: &[],
    note: "Committed transactions of both. The text names no pairs, and gives no values.",
};

const MIXES: Panel = Panel {
    name: "hades-fig15",
    title: "HADES Fig. 15: throughput of four workloads together over software, 8 nodes of 25 cores",
    x: None,
    y: TIMES,
    published: &[Published::of(MEANS[0], 2.9), Published::of(MEANS[1], 2.1)],
    note: "Committed transactions of all four workloads, which are those of Table V.",
};

/// Workloads at a time.
struct Mix {
    series: [&'static str; 2],
    apps: &'static [App],
}

macro_rules! mix {
    ($name:literal: $($app:ident),+) => {
        Mix { series: [concat!($name, ": HADES"), concat!($name, ": HADES-H")], apps: &[$(App::$app),+] }
    };
}

/// Each workload once, but for one: chosen here.
const TWO: [Mix; 5] = [
    mix!("HT-wA, TPC-C": HT_A, TPCC),
    mix!("Map-wA, TATP": MAP_A, TATP),
    mix!("BTree-wA, HT-wB": BTREE_A, HT_B),
    mix!("B+Tree-wA, SmallBank": BPLUS_A, BANK),
    mix!("Map-wB, BTree-wB": MAP_B, BTREE_B),
];

/// Table V.
const FOUR: [Mix; 8] = [
    mix!("mix1": HT_A, BTREE_A, MAP_A, TATP),
    mix!("mix2": MAP_A, TATP, BPLUS_B, MAP_B),
    mix!("mix3": BPLUS_A, MAP_B, BANK, BTREE_B),
    mix!("mix4": BANK, BTREE_B, TPCC, TATP),
    mix!("mix5": TPCC, HT_B, BANK, BTREE_A),
    mix!("mix6": BPLUS_B, BANK, TPCC, TATP),
    mix!("mix7": TPCC, TATP, BTREE_B, MAP_A),
    mix!("mix8": BTREE_B, MAP_A, HT_A, BTREE_A),
];

fn networks(effort: &Effort) -> Result<Measured, Error> {
    let of = |cluster: Cluster, us: u16| Cluster {
        varied: Varied { network: f64::from(us) / 2.0, ..Varied::NOTHING },
        ..cluster
    };
    by_settings(effort, 2, [1, 2, 3], of, "each workload alone, with round trips of 1, 2 and 3 us")
}

fn local(effort: &Effort) -> Result<Measured, Error> {
    let of = |cluster: Cluster, share: u16| Cluster { local: Some(share as u8), ..cluster };
    by_settings(effort, 20, [20, 50, 80], of, "each workload alone, with three shares of local requests")
}

/// Measures the throughput of all workloads in several settings. Of each, it is divided by that of
/// the software in one of these, and the mean is of that.
fn by_settings(
    effort: &Effort,
    base: u16,
    settings: [u16; 3],
    setting: impl Fn(Cluster, u16) -> Cluster,
    what: &str,
) -> Result<Measured, Error> {
    let cluster = Cluster::new(effort, 1_500);
    let mut sums = [[0.0; 3]; 3];
    let apps = App::all(effort);
    for app in apps {
        let mut rates = [[0.0; 3]; 3];
        for (rates, protocol) in rates.iter_mut().zip(PROTOCOLS) {
            for (rate, at) in rates.iter_mut().zip(settings) {
                *rate = setting(cluster, at).run(effort, &[*app], protocol)?.figures[0];
            }
        }
        let software = settings.iter().zip(rates[0]).find(|(at, _)| **at == base).map_or(1.0, |(_, rate)| rate);
        let cells = sums.iter_mut().flatten().zip(rates.into_iter().flatten());
        cells.for_each(|(sum, rate)| *sum += rate / software / apps.len() as f64);
    }
    let curve = |(series, means): (&'static str, [f64; 3])| {
        Curve::new(series, Kind::Simulated, settings.map(usize::from).into_iter().zip(means))
    };
    let curves = vec![SERIES.into_iter().zip(sums).map(curve).collect()];
    Ok(Measured { curves, source: cluster.source(what), failure: None })
}

fn ten_nodes(effort: &Effort) -> Result<Measured, Error> {
    let cluster = Cluster { nodes: 10, ..Cluster::new(effort, 2_000) };
    let ratios = App::all(effort).iter().map(|app| Ok((app.series, ratios(effort, &cluster, &[*app])?)));
    let curves = vec![singles(&ratios.collect::<Result<Vec<_>, Error>>()?, |ratios| ratios[0])];
    Ok(Measured { curves, source: cluster.source("each workload alone"), failure: None })
}

fn pairs(effort: &Effort) -> Result<Measured, Error> {
    together(effort, Cluster { cores: 10, ..Cluster::new(effort, 3_000) }, &TWO, "two workloads at a time")
}

fn mixes(effort: &Effort) -> Result<Measured, Error> {
    let usual = Cluster::new(effort, 500);
    // Each of four workloads has a quarter of the usual rows, so that there are as many in all.
    let rows = if effort.is_full { usual.rows } else { usual.rows.quarter() };
    let cluster = Cluster { nodes: 8, cores: 25, rows, ..usual };
    together(effort, cluster, &FOUR, "four workloads at a time")
}

fn together(effort: &Effort, cluster: Cluster, mixes: &[Mix], what: &str) -> Result<Measured, Error> {
    // A quick run tries one.
    let mixes = if effort.is_quick { &mixes[..1] } else { mixes };
    let ratios = mixes.iter().map(|mix| Ok((mix.series, ratios(effort, &cluster, mix.apps)?)));
    let curves = vec![singles(&ratios.collect::<Result<Vec<_>, Error>>()?, |ratios| ratios[0])];
    Ok(Measured { curves, source: cluster.source(what), failure: None })
}
