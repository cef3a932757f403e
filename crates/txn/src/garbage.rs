//! What transactions leave behind, until nobody needs it any longer.
//!
//! A row that is removed leaves its record, which says that the key is not there; so does an insertion that did not come about. Usually it is taken
//! out at once by whoever left it. If somebody has it locked just then, or may still ask what it was, it is kept in mind and tried again later; if
//! somebody has given the key a value meanwhile, it is garbage no more.
//!
//! Older versions are forgotten when the row is written next, or else here, when the snapshots that needed them are closed.
//!
//! What is left is in one queue for all threads: whoever left it may be gone. There is little of it but while snapshots are open, and taking it back is tried
//! by who closes a snapshot, and now and then by who commits.

use crossbeam_queue::SegQueue;
use drtm_htm::Engine;
use drtm_kv::{Handle, KvError, Locking, Reaped, Sighting, Version, Worker};
use smallvec::SmallVec;

use crate::{Setting, budget::Spent, db::Inner, index::Encoded, kept::encoded, work::Work};

/// Something that cannot be taken back yet.
#[derive(Debug)]
pub(crate) enum Garbage {
    /// The record of a row that is gone.
    Row { table: u16, key: Key, seen: Sighting },
    /// Older versions of rows, which may be needed as long as a snapshot is open that does not see this version.
    Past { rows: Rows, until: Version },
}

/// A few rows that one commit has written: who looks at them again asks for the memory of all of them first, as most probably it is in another processor's cache.
pub(crate) type Rows = SmallVec<[Handle; MOST_ROWS]>;

const MOST_ROWS: usize = 14;

#[derive(Debug)]
pub(crate) enum Key {
    Word(u64),
    Bytes(Box<[u8]>),
}

/// What is left, whoever has left it.
pub(crate) type Queue = SegQueue<Garbage>;

/// Rows that a commit is writing, as they get older versions, on their way to what is left.
#[derive(Debug)]
pub(crate) struct NewPast<'q> {
    left: &'q Queue,
    rows: Rows,
    until: Version,
}

impl<'q> NewPast<'q> {
    /// None yet. All are written in one epoch, so any of their versions tells of all until when they may be needed.
    pub(crate) fn new(left: &'q Queue) -> Self {
        Self { left, rows: Rows::new(), until: Version::default() }
    }

    /// This one, which has this version now.
    pub(crate) fn add(&mut self, at: Handle, until: Version) {
        if self.rows.len() == MOST_ROWS {
            self.leave();
        }
        self.until = until;
        self.rows.push(at);
    }

    fn leave(&mut self) {
        let rows = std::mem::take(&mut self.rows);
        self.left.push(Garbage::Past { rows, until: self.until });
    }
}

/// Also when the commit has come upon a corrupt store in between.
impl Drop for NewPast<'_> {
    fn drop(&mut self) {
        if !self.rows.is_empty() {
            self.leave();
        }
    }
}

/// How many commits there are between attempts to take something back, and how much is tried at once: whatever a snapshot that stays open holds up, a commit does
/// not become slow for it.
const TURN: u32 = 32;
const BATCH: usize = 512;

/// Takes a record out of its table, or keeps it in mind.
pub(crate) fn reap<S: Setting>(
    db: &Inner<S>,
    worker: &mut Worker<S::Engine>,
    table: u16,
    key: Encoded<'_>,
    seen: Sighting,
) -> Result<(), KvError> {
    let Some(opened) = db.catalog.get(table) else { return Ok(()) };
    // Nothing is taken out of what somebody with the ticket may have passed.
    let reaped = if db.ticket.is_taken() { Reaped::Busy } else { opened.index.reap(worker, key, seen)? };
    if reaped == Reaped::Busy {
        let key = match key {
            Encoded::Word(word) => Key::Word(word),
            Encoded::Bytes(bytes) => Key::Bytes(bytes.into()),
        };
        db.garbage.push(Garbage::Row { table, key, seen });
    }
    Ok(())
}

/// Takes back the records that a transaction has made for insertions that do not come about.
pub(crate) fn take_back<S: Setting>(db: &Inner<S>, work: &mut Work<S::Engine>) {
    let Work { writes, undone, keys, worker, .. } = work;
    for write in writes.iter().chain(undone.iter()).filter(|write| write.is_made) {
        // A store that is corrupt says so to whoever uses it next; here nobody is to be told.
        let _ = reap(db, worker, write.table, encoded(keys, write.key), write.seen());
    }
}

/// Whether it is time to try again what could not be taken back.
#[inline(always)]
pub(crate) fn is_to_be_tried<E: Engine>(work: &Work<E>) -> bool {
    work.commits.is_multiple_of(TURN)
}

/// Now and then tries again what could not be taken back.
#[inline]
pub(crate) fn try_again<S: Setting>(db: &Inner<S>, work: &mut Work<S::Engine>) -> Result<(), KvError> {
    if is_to_be_tried(work) { try_some(db, work) } else { Ok(()) }
}

/// Tries to take back some of what is left.
#[cold]
pub(crate) fn try_some<S: Setting>(db: &Inner<S>, work: &mut Work<S::Engine>) -> Result<(), KvError> {
    if db.garbage.is_empty() || db.ticket.is_taken() {
        return Ok(());
    }
    let mut spent = Spent::default();
    let tried = try_each(db, work, &mut spent);
    db.past.enter(spent);
    tried
}

fn try_each<S: Setting>(db: &Inner<S>, work: &mut Work<S::Engine>, spent: &mut Spent) -> Result<(), KvError> {
    db.snapshots.needs(&db.store, &mut work.needs)?;
    let mut tried = 0;
    // What was left behind meanwhile, and what is put back, is for the next time.
    for _ in 0..db.garbage.len() {
        if tried >= BATCH {
            break;
        }
        let Some(mut left) = db.garbage.pop() else { break };
        if matches!(&left, Garbage::Past { until, .. } if work.needs.include_any_before(*until)) {
            // And so, most likely, are those that were left after it.
            db.garbage.push(left);
            break;
        }
        tried += 1;
        let is_done = match &mut left {
            Garbage::Row { table, key, seen } => {
                let key = match key {
                    Key::Word(word) => Encoded::Word(*word),
                    Key::Bytes(bytes) => Encoded::Bytes(bytes),
                };
                match db.catalog.get(*table) {
                    Some(opened) => opened.index.reap(&mut work.worker, key, *seen)? != Reaped::Busy,
                    None => true,
                }
            }
            Garbage::Past { rows, .. } => {
                tried += rows.len() - 1;
                rows.iter().for_each(|at| db.store.records().ask_for(*at));
                let mut failed = Ok(());
                rows.retain(|at| match forget(db, work, *at, spent) {
                    Ok(is_done) => !is_done,
                    Err(error) => {
                        failed = Err(error);
                        true
                    }
                });
                failed?;
                rows.is_empty()
            }
        };
        if !is_done {
            db.garbage.push(left);
        }
    }
    Ok(())
}

/// Forgets what a row was, as far as nobody needs it. Whether nothing is left.
fn forget<S: Setting>(
    db: &Inner<S>,
    work: &mut Work<S::Engine>,
    at: Handle,
    spent: &mut Spent,
) -> Result<bool, KvError> {
    let records = db.store.records();
    match records.lock(at, work.holder)? {
        // Whoever has moved it, or taken it out, sees to that.
        Locking::Gone => Ok(true),
        Locking::Held(_) => Ok(false),
        Locking::Taken { .. } => {
            // Only now: until the record was locked, somebody may have written it for whom a snapshot needs what it was.
            db.snapshots.needs(&db.store, &mut work.needs)?;
            let needs = &work.needs;
            let freed = records.forget(&mut work.worker, at, |from, until| needs.include(from, until));
            let has_past = records.has_past(at);
            records.unlock(at);
            spent.give_back(freed?);
            Ok(!has_past?)
        }
    }
}
