//! The lives of a node: how one that was evicted joins again, in its process.
//!
//! Nothing of an evicted life takes effect any more, so it cannot go on. Its threads let their
//! transactions end, and rest: their queues stay, and what is given to them meanwhile waits. When
//! all rest, another thread ends the life (`Shared::end_life`), joins the fabric as a later
//! incarnation and starts the node anew, as its process did. Then the threads run the next life:
//! they serve, so that the others take it in as any node that is started again. What waits in the
//! queues begins when it is a member: before, it knows no view, and finds no rows.
//!
//! A node joins again until it succeeds, with pauses, unless its place was taken. Closing it ends
//! that at any time. See `docs/decisions/0124`.

use std::{
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use drtm_rdma::{Endpoint, Fabric};
use parking_lot::{Condvar, Mutex, MutexGuard};

#[cfg(feature = "tcp")]
use super::ClusterError;
use super::{
    ClusterEvent, Node,
    events::Announcer,
    queue::{Queue, Reason},
};
use crate::{Config, Error, trace::event};

/// Makes the next life of a node that was evicted.
pub(super) type Recipe<F, S> = Box<dyn Fn(&Node<F, S>) -> Result<Node<F, S>, Error> + Send>;

/// For how long a life that ends waits for the program's own transactions and snapshots.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// The first and the longest pause between two attempts to join.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How soon a thread ends what waits for the node's next life and cannot wait any longer.
pub(super) const LOOK_AFTER: Duration = Duration::from_millis(10);

/// What a thread runs a life by.
type Part<F, S> = (Node<F, S>, Endpoint<<F as Fabric>::Port>);

/// A life, and the threads that are to run it.
type Life<F, S> = (Node<F, S>, Vec<Thread<F>>);

/// A node's lives, one after the other.
pub(super) struct Lives<F: Fabric, S: Config<Engine = F::Engine>> {
    announcer: Arc<Announcer>,
    /// Without one, a life that is evicted is the last.
    recipe: Option<Mutex<Recipe<F, S>>>,
    now: Mutex<Now<F, S>>,
    changed: Condvar,
}

struct Now<F: Fabric, S: Config<Engine = F::Engine>> {
    /// The life that runs, or ran last.
    node: Node<F, S>,
    threads: Vec<Thread<F>>,
    joining: Option<JoinHandle<()>>,
    is_closed: bool,
    stays_out: Option<Arc<Reason>>,
}

/// A thread of the node.
enum Thread<F: Fabric> {
    Runs,
    Rests,
    /// The next life is there.
    GoesOn(Box<Endpoint<F::Port>>),
    Ended,
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Lives<F, S> {
    pub(super) fn new(node: Node<F, S>, threads: usize, recipe: Option<Recipe<F, S>>) -> Self {
        let announcer = node.announcer();
        let threads = (0..threads).map(|_| Thread::Runs).collect();
        let now = Now { node, threads, joining: None, is_closed: false, stays_out: None };
        Self { announcer, recipe: recipe.map(Mutex::new), now: Mutex::new(now), changed: Condvar::new() }
    }

    /// Returns the node, as it lives now.
    pub(super) fn node(&self) -> Node<F, S> {
        self.now.lock().node.clone()
    }

    pub(super) fn announcer(&self) -> &Announcer {
        &self.announcer
    }

    /// Returns whether the node joins again if it is evicted.
    pub(super) fn go_on(&self) -> bool {
        self.recipe.is_some()
    }

    /// Begins no further life. Returns what joins at the moment, which has then ended.
    pub(super) fn close(&self) -> Option<JoinHandle<()>> {
        let mut now = self.now.lock();
        now.is_closed = true;
        self.changed.notify_all();
        now.joining.take()
    }

    /// Rests until the next life, in which the thread goes on. Returns `None` if none follows:
    /// nothing waits in the thread's queue any more.
    pub(super) fn next(self: &Arc<Self>, number: usize, queue: &Queue<F, S>) -> Option<Part<F, S>> {
        let mut now = self.now.lock();
        now.threads[number] = Thread::Rests;
        self.join_when_all_rest(&mut now);
        loop {
            if now.is_closed || now.stays_out.is_some() {
                let why = now.stays_out.clone().filter(|_| !now.is_closed);
                drop(now);
                queue.refuse(why);
                return None;
            }
            match std::mem::replace(&mut now.threads[number], Thread::Runs) {
                Thread::GoesOn(endpoint) => return Some((now.node.clone(), *endpoint)),
                before => now.threads[number] = before,
            }
            self.changed.wait_for(&mut now, LOOK_AFTER);
            MutexGuard::unlocked(&mut now, || queue.expire());
            self.join_when_all_rest(&mut now);
        }
    }

    /// Notes that a thread has ended, and runs no life any more.
    pub(super) fn leave(self: &Arc<Self>, number: usize) {
        let mut now = self.now.lock();
        now.threads[number] = Thread::Ended;
        self.join_when_all_rest(&mut now);
    }

    /// Has the node join again, by a thread of its own, if no thread runs the last life any more.
    fn join_when_all_rest(self: &Arc<Self>, now: &mut Now<F, S>) {
        let is_due = now.threads.iter().all(|thread| matches!(thread, Thread::Rests | Thread::Ended));
        let rests = now.threads.iter().any(|thread| matches!(thread, Thread::Rests));
        if !is_due || !rests || now.joining.is_some() || now.is_closed || now.stays_out.is_some() {
            return;
        }
        let lives = Arc::clone(self);
        let name = format!("drtm-{}-joins", now.node.id());
        // If there is no thread at the moment, those that rest try again.
        now.joining = thread::Builder::new().name(name).spawn(move || lives.join_again()).ok();
    }

    /// Ends the last life, and begins the next one.
    fn join_again(&self) {
        let (former, mut pause) = (self.node(), FIRST_PAUSE);
        loop {
            let attempt = self.attempt(&former);
            let mut now = self.now.lock();
            match attempt {
                Ok((node, threads)) => {
                    // If it was closed meanwhile, this life leaves, too.
                    (now.node, now.threads, now.joining) = (node, threads, None);
                    self.changed.notify_all();
                    return;
                }
                Err(error) if is_final(&error) => {
                    now.stays_out = Some(Arc::new(error));
                    self.changed.notify_all();
                    self.announcer.announce(ClusterEvent::StaysOut);
                    return;
                }
                Err(_error) => event!(warn, node = former.id().0, error = %_error, "an evicted node tries to join"),
            }
            if !now.is_closed {
                self.changed.wait_while_for(&mut now, |now| !now.is_closed, pause);
            }
            if now.is_closed {
                return;
            }
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// Makes the next life, and an endpoint of it for each thread that is left.
    fn attempt(&self, former: &Node<F, S>) -> Result<Life<F, S>, Error> {
        former.end_life(ENDS_WITHIN)?;
        let Some(recipe) = &self.recipe else { return Err(Error::Closed) };
        let node = recipe.lock()(former)?;
        let have_ended: Vec<_> = {
            let now = self.now.lock();
            now.threads.iter().map(|thread| matches!(thread, Thread::Ended)).collect()
        };
        let thread = |has_ended| match has_ended {
            true => Ok(Thread::Ended),
            false => node.endpoint().map(|endpoint| Thread::GoesOn(Box::new(endpoint))),
        };
        let threads = have_ended.into_iter().map(thread).collect::<Result<_, Error>>()?;
        Ok((node, threads))
    }
}

/// Returns whether waiting is of no use: the other nodes do not take this one where it is.
#[cfg(feature = "tcp")]
fn is_final(error: &Error) -> bool {
    use drtm_rdma::TcpError;

    let error = match error {
        Error::Cluster(ClusterError::Tcp(error)) => Some(error),
        Error::Cluster(ClusterError::Joining { source }) => source.downcast_ref(),
        _ => None,
    };
    let elsewhere = |error: &TcpError| matches!(error, TcpError::Elsewhere { .. } | TcpError::Unknown { .. });
    error.is_some_and(elsewhere)
}

#[cfg(not(feature = "tcp"))]
fn is_final(_error: &Error) -> bool {
    false
}
