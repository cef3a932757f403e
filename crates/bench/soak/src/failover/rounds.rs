//! Simulated clusters, one after the other, whose nodes crash, stall and are cut off.

use std::{
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use drtm_drive::{Progress, scatter::scatter};
use drtm_htm::NoHtm;
use drtm_rdma::{NicProfile, NodeId};
use drtm_txn::Config;
use fastrand::Rng;

use super::tally::Tally;
use crate::{
    Error,
    lasting::{
        bank::Shape,
        simulated::{Cluster, Way},
    },
};

/// Nodes of each cluster that end, one after the other.
const ENDS: u16 = 3;

/// How long one cluster may take, in real time.
const MOST: Duration = Duration::from_secs(300);

/// Clients of each node.
const COROUTINES: u64 = 2;

/// How long a cluster may take until a node is out, or all is repaired, in virtual time.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long a process takes to start, at least, in virtual time.
const STARTING: Duration = Duration::from_millis(1);

/// How many leases a node stands still, or is cut off.
const AWAY: u32 = 20;

/// What befalls a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Crashes,
    Stalls,
    IsCutOff,
}

/// Simulates clusters until a moment: one at least. Each has a thread of its own, so that one that
/// does not end, in whatever way, is noticed.
pub(super) fn soak<S: Config<Engine = NoHtm>>(
    shape: Shape,
    (profile, is_lossy): (&'static NicProfile, bool),
    seed: u64,
    end: Instant,
) -> Result<Tally, Error> {
    let mut tally = Tally::default();
    let _progress = Progress::spinner("simulating");
    for round in 0.. {
        let seed = scatter(seed).wrapping_add(round);
        let is_rough = is_lossy && round.is_multiple_of(2);
        let way = Way { seed, profile, threads: 1, coroutines: COROUTINES, is_rough, is_recorded: true };
        let (sender, receiver) = channel();
        let simulated = move || {
            // If this has taken too long, nothing receives it any more.
            let _ = sender.send(self::round::<S>(shape, way));
        };
        thread::Builder::new().spawn(simulated).map_err(drtm_drive::Error::Thread)?;
        match receiver.recv_timeout(MOST) {
            Ok(counted) => tally.add(counted?),
            // The panic's text is on stderr.
            Err(RecvTimeoutError::Disconnected) => tally.is_odd(format!("seed {seed}: it has panicked")),
            Err(RecvTimeoutError::Timeout) => tally.is_stuck(format!("seed {seed}: no end after {MOST:?}")),
        }
        if Instant::now() >= end || tally.wrong.is_any() {
            // A thread that does not end is left alone.
            break;
        }
    }
    Ok(tally)
}

/// Simulates one cluster.
fn round<S: Config<Engine = NoHtm>>(shape: Shape, way: Way) -> Result<Tally, Error> {
    let (seed, mut tally) = (way.seed, Tally::default());
    let mut cluster = Cluster::<S>::start(shape, way)?;
    let mut random = Rng::with_seed(seed);
    let first = random.u16(0..shape.nodes());
    for number in 0..ENDS {
        cluster.run_for(Duration::from_nanos(random.u64(100_000..1_500_000)));
        let node = NodeId((first + number) % shape.nodes());
        let end = match random.u8(0..4) {
            0 => End::Stalls,
            1 => End::IsCutOff,
            _ => End::Crashes,
        };
        let ended = match end {
            End::Crashes => crash(&mut cluster, shape, node, &mut random, &mut tally)?,
            End::Stalls | End::IsCutOff => silence(&mut cluster, shape, (node, end), &mut random, &mut tally)?,
        };
        if let Err(finding) = ended {
            cluster.is_stuck(format!("{finding}, after {number} others, in {}", cluster.view()));
            break;
        }
    }
    let (acknowledged, wrong, findings) = cluster.settle();
    tally.acknowledged += acknowledged;
    tally.wrong += wrong;
    tally.findings.extend(findings.into_iter().map(|finding| format!("seed {seed}: {finding}")));
    Ok(tally)
}

/// Crashes a node, and starts it again. Returns what does not end.
fn crash<S: Config<Engine = NoHtm>>(
    cluster: &mut Cluster<S>,
    shape: Shape,
    node: NodeId,
    random: &mut Rng,
    tally: &mut Tally,
) -> Result<Result<(), String>, Error> {
    let died = cluster.elapsed();
    cluster.crash(node)?;
    tally.kills += 1;
    // Some are back before their death is known, or at once.
    let away = if random.bool() { random.u64(0..5_000_000) } else { random.u64(0..4) * 100_000 };
    cluster.run_for(Duration::from_nanos(away));
    cluster.restart(node)?;
    tally.restarts += 1;
    if node.0 < shape.owners {
        if !cluster.until(PATIENCE, |cluster| cluster.served_since(died, node).is_some()) {
            return Ok(Err(format!("rows of {node}, which crashed, are not served")));
        }
        tally.failovers.extend(cluster.served_since(died, node).map(|served| served - died));
    }
    Ok(is_back(cluster, node))
}

/// Waits until a node that was started again is back.
fn is_back<S: Config<Engine = NoHtm>>(cluster: &Cluster<S>, node: NodeId) -> Result<(), String> {
    let since = cluster.elapsed();
    if !cluster.until(PATIENCE, Cluster::is_whole) {
        return Err(format!("the cluster is not repaired after the end of {node}"));
    }
    match cluster.until(PATIENCE, |cluster| cluster.has_served(node, since)) {
        true => Ok(()),
        false => Err(format!("no client of {node} goes on after its return")),
    }
}

/// Lets a node be silent for longer than its lease, perhaps with another one, and starts it again
/// if it finds itself out. Returns what does not end.
fn silence<S: Config<Engine = NoHtm>>(
    cluster: &mut Cluster<S>,
    shape: Shape,
    (node, end): (NodeId, End),
    random: &mut Rng,
    tally: &mut Tally,
) -> Result<Result<(), String>, Error> {
    let mut silent = vec![node];
    let lasts = AWAY * shape.lease;
    if end == End::Stalls {
        tally.pauses += 1;
        cluster.pause(node, lasts)?;
    } else {
        tally.partitions += 1;
        // A client can be on the side of a minority, too. Clients count among the nodes that are
        // lost at a time: with one backup, an owner is lost alone.
        let client = NodeId(shape.owners + random.u16(0..shape.clients));
        let may_be_two = shape.backups > 1 || node.0 >= shape.owners;
        if random.bool() && client != node && may_be_two {
            silent.push(client);
        }
        cluster.cut_off(&silent, lasts)?;
    }
    cluster.run_for(lasts);
    for &node in &silent {
        let goes_on = cluster.elapsed();
        // Where the others have not changed the view meanwhile, it goes on.
        if !cluster.until(PATIENCE, |cluster| cluster.is_out(node) || cluster.has_served(node, goes_on)) {
            return Ok(Err(format!("{node}, which was silent, neither finds itself out nor goes on")));
        }
        if !cluster.is_out(node) {
            cluster.is_heard(node);
            continue;
        }
        cluster.crash(node)?;
        cluster.run_for(STARTING);
        cluster.restart(node)?;
        tally.restarts += 1;
    }
    Ok(silent.into_iter().try_for_each(|node| is_back(cluster, node)))
}
