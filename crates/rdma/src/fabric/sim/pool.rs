//! The workers of simulated nodes: executors that run when the world gives them a turn.
//!
//! A worker is a future that owns its endpoint and its executor. Neither leaves its thread, while
//! handles of the fabric may. So the workers of a simulation are kept by its thread, under the
//! simulation's number.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    pin::Pin,
    rc::{Rc, Weak},
    sync::Arc,
    task::{Context, Poll, Waker},
};

use drtm_htm::Engine;

use super::{Shared, SimPort};
use crate::{Endpoint, Executor, Round, Spawner};

type Worker = Pin<Box<dyn Future<Output = ()>>>;

thread_local! {
    static POOLS: RefCell<Vec<(u64, Weak<WorkerPool>)>> = const { RefCell::new(Vec::new()) };
}

/// The workers of one simulation.
pub(super) struct WorkerPool {
    simulation: u64,
    /// The workers, by number. One is absent during its turn.
    workers: RefCell<Vec<Option<(Worker, bool)>>>,
    /// The number of workers that a run waits for.
    left: Cell<usize>,
}

impl WorkerPool {
    pub(super) fn of(simulation: u64) -> Rc<Self> {
        let pool = Rc::new(Self { simulation, workers: RefCell::default(), left: Cell::new(0) });
        POOLS.with_borrow_mut(|crews| crews.push((simulation, Rc::downgrade(&pool))));
        pool
    }

    /// Returns the pool of this simulation on this thread.
    pub(super) fn find(simulation: u64) -> Option<Rc<Self>> {
        POOLS.with_borrow(|crews| crews.iter().find(|(number, _)| *number == simulation)?.1.upgrade())
    }

    /// Returns the number of workers that a run waits for.
    pub(super) fn left(&self) -> usize {
        self.left.get()
    }

    pub(super) fn add(&self, number: u32, worker: Worker, serves: bool) {
        let mut workers = self.workers.borrow_mut();
        let place = number as usize;
        if workers.len() <= place {
            workers.resize_with(place + 1, || None);
        }
        self.left.set(self.left.get() + usize::from(!serves));
        workers[place] = Some((worker, serves));
    }

    fn take(&self, number: u32) -> Option<(Worker, bool)> {
        self.workers.borrow_mut().get_mut(number as usize)?.take()
    }

    /// Runs a worker's turn.
    pub(super) fn turn(&self, number: u32) {
        let Some((mut worker, serves)) = self.take(number) else { return };
        let done = Left(self, serves);
        if worker.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            std::mem::forget(done);
            self.workers.borrow_mut()[number as usize] = Some((worker, serves));
        }
    }

    /// Drops a worker.
    pub(super) fn dismiss(&self, number: u32) {
        if let Some((worker, serves)) = self.take(number) {
            let _done = Left(self, serves);
            drop(worker);
        }
    }

    /// Drops all workers.
    pub(super) fn disband(&self) {
        let count = self.workers.borrow().len();
        for number in 0..count {
            self.dismiss(number as u32);
        }
        POOLS.with_borrow_mut(|crews| crews.retain(|(number, _)| *number != self.simulation));
    }
}

/// Counts a worker's end, also on a panic.
struct Left<'c>(&'c WorkerPool, bool);

impl Drop for Left<'_> {
    fn drop(&mut self) {
        self.0.left.set(self.0.left.get() - usize::from(!self.1));
    }
}

/// Yields to the world once.
#[derive(Default)]
struct Yield(bool);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Runs a worker: a round of its coroutines for each turn.
pub(super) async fn work<E: Engine, F>(
    shared: Arc<Shared<E>>,
    endpoint: Endpoint<SimPort<E>>,
    number: u32,
    serves: bool,
    start: F,
) where
    F: for<'f> FnOnce(Spawner<'f, SimPort<E>>) + 'static,
{
    let mut executor = Executor::new(&endpoint);
    if serves {
        executor.spawn(std::future::pending());
    }
    start(executor.spawner());
    loop {
        match executor.round() {
            Round::Done => break,
            Round::Ran => shared.again(number),
            Round::Idle => {
                executor.park(None);
                shared.settle(number);
            }
        }
        Yield::default().await;
    }
    // The operations that they have posted continue to their end.
    while shared.until_news(number) {
        Yield::default().await;
        endpoint.progress();
    }
    // Only a panic is left to propagate.
    executor.run();
}
