//! DrTM+H, Figs. 7, 10, 11, 14 and 17: which primitive serves which phase, on a simulated cluster.
//!
//! Nothing is tuned to these figures: NICs and processors are calibrated from measurements of
//! primitives (see `docs/figures.md`), and what comes out for transactions is a prediction.

use std::{num::NonZeroU64, time::Duration};

use drtm_drive::cluster::{ClusterWorkload, ProtocolOf};
use drtm_rdma::{NicProfile, Transport};
use drtm_report::{
    chart::{Axis, Scale as AxisScale},
    units::Quantity,
};
use drtm_tpcc::{Chances, Distributed, MixName, Scale, Supply};
use drtm_txn::cluster::{Form, Protocol};
use drtm_workloads::{
    smallbank::{Hot, SmallBank},
    tpce::CustomerPosition,
};

use super::{
    effort::Effort,
    entries::PER_SECOND,
    panel::{Curve, Kind, Measured, Panel, Study},
    seeds::of_one_seed,
    simulated::{NARROW, Size},
};
use crate::Error;

pub(super) const STUDIES: &[Study] = &[
    Study {
        panels: &[EXECUTION_TPCC],
        measure: |effort| of_one_seed(effort, |effort| tpcc(effort, &NicProfile::CONNECTX_4, EXECUTION)),
    },
    Study {
        panels: &[EXECUTION_BANK],
        measure: |effort| of_one_seed(effort, |effort| bank(effort, &NicProfile::CONNECTX_4, EXECUTION)),
    },
    Study {
        panels: &[LOGGING_TPCC],
        measure: |effort| of_one_seed(effort, |effort| tpcc(effort, &NicProfile::CONNECTX_4, LOGGING)),
    },
    Study {
        panels: &[LOGGING_BANK],
        measure: |effort| of_one_seed(effort, |effort| bank(effort, &NicProfile::CONNECTX_4, LOGGING)),
    },
    Study {
        panels: &[READ_ONLY],
        measure: |effort| of_one_seed(effort, |effort| positions(effort, &NicProfile::CONNECTX_4)),
    },
    Study {
        panels: &[DESIGNS_TPCC],
        measure: |effort| of_one_seed(effort, |effort| tpcc(effort, &NicProfile::CONNECTX_4, DESIGNS)),
    },
    Study {
        panels: &[DESIGNS_BANK],
        measure: |effort| of_one_seed(effort, |effort| bank(effort, &NicProfile::CONNECTX_4, DESIGNS)),
    },
    Study {
        panels: &[OLDER_TPCC],
        measure: |effort| of_one_seed(effort, |effort| tpcc(effort, &NicProfile::CONNECTX_3, OLDER_DESIGNS)),
    },
    Study {
        panels: &[OLDER_BANK],
        measure: |effort| of_one_seed(effort, |effort| bank(effort, &NicProfile::CONNECTX_3, OLDER_DESIGNS)),
    },
];

const COROUTINES: Axis =
    Axis { title: "coroutines of a thread", quantity: Quantity::Coroutines, scale: AxisScale::Linear };

const TWO_SIDED: &str = "two-sided";
const ONE_SIDED: &str = "one-sided";
const CACHED: &str = "one-sided, cached";

/// The execution phase in three forms. The others are messages. As in the paper's measurements of
/// single phases, rows are read one after the other.
const EXECUTION: &[(&str, ProtocolOf)] = &[
    (TWO_SIDED, ProtocolOf::in_turn(TWO_SIDED, PASSIVE)),
    (ONE_SIDED, ProtocolOf::in_turn(ONE_SIDED, Protocol { read: Form::OneSided, ..PASSIVE })),
    (CACHED, ProtocolOf::in_turn(CACHED, Protocol { read: Form::OneSided, caches: true, ..PASSIVE })),
];

const PASSIVE: Protocol = Protocol { is_passive: true, ..Protocol::FASST };

/// The logging phase in two forms.
const LOGGING: &[(&str, ProtocolOf)] = &[
    (TWO_SIDED, ProtocolOf::in_turn(TWO_SIDED, PASSIVE)),
    (ONE_SIDED, ProtocolOf::in_turn(ONE_SIDED, Protocol { log: Form::OneSided, ..PASSIVE })),
];

const FASST: (&str, ProtocolOf) = ("FaSST", ProtocolOf::in_turn("fasst-one", Protocol::FASST));
const FARM: (&str, ProtocolOf) = ("FaRM", ProtocolOf::in_turn("farm-one", Protocol::FARM));
const DRTM_R: (&str, ProtocolOf) = ("DrTM+R", ProtocolOf::DRTM_R);
const DRTM_H: (&str, ProtocolOf) = ("DrTM+H", ProtocolOf { protocol: Protocol::DRTM_H, in_turn: false });

/// Whole designs. Only DrTM+H runs transactions ahead of
/// what they read (6.1), so that reads are outstanding at the same time: the others read one row
/// after the other.
const DESIGNS: &[(&str, ProtocolOf)] = &[FASST, FARM, DRTM_R, DRTM_H];

/// On the older NIC, DrTM+H takes messages.
const OLDER_DESIGNS: &[(&str, ProtocolOf)] =
    &[FASST, FARM, DRTM_R, ("DrTM+H", ProtocolOf { protocol: PASSIVE, in_turn: false })];

const EXECUTION_TPCC: Panel = Panel {
    name: "drtmh-fig7a",
    title: "DrTM+H Fig. 7a: the execution phase of TPC-C's NEW-ORDER, always distributed",
    x: Some(COROUTINES),
    y: PER_SECOND,
    // Its text gives ratios over ranges of coroutines.
    published: &[],
    note: "The paper: one-sided with the cache has 1.26 to 1.45 times the throughput of two-sided, and two-sided up to \
           1.28 times that of one-sided without it. Rows are read one after the other. The cache has the places of \
           nearly all rows when counting begins.",
};

const EXECUTION_BANK: Panel = Panel {
    name: "drtmh-fig7b",
    title: "DrTM+H Fig. 7b: the execution phase of SmallBank",
    x: Some(COROUTINES),
    y: PER_SECOND,
    published: &[],
    note: "As in Fig. 7a. The paper's text gives no numbers for SmallBank's throughput.",
};

const LOGGING_TPCC: Panel = Panel {
    name: "drtmh-fig10a",
    title: "DrTM+H Fig. 10a: the logging phase of TPC-C's NEW-ORDER, always distributed",
    x: Some(COROUTINES),
    y: PER_SECOND,
    published: &[],
    note: "The paper: one-sided logging has 1.24 to 1.29 times the throughput of two-sided.",
};

const LOGGING_BANK: Panel = Panel {
    name: "drtmh-fig10b",
    title: "DrTM+H Fig. 10b: the logging phase of SmallBank",
    note: "The paper: one-sided logging has 1.10 to 1.12 times the throughput of two-sided.",
    ..LOGGING_TPCC
};

const READ_ONLY: Panel = Panel {
    name: "drtmh-fig11",
    title: "DrTM+H Fig. 11: read-only transactions, TPC-E's customer-position",
    note: "The paper: one-sided has about 1.10 times the throughput of two-sided, and about 1.20 times with the cache. \
           Rows are read one after the other.",
    ..LOGGING_TPCC
};

const DESIGNS_TPCC: Panel = Panel {
    name: "drtmh-fig14a",
    title: "DrTM+H Fig. 14a: designs, on TPC-C's NEW-ORDER, always distributed",
    x: Some(COROUTINES),
    y: PER_SECOND,
    published: &[],
    note: "The paper: DrTM+H has 1.41 to 2.96 times the throughput of FaSST, 1.12 to 1.89 times that of \
           DrTM+R, and 1.21 to 2.50 times that of FaRM, over 1 to 16 coroutines. Only DrTM+H reads rows at the \
           same time, as there. Simulated NIC atomics are atomic with processors' accesses. Each \
           client has a warehouse of its own, since the paper's programs do not abort on conflicts.",
};

const DESIGNS_BANK: Panel = Panel {
    name: "drtmh-fig14b",
    title: "DrTM+H Fig. 14b: designs, on SmallBank",
    x: Some(COROUTINES),
    y: PER_SECOND,
    published: &[],
    note: "As in Fig. 14a. The paper: FaSST and FaRM are about as fast, since two-sided reads are faster there.",
};

const OLDER_TPCC: Panel = Panel {
    name: "drtmh-fig17a",
    title: "DrTM+H Fig. 17a: designs on ConnectX-3, TPC-C's NEW-ORDER",
    x: Some(COROUTINES),
    y: PER_SECOND,
    published: &[],
    note: "The paper, from fast to slow: DrTM+H, which uses messages there, FaSST, FaRM, DrTM+R.",
};

const OLDER_BANK: Panel =
    Panel { name: "drtmh-fig17b", title: "DrTM+H Fig. 17b: designs on ConnectX-3, SmallBank", ..OLDER_TPCC };

/// Returns the size with one coroutine.
fn size(effort: &Effort, profile: &NicProfile) -> Size {
    let is_older = profile.name == NicProfile::CONNECTX_3.name;
    let (nodes, threads) = match (effort.is_quick, effort.is_full) {
        (true, _) => (2, 2),
        (_, true) => (16, 24),
        _ => (4, 24),
    };
    // All clients begin at the same moment. A window of little more than a latency counts too many
    // ends, or too few. With ConnectX-3, transactions take longer.
    let (warm, counted) = match (effort.is_quick, effort.is_full, is_older) {
        (true, ..) => (100, 500),
        (_, true, _) => (2_000, 5_000),
        (_, _, true) => (1_500, 3_000),
        (_, _, false) => (750, 1_500),
    };
    // Logs are in three memories.
    let (backups, memory, zero) = (2.min(nodes - 1), 1 << 30, Duration::ZERO);
    let size = Size { nodes, threads, coroutines: 1, backups, memory, warm: zero, counted: zero };
    size.lasting(effort, warm, counted)
}

fn coroutines(effort: &Effort) -> Vec<u16> {
    let usual = match (effort.is_quick, effort.is_full) {
        (true, _) => vec![1, 4],
        (_, true) => vec![1, 2, 4, 8, 10, 16],
        _ => vec![1, 10],
    };
    effort.coroutines.clone().unwrap_or(usual)
}

fn tpcc(
    effort: &Effort,
    profile: &'static NicProfile,
    series: &[(&'static str, ProtocolOf)],
) -> Result<Measured, Error> {
    let size = size(effort, profile);
    // Fewer orders than those of ten customers a district would share leaves with other warehouses'
    // orders, and insertions would conflict: 41 for each NEW-ORDER with two customers.
    let (customers, stocks) = (10, if effort.is_quick { 4_000 } else { 384_000 });
    let workload = |coroutines: u16| {
        let warehouses = Size { coroutines, ..size }.clients();
        let scale = Scale::new(warehouses)?.with_customers(customers)?.with_items(stocks / u32::from(warehouses))?;
        let chances = Chances { remote_item: 100, ..Chances::STANDARD };
        let workload = Distributed::<Supply>::new(scale, MixName::NewOrder, chances, effort.seed, NonZeroU64::MIN);
        // As likely to conflict as the specification's choice among a hundred times as many rows.
        Ok(workload.with_uniform_items())
    };
    let scaled = format!(
        "a warehouse for each coroutine, scaled down to {customers} customers a district and to {stocks} rows of stock \
         in all, equally likely; {NARROW}"
    );
    curves(effort, &size, profile, series, workload, &scaled)
}

fn bank(
    effort: &Effort,
    profile: &'static NicProfile,
    series: &[(&'static str, ProtocolOf)],
) -> Result<Measured, Error> {
    // These transactions are short.
    let size = size(effort, profile).of_a_third(effort);
    let (of_thread, hot) = if effort.is_quick { (1_000, 4) } else { (1_600, 25) };
    let customers = of_thread * u64::from(size.nodes * size.threads);
    let workload = SmallBank::new(customers, Hot::DrtmH, effort.seed)?.with_hot_share(hot)?;
    let scaled = format!(
        "scaled down to {of_thread} customers for each thread, of which {hot} % have 90 % of the transactions: as many \
         as 4 % of {}",
        of_thread * u64::from(hot) / 4
    );
    curves(effort, &size, profile, series, |_| Ok(workload.clone()), &scaled)
}

/// Measures customer-position alone: nothing changes prices.
fn positions(effort: &Effort, profile: &'static NicProfile) -> Result<Measured, Error> {
    let size = size(effort, profile);
    let of_thread = if effort.is_quick { 20 } else { 50 };
    let customers = of_thread * u32::from(size.nodes * size.threads);
    let workload = CustomerPosition::new(customers, 0, effort.seed)?;
    let scaled = format!("scaled down to {of_thread} customers for each thread; prices do not change");
    curves(effort, &size, profile, EXECUTION, |_| Ok(workload), &scaled)
}

fn curves<W: ClusterWorkload>(
    effort: &Effort,
    size: &Size,
    profile: &'static NicProfile,
    series: &[(&'static str, ProtocolOf)],
    workload: impl Fn(u16) -> Result<W, Error>,
    scaled: &str,
) -> Result<Measured, Error> {
    let curve = |(name, protocol): &(&'static str, ProtocolOf)| {
        let point = |coroutines: u16| {
            // As in the paper, messages are datagrams.
            let nic = (profile, Transport::Datagrams);
            let y = Size { coroutines, ..*size }.run(effort, *protocol, &workload(coroutines)?, nic)?;
            Ok((usize::from(coroutines), y))
        };
        let points = coroutines(effort).into_iter().map(point).collect::<Result<Vec<_>, Error>>()?;
        Ok(Curve::new(name, Kind::Simulated, points))
    };
    let curves = series.iter().map(curve).collect::<Result<_, Error>>()?;
    let cluster = format!("{} nodes of {} threads", size.nodes, size.threads);
    Ok(Measured { curves: vec![curves], source: size.source(&cluster, profile, scaled), failure: None })
}
