//! Turns: how a name that is used again is told from its first use.
//!
//! Two counters of the store are narrow, since there is no room for more in words that must be read
//! at once: a record's incarnation and a bucket's version. A reader that keeps a value of one, and
//! finds the same value later, concludes that nothing has happened. That is wrong if the counter
//! has come round meanwhile, and nothing in the counter tells.
//!
//! So the region has a word that counts *turns*. A round has four quarters, and a thread that is
//! about to begin a quarter of any counter counts a turn first. A reader looks at the word before
//! it takes note of a counter's value, and after it has found the value again. Then:
//!
//! - If a counter has come round in between, it has begun a quarter four times. A thread that has
//!   read the value was ordered behind the thread that wrote it, so it sees the turns that were
//!   counted before.
//! - The first of the four may have been counted before the reader looked, and have become visible
//!   afterwards. So [`ROUND_TURNS`], three, are seen at least, and fewer mean that nothing has come
//!   round.
//!
//! A reader that sees more begins again, or its transaction is a conflict. That is exact: a counter
//! that has come round is always noticed. A transaction that is given up for nothing is rare: a
//! bucket begins a quarter every two million changes, and records are kept [from beginning
//! one](crate::quarantine) while transactions are active.
//!
//! See `docs/decisions/0036-turns.md`.

use std::fmt::Debug;

use drtm_htm::{Engine, fence_acquire};
use drtm_rdma::Region;

/// How many turns are seen, at least, from before a counter had a value to after it has the same
/// value again.
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
    /// The turn that it is now in a region.
    #[inline(always)]
    pub(crate) fn of<E: Engine>(region: &Region<E>) -> Self {
        Self(region.engine().load(region.turns()))
    }

    /// Whether nothing can have come round in a region since this turn, of what was looked at
    /// before.
    #[inline(always)]
    pub(crate) fn holds_in<E: Engine>(self, region: &Region<E>) -> bool {
        fence_acquire();
        self.is_within(Self::of(region))
    }

    /// Whether nothing can have come round from this turn to another.
    #[inline(always)]
    pub(crate) fn is_within(self, now: Self) -> bool {
        now.0.wrapping_sub(self.0) < ROUND_TURNS
    }
}

/// What a store asks and tells of its turns, if operations on it are long: transactions.
///
/// # Example
///
/// A watch for one operation at a time. It counts turns itself, so that its users need not look
/// into the region.
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
pub trait Watch: Debug + Send + Sync {
    /// Counts a turn, before what it is counted for can be seen. Returns the count.
    fn turned(&self) -> u64;

    /// Whether all operations have ended that began before a turn, as far as can be seen. One that
    /// is overlooked is given up for nothing, perhaps.
    fn has_passed(&self, turn: u64) -> bool;
}
