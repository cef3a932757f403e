//! Wakers, for events other than the endpoint's completions.

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

use crate::sync::alarm::Ringer;

/// A coroutine's bell, which any thread may ring.
struct Bell {
    rung: AtomicBool,
    /// Whether any bell of the executor is rung, so that a round checks one flag for all.
    any: Arc<AtomicBool>,
    /// Wakes the executor's thread if it sleeps.
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
    /// Returns no bells, for an executor whose thread `ringer` wakes.
    pub(super) fn new(ringer: Ringer) -> Self {
        Self { any: Arc::default(), bells: Vec::new(), ringer }
    }

    /// Returns whether no bell is rung, for the last check before a sleep.
    pub(super) fn are_quiet(&self) -> bool {
        !self.any.load(Acquire)
    }

    /// Adds a bell, and returns the next coroutine's waker.
    pub(super) fn add(&mut self) -> Waker {
        let ringer = self.ringer.clone();
        let bell = Arc::new(Bell { rung: AtomicBool::new(false), any: Arc::clone(&self.any), ringer });
        self.bells.push(Arc::clone(&bell));
        Waker::from(bell)
    }

    /// Calls `woken` with the coroutines whose bells were rung since the last call.
    #[inline]
    pub(super) fn collect(&self, mut woken: impl FnMut(usize)) {
        // The plain load comes first: in nearly every round no bell is rung.
        if self.any.load(Relaxed) && self.any.swap(false, Acquire) {
            for (index, bell) in self.bells.iter().enumerate() {
                if bell.rung.swap(false, Acquire) {
                    woken(index);
                }
            }
        }
    }

    /// Returns whether this bell could still be rung: whether a clone of its waker exists.
    pub(super) fn may_ring(&self, index: usize) -> bool {
        // This list holds one reference, and the executor's waker another.
        let may_ring = self.bells.get(index).is_some_and(|bell| Arc::strong_count(bell) > 2);
        // All that a waker did before it was dropped is visible to a thread that sees that it is
        // gone.
        fence(Acquire);
        may_ring
    }
}

impl fmt::Debug for Bells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bells").field("bells", &self.bells.len()).finish_non_exhaustive()
    }
}
