//! Not of a paper: the protocol that chooses its forms at run time, beside the fixed ones, on a
//! simulated cluster. It is to be as fast as the best of them, whichever that is.

use std::{num::NonZeroU64, time::Duration};

use drtm_drive::cluster::ClusterWorkload;
use drtm_rdma::{NicProfile, Transport};
use drtm_tpcc::{Chances, Distributed, MixName, Scale, Supply};
use drtm_txn::cluster::Protocol;
use drtm_workloads::{
    smallbank::{Hot, SmallBank},
    tpce::CustomerPosition,
};

use super::{
    effort::Effort,
    entries::PER_SECOND,
    panel::{Curve, Found, Kind, Measured, Panel, Study},
    seeds::of_one_seed,
    simulated::{NARROW, Size},
};
use crate::Error;

pub(super) const STUDIES: &[Study] = &[
    Study { panels: &[TPCC_3], measure: |effort| of_one_seed(effort, |effort| tpcc(effort, &NicProfile::CONNECTX_3)) },
    Study { panels: &[BANK_3], measure: |effort| of_one_seed(effort, |effort| bank(effort, &NicProfile::CONNECTX_3)) },
    Study {
        panels: &[POSITION_3],
        measure: |effort| of_one_seed(effort, |effort| positions(effort, &NicProfile::CONNECTX_3, false)),
    },
    Study {
        panels: &[CHANGING_3],
        measure: |effort| of_one_seed(effort, |effort| positions(effort, &NicProfile::CONNECTX_3, true)),
    },
    Study { panels: &[TPCC_4], measure: |effort| of_one_seed(effort, |effort| tpcc(effort, &NicProfile::CONNECTX_4)) },
    Study { panels: &[BANK_4], measure: |effort| of_one_seed(effort, |effort| bank(effort, &NicProfile::CONNECTX_4)) },
    Study {
        panels: &[POSITION_4],
        measure: |effort| of_one_seed(effort, |effort| positions(effort, &NicProfile::CONNECTX_4, false)),
    },
    Study {
        panels: &[CHANGING_4],
        measure: |effort| of_one_seed(effort, |effort| positions(effort, &NicProfile::CONNECTX_4, true)),
    },
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

fn size(effort: &Effort) -> Size {
    let (nodes, threads, coroutines) = if effort.is_quick { (2, 2, 2) } else { (4, 8, 4) };
    let (warm, counted) = if effort.is_quick { (500, 1_000) } else { (4_000, 6_000) };
    let (backups, memory, zero) = (2.min(nodes - 1), 1 << 30, Duration::ZERO);
    let size = Size { nodes, threads, coroutines, backups, memory, warm: zero, counted: zero };
    size.lasting(effort, warm, counted)
}

fn tpcc(effort: &Effort, profile: &'static NicProfile) -> Result<Measured, Error> {
    let size = size(effort);
    let items = if effort.is_quick { 100 } else { 1_000 };
    let scale = Scale::new(size.clients())?.with_customers(10)?.with_items(items)?;
    let chances = Chances { remote_item: 100, ..Chances::STANDARD };
    let workload = Distributed::<Supply>::new(scale, MixName::NewOrder, chances, effort.seed, NonZeroU64::MIN);
    let what = format!("all items from other warehouses; {NARROW}");
    measured(effort, &size, profile, &workload.with_uniform_items(), &what)
}

fn bank(effort: &Effort, profile: &'static NicProfile) -> Result<Measured, Error> {
    let size = size(effort);
    let (of_thread, hot) = if effort.is_quick { (1_000, 4) } else { (1_600, 25) };
    let customers = of_thread * u64::from(size.nodes * size.threads);
    let workload = SmallBank::new(customers, Hot::DrtmH, effort.seed)?.with_hot_share(hot)?;
    let what = format!("{customers} customers, of whom {hot} % have 90 % of the transactions");
    measured(effort, &size, profile, &workload, &what)
}

fn positions(effort: &Effort, profile: &'static NicProfile, changes: bool) -> Result<Measured, Error> {
    let size = size(effort);
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
    let value = |protocol: Protocol| {
        let y = size.run(effort, protocol, workload, (profile, Transport::Datagrams))?;
        Ok(Curve { series: protocol.name, found: Found::Points { kind: Kind::Simulated, points: vec![(None, y)] } })
    };
    let curves = Protocol::ALL.into_iter().map(value).collect::<Result<_, Error>>()?;
    let Size { nodes, threads, coroutines, .. } = *size;
    let cluster = format!("{nodes} nodes of {threads} threads with {coroutines} coroutines");
    let source = size.source(&cluster, profile, what);
    Ok(Measured { curves: vec![curves], source, failure: None })
}
