//! DrTM, its scale-out (section 8.6) and Figs. 18b and 19, on a simulated cluster.
//!
//! Nothing is tuned to these figures: the NIC and the processors are those of
//! [`drtmh`](super::drtmh), and there is no transactional memory: rows of a transaction's own node
//! are locked one by one.

use std::{num::NonZeroU64, time::Duration};

use drtm_drive::cluster::ClusterWorkload;
use drtm_rdma::{NicProfile, Transport};
use drtm_report::{
    chart::{Axis, Scale as AxisScale},
    units::Quantity,
};
use drtm_tpcc::{Chances, Distributed, MixName, Scale, Supply};
use drtm_txn::cluster::Protocol;
use drtm_workloads::ycsb::{Hotspot, SmallRecords};

use super::{
    effort::Effort,
    entries::PER_SECOND,
    panel::{Curve, Kind, Measured, Panel, Published, Study},
    seeds::{medians, of_one_seed},
    simulated::{NARROW, Size},
};
use crate::Error;

pub(super) const STUDIES: &[Study] = &[
    Study { panels: &[SCALE_OUT], measure: |effort| medians(effort, scale_out) },
    Study { panels: &[REMOTE_ITEMS], measure: |effort| medians(effort, remote_items) },
    Study { panels: &[LEASES], measure: |effort| of_one_seed(effort, leases) },
];

const NODES: Axis = Axis { title: "nodes", quantity: Quantity::Nodes, scale: AxisScale::Linear };
const REMOTE: Axis = Axis { title: "remote items", quantity: Quantity::Percent, scale: AxisScale::Linear };
const OVER_FIRST: Axis = Axis { title: "relative to the first", quantity: Quantity::Ratio, scale: AxisScale::Linear };

pub(super) const DRTM: &str = "DrTM";

const SCALE_OUT: Panel = Panel {
    name: "drtm-s86",
    title: "DrTM 8.6: TPC-C's standard mix on 1 to 6 nodes",
    x: Some(NODES),
    y: OVER_FIRST,
    published: &[Published::at(DRTM, 6, 5.3)],
    note: "NEW-ORDER fetches its rows before it runs. The other transactions are optimistic here, and none is chopped.",
};

const REMOTE_ITEMS: Panel = Panel {
    name: "drtm-fig18b",
    title: "DrTM Fig. 18b: NEW-ORDER by how many items other warehouses supply",
    x: Some(REMOTE),
    y: OVER_FIRST,
    published: &[Published::at(DRTM, 5, 0.85), Published::at(DRTM, 100, 0.15)],
    note: "The paper's nodes commit local transactions in hardware transactions, so a remote item costs more \
           there, relative to a local one.",
};

const LEASES: Panel = Panel {
    name: "drtm-fig19",
    title: "DrTM Fig. 19: read leases on hot records",
    x: Some(NODES),
    y: PER_SECOND,
    published: &[],
    note: "The paper: leases have 1.29 times the throughput of exclusive locks on 6 nodes. A transaction writes nine \
           records, a tenth of them of another thread's warehouse, and reads one of 120 hot ones.",
};

/// Returns the size of one node. Each thread runs one transaction at a time, as in the paper.
pub(super) fn size(effort: &Effort) -> Size {
    let (threads, warm, counted) = if effort.is_quick { (2, 100, 500) } else { (8, 1_000, 3_000) };
    let (memory, zero) = (512 << 20, Duration::ZERO);
    let size = Size { nodes: 1, threads, coroutines: 1, backups: 0, memory, warm: zero, counted: zero };
    size.lasting(effort, warm, counted)
}

/// Returns how many nodes there are at most.
pub(super) fn most_nodes(effort: &Effort) -> u16 {
    if effort.is_quick { 2 } else { 6 }
}

/// Returns how many transactions such a cluster runs in a second.
pub(super) fn run<W: ClusterWorkload>(
    effort: &Effort,
    size: &Size,
    protocol: Protocol,
    workload: &W,
) -> Result<f64, Error> {
    size.run(effort, protocol, workload, (&NicProfile::CONNECTX_3, Transport::Connection))
}

pub(super) fn measured(size: &Size, curves: Vec<Curve>, scaled: &str) -> Measured {
    let cluster = format!("{} threads a node", size.threads);
    Measured { curves: vec![curves], source: size.source(&cluster, &NicProfile::CONNECTX_3, scaled), failure: None }
}

/// Runs TPC-C with a warehouse for each thread.
pub(super) fn tpcc(
    effort: &Effort,
    size: &Size,
    mix: MixName,
    chances: Chances,
) -> Result<(Distributed<Supply>, String), Error> {
    let (customers, items) = if effort.is_quick { (10, 100) } else { (60, 2_000) };
    let scale = Scale::new(size.clients())?.with_customers(customers)?.with_items(items)?;
    let scaled = format!(
        "a warehouse for each thread, scaled down to {customers} customers a district and {items} items; {NARROW}"
    );
    Ok((Distributed::new(scale, mix, chances, effort.seed, NonZeroU64::MIN), scaled))
}

/// Returns points relative to the first one.
fn over_first(points: Vec<(usize, f64)>) -> Vec<(usize, f64)> {
    let first = points.first().map_or(1.0, |(_, first)| *first);
    points.into_iter().map(|(x, y)| (x, y / first)).collect()
}

fn scale_out(effort: &Effort) -> Result<Measured, Error> {
    let (size, mut scaled, mut points) = (size(effort), String::new(), Vec::new());
    for nodes in 1..=most_nodes(effort) {
        let size = Size { nodes, ..size };
        let (workload, described) = tpcc(effort, &size, MixName::Standard, Chances::STANDARD)?;
        points.push((usize::from(nodes), run(effort, &size, Protocol::DRTM, &workload)?));
        scaled = described;
    }
    Ok(measured(&size, vec![Curve::new(DRTM, Kind::Simulated, over_first(points))], &scaled))
}

fn remote_items(effort: &Effort) -> Result<Measured, Error> {
    let size = Size { nodes: most_nodes(effort), ..size(effort) };
    let (mut scaled, mut points) = (String::new(), Vec::new());
    let remote_items: &[u8] = if effort.is_full { &[0, 1, 5, 10, 25, 50, 75, 100] } else { &[0, 1, 5, 25, 50, 100] };
    for &remote_item in remote_items {
        let chances = Chances { remote_item, ..Chances::STANDARD };
        let (workload, described) = tpcc(effort, &size, MixName::NewOrder, chances)?;
        points.push((usize::from(remote_item), run(effort, &size, Protocol::DRTM, &workload)?));
        scaled = format!("{} nodes; {described}", size.nodes);
    }
    Ok(measured(&size, vec![Curve::new(DRTM, Kind::Simulated, over_first(points))], &scaled))
}

const READERS: &[(&str, Protocol)] =
    &[("leases", Protocol::DRTM), ("locks", Protocol { name: "drtm-locks", leases: false, ..Protocol::DRTM })];

/// As DrTM 8.5 describes it: ten records, one of which is one of 120 hot ones and is only read, and
/// a tenth of the others of other warehouses.
const SHAPE: Hotspot = Hotspot { accesses: 10, hot: 120, remote: 10 };

fn leases(effort: &Effort) -> Result<Measured, Error> {
    let size = size(effort);
    let of_node: u64 = if effort.is_quick { 1_000 } else { 100_000 };
    let curve = |(name, protocol): &(&'static str, Protocol)| {
        let point = |nodes: u16| {
            let workload = SmallRecords::hotspots(of_node * u64::from(nodes), SHAPE, effort.seed)?;
            Ok((usize::from(nodes), run(effort, &Size { nodes, ..size }, *protocol, &workload)?))
        };
        let points = (1..=most_nodes(effort)).map(point).collect::<Result<Vec<_>, Error>>()?;
        Ok(Curve::new(name, Kind::Simulated, points))
    };
    let curves = READERS.iter().map(curve).collect::<Result<_, Error>>()?;
    Ok(measured(&size, curves, &format!("{of_node} records a node")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_one() {
        assert_eq!(over_first(vec![(1, 4.0), (2, 8.0), (3, 2.0)]), [(1, 1.0), (2, 2.0), (3, 0.5)]);
        assert_eq!(over_first(Vec::new()), []);
    }
}
