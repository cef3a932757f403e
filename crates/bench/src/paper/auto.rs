//! Not of a paper: the protocol that chooses its forms at run time, beside the fixed ones, on a
//! simulated cluster. It is to be as fast as the best of them, whichever that is.

use std::{num::NonZeroU64, time::Duration};

use drtm_rdma::{NicProfile, Transport};
use drtm_txn::cluster::Protocol;

use super::{
    effort::Effort,
    entries::PER_SECOND,
    panel::{Curve, Found, Kind, Measured, Panel, Study},
    simulated::throughput,
};
use crate::{
    Error,
    drive::cluster::{ClusterWorkload, Length, Plan, ProtocolOf},
    smallbank::{Hot, SmallBank},
    tpcc::{Chances, Distributed, MixName, Scale},
    tpce::CustomerPosition,
};

pub(super) const STUDIES: &[Study] = &[
    Study { panels: &[TPCC_3], measure: |effort| tpcc(effort, &NicProfile::CONNECTX_3) },
    Study { panels: &[BANK_3], measure: |effort| bank(effort, &NicProfile::CONNECTX_3) },
    Study { panels: &[POSITION_3], measure: |effort| positions(effort, &NicProfile::CONNECTX_3, false) },
    Study { panels: &[CHANGING_3], measure: |effort| positions(effort, &NicProfile::CONNECTX_3, true) },
    Study { panels: &[TPCC_4], measure: |effort| tpcc(effort, &NicProfile::CONNECTX_4) },
    Study { panels: &[BANK_4], measure: |effort| bank(effort, &NicProfile::CONNECTX_4) },
    Study { panels: &[POSITION_4], measure: |effort| positions(effort, &NicProfile::CONNECTX_4, false) },
    Study { panels: &[CHANGING_4], measure: |effort| positions(effort, &NicProfile::CONNECTX_4, true) },
];

const fn panel(name: &'static str, title: &'static str) -> Panel {
    let note = "Not of a paper. \"auto\" is to be at most 5 % slower than the fastest of the others.";
    Panel { name, title, x: None, y: PER_SECOND, published: &[], note }
}

const TPCC_3: Panel = panel("auto-cx3a", "Forms chosen at run time, on ConnectX-3: TPC-C's NEW-ORDER");
const BANK_3: Panel = panel("auto-cx3b", "Forms chosen at run time, on ConnectX-3: SmallBank");
const POSITION_3: Panel = panel("auto-cx3c", "Forms chosen at run time, on ConnectX-3: customer-position");
const CHANGING_3: Panel = panel("auto-cx3d", "Forms chosen at run time, on ConnectX-3: changing from reads to writes");
const TPCC_4: Panel = panel("auto-cx4a", "Forms chosen at run time, on ConnectX-4: TPC-C's NEW-ORDER");
const BANK_4: Panel = panel("auto-cx4b", "Forms chosen at run time, on ConnectX-4: SmallBank");
const POSITION_4: Panel = panel("auto-cx4c", "Forms chosen at run time, on ConnectX-4: customer-position");
const CHANGING_4: Panel = panel("auto-cx4d", "Forms chosen at run time, on ConnectX-4: changing from reads to writes");

/// The size of a simulated cluster.
struct Size {
    nodes: u16,
    threads: u16,
    coroutines: u16,
    warm: Duration,
    counted: Duration,
}

impl Size {
    fn of(effort: &Effort) -> Self {
        let micros = Duration::from_micros;
        match effort.is_quick {
            true => Self { nodes: 2, threads: 2, coroutines: 2, warm: micros(500), counted: micros(1_000) },
            false => Self { nodes: 4, threads: 8, coroutines: 4, warm: micros(4_000), counted: micros(12_000) },
        }
    }

    fn clients(&self) -> u16 {
        self.nodes * self.threads * self.coroutines
    }
}

fn tpcc(effort: &Effort, profile: &'static NicProfile) -> Result<Measured, Error> {
    let size = Size::of(effort);
    let items = if effort.is_quick { 100 } else { 1_000 };
    let scale = Scale::new(size.clients())?.with_customers(10)?.with_items(items)?;
    let chances = Chances { remote_item: 100, ..Chances::STANDARD };
    let workload = Distributed::new(scale, MixName::NewOrder, chances, effort.seed, NonZeroU64::MIN);
    measured(effort, &size, profile, &workload.with_uniform_items(), "all items from other warehouses")
}

fn bank(effort: &Effort, profile: &'static NicProfile) -> Result<Measured, Error> {
    let size = Size::of(effort);
    let of_thread = if effort.is_quick { 1_000 } else { 10_000 };
    let workload = SmallBank::new(of_thread * u64::from(size.nodes * size.threads), Hot::DrtmH, effort.seed)?;
    measured(effort, &size, profile, &workload, "4 % of the customers have 90 % of the transactions")
}

fn positions(effort: &Effort, profile: &'static NicProfile, changes: bool) -> Result<Measured, Error> {
    let size = Size::of(effort);
    let of_thread = if effort.is_quick { 20 } else { 200 };
    let workload = CustomerPosition::new(of_thread * u32::from(size.nodes * size.threads), 0, effort.seed)?;
    if changes {
        let workload = workload.only_feeds_after(size.warm + size.counted / 2);
        return measured(effort, &size, profile, &workload, "in the second half, all transactions change prices");
    }
    measured(effort, &size, profile, &workload, "prices do not change")
}

fn measured<W: ClusterWorkload>(
    effort: &Effort,
    size: &Size,
    profile: &'static NicProfile,
    workload: &W,
    what: &str,
) -> Result<Measured, Error> {
    let Size { nodes, threads, coroutines, warm, counted } = *size;
    let backups = 2.min(nodes - 1);
    let value = |protocol: Protocol| {
        let (protocol, length) = (ProtocolOf(protocol), Length::Window { warm, counted });
        let (seed, memory) = (effort.seed, 1 << 30);
        let plan = Plan { nodes, threads, coroutines, protocol, backups, length, seed, memory, warms: true };
        let y = throughput(effort, workload, &plan, (profile, Transport::Datagrams))?;
        Ok(Curve { series: protocol.0.name, found: Found::Points { kind: Kind::Simulated, points: vec![(None, y)] } })
    };
    let curves = Protocol::ALL.into_iter().map(value).collect::<Result<_, Error>>()?;
    let [warm, counted] = [warm, counted].map(|time| time.as_micros() as f64 / 1_000.0);
    let source = format!(
        "SIMULATED in virtual time: {nodes} nodes of {threads} threads with {coroutines} coroutines, {}; {warm} ms to \
         warm up, {counted} ms counted; logs to {backups} backups; {what}",
        profile.name
    );
    Ok(Measured { curves: vec![curves], source, failure: None })
}
