//! DrTM+H, Figs. 7, 10, 11, 14 and 17: which primitive serves which phase, on a simulated cluster.
//!
//! Nothing is tuned to these figures: NICs and processors are calibrated from measurements of
//! primitives (see `docs/figures.md`), and what comes out for transactions is a prediction.

use std::{num::NonZeroU64, time::Duration};

use drtm_rdma::NicProfile;
use drtm_txn::cluster::{Form, Protocol};

use super::{
    effort::Effort,
    entries::PER_SECOND,
    panel::{Curve, Kind, Measured, Panel, Study},
    simulated::throughput,
};
use crate::{
    Error,
    drive::cluster::{ClusterWorkload, Length, Plan, ProtocolOf},
    report::chart::{Axis, Scale as AxisScale},
    smallbank::{Hot, SmallBank},
    tpcc::{Chances, Distributed, MixName, Scale},
    tpce::CustomerPosition,
    units::Quantity,
};

pub(super) const STUDIES: &[Study] = &[
    Study { panels: &[EXECUTION_TPCC], measure: |effort| tpcc(effort, &NicProfile::CONNECTX_4, EXECUTION) },
    Study { panels: &[EXECUTION_BANK], measure: |effort| bank(effort, &NicProfile::CONNECTX_4, EXECUTION) },
    Study { panels: &[LOGGING_TPCC], measure: |effort| tpcc(effort, &NicProfile::CONNECTX_4, LOGGING) },
    Study { panels: &[LOGGING_BANK], measure: |effort| bank(effort, &NicProfile::CONNECTX_4, LOGGING) },
    Study { panels: &[READ_ONLY], measure: |effort| positions(effort, &NicProfile::CONNECTX_4) },
    Study { panels: &[DESIGNS_TPCC], measure: |effort| tpcc(effort, &NicProfile::CONNECTX_4, DESIGNS) },
    Study { panels: &[DESIGNS_BANK], measure: |effort| bank(effort, &NicProfile::CONNECTX_4, DESIGNS) },
    Study { panels: &[OLDER_TPCC], measure: |effort| tpcc(effort, &NicProfile::CONNECTX_3, DESIGNS) },
    Study { panels: &[OLDER_BANK], measure: |effort| bank(effort, &NicProfile::CONNECTX_3, DESIGNS) },
];

const COROUTINES: Axis =
    Axis { title: "coroutines of a thread", quantity: Quantity::Coroutines, scale: AxisScale::Linear };

const TWO_SIDED: &str = "two-sided";
const ONE_SIDED: &str = "one-sided";
const CACHED: &str = "one-sided, cached";

/// The execution phase in three forms. The others are messages.
const EXECUTION: &[(&str, Protocol)] = &[
    (TWO_SIDED, Protocol { name: TWO_SIDED, ..PASSIVE }),
    (ONE_SIDED, Protocol { name: ONE_SIDED, read: Form::OneSided, ..PASSIVE }),
    (CACHED, Protocol { name: CACHED, read: Form::OneSided, caches: true, ..PASSIVE }),
];

const PASSIVE: Protocol = Protocol { is_passive: true, ..Protocol::FASST };

/// The logging phase in two forms.
const LOGGING: &[(&str, Protocol)] =
    &[(TWO_SIDED, PASSIVE), (ONE_SIDED, Protocol { name: ONE_SIDED, log: Form::OneSided, ..PASSIVE })];

/// Whole designs, and the protocol that chooses its forms.
const DESIGNS: &[(&str, Protocol)] = &[
    ("FaSST", Protocol::FASST),
    ("FaRM", Protocol::FARM),
    ("DrTM+R", Protocol::DRTM_OCC),
    ("DrTM+H", Protocol::DRTM_H),
    ("auto", Protocol::AUTO),
];

const EXECUTION_TPCC: Panel = Panel {
    name: "drtmh-fig7a",
    title: "DrTM+H Fig. 7a: the execution phase of TPC-C's NEW-ORDER, always distributed",
    x: Some(COROUTINES),
    y: PER_SECOND,
    // Its text gives ratios over ranges of coroutines.
    published: &[],
    note: "The paper: one-sided with the cache has 1.26 to 1.45 times the throughput of two-sided, and two-sided up to \
           1.28 times that of one-sided without it. There, two-sided is a message for each record; here, one message \
           has all records of an owner, and one doorbell all lookups.",
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
           Here, one message reads all records of an owner.",
    ..LOGGING_TPCC
};

const DESIGNS_TPCC: Panel = Panel {
    name: "drtmh-fig14a",
    title: "DrTM+H Fig. 14a: designs, on TPC-C's NEW-ORDER, always distributed",
    x: Some(COROUTINES),
    y: PER_SECOND,
    published: &[],
    note: "The paper: DrTM+H has 1.41 to 2.96 times the throughput of FaSST, 1.12 to 1.89 times that of \
           DrTM+R, and 1.21 to 2.50 times that of FaRM. Simulated NIC atomics are atomic with processors' \
           accesses, so they can take locks; the paper's nodes take their own locks by the NIC, too.",
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
    note: "The paper, from slow to fast: FaSST, FaRM, DrTM+R, DrTM+H, which uses messages there. Here \
           \"DrTM+H\" is its choice for ConnectX-4; \"auto\" chooses by itself.",
};

const OLDER_BANK: Panel =
    Panel { name: "drtmh-fig17b", title: "DrTM+H Fig. 17b: designs on ConnectX-3, SmallBank", ..OLDER_TPCC };

/// Backups of each owner: logs are in three memories.
const BACKUPS: u16 = 2;

/// The size of a simulated cluster.
struct Size {
    nodes: u16,
    threads: u16,
    coroutines: &'static [u16],
    warm: Duration,
    counted: Duration,
}

impl Size {
    fn of(effort: &Effort) -> Self {
        let micros = Duration::from_micros;
        if effort.is_quick {
            return Self { nodes: 2, threads: 2, coroutines: &[1, 4], warm: micros(100), counted: micros(500) };
        }
        let nodes = if effort.is_full { 16 } else { 4 };
        Self { nodes, threads: 24, coroutines: &[1, 4, 10, 16], warm: micros(2_000), counted: micros(5_000) }
    }

    fn source(&self, profile: &NicProfile, scaled: &str) -> String {
        let Self { nodes, threads, warm, counted, .. } = self;
        let [warm, counted] = [warm, counted].map(|time| time.as_micros() as f64 / 1_000.0);
        format!(
            "SIMULATED in virtual time: {nodes} nodes of {threads} threads, {}; {warm} ms to warm up, {counted} ms \
             counted; logs to {} backups; {scaled}",
            profile.name,
            BACKUPS.min(self.nodes - 1)
        )
    }
}

fn tpcc(effort: &Effort, profile: &'static NicProfile, series: &[(&'static str, Protocol)]) -> Result<Measured, Error> {
    let size = Size::of(effort);
    let (customers, items) = if effort.is_quick { (10, 100) } else { (60, 2_000) };
    let scale = Scale::new(size.nodes * size.threads)?.with_customers(customers)?.with_items(items)?;
    let chances = Chances { remote_item: 100, ..Chances::STANDARD };
    let workload = Distributed::new(scale, MixName::NewOrder, chances, effort.seed, NonZeroU64::MIN);
    let scaled =
        format!("a warehouse for each thread, scaled down to {customers} customers a district and {items} items");
    curves(effort, &size, profile, series, &workload, &scaled)
}

fn bank(effort: &Effort, profile: &'static NicProfile, series: &[(&'static str, Protocol)]) -> Result<Measured, Error> {
    let size = Size::of(effort);
    let of_thread = if effort.is_quick { 1_000 } else { 10_000 };
    let customers = of_thread * u64::from(size.nodes * size.threads);
    let workload = SmallBank::new(customers, Hot::DrtmH, effort.seed)?;
    let scaled =
        format!("scaled down to {of_thread} customers for each thread, of which 4 % have 90 % of the transactions");
    curves(effort, &size, profile, series, &workload, &scaled)
}

/// Measures customer-position alone: nothing changes prices.
fn positions(effort: &Effort, profile: &'static NicProfile) -> Result<Measured, Error> {
    let size = Size::of(effort);
    let of_thread = if effort.is_quick { 20 } else { 200 };
    let customers = of_thread * u32::from(size.nodes * size.threads);
    let workload = CustomerPosition::new(customers, 0, effort.seed)?;
    let scaled = format!("scaled down to {of_thread} customers for each thread; prices do not change");
    curves(effort, &size, profile, EXECUTION, &workload, &scaled)
}

fn curves<W: ClusterWorkload>(
    effort: &Effort,
    size: &Size,
    profile: &'static NicProfile,
    series: &[(&'static str, Protocol)],
    workload: &W,
    scaled: &str,
) -> Result<Measured, Error> {
    let curve = |(name, protocol): &(&'static str, Protocol)| {
        let point = |coroutines: &u16| {
            let plan = Plan {
                nodes: size.nodes,
                threads: size.threads,
                coroutines: *coroutines,
                backups: BACKUPS.min(size.nodes - 1),
                protocol: ProtocolOf(*protocol),
                length: Length::Window { warm: size.warm, counted: size.counted },
                seed: effort.seed,
                memory: 1 << 30,
            };
            Ok((usize::from(*coroutines), throughput(workload, &plan, profile)?))
        };
        let points = size.coroutines.iter().map(point).collect::<Result<Vec<_>, Error>>()?;
        Ok(Curve::new(name, Kind::Simulated, points))
    };
    let curves = series.iter().map(curve).collect::<Result<_, Error>>()?;
    Ok(Measured { curves: vec![curves], source: size.source(profile, scaled), failure: None })
}
