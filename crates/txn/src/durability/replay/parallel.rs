//! Threads that share work.

use std::{num::NonZero, thread};

use parking_lot::Mutex;

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
    let shares: Vec<_> = shares.into_iter().map(|share| Mutex::new((Some(share), None))).collect();
    on_threads(shares.len(), &|number| {
        let share = shares[number].lock().0.take();
        shares[number].lock().1 = share.map(&work);
    });
    shares.into_iter().filter_map(|share| share.into_inner().1).collect()
}

/// Runs `work` in as many threads, each with its number. It is no generic function, so that threads
/// are compiled once and not for each kind of work.
fn on_threads(count: usize, work: &(dyn Fn(usize) + Sync)) {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || work(number))).collect();
        for thread in threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
}
