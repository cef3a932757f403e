//! Wakers: for what coroutines wait for beside the endpoint's completions.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Relaxed, Release},
            fence,
        },
    },
    task::{Wake, Waker},
};

use crate::alarm::Ringer;

/// A coroutine's bell, which any thread may ring.
struct Bell {
    rung: AtomicBool,
    /// Whether any of the executor's bells is rung: one look a round is enough for all.
    any: Arc<AtomicBool>,
    /// Wakes the executor's thread, if it sleeps.
    ringer: Ringer,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Release);
        self.any.store(true, Release);
        self.ringer.ring();
    }
}

/// The bells of an executor's coroutines.
pub(super) struct Bells {
    any: Arc<AtomicBool>,
    bells: Vec<Arc<Bell>>,
    ringer: Ringer,
}

impl Bells {
    /// None, of an executor whose thread this wakes.
    pub(super) fn new(ringer: Ringer) -> Self {
        Self { any: Arc::default(), bells: Vec::new(), ringer }
    }

    /// Whether none is rung, as the last look before a sleep finds it.
    pub(super) fn are_quiet(&self) -> bool {
        !self.any.load(Acquire)
    }

    /// The next coroutine's waker.
    pub(super) fn add(&mut self) -> Waker {
        let ringer = self.ringer.clone();
        let bell = Arc::new(Bell { rung: AtomicBool::new(false), any: Arc::clone(&self.any), ringer });
        self.bells.push(Arc::clone(&bell));
        Waker::from(bell)
    }

    /// Gives the coroutines whose bells were rung since the last time.
    #[inline]
    pub(super) fn collect(&self, mut woken: impl FnMut(usize)) {
        // The plain look first: in nearly every round there is nothing.
        if self.any.load(Relaxed) && self.any.swap(false, Acquire) {
            for (index, bell) in self.bells.iter().enumerate() {
                if bell.rung.swap(false, Acquire) {
                    woken(index);
                }
            }
        }
    }

    /// Whether anyone could still ring this one's bell: whether its waker was cloned, and the clone
    /// is still there.
    pub(super) fn may_ring(&self, index: usize) -> bool {
        // This list has one, and the executor's waker another.
        let may_ring = self.bells.get(index).is_some_and(|bell| Arc::strong_count(bell) > 2);
        // What a waker did before it was dropped is seen by a thread that sees that it is gone.
        fence(Acquire);
        may_ring
    }
}

impl fmt::Debug for Bells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bells").field("bells", &self.bells.len()).finish_non_exhaustive()
    }
}
