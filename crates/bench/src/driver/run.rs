//! One run: threads, its phases, and what comes out.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    sync::atomic::{AtomicU8, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{Done, Kinds, Tally};

/// How a run goes.
///
/// # Example
///
/// ```
/// use std::time::Duration;
///
/// use drtm_bench::driver::Setup;
///
/// let short = Setup { length: Duration::from_secs(1), ..Setup::STANDARD };
/// assert_eq!(short.threads.get(), 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Workers, each in a thread of its own.
    pub threads: NonZeroUsize,
    /// How long transactions are done before they count.
    pub warm_up: Duration,
    /// How long they count.
    pub length: Duration,
    /// One in so many of a worker's transactions is timed. All are counted; but reading the clock takes as long as a part of a small transaction.
    pub timed_every: NonZeroU32,
}

impl Setup {
    /// One thread for ten seconds, after one that does not count; each eighth transaction is timed.
    pub const STANDARD: Self = Self {
        threads: NonZeroUsize::MIN,
        warm_up: Duration::from_secs(1),
        length: Duration::from_secs(10),
        timed_every: NonZeroU32::new(8).expect("eight is not zero"),
    };
}

/// What a run has measured.
#[derive(Clone, Debug)]
pub struct Run<K> {
    /// How long transactions counted.
    pub time: Duration,
    /// What was counted, of all workers.
    pub tally: Tally<K>,
}

impl<K: Kinds> Run<K> {
    /// Transactions committed in a second.
    pub fn per_second(&self) -> f64 {
        self.tally.total().committed as f64 / self.time.as_secs_f64()
    }
}

/// A run that has not come to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError<E> {
    /// A worker could not begin, or go on.
    #[error("worker {worker} failed: {source}")]
    Worker {
        /// Which, from zero.
        worker: usize,
        /// Why.
        source: E,
    },
    /// A worker panicked. The panic's message is on standard error.
    #[error("worker {worker} panicked; see its message")]
    Panicked {
        /// Which, from zero.
        worker: usize,
    },
}

// How far a run is.
const WARMING_UP: u8 = 0;
const COUNTING: u8 = 1;
const OVER: u8 = 2;

/// What workers share.
#[derive(Default)]
struct Course {
    phase: AtomicU8,
    /// Workers that have begun, or failed to.
    begun: AtomicUsize,
}

/// How often whoever waits looks.
const GLANCE: Duration = Duration::from_millis(1);

/// Runs workers, and tells what they have done. `make` is called in each worker's thread, with its number from zero, and makes the closure that
/// does a transaction.
///
/// When a worker fails, the others stop.
///
/// # Errors
///
/// When a worker could not be made, or its closure fails or panics.
///
/// # Example
///
/// See [the module](super).
pub fn run<K, W, E>(setup: &Setup, make: impl Fn(usize) -> Result<W, E> + Sync) -> Result<Run<K>, DriverError<E>>
where
    K: Kinds,
    W: FnMut() -> Result<Done<K>, E>,
    E: Send,
{
    let course = &Course::default();
    let make = &make;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..setup.threads.get())
            .map(|worker| scope.spawn(move || course.work(|| make(worker), setup.timed_every)))
            .collect();
        let mut run = Run { time: course.go_through(setup), tally: Tally::new() };
        let mut failure = None;
        for (worker, thread) in workers.into_iter().enumerate() {
            match thread.join() {
                Ok(Ok(tally)) => run.tally.add(&tally),
                Ok(Err(source)) => failure = failure.or(Some(DriverError::Worker { worker, source })),
                Err(_) => failure = failure.or(Some(DriverError::Panicked { worker })),
            }
        }
        failure.map_or(Ok(run), Err)
    })
}

impl Course {
    /// Waits until all workers have begun, then through the phases, and tells how long transactions counted. A failure ends them all.
    fn go_through(&self, setup: &Setup) -> Duration {
        while self.begun.load(Ordering::Relaxed) < setup.threads.get() && !self.is_over() {
            thread::sleep(GLANCE);
        }
        self.wait(setup.warm_up);
        // Unless a worker has ended the run meanwhile.
        let _ = self.phase.compare_exchange(WARMING_UP, COUNTING, Ordering::Relaxed, Ordering::Relaxed);
        let begin = Instant::now();
        self.wait(setup.length);
        self.phase.store(OVER, Ordering::Relaxed);
        begin.elapsed()
    }

    /// Waits so long, or until it is over.
    fn wait(&self, time: Duration) {
        let begin = Instant::now();
        while !self.is_over() {
            let left = time.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(Duration::from_millis(20)));
        }
    }

    fn is_over(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == OVER
    }

    /// What a worker's thread does, and what it has counted.
    fn work<K, W, E>(&self, make: impl FnOnce() -> Result<W, E>, timed_every: NonZeroU32) -> Result<Tally<K>, E>
    where
        K: Kinds,
        W: FnMut() -> Result<Done<K>, E>,
    {
        let _end = EndRun(self);
        let mut worker = make()?;
        let mut tally = Tally::new();
        self.begun.fetch_add(1, Ordering::Relaxed);
        while self.phase.load(Ordering::Relaxed) == WARMING_UP {
            worker()?;
        }
        let mut untimed = 0;
        while self.phase.load(Ordering::Relaxed) == COUNTING {
            if untimed == 0 {
                untimed = timed_every.get();
                let start = Instant::now();
                let done = worker()?;
                tally.time(done.kind, start.elapsed());
                tally.count(done);
            } else {
                tally.count(worker()?);
            }
            untimed -= 1;
        }
        Ok(tally)
    }
}

/// Ends the run when a worker fails or panics, so that nobody waits for it. Where it is over, it ends nothing.
struct EndRun<'c>(&'c Course);

impl Drop for EndRun<'_> {
    fn drop(&mut self) {
        self.0.phase.store(OVER, Ordering::Relaxed);
    }
}
