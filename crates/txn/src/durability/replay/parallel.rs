//! Threads that share work.

use std::{num::NonZero, thread};

use crate::Error;

/// Returns how many threads some work is worth.
pub(super) fn threads(worth: usize) -> usize {
    worth.clamp(1, thread::available_parallelism().map_or(1, NonZero::get))
}

/// Runs `work` for each share, in threads of their own if there are several.
pub(super) fn in_parallel<T: Send, R: Send>(
    shares: Vec<T>,
    work: impl Fn(T) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    if shares.len() == 1 {
        return shares.into_iter().map(work).collect();
    }
    thread::scope(|scope| {
        let threads: Vec<_> = shares.into_iter().map(|share| scope.spawn(|| work(share))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect()
    })
}
