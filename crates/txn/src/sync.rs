//! The mutex through which threads learn of each other's words: the model checker's where there is one, so that it knows what has been learned. All others only
//! guard what the process knows by itself.

#[cfg(not(all(drtm_loom, not(drtm_shuttle))))]
pub(crate) use parking_lot::Mutex;

#[cfg(all(drtm_loom, not(drtm_shuttle)))]
pub(crate) use model::Mutex;

#[cfg(all(drtm_loom, not(drtm_shuttle)))]
mod model {
    use loom::sync::MutexGuard;

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("a panic ends the model")
        }
    }
}
