//! Snapshots: consistent reads of one moment.
//!
//! A snapshot advances the *snapshot number*, and sees what was written in epochs up to the number
//! that it found. A transaction reads the number after it has locked its write set. So a commit
//! that a snapshot must see either has written already, or has its records locked, and the reader
//! waits for the locks. A record that is locked later gets a later epoch.
//!
//! A writer keeps an older version only if an open snapshot sees the present version and not the
//! new one. Open snapshots are in slots that all writers read. One that has no number yet may need
//! any version.
//!
//! ```text
//! word 0       snapshot number
//!      1       open snapshots
//!      2       the number of the view that a node of a cluster is in
//!      3       turns of the store, each counted before the store's region counts it
//!      4       how many slots were ever used
//!      5       the crowd: 0 empty, 1 to be numbered, otherwise the first version that its oldest member does not see
//!      6..     slots: 0 free, 1 to be numbered, otherwise the first version that the snapshot does not see
//! ```
//!
//! A thread that opens a snapshot writes all of this, and a committing thread then reads all of it.
//! So it is contiguous, and the first few slots share the line of what precedes them. The first
//! four words are what peers read with a lock: an owner's *line*.
//!
//! # The crowd
//!
//! There is no limit on open snapshots. One that finds no free slot joins the *crowd*, which holds
//! any number. Writers know only its oldest member, and keep every version from that one's on.
//! Members that wait for the crowd's lock at the same time share a number: it was taken after they
//! began, and they have read nothing since.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use drtm_htm::{Engine, LINE_WORDS, Word, fence_locked};
use drtm_kv::{KvError, Store, Version};
use drtm_rdma::{Offset, system::coarse_time};

use crate::{
    commit::epoch::{epoch_of, first_after},
    memory::heap_size::vec_bytes,
    model::{bounds::SNAPSHOT_SLOTS, sync::Mutex},
};

const NUMBER: usize = 0;
const OPEN: usize = 1;
const VIEW: usize = 2;
const TURNS: usize = 3;
const USED: usize = 4;
const CROWD: usize = 5;
const SLOTS: usize = 6;
/// The size is whole lines, because the memory behind is used by others.
const WORDS: usize = (SLOTS + SNAPSHOT_SLOTS).next_multiple_of(LINE_WORDS);

const FREE: u64 = 0;
const UNNUMBERED: u64 = 1;

/// A database's snapshots.
#[derive(Clone, Debug)]
pub(crate) struct Snapshots {
    at: Offset,
    /// The members of the crowd, by the first versions that they do not see.
    crowd: Arc<Mutex<BTreeMap<u64, Members>>>,
    /// When the snapshots in slots were opened, for reports only.
    opened_at: Arc<[AtomicU64]>,
}

/// Members of the crowd that share a number.
#[derive(Debug)]
struct Members {
    count: usize,
    /// When the first of them was opened.
    opened_at: u64,
}

/// An open snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    /// Its slot, or `None` for a member of the crowd.
    slot: Option<usize>,
    /// The first version that it does not see.
    pub(crate) before: Version,
}

/// What open snapshots need, as read by a writer after it had its epoch.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// The first version that each snapshot does not see.
    bounds: Vec<u64>,
    /// Whether a snapshot has no number yet.
    has_unnumbered: bool,
    /// The crowd's word.
    crowd: u64,
}

impl Needs {
    /// Returns its size on the heap, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        vec_bytes(&self.bounds)
    }

    /// Returns whether a snapshot may read a row that is replaced: one written with version `from`
    /// and overwritten with `until`.
    #[inline]
    pub(crate) fn include(&self, from: Version, until: Version) -> bool {
        self.has_unnumbered
            || self.bounds.iter().any(|bound| from.number() < *bound && *bound <= until.number())
            || self.is_for_crowd(until) && epoch_of(from) < epoch_of(until)
    }

    /// Returns whether there is a snapshot that does not see this version.
    pub(crate) fn include_any_before(&self, version: Version) -> bool {
        self.has_unnumbered || self.bounds.iter().any(|bound| *bound <= version.number()) || self.is_for_crowd(version)
    }

    /// Returns whether a member of the crowd may not see this version.
    fn is_for_crowd(&self, version: Version) -> bool {
        self.crowd != FREE && self.crowd <= version.number()
    }

    pub(crate) fn clear(&mut self) {
        self.bounds.clear();
        self.has_unnumbered = false;
        self.crowd = FREE;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bounds.is_empty() && !self.has_unnumbered && self.crowd == FREE
    }
}

impl Snapshots {
    pub(crate) fn create<E: Engine>(store: &Store<E>) -> Result<Self, KvError> {
        let at = store.region().extend(8 * WORDS as u64, 64)?;
        let opened_at = (0..SNAPSHOT_SLOTS).map(|_| AtomicU64::new(0)).collect();
        let snapshots = Self { at, crowd: Arc::default(), opened_at };
        // Epoch zero belongs to records that hold no row yet.
        let (words, engine) = (snapshots.words(store)?, store.region().engine());
        engine.store(&words[NUMBER], 1);
        engine.store(&words[TURNS], engine.load(store.region().turns()));
        Ok(snapshots)
    }

    #[inline(always)]
    fn words<'s, E: Engine>(&self, store: &'s Store<E>) -> Result<&'s [Word; WORDS], KvError> {
        Ok(store.region().array(self.at)?)
    }

    /// Counts a turn of the store, for peers, before the store does.
    pub(crate) fn turned<E: Engine>(&self, store: &Store<E>) {
        // They were created in this memory.
        if let Ok(words) = self.words(store) {
            store.region().engine().fetch_add(&words[TURNS], 1);
        }
    }

    /// Returns the offset of the snapshot number. The number of open snapshots follows it, then the
    /// number of the view, and then the turns.
    pub(crate) fn line(&self) -> Offset {
        self.at
    }

    /// Returns the snapshot number.
    #[inline(always)]
    pub(crate) fn number<'s, E: Engine>(&self, store: &'s Store<E>) -> Result<&'s Word, KvError> {
        Ok(&self.words(store)?[NUMBER])
    }

    /// Returns the word with the number of the view that a node of a cluster is in.
    #[cfg(feature = "cluster")]
    pub(crate) fn view<'s, E: Engine>(&self, store: &'s Store<E>) -> Result<&'s Word, KvError> {
        Ok(&self.words(store)?[VIEW])
    }

    /// Makes the snapshot number at least this.
    #[cfg(feature = "cluster")]
    pub(crate) fn raise<E: Engine>(&self, store: &Store<E>, to: u64) -> Result<(), KvError> {
        let (number, engine) = (self.number(store)?, store.region().engine());
        let mut now = engine.load(number);
        while now < to {
            match engine.compare_exchange(number, now, to) {
                Ok(_) => break,
                Err(found) => now = found,
            }
        }
        Ok(())
    }

    /// Opens a snapshot of now.
    pub(crate) fn open<E: Engine>(&self, store: &Store<E>) -> Result<Opened, KvError> {
        let (words, engine) = (self.words(store)?, store.region().engine());
        engine.fetch_add(&words[OPEN], 1);
        let opened = match claim_slot(engine, words) {
            Some(slot) => {
                self.opened_at[slot].store(now(), Relaxed);
                let before = take_number(engine, words);
                engine.store(&words[SLOTS + slot], before.number());
                Opened { slot: Some(slot), before }
            }
            None => Opened { slot: None, before: self.join_crowd(engine, words) },
        };
        // A commit that has read an earlier number has locked its records before: a read from now
        // on finds them locked, or written. This holds for a member of the crowd that shares a
        // number too: the number was taken earlier.
        fence_locked();
        Ok(opened)
    }

    /// Joins the crowd. Returns the first version that the new member does not see.
    #[cold]
    fn join_crowd<E: Engine>(&self, engine: &E, words: &[Word; WORDS]) -> Version {
        // All that was acknowledged before this member began has this epoch, or an earlier one.
        let began_in = engine.load(&words[NUMBER]);
        let mut crowd = self.crowd.lock();
        let newest = crowd.last_key_value().map(|(before, _)| Version::new(*before));
        let before = match newest {
            // It got its number while this one waited for the lock.
            Some(newest) if newest >= first_after(began_in) => newest,
            Some(_) => take_number(engine, words),
            None => {
                engine.store(&words[CROWD], UNNUMBERED);
                let before = take_number(engine, words);
                engine.store(&words[CROWD], before.number());
                before
            }
        };
        crowd.entry(before.number()).or_insert_with(|| Members { count: 0, opened_at: now() }).count += 1;
        before
    }

    fn leave_crowd<E: Engine>(&self, engine: &E, words: &[Word; WORDS], before: Version) {
        let mut crowd = self.crowd.lock();
        if let Some(members) = crowd.get_mut(&before.number()) {
            members.count -= 1;
            if members.count == 0 {
                crowd.remove(&before.number());
            }
        }
        engine.store(&words[CROWD], crowd.first_key_value().map_or(FREE, |(oldest, _)| *oldest));
    }

    pub(crate) fn close<E: Engine>(&self, store: &Store<E>, opened: Opened) {
        // The snapshot was opened in this memory.
        if let Ok(words) = self.words(store) {
            let engine = store.region().engine();
            match opened.slot {
                Some(slot) => engine.store(&words[SLOTS + slot], FREE),
                None => self.leave_crowd(engine, words, opened.before),
            }
            engine.fetch_add(&words[OPEN], 1_u64.wrapping_neg());
        }
    }

    /// Returns the number of open snapshots.
    pub(crate) fn count<E: Engine>(&self, store: &Store<E>) -> Result<u64, KvError> {
        Ok(store.region().engine().load(&self.words(store)?[OPEN]))
    }

    /// Returns how long the oldest snapshot has been open, to about ten milliseconds. `None` if
    /// none is open.
    #[cold]
    pub(crate) fn oldest<E: Engine>(&self, store: &Store<E>) -> Option<Duration> {
        let (words, engine) = (self.words(store).ok()?, store.region().engine());
        let slots = words[SLOTS..].iter().zip(&*self.opened_at).filter(|(slot, _)| engine.load(slot) > UNNUMBERED);
        let in_slots = slots.map(|(_, opened_at)| opened_at.load(Relaxed)).min();
        let in_crowd = self.crowd.lock().values().map(|members| members.opened_at).min();
        let opened_at = in_slots.into_iter().chain(in_crowd).min()?;
        Some(Duration::from_nanos(now().saturating_sub(opened_at)))
    }

    /// Collects what open snapshots need. The writer must have read its epoch before.
    #[inline]
    pub(crate) fn needs<E: Engine>(&self, store: &Store<E>, needs: &mut Needs) -> Result<(), KvError> {
        needs.clear();
        let (words, engine) = (self.words(store)?, store.region().engine());
        if engine.load(&words[OPEN]) == 0 {
            return Ok(());
        }
        let used = engine.load(&words[USED]) as usize;
        needs.crowd = engine.load(&words[CROWD]);
        for slot in words[SLOTS..][..SNAPSHOT_SLOTS].iter().take(used) {
            match engine.load(slot) {
                FREE => {}
                UNNUMBERED => needs.has_unnumbered = true,
                bound => needs.bounds.push(bound),
            }
        }
        Ok(())
    }
}

/// Returns the time by the system's coarse clock, which costs a few nanoseconds to read.
fn now() -> u64 {
    coarse_time().as_nanos() as u64
}

/// Claims a slot, if one is free.
fn claim_slot<E: Engine>(engine: &E, words: &[Word; WORDS]) -> Option<usize> {
    let mut slots = words[SLOTS..][..SNAPSHOT_SLOTS].iter();
    let slot = slots.position(|slot| {
        engine.load_relaxed(slot) == FREE && engine.compare_exchange(slot, FREE, UNNUMBERED).is_ok()
    })?;
    look_as_far_as(engine, &words[USED], slot as u64 + 1);
    Some(slot)
}

/// Takes the next snapshot number. Returns the first version that its snapshot does not see. A
/// commit that reads a later number has seen what was stored before this: it knows that there is
/// such a snapshot.
fn take_number<E: Engine>(engine: &E, words: &[Word; WORDS]) -> Version {
    first_after(engine.fetch_add(&words[NUMBER], 1))
}

/// Makes writers read at least this many slots.
fn look_as_far_as<E: Engine>(engine: &E, used: &Word, slots: u64) {
    let mut now = engine.load(used);
    while now < slots {
        match engine.compare_exchange(used, now, slots) {
            Ok(_) => break,
            Err(found) => now = found,
        }
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use crate::commit::epoch::first_after;

    /// No version that a snapshot may read is taken for one that none needs.
    #[test]
    fn versions_up_to_the_first_that_a_snapshot_does_not_see_are_needed() {
        let bound = first_after(6);
        let around = || bound.number() - 2..bound.number() + 3;
        let of_slot = Needs { bounds: vec![bound.number()], ..Needs::default() };
        let of_crowd = Needs { crowd: bound.number(), ..Needs::default() };
        for needs in [of_slot, of_crowd] {
            for until in around().map(Version::new) {
                assert_eq!(needs.include_any_before(until), bound <= until, "{until:?}");
                let is_needed = around().map(Version::new).any(|from| from < until && needs.include(from, until));
                assert!(needs.include_any_before(until) || !is_needed, "{until:?}");
            }
        }
        assert!(!Needs::default().include_any_before(first_after(1 << 30)));
        assert!(Needs { has_unnumbered: true, ..Needs::default() }.include_any_before(Version::new(1)));
    }
}
