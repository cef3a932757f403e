//! A thread of a node: it runs the transactions of its queue and serves others, in each of the
//! node's lives, and closes the node with the other threads.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
    time::Duration,
};

use drtm_rdma::{Endpoint, Executor, Fabric};
use parking_lot::Mutex;

use super::{
    ClusterError, Node, Worker,
    lives::{LOOK_AFTER, Lives},
    queue::{Next, Queue},
};
use crate::{Config, Error};

/// For how long what was begun at a node is waited for when its life ends, unless the program says
/// otherwise.
pub(super) const CLOSED_WITHIN: Duration = Duration::from_secs(10);

/// How the threads of a node close it: the first that has ended its own transactions does so for
/// all.
#[derive(Default)]
pub(super) struct Closing {
    /// For how long something is waited for.
    pub(super) within: Mutex<Duration>,
    has_begun: AtomicBool,
    has_ended: AtomicBool,
    /// What was left.
    pub(super) left: Mutex<Option<Error>>,
}

impl Closing {
    fn leaves(&self, error: impl Into<Error>) {
        self.left.lock().get_or_insert(error.into());
    }
}

/// Lets the other threads end, also after a panic.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Release);
    }
}

/// A thread's place in the node's lives.
pub(super) struct Seat<F: Fabric, S: Config<Engine = F::Engine>> {
    pub(super) lives: Arc<Lives<F, S>>,
    pub(super) number: usize,
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Drop for Seat<F, S> {
    /// Others do not wait for it any more, also after a panic.
    fn drop(&mut self) {
        self.lives.leave(self.number);
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Seat<F, S> {
    /// Runs the node's lives, from one that has begun.
    pub(super) fn run(&self, node: Node<F, S>, endpoint: Endpoint<F::Port>, queue: &Queue<F, S>, closing: &Closing) {
        let mut part = Some((node, endpoint));
        while let Some((node, endpoint)) = part.take() {
            if self.run_life(node, &endpoint, queue, closing) {
                drop(endpoint);
                part = self.lives.next(self.number, queue);
            }
        }
    }

    /// Runs a life of the node. Returns whether another one may follow: the node is out, and was
    /// not closed. The first thread announces what happens to other nodes.
    fn run_life(&self, node: Node<F, S>, endpoint: &Endpoint<F::Port>, queue: &Queue<F, S>, closing: &Closing) -> bool {
        let Ok(worker) = node.worker(endpoint) else {
            // As many workers as there can be are alive. What is queued here is refused.
            queue.refuse(None);
            return false;
        };
        let mut executor = Executor::new(endpoint);
        let spawner = executor.spawner();
        worker.serve(&spawner);
        if self.number == 0 {
            let announcer = worker.clone();
            // An executor that has ended announces nothing.
            let _ = spawner.serve(async move { announcer.announce_nodes().await });
        }
        let is_out = &Cell::new(false);
        let goes_on = self.lives.go_on();
        executor.spawn(async move {
            // One that was evicted serves at once, and begins nothing before it is a member again.
            while node.returns() && !node.is_out() && !queue.is_closed() {
                queue.expire();
                endpoint.sleep(LOOK_AFTER).await;
            }
            match node.returns() {
                true if queue.is_closed() => queue.refuse(None),
                true => {}
                false => queue.go_on(),
            }
            if goes_on {
                // An executor that has ended has nothing to rest from.
                let _ = spawner.serve(async move {
                    node.until_out().await;
                    queue.rest();
                });
            }
            loop {
                match queue.next().await {
                    Next::Run(job) => job.start(worker.clone(), &spawner),
                    Next::Rest => break is_out.set(true),
                    Next::End => break end(&worker, queue, closing).await,
                }
            }
            if is_out.get() {
                let until = endpoint.now() + CLOSED_WITHIN;
                let at_rest = async {
                    endpoint.until(|| queue.is_at_rest()).await;
                    worker.ended().await;
                };
                // What has not ended by then is cut off, and told so.
                let _ = endpoint.before(until, at_rest).await;
                queue.note_life(worker.stats());
            } else {
                queue.note(worker.stats());
            }
        });
        executor.run();
        is_out.get()
    }
}

/// Ends a thread's transactions, and closes the node unless another thread does.
async fn end<F: Fabric, S: Config<Engine = F::Engine>>(
    worker: &Worker<'_, F, S>,
    queue: &Queue<F, S>,
    closing: &Closing,
) {
    let endpoint = worker.endpoint();
    let until = endpoint.now() + *closing.within.lock();
    let drained = async {
        endpoint.until(|| queue.is_idle()).await;
        worker.drained().await;
    };
    if endpoint.before(until, drained).await.is_err() {
        closing.leaves(ClusterError::CutOff);
    }
    if closing.has_begun.swap(true, AcqRel) {
        return endpoint.until(|| closing.has_ended.load(Acquire)).await;
    }
    let _ends = Ends(&closing.has_ended);
    if let Err(error) = worker.close_for_others(until).await {
        closing.leaves(error);
    }
}
