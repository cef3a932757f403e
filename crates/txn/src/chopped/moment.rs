//! Which transactions are under way, and moments at which none of some are.
//!
//! Each thread counts, for each transaction of the program, how often it has begun or ended one: an
//! odd count says that one is under way. Only its own thread writes a count.
//!
//! - A thread that *observes* a moment reads all counts of some transactions before and after. If
//!   none is odd and none has changed, none was under way in between: what the thread has read of
//!   them, it has read before they began or after they ended.
//! - A thread that *closes* transactions lets no further one begin, and waits until those under way
//!   have ended. A thread that begins one first counts it and then looks whether it is closed; the
//!   closing thread first closes and then looks at the counts. So one of them sees the other.

use std::{
    fmt,
    sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Relaxed, SeqCst},
        fence,
    },
};

use drtm_htm::Waiter;
use thread_local::ThreadLocal;

/// The moments of a program.
#[derive(Debug)]
pub(super) struct Moments {
    threads: ThreadLocal<Counts>,
    /// How many threads have closed each transaction.
    closed: Box<[AtomicU32]>,
    next_thread: AtomicU64,
}

/// The counts of one thread, on lines of their own.
#[derive(Debug)]
#[repr(align(128))]
struct Counts {
    begun: Box<[AtomicU64]>,
    /// The thread's next identity of a row.
    next_id: AtomicU64,
}

/// The bits of an identity that count the identities of its thread.
const ID_BITS: u32 = 44;

/// A transaction that is under way. Dropping it ends it.
pub(super) struct UnderWay<'m> {
    begun: &'m AtomicU64,
}

/// Transactions that are closed, until it is dropped.
pub(super) struct Closed<'m> {
    moments: &'m Moments,
    transactions: &'m [usize],
}

impl fmt::Debug for UnderWay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnderWay")
    }
}

impl fmt::Debug for Closed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closed").field("transactions", &self.transactions).finish_non_exhaustive()
    }
}

impl Moments {
    /// Begins with the moments of so many transactions, whose rows have keys above `last`.
    pub(super) fn of(transactions: usize, last: u64) -> Self {
        let closed = (0..transactions).map(|_| AtomicU32::new(0)).collect();
        let next_thread = AtomicU64::new((last >> ID_BITS) + 1);
        Self { threads: ThreadLocal::new(), closed, next_thread }
    }

    fn counts(&self) -> &Counts {
        self.threads.get_or(|| Counts {
            begun: self.closed.iter().map(|_| AtomicU64::new(0)).collect(),
            next_id: AtomicU64::new(self.next_thread.fetch_add(1, Relaxed) << ID_BITS),
        })
    }

    /// Returns a number that no other call returns.
    pub(super) fn next_id(&self) -> u64 {
        let next = &self.counts().next_id;
        let id = next.load(Relaxed);
        next.store(id + 1, Relaxed);
        id
    }

    /// Begins a transaction, as soon as it is not closed.
    pub(super) fn begin(&self, transaction: usize) -> UnderWay<'_> {
        let begun = &self.counts().begun[transaction];
        loop {
            begun.store(begun.load(Relaxed) + 1, SeqCst);
            fence(SeqCst);
            if self.closed[transaction].load(SeqCst) == 0 {
                return UnderWay { begun };
            }
            drop(UnderWay { begun });
            let waiter = Waiter::new();
            while self.closed[transaction].load(SeqCst) != 0 {
                waiter.pause();
            }
        }
    }

    /// Returns how often these transactions have begun and ended. `None` if one is under way.
    pub(super) fn observe(&self, transactions: &[usize]) -> Option<u64> {
        let mut sum = 0_u64;
        for counts in &self.threads {
            for &transaction in transactions {
                let count = counts.begun[transaction].load(SeqCst);
                if count % 2 == 1 {
                    return None;
                }
                sum += count;
            }
        }
        Some(sum)
    }

    /// Closes transactions, and waits until none is under way.
    pub(super) fn close<'m>(&'m self, transactions: &'m [usize]) -> Closed<'m> {
        transactions.iter().for_each(|&transaction| {
            self.closed[transaction].fetch_add(1, SeqCst);
        });
        fence(SeqCst);
        let closed = Closed { moments: self, transactions };
        let waiter = Waiter::new();
        while self.observe(transactions).is_none() {
            waiter.pause();
        }
        closed
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.begun.store(self.begun.load(Relaxed) + 1, SeqCst);
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.transactions.iter().for_each(|&transaction| {
            self.moments.closed[transaction].fetch_sub(1, SeqCst);
        });
    }
}
