//! The door through which the ticket's mutex and flag come, so that model checking can replace them. Words have their own, in `drtm_htm`.

#[cfg(not(all(drtm_loom, not(drtm_shuttle))))]
pub(crate) use {
    parking_lot::{Mutex, MutexGuard},
    std::sync::atomic::{AtomicBool, Ordering},
};

#[cfg(all(drtm_loom, not(drtm_shuttle)))]
pub(crate) use {
    loom::sync::atomic::{AtomicBool, Ordering},
    model::{Mutex, MutexGuard},
};

/// The model checker's mutex in the shape of the one that is used otherwise.
#[cfg(all(drtm_loom, not(drtm_shuttle)))]
mod model {
    use std::sync::PoisonError;

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    #[derive(Debug)]
    pub(crate) struct MutexGuard<'m, T>(
        #[expect(dead_code, reason = "dropped, it unlocks")] loom::sync::MutexGuard<'m, T>,
    );

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
