//! The atomics of the crate's own protocols, so that model checking can replace them.
//!
//! With the feature `loom` they are loom's, with `shuttle` they are shuttle's, and a futex is a
//! mutex with a condition variable. Everything else in this crate (flags that only end a wait
//! sooner, counters) uses the standard library's.

pub(crate) mod alarm;
#[cfg(any(all(feature = "tcp", not(feature = "model")), all(test, feature = "loom")))]
#[cfg_attr(feature = "model", allow(dead_code, reason = "the model uses some of it"))]
pub(crate) mod lead;
#[cfg_attr(feature = "model", allow(dead_code, reason = "models use it in tests only"))]
pub(crate) mod ring;
pub(crate) mod time;

#[cfg(not(any(feature = "loom", feature = "shuttle")))]
pub(crate) use std::sync::atomic::{AtomicU32, Ordering, fence};

#[cfg(feature = "loom")]
use loom as model;
#[cfg(all(feature = "shuttle", not(feature = "loom")))]
use shuttle as model;

#[cfg(any(feature = "loom", feature = "shuttle"))]
pub(crate) use model::sync::atomic::{AtomicU32, Ordering, fence};

#[cfg(not(any(feature = "loom", feature = "shuttle")))]
pub(crate) use real::Futex;

#[cfg(any(feature = "loom", feature = "shuttle"))]
pub(crate) use modelled::Futex;

#[cfg(not(any(feature = "loom", feature = "shuttle")))]
mod real {
    use std::time::Duration;

    use rustix::{
        thread::futex,
        time::{Nsecs, Timespec},
    };

    use super::AtomicU32;

    /// A word on which threads, of one process or of several, sleep while it has a value.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub(crate) struct Futex(AtomicU32);

    impl Futex {
        pub(crate) fn word(&self) -> &AtomicU32 {
            &self.0
        }

        /// Sleeps while the word is `value`, until `at_most` has passed. May return earlier, for no
        /// reason.
        pub(crate) fn sleep(&self, value: u32, at_most: Option<Duration>) {
            let timeout = at_most.map(|time| Timespec {
                tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: Nsecs::from(time.subsec_nanos()),
            });
            // An error is another value, a signal, or the end of the time. The caller checks all of
            // these.
            let _ = futex::wait(&self.0, futex::Flags::empty(), value, timeout.as_ref());
        }

        /// Wakes one sleeping thread, if there is one.
        pub(crate) fn wake(&self) {
            // It fails only for an unmapped address, and this one is mapped.
            let _ = futex::wake(&self.0, futex::Flags::empty(), 1);
        }
    }
}

#[cfg(any(feature = "loom", feature = "shuttle"))]
mod modelled {
    use std::time::Duration;

    use super::{
        AtomicU32, Ordering,
        model::sync::{Condvar, Mutex},
    };

    #[derive(Debug)]
    pub(crate) struct Futex {
        word: AtomicU32,
        sleepers: Mutex<()>,
        woken: Condvar,
    }

    impl Default for Futex {
        fn default() -> Self {
            Self { word: AtomicU32::new(0), sleepers: Mutex::new(()), woken: Condvar::new() }
        }
    }

    impl Futex {
        pub(crate) fn word(&self) -> &AtomicU32 {
            &self.word
        }

        /// The system reads the word and sleeps in one step, as far as wakers can observe.
        pub(crate) fn sleep(&self, value: u32, at_most: Option<Duration>) {
            let sleepers = self.sleepers.lock().expect("no panic");
            if at_most.is_none() && self.word.load(Ordering::SeqCst) == value {
                drop(self.woken.wait(sleepers).expect("no panic"));
            }
        }

        pub(crate) fn wake(&self) {
            let _sleepers = self.sleepers.lock().expect("no panic");
            self.woken.notify_one();
        }
    }
}

/// Runs a model in every interleaving with few preemptions, where most bugs are.
#[cfg(all(test, feature = "loom"))]
pub(crate) fn explore(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(run);
}
