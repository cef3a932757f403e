//! DrTM's Fig. 16: TPC-C on 1 to 6 nodes beside Calvin, on simulated clusters.
//!
//! Nothing is tuned to this figure. DrTM's nodes are those of its scale-out ([`drtm`]). Calvin's
//! sequencers, schedulers and workers are programs of `drtm-calvin`, on equal simulated processors
//! and wires, beside the kernel's TCP.

use std::sync::Arc;

use drtm_calvin::{
    Plan, Store, simulate,
    tpcc::{Tpcc, violations},
};
use drtm_rdma::{NicProfile, SimConfig};
use drtm_report::{
    chart::{Axis, Scale as AxisScale},
    units::Quantity,
};
use drtm_tpcc::{Chances, MixName, Scale};
use drtm_txn::cluster::Protocol;

use super::{
    drtm::{self, DRTM},
    effort::Effort,
    entries::PER_SECOND,
    panel::{Curve, Kind, Measured, Panel, Published, Study},
    seeds::medians,
    simulated::Size,
};
use crate::Error;

pub(super) const STUDIES: &[Study] = &[Study { panels: &[THROUGHPUT], measure: |effort| medians(effort, throughput) }];

const NODES: Axis = Axis { title: "nodes", quantity: Quantity::Nodes, scale: AxisScale::Linear };

const CALVIN: &str = "Calvin";
const LONGER: &str = "Calvin, longer batches";

const THROUGHPUT: Panel = Panel {
    name: "drtm-fig16a",
    title: "DrTM Fig. 16a: TPC-C's standard mix on 1 to 6 nodes, beside Calvin",
    x: Some(NODES),
    y: PER_SECOND,
    published: &[
        Published::at(DRTM, 1, 0.7e6),
        Published::at(DRTM, 6, 3.75e6),
        Published::at(CALVIN, 1, 0.0217e6),
        Published::at(CALVIN, 6, 0.127e6),
    ],
    note: "Calvin sequences 200 transactions of a node in 10 ms, as its release of March 2015 is configured. With \
           longer batches, it has up to 8,000 of a node under way. The time of the kernel's TCP is assumed.",
};

/// Returns Calvin's cluster.
fn plan(effort: &Effort, nodes: u16) -> Plan {
    match effort.is_quick {
        true => Plan { nodes, workers: 2, batch: 20, epochs: 3, warm: 1, ..Plan::DEFAULT },
        false => Plan { nodes, ..Plan::DEFAULT },
    }
}

/// Returns such a cluster in which sequencers are no limit. It runs for a shorter time, as it runs
/// more transactions.
fn longer(plan: Plan) -> Plan {
    let batch = 20 * plan.batch;
    Plan { batch, backlog: u64::from(2 * batch), epochs: 6.min(plan.epochs), ..plan }
}

/// Calvin's nodes, loaded.
struct Loaded {
    tpcc: Arc<Tpcc>,
    stores: Vec<Store>,
}

impl Loaded {
    fn new(effort: &Effort, plan: &Plan) -> Result<Self, Error> {
        let (customers, items) = if effort.is_quick { (10, 100) } else { (60, 2_000) };
        let scale = Scale::new(plan.nodes * plan.workers)?.with_customers(customers)?.with_items(items)?;
        let (tpcc, stores) = Tpcc::load(scale, effort.seed, plan.nodes)?;
        Ok(Self { tpcc: Arc::new(tpcc), stores })
    }

    /// Returns how many transactions such a cluster runs in a second. All conditions must hold.
    fn run(&self, effort: &Effort, plan: &Plan) -> Result<f64, Error> {
        let inputs = Tpcc::inputs(&self.tpcc, self.stores.clone())?;
        let config = SimConfig::new(effort.profile(&NicProfile::CONNECTX_3)).seed(effort.seed);
        let outcome = simulate(Arc::clone(&self.tpcc), plan, config, inputs)?;
        if let Some(first) = violations(&self.tpcc, &outcome.rows)?.first() {
            return Err(Error::Figure { figure: THROUGHPUT.name, what: first.clone() });
        }
        Ok(outcome.per_second())
    }
}

fn throughput(effort: &Effort) -> Result<Measured, Error> {
    let (size, most) = (drtm::size(effort), drtm::most_nodes(effort));
    let (mut scaled, mut points) = (String::new(), [Vec::new(), Vec::new(), Vec::new()]);
    // The points between are DrTM's scale-out, and Calvin's are on a line.
    let mut nodes = vec![1, most.div_ceil(2), most];
    nodes.dedup();
    for nodes in nodes {
        let (size, plan) = (Size { nodes, ..size }, plan(effort, nodes));
        let (workload, described) = drtm::tpcc(effort, &size, MixName::Standard, Chances::STANDARD)?;
        let mut add = |series: usize, found| points[series].push((usize::from(nodes), found));
        add(0, drtm::run(effort, &size, Protocol::DRTM, &workload)?);
        let calvin = Loaded::new(effort, &plan)?;
        add(1, calvin.run(effort, &plan)?);
        if [1, most].contains(&nodes) {
            add(2, calvin.run(effort, &longer(plan))?);
        }
        scaled = described;
    }
    let curves = [DRTM, CALVIN, LONGER].into_iter().zip(points);
    let curves = curves.map(|(series, points)| Curve::new(series, Kind::Simulated, points)).collect();
    let epochs = plan(effort, 1).counted().as_millis() / Plan::DEFAULT.epoch.as_millis();
    Ok(drtm::measured(&size, curves, &format!("{scaled}; of Calvin, {epochs} epochs of 10 ms")))
}
