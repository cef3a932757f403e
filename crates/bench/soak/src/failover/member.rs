//! A process that is a node of a cluster: it serves, moves money, and says what it was told, until
//! it is killed or finds itself out.

use std::{
    cell::Cell,
    io::{self, BufRead as _, BufReader, Write as _},
    path::Path,
    process::exit,
    rc::Rc,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread,
    time::Duration,
};

use drtm_drive::{Error, Plain, tcp_config};
use drtm_htm::NoHtm;
use drtm_membership::Directory;
use drtm_rdma::{Executor, Fabric, NodeId, ShmConfig, ShmFabric, TcpFabric};
use drtm_txn::{
    Error as DbError, Options,
    cluster::{ClusterError, Node, Worker},
};
use fastrand::Rng;

use super::told::{Job, Order, Place, Said, now};
use crate::lasting::bank::{Bank, Transfer};

/// Clients of each process.
pub(super) const COROUTINES: u64 = 2;

/// How long a process waits for the others to be started.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a transaction may take at most. Changes of the view take leases.
const AT_MOST: Duration = Duration::from_secs(30);

/// How long a client pauses between transactions: the machine has few processors for all.
const PAUSE: Duration = Duration::from_micros(200);

/// What the process was sent while it ran.
#[derive(Debug, Default)]
struct Orders {
    stop: AtomicBool,
    check: AtomicBool,
    clients: AtomicU64,
}

/// Runs the process.
///
/// # Errors
///
/// Returns an error if it cannot join, or what it is sent makes no sense.
pub(crate) fn run() -> Result<(), crate::Error> {
    let mut lines = BufReader::new(io::stdin()).lines();
    let first = lines.next().ok_or_else(|| failed("it was sent nothing"))?.map_err(failed)?;
    let job: Job = serde_json::from_str(&first).map_err(failed)?;
    let orders = Arc::new(Orders::default());
    let taken = Arc::clone(&orders);
    thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(Order::Stop) => taken.stop.store(true, SeqCst),
                Ok(Order::Check { clients }) => {
                    taken.clients.store(clients, SeqCst);
                    taken.check.store(true, SeqCst);
                }
                Err(_) => break,
            }
        }
        // Nobody waits for this process any more.
        exit(1);
    });
    let id = NodeId(job.node);
    match &job.place {
        Place::Shm => {
            let config = ShmConfig::new("soak", id).directory(Path::new(&job.directory));
            serve(&job, &ShmFabric::join(NoHtm, config).map_err(Error::from)?, orders)
        }
        Place::Tcp { addresses, key } => {
            let config = tcp_config(job.node, addresses, *key).patience(PATIENCE);
            serve(&job, &TcpFabric::join(NoHtm, config).map_err(Error::from)?, orders)
        }
    }
}

fn failed(why: impl ToString) -> Error {
    Error::Child { command: "soak member", why: why.to_string() }
}

/// Says a line. Without anybody to say it to, the process ends.
fn say(said: &Said) {
    let mut out = io::stdout().lock();
    let line = serde_json::to_string(said).map_err(io::Error::from);
    if line.and_then(|line| writeln!(out, "{line}")).and_then(|()| out.flush()).is_err() {
        exit(1);
    }
}

fn serve<F: Fabric<Engine = NoHtm>>(job: &Job, fabric: &F, orders: Arc<Orders>) -> Result<(), crate::Error> {
    let view = Path::new(&job.directory).join("view");
    let membership = Directory::open(&view).map_err(failed)?;
    let (node, bank) = job.shape().start::<F, Plain>(fabric, NodeId(job.node), Arc::new(membership))?;
    say(&Said::Begun);
    let endpoint = node.endpoint()?;
    let worker = node.worker(&endpoint)?;
    let mut executor = Executor::new(&endpoint);
    worker.serve(&executor.spawner());
    let done = Rc::new(Cell::new(0));
    for client in job.first..job.first + COROUTINES {
        let (worker, orders, done) = (worker.clone(), Arc::clone(&orders), Rc::clone(&done));
        executor.spawn(async move {
            moves(job, &worker, bank, client, &orders).await;
            done.set(done.get() + 1);
        });
    }
    let (looking, seen) = (worker.clone(), node.clone());
    executor.spawn(async move { looks(job, &seen, &looking).await });
    if job.opens {
        let opening = worker.clone();
        executor.spawn(async move { opens(&opening, bank).await });
    }
    executor.spawn(async move { stays(&worker, bank, orders, done).await });
    executor.run();
    Ok(())
}

/// Opens the accounts, as soon as owners have met this node.
async fn opens<F: Fabric<Engine = NoHtm>>(worker: &Worker<'_, F, Plain>, bank: Bank) {
    for part in bank.parts() {
        while bank.open(worker, part, &mut ()).await.is_err() {
            worker.endpoint().sleep(Duration::from_millis(5)).await;
        }
    }
    say(&Said::Open);
}

/// Moves money until this is stopped, or the node is out.
async fn moves<F: Fabric<Engine = NoHtm>>(
    job: &Job,
    worker: &Worker<'_, F, Plain>,
    bank: Bank,
    client: u64,
    orders: &Orders,
) {
    let (shape, endpoint) = (job.shape(), worker.endpoint());
    let mut random = Rng::with_seed(job.seed << 20 ^ client);
    let options = Options::new().within(AT_MOST);
    while !orders.stop.load(Relaxed) && !matches!(bank.is_open(worker).await, Ok(true)) {
        endpoint.sleep(Duration::from_millis(1)).await;
    }
    let mut count = 0;
    while !orders.stop.load(Relaxed) {
        endpoint.sleep(PAUSE).await;
        if random.u8(0..16) == 0 {
            match bank.sum(worker, options, &mut ()).await {
                Ok(sum) if sum == bank.expected() => {}
                Ok(sum) => say(&Said::Odd(format!("the sum {sum} was read, which is {}", bank.expected()))),
                Err(error) => fails(error, client, count),
            }
        }
        count += 1;
        let moved = Transfer::draw(&shape, &mut random, client, count);
        let began = now();
        match bank.transfer(worker, options, moved, &mut ()).await {
            Ok(()) => {
                say(&Said::Acknowledged { client, count, began, ended: now(), homes: moved.homes(&shape) });
            }
            Err(error) => fails(error, client, count),
        }
    }
}

/// Says that a transaction has failed. A node that is out ends: it is started again.
fn fails(error: DbError, client: u64, count: u64) {
    if let DbError::Cluster(ClusterError::Evicted { .. }) = error {
        say(&Said::Out { client, count });
        exit(0);
    }
    say(&Said::Failed { client, count, why: error.to_string() });
}

/// Says what view the node is in.
async fn looks<F: Fabric<Engine = NoHtm>>(job: &Job, node: &Node<F, Plain>, worker: &Worker<'_, F, Plain>) {
    let (shape, mut last) = (job.shape(), 0);
    loop {
        let view = node.view();
        if view.number() != last {
            last = view.number();
            let lives = view.members().iter().filter_map(|member| Some((member.node.0, member.incarnation?.0.into())));
            say(&Said::View { number: last, members: lives.collect(), is_whole: shape.is_whole(&view) });
        }
        worker.endpoint().sleep(Duration::from_millis(1)).await;
    }
}

/// Says when all clients have ended, and what is left when it is asked.
async fn stays<F: Fabric<Engine = NoHtm>>(
    worker: &Worker<'_, F, Plain>,
    bank: Bank,
    orders: Arc<Orders>,
    done: Rc<Cell<u64>>,
) {
    let endpoint = worker.endpoint();
    let pause = || endpoint.sleep(Duration::from_millis(1));
    while done.get() < COROUTINES {
        pause().await;
    }
    worker.settle().await;
    say(&Said::Ended);
    while !orders.check.load(SeqCst) {
        pause().await;
    }
    let (options, clients) = (Options::new().within(AT_MOST), orders.clients.load(SeqCst));
    let left = async {
        let sum = bank.sum(worker, options, &mut ()).await?;
        Ok((sum, bank.marks(worker, options, clients).await?))
    };
    let left: Result<_, DbError> = left.await;
    let left = match left {
        Ok((sum, marks)) => Ok((sum, marks, bank.locked(worker, options, clients).await)),
        Err(error) => Err(error.to_string()),
    };
    say(&Said::Left(left));
}
