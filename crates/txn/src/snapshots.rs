//! Snapshots: what everything was at one moment.
//!
//! A snapshot advances the *snapshot number*, and sees what was written in epochs up to the one that it found. A transaction reads the number after it
//! has locked what it writes. So whoever belongs to a snapshot has written already, or has his records locked, which a reader waits for; and whoever locks a
//! record from then on belongs to a later epoch.
//!
//! Writers keep what a row was only if somebody needs it: an open snapshot that sees what is there, and not what comes. Open snapshots are in slots for all
//! writers to see. One that has no number yet may need anything.
//!
//! ```text
//! word 0       snapshot number
//!      1, 2    open snapshots, and how many slots were ever used
//!      3..     slots: 0 free, 1 to be numbered, otherwise the first version that the snapshot does not see
//! ```
//!
//! Who opens a snapshot writes all of this, and who commits then reads all of it: so it is together, and the first few slots are in the line of what precedes them.

use drtm_htm::{Engine, LINE_WORDS, Word, fence_locked};
use drtm_kv::{KvError, Store, Version};
use drtm_rdma::Offset;

pub(crate) use crate::bounds::MOST_SNAPSHOTS;
use crate::{Error, epoch::first_after};

const OPEN: usize = 1;
const USED: usize = 2;
const SLOTS: usize = 3;
/// Whole lines, as whatever comes behind is others'.
const WORDS: usize = (SLOTS + MOST_SNAPSHOTS).next_multiple_of(LINE_WORDS);

const FREE: u64 = 0;
const UNNUMBERED: u64 = 1;

/// Where a database's snapshots are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshots {
    at: Offset,
}

/// An open snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    slot: usize,
    /// The first version that it does not see.
    pub(crate) before: Version,
}

/// What open snapshots need, as a writer has found it after it had its epoch.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// The first versions that they do not see.
    bounds: Vec<u64>,
    has_unnumbered: bool,
}

impl Needs {
    /// Whether somebody may ask for what was from one version to before another.
    #[inline]
    pub(crate) fn include(&self, from: Version, until: Version) -> bool {
        self.has_unnumbered || self.bounds.iter().any(|bound| from.number() < *bound && *bound <= until.number())
    }

    /// Whether there is a snapshot that does not see this version.
    pub(crate) fn include_any_before(&self, version: Version) -> bool {
        self.has_unnumbered || self.bounds.iter().any(|bound| *bound <= version.number())
    }

    pub(crate) fn clear(&mut self) {
        self.bounds.clear();
        self.has_unnumbered = false;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bounds.is_empty() && !self.has_unnumbered
    }
}

impl Snapshots {
    pub(crate) fn create<E: Engine>(store: &Store<E>) -> Result<Self, KvError> {
        let at = store.region().extend(8 * WORDS as u64, 64)?;
        let snapshots = Self { at };
        // Epoch zero is that of records that stand for nothing yet.
        store.region().engine().store(snapshots.number(store)?, 1);
        Ok(snapshots)
    }

    #[inline(always)]
    fn words<'s, E: Engine>(&self, store: &'s Store<E>) -> Result<&'s [Word; WORDS], KvError> {
        Ok(store.region().array(self.at)?)
    }

    /// The snapshot number.
    #[inline(always)]
    pub(crate) fn number<'s, E: Engine>(&self, store: &'s Store<E>) -> Result<&'s Word, KvError> {
        Ok(&self.words(store)?[0])
    }

    /// Opens a snapshot of now.
    pub(crate) fn open<E: Engine>(&self, store: &Store<E>) -> Result<Opened, Error> {
        let (words, engine) = (self.words(store)?, store.region().engine());
        engine.fetch_add(&words[OPEN], 1);
        let mut slots = words[SLOTS..][..MOST_SNAPSHOTS].iter().enumerate();
        let claimed = slots.find(|(_, slot)| {
            engine.load_relaxed(slot) == FREE && engine.compare_exchange(slot, FREE, UNNUMBERED).is_ok()
        });
        let Some((slot, word)) = claimed else {
            engine.fetch_add(&words[OPEN], 1_u64.wrapping_neg());
            return Err(Error::TooManySnapshots { most: MOST_SNAPSHOTS });
        };
        look_as_far_as(engine, &words[USED], slot as u64 + 1);
        // Whoever reads a later number has seen the slot taken, and looks so far.
        let before = first_after(engine.fetch_add(&words[0], 1));
        engine.store(word, before.number());
        // Whoever has read an earlier number has locked his records before: what is read from now on is found locked, or written.
        fence_locked();
        Ok(Opened { slot, before })
    }

    pub(crate) fn close<E: Engine>(&self, store: &Store<E>, opened: Opened) {
        // It was opened there.
        if let Ok(words) = self.words(store) {
            let engine = store.region().engine();
            engine.store(&words[SLOTS + opened.slot], FREE);
            engine.fetch_add(&words[OPEN], 1_u64.wrapping_neg());
        }
    }

    /// How many are open.
    pub(crate) fn count<E: Engine>(&self, store: &Store<E>) -> Result<u64, KvError> {
        Ok(store.region().engine().load(&self.words(store)?[OPEN]))
    }

    /// What open snapshots need, of writers of the epoch that was read before.
    #[inline]
    pub(crate) fn needs<E: Engine>(&self, store: &Store<E>, needs: &mut Needs) -> Result<(), KvError> {
        needs.clear();
        let (words, engine) = (self.words(store)?, store.region().engine());
        if engine.load(&words[OPEN]) == 0 {
            return Ok(());
        }
        let used = engine.load(&words[USED]) as usize;
        for slot in words[SLOTS..][..MOST_SNAPSHOTS].iter().take(used) {
            match engine.load(slot) {
                FREE => {}
                UNNUMBERED => needs.has_unnumbered = true,
                bound => needs.bounds.push(bound),
            }
        }
        Ok(())
    }
}

/// Lets writers look at so many slots, at least.
fn look_as_far_as<E: Engine>(engine: &E, used: &Word, slots: u64) {
    let mut now = engine.load(used);
    while now < slots {
        match engine.compare_exchange(used, now, slots) {
            Ok(_) => break,
            Err(found) => now = found,
        }
    }
}
