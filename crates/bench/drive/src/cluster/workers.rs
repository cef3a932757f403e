//! The coroutines of one worker, on every fabric: clients, and one that counts.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_rdma::{Endpoint, Fabric, NodeId, Spawner, Time};
use drtm_txn::{
    Config, Conflict,
    cluster::{ClusterStats, Form, Node, Rounds, Worker},
};
use rustix::time::{ClockId, clock_gettime};

use super::{
    plan::{Length, Plan},
    stages::{Stage, Stages},
    tally::Tally,
    workload::{ClusterWorkload, Place},
};
use crate::{Error, Runner};

/// A worker's part in a run.
pub(super) struct Part<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>, W: ClusterWorkload> {
    pub(super) workload: W,
    pub(super) plan: Plan,
    pub(super) stages: Arc<Stages<W>>,
    pub(super) node: Node<F, S>,
    pub(super) tables: W::Tables,
    pub(super) place: Place,
    /// The worker's number on its node.
    pub(super) thread: u16,
}

/// The state that a worker's coroutines share.
struct Shared<C> {
    /// When counting begins and ends.
    window: Cell<(Time, Time)>,
    /// The remaining transactions, if their number is given.
    left: Cell<Option<u64>>,
    running: Cell<u16>,
    tally: RefCell<Tally>,
    count: RefCell<C>,
}

/// Counts a client as ended, even if it panics.
struct RunningGuard<'s, C>(&'s Shared<C>);

impl<C> Drop for RunningGuard<'_, C> {
    fn drop(&mut self) {
        self.0.running.set(self.0.running.get() - 1);
    }
}

/// Longer than any run.
const FOREVER: Duration = Duration::from_secs(1 << 30);

impl<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>, W: ClusterWorkload> Part<F, S, W> {
    /// Spawns the coroutines of this worker, for the whole run.
    pub(super) fn begin<'e>(self, spawner: Spawner<'e, F::Port>) -> Result<(), Error>
    where
        F: 'e,
    {
        let worker = self.node.worker(spawner.endpoint())?;
        worker.serve(&spawner);
        let stages = Arc::clone(&self.stages);
        let own = spawner.clone();
        let run = async move {
            if let Err(error) = self.run(&worker, &own).await {
                self.stages.fail(error);
            }
            // Others may run a transaction that needs an answer of this worker.
            self.stages.has_ended();
            worker.endpoint().until(|| self.stages.have_all_ended()).await;
        };
        if spawner.spawn(run).is_err() {
            // This worker will never count itself as ended.
            stages.abandon();
        }
        Ok(())
    }

    async fn run<'e>(&self, worker: &Worker<'e, F, S>, spawner: &Spawner<'e, F::Port>) -> Result<(), Error>
    where
        F: 'e,
    {
        let Self { workload, stages, place, .. } = self;
        let endpoint = worker.endpoint();
        let protocol = worker.protocol();
        // The parent may say that all have joined before this node hears it of each.
        let is_here = |node| endpoint.presence(NodeId(node)).here().is_some();
        endpoint.until(|| (0..self.plan.nodes).all(is_here) || stages.has_failed()).await;
        // Without a cache, too, a worker learns once where each node's tables and their buckets
        // are.
        if self.plan.warms && (protocol.caches || protocol.read == Form::OneSided) {
            let threads = usize::from(self.plan.threads);
            workload.warm(worker, self.tables, *place, (usize::from(self.thread), threads)).await?;
        }
        stages.is_loaded();
        endpoint.until(|| stages.has_begun(Stage::Run)).await;
        let shared = self.count(worker, spawner).await?;
        worker.settle().await;
        stages.has_run(&shared.tally.borrow(), shared.count.take());
        endpoint.until(|| stages.has_begun(Stage::Check)).await;
        if self.thread == 0 && !stages.has_failed() {
            let mut count = stages.count();
            let mut violations = workload.check_node(worker, self.tables, &self.node, *place, &count).await?;
            let checks_all = place.node == 0;
            if checks_all {
                violations.extend(workload.check(worker, self.tables, &mut count).await?);
            }
            stages.is_checked(violations, checks_all.then_some(count));
        }
        endpoint.until(|| stages.has_begun(Stage::End)).await;
        Ok(())
    }

    /// Runs the clients, and counts their transactions.
    async fn count<'e>(
        &self,
        worker: &Worker<'e, F, S>,
        spawner: &Spawner<'e, F::Port>,
    ) -> Result<Rc<Shared<W::Count>>, Error>
    where
        F: 'e,
    {
        let Plan { threads, coroutines, length, .. } = self.plan;
        let endpoint = worker.endpoint();
        let begins = endpoint.now();
        let (window, left) = match length {
            Length::Window { warm, counted } => ((begins + warm, begins + warm + counted), None),
            Length::Transactions(count) => ((begins, begins + FOREVER), Some(count)),
        };
        let shared = Rc::new(Shared {
            window: Cell::new(window),
            left: Cell::new(left),
            running: Cell::new(coroutines),
            tally: RefCell::new(Tally::new(W::KINDS.len())),
            count: RefCell::default(),
        });
        let first =
            (usize::from(self.place.node) * usize::from(threads) + usize::from(self.thread)) * usize::from(coroutines);
        for number in first..first + usize::from(coroutines) {
            let mut client = self.workload.client(self.place, number)?;
            let (workload, tables, stages) = (self.workload.clone(), self.tables, Arc::clone(&self.stages));
            let (worker, own) = (worker.clone(), Rc::clone(&shared));
            let in_turn = self.plan.protocol.in_turn;
            let run = async move {
                let ends = RunningGuard(&own);
                let worker = Runner::new(&worker, in_turn);
                let ended = serve(&workload, &worker, tables, &mut client, (&own, &stages)).await;
                *own.count.borrow_mut() += W::count(client);
                if let Err(error) = ended {
                    stages.fail(error);
                }
                drop(ends);
            };
            if spawner.spawn(run).is_err() {
                shared.running.set(shared.running.get() - 1);
            }
        }
        endpoint.sleep_until(window.0).await;
        let before = Sample::of(worker);
        if left.is_none() {
            endpoint.sleep_until(window.1).await;
        } else {
            endpoint.until(|| shared.running.get() == 0).await;
        }
        let after = Sample::of(worker);
        {
            let tally = &mut *shared.tally.borrow_mut();
            after.add_difference(&before, tally);
            tally.nanos = match length {
                Length::Window { counted, .. } => counted,
                Length::Transactions(_) => after.at.since(before.at),
            }
            .as_nanos() as u64;
        }
        endpoint.until(|| shared.running.get() == 0).await;
        Ok(shared)
    }
}

/// Runs a client's transactions until the end.
async fn serve<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>, W: ClusterWorkload>(
    workload: &W,
    worker: &Runner<'_, '_, F, S>,
    tables: W::Tables,
    client: &mut W::Client,
    (shared, stages): (&Shared<W::Count>, &Stages<W>),
) -> Result<(), Error> {
    let endpoint = worker.endpoint();
    let (from, to) = shared.window.get();
    loop {
        let began = endpoint.now();
        if began >= to || shared.left.get() == Some(0) || stages.has_failed() {
            return Ok(());
        }
        shared.left.set(shared.left.get().map(|left| left - 1));
        let done = workload.run_next(worker, tables, client).await?;
        let ended = endpoint.now();
        // A transaction counts when it ends.
        if (from..to).contains(&ended) {
            let tally = &mut *shared.tally.borrow_mut();
            tally.committed += u64::from(done.is_committed);
            tally.given_up += u64::from(!done.is_committed);
            tally.latencies[done.kind].record(ended.since(began).as_nanos() as u64);
        }
    }
}

/// Returns the processor time that this process has used.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// A worker's counters at one moment.
struct Sample {
    at: Time,
    stats: ClusterStats,
    /// The process's.
    cpu: Duration,
}

impl Sample {
    fn of<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(worker: &Worker<'_, F, S>) -> Self {
        let endpoint: &Endpoint<F::Port> = worker.endpoint();
        Self { at: endpoint.now(), stats: worker.stats(), cpu: processor_time() }
    }

    fn add_difference(&self, before: &Self, tally: &mut Tally) {
        for (all, cause) in tally.conflicts.iter_mut().zip(Conflict::ALL) {
            *all += self.stats.conflicts(cause) - before.stats.conflicts(cause);
        }
        tally.add_sent(self.stats.counters - before.stats.counters, |phase| {
            let (now, then) = (self.stats.rounds(phase), before.stats.rounds(phase));
            Rounds { count: now.count - then.count, took: now.took - then.took }
        });
        tally.cpu_nanos = Some(self.cpu.saturating_sub(before.cpu).as_nanos() as u64);
    }
}

/// Fails a run if its thread panics, so that the others end.
pub(super) struct Guard<'s, W: ClusterWorkload>(pub(super) &'s Stages<W>);

impl<W: ClusterWorkload> Drop for Guard<'_, W> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.abandon();
        }
    }
}
