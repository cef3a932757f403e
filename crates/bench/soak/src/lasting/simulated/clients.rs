//! The coroutines of a simulated cluster: its clients, and those that stay with each worker until
//! everything is checked.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    rc::Rc,
    time::Duration,
};

use drtm_history::{Log, Recorder, Recording};
use drtm_htm::NoHtm;
use drtm_membership::Register;
use drtm_rdma::{Fabric, Incarnation, SimFabric, Spawner};
use drtm_txn::{
    Config, Error as DbError, Options,
    cluster::{ClusterError, Node, Worker},
};
use fastrand::Rng;

use super::{
    super::{
        bank::{Bank, Notes, Shape, Transfer},
        verdict::{Told, Wrong},
    },
    Acknowledged, Way,
};

pub(super) type Simulated = SimFabric<NoHtm>;

/// What carries a worker of a simulated node.
type Port = <Simulated as Fabric>::Port;

/// How often a client looks again at what it waits for.
const PAUSE: Duration = Duration::from_micros(20);

/// How long a transaction may wait for a lock when nothing else runs, in virtual time.
const SOON: Duration = Duration::from_millis(100);

/// What all nodes of a cluster share.
pub(super) struct Shared {
    pub(super) shape: Shape,
    pub(super) way: Way,
    pub(super) fabric: Simulated,
    pub(super) register: Register,
    pub(super) recorder: RefCell<Recorder>,
    pub(super) logs: RefCell<Vec<Log<u64>>>,
    pub(super) told: RefCell<Vec<Told>>,
    pub(super) acknowledged: RefCell<Vec<Acknowledged>>,
    pub(super) findings: RefCell<Vec<String>>,
    pub(super) wrong: Cell<Wrong>,
    pub(super) is_filled: Cell<bool>,
    pub(super) is_over: Cell<bool>,
    pub(super) is_checked: Cell<bool>,
    /// Nodes that stand still or are cut off, or were: their transactions may fail.
    pub(super) afflicted: RefCell<BTreeSet<u16>>,
    /// Clients of lives that have found themselves out.
    pub(super) out: RefCell<BTreeSet<(u16, Incarnation)>>,
    /// Workers of the last lives whose clients have not ended, and which have not applied
    /// everything.
    pub(super) running: Cell<usize>,
    pub(super) applying: Cell<usize>,
    /// The node that looks at what is left.
    pub(super) checker: Cell<u16>,
}

/// Notes of a history, if there is one.
struct Noted<'l, 'r>(Option<&'r mut Recording<'l, u64>>);

impl Notes for Noted<'_, '_> {
    fn retry(&mut self) {
        if let Some(recording) = &mut self.0 {
            recording.retry();
        }
    }

    fn read(&mut self, account: u64, version: Option<u64>) {
        if let Some(recording) = &mut self.0 {
            recording.read(0, account, version);
        }
    }

    fn write(&mut self, account: u64) -> u64 {
        let Some(recording) = &mut self.0 else { return 0 };
        let version = recording.version();
        recording.write(0, account, version);
        version
    }
}

/// A log that is given back, also when its node crashes.
struct Kept<'s> {
    shared: &'s Shared,
    log: Option<Log<u64>>,
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.shared.logs.borrow_mut().extend(self.log.take());
    }
}

impl<'s> Kept<'s> {
    fn new(shared: &'s Shared) -> Self {
        // Where there are too many logs already, what follows is not recorded.
        let log = shared.way.is_recorded.then(|| shared.recorder.borrow_mut().log().ok()).flatten();
        Self { shared, log }
    }
}

/// Returns whether an error says that nothing has happened.
fn is_certain(error: &DbError) -> bool {
    use ClusterError::{Evicted, Interrupted};
    match error {
        DbError::Cluster(Evicted { may_have_happened, .. } | Interrupted { may_have_happened, .. }) => {
            !may_have_happened
        }
        DbError::Aborted { .. } | DbError::Contended { .. } => true,
        _ => false,
    }
}

impl Shared {
    pub(super) fn finds(&self, count: impl FnOnce(&mut Wrong), finding: String) {
        let mut wrong = self.wrong.get();
        count(&mut wrong);
        self.wrong.set(wrong);
        self.findings.borrow_mut().push(finding);
    }

    /// Runs a client's transactions until all is over, or its node is out.
    async fn serve<S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, Simulated, S>,
        (bank, client): (Bank, u64),
        (born, life): (Duration, Incarnation),
    ) {
        let Self { shape, way, .. } = self;
        let (endpoint, node) = (worker.endpoint(), worker.id().0);
        let mut kept = Kept::new(self);
        let mut random = Rng::with_seed(way.seed << 20 ^ client);
        let started = endpoint.now();
        let moment = || born + endpoint.now().since(started);
        endpoint.until(|| self.is_filled.get()).await;
        let mut count = 0;
        while !self.is_over.get() {
            if way.is_recorded {
                endpoint.sleep(Duration::from_nanos(random.u64(100..50_000))).await;
            }
            let began = moment();
            let mut recording = kept.log.as_mut().map(Log::begin);
            let reads = way.is_recorded && random.u8(0..8) == 0;
            let moved = Transfer::draw(shape, &mut random, client, count + 1);
            let mut notes = Noted(recording.as_mut());
            let ended = if reads {
                bank.sum(worker, Options::new(), &mut notes).await.map(Some)
            } else {
                count += 1;
                self.told.borrow_mut()[client as usize].begun = count;
                bank.transfer(worker, Options::new(), moved, &mut notes).await.map(|()| None)
            };
            match ended {
                Ok(Some(sum)) if sum != bank.expected() => {
                    let finding = format!("node {node} has read the sum {sum}, which is {}", bank.expected());
                    self.finds(|wrong| wrong.anomalies += 1, finding);
                }
                Ok(Some(_)) => {}
                Ok(None) => {
                    self.told.borrow_mut()[client as usize].acknowledged = count;
                    let homes = moved.homes(shape);
                    self.acknowledged.borrow_mut().push(Acknowledged {
                        began,
                        ended: moment(),
                        homes,
                        client_at: node,
                    });
                }
                Err(error) => {
                    if is_certain(&error)
                        && let Some(recording) = recording.take()
                    {
                        recording.abort();
                    }
                    if let DbError::Cluster(ClusterError::Evicted { .. }) = error {
                        self.out.borrow_mut().insert((node, life));
                        return;
                    }
                    if !self.afflicted.borrow().contains(&node) {
                        let finding = format!("a transaction of node {node}, which is here, has failed: {error}");
                        self.finds(|wrong| wrong.anomalies += 1, finding);
                        return;
                    }
                    endpoint.sleep(PAUSE).await;
                    continue;
                }
            }
            if let Some(recording) = recording {
                recording.commit();
            }
        }
    }

    /// Opens the accounts, as soon as owners have met this node.
    async fn fill<S: Config<Engine = NoHtm>>(&self, worker: &Worker<'_, Simulated, S>, bank: Bank) {
        let mut kept = Kept::new(self);
        for part in bank.parts() {
            loop {
                let mut recording = kept.log.as_mut().map(Log::begin);
                if bank.open(worker, part, &mut Noted(recording.as_mut())).await.is_ok() {
                    if let Some(recording) = recording {
                        recording.commit();
                    }
                    break;
                }
                worker.endpoint().sleep(PAUSE).await;
            }
        }
        self.is_filled.set(true);
    }

    /// Looks at all rows when nothing else runs.
    async fn check<S: Config<Engine = NoHtm>>(&self, worker: &Worker<'_, Simulated, S>, bank: Bank) {
        let (soon, clients) = (Options::new().within(SOON), self.told.borrow().len() as u64);
        let (mut wrong, mut findings) = (self.wrong.get(), Vec::new());
        let mut kept = Kept::new(self);
        let mut recording = kept.log.as_mut().map(Log::begin);
        match bank.sum(worker, soon, &mut Noted(recording.as_mut())).await {
            Ok(sum) => {
                if let Some(recording) = recording {
                    recording.commit();
                }
                if sum != bank.expected() {
                    wrong.torn += 1;
                    findings.push(format!("the sum is {sum}, and {} were put in", bank.expected()));
                }
            }
            Err(error) => {
                wrong.stuck += 1;
                findings.push(format!("the accounts cannot be read in the end: {error}"));
            }
        }
        match bank.marks(worker, soon, clients).await {
            Ok(marks) => {
                for ((client, found), told) in (0..).zip(marks).zip(&*self.told.borrow()) {
                    told.judge(client, found, &mut wrong, &mut findings);
                }
            }
            Err(error) => {
                wrong.stuck += 1;
                findings.push(format!("the marks cannot be read in the end: {error}"));
            }
        }
        let locked = bank.locked(worker, soon, clients).await;
        wrong.stuck += locked.len() as u64;
        findings.extend(locked);
        self.wrong.set(wrong);
        self.findings.borrow_mut().extend(findings);
    }

    /// Stays with a worker until all is over, and applied everywhere.
    async fn stay<S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, Simulated, S>,
        (bank, thread): (Bank, u16),
        done: &Cell<u64>,
    ) {
        let endpoint = worker.endpoint();
        endpoint.until(|| self.is_over.get() && done.get() == self.way.coroutines).await;
        worker.settle().await;
        self.running.set(self.running.get() - 1);
        endpoint.until(|| self.running.get() == 0).await;
        if thread == 0 && worker.id().0 == self.checker.get() {
            self.check(worker, bank).await;
            self.is_checked.set(true);
        }
        endpoint.until(|| self.is_checked.get()).await;
        if let Err(error) = worker.catch_up().await {
            let finding = format!("what {} has written is not applied: {error}", worker.id());
            self.finds(|wrong| wrong.anomalies += 1, finding);
        }
        self.applying.set(self.applying.get() - 1);
        endpoint.until(|| self.applying.get() == 0).await;
    }
}

/// A worker of one life of a node, and its clients.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) bank: Bank,
    pub(super) thread: u16,
    /// The first of its clients.
    pub(super) first: u64,
    /// When this life began, in virtual time.
    pub(super) born: Duration,
    /// Whether it opens the accounts.
    pub(super) fills: bool,
}

impl Shared {
    /// Begins the coroutines of a worker. Returns what was in the way.
    pub(super) fn begin<'e, S: Config<Engine = NoHtm>>(
        self: &Rc<Self>,
        node: &Node<Simulated, S>,
        spawner: &Spawner<'e, Port>,
        part: Part,
    ) -> Result<(), String> {
        let Part { bank, thread, first, born, fills } = part;
        let worker = node.worker(spawner.endpoint()).map_err(|error| error.to_string())?;
        let ended = |_| "it has ended".to_owned();
        worker.serve(spawner);
        let (done, life) = (Rc::new(Cell::new(0)), node.incarnation());
        for client in first..first + self.way.coroutines {
            let (shared, worker, done) = (Rc::clone(self), worker.clone(), Rc::clone(&done));
            let serve = async move {
                shared.serve(&worker, (bank, client), (born, life)).await;
                done.set(done.get() + 1);
            };
            spawner.spawn(serve).map_err(ended)?;
        }
        let (shared, ticking) = (Rc::clone(self), worker.clone());
        spawner.spawn(async move { shared.tick(&ticking, born).await }).map_err(ended)?;
        if fills {
            let (shared, worker) = (Rc::clone(self), worker.clone());
            spawner.spawn(async move { shared.fill(&worker, bank).await }).map_err(ended)?;
        }
        let shared = Rc::clone(self);
        spawner.spawn(async move { shared.stay(&worker, (bank, thread), &done).await }).map_err(ended)
    }

    /// Lets the time of the register pass.
    async fn tick<S: Config<Engine = NoHtm>>(&self, worker: &Worker<'_, Simulated, S>, born: Duration) {
        let endpoint = worker.endpoint();
        let began = endpoint.now();
        while !self.is_over.get() || self.applying.get() > 0 {
            self.register.advance(born + endpoint.now().since(began));
            endpoint.sleep(PAUSE).await;
        }
    }
}
