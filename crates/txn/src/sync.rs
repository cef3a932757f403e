//! The door through which the ticket's mutex and flag come, and the mutex through which threads learn of each other's words, so that model checking can replace them.
//! Words have a door of their own, in `drtm_htm`; all other mutexes only guard what the process knows by itself.

#[cfg(not(feature = "loom"))]
pub(crate) use {
    parking_lot::{Mutex, MutexGuard},
    std::sync::atomic::{AtomicBool, Ordering},
};

#[cfg(feature = "loom")]
pub(crate) use {
    loom::sync::atomic::{AtomicBool, Ordering},
    model::{Mutex, MutexGuard},
};

/// The model checker's mutex in the shape of the one that is used otherwise.
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
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(self.0.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }

    impl<T> MutexGuard<'_, T> {
        pub(crate) fn unlock_fair(guard: Self) {
            drop(guard);
        }
    }
}
