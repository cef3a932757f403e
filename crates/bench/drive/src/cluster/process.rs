//! A cluster of processes of this machine, on shared memory or connected by TCP.
//!
//! The parent starts this program once for each node, with [`MEMBER`] in its environment. It first
//! sends which node of which run the child is, and then when the next stage begins. A child sends
//! its counts. When one process fails, all others are ended.

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
    pipes::{FromChild, Job, ToChild, Way, failed, line, read, send_to_parent},
    places::Places,
    plan::Plan,
    stages::Stages,
    tally::{Gathered, Tally},
    threads::on_threads,
    workload::ClusterWorkload,
};
use crate::{Error, Plain, tcp_config};

/// How long a process waits for the others to be started.
const PATIENCE: Duration = Duration::from_secs(60);

/// The environment variable that names the workload to a child process.
const MEMBER: &str = "DRTM_BENCH_MEMBER";

/// Returns `None` if no other process started this one as a node of its cluster. Otherwise runs the
/// node, and returns the process's exit status: `run` gets the workload's name, and returns `None`
/// if this program has no such workload.
pub fn run_as_member(run: impl FnOnce(&str) -> Option<ExitCode>) -> Option<ExitCode> {
    let workload = env::var_os(MEMBER)?;
    Some(workload.to_str().and_then(run).unwrap_or_else(|| {
        let _ = writeln!(io::stderr(), "{MEMBER} is for the nodes of a cluster of this program: unset it");
        ExitCode::from(2)
    }))
}

/// Runs one node of a cluster in this process, and returns the process's exit status.
pub fn run_member<W: ClusterWorkload>() -> ExitCode {
    match run_child::<W>() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The parent may have ended.
            let _ = send_to_parent::<W::Count>(&FromChild::Failed(error.to_string()));
            ExitCode::FAILURE
        }
    }
}

fn run_child<W: ClusterWorkload>() -> Result<(), Error> {
    let mut messages = BufReader::new(io::stdin()).lines();
    let first = messages.next().ok_or_else(|| failed("the parent sent nothing"))?.map_err(failed)?;
    let Job { workload, plan, node, way } = serde_json::from_str::<Job<W>>(&first).map_err(failed)?;
    let stages = Arc::new(Stages::<W>::new(plan.threads.into(), 1, true));
    let begun = Arc::clone(&stages);
    thread::spawn(move || {
        for message in messages {
            match message.map_err(failed).and_then(|line| serde_json::from_str(&line).map_err(failed)) {
                Ok(message) => begun.apply(message),
                Err(error) => begun.fail(error),
            }
        }
        begun.fail(failed("the parent has ended"));
    });
    match way {
        Way::Shm { directory } => {
            let config = ShmConfig::new("bench", NodeId(node)).directory(&directory);
            let fabric = ShmFabric::join(NoHtm, config.calls(plan.messages()).queue_depth(plan.messages()))?;
            on_threads::<_, Plain, W>(&workload, &plan, vec![(node, fabric)], stages)?;
        }
        Way::Tcp { addresses, key, sealed } => {
            let config = tcp_config(node, &addresses, key).sealed(sealed).patience(PATIENCE);
            let config = config.calls(plan.messages()).queue_depth(plan.messages()).mailbox(plan.messages());
            let fabric = TcpFabric::join(NoHtm, config)?;
            on_threads::<_, Plain, W>(&workload, &plan, vec![(node, fabric)], stages)?;
        }
    }
    Ok(())
}

/// A directory that is removed when this is dropped.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        // What is left there harms nothing.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The child processes, which are ended when this is dropped.
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
    fn send<C: Serialize>(&mut self, message: &ToChild<C>) -> Result<(), Error> {
        let line = line(message)?;
        self.0.iter_mut().try_for_each(|(_, stdin)| stdin.write_all(&line)).map_err(failed)
    }

    fn start<W: ClusterWorkload>(
        &mut self,
        job: &Job<&W>,
        mut program: Command,
        sender: mpsc::Sender<Result<FromChild<W::Count>, Error>>,
    ) -> Result<(), Error> {
        let mut child =
            program.env(MEMBER, W::MEMBER).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (Some(mut stdin), Some(stdout)) = (stdin, stdout) else { return Err(failed("it has no pipes")) };
        let sent = line(job).and_then(|line| stdin.write_all(&line).map_err(failed));
        self.0.push((child, stdin));
        sent?;
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                // If the run has failed, nothing receives this any more.
                let _ = sender.send(line.map_err(failed).and_then(|line| read(&line)));
            }
            let _ = sender.send(Err(failed("it has ended too early")));
        });
        Ok(())
    }
}

/// Runs a workload on a process for each node, which share memory.
pub(super) fn on_shm<W: ClusterWorkload>(workload: &W, plan: &Plan) -> Result<Gathered<W::Count>, Error> {
    let directory = Directory(unused());
    let program = |_| env::current_exe().map(Command::new);
    run(workload, plan, &Way::Shm { directory: directory.0.clone() }, program)
}

/// Runs a workload on a process for each node, which are connected by TCP, with a key of this run.
pub(super) fn on_tcp<W: ClusterWorkload>(workload: &W, plan: &Plan, sealed: bool) -> Result<Gathered<W::Count>, Error> {
    let mut key = [0; 32];
    fs::File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut key)).map_err(failed)?;
    let places = Places::new(plan.nodes)?;
    let way = Way::Tcp { addresses: places.addresses().to_vec(), key, sealed };
    run(workload, plan, &way, |node| places.program(node))
}

fn run<W: ClusterWorkload>(
    workload: &W,
    plan: &Plan,
    way: &Way,
    program: impl Fn(u16) -> io::Result<Command>,
) -> Result<Gathered<W::Count>, Error> {
    let mut children = Children(Vec::new());
    let (sender, received) = mpsc::channel();
    for node in 0..plan.nodes {
        let job = Job { workload, plan: *plan, node, way: way.clone() };
        children.start(&job, program(node).map_err(failed)?, sender.clone())?;
    }
    // One message of each child.
    let receive_all = || (0..plan.nodes).map(|_| received.recv().map_err(failed)?).collect::<Result<Vec<_>, _>>();
    receive_all()?;
    children.send::<W::Count>(&ToChild::Run)?;
    let (mut tally, mut count) = (Tally::new(W::KINDS.len()), W::Count::default());
    for message in receive_all()? {
        let FromChild::Ran(of_one, counted) = message else { return Err(failed("it sent an unexpected message")) };
        tally.add(&of_one);
        count += counted;
    }
    children.send(&ToChild::Check(count.clone()))?;
    let mut violations = Vec::new();
    for message in receive_all()? {
        let FromChild::Checked(found, checked) = message else { return Err(failed("it sent an unexpected message")) };
        violations.extend(found);
        count = checked.unwrap_or(count);
    }
    children.send::<W::Count>(&ToChild::End)?;
    for (child, _) in &mut children.0 {
        let status = child.wait().map_err(failed)?;
        if !status.success() {
            return Err(failed(status));
        }
    }
    Ok(Gathered { tally, count, violations })
}

/// Returns the path of a directory that no other run uses.
fn unused() -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = format!("drtm-bench-cluster-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
    env::temp_dir().join(name)
}
