//! Turns: how the reuse of a narrow counter's value (ABA) is detected.
//!
//! Two counters of the store are narrow: a record's incarnation and a bucket's version. They share
//! words with data that must be read at once. A reader that keeps a counter's value, and finds the
//! same value later, concludes that nothing has changed. That is wrong if the counter has wrapped
//! around meanwhile, which the counter itself does not show.
//!
//! So the region has a word that counts *turns*: an epoch. A round of a counter has four quarters,
//! and a thread that is about to begin a quarter of any counter first counts a turn. A reader loads
//! the turns before it reads a counter, and after it has found the same value again. Then:
//!
//! - If a counter has wrapped around in between, it has begun a quarter four times. A thread that
//!   has read the value was ordered behind the thread that wrote it, so it sees the turns that were
//!   counted before.
//! - The first of the four may have been counted before the reader looked, and have become visible
//!   afterwards. So the reader sees at least [`ROUND_TURNS`], three, more turns. Fewer mean that no
//!   counter has wrapped around.
//!
//! A reader that sees more retries, or its transaction conflicts. The detection is exact: a
//! wrap-around is always noticed. Unnecessary aborts are rare: a bucket begins a quarter every two
//! million changes, and records are kept [from beginning one](super::quarantine) while transactions
//! are active.
//!
//! See `docs/decisions/0036-turns.md`.

use drtm_htm::{Engine, fence_acquire};
use drtm_rdma::Region;

use crate::Shortage;

/// The number of turns that a reader sees, at least, while a counter wraps around to the same
/// value.
///
/// # Example
///
/// See [`Watch`].
pub const ROUND_TURNS: u64 = 3;

/// The turn in which a reader began.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::{ForHolder, HashConfig, KvTable, NoValue, Store};
///
/// let store = Store::in_memory(NoHtm, 16 << 20)?;
/// let (table, worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
/// let since = store.turn();
/// let Err(bucket) = table.read(7, ForHolder(worker.holder()), &mut NoValue)? else { panic!("it is empty") };
/// // Whatever takes its time goes here.
/// assert!(store.records().is_unchanged(&bucket) && store.is_within(since), "7 is still not there");
/// # Ok::<(), drtm_kv::KvError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn(pub(crate) u64);

impl Turn {
    /// Makes the turn from the count that a peer has read.
    ///
    /// # Example
    ///
    /// See [`Location::is_within`](crate::Location::is_within).
    #[must_use]
    pub const fn from_word(turns: u64) -> Self {
        Self(turns)
    }

    /// Returns the current turn of a region.
    #[inline(always)]
    pub(crate) fn of<E: Engine>(region: &Region<E>) -> Self {
        Self(region.engine().load(region.turns()))
    }

    /// Returns whether no counter of a region that was read before can have wrapped around since
    /// this turn.
    #[inline(always)]
    pub(crate) fn holds_in<E: Engine>(self, region: &Region<E>) -> bool {
        fence_acquire();
        self.is_within(Self::of(region))
    }

    /// Returns whether no counter can have wrapped around from this turn to another.
    #[inline(always)]
    pub(crate) fn is_within(self, now: Self) -> bool {
        now.0.wrapping_sub(self.0) < ROUND_TURNS
    }
}

/// The interface between a store and a tracker of its long operations, transactions, for the turns.
///
/// # Example
///
/// A watch for one operation at a time. It counts turns itself, so that its users need not read the
/// region.
///
/// ```
/// use std::sync::{Arc, Weak, atomic::{AtomicU64, Ordering::SeqCst}};
///
/// use drtm_htm::NoHtm;
/// use drtm_kv::{ROUND_TURNS, Store, Watch};
///
/// #[derive(Debug, Default)]
/// struct One {
///     turns: AtomicU64,
///     /// When the operation began; zero if there is none.
///     began: AtomicU64,
/// }
///
/// impl Watch for One {
///     fn turned(&self) -> u64 {
///         self.turns.fetch_add(1, SeqCst) + 1
///     }
///
///     fn has_passed(&self, turn: u64) -> bool {
///         let began = self.began.load(SeqCst);
///         began == 0 || began >= turn
///     }
/// }
///
/// let store = Store::in_memory(NoHtm, 16 << 20)?;
/// let one = Arc::new(One::default());
/// let watch: Weak<dyn Watch> = Arc::downgrade(&one) as _;
/// store.watched_by(watch);
/// let began = one.turns.load(SeqCst);
/// // An operation goes here.
/// assert!(one.turns.load(SeqCst) - began < ROUND_TURNS);
/// # Ok::<(), drtm_kv::KvError>(())
/// ```
pub trait Watch: Send + Sync {
    /// Counts a turn, before the change that it is counted for becomes visible. Returns the count.
    fn turned(&self) -> u64;

    /// Returns whether all operations that began before a turn have ended, as far as is known. An
    /// operation that is overlooked may be aborted unnecessarily.
    fn has_passed(&self, turn: u64) -> bool;

    /// Returns whether it can determine [when operations have ended](Self::have_all_ended), so that
    /// memory can be divided for other sizes.
    fn is_certain(&self) -> bool {
        false
    }

    /// Whether all operations have ended, for certain, that began before a turn, and nothing is
    /// left of what they knew: no handle, no hint, nothing that is to be taken back. One that is
    /// overlooked must begin after this was called.
    fn have_all_ended(&self, turn: u64) -> bool {
        let _ = turn;
        false
    }

    /// Adds to a report what holds memory, as far as it knows.
    fn explain(&self, shortage: &mut Shortage) {
        let _ = shortage;
    }
}
