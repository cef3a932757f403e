//! Locking the write set.
//!
//! Usually no other transaction has any of the rows locked, and then the order does not matter:
//! each row is locked as it comes. As soon as one is found locked, all are unlocked, and locked
//! again in memory order, now waiting: so transactions never deadlock.

use drtm_htm::{Access, Engine, Plain, Waiter};
use drtm_kv::{Handle, Head, Holder, Locking, Records, Version};

use crate::{
    Config, Conflict, Error,
    commit::{epoch::epoch_of, write_set::Write},
    db::inner::Inner,
    mutation::Mutation,
};

/// How often a lock held by another transaction is tried again.
const PATIENCE: u32 = 256;

/// What a commit learns about the rows that it has locked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Summary {
    newest: Version,
    oldest: Version,
    marks: u64,
}

const HAS_PAST: u64 = 1;
const LACKS_ROOM: u64 = 1 << 1;

impl Summary {
    const NOTHING: Self = Self { newest: Version::new(0), oldest: Version::new(u64::MAX), marks: 0 };

    /// Returns the newest version of any row.
    pub(super) fn newest(&self) -> Version {
        self.newest
    }

    /// Returns whether every row is plain: without older versions, with a value that fits, and not
    /// needed by a snapshot at a commit of this epoch.
    #[inline(always)]
    pub(super) fn is_plain(&self, epoch: u64) -> bool {
        self.marks == 0 && epoch_of(self.oldest) >= epoch
    }

    /// Returns whether the new value of a row does not fit in place.
    pub(super) fn lacks_room(&self) -> bool {
        self.marks & LACKS_ROOM != 0
    }

    /// Returns whether a row has older versions.
    pub(super) fn has_past(&self) -> bool {
        self.marks & HAS_PAST != 0
    }

    /// Returns whether a snapshot may need a row's current version at a commit of this epoch.
    pub(super) fn may_be_needed(&self, epoch: u64) -> bool {
        self.has_past() || epoch_of(self.oldest) < epoch
    }

    /// Adds a row that is now locked. Returns whether it is unchanged since the transaction read
    /// it.
    #[inline(always)]
    fn add<'s, S: Config, A: Access<'s>>(
        &mut self,
        tx: &mut A,
        records: &Records<'s, S::Engine>,
        write: &mut Write,
        (version, head): (Version, Head),
    ) -> Result<bool, A::Abort> {
        write.before = version;
        self.newest = self.newest.max(version);
        if !write.is_made {
            self.oldest = self.oldest.min(version);
        }
        let (is_same, new) = (version == write.seen, write.op.new_length());
        // Most rows are like this, and need no other marks.
        let is_plain = new.map_or(!head.has_older(), |new| head.is_plain(new));
        if is_same && is_plain {
            write.has_room = true;
            return Ok(true);
        }
        write.has_room = match new {
            Some(new) => records.length_in(tx, write.at, head)? as usize == new,
            None => true,
        };
        let mark = |is_so, mark| if is_so { mark } else { 0 };
        self.marks |= mark(head.has_older(), HAS_PAST) | mark(!write.has_room, LACKS_ROOM);
        Ok(is_same || !write.is_read || S::has(Mutation::CommitWithoutValidation))
    }
}

/// Why a row could not be locked.
#[derive(Clone, Copy, Debug)]
pub(super) enum NotLocked {
    /// Another transaction has it locked.
    Held,
    /// The transaction cannot commit.
    Conflict(Conflict),
}

/// Locks rows as they come, each by calling `lock`: a compare-and-swap, or a store in an htm
/// transaction.
///
/// If a row cannot be locked, returns the reason, and how many rows are locked.
#[inline(always)]
pub(super) fn lock_rows<'s, S: Config, A: Access<'s>>(
    tx: &mut A,
    records: &Records<'s, S::Engine>,
    writes: &mut [Write],
    lock: impl Fn(&mut A, Handle) -> Result<Locking, A::Abort>,
) -> Result<Result<Summary, (usize, NotLocked)>, A::Abort> {
    let mut summary = Summary::NOTHING;
    for (write, locked) in writes.iter_mut().zip(0..) {
        let failed = match lock(tx, write.at)? {
            Locking::Taken { version, head } => {
                if summary.add::<S, _>(tx, records, write, (version, head))? {
                    continue;
                }
                (locked + 1, NotLocked::Conflict(Conflict::Validation))
            }
            Locking::Gone => (locked, NotLocked::Conflict(Conflict::Moved)),
            Locking::Mine { .. } | Locking::Held(_) => (locked, NotLocked::Held),
        };
        return Ok(Err(failed));
    }
    Ok(Ok(summary))
}

#[inline(always)]
pub(super) fn unlock<E: Engine>(records: &Records<'_, E>, locked: &[Write]) {
    locked.iter().for_each(|write| records.unlock(write.at));
}

/// Locks all rows in any order, without waiting. If that fails, nothing is locked.
#[inline(always)]
pub(super) fn lock<S: Config>(db: &Inner<S>, writes: &mut [Write], holder: Holder) -> Result<Summary, NotLocked> {
    let records = &db.store.records();
    // A place outside of memory has no record.
    let swap = |at| records.lock(at, holder).unwrap_or(Locking::Gone);
    let Ok(tried) = lock_rows::<S, _>(&mut Plain::new(db.engine()), records, writes, |_, at| Ok(swap(at)));
    tried.map_err(|(locked, why)| {
        unlock(records, &writes[..locked]);
        why
    })
}

/// Locks all rows in the order of their records, waiting for other transactions.
///
/// # Errors
///
/// A conflict; then nothing is locked.
#[cold]
#[inline(never)]
pub(super) fn lock_in_order<S: Config>(
    db: &Inner<S>,
    writes: &mut [Write],
    order: &mut Vec<(Handle, u32)>,
    holder: Holder,
) -> Result<Summary, Error> {
    let records = &db.store.records();
    order.clear();
    order.extend(writes.iter().zip(0..).map(|(write, index)| (write.at, index)));
    order.sort_unstable_by_key(|(at, _)| *at);
    let mut summary = Summary::NOTHING;
    for (count, (at, index)) in order.iter().enumerate() {
        let failed = match lock_patiently(db, *at, holder) {
            Ok(found) => {
                let write = &mut writes[*index as usize];
                let Ok(is_it) = summary.add::<S, _>(&mut Plain::new(db.engine()), records, write, found);
                if is_it {
                    continue;
                }
                records.unlock(*at);
                Conflict::Validation.into()
            }
            Err(error) => error,
        };
        order[..count].iter().for_each(|(at, _)| records.unlock(*at));
        return Err(failed);
    }
    Ok(summary)
}

/// Locks a row, waiting for a bounded time.
fn lock_patiently<S: Config>(db: &Inner<S>, at: Handle, holder: Holder) -> Result<(Version, Head), Error> {
    let (records, waiter) = (db.store.records(), Waiter::new());
    for _ in 0..PATIENCE {
        match records.lock(at, holder)? {
            Locking::Taken { version, head } => return Ok((version, head)),
            Locking::Gone => return Err(Conflict::Moved.into()),
            Locking::Mine { .. } | Locking::Held(_) => {}
        }
        waiter.pause();
    }
    Err(Conflict::Locked.into())
}
