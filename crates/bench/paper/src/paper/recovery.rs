//! What a crash of an owner costs on a simulated cluster: throughput over time, as FaRM shows it,
//! and how long until the shards of the owner are served again.

use std::time::Duration;

use drtm_drive::Plain;
use drtm_rdma::{NicProfile, NodeId};
use drtm_report::{
    chart::{Axis, Scale},
    units::Quantity,
};
use drtm_soak::lasting::{
    bank::Shape,
    percentiles,
    simulated::{Cluster, Way},
};
use drtm_txn::cluster::Protocol;

use super::{
    effort::Effort,
    entries::PER_SECOND,
    panel::{Curve, Found, Kind, Measured, Panel, Published, Study},
};
use crate::Error;

pub(super) const STUDIES: &[Study] = &[Study { panels: &[THROUGHPUT, TIMES], measure }];

const NODES: u16 = 6;
const BACKUPS: u16 = 2;
const LEASE: Duration = Duration::from_millis(5);

/// Over how long throughput is averaged.
const BUCKET: Duration = Duration::from_millis(1);

/// How long a change of the view, and the copies of rows, may take.
const PATIENCE: Duration = Duration::from_millis(500);

const TIME: Axis = Axis { title: "time", quantity: Quantity::Microseconds, scale: Scale::Linear };
const FAILOVER: Axis = Axis { title: "failover", quantity: Quantity::Microseconds, scale: Scale::Linear };

/// Where FaRM's text says "less than 50 ms".
const TAIL: &str = "p99";

const THROUGHPUT: Panel = Panel {
    name: "drtm-recovery",
    title: "Throughput through the crash of an owner, on ConnectX-4",
    x: Some(TIME),
    y: PER_SECOND,
    published: &[],
    note: "Transfers between accounts, in buckets of 1 ms. Marked are the moments of the crash, of the first view \
           without the owner, and of the view in which each shard has as many replicas again. The owner does not \
           come back, so that a sixth of all clients is gone.",
};

const TIMES: Panel = Panel {
    name: "drtm-recovery-times",
    title: "From a crash until the shards of the owner are served again, on ConnectX-4",
    x: None,
    y: FAILOVER,
    published: &[Published::of(TAIL, 50_000.0)],
    note: "Until the first transaction that began after the crash, on a row that the owner served, is acknowledged. \
           FaRM (SOSP 2015) recovers in less than 50 ms, with leases of 5 ms, on 90 machines.",
};

/// How large the clusters are, and how many owners crash.
struct Size {
    threads: u16,
    coroutines: u64,
    accounts: u64,
    /// Before the crash, and after the repair.
    around: Duration,
    crashes: u64,
}

impl Size {
    fn of(effort: &Effort) -> Self {
        let (threads, coroutines, accounts, ms, crashes) = match (effort.is_quick, effort.is_full) {
            (true, _) => (1, 2, 300, 3, 2),
            (_, true) => (4, 8, 60_000, 20, 120),
            _ => (2, 2, 6_000, 5, 12),
        };
        Self { threads, coroutines, accounts, around: Duration::from_millis(ms), crashes }
    }
}

/// A run through a crash, and what it has shown.
struct Crash {
    /// The moments of the crash, of the view without the owner, and of the repair.
    moments: [Duration; 3],
    /// When the owner's shards were served again.
    served: Duration,
    /// Transfers that were acknowledged, by buckets from the beginning of what is shown.
    buckets: Vec<u64>,
}

/// Runs a cluster through the crash of an owner. All checks must hold at the end.
fn crash(effort: &Effort, size: &Size, (node, seed): (NodeId, u64)) -> Result<Crash, Error> {
    let (protocol, clients, accounts) = (Protocol::DRTM_H, 0, size.accounts);
    let shape = Shape { owners: NODES, clients, backups: BACKUPS, protocol, lease: LEASE, accounts };
    let way = Way {
        seed,
        profile: effort.profile(&NicProfile::CONNECTX_4),
        threads: size.threads,
        coroutines: size.coroutines,
        is_rough: false,
        is_recorded: false,
    };
    let mut cluster = Cluster::<Plain>::start(shape, way)?;
    // Places of other nodes' rows are learnt.
    cluster.run_for(size.around);
    let begins = cluster.elapsed();
    cluster.run_for(size.around);
    let crashed = cluster.elapsed();
    cluster.crash(node)?;
    if !cluster.until(PATIENCE, |cluster| !cluster.has(node)) {
        cluster.is_stuck(format!("the view still has {node}, which has crashed"));
    }
    let changed = cluster.elapsed();
    if !cluster.until(PATIENCE, Cluster::is_whole) {
        cluster.is_stuck(format!("shards of {node}, which has crashed, are not repaired"));
    }
    let repaired = cluster.elapsed();
    if !cluster.until(PATIENCE, |cluster| cluster.served_since(crashed, node).is_some()) {
        cluster.is_stuck(format!("shards of {node}, which has crashed, are not served"));
    }
    let served = cluster.served_since(crashed, node).unwrap_or(cluster.elapsed());
    cluster.run_for(size.around);
    let shown = cluster.elapsed() - begins;
    let mut buckets = vec![0; (shown.as_nanos() / BUCKET.as_nanos()) as usize];
    for ended in cluster.acknowledged().iter().filter_map(|one| one.ended.checked_sub(begins)) {
        if let Some(bucket) = buckets.get_mut((ended.as_nanos() / BUCKET.as_nanos()) as usize) {
            *bucket += 1;
        }
    }
    let (_, wrong, findings) = cluster.settle();
    if let Some(first) = findings.first().filter(|_| wrong.is_any()) {
        return Err(drtm_drive::Error::Inconsistent { violations: findings.len(), first: first.clone() }.into());
    }
    let moments = [crashed, changed, repaired].map(|moment| moment - begins);
    Ok(Crash { moments, served: served - crashed, buckets })
}

fn measure(effort: &Effort) -> Result<Measured, Error> {
    let size = Size::of(effort);
    // Not the leader of the view.
    let Crash { moments, buckets, .. } = crash(effort, &size, (NodeId(NODES / 2), effort.seed))?;
    let rate = |bucket: usize| buckets.get(bucket).map_or(0.0, |count| *count as f64 / BUCKET.as_secs_f64());
    let at = |bucket: usize| bucket * BUCKET.as_micros() as usize;
    let mut throughput =
        vec![Curve::new("throughput", Kind::Simulated, (0..buckets.len()).map(|bucket| (at(bucket), rate(bucket))))];
    throughput.extend(["crash", "new view", "repaired"].into_iter().zip(moments).map(|(series, moment)| {
        let bucket = (moment.as_nanos() / BUCKET.as_nanos()) as usize;
        Curve::new(series, Kind::Simulated, [(moment.as_micros() as usize, rate(bucket))])
    }));
    let small = Size { threads: 1, coroutines: 2, accounts: 600, around: Duration::from_millis(2), ..size };
    let mut served = Vec::new();
    for number in 0..small.crashes {
        // The leader of the view, too.
        let node = NodeId((number % u64::from(NODES)) as u16);
        served.push(crash(effort, &small, (node, effort.seed + number))?.served);
    }
    let times = ["p50", TAIL].into_iter().zip(percentiles(&served, [50.0, 99.0]));
    let times = times.map(|(series, time)| {
        let time = time.unwrap_or_default().as_nanos() as f64 / 1e3;
        Curve { series, found: Found::Points { kind: Kind::Simulated, points: vec![(None, time)] } }
    });
    let source = format!(
        "SIMULATED in virtual time: {NODES} nodes of {} threads with {} coroutines, {}, by DrTM+H with {BACKUPS} \
         backups, leases of {} ms; {} accounts; for the times, {} clusters of a thread with 2 coroutines on each \
         node, of which each owner crashes in turn",
        size.threads,
        size.coroutines,
        NicProfile::CONNECTX_4.name,
        LEASE.as_millis(),
        size.accounts,
        small.crashes
    );
    Ok(Measured { curves: vec![throughput, times.collect()], source, failure: None })
}
