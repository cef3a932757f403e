//! The stages of a run, through which all workers go together.
//!
//! A worker of the process waits for a stage by looking at an atomic, since it serves other nodes
//! meanwhile. Where all workers are in one process, the last one to arrive begins the next stage.
//! A process of a cluster of processes tells its parent instead, which begins the stage everywhere.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::SeqCst};

use parking_lot::Mutex;

use super::{
    link::{Order, Said, say},
    tally::{Gathered, Tally},
    workload::ClusterWorkload,
};
use crate::{Error, memory};

/// What workers do.
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
    /// Something has failed: all end at once.
    Failed,
}

/// The stages of a process.
pub(super) struct Stand<W: ClusterWorkload> {
    /// Workers that are here.
    workers: usize,
    /// Nodes that are here.
    nodes: usize,
    /// Whether a parent decides, which this process tells what it has done.
    is_child: bool,
    stage: AtomicU8,
    /// Workers that have nothing to do any more, and whether one will never say so.
    ended: AtomicUsize,
    is_abandoned: AtomicBool,
    held: Mutex<Held<W>>,
}

struct Held<W: ClusterWorkload> {
    loaded: usize,
    done: usize,
    checked: usize,
    tally: Tally,
    /// Of the workers here, and then of all.
    count: W::Count,
    violations: Vec<String>,
    failure: Option<Error>,
}

impl<W: ClusterWorkload> Stand<W> {
    pub(super) fn new(workers: usize, nodes: usize, is_child: bool) -> Self {
        let held = Held {
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

    /// Whether this stage has begun, or all has failed.
    pub(super) fn has_begun(&self, stage: Stage) -> bool {
        self.stage.load(SeqCst) >= stage as u8
    }

    pub(super) fn has_failed(&self) -> bool {
        self.has_begun(Stage::Failed)
    }

    fn begin(&self, stage: Stage) {
        self.stage.fetch_max(stage as u8, SeqCst);
    }

    /// Tells the parent, or begins a stage.
    fn next(&self, said: impl FnOnce() -> Said<W::Count>, stage: Stage) {
        if !self.is_child {
            self.begin(stage);
        } else if let Err(error) = say(&said()) {
            self.fail(error);
        }
    }

    /// A worker is ready to run.
    pub(super) fn is_loaded(&self) {
        let mut held = self.held.lock();
        held.loaded += 1;
        let all = held.loaded == self.workers;
        drop(held);
        if all {
            self.next(|| Said::Loaded, Stage::Run);
        }
    }

    /// A worker has run.
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
            self.next(|| Said::Ran(Box::new(tally), count), Stage::Check);
        }
    }

    /// What the workers of all nodes have counted, once the check has begun.
    pub(super) fn count(&self) -> W::Count {
        self.held.lock().count.clone()
    }

    /// A node has been checked. The one that checks the whole cluster may have counted more.
    pub(super) fn is_checked(&self, violations: Vec<String>, count: Option<W::Count>) {
        if self.is_child {
            // This process has one node.
            return self.next(|| Said::Checked(violations, count), Stage::End);
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

    /// Something has failed: all end. The first failure counts.
    pub(super) fn fail(&self, error: Error) {
        if self.is_child && !self.has_failed() {
            // Before this process leaves, which other nodes complain of. If the parent is gone, it
            // cannot be told.
            let _ = say::<W::Count>(&Said::Failed(error.to_string()));
        }
        self.held.lock().failure.get_or_insert(error);
        self.begin(Stage::Failed);
    }

    /// A worker has nothing to do any more, but to serve others.
    pub(super) fn has_ended(&self) {
        self.ended.fetch_add(1, SeqCst);
    }

    /// Whether no worker here needs another any more.
    pub(super) fn have_all_ended(&self) -> bool {
        self.ended.load(SeqCst) >= self.workers || self.is_abandoned.load(SeqCst)
    }

    /// A worker could not begin, so that it does not end either.
    pub(super) fn is_missing_one(&self, error: Error) {
        self.fail(error);
        self.abandon();
    }

    /// A worker has panicked, which its thread tells.
    pub(super) fn abandon(&self) {
        self.is_abandoned.store(true, SeqCst);
        self.begin(Stage::Failed);
    }

    /// Does what the parent says.
    pub(super) fn obey(&self, order: Order<W::Count>) {
        match order {
            Order::Run => self.begin(Stage::Run),
            Order::Check(count) => {
                self.held.lock().count = count;
                self.begin(Stage::Check);
            }
            Order::End => self.begin(Stage::End),
        }
    }

    /// What came of it.
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
