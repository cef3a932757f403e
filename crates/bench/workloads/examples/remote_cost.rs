//! Whole transactions over three nodes, in one thread on a simulated fabric: for counting the
//! instructions of their coordinators and of the nodes that serve them. See `scripts/request-cost`.
//!
//! ```text
//! remote_cost new-order|smallbank COUNT [PROTOCOL [BACKUPS [FABRIC]]]
//! ```
//!
//! Each node runs `COUNT` transactions, one at a time. All items of an order come from other
//! warehouses. The protocol is `fasst` if none is named, and there are no backups. With a fabric of
//! processes, `shm` or `tcp`, the time of a transaction is measured and printed.

use std::{env, num::NonZeroU64, process::ExitCode};

use drtm_drive::{
    FabricName, Plain,
    cluster::{ClusterWorkload, Length, Plan, run as run_on, run_as_member, run_member, simulate},
};
use drtm_rdma::{Atomicity, NicProfile, SimConfig};
use drtm_tpcc::{Chances, Distributed, MixName, Scale, Supply};
use drtm_txn::cluster::Protocol;
use drtm_workloads::smallbank::{Hot, SmallBank};

type Failure = Box<dyn std::error::Error>;

const NODES: u16 = 3;
const SEED: u64 = 1;
const USAGE: &str =
    "usage: remote_cost new-order|smallbank COUNT [PROTOCOL [BACKUPS [FABRIC]]], such as `new-order 100 drtm+h`";

fn run_all(workload: &impl ClusterWorkload, fabric: Option<FabricName>, plan: &Plan) -> Result<(), Failure> {
    let gathered = match fabric {
        Some(fabric) => run_on::<Plain, _>(workload, fabric, plan)?,
        None => {
            let config = SimConfig::new(&NicProfile::CONNECTX_4).atomicity(Atomicity::Global);
            simulate::<Plain, _>(workload, plan, config)?
        }
    };
    if let Some(first) = gathered.violations.first() {
        return Err(first.clone().into());
    }
    if fabric.is_some() {
        let Length::Transactions(count) = plan.length else { return Ok(()) };
        println!("{:.2} us", gathered.tally.nanos as f64 / 1_000.0 / count as f64);
    }
    Ok(())
}

fn run(arguments: &[String]) -> Result<(), Failure> {
    let (name, count) = (arguments.first().ok_or(USAGE)?, arguments.get(1).ok_or(USAGE)?.parse()?);
    let protocol = arguments.get(2).map_or(Some(Protocol::FASST), |name| Protocol::named(name)).ok_or(USAGE)?;
    let backups = arguments.get(3).map_or(Ok(0), |backups| backups.parse())?;
    let fabric = arguments.get(4).map(|name| name.parse::<FabricName>()).transpose()?;
    let (threads, coroutines, seed, memory, warms) = (1, 1, SEED, 1 << 30, true);
    let (protocol, length) = (protocol.into(), Length::Transactions(count));
    let plan = Plan { nodes: NODES, threads, coroutines, protocol, backups, length, seed, memory, warms };
    match name.as_str() {
        "new-order" => {
            let scale = Scale::new(NODES)?.with_customers(10)?.with_items(1_000)?;
            let chances = Chances { remote_item: 100, ..Chances::STANDARD };
            let tpcc = Distributed::<Supply>::new(scale, MixName::NewOrder, chances, SEED, NonZeroU64::MIN);
            run_all(&tpcc.with_uniform_items(), fabric, &plan)
        }
        "smallbank" => run_all(&SmallBank::new(10_000, Hot::DrtmH, SEED)?, fabric, &plan),
        _ => Err(USAGE.into()),
    }
}

fn main() -> ExitCode {
    let member = run_as_member(|name| match name {
        <Distributed<Supply>>::MEMBER => Some(run_member::<Distributed<Supply>>()),
        SmallBank::MEMBER => Some(run_member::<SmallBank>()),
        _ => None,
    });
    if let Some(code) = member {
        return code;
    }
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("remote_cost: {error}");
            ExitCode::FAILURE
        }
    }
}
