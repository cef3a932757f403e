//! Taking back what transactions leave behind (see `garbage`): tried by the thread that leaves it,
//! then now and then by threads that commit, and by a thread that closes a snapshot.

use drtm_htm::Engine;
use drtm_kv::{ForHolder, Handle, KvError, Locking, NoValue, ReadEntry, Reaped, Worker};

use crate::{
    Config, Error,
    budget::Spent,
    catalog::Dropped,
    garbage::Garbage,
    inner::Inner,
    state::TxState,
    stats::Counters,
    storage::{KeyRef, OwnedKey, Tour},
    table::Any,
};

/// How many commits there are between attempts to take something back, and how much is tried at
/// once: whatever a snapshot that stays open holds up, a commit does not become slow for it.
const TURN: u32 = 32;
const BATCH: usize = 512;

/// Takes a record out of its table, or keeps it in mind.
pub(crate) fn reap<S: Config>(
    db: &Inner<S>,
    (worker, counters): (&mut Worker<S::Engine>, &Counters),
    table: u16,
    key: KeyRef<'_>,
    seen: ReadEntry,
) -> Result<(), KvError> {
    let Some(opened) = db.catalog.get(table) else { return Ok(()) };
    // Nothing is taken out of what the holder of the ticket may have passed.
    let reaped = if db.ticket.is_held() {
        Reaped::Busy
    } else {
        opened.storage.reap(worker, key, seen, || counters.takes_out(db.engine()))?
    };
    if reaped == Reaped::Busy {
        db.garbage.push(Garbage::Row { table, key: key.into(), seen });
    }
    Ok(())
}

/// Takes the records out that a transaction has made for insertions that do not commit.
pub(crate) fn undo_inserts<S: Config>(db: &Inner<S>, state: &mut TxState<S::Engine>) {
    let TxState { writes, arena, worker, session, .. } = state;
    for write in writes.as_slice().iter().chain(writes.undone()).filter(|write| write.is_made) {
        // A store that is corrupt says so to its next user; this transaction fails already.
        let _ = reap(db, (worker, &session.counters), write.table, write.key.in_bytes(&arena.keys), write.seen());
    }
}

/// Whether it is time to try again what could not be taken back.
#[inline(always)]
pub(crate) fn is_to_be_tried<E: Engine>(state: &TxState<E>) -> bool {
    state.session.commits.is_multiple_of(TURN)
}

/// Now and then tries again what could not be taken back.
#[inline]
pub(crate) fn try_again<S: Config>(db: &Inner<S>, state: &mut TxState<S::Engine>) -> Result<(), KvError> {
    if is_to_be_tried(state) { try_some(db, state) } else { Ok(()) }
}

/// Tries to take back some of what is left.
#[cold]
pub(crate) fn try_some<S: Config>(db: &Inner<S>, state: &mut TxState<S::Engine>) -> Result<(), KvError> {
    state.note_bytes();
    if db.garbage.is_empty() || db.ticket.is_held() {
        return Ok(());
    }
    let mut spent = Spent::default();
    let tried = try_each(db, state, &mut spent);
    db.past.enter(spent);
    tried
}

fn try_each<S: Config>(db: &Inner<S>, state: &mut TxState<S::Engine>, spent: &mut Spent) -> Result<(), KvError> {
    db.snapshots.needs(&db.store, &mut state.scratch.needs)?;
    let mut tried = 0;
    // What was left behind meanwhile, and what is put back, is for the next time.
    for _ in 0..db.garbage.len() {
        if tried >= BATCH {
            break;
        }
        let Some(mut left) = db.garbage.pop() else { break };
        if matches!(&left, Garbage::Past { until, .. } if state.scratch.needs.include_any_before(*until)) {
            // And so, most likely, are those that were left after it.
            db.garbage.push(left);
            break;
        }
        tried += 1;
        let is_done = match &mut left {
            Garbage::Row { table, key, seen } => match db.catalog.get(*table) {
                Some(opened) => {
                    let TxState { worker, session, .. } = &mut *state;
                    let going = || session.counters.takes_out(db.engine());
                    opened.storage.reap(worker, key.as_ref(), *seen, going)? != Reaped::Busy
                }
                None => true,
            },
            Garbage::Table { table, at, tour } => {
                tried = BATCH;
                db.lifecycle.has_passed(db.engine(), *at) && !empty_some(db, state, *table, tour, spent)?
            }
            Garbage::Past { rows, age, .. } => {
                tried += rows.len() - 1;
                rows.iter().for_each(|at| db.store.records().prefetch(*at));
                let mut failed = Ok(());
                rows.retain(|at| match forget(db, state, *at, spent) {
                    Ok(is_done) => !is_done,
                    Err(error) => {
                        failed = Err(error);
                        true
                    }
                });
                if let Err(error) = failed {
                    db.garbage.push(left);
                    return Err(error);
                }
                if rows.is_empty() {
                    db.garbage.end(*age);
                }
                rows.is_empty()
            }
        };
        if !is_done {
            db.garbage.push(left);
        }
    }
    Ok(())
}

/// Takes the rows out of tables that were dropped: now, if no transaction is running that was
/// admitted before, or else later.
pub(crate) fn empty_dropped<S: Config>(db: &Inner<S>, Dropped { tables, at }: Dropped) -> Result<(), Error> {
    if !db.lifecycle.has_passed(db.engine(), at) {
        tables.into_iter().for_each(|table| db.garbage.push(Garbage::Table { table, at, tour: None }));
        return Ok(());
    }
    let thread = db.thread();
    let mut state = db.take(thread)?;
    // No transaction of this thread tells that it looks at records.
    let _visit = db.store.visit();
    let mut spent = Spent::default();
    let emptied = tables.into_iter().try_for_each(|table| {
        let mut tour = None;
        while empty_some(db, &mut state, table, &mut tour, &mut spent)? {
            // Garbage that another thread is about to take out.
            if tour.is_none() {
                db.garbage.push(Garbage::Table { table, at, tour });
                break;
            }
        }
        Ok::<(), KvError>(())
    });
    db.past.enter(spent);
    db.give_back(thread, state);
    Ok(emptied?)
}

/// Takes some rows out of a table that was dropped, and which no transaction uses any more. Returns
/// whether there are others. If that is so at the end of a tour, another is begun.
fn empty_some<S: Config>(
    db: &Inner<S>,
    state: &mut TxState<S::Engine>,
    table: u16,
    left: &mut Option<Box<Tour>>,
    spent: &mut Spent,
) -> Result<bool, KvError> {
    let Some(opened) = db.catalog.get(table) else { return Ok(false) };
    let tour = match left {
        Some(tour) => tour,
        None => left.insert(Box::new(opened.storage.tour()?)),
    };
    let (mut keys, mut has_more) = (Vec::<OwnedKey>::new(), true);
    while has_more && keys.len() < BATCH {
        has_more = opened.storage.visit_some(tour, |key| keys.push(key.into()))?;
    }
    let records = db.store.records();
    for key in &keys {
        let TxState { worker, holder, session, .. } = &mut *state;
        let view = ForHolder(*holder);
        let Ok(seen) = opened.storage.read::<Any, _>(key.as_ref(), view, &mut NoValue)? else { continue };
        // What it was is counted.
        if let Locking::Taken { .. } = records.lock(seen.at, *holder)? {
            let freed = records.forget(worker, seen.at, |_, _| false);
            records.unlock(seen.at);
            spent.give_back(freed?);
        }
        if seen.is_present() {
            opened.storage.remove(worker, key.as_ref())?;
        } else {
            let going = || session.counters.takes_out(db.engine());
            opened.storage.reap(worker, key.as_ref(), seen, going)?;
        }
    }
    if has_more {
        return Ok(true);
    }
    *left = None;
    // Another table can have all of its memory.
    Ok(!db.catalog.reuse_storage(opened)?)
}

/// Drops the older versions of a row that no snapshot needs. Returns whether none is left.
fn forget<S: Config>(
    db: &Inner<S>,
    state: &mut TxState<S::Engine>,
    at: Handle,
    spent: &mut Spent,
) -> Result<bool, KvError> {
    let records = db.store.records();
    match records.lock(at, state.holder)? {
        // The thread that moved the record, or took it out, has freed its versions.
        Locking::Gone => Ok(true),
        Locking::Mine { .. } | Locking::Held(_) => Ok(false),
        Locking::Taken { .. } => {
            // Only now: until the record was locked, a writer may have added a version that a
            // snapshot needs.
            db.snapshots.needs(&db.store, &mut state.scratch.needs)?;
            let needs = &state.scratch.needs;
            let freed = records.forget(&mut state.worker, at, |from, until| needs.include(from, until));
            let has_past = records.has_past(at);
            records.unlock(at);
            spent.give_back(freed?);
            Ok(!has_past?)
        }
    }
}
