//! A cluster: the parts of each node, in a simulation or on threads of this process.

use std::{collections::BTreeMap, sync::Arc, thread, time::Duration};

use drtm_htm::NoHtm;
use drtm_rdma::{Executor, Fabric, NodeId, Port, RunEnd, Sim, SimConfig, Spawner, Trace};

use crate::{
    error::Error,
    key::{Key, Row},
    node::Node,
    order::Place,
    plan::Plan,
    program::{Program, Rows},
    receiver::receive,
    scheduler::schedule,
    sequencer::{Source, sequence},
    store::Store,
    worker::work,
};

/// The rows of a node, in the order of keys.
///
/// # Example
///
/// See [`Tpcc`](crate::tpcc::Tpcc).
pub type NodeRows = BTreeMap<Key, Row>;

/// What a run has come to.
///
/// # Example
///
/// See [`Tpcc`](crate::tpcc::Tpcc).
#[derive(Debug)]
pub struct Outcome {
    /// Transactions that committed while they counted.
    pub committed: u64,
    /// Transactions that their programs aborted meanwhile.
    pub aborted: u64,
    /// How long they counted.
    pub counted: Duration,
    /// Transactions that committed in the whole run.
    pub all_committed: u64,
    /// The rows of each node at the end.
    pub rows: Vec<NodeRows>,
    /// All transactions, as bytes, if the plan records them.
    pub history: BTreeMap<Place, Vec<u8>>,
    /// A summary of what happened, in a simulation.
    pub trace: Option<Trace>,
}

impl Outcome {
    /// Returns how many transactions committed in a second; zero if none was to count.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        if self.counted.is_zero() { 0.0 } else { self.committed as f64 / self.counted.as_secs_f64() }
    }

    fn of<A: Program>(nodes: &[Arc<Node<A>>], trace: Option<Trace>) -> Self {
        let Some(plan) = nodes.first().map(|node| node.plan) else { unreachable!("there is a node") };
        let count = plan.warm.min(plan.epochs)..plan.epochs;
        let counts = |epochs: &BTreeMap<u64, u64>| epochs.range(count.clone()).map(|(_, count)| count).sum();
        let mut outcome = Self {
            committed: 0,
            aborted: 0,
            counted: plan.counted(),
            all_committed: 0,
            rows: nodes.iter().map(|node| node.store.rows()).collect(),
            history: BTreeMap::new(),
            trace,
        };
        for node in nodes {
            let tally = node.tally();
            let (committed, aborted): (u64, u64) = (counts(&tally.committed), counts(&tally.aborted));
            outcome.committed += committed;
            outcome.aborted += aborted;
            outcome.all_committed += tally.committed.values().sum::<u64>();
            outcome.history.extend(node.history.lock().drain(..));
        }
        outcome
    }
}

/// A part of a node, which has a processor of its own.
enum Part<A: Program> {
    Receiver,
    Sequencer(Source<A>),
    Scheduler,
    Worker,
}

impl<A: Program> Part<A> {
    fn all(source: Source<A>, workers: u16) -> Vec<Self> {
        let own = [Self::Receiver, Self::Sequencer(source), Self::Scheduler];
        own.into_iter().chain((0..workers).map(|_| Self::Worker)).collect()
    }

    /// Spawns the part's coroutines. An error ends its node.
    fn begin<P: Port>(self, node: &Arc<Node<A>>, spawner: &Spawner<'_, P>) {
        if let Err(error) = self.spawn(Arc::clone(node), spawner) {
            node.fail(error);
        }
    }

    fn spawn<P: Port>(self, node: Arc<Node<A>>, spawner: &Spawner<'_, P>) -> Result<(), Error> {
        let (endpoint, own) = (spawner.endpoint(), spawner.clone());
        match self {
            Self::Receiver => {
                spawner.serve(receive(Arc::clone(&node), endpoint))?;
                spawner.spawn(async move { while node.end.pop().await.is_some() {} })?;
            }
            Self::Sequencer(source) => spawner.spawn(ends(Arc::clone(&node), sequence(node, own, source)))?,
            Self::Scheduler => spawner.spawn(ends(Arc::clone(&node), schedule(node, endpoint)))?,
            Self::Worker => spawner.spawn(ends(Arc::clone(&node), work(node, own)))?,
        }
        Ok(())
    }
}

async fn ends<A: Program>(node: Arc<Node<A>>, part: impl Future<Output = Result<(), Error>>) {
    if let Err(error) = part.await {
        node.fail(error);
    }
}

fn nodes<A: Program>(program: &Arc<A>, plan: &Plan, stores: Vec<Store>) -> Vec<Arc<Node<A>>> {
    let ids = (0..).map(NodeId).zip(stores);
    ids.map(|(id, store)| Arc::new(Node::new(Arc::clone(program), id, *plan, store))).collect()
}

/// Runs a cluster in virtual time. There is a store and a source for each node.
///
/// # Errors
///
/// Returns an error if a node fails, or if the cluster comes to no end.
///
/// # Example
///
/// See [`Tpcc`](crate::tpcc::Tpcc).
pub fn simulate<A: Program>(
    program: Arc<A>,
    plan: &Plan,
    config: SimConfig,
    inputs: Vec<(Store, Source<A>)>,
) -> Result<Outcome, Error> {
    let (stores, sources): (Vec<_>, Vec<_>) = inputs.into_iter().unzip();
    let nodes = nodes(&program, plan, stores);
    let sim = Sim::<NoHtm>::new(plan.nodes, config);
    for (node, source) in nodes.iter().zip(sources) {
        for part in Part::all(source, plan.workers) {
            let own = Arc::clone(node);
            sim.spawn(node.id, move |spawner| part.begin(&own, &spawner))?;
        }
    }
    let end = sim.run();
    match nodes.iter().find_map(|node| node.failure()) {
        Some(error) => Err(error),
        None if end == RunEnd::Done => Ok(Outcome::of(&nodes, Some(sim.trace()))),
        None => Err(Error::Simulation(end)),
    }
}

/// Ends all nodes if one has failed, also by a panic.
struct Guard<'n, A: Program>(&'n [Arc<Node<A>>]);

impl<A: Program> Drop for Guard<'_, A> {
    fn drop(&mut self) {
        if thread::panicking() || self.0.iter().any(|node| node.has_failed()) {
            self.0.iter().for_each(|node| node.finish());
        }
    }
}

/// Runs a cluster on threads of this process, one for each part of a node. There is a handle of the
/// fabric, a store and a source for each node.
///
/// # Errors
///
/// Returns an error if a node fails.
///
/// # Example
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use drtm_calvin::{Plan, replay, run, tpcc::Tpcc};
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{LocalConfig, LocalFabric};
/// use drtm_tpcc::Scale;
///
/// let epoch = Duration::from_millis(1);
/// let plan = Plan { nodes: 2, workers: 1, batch: 20, epoch, epochs: 4, records: true, ..Plan::DEFAULT };
/// let scale = Scale::new(2)?.with_customers(30)?.with_items(100)?;
/// let (tpcc, stores) = Tpcc::load(scale, 1, plan.nodes)?;
/// let tpcc = Arc::new(tpcc);
/// let inputs = Tpcc::inputs(&tpcc, stores)?;
/// let fabric = LocalFabric::<NoHtm>::new(plan.nodes, LocalConfig::perfect());
/// let outcome = run(tpcc, &plan, vec![fabric.clone(), fabric], inputs)?;
///
/// // The outcome of one transaction after the other, on one node.
/// let (alone, stores) = Tpcc::load(scale, 1, 1)?;
/// let (rows, committed) = replay(&alone, &stores[0], &outcome.history)?;
/// assert_eq!(outcome.all_committed, committed);
/// assert!(outcome.rows.iter().all(|node| node.iter().all(|(key, row)| rows.get(key) == Some(row))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn run<A: Program, F: Fabric<Engine = NoHtm>>(
    program: Arc<A>,
    plan: &Plan,
    fabrics: Vec<F>,
    inputs: Vec<(Store, Source<A>)>,
) -> Result<Outcome, Error> {
    let (stores, sources): (Vec<_>, Vec<_>) = inputs.into_iter().unzip();
    let nodes = nodes(&program, plan, stores);
    let body = |node: &Arc<Node<A>>, fabric: &F, part: Part<A>| {
        let _guard = Guard(&nodes);
        match fabric.endpoint(node.id) {
            Ok(endpoint) => {
                let executor = Executor::new(&endpoint);
                part.begin(node, &executor.spawner());
                executor.run();
            }
            Err(error) => node.fail(error.into()),
        }
    };
    let panicked = thread::scope(|scope| {
        let mut threads = Vec::new();
        for ((node, fabric), source) in nodes.iter().zip(&fabrics).zip(sources) {
            for part in Part::all(source, plan.workers) {
                let body = &body;
                match thread::Builder::new().spawn_scoped(scope, move || body(node, fabric, part)) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        node.fail(Error::Thread(error));
                        nodes.iter().for_each(|node| node.finish());
                    }
                }
            }
        }
        threads.into_iter().map(|thread| thread.join().is_err()).fold(false, |any, this| any | this)
    });
    match nodes.iter().find_map(|node| node.failure()) {
        Some(error) => Err(error),
        None if panicked => Err(Error::Panicked),
        None => Ok(Outcome::of(&nodes, None)),
    }
}

/// Runs recorded transactions one after the other, in their order, on one store with all rows.
/// Returns its rows at the end, and how many transactions committed.
///
/// # Errors
///
/// Returns an error if bytes are no transaction.
///
/// # Example
///
/// See [`run`].
pub fn replay<A: Program>(
    program: &A,
    store: &Store,
    history: &BTreeMap<Place, Vec<u8>>,
) -> Result<(NodeRows, u64), Error> {
    let (none, mut committed) = (BTreeMap::new(), 0);
    for (place, bytes) in history {
        let txn = program.decode(bytes).ok_or(Error::Malformed { from: place.node })?;
        let mut rows = Rows::new(store, &none, &|_| true);
        if program.run(&txn, &mut rows).is_ok() {
            rows.apply();
            committed += 1;
        }
    }
    Ok((store.rows(), committed))
}
