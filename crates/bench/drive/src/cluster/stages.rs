//! The stages of a run. All workers of all nodes are in the same stage.
//!
//! A worker polls an atomic for the next stage, and serves other nodes meanwhile. If all workers
//! are in one process, the last one that finishes a stage begins the next. A child process sends a
//! message to its parent instead, which begins the stage in all processes.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::SeqCst};

use parking_lot::Mutex;

use super::{
    pipes::{FromChild, ToChild, send_to_parent},
    tally::{Gathered, Tally},
    workload::ClusterWorkload,
};
use crate::{Error, memory};

/// A stage of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Stage {
    /// Nodes are loaded.
    Load,
    /// All are loaded, and transactions run.
    Run,
    /// All transactions have ended, and conditions are checked.
    Check,
    /// All conditions were checked.
    End,
    /// Something has failed: all workers end.
    Failed,
}

/// The stages of a process.
pub(super) struct Stages<W: ClusterWorkload> {
    /// Workers of this process.
    workers: usize,
    /// Nodes of this process.
    nodes: usize,
    /// Whether a parent process begins the stages.
    is_child: bool,
    stage: AtomicU8,
    /// Workers that have ended, and whether one panicked or never began.
    ended: AtomicUsize,
    is_abandoned: AtomicBool,
    held: Mutex<Totals<W>>,
}

struct Totals<W: ClusterWorkload> {
    loaded: usize,
    done: usize,
    checked: usize,
    tally: Tally,
    /// The sum of this process's workers, and later of all nodes.
    count: W::Count,
    violations: Vec<String>,
    failure: Option<Error>,
}

impl<W: ClusterWorkload> Stages<W> {
    pub(super) fn new(workers: usize, nodes: usize, is_child: bool) -> Self {
        let held = Totals {
            loaded: 0,
            done: 0,
            checked: 0,
            tally: Tally::new(W::KINDS.len()),
            count: W::Count::default(),
            violations: Vec::new(),
            failure: None,
        };
        let (stage, held) = (AtomicU8::new(Stage::Load as u8), Mutex::new(held));
        Self { workers, nodes, is_child, stage, ended: AtomicUsize::new(0), is_abandoned: AtomicBool::new(false), held }
    }

    /// Returns whether this stage has begun, or the run has failed.
    pub(super) fn has_begun(&self, stage: Stage) -> bool {
        self.stage.load(SeqCst) >= stage as u8
    }

    pub(super) fn has_failed(&self) -> bool {
        self.has_begun(Stage::Failed)
    }

    fn begin(&self, stage: Stage) {
        self.stage.fetch_max(stage as u8, SeqCst);
    }

    /// Sends a message to the parent, or begins a stage.
    fn next(&self, message: impl FnOnce() -> FromChild<W::Count>, stage: Stage) {
        if !self.is_child {
            self.begin(stage);
        } else if let Err(error) = send_to_parent(&message()) {
            self.fail(error);
        }
    }

    /// Counts a worker that is ready to run.
    pub(super) fn is_loaded(&self) {
        let mut held = self.held.lock();
        held.loaded += 1;
        let all = held.loaded == self.workers;
        drop(held);
        if all {
            self.next(|| FromChild::Loaded, Stage::Run);
        }
    }

    /// Adds the counts of a worker whose transactions have ended.
    pub(super) fn has_run(&self, tally: &Tally, count: W::Count) {
        let mut held = self.held.lock();
        held.tally.add_here(tally);
        held.count += count;
        held.done += 1;
        if held.done == self.workers {
            // Before the check, which takes memory of its own.
            held.tally.most_memory = memory::peak().ok();
            let (tally, count) = (held.tally.clone(), held.count.clone());
            drop(held);
            self.next(|| FromChild::Ran(Box::new(tally), count), Stage::Check);
        }
    }

    /// Returns the sum over all nodes' workers, once the check has begun.
    pub(super) fn count(&self) -> W::Count {
        self.held.lock().count.clone()
    }

    /// Adds a node's violations. The node that checks the whole cluster may have changed the sum.
    pub(super) fn is_checked(&self, violations: Vec<String>, count: Option<W::Count>) {
        if self.is_child {
            // This process has one node.
            return self.next(|| FromChild::Checked(violations, count), Stage::End);
        }
        let mut held = self.held.lock();
        held.violations.extend(violations);
        held.checked += 1;
        if let Some(count) = count {
            held.count = count;
        }
        if held.checked == self.nodes {
            self.begin(Stage::End);
        }
    }

    /// Ends the run with an error. Only the first one is kept.
    pub(super) fn fail(&self, error: Error) {
        if self.is_child && !self.has_failed() {
            // Sent before this process leaves the cluster, which other nodes report as an error.
            // The parent may have ended.
            let _ = send_to_parent::<W::Count>(&FromChild::Failed(error.to_string()));
        }
        self.held.lock().failure.get_or_insert(error);
        self.begin(Stage::Failed);
    }

    /// Counts a worker that has ended, and only serves others from now on.
    pub(super) fn has_ended(&self) {
        self.ended.fetch_add(1, SeqCst);
    }

    /// Returns whether no worker of this process needs another one any more.
    pub(super) fn have_all_ended(&self) -> bool {
        self.ended.load(SeqCst) >= self.workers || self.is_abandoned.load(SeqCst)
    }

    /// Ends the run because a worker could not begin: it will not count as ended.
    pub(super) fn is_missing_one(&self, error: Error) {
        self.fail(error);
        self.abandon();
    }

    /// Ends the run because a worker has panicked. Its thread reports the panic.
    pub(super) fn abandon(&self) {
        self.is_abandoned.store(true, SeqCst);
        self.begin(Stage::Failed);
    }

    /// Begins the stage that the parent's message says.
    pub(super) fn apply(&self, message: ToChild<W::Count>) {
        match message {
            ToChild::Run => self.begin(Stage::Run),
            ToChild::Check(count) => {
                self.held.lock().count = count;
                self.begin(Stage::Check);
            }
            ToChild::End => self.begin(Stage::End),
        }
    }

    /// Returns the sums and violations, or the first error.
    pub(super) fn outcome(&self) -> Result<Gathered<W::Count>, Error> {
        let mut held = self.held.lock();
        match held.failure.take() {
            Some(error) => Err(error),
            None => Ok(Gathered {
                tally: held.tally.clone(),
                count: std::mem::take(&mut held.count),
                violations: std::mem::take(&mut held.violations),
            }),
        }
    }
}
