//! Taking back what transactions leave behind (see `garbage`): tried by the thread that leaves it,
//! then now and then by threads that commit, and by a thread that closes a snapshot.

use std::{
    thread,
    time::{Duration, Instant},
};

use drtm_htm::Engine;
use drtm_kv::{Handle, KvError, Locking, ReadEntry, Reaped, Worker};

use crate::{
    Config, Error,
    commit::epoch::last_version_of,
    db::{inner::Inner, stats::Counters},
    memory::{budget::Spent, garbage::Garbage, storage::KeyRef},
    model::bounds::either,
    schema::catalog::{Dropped, Opened},
    tx::state::TxState,
};

/// How many commits there are between attempts to take something back, and how much is tried at
/// once: whatever a snapshot that stays open holds up, a commit does not become slow for it.
const TURN: u32 = 32;
const BATCH: usize = 512;

/// How long the thread that drops a table waits for open transactions, and how long it sleeps
/// between looks. A model looks once, since it knows no time.
const PATIENCE: Duration = either(Duration::from_millis(50), Duration::ZERO);
const NAP: Duration = Duration::from_micros(200);

/// What takes records out, and counts them.
type By<'a, S> = (&'a mut Worker<<S as Config>::Engine>, &'a Counters);

/// Takes a record out of its table, or keeps it in mind.
pub(crate) fn reap<S: Config>(
    db: &Inner<S>,
    by: By<'_, S>,
    table: u16,
    key: KeyRef<'_>,
    seen: ReadEntry,
) -> Result<(), KvError> {
    reap_by(db, table, key, seen, |opened| take_out(db, by, opened, key, seen))
}

/// Does so with a record that something else than a lock may keep: a NIC, which the caller must not
/// have locked.
#[cfg(feature = "cluster")]
pub(crate) fn reap_unless_kept<S: Config>(
    db: &Inner<S>,
    by: By<'_, S>,
    table: u16,
    key: KeyRef<'_>,
    seen: ReadEntry,
) -> Result<(), KvError> {
    reap_by(db, table, key, seen, |opened| take_out_unless_kept(db, by, opened, key, seen))
}

fn reap_by<S: Config>(
    db: &Inner<S>,
    table: u16,
    key: KeyRef<'_>,
    seen: ReadEntry,
    take_out: impl FnOnce(&Opened<S::Engine>) -> Result<Reaped, KvError>,
) -> Result<(), KvError> {
    let Some(opened) = db.catalog.get(table) else { return Ok(()) };
    // Nothing is taken out of what the holder of the ticket may have passed.
    let reaped = if db.ticket.is_held() { Reaped::Busy } else { take_out(opened)? };
    if reaped == Reaped::Busy {
        db.garbage.push(Garbage::Row { table, key: key.into(), seen });
    }
    Ok(())
}

/// Takes a record out that was left behind.
fn take_out<S: Config>(
    db: &Inner<S>,
    (worker, counters): By<'_, S>,
    opened: &Opened<S::Engine>,
    key: KeyRef<'_>,
    seen: ReadEntry,
) -> Result<Reaped, KvError> {
    opened.storage.reap(worker, key, seen, || counters.count_taken_out(db.engine()))
}

/// Does so unless something keeps it.
fn take_out_unless_kept<S: Config>(
    db: &Inner<S>,
    by: By<'_, S>,
    opened: &Opened<S::Engine>,
    key: KeyRef<'_>,
    seen: ReadEntry,
) -> Result<Reaped, KvError> {
    #[cfg(feature = "hades")]
    if let Some(keeper) = db.keeper.get() {
        let Some(extent) = db.store.records().extent(seen.at) else { return Ok(Reaped::Gone) };
        let (mut by, mut reaped) = (Some(by), Ok(Reaped::Busy));
        // It is called once at most.
        keeper.unless_kept(extent, &mut || {
            if let Some(by) = by.take() {
                reaped = take_out(db, by, opened, key, seen);
            }
        });
        return reaped;
    }
    take_out(db, by, opened, key, seen)
}

/// Takes the records out that a transaction has made for insertions that do not commit.
pub(crate) fn undo_inserts<S: Config>(db: &Inner<S>, state: &mut TxState<S::Engine>) {
    let TxState { writes, arena, worker, session, .. } = state;
    for write in writes.as_slice().iter().chain(writes.undone()).filter(|write| write.is_made) {
        // A store that is corrupt says so to its next user; this transaction fails already.
        let _ = reap(db, (worker, &session.counters), write.table, write.key.in_bytes(&arena.keys), write.seen());
    }
}

/// Returns whether it is time to retry what could not be reclaimed.
#[inline(always)]
pub(crate) fn is_to_be_tried<E: Engine>(state: &TxState<E>) -> bool {
    state.session.commits.is_multiple_of(TURN)
}

/// Retries what could not be reclaimed, if it is time for that.
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
                    take_out_unless_kept(db, (worker, &session.counters), opened, key.as_ref(), *seen)? != Reaped::Busy
                }
                None => true,
            },
            Garbage::Table { table, at } => {
                tried = BATCH;
                empty(db, state, *table, *at)?
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

/// Takes the rows out of tables that were dropped: now, if the transactions that were admitted
/// before end soon, or else later.
pub(crate) fn empty_dropped<S: Config>(db: &Inner<S>, Dropped { tables, at }: Dropped) -> Result<(), Error> {
    let thread = db.thread();
    let mut state = db.take(thread)?;
    let emptied = await_end(db, &mut state, at).and_then(|has_ended| {
        for table in tables {
            if !has_ended || !empty(db, &mut state, table, at)? {
                db.garbage.push(Garbage::Table { table, at });
            }
        }
        Ok(has_ended)
    });
    db.give_back(thread, state);
    if emptied? {
        await_spans(db);
    }
    Ok(())
}

/// Waits a while until memory that left its tables in whole spans can be used again. Otherwise it
/// is taken out of quarantine when memory is needed.
pub(crate) fn await_spans<S: Config>(db: &Inner<S>) {
    let until = Instant::now() + PATIENCE;
    db.store.release_spans();
    while db.store.waiting_spans() > 0 && Instant::now() < until {
        thread::sleep(NAP);
        db.store.release_spans();
    }
}

/// Waits a while until no operation is left that was admitted before a change of the schema.
/// Returns whether none is.
pub(crate) fn await_end<S: Config>(db: &Inner<S>, state: &mut TxState<S::Engine>, at: u64) -> Result<bool, KvError> {
    let until = Instant::now() + PATIENCE;
    while !check_ended(db, at) {
        if Instant::now() >= until {
            return Ok(false);
        }
        // No transaction of this thread tells that it looks at records.
        let visit = db.store.visit();
        let tried = try_some(db, state);
        drop(visit);
        tried?;
        thread::sleep(NAP);
    }
    Ok(true)
}

/// Checks whether no operation is left that was admitted before a change of the schema, nor what
/// it has left behind: older versions among them.
fn check_ended<S: Config>(db: &Inner<S>, at: u64) -> bool {
    db.quiescence.check_seen(at, db.engine(), &db.lifecycle, &db.garbage)
}

/// Takes all rows out of a table that was dropped, if no operation that may use it is left. Returns
/// whether its storage is empty: another table can have it then.
fn empty<S: Config>(db: &Inner<S>, state: &mut TxState<S::Engine>, table: u16, at: u64) -> Result<bool, KvError> {
    let Some(opened) = db.catalog.get(table) else { return Ok(true) };
    if !check_ended(db, at) {
        return Ok(false);
    }
    empty_all(db, state, opened)?;
    // Garbage may be about to be taken out by another thread.
    db.catalog.reuse_storage(opened)
}

/// Takes all rows out of a table that no operation uses.
pub(crate) fn empty_all<S: Config>(
    db: &Inner<S>,
    state: &mut TxState<S::Engine>,
    table: &Opened<S::Engine>,
) -> Result<(), KvError> {
    // Rows that are inserted from now on are of this epoch, or a later one.
    let epoch = db.engine().fetch_add(db.snapshot_number()?, 1);
    table.storage.empty(&mut state.worker, last_version_of(epoch))
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
