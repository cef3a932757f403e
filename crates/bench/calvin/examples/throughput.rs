//! Simulates Calvin's TPC-C on some nodes: transactions a second, with batches of some lengths.
//!
//! `cargo run --release --package drtm-calvin --example throughput -- 6 200 5` has six nodes, 200
//! transactions a batch, and 5 us of the kernel's TCP at each end of a message. Without numbers, it
//! has clusters of 1 to 6 nodes, with batches of 200 and of 4,000.

use std::{env, error::Error, sync::Arc, time::Duration};

use drtm_calvin::{
    Plan, simulate,
    tpcc::{Tpcc, violations},
};
use drtm_rdma::{NicProfile, SimConfig};
use drtm_tpcc::Scale;

fn main() -> Result<(), Box<dyn Error>> {
    let numbers = env::args().skip(1).map(|number| number.parse()).collect::<Result<Vec<u32>, _>>()?;
    let (nodes, batches, tcp) = match numbers[..] {
        [nodes, batch, tcp] => (u16::try_from(nodes)?..=u16::try_from(nodes)?, vec![batch], tcp),
        _ => (1..=6, vec![200, 4_000], 5),
    };
    for nodes in nodes {
        for batch in &batches {
            let plan =
                Plan { nodes, batch: *batch, backlog: 8_000, tcp: Duration::from_micros(tcp.into()), ..Plan::DEFAULT };
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
