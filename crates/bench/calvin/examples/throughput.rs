//! Simulates Calvin's TPC-C on some nodes: transactions a second, with batches of some lengths.
//!
//! `cargo run --release --package drtm-calvin --example throughput -- 6 200` has six nodes and 200
//! transactions a batch. Without numbers, it has the clusters of DrTM's Fig. 16.

use std::{env, error::Error, sync::Arc};

use drtm_calvin::{
    Plan, simulate,
    tpcc::{Tpcc, violations},
};
use drtm_rdma::{NicProfile, SimConfig};
use drtm_tpcc::Scale;

fn main() -> Result<(), Box<dyn Error>> {
    let numbers = env::args().skip(1).map(|number| number.parse()).collect::<Result<Vec<u32>, _>>()?;
    let (nodes, batches) = match numbers[..] {
        [nodes, batch] => (u16::try_from(nodes)?..=u16::try_from(nodes)?, vec![batch]),
        _ => (1..=6, vec![200, 2_000]),
    };
    for nodes in nodes {
        for batch in &batches {
            let plan = Plan { nodes, batch: *batch, backlog: 2_000, ..Plan::DEFAULT };
            let scale = Scale::new(nodes * plan.workers)?.with_customers(60)?.with_items(2_000)?;
            let (tpcc, stores) = Tpcc::load(scale, 0, nodes)?;
            let tpcc = Arc::new(tpcc);
            let inputs = Tpcc::inputs(&tpcc, stores)?;
            let outcome = simulate(Arc::clone(&tpcc), &plan, SimConfig::new(&NicProfile::CONNECTX_3), inputs)?;
            let (rate, aborted) = (outcome.per_second(), outcome.aborted);
            let violated = violations(&tpcc, &outcome.rows)?.len();
            println!(
                "SIMULATED: {nodes} nodes, {batch} a batch: {rate:.0} transactions/s; {aborted} aborted, {violated} \
                 conditions violated"
            );
        }
    }
    Ok(())
}
