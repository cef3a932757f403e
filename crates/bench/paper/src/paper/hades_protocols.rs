//! HADES' Figs. 3 and 9 to 11: HADES, HADES-H and transactions by software, on a simulated cluster
//! of machines.
//!
//! Nothing is tuned to these figures: see `docs/hades.md` for what is charged, and where it is
//! from.

use std::{num::NonZeroU64, time::Duration};

use drtm_drive::{
    Plain,
    cluster::{ClusterWorkload, Length, Overheads, Plan, ProtocolOf, simulate_machines},
};
use drtm_rdma::{Atomicity, NicProfile, Overhead, Phase, SimConfig, machine::MachineProfile};
use drtm_report::{
    chart::{Axis, Scale as AxisScale},
    units::Quantity,
};
use drtm_tpcc::{Chances, Distributed, MixName, Scale, Supply};
use drtm_txn::{Conflict, cluster::Protocol};
use drtm_workloads::{
    smallbank::{Hot, SmallBank},
    ycsb::SmallRecords,
};

use super::{
    effort::Effort,
    panel::{Curve, Found, Kind, Measured, Panel, Published, Study},
};
use crate::Error;

pub(super) const STUDIES: &[Study] = &[
    Study { panels: &[OVERHEADS], measure: overheads },
    Study { panels: &[THROUGHPUT, MEAN, TAIL], measure: protocols },
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

const TIMES: Axis = Axis { title: "over software", quantity: Quantity::Ratio, scale: AxisScale::Linear };

/// The series of a panel: each workload and the mean, with each protocol.
const SERIES: [[&str; 2]; 5] = [
    ["HT-wA: HADES", "HT-wA: HADES-H"],
    ["HT-wB: HADES", "HT-wB: HADES-H"],
    ["SmallBank: HADES", "SmallBank: HADES-H"],
    ["NEW-ORDER: HADES", "NEW-ORDER: HADES-H"],
    ["mean: HADES", "mean: HADES-H"],
];
const MEANS: [&str; 2] = SERIES[4];

const THROUGHPUT: Panel = Panel {
    name: "hades-fig9",
    title: "HADES Fig. 9: throughput over that of transactions by software",
    x: None,
    y: TIMES,
    published: &[Published::of(MEANS[0], 2.7), Published::of(MEANS[1], 2.3)],
    note: "The paper's mean is of eleven workloads. Here are the ones of these that we have in this form: a hash table \
           by YCSB A and B, SmallBank, and of TPC-C NEW-ORDER with all items remote. Medians of three seeds. Rows \
           are read one after the other, and whole.",
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

/// The software, HADES and HADES-H. None waits for the end of a decided transaction, and all read
/// rows in turn.
const PROTOCOLS: [ProtocolOf; 3] = [
    ProtocolOf::in_turn("sw-impl", Protocol::SW_IMPL),
    ProtocolOf::in_turn("hades", Protocol { is_passive: true, ..Protocol::HADES }),
    ProtocolOf::in_turn("hades-h", Protocol { is_passive: true, ..Protocol::HADES_H }),
];

/// Table III: nodes, cores of each, and transactions on each core.
const NODES: u16 = 5;
const CORES: u16 = 5;
const MULTIPLEXED: u16 = 2;
const CLIENTS: f64 = (NODES * CORES * MULTIPLEXED) as f64;

/// Requests of a transaction of the hash table.
const REQUESTS: u8 = 5;

/// What a run has given.
struct Run {
    /// Transactions per second, mean latency and its 95th percentile in microseconds.
    figures: [f64; 3],
    /// The processor time of overheads, of the whole run: loading, and checking its end, too.
    overheads: Overheads,
    /// The shares of clients' time, in percent, for which they waited for the execution's rounds,
    /// and for those that detect conflicts.
    waited: [f64; 2],
}

/// The sizes, how long a run takes in virtual time, and how many seeds there are.
struct Size {
    records: u64,
    customers: u64,
    counted: Duration,
    seeds: u64,
}

impl Size {
    fn of(effort: &Effort) -> Self {
        let (records, customers, us, seeds) = match (effort.is_quick, effort.is_full) {
            (true, _) => (2_000, 2_000, 200, 1),
            // Table III and section VII.
            (_, true) => (4_000_000, 5_000_000, 20_000, 3),
            _ => (50_000, 50_000, 2_000, 3),
        };
        Self { records, customers, counted: effort.counted.unwrap_or(Duration::from_micros(us)), seeds }
    }

    fn source(&self, what: &str) -> String {
        format!(
            "SIMULATED in virtual time: {NODES} nodes of {CORES} cores with {MULTIPLEXED} transactions each, HADES' \
             Table III; {what}; {} records and {} customers; {} seeds of {} ms, and half as long before",
            self.records,
            self.customers,
            self.seeds,
            self.counted.as_micros() as f64 / 1_000.0
        )
    }
}

/// Runs a workload by a protocol, and counts for this long.
fn run<W: ClusterWorkload>(
    effort: &Effort,
    workload: &W,
    (protocol, seed): (ProtocolOf, u64),
    (size, counted): (&Size, Duration),
) -> Result<Run, Error> {
    let length = Length::Window { warm: size.counted / 2, counted };
    let memory = (1 << 28) + 1_024 * (size.records + size.customers);
    let plan = Plan {
        nodes: NODES,
        threads: CORES,
        coroutines: MULTIPLEXED,
        protocol,
        backups: 0,
        length,
        seed,
        memory,
        warms: true,
    };
    // NICs' atomics are atomic with processors', so that locks can be taken by them, as in the
    // paper.
    let config = SimConfig::new(&NicProfile::HADES).atomicity(Atomicity::Global).machine(MachineProfile::HADES);
    let (gathered, overheads) = simulate_machines::<Plain, W>(workload, &plan, config)?;
    if let [first, ..] = gathered.violations.as_slice() {
        let violations = gathered.violations.len();
        return Err(drtm_drive::Error::Inconsistent { violations, first: first.clone() }.into());
    }
    let (tally, seconds) = (&gathered.tally, counted.as_secs_f64());
    let latencies = tally.latencies();
    let figures = [tally.committed as f64 / seconds, latencies.mean(), latencies.percentile(95.0)];
    let waited = |phase| 100.0 * tally.waited(phase).as_secs_f64() / (CLIENTS * seconds);
    let waited = [waited(Phase::Execute), waited(Phase::Lock) + waited(Phase::Validate)];
    if effort.shows_phases {
        let each = |count: &u64| *count as f64 / tally.committed.max(1) as f64;
        let conflicts = Conflict::ALL.iter().zip(tally.conflicts.iter().map(each)).filter(|(_, each)| *each > 0.0);
        let conflicts: Vec<_> = conflicts.map(|(conflict, each)| format!("{conflict:?} {each:.3}")).collect();
        eprintln!("{} by {}, seed {seed}: conflicts {}", W::NAME, protocol.protocol.name, conflicts.join(", "));
    }
    Ok(Run { figures, overheads, waited })
}

fn overheads(effort: &Effort) -> Result<Measured, Error> {
    let size = Size::of(effort);
    let [software, ..] = PROTOCOLS;
    let mut found = Vec::new();
    for writes in [100, 50, 0] {
        let mut runs = Vec::new();
        for seed in effort.seed..effort.seed + size.seeds {
            let workload = SmallRecords::requests(size.records, REQUESTS, 100 - writes, seed)?;
            let once = run(effort, &workload, (software, seed), (&size, size.counted))?;
            let twice = run(effort, &workload, (software, seed), (&size, 2 * size.counted))?;
            // What the longer run has more, it has for transactions.
            let share = |of: Overhead| {
                let more = twice.overheads[of as usize].saturating_sub(once.overheads[of as usize]);
                100.0 * more.as_secs_f64() / (CLIENTS * size.counted.as_secs_f64())
            };
            let [sets, versions, whole] =
                [Overhead::ManageSets, Overhead::UpdateVersion, Overhead::ReadAtomicity].map(share);
            let [executing, conflicts] = twice.waited;
            runs.push([sets, versions, whole, executing * f64::from(writes) / 100.0, conflicts]);
        }
        let shares: [f64; 5] = std::array::from_fn(|of| median(runs.iter().map(|shares| shares[of])));
        found.push((usize::from(writes), shares));
    }
    let curve =
        |(at, series)| Curve::new(series, Kind::Simulated, found.iter().map(|(writes, shares)| (*writes, shares[at])));
    let sums = found.iter().map(|(writes, shares)| (*writes, shares.iter().sum()));
    let mut curves = vec![Curve::new(ALL, Kind::Simulated, sums)];
    curves.extend([SETS, VERSIONS, WHOLE, BEFORE, CONFLICTS].into_iter().enumerate().map(curve));
    Ok(Measured { curves: vec![curves], source: size.source("a hash table, Zipf"), failure: None })
}

fn protocols(effort: &Effort) -> Result<Measured, Error> {
    let size = Size::of(effort);
    let table = |reads| move |size: &Size, seed| Ok(SmallRecords::requests(size.records, REQUESTS, reads, seed)?);
    let bank = |size: &Size, seed| Ok(SmallBank::new(size.customers, Hot::None, seed)?);
    let orders = |_: &Size, seed| {
        let warehouses = NODES * CORES * MULTIPLEXED;
        let items = if effort.is_quick { 80 } else { 1_000 };
        let scale = Scale::new(warehouses)?.with_customers(10)?.with_items(items)?;
        let chances = Chances { remote_item: 100, ..Chances::STANDARD };
        let workload = Distributed::<Supply>::new(scale, MixName::NewOrder, chances, seed, NonZeroU64::MIN);
        Ok(workload.with_uniform_items())
    };
    let ratios = [
        ratios(effort, &size, table(50))?,
        ratios(effort, &size, table(95))?,
        ratios(effort, &size, bank)?,
        ratios(effort, &size, orders)?,
    ];
    let curves = (0..3).map(|figure| {
        let single = |(series, value): (&'static str, f64)| {
            let points = vec![(None, value)];
            Curve { series, found: Found::Points { kind: Kind::Simulated, points } }
        };
        let value = |workload: usize, protocol: usize| match ratios.get(workload) {
            Some(ratios) => ratios[figure][protocol],
            None => ratios.iter().map(|ratios| ratios[figure][protocol]).sum::<f64>() / ratios.len() as f64,
        };
        let all = SERIES.iter().enumerate().flat_map(|(workload, series)| {
            let value = &value;
            series.iter().enumerate().map(move |(protocol, series)| (*series, value(workload, protocol)))
        });
        all.map(single).collect()
    });
    let curves = curves.collect();
    let scaled = "NEW-ORDER with a warehouse for each transaction at a time, 10 customers a district, 1000 items";
    Ok(Measured { curves, source: size.source(scaled), failure: None })
}

/// Returns the throughput, the mean latency and its 95th percentile of HADES and HADES-H over those
/// of the software: medians over seeds.
fn ratios<W: ClusterWorkload>(
    effort: &Effort,
    size: &Size,
    workload: impl Fn(&Size, u64) -> Result<W, Error>,
) -> Result<[[f64; 2]; 3], Error> {
    let mut medians = [[0.0; 3]; 3];
    for (protocol, medians) in PROTOCOLS.into_iter().zip(&mut medians) {
        let mut runs = Vec::new();
        for seed in effort.seed..effort.seed + size.seeds {
            runs.push(run(effort, &workload(size, seed)?, (protocol, seed), (size, size.counted))?);
        }
        *medians = std::array::from_fn(|of| median(runs.iter().map(|run| run.figures[of])));
        if effort.shows_phases {
            let [rate, mean, tail] = *medians;
            let name = protocol.protocol.name;
            eprintln!("{} by {name}: {rate:.0} transactions/s, mean {mean:.2} us, 95 % {tail:.2} us", W::NAME);
        }
    }
    let [software, hades, hybrid] = medians;
    Ok(std::array::from_fn(|of| [hades[of] / software[of], hybrid[of] / software[of]]))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
