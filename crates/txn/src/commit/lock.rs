//! Locking what a transaction writes.
//!
//! Usually nobody else has any of it locked, and then the order does not matter: each record is locked as it comes. As soon as one is found that somebody
//! has, all are unlocked, and locked again in the order of memory, now waiting: nobody waits in a circle.

use drtm_htm::{Access, Engine, Plain, Waiter};
use drtm_kv::{Handle, Head, Locking, Records, State, Version};

use crate::{
    Conflict, Error, Setting,
    db::Inner,
    epoch::epoch_of,
    mutation::Mutation,
    ticket::Ticket,
    work::{Work, Write},
};

/// How often a lock that somebody else has is asked for. Its holder is in the midst of a commit, or was interrupted there.
const PATIENCE: u32 = 256;

/// What the locked records are like, all together: so that what is rarely so of any is asked once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Locked {
    /// The newest version that one has.
    newest: Version,
    /// The oldest that one has which was there before the transaction.
    oldest: Version,
    /// What at least one is like: bits, in a word like the others, as smaller ones that are written one by one, and then read together, are waited for.
    marks: u64,
}

/// It has older versions.
const HAS_PAST: u64 = 1;
/// It has no room for its new value.
const LACKS_ROOM: u64 = 1 << 1;
/// It is not as it was seen.
const HAS_CHANGED: u64 = 1 << 2;

impl Locked {
    pub(super) const NOTHING: Self = Self { newest: Version::new(0), oldest: Version::new(u64::MAX), marks: 0 };

    /// The newest version of all.
    pub(super) fn newest(&self) -> Version {
        self.newest
    }

    /// Whether one has no room for its new value.
    #[inline(always)]
    pub(super) fn lacks_room(&self) -> bool {
        self.marks & LACKS_ROOM != 0
    }

    /// Whether one has older versions.
    #[inline(always)]
    pub(super) fn has_past(&self) -> bool {
        self.marks & HAS_PAST != 0
    }

    /// Whether one is not as it was seen.
    #[inline(always)]
    pub(super) fn has_changed(&self) -> bool {
        self.marks & HAS_CHANGED != 0
    }

    /// Whether somebody may need what one of them is, once it is written in an epoch.
    #[inline(always)]
    pub(super) fn may_be_needed(&self, epoch: u64) -> bool {
        self.has_past() || epoch_of(self.oldest) < epoch
    }

    /// Remembers what a record was like when it was locked. False if it was read, and is not as it was.
    #[inline(always)]
    pub(super) fn take<'s, S: Setting, A: Access<'s>>(
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
        let (is_same, new) = (version == write.seen, write.fate.new_length());
        // Most are like this, and then there is nothing else to remember.
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
        self.marks |=
            mark(head.has_older(), HAS_PAST) | mark(!write.has_room, LACKS_ROOM) | mark(!is_same, HAS_CHANGED);
        Ok(is_same || !write.is_read || S::has(Mutation::CommitWithoutValidation))
    }
}

#[inline]
pub(super) fn unlock<E: Engine>(records: &Records<'_, E>, locked: &[Write]) {
    locked.iter().for_each(|write| records.unlock(write.at));
}

/// Locks all records, or none.
#[inline]
pub(super) fn lock<S: Setting>(db: &Inner<S>, work: &mut Work<S::Engine>) -> Result<Locked, Error> {
    let records = db.store.records();
    let mut tx = Plain::new(db.engine());
    let Work { writes, holder, .. } = &mut *work;
    let mut locked = Locked::NOTHING;
    for index in 0..writes.len() {
        let write = &mut writes[index];
        let failed = match records.lock(write.at, *holder) {
            Ok(Locking::Taken { version, head }) => {
                let Ok(is_it) = locked.take::<S, _>(&mut tx, &records, write, (version, head));
                if is_it {
                    continue;
                }
                records.unlock(write.at);
                Conflict::Validation.into()
            }
            Ok(Locking::Gone) => Conflict::Moved.into(),
            Ok(Locking::Held(_)) => {
                unlock(&records, &writes[..index]);
                return lock_in_order(db, work);
            }
            Err(error) => error.into(),
        };
        unlock(&records, &writes[..index]);
        return Err(failed);
    }
    Ok(locked)
}

#[cold]
#[inline(never)]
fn lock_in_order<S: Setting>(db: &Inner<S>, work: &mut Work<S::Engine>) -> Result<Locked, Error> {
    let records = db.store.records();
    let mut tx = Plain::new(db.engine());
    let Work { order, writes, holder, held, .. } = work;
    order.clear();
    order.extend(writes.iter().zip(0..).map(|(write, index)| (write.at, index)));
    order.sort_unstable_by_key(|(at, _)| *at);
    let mut locked = Locked::NOTHING;
    for (count, (at, index)) in order.iter().enumerate() {
        let failed = match lock_patiently(&records, *at, *holder, &db.ticket, !held.is_empty()) {
            Ok((version, head)) => {
                let write = &mut writes[*index as usize];
                let Ok(is_it) = locked.take::<S, _>(&mut tx, &records, write, (version, head));
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
    Ok(locked)
}

fn lock_patiently<E: Engine>(
    records: &Records<'_, E>,
    at: Handle,
    holder: State,
    ticket: &Ticket,
    has_ticket: bool,
) -> Result<(Version, Head), Error> {
    let waiter = Waiter::new();
    for _ in 0..PATIENCE {
        let found = match records.lock(at, holder)? {
            // When it was read.
            Locking::Held(state) if state == holder => records.held(at)?,
            found => found,
        };
        match found {
            Locking::Taken { version, head } => return Ok((version, head)),
            Locking::Gone => return Err(Conflict::Moved.into()),
            Locking::Held(_) => {}
        }
        if ticket.is_taken() && !has_ticket {
            return Err(Conflict::Yielded.into());
        }
        waiter.pause();
    }
    Err(Conflict::Locked.into())
}
