//! The synchronization primitives that model checking replaces: the ticket's mutex and flag, the
//! mutexes through which threads find each other's words, and the names of threads. Words have
//! their own replacement, in `drtm_htm`. All other mutexes guard only what the process alone knows.

#[cfg(not(feature = "loom"))]
pub(crate) use {
    parking_lot::Mutex,
    std::sync::atomic::{AtomicBool, Ordering},
};

#[cfg(feature = "loom")]
pub(crate) use {
    loom::sync::atomic::{AtomicBool, Ordering},
    model::Mutex,
};

/// A name that tells threads apart.
#[cfg(not(feature = "loom"))]
pub(crate) type ThreadName = u64;

/// Returns the name of the calling thread, which is the database's name for it.
#[cfg(not(feature = "loom"))]
pub(crate) const fn this_thread(name: u64) -> ThreadName {
    name
}

/// A name that tells the model checker's threads apart: a database sees them as one.
#[cfg(feature = "loom")]
pub(crate) type ThreadName = loom::thread::ThreadId;

#[cfg(feature = "loom")]
pub(crate) fn this_thread(_name: u64) -> ThreadName {
    loom::thread::current().id()
}

/// The model checker's mutex, with the interface of `parking_lot`.
#[cfg(feature = "loom")]
mod model {
    use std::{
        ops::{Deref, DerefMut},
        sync::PoisonError,
    };

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    #[derive(Debug)]
    pub(crate) struct MutexGuard<'m, T>(loom::sync::MutexGuard<'m, T>);

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.0
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.0
        }
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(self.0.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }
}
