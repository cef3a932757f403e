//! Threads that run transactions for a given time, and their counters.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use parking_lot::RwLock;
use quanta::Clock;

use super::latency::Latencies;
use crate::Error;

/// A thread's client of a workload. It is written by every transaction and lies beside other
/// threads' clients, so it must be aligned to avoid false sharing.
pub trait Client: Send {
    /// Returns the names of the kinds of transactions that it runs.
    fn kinds() -> &'static [&'static str];

    /// Runs the next transaction to its end. The date is in microseconds since 1970.
    fn run_next(&mut self, date: u64) -> Result<Done, Error>;
}

/// The result of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// The transaction's index in [`Client::kinds`].
    pub kind: usize,
    /// Whether it committed; otherwise the workload aborted it.
    pub is_committed: bool,
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Until {
    /// After this duration.
    Time(Duration),
    /// When each thread has run this many transactions.
    Transactions(u64),
}

/// The counters of a run.
#[derive(Debug, Default)]
pub struct Tally {
    /// From the common start until the last transaction's end.
    pub time: Duration,
    /// Transactions that committed.
    pub committed: u64,
    /// Transactions aborted by the workload.
    pub given_up: u64,
    /// Latencies of each kind, whether committed or not.
    pub latencies: Vec<Latencies>,
}

impl Tally {
    fn new(kinds: usize) -> Self {
        Self { latencies: vec![Latencies::default(); kinds], ..Self::default() }
    }

    fn add(&mut self, other: &Self) {
        self.time = self.time.max(other.time);
        self.committed += other.committed;
        self.given_up += other.given_up;
        self.latencies.iter_mut().zip(&other.latencies).for_each(|(all, one)| all.add(one));
    }
}

/// How often a run's progress is shown.
const POLL_EVERY: Duration = Duration::from_millis(20);

/// Runs the transactions of all clients, each in a thread of its own. Calls `glance` periodically
/// with the time since the start.
pub fn run<C: Client>(clients: &mut [C], until: Until, mut glance: impl FnMut(Duration)) -> Result<Tally, Error> {
    // No thread starts before all are spawned.
    let (stop, gate, clock) = (&AtomicBool::new(false), &RwLock::new(()), &Clock::new());
    thread::scope(|scope| {
        let closed = gate.write();
        let mut threads = Vec::new();
        let mut refused = Ok(());
        for client in clients {
            let body = move || {
                drop(gate.read());
                let tally = run_one(client, until, clock, stop);
                // Without this thread the result is void, so the others stop.
                if tally.is_err() {
                    stop.store(true, Relaxed);
                }
                tally
            };
            match thread::Builder::new().spawn_scoped(scope, body) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    stop.store(true, Relaxed);
                    refused = Err(Error::Thread(error));
                    break;
                }
            }
        }
        let began = Instant::now();
        drop(closed);
        while threads.iter().any(|thread| !thread.is_finished()) {
            thread::sleep(POLL_EVERY);
            glance(began.elapsed());
        }
        let mut all = Tally::new(C::kinds().len());
        for thread in threads {
            match thread.join() {
                Ok(tally) => all.add(&tally?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        refused.map(|()| all)
    })
}

/// Runs one thread's transactions. The clock is read once per transaction: a transaction begins
/// when the previous one ends, so drawing its input counts.
///
/// The system's clock takes as long as reading a row, and waits for all loads to complete, so
/// transactions could not overlap. It is read only for the total time, and to confirm that the time
/// is over.
fn run_one<C: Client>(client: &mut C, until: Until, clock: &Clock, stop: &AtomicBool) -> Result<Tally, Error> {
    let mut tally = Tally::new(C::kinds().len());
    let date = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
    let (began, start) = (Instant::now(), clock.raw());
    let (mut now, mut done) = (0, 0);
    loop {
        let is_over = match until {
            // The system's clock decides: the processor's clock may be ahead of it.
            Until::Time(time) => u128::from(now) >= time.as_nanos() && began.elapsed() >= time,
            Until::Transactions(count) => done >= count,
        };
        if is_over || stop.load(Relaxed) {
            tally.time = began.elapsed();
            return Ok(tally);
        }
        let Done { kind, is_committed } = client.run_next(date + now / 1_000)?;
        let end = clock.delta_as_nanos(start, clock.raw());
        tally.latencies[kind].record(end.saturating_sub(now));
        tally.committed += u64::from(is_committed);
        tally.given_up += u64::from(!is_committed);
        (now, done) = (end, done + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counting {
        left: u64,
    }

    impl Client for Counting {
        fn kinds() -> &'static [&'static str] {
            &["even", "odd"]
        }

        fn run_next(&mut self, date: u64) -> Result<Done, Error> {
            assert!(date > 1_600_000_000_000_000, "in microseconds since 1970");
            self.left = self.left.checked_sub(1).ok_or(Error::Size("no transactions left".into()))?;
            let kind = (self.left % 2) as usize;
            Ok(Done { kind, is_committed: kind == 0 })
        }
    }

    #[test]
    fn what_threads_count_is_added_up() {
        let mut clients = [Counting { left: 1_000 }, Counting { left: 500 }];
        let tally = run(&mut clients, Until::Transactions(500), |_| {}).expect("there are as many");
        assert_eq!((tally.committed, tally.given_up), (500, 500));
        assert_eq!(clients.map(|client| client.left), [500, 0]);
        assert!(tally.latencies.iter().all(|latencies| latencies.percentiles().is_some()));
    }

    #[test]
    fn a_failure_ends_the_run_for_all() {
        let mut clients = [Counting { left: u64::MAX }, Counting { left: 10 }];
        let until = Until::Time(Duration::from_secs(3_600));
        assert!(matches!(run(&mut clients, until, |_| {}), Err(Error::Size(_))));
    }

    #[test]
    fn time_ends_a_run() {
        let mut clients = [Counting { left: u64::MAX }];
        let mut glances = 0;
        let tally = run(&mut clients, Until::Time(Duration::from_millis(250)), |_| glances += 1).expect("it ends");
        assert!(tally.time >= Duration::from_millis(250) && tally.committed > 0 && glances > 0);
    }
}
