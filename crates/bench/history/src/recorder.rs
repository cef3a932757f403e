//! Records histories: each thread notes its transactions in a [`Log`] of its own, without locks or
//! waiting. At the end the logs become one [`History`].
//!
//! # Times
//!
//! All logs read one monotonic clock, before the transaction begins and after its commit. So a
//! recorded transaction is never shorter than the real one, and order by the clock is real order. A
//! fence keeps the processor from delaying writes until after it has read the clock.
//!
//! A closure that is retried cannot say when its next run begins: the store may have taken a
//! snapshot, or locked rows, before it calls the closure again. So that run is recorded from the
//! moment of the last operation of the failed one, which is earlier.
//!
//! # Versions
//!
//! The checker orders a row's versions by their numbers. The numbers come from one of two sources:
//! - The store numbers a row's versions, and returns the numbers.
//! - Each written value contains a number from [`Recording::version`]. Numbers are unique and
//!   increase over time. They follow the order of the writes *if every transaction reads a row, or
//!   finds it absent, before it requests the version to write there*: then the version that it
//!   replaces was given before. For rows that are written without being read, this method cannot
//!   determine the order.
//!
//! Some stores number versions only at commit. Record such a store by noting writes after the
//! commit, and leave out reads of the transaction's own writes.

use std::{
    hint,
    ops::RangeBounds,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering, fence},
    },
};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::record::{History, Operation, Outcome, Row, Seen, Transaction};

/// Bits of a version that identify the log. The other bits last for 52 days.
const LOG_BITS: u32 = 12;

/// Creates the logs of one run.
///
/// # Example
///
/// Two threads count in one cell.
///
/// ```
/// use std::{sync::Mutex, thread};
///
/// use drtm_history::{History, Order, Recorder, check};
///
/// let (cell, mut recorder) = (&Mutex::new(None), Recorder::start());
/// let logs = [recorder.log()?, recorder.log()?];
/// let logs = thread::scope(|scope| {
///     let threads = logs.map(|mut log| {
///         scope.spawn(move || {
///             for _ in 0..10 {
///                 let mut recording = log.begin();
///                 let mut cell = cell.lock().unwrap();
///                 recording.read(0, 'x', *cell);
///                 let version = recording.version();
///                 recording.write(0, 'x', version);
///                 *cell = Some(version);
///                 drop(cell);
///                 recording.commit();
///             }
///             log
///         })
///     });
///     threads.map(|thread| thread.join().unwrap())
/// });
/// let history = History::of(logs);
/// assert_eq!(history.transactions.len(), 20);
/// assert!(check(&history, Order::RealTime)?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Recorder {
    time: Time,
    logs: u64,
}

/// What the clocks of a recorder read.
#[derive(Clone, Debug)]
enum Time {
    Real(Epoch),
    /// Each reading is the next number.
    Counted(Arc<AtomicU64>),
}

impl Time {
    fn now(&self) -> u64 {
        match self {
            Self::Real(epoch) => monotonic() - epoch.0,
            Self::Counted(count) => count.fetch_add(1, Ordering::SeqCst),
        }
    }

    /// Returns the clock of the log with this number.
    fn clock(self, number: u64) -> Result<Clock, TooManyLogs> {
        if number >> LOG_BITS != 0 {
            return Err(TooManyLogs);
        }
        Ok(Clock { time: self, number, last: 0 })
    }
}

/// The number of logs has reached the limit that versions can distinguish.
///
/// # Example
///
/// ```
/// use drtm_history::{Recorder, TooManyLogs};
///
/// let mut recorder = Recorder::start();
/// let logs: Result<Vec<_>, TooManyLogs> = (0..4097).map(|_| recorder.log::<u64>()).collect();
/// assert_eq!(logs.unwrap_err(), TooManyLogs);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a recorder has {} logs at most: let each thread keep the one it has", 1 << LOG_BITS)]
pub struct TooManyLogs;

impl Recorder {
    /// Starts the clock.
    pub fn start() -> Self {
        Self { time: Time::Real(Epoch::now()), logs: 0 }
    }

    /// Starts a clock that counts its readings. What it says depends on nothing but their order, so
    /// a run that is simulated records the same each time.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_history::{Log, Recorder, TooManyLogs};
    ///
    /// let version = || Ok::<_, TooManyLogs>(Recorder::counting().log::<u64>()?.begin().version());
    /// assert_eq!(version()?, version()?);
    /// # Ok::<(), TooManyLogs>(())
    /// ```
    pub fn counting() -> Self {
        Self { time: Time::Counted(Arc::new(AtomicU64::new(1))), logs: 0 }
    }

    /// Creates a log for another thread.
    ///
    /// # Errors
    ///
    /// Returns [`TooManyLogs`] if there are 4096 already.
    pub fn log<K>(&mut self) -> Result<Log<K>, TooManyLogs> {
        Ok(Log { clock: self.clock()?, transactions: Vec::new() })
    }

    /// Returns a clock for another thread, which counts as a log.
    pub fn clock(&mut self) -> Result<Clock, TooManyLogs> {
        let clock = self.time.clone().clock(self.logs)?;
        self.logs += 1;
        Ok(clock)
    }
}

/// A thread's view of the clock shared by all logs of a recorder.
#[derive(Debug)]
pub struct Clock {
    time: Time,
    number: u64,
    /// The last moment returned.
    last: u64,
}

impl Clock {
    /// Returns this moment, in nanoseconds where time is real. Waits until it is later than all
    /// earlier moments of this clock: transactions of one thread never seem to overlap, however
    /// coarse the clock is.
    pub fn moment(&mut self) -> u64 {
        self.moment_after(0)
    }

    /// Like [`moment`](Self::moment), but also later than `earlier`.
    fn moment_after(&mut self, earlier: u64) -> u64 {
        fence(Ordering::SeqCst);
        let earlier = earlier.max(self.last);
        loop {
            self.last = self.time.now();
            if self.last > earlier {
                break;
            }
            hint::spin_loop();
        }
        fence(Ordering::SeqCst);
        self.last
    }

    /// Returns a unique version, greater than all that any clock of the recorder has given before.
    pub fn version(&mut self) -> u64 {
        // Another clock may have given one at this moment, so the next moment is used.
        let now = self.time.now();
        self.moment_after(now) << LOG_BITS | self.number
    }
}

/// The transactions of one thread.
///
/// # Example
///
/// See [`Recorder`].
#[derive(Debug)]
pub struct Log<K> {
    clock: Clock,
    transactions: Vec<Transaction<K>>,
}

impl<K> Log<K> {
    /// Begins to record a transaction. Call it just before the transaction begins.
    pub fn begin(&mut self) -> Recording<'_, K> {
        let invoked = self.clock.moment();
        Recording { log: self, transaction: Transaction::unknown(invoked), noted: invoked }
    }
}

/// The start of a recording, on the monotonic clock that all processes of the machine share.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Epoch(u64);

impl Epoch {
    /// Begins an epoch at this moment.
    pub fn now() -> Self {
        Self(monotonic())
    }

    /// Returns the clock of the log with this number among the logs of all processes.
    pub fn clock(self, number: u64) -> Result<Clock, TooManyLogs> {
        Time::Real(self).clock(number)
    }
}

/// Returns nanoseconds. They fit for 584 years.
fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl<K> History<K> {
    /// Merges logs into a history.
    ///
    /// # Example
    ///
    /// See [`Recorder`].
    pub fn of(logs: impl IntoIterator<Item = Log<K>>) -> Self {
        logs.into_iter().flat_map(|log| log.transactions).collect()
    }
}

/// A transaction in progress. If it is dropped before it ends, its outcome is [`Outcome::Unknown`].
///
/// # Example
///
/// ```
/// use drtm_history::{History, Outcome, Recorder};
///
/// let mut log = Recorder::start().log()?;
/// let mut recording = log.begin();
/// recording.read(0, 7, None);
/// let version = recording.version();
/// recording.write(0, 7, version);
/// recording.retry();
/// recording.scan(0, 0..10, [(3, version)]);
/// recording.commit();
/// let mut lost = log.begin();
/// lost.remove(0, 3, version + 1);
/// drop(lost);
///
/// let outcomes: Vec<_> = History::of([log]).transactions.iter().map(|one| one.outcome).collect();
/// assert_eq!(outcomes, [Outcome::Aborted, Outcome::Committed, Outcome::Unknown]);
/// # Ok::<(), drtm_history::TooManyLogs>(())
/// ```
#[derive(Debug)]
pub struct Recording<'l, K> {
    log: &'l mut Log<K>,
    transaction: Transaction<K>,
    /// The moment at which the last operation was recorded.
    noted: u64,
}

impl<K> Recording<'_, K> {
    /// Records a read of a row and its result: a [`Seen`], or the version if the row was present.
    pub fn read(&mut self, table: u32, key: K, seen: impl Into<Seen>) {
        self.note(Operation::Read { row: Row { table, key }, seen: seen.into() });
    }

    /// Records a write of a row's `version`.
    pub fn write(&mut self, table: u32, key: K, version: u64) {
        self.note(Operation::Write { row: Row { table, key }, version, removal: false });
    }

    /// Records a removal of a row, which made `version` of it.
    pub fn remove(&mut self, table: u32, key: K, version: u64) {
        self.note(Operation::Write { row: Row { table, key }, version, removal: true });
    }

    /// Records a scan of a range that returned exactly `matched`. If the scan stopped early, the
    /// range ends with the last key returned, inclusive.
    pub fn scan(&mut self, table: u32, range: impl RangeBounds<K>, matched: impl IntoIterator<Item = (K, u64)>)
    where
        K: Clone,
    {
        self.note(Operation::scan(table, range, matched));
    }

    /// Returns a unique version for the next write or removal, greater than all that any log of the
    /// recorder has given before.
    pub fn version(&mut self) -> u64 {
        self.log.clock.version()
    }

    /// Records that it has committed just now.
    pub fn commit(mut self) {
        self.end(Outcome::Committed);
    }

    /// Records that it has aborted just now.
    pub fn abort(mut self) {
        self.end(Outcome::Aborted);
    }

    /// Records that it has aborted and begins again. Call it at the top of a closure that is
    /// retried until it commits. It does nothing if no operation was recorded.
    pub fn retry(&mut self) {
        if !self.transaction.operations.is_empty() {
            self.end(Outcome::Aborted);
            // The store may have begun this run before it called the closure.
            let next = Transaction::unknown(self.noted);
            self.log.transactions.push(std::mem::replace(&mut self.transaction, next));
        }
    }

    fn note(&mut self, operation: Operation<K>) {
        self.transaction.operations.push(operation);
        self.noted = self.log.clock.moment();
    }

    fn end(&mut self, outcome: Outcome) {
        self.transaction.outcome = outcome;
        self.transaction.responded = self.log.clock.moment();
    }
}

impl<K> Drop for Recording<'_, K> {
    fn drop(&mut self) {
        let nothing = Transaction::unknown(0);
        self.log.transactions.push(std::mem::replace(&mut self.transaction, nothing));
    }
}
