//! The sources of new coroutines while an executor runs: its own coroutines, and other threads.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fmt,
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
};

use parking_lot::Mutex;

use crate::{Endpoint, Port, sync::alarm::Ringer};

/// A coroutine of any type.
pub(super) type Boxed<'f> = dyn Future<Output = ()> + 'f;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The run ends when these have.
    Main,
    Service,
}

/// A source of new coroutines.
pub(super) trait Intake<F: ?Sized> {
    /// Returns whether it is certainly empty. It only reads a flag.
    fn is_empty(&self) -> bool;

    /// Returns whether other threads have injected nothing, for the last check before a sleep.
    fn is_quiet(&self) -> bool;

    fn next(&mut self) -> Option<(Pin<Box<F>>, Kind)>;

    /// Returns whether other threads may still inject coroutines.
    fn may_grow(&self) -> bool;

    /// Refuses new coroutines from now on. Returns false if there still are some to take.
    fn shut(&mut self) -> bool;
}

/// The source of a run whose coroutines all exist from the beginning.
pub(super) struct Shut;

impl<F: ?Sized> Intake<F> for Shut {
    #[inline(always)]
    fn is_empty(&self) -> bool {
        true
    }

    fn is_quiet(&self) -> bool {
        true
    }

    fn next(&mut self) -> Option<(Pin<Box<F>>, Kind)> {
        None
    }

    fn may_grow(&self) -> bool {
        false
    }

    fn shut(&mut self) -> bool {
        true
    }
}

type Pinned<'f> = Pin<Box<Boxed<'f>>>;

/// Coroutines that coroutines have spawned.
#[derive(Default)]
struct Spawned<'f> {
    new: RefCell<VecDeque<(Pinned<'f>, Kind)>>,
    ended: Cell<bool>,
}

type Maker<'f, P> = Box<dyn FnOnce(Spawner<'f, P>) -> Pinned<'f> + Send + 'f>;

/// Coroutines that other threads have injected.
struct Injected<'f, P: Port> {
    /// Whether there is a coroutine, or the last injector is gone, so that a round checks one flag.
    any: AtomicBool,
    injectors: AtomicUsize,
    queue: Mutex<Queue<'f, P>>,
    ringer: Ringer,
}

struct Queue<'f, P: Port> {
    makers: VecDeque<Maker<'f, P>>,
    ended: bool,
}

/// The source of an executor with coroutines of any type.
pub(super) struct Door<'f, P: Port> {
    endpoint: &'f Endpoint<P>,
    spawned: Rc<Spawned<'f>>,
    injected: Arc<Injected<'f, P>>,
}

impl<'f, P: Port> Door<'f, P> {
    pub(super) fn new(endpoint: &'f Endpoint<P>) -> Self {
        let queue = Mutex::new(Queue { makers: VecDeque::new(), ended: false });
        let ringer = endpoint.inner().port.ringer();
        let injected = Injected { any: AtomicBool::new(false), injectors: AtomicUsize::new(0), queue, ringer };
        Self { endpoint, spawned: Rc::default(), injected: Arc::new(injected) }
    }

    pub(super) fn spawner(&self) -> Spawner<'f, P> {
        Spawner { endpoint: self.endpoint, spawned: Rc::clone(&self.spawned) }
    }

    pub(super) fn injector(&self) -> Injector<'f, P> {
        Injector::new(&self.injected)
    }
}

impl<'f, P: Port> Intake<Boxed<'f>> for Door<'f, P> {
    #[inline(always)]
    fn is_empty(&self) -> bool {
        !self.injected.any.load(Relaxed) && self.spawned.new.borrow().is_empty()
    }

    fn is_quiet(&self) -> bool {
        !self.injected.any.load(Acquire)
    }

    fn next(&mut self) -> Option<(Pinned<'f>, Kind)> {
        if let Some(spawned) = self.spawned.new.borrow_mut().pop_front() {
            return Some(spawned);
        }
        if !self.injected.any.load(Acquire) {
            return None;
        }
        let mut queue = self.injected.queue.lock();
        let make = queue.makers.pop_front();
        // The flag is set under the lock, so that a concurrent injection's flag is not lost.
        self.injected.any.store(!queue.makers.is_empty(), Relaxed);
        drop(queue);
        make.map(|make| (make(self.spawner()), Kind::Main))
    }

    fn may_grow(&self) -> bool {
        self.injected.injectors.load(Acquire) > 0
    }

    fn shut(&mut self) -> bool {
        let mut queue = self.injected.queue.lock();
        let empty = queue.makers.is_empty() && self.spawned.new.borrow().is_empty();
        if empty {
            queue.ended = true;
            self.spawned.ended.set(true);
        }
        empty
    }
}

impl<P: Port> Drop for Door<'_, P> {
    fn drop(&mut self) {
        self.spawned.ended.set(true);
        // They are dropped without the lock: a drop may inject or spawn.
        let makers = {
            let mut queue = self.injected.queue.lock();
            queue.ended = true;
            std::mem::take(&mut queue.makers)
        };
        drop(makers);
        let new = self.spawned.new.take();
        drop(new);
    }
}

/// The error of an executor that has ended.
///
/// # Example
///
/// See [`Executor::injector`](crate::Executor::injector).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the executor has ended, and the coroutine was not run")]
pub struct Ended;

/// Spawns coroutines on its executor while that runs. Returned by
/// [`Executor::spawner`](crate::Executor::spawner), and passed to [injected](Injector) coroutines.
///
/// # Example
///
/// See [`Executor::spawner`](crate::Executor::spawner).
pub struct Spawner<'f, P: Port> {
    endpoint: &'f Endpoint<P>,
    spawned: Rc<Spawned<'f>>,
}

impl<'f, P: Port> Spawner<'f, P> {
    /// Returns the executor's endpoint.
    #[must_use]
    pub fn endpoint(&self) -> &'f Endpoint<P> {
        self.endpoint
    }

    /// Adds a coroutine, which begins in the next round.
    ///
    /// # Errors
    ///
    /// [`Ended`] if the executor has ended. The coroutine is then dropped.
    pub fn spawn(&self, coroutine: impl Future<Output = ()> + 'f) -> Result<(), Ended> {
        self.add(Box::pin(coroutine), Kind::Main)
    }

    /// Adds a service coroutine, whose end the executor does not wait for.
    ///
    /// # Errors
    ///
    /// [`Ended`] if the executor has ended. The coroutine is then dropped.
    pub fn serve(&self, coroutine: impl Future + 'f) -> Result<(), Ended> {
        self.add(Box::pin(async { drop(coroutine.await) }), Kind::Service)
    }

    fn add(&self, coroutine: Pinned<'f>, kind: Kind) -> Result<(), Ended> {
        if self.spawned.ended.get() {
            return Err(Ended);
        }
        self.spawned.new.borrow_mut().push_back((coroutine, kind));
        Ok(())
    }
}

impl<P: Port> Clone for Spawner<'_, P> {
    fn clone(&self) -> Self {
        Self { endpoint: self.endpoint, spawned: Rc::clone(&self.spawned) }
    }
}

impl<P: Port> fmt::Debug for Spawner<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner").field("ended", &self.spawned.ended).finish_non_exhaustive()
    }
}

/// Injects coroutines into an executor of another thread. Returned by
/// [`Executor::injector`](crate::Executor::injector).
///
/// # Example
///
/// See [`Executor::injector`](crate::Executor::injector).
pub struct Injector<'f, P: Port> {
    injected: Arc<Injected<'f, P>>,
}

impl<'f, P: Port> Injector<'f, P> {
    fn new(injected: &Arc<Injected<'f, P>>) -> Self {
        injected.injectors.fetch_add(1, Relaxed);
        Self { injected: Arc::clone(injected) }
    }

    /// Sends a closure to the executor's thread, which makes a coroutine of it and runs that. The
    /// closure is sent rather than the coroutine, because the coroutine may not be `Send`. A
    /// sleeping executor is woken.
    ///
    /// # Errors
    ///
    /// [`Ended`] if the executor has ended; then nothing runs. Otherwise the coroutine runs to its
    /// end, unless a panic ends the executor.
    pub fn inject<F, C>(&self, make: F) -> Result<(), Ended>
    where
        F: FnOnce(Spawner<'f, P>) -> C + Send + 'f,
        C: Future<Output = ()> + 'f,
    {
        // The closure runs as the coroutine's first step, where a panic is caught.
        let maker: Maker<'f, P> = Box::new(|spawner| Box::pin(async move { make(spawner).await }));
        let mut queue = self.injected.queue.lock();
        if queue.ended {
            return Err(Ended);
        }
        queue.makers.push_back(maker);
        self.injected.any.store(true, Release);
        drop(queue);
        self.injected.ringer.ring();
        Ok(())
    }
}

impl<P: Port> Clone for Injector<'_, P> {
    fn clone(&self) -> Self {
        Self::new(&self.injected)
    }
}

impl<P: Port> Drop for Injector<'_, P> {
    fn drop(&mut self) {
        if self.injected.injectors.fetch_sub(1, AcqRel) == 1 {
            // An executor that sleeps only because of this injector must learn that nothing will
            // come.
            self.injected.any.store(true, Release);
            self.injected.ringer.ring();
        }
    }
}

impl<P: Port> fmt::Debug for Injector<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Injector(..)")
    }
}
