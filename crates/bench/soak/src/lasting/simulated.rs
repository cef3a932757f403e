//! A simulated cluster whose nodes end and come back, in virtual time.
//!
//! Everything runs on the thread that made it. It is stepped from outside, where nodes crash, stand
//! still, are cut off and start again; [`Cluster::settle`] ends its transactions and looks at what
//! is left.

mod clients;

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use drtm_drive::Error;
use drtm_history::{History, Order, Recorder, check};
use drtm_htm::NoHtm;
use drtm_membership::{Register, RegisterOptions};
use drtm_rdma::{Atomicity, Chances, Fault, Incarnation, NicProfile, NodeId, Remains, RunEnd, Sim, SimConfig};
use drtm_txn::{
    Config,
    cluster::{Node, View},
};

use super::{
    bank::Shape,
    verdict::{Told, Wrong},
};
use clients::{Part, Shared, Simulated};

/// How often the cluster is looked at from outside.
const STEP: Duration = Duration::from_micros(50);

/// How long the first nodes may take to meet, in virtual time.
const MEETING: Duration = Duration::from_secs(1);

/// How long the last transactions and checks may take, in virtual time.
const ENDING: Duration = Duration::from_secs(1);

/// Packets that are lost or late.
const ROUGH: Chances = Chances { loss: 0.02, delay: 0.1, at_most: Duration::from_micros(20), ..Chances::NONE };

/// How a cluster is simulated, and what its clients do.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Decides on all that is left to chance.
    pub seed: u64,
    /// The NIC of each node.
    pub profile: &'static NicProfile,
    /// Workers of each node.
    pub threads: u16,
    /// Clients of each worker.
    pub coroutines: u64,
    /// Whether packets are lost and late, and the register of views answers late or not at all.
    pub is_rough: bool,
    /// Whether histories are recorded, to be checked at the end: clients pause between
    /// transactions then, and some read all accounts.
    pub is_recorded: bool,
}

/// A transfer that was acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledged {
    /// When it began, in virtual time.
    pub began: Duration,
    /// When its client was told.
    pub ended: Duration,
    /// The nodes that own its accounts where all owners are members.
    pub homes: [u16; 2],
    /// The node of its client.
    pub client_at: u16,
}

/// A simulated cluster.
pub struct Cluster<S: Config<Engine = NoHtm>> {
    sim: Sim<NoHtm>,
    shared: Rc<Shared>,
    /// The last life of each node. `None`: it has crashed.
    nodes: Vec<Option<Node<Simulated, S>>>,
}

impl<S: Config<Engine = NoHtm>> std::fmt::Debug for Cluster<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("elapsed", &self.sim.elapsed()).finish_non_exhaustive()
    }
}

impl<S: Config<Engine = NoHtm>> Cluster<S> {
    /// Starts all nodes, and opens the accounts.
    ///
    /// # Errors
    ///
    /// Returns an error if the shape is impossible, or the nodes do not meet.
    pub fn start(shape: Shape, way: Way) -> Result<Self, Error> {
        let atomicity = if way.seed.is_multiple_of(4) { Atomicity::Hca } else { Atomicity::Global };
        let config = SimConfig::new(way.profile).seed(way.seed).atomicity(atomicity);
        let config = if way.is_rough { config.chances(ROUGH) } else { config };
        let sim = Sim::<NoHtm>::new(shape.nodes(), config);
        let mut options = RegisterOptions::default();
        options.seed = way.seed;
        if way.is_rough {
            (options.lost, options.repeated, options.reign) = (0.05, 0.05, Some(Duration::from_millis(20)));
        }
        let shared = Rc::new(Shared {
            shape,
            way,
            fabric: sim.fabric().clone(),
            register: Register::new(options),
            recorder: RefCell::new(Recorder::counting()),
            logs: RefCell::default(),
            told: RefCell::default(),
            acknowledged: RefCell::default(),
            findings: RefCell::default(),
            wrong: Cell::default(),
            is_filled: Cell::new(false),
            is_over: Cell::new(false),
            is_checked: Cell::new(false),
            afflicted: RefCell::default(),
            out: RefCell::default(),
            running: Cell::new(0),
            applying: Cell::new(0),
            checker: Cell::new(0),
        });
        let mut cluster = Self { sim, shared, nodes: Vec::new() };
        for number in 0..shape.nodes() {
            cluster.nodes.push(None);
            cluster.begin(NodeId(number))?;
        }
        match cluster.until(MEETING, |cluster| cluster.shared.is_filled.get() && cluster.is_whole()) {
            true => Ok(cluster),
            false => Err(Error::Simulation(RunEnd::TimeUp)),
        }
    }

    /// Begins a life of a node.
    fn begin(&mut self, id: NodeId) -> Result<(), Error> {
        let Shape { owners, clients, .. } = self.shared.shape;
        let Way { threads, coroutines, .. } = self.shared.way;
        let membership = Arc::new(self.shared.register.client());
        let (node, bank) = self.shared.shape.start(&self.shared.fabric, id, membership)?;
        let born = self.sim.elapsed();
        for thread in 0..threads {
            let first = self.shared.told.borrow().len() as u64;
            self.shared.told.borrow_mut().extend((0..coroutines).map(|_| Told::default()));
            let fills = thread == 0 && id.0 == owners + clients - 1 && !self.shared.is_filled.get();
            let part = Part { bank, thread, first, born, fills };
            let (shared, own) = (Rc::clone(&self.shared), node.clone());
            self.sim.spawn(id, move |spawner| {
                if let Err(why) = shared.begin(&own, &spawner, part) {
                    shared.finds(|wrong| wrong.anomalies += 1, format!("{id} does not begin: {why}"));
                }
            })?;
        }
        self.nodes[usize::from(id.0)] = Some(node);
        Ok(())
    }

    /// Returns how much virtual time has passed.
    pub fn elapsed(&self) -> Duration {
        self.sim.elapsed()
    }

    /// Lets virtual time pass.
    pub fn run_for(&self, time: Duration) {
        self.sim.run_for(time);
    }

    /// Lets virtual time pass until something holds. Returns false if it does not within a limit.
    pub fn until(&self, limit: Duration, holds: impl Fn(&Self) -> bool) -> bool {
        let end = self.elapsed() + limit;
        while !holds(self) {
            if self.elapsed() >= end {
                return false;
            }
            self.run_for(STEP);
        }
        true
    }

    fn living(&self) -> impl Iterator<Item = &Node<Simulated, S>> {
        self.nodes.iter().flatten()
    }

    /// Returns the newest view that a node is in.
    pub fn view(&self) -> Arc<View> {
        let newest = self.living().map(Node::view).max_by_key(|view| view.number());
        newest.expect("some node is here")
    }

    /// Returns whether all owners that are here are members, and no others, and each shard has as
    /// many replicas as there can be.
    pub fn is_whole(&self) -> bool {
        let (view, owners) = (self.view(), self.shared.shape.owners);
        let mut here = self.living().filter(|node| node.id().0 < owners);
        let has = |node: &Node<Simulated, S>| life_in(&view, node.id()) == Some(node.incarnation());
        let count = self.living().filter(|node| node.id().0 < owners).count();
        view.members().len() == count && here.all(has) && self.shared.shape.is_whole(&view)
    }

    /// Returns whether a node is a member, of any life.
    pub fn has(&self, node: NodeId) -> bool {
        self.view().has(node)
    }

    /// Returns whether clients of a node's present life have found themselves out.
    pub fn is_out(&self, node: NodeId) -> bool {
        let life = self.nodes[usize::from(node.0)].as_ref().map(Node::incarnation);
        life.is_some_and(|life| self.shared.out.borrow().contains(&(node.0, life)))
    }

    /// Returns whether a transfer of a node that began after a moment was acknowledged.
    pub fn has_served(&self, node: NodeId, moment: Duration) -> bool {
        self.shared.acknowledged.borrow().iter().any(|one| one.began > moment && one.client_at == node.0)
    }

    /// Notes that a node goes on that was silent: its transactions may not fail any more.
    pub fn is_heard(&self, node: NodeId) {
        self.shared.afflicted.borrow_mut().remove(&node.0);
    }

    /// Crashes a node.
    ///
    /// # Errors
    ///
    /// Returns an error if it is not here.
    pub fn crash(&mut self, node: NodeId) -> Result<(), Error> {
        self.sim.befall(Fault::Crash { node })?;
        self.nodes[usize::from(node.0)] = None;
        Ok(())
    }

    /// Starts a node again that has crashed, with nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if it is here.
    pub fn restart(&mut self, node: NodeId) -> Result<(), Error> {
        self.sim.restart(node, Remains::Nothing)?;
        self.shared.afflicted.borrow_mut().remove(&node.0);
        self.begin(node)
    }

    /// Lets a node stand still.
    ///
    /// # Errors
    ///
    /// Returns an error if it is not here.
    pub fn pause(&mut self, node: NodeId, lasts: Duration) -> Result<(), Error> {
        self.shared.afflicted.borrow_mut().insert(node.0);
        Ok(self.sim.befall(Fault::Stall { node, lasts })?)
    }

    /// Cuts nodes off from all others, for a while.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such node.
    pub fn cut_off(&mut self, nodes: &[NodeId], lasts: Duration) -> Result<(), Error> {
        self.shared.afflicted.borrow_mut().extend(nodes.iter().map(|node| node.0));
        self.sim.plan(lasts, Fault::Heal);
        Ok(self.sim.befall(Fault::Partition(nodes.to_vec()))?)
    }

    /// Notes that something does not end.
    pub fn is_stuck(&self, finding: String) {
        self.shared.finds(|wrong| wrong.stuck += 1, finding);
    }

    /// Returns the transfers that were acknowledged.
    pub fn acknowledged(&self) -> Vec<Acknowledged> {
        self.shared.acknowledged.borrow().clone()
    }

    /// Returns the end of the first transfer that began after a moment, and touched an account that
    /// is an owner's where all are members.
    pub fn served_since(&self, moment: Duration, owner: NodeId) -> Option<Duration> {
        let acknowledged = self.shared.acknowledged.borrow();
        let later = acknowledged.iter().filter(|one| one.began > moment && one.homes.contains(&owner.0));
        later.map(|one| one.ended).min()
    }

    /// Ends all transactions, and looks at what is left: sums, marks, locks, replicas, histories.
    /// Returns how many transfers were acknowledged, and what is wrong, in numbers and words.
    pub fn settle(self) -> (u64, Wrong, Vec<String>) {
        let Self { sim, shared, nodes } = self;
        let (shape, here) = (shared.shape, || nodes.iter().flatten());
        let workers = here().count() * usize::from(shared.way.threads);
        shared.running.set(workers);
        shared.applying.set(workers);
        let last = here().last().map_or(0, |node| node.id().0);
        shared.checker.set(last);
        shared.is_over.set(true);
        let end = sim.run_for(ENDING);
        if end == RunEnd::Done {
            for owner in (0..shape.owners).map(NodeId) {
                let rows: Result<Vec<_>, _> = here().map(|node| node.rows_of(owner)).collect();
                let differ = match rows {
                    Ok(rows) => {
                        let rows: Vec<_> = rows.into_iter().flatten().collect();
                        rows.len() != usize::from(shape.backups) + 1 || rows.windows(2).any(|two| two[0] != two[1])
                    }
                    Err(_) => true,
                };
                if differ {
                    let finding = format!("replicas of what {owner} owned first are missing, or differ");
                    shared.finds(|wrong| wrong.anomalies += 1, finding);
                }
            }
        } else {
            let left = (shared.running.get().max(1), shared.applying.get());
            let finding = format!("{} workers have calls that do not end, {} do not apply: {end:?}", left.0, left.1);
            shared.finds(|wrong| wrong.stuck += left.0 as u64, finding);
        }
        // Clients that still run give back their logs.
        drop((nodes, sim));
        let logs = std::mem::take(&mut *shared.logs.borrow_mut());
        let found = match check(&History::of(logs), Order::RealTime) {
            Ok(anomalies) => anomalies.iter().map(ToString::to_string).collect(),
            Err(error) => vec![error.to_string()],
        };
        let (mut wrong, mut findings) = (shared.wrong.get(), std::mem::take(&mut *shared.findings.borrow_mut()));
        wrong.anomalies += found.len() as u64;
        findings.extend(found);
        (shared.acknowledged.borrow().len() as u64, wrong, findings)
    }
}

/// Returns which life of a node is a member.
fn life_in(view: &View, node: NodeId) -> Option<Incarnation> {
    view.members().iter().find(|member| member.node == node)?.incarnation
}
