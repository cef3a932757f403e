//! A cluster of processes of this machine, on shared memory or connected by TCP.
//!
//! The parent starts this program once for each node, with [`MEMBER`] in its environment, and tells
//! it what to do: first which node of which run it is, and then when the next stage begins. A child
//! tells what it has done. When one process fails, all others are ended.

use std::{
    env, fs,
    io::{self, BufRead, BufReader, Read, Write},
    path::PathBuf,
    process::{Child, ChildStdin, Command, ExitCode, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_rdma::{NodeId, ShmConfig, ShmFabric, TcpFabric};
use serde::Serialize;

use super::{
    link::{Job, Order, Said, Way, failed, line, read, say},
    plan::Plan,
    stand::Stand,
    tally::{Gathered, Tally},
    threads::on_threads,
    workload::{ClusterWorkload, Sound},
};
use crate::{
    Error,
    fabric::{loopback, tcp_config},
};

/// How long a process waits for the others to be started.
const PATIENCE: Duration = Duration::from_secs(60);

/// Names the workload to a process that is one node of a cluster.
pub(crate) const MEMBER: &str = "DRTM_BENCH_MEMBER";

/// Is one node, of a cluster whose workload `run` knows by its name. Gives the process's exit
/// status.
pub(crate) fn be_a_member<W: ClusterWorkload>() -> ExitCode {
    match follow::<W>() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If the parent is gone, it cannot be told.
            let _ = say::<W::Count>(&Said::Failed(error.to_string()));
            ExitCode::FAILURE
        }
    }
}

fn follow<W: ClusterWorkload>() -> Result<(), Error> {
    let mut orders = BufReader::new(io::stdin()).lines();
    let first = orders.next().ok_or_else(|| failed("the parent said nothing"))?.map_err(failed)?;
    let Job { workload, plan, node, way } = serde_json::from_str::<Job<W>>(&first).map_err(failed)?;
    let stand = Arc::new(Stand::<W>::new(plan.threads.into(), 1, true));
    let told = Arc::clone(&stand);
    thread::spawn(move || {
        for order in orders {
            match order.map_err(failed).and_then(|order| serde_json::from_str(&order).map_err(failed)) {
                Ok(order) => told.obey(order),
                Err(error) => told.fail(error),
            }
        }
        told.fail(failed("the parent is gone"));
    });
    match way {
        Way::Shm { directory } => {
            let config = ShmConfig::new("bench", NodeId(node)).directory(&directory);
            let fabric = ShmFabric::join(NoHtm, config.calls(plan.messages()).queue_depth(plan.messages()))?;
            on_threads::<_, Sound, W>(&workload, &plan, vec![(node, fabric)], stand)?;
        }
        Way::Tcp { addresses, key, sealed } => {
            let config = tcp_config(node, &addresses, key).sealed(sealed).patience(PATIENCE);
            let config = config.calls(plan.messages()).queue_depth(plan.messages()).mailbox(plan.messages());
            let fabric = TcpFabric::join(NoHtm, config)?;
            on_threads::<_, Sound, W>(&workload, &plan, vec![(node, fabric)], stand)?;
        }
    }
    Ok(())
}

/// A directory that is removed in the end.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        // What is left there harms nothing.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The children, which end with the parent's interest in them.
struct Children(Vec<(Child, ChildStdin)>);

impl Drop for Children {
    fn drop(&mut self) {
        for (child, _) in &mut self.0 {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Children {
    fn tell<C: Serialize>(&mut self, order: &Order<C>) -> Result<(), Error> {
        let line = line(order)?;
        self.0.iter_mut().try_for_each(|(_, orders)| orders.write_all(&line)).map_err(failed)
    }

    fn start<W: ClusterWorkload>(
        &mut self,
        job: &Job<&W>,
        hear: mpsc::Sender<Result<Said<W::Count>, Error>>,
    ) -> Result<(), Error> {
        let mut child = Command::new(env::current_exe().map_err(failed)?)
            .env(MEMBER, W::MEMBER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (orders, says) = (child.stdin.take(), child.stdout.take());
        let (Some(mut orders), Some(says)) = (orders, says) else { return Err(failed("it has no pipes")) };
        let told = line(job).and_then(|line| orders.write_all(&line).map_err(failed));
        self.0.push((child, orders));
        told?;
        thread::spawn(move || {
            for said in BufReader::new(says).lines() {
                // If the parent has given up, what is said does not matter.
                let _ = hear.send(said.map_err(failed).and_then(|said| read(&said)));
            }
            let _ = hear.send(Err(failed("it has ended too early")));
        });
        Ok(())
    }
}

/// Runs a workload on a process for each node, which share memory.
pub(super) fn on_shm<W: ClusterWorkload>(workload: &W, plan: &Plan) -> Result<Gathered<W::Count>, Error> {
    let directory = Directory(unused());
    run(workload, plan, &Way::Shm { directory: directory.0.clone() })
}

/// Runs a workload on a process for each node, which are connected by TCP, with a key of this run.
pub(super) fn on_tcp<W: ClusterWorkload>(workload: &W, plan: &Plan, sealed: bool) -> Result<Gathered<W::Count>, Error> {
    let mut key = [0; 32];
    fs::File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut key)).map_err(failed)?;
    run(workload, plan, &Way::Tcp { addresses: loopback(plan.nodes)?, key, sealed })
}

fn run<W: ClusterWorkload>(workload: &W, plan: &Plan, way: &Way) -> Result<Gathered<W::Count>, Error> {
    let mut children = Children(Vec::new());
    let (hear, heard) = mpsc::channel();
    for node in 0..plan.nodes {
        let job = Job { workload, plan: *plan, node, way: way.clone() };
        children.start(&job, hear.clone())?;
    }
    // What all of them say next.
    let hear_all = || (0..plan.nodes).map(|_| heard.recv().map_err(failed)?).collect::<Result<Vec<_>, _>>();
    hear_all()?;
    children.tell::<W::Count>(&Order::Run)?;
    let (mut tally, mut count) = (Tally::new(W::KINDS.len()), W::Count::default());
    for said in hear_all()? {
        let Said::Ran(of_one, counted) = said else { return Err(failed("it says what is not its turn")) };
        tally.add(&of_one);
        count += counted;
    }
    children.tell(&Order::Check(count.clone()))?;
    let mut violations = Vec::new();
    for said in hear_all()? {
        let Said::Checked(found, checked) = said else { return Err(failed("it says what is not its turn")) };
        violations.extend(found);
        count = checked.unwrap_or(count);
    }
    children.tell::<W::Count>(&Order::End)?;
    for (child, _) in &mut children.0 {
        let status = child.wait().map_err(failed)?;
        if !status.success() {
            return Err(failed(status));
        }
    }
    Ok(Gathered { tally, count, violations })
}

/// A directory that no other run has.
fn unused() -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = format!("drtm-bench-cluster-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
    env::temp_dir().join(name)
}
