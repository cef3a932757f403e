//! A transaction while one call has it for itself: what reads and writes do.

use std::{cell::Cell, hint::cold_path, marker::PhantomData};

use drtm_htm::fence_locked;
use drtm_kv::{ReadEntry, Version};

use super::{Mode, Update};
use crate::{
    AsKey, Codec, Config, Conflict, DefaultConfig, Durability, Error, Key, Table,
    commit::{self, write_set::WriteOp},
    db::inner::{Inner, Thread},
    durability::{Choice, Log},
    memory::{
        reclaim,
        storage::{Absence, KeyRef},
    },
    mutation::Mutation,
    schema::catalog::Opened,
    snapshot,
    trace::event,
    tx::{
        culprit,
        state::{LONG_READ, TxState},
    },
};

/// A transaction that nothing else uses meanwhile. Dropping it without a
/// [commit](Self::try_commit) aborts it.
#[derive(Debug)]
pub struct Exclusive<'db, S: Config = DefaultConfig, M: Mode = Update> {
    pub(crate) db: &'db Inner<S>,
    /// `None` once the transaction has ended.
    state: Option<Box<TxState<S::Engine>>>,
    /// Whether every read validates those before it.
    is_opaque: bool,
    /// Whether a failed transaction notes which row was in conflict.
    explains: bool,
    /// The conflict that keeps it from committing, once one has been reported.
    pub(crate) doomed: Cell<Option<Conflict>>,
    /// The snapshot that is read, unless it is the present.
    snapshot: Option<snapshot::Opened>,
    mode: PhantomData<M>,
}

/// Where a found value is.
#[derive(Clone, Copy, Debug)]
pub enum Found {
    /// In the buffer of the last read.
    Read,
    /// In the write set. The fields are whole words, because this is passed from function to
    /// function: a value stored by halves and loaded as a whole stalls.
    Own { start: usize, length: usize },
}

impl Found {
    /// Returns the value of a row in the write set. `None` if the row is to be removed.
    #[inline(always)]
    pub(super) fn of(op: WriteOp) -> Option<Self> {
        match op {
            WriteOp::Put(value) | WriteOp::Insert(value) => {
                Some(Self::Own { start: value.range().start, length: value.length() })
            }
            // The reader of such a row reads the record, and applies the patch to what was read.
            WriteOp::Patch { .. } => Some(Self::Read),
            WriteOp::Remove => None,
        }
    }
}

/// Encodes a key as the store takes it.
#[inline(always)]
pub(crate) fn encode<K: Key>(key: impl AsKey<K>, buffer: &mut Vec<u8>) -> KeyRef<'_> {
    if K::FITS {
        KeyRef::Word(key.packed())
    } else {
        buffer.clear();
        key.write_key(buffer, true);
        KeyRef::Bytes(buffer)
    }
}

impl<'db, S: Config, M: Mode> Exclusive<'db, S, M> {
    #[inline(always)]
    pub(crate) fn new(db: &'db Inner<S>, mut state: Box<TxState<S::Engine>>, is_opaque: bool, explains: bool) -> Self {
        if is_opaque {
            state.opacity.begin();
        }
        Self { db, state: Some(state), is_opaque, explains, doomed: Cell::new(None), snapshot: None, mode: PhantomData }
    }

    /// Begins a transaction for reads that are nested in those of another one.
    pub(super) fn new_nested(db: &'db Inner<S>, snapshot: Option<snapshot::Opened>) -> Result<Self, Error> {
        let mut state = db.take(db.thread())?;
        state.session.admission = db.lifecycle.now(db.engine());
        state.is_nested = true;
        let mut tx = Self::new(db, state, false, false);
        tx.snapshot = snapshot;
        Ok(tx)
    }

    /// Ends a nested transaction, which neither commits nor aborts.
    pub(super) fn leave_nested(&mut self) {
        if let Some(mut state) = self.state.take() {
            state.is_nested = false;
            state.clear();
            self.db.give_to_others(state);
        }
    }

    /// Returns the snapshot that is read. `None` if it reads the present.
    pub(super) fn snapshot(&self) -> Option<snapshot::Opened> {
        self.snapshot
    }

    /// Returns the transaction's state. It is there until the transaction ends, which consumes it.
    #[inline(always)]
    pub(crate) fn state(&mut self) -> &mut TxState<S::Engine> {
        match &mut self.state {
            Some(state) => state,
            None => unreachable!("the transaction has ended"),
        }
    }

    /// Encodes a key once, and calls `then` with it.
    #[inline(always)]
    pub(super) fn with_key<K: Key, T>(
        &mut self,
        key: impl AsKey<K>,
        then: impl FnOnce(&mut Self, KeyRef<'_>) -> T,
    ) -> T {
        if K::FITS {
            return then(self, KeyRef::Word(key.packed()));
        }
        let mut buffer = std::mem::take(&mut self.state().arena.key);
        let done = then(self, encode(key, &mut buffer));
        self.state().arena.key = buffer;
        done
    }

    #[inline(always)]
    pub(super) fn opened<K, C, O>(&self, table: Table<K, C, O>) -> Result<&'db Opened<S::Engine>, Error> {
        let admitted = || self.state.as_ref().map(|state| state.session.admission).unwrap_or_default();
        self.db.catalog.opened(table.database, table.number, admitted).map_err(|error| self.refused(error))
    }

    /// Records that the transaction cannot commit, if a table that it uses is being cleared.
    #[cold]
    fn refused(&self, error: Error) -> Error {
        if let Error::Conflict(conflict) = error {
            self.doomed.set(Some(conflict));
        }
        error
    }

    /// Records that the transaction cannot commit.
    #[cold]
    pub(crate) fn doom(&mut self, conflict: Conflict) -> Error {
        self.doomed.set(Some(conflict));
        Error::Conflict(conflict)
    }

    /// Adds a record to the read set. From time to time it validates the whole read set, so that a
    /// transaction that cannot commit does not run on for long.
    #[inline(always)]
    pub(crate) fn track_read(&mut self, seen: ReadEntry) -> Result<(), Error> {
        if self.past().is_some() {
            return Ok(());
        }
        self.state().reads.records.push(seen);
        if self.is_to_check() { self.check() } else { Ok(()) }
    }

    /// Like [`track_read`](Self::track_read), for a row that is going to be changed. It is not
    /// added to the read set here: it is in the write set, or is tracked once the change has
    /// failed.
    #[inline(always)]
    pub(crate) fn track_read_to_change(&mut self, seen: ReadEntry) -> Result<(), Error> {
        if self.is_to_check() {
            cold_path();
            self.track_read(seen)?;
            self.state().reads.untrack(seen);
        }
        Ok(())
    }

    /// Returns whether it is time to validate the read set.
    #[inline(always)]
    fn is_to_check(&mut self) -> bool {
        let is_opaque = self.is_opaque;
        let state = self.state();
        state.seen() >= state.reads.next_check || is_opaque
    }

    /// Adds the place where a key was missing to the read set.
    #[inline]
    pub(super) fn track_absent(&mut self, absence: Absence) -> Result<(), Error> {
        self.state().reads.track_absent(absence);
        self.passed()
    }

    /// Validates the read set, in an opaque transaction, after something other than a record was
    /// read.
    #[inline]
    pub(super) fn passed(&mut self) -> Result<(), Error> {
        if self.is_opaque { self.check() } else { Ok(()) }
    }

    /// Validates the read set. A read-only transaction that has read much continues in a snapshot.
    #[cold]
    #[inline(never)]
    fn check(&mut self) -> Result<(), Error> {
        if !M::WRITES && self.state().seen() >= LONG_READ {
            if self.state().is_nested {
                // Those that it is nested in go on in the present. The next run is in a snapshot.
                return Err(self.doom(Conflict::Validation));
            }
            return self.turn_to_snapshot();
        }
        let (db, is_opaque) = (self.db, self.is_opaque);
        let state = self.state();
        let TxState { reads, writes, opacity, holder, .. } = &mut *state;
        let rows = reads.records.len() + reads.buckets.len() + reads.leaves.len() + writes.len();
        if is_opaque && !db.for_peers && !opacity.sample(db.engine(), &db.registry, rows) {
            // The earlier reads still hold.
            let records = db.store.records();
            if reads.records.last().is_none_or(|last| records.is_still(*last, *holder)) {
                return Ok(());
            }
        }
        state.reads.next_check = 2 * state.seen();
        match commit::validate_all(db, state) {
            Ok(()) => Ok(()),
            Err(conflict) => Err(self.doom(conflict)),
        }
    }

    /// Returns the conflict that keeps the transaction from committing. `None` if its reads still
    /// hold.
    pub(crate) fn validation_error(&mut self) -> Option<Conflict> {
        let db = self.db;
        self.doomed.get().or_else(|| commit::validate_all(db, self.state()).err())
    }

    /// Returns the first version that the transaction's snapshot does not see. `None` if it reads
    /// the present.
    #[inline(always)]
    pub(super) fn past(&self) -> Option<Version> {
        if M::WRITES { None } else { self.snapshot.map(|snapshot| snapshot.before) }
    }

    /// Continues in a snapshot of now, if all reads still hold.
    #[cold]
    pub(crate) fn turn_to_snapshot(&mut self) -> Result<(), Error> {
        let db = self.db;
        let snapshot = db.snapshots.open(&db.store)?;
        event!(trace, database = db.number, until = snapshot.before.number(), "a snapshot is open");
        self.snapshot = Some(snapshot);
        // From here on, a thread that closes the database sees this transaction, or this thread
        // sees that it is closed: opening the snapshot was a fence.
        fence_locked();
        db.lifecycle.admit(db.engine(), true)?;
        // A read that still holds did hold when the snapshot was opened: a writer that was about to
        // change the record by then has it locked, or has changed it.
        if let Err(conflict) = commit::validate_all(db, self.state()) {
            return Err(self.doom(conflict));
        }
        self.state().clear();
        Ok(())
    }

    /// Commits. The transaction has ended afterwards, whatever the result. `thread` is this thread.
    #[inline(always)]
    pub(crate) fn try_commit(&mut self, thread: &Thread<S::Engine>) -> Result<(), Error> {
        // A transaction that has only read a row pays for nothing that follows: no registers, and
        // no stack.
        if commit::is_trivially_committed::<S, M>(self.db, self.state())
            && self.doomed.get().is_none()
            && self.db.log.is_none()
        {
            self.state().session.counters.count_read();
            self.end_committed(thread);
            return Ok(());
        }
        self.try_commit_all(thread)
    }

    /// Commits where there is something to do: the slow path of [`try_commit`](Self::try_commit).
    #[inline(never)]
    fn try_commit_all(&mut self, thread: &Thread<S::Engine>) -> Result<(), Error> {
        let db = self.db;
        let committed = match self.doomed.get() {
            Some(conflict) => Err(conflict.into()),
            None => commit::commit::<S, M>(db, self.state()),
        };
        if self.state().is_large() && committed.is_ok() {
            cold_path();
            self.state().shed();
        }
        match committed {
            Ok(()) => match &db.log {
                None => {
                    self.end_committed(thread);
                    Ok(())
                }
                Some(log) => {
                    cold_path();
                    self.end_logged(log, thread)
                }
            },
            Err(error) => Err(self.end_with(error, thread)),
        }
    }

    /// Ends a transaction that has committed, and waits for the log if its durability demands it.
    #[inline(never)]
    fn end_logged(&mut self, log: &Log<S::Engine>, thread: &Thread<S::Engine>) -> Result<(), Error> {
        let (db, past) = (self.db, self.past());
        let state = self.state();
        let is_closure = !state.session.is_explicit();
        let choice = std::mem::take(&mut state.session.choice);
        let logged_in = state.session.logged_in;
        let depends_on = match logged_in {
            0 => log.depends_on(&state.reads, state.writes.is_empty(), past),
            epoch => Ok(epoch),
        };
        self.end_committed(thread);
        if is_closure && db.ticket.is_taken() {
            db.ticket.give_back(db.this_thread());
        }
        let epoch = depends_on?;
        if choice == Choice::Token {
            thread.submitted.set(epoch);
        }
        log.after_commit(epoch, choice).map_err(|error| match error {
            // Nothing of it is in the log: only what it has read may be lost.
            Error::OutcomeUnknown { reason } if logged_in == 0 => Error::Poisoned { reason },
            error => error,
        })
    }

    pub(crate) fn set_durability(&mut self, durability: Durability) -> Result<(), Error> {
        let choice = match durability {
            Durability::Async => Choice::Async,
            Durability::Sync => Choice::Sync,
            Durability::None => return Err(in_memory_only("a transaction's durability", "`Async` or `Sync`")),
        };
        if self.db.log.is_none() {
            return Err(in_memory_only("a transaction's durability", "of a database with a path"));
        }
        self.state().session.choice = choice;
        Ok(())
    }

    /// Makes the commit of this run return before the transaction is durable.
    pub(crate) fn be_submitted(&mut self) {
        if self.db.log.is_some() {
            self.state().session.choice = Choice::Token;
        }
    }

    #[inline(always)]
    fn end_committed(&mut self, thread: &Thread<S::Engine>) {
        let Some(mut state) = self.state.take() else { return };
        let db = self.db;
        state.session.commits = state.session.commits.wrapping_add(1);
        state.clear();
        self.leave_snapshot(&mut state);
        db.give_back(thread, state);
    }

    /// Aborts the transaction because of this error, and returns it.
    #[cold]
    #[inline(never)]
    fn end_with(&mut self, error: Error, thread: &Thread<S::Engine>) -> Error {
        let conflict = match error {
            Error::Conflict(conflict) => Some(conflict),
            _ => None,
        };
        self.end(conflict, Some(thread));
        error
    }

    #[inline(always)]
    fn leave_snapshot(&mut self, state: &mut TxState<S::Engine>) {
        if !M::WRITES
            && let Some(snapshot) = self.snapshot.take()
        {
            self.db.snapshots.close(&self.db.store, snapshot);
            event!(trace, database = self.db.number, until = snapshot.before.number(), "a snapshot is closed");
            // A corrupt store is reported to its next user; `drop` has no way to report it.
            let _ = reclaim::try_some(self.db, state);
        }
    }

    /// Aborts the transaction: discards its write set, and removes the records made for it.
    /// `thread` is this thread, if it is known.
    #[cold]
    pub(crate) fn end(&mut self, conflict: Option<Conflict>, thread: Option<&Thread<S::Engine>>) {
        let Some(mut state) = self.state.take() else { return };
        self.leave_snapshot(&mut state);
        match conflict {
            Some(conflict) => self.conflicted(&state, conflict),
            None => state.session.counters.gave_up(),
        }
        state.session.choice = Choice::Default;
        state.give_back_reserved();
        reclaim::undo_inserts(self.db, &mut state);
        if state.is_large() {
            state.shed();
        }
        state.clear();
        match thread {
            Some(thread) => self.db.give_back(thread, state),
            // This may be another thread than the one that began it, or one whose thread-local data
            // are gone.
            None => self.db.give_to_others(state),
        }
    }

    /// Counts the conflict, and publishes the touched places if this thread holds the ticket.
    #[cold]
    fn conflicted(&self, state: &TxState<S::Engine>, conflict: Conflict) {
        let db = self.db;
        state.session.counters.conflicted(conflict);
        db.thread().tried.set(state.seen());
        if db.ticket.is_taken() {
            let is_counted = !S::has(Mutation::OthersAdmitted);
            db.ticket.claim(db.this_thread(), state.places(), is_counted);
        }
        if self.explains {
            *db.thread().culprit.borrow_mut() = culprit::find(db, state);
        }
    }

    /// Returns whether the transaction reads the present and is not opaque, so that it may use fast
    /// paths.
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        !self.is_opaque && self.past().is_none()
    }

    pub(super) fn codec_error<T>(opened: &Opened<S::Engine>, result: Result<T, crate::CodecError>) -> Result<T, Error> {
        result.map_err(|source| Error::Codec { table: opened.name.get(), source })
    }

    /// Returns the bytes of a value that was found.
    #[inline(always)]
    pub(super) fn bytes(state: &TxState<S::Engine>, found: Found) -> &[u8] {
        match found {
            Found::Read => state.arena.value.bytes(),
            Found::Own { start, length } => state.arena.values.bytes().get(start..start + length).unwrap_or(&[]),
        }
    }

    #[inline(always)]
    pub(super) fn decode<C: Codec>(&mut self, opened: &Opened<S::Engine>, found: Found) -> Result<C::Value, Error> {
        Self::codec_error(opened, C::decode(Self::bytes(self.state(), found)))
    }
}

/// Returns the error of an operation that needs a log.
#[cold]
pub(crate) fn in_memory_only(what: &'static str, must_be: &'static str) -> Error {
    Error::Config { what, must_be, is: "in memory only".to_owned() }
}

impl<S: Config, M: Mode> Drop for Exclusive<'_, S, M> {
    #[inline(always)]
    fn drop(&mut self) {
        // Most transactions have ended by now.
        if self.state.is_some() {
            self.end(None, None);
        }
    }
}
