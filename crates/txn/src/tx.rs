//! A transaction: what an application does with rows.
//!
//! Execution is optimistic: reads take no locks and remember what they have seen; writes are kept
//! until the commit (see `commit`). Only the index changes before it: a key that is to be inserted
//! gets its record at once, which says that the key is not there yet. So a transaction finds its
//! own insertions where it looks for anything, ranges included, and whoever else looks for the key
//! finds something that will change if the insertion commits.

mod drive;
mod each;
mod entry;
mod index;
mod many;
mod mode;
mod part;
mod range;
mod read;
mod run;
mod savepoint;
mod sweep;
mod upkeep;
mod walk;
mod write;
mod yield_to_ticket;

pub use entry::{Entry, OccupiedEntry, VacantEntry};
pub use mode::{Mode, ReadOnly, Update};
pub use range::Range;
pub use savepoint::Savepoint;

use std::{hint::cold_path, marker::PhantomData};

use drtm_htm::fence_locked;
use drtm_kv::{ReadEntry, Version};

use crate::{
    AsKey, Codec, CommitToken, Config, Conflict, DefaultConfig, Durability, Error, Key, Table,
    catalog::Opened,
    commit, culprit,
    durability::{Choice, Log},
    inner::{Inner, Thread},
    reclaim, snapshots,
    state::{LONG_READ, TxState},
    storage::{Absence, KeyRef},
    trace::event,
    write_set::WriteOp,
};

/// A transaction. Dropped without a [commit](Self::commit), it has never happened.
///
/// # Example
///
/// ```
/// use drtm::{Db, Error, Ordered, Pod, TableDef};
///
/// const STOCK: TableDef<u64, Pod<i64>, Ordered> = TableDef::ordered("stock");
///
/// let db = Db::new()?;
/// let stock = db.table(STOCK)?;
/// let mut tx = db.begin()?;
/// tx.insert(stock, &1, &10)?;
/// tx.insert(stock, &2, &20)?;
/// tx.update(stock, &1, |left| *left -= 3)?;
/// assert_eq!(tx.get(stock, &1)?, Some(7), "its own writes are seen");
/// assert_eq!(tx.count(stock, ..)?, 2);
/// tx.commit()?;
///
/// let mut abandoned = db.begin()?;
/// assert!(abandoned.remove(stock, &2)?);
/// drop(abandoned);
/// assert_eq!(db.transact(|tx| tx.get(stock, &2))?, Some(20));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Tx<'db, S: Config = DefaultConfig, M: Mode = Update> {
    pub(crate) db: &'db Inner<S>,
    /// Until it has ended.
    state: Option<Box<TxState<S::Engine>>>,
    /// Whether every read is checked against those before.
    is_opaque: bool,
    /// Whether its end notes which row was in conflict.
    explains: bool,
    /// What keeps it from committing, once it has been told.
    pub(crate) doomed: Option<Conflict>,
    /// The moment that is read, if it is not the present.
    snapshot: Option<snapshots::Opened>,
    mode: PhantomData<M>,
}

/// A transaction that only reads.
///
/// # Example
///
/// See [`Db::snapshot`](crate::Db::snapshot).
pub type Snapshot<'db, S = DefaultConfig> = Tx<'db, S, ReadOnly>;

/// Where a value is that was found.
#[derive(Clone, Copy, Debug)]
pub enum Found {
    /// In the buffer for what was read last.
    Read,
    /// Among what the transaction writes. In whole words, as this is given from function to
    /// function: what is written by halves and read as a whole is waited for.
    Own { start: usize, length: usize },
}

impl Found {
    /// The value of a row that the transaction writes, if it is to have one.
    #[inline(always)]
    fn of(op: WriteOp) -> Option<Self> {
        match op {
            WriteOp::Put(value) | WriteOp::Insert(value) => {
                Some(Self::Own { start: value.range().start, length: value.length() })
            }
            // Who comes to such a row reads it, and puts the patch into what was read.
            WriteOp::Patch { .. } => Some(Self::Read),
            WriteOp::Remove => None,
        }
    }
}

/// A key as the store takes it.
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

impl<'db, S: Config, M: Mode> Tx<'db, S, M> {
    #[inline(always)]
    pub(crate) fn new(db: &'db Inner<S>, mut state: Box<TxState<S::Engine>>, is_opaque: bool, explains: bool) -> Self {
        if is_opaque {
            state.opacity.begin();
        }
        Self { db, state: Some(state), is_opaque, explains, doomed: None, snapshot: None, mode: PhantomData }
    }

    /// What the transaction knows. There until it ends, which takes the transaction itself.
    #[inline(always)]
    pub(crate) fn state(&mut self) -> &mut TxState<S::Engine> {
        match &mut self.state {
            Some(state) => state,
            None => unreachable!("the transaction has ended"),
        }
    }

    /// Encodes a key, once for all that follows, and goes on with that.
    #[inline(always)]
    fn with_key<K: Key, T>(&mut self, key: impl AsKey<K>, go_on: impl FnOnce(&mut Self, KeyRef<'_>) -> T) -> T {
        if K::FITS {
            return go_on(self, KeyRef::Word(key.packed()));
        }
        let mut buffer = std::mem::take(&mut self.state().arena.key);
        let done = go_on(self, encode(key, &mut buffer));
        self.state().arena.key = buffer;
        done
    }

    #[inline(always)]
    fn opened<K, C, O>(&self, table: Table<K, C, O>) -> Result<&'db Opened<S::Engine>, Error> {
        self.db.catalog.opened(table.database, table.number)
    }

    /// Remembers that the transaction cannot commit.
    #[cold]
    pub(crate) fn doom(&mut self, conflict: Conflict) -> Error {
        self.doomed = Some(conflict);
        Error::Conflict(conflict)
    }

    /// Remembers a record that was read. From time to time looks at all of them again, so that a
    /// transaction that cannot commit does not go on for long.
    #[inline(always)]
    pub(crate) fn track_read(&mut self, seen: ReadEntry) -> Result<(), Error> {
        if self.past().is_some() {
            return Ok(());
        }
        self.state().reads.records.push(seen);
        if self.is_to_check() { self.check() } else { Ok(()) }
    }

    /// The same for a row that is going to be changed, which is not remembered: it is once [that
    /// has failed](crate::work::Changing), and otherwise is among what is written.
    #[inline(always)]
    pub(crate) fn track_read_to_change(&mut self, seen: ReadEntry) -> Result<(), Error> {
        if self.is_to_check() {
            cold_path();
            self.track_read(seen)?;
            self.state().reads.untrack(seen);
        }
        Ok(())
    }

    /// Whether it is time to look again at all that was read.
    #[inline(always)]
    fn is_to_check(&mut self) -> bool {
        let is_opaque = self.is_opaque;
        let state = self.state();
        state.seen() >= state.reads.next_check || is_opaque
    }

    /// Remembers where a key was missing.
    #[inline]
    fn track_absent(&mut self, absence: Absence) -> Result<(), Error> {
        self.state().reads.track_absent(absence);
        self.passed()
    }

    /// Something has been read that is no record.
    #[inline]
    fn passed(&mut self) -> Result<(), Error> {
        if self.is_opaque { self.check() } else { Ok(()) }
    }

    /// Looks again at all that was read. Who only reads, and has read much, goes on in a snapshot.
    #[cold]
    #[inline(never)]
    fn check(&mut self) -> Result<(), Error> {
        if !M::WRITES && self.state().seen() >= LONG_READ {
            return self.turn_to_snapshot();
        }
        let (db, is_opaque) = (self.db, self.is_opaque);
        let state = self.state();
        let TxState { reads, writes, opacity, holder, .. } = &mut *state;
        let rows = reads.records.len() + reads.buckets.len() + reads.leaves.len() + writes.len();
        if is_opaque && !db.for_peers && !opacity.may_have_changed(db.engine(), &db.registry, rows) {
            // What was read before still holds.
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

    /// Why what was read is not true any more, if it is not.
    pub(crate) fn validation_error(&mut self) -> Option<Conflict> {
        let db = self.db;
        self.doomed.or_else(|| commit::validate_all(db, self.state()).err())
    }

    /// Ends the transaction: makes everything that it has written happen, at one moment.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] when others have changed what it has read; or when memory has run out.
    /// Nothing has happened then.
    pub fn commit(mut self) -> Result<(), Error> {
        self.try_commit(self.db.thread())
    }

    /// The first version that a transaction that reads the past does not see.
    #[inline(always)]
    fn past(&self) -> Option<Version> {
        if M::WRITES { None } else { self.snapshot.map(|snapshot| snapshot.before) }
    }

    /// Goes on in a snapshot of now, if all that was read is still so.
    #[cold]
    pub(crate) fn turn_to_snapshot(&mut self) -> Result<(), Error> {
        let db = self.db;
        let snapshot = db.snapshots.open(&db.store)?;
        event!(trace, database = db.number, until = snapshot.before.number(), "a snapshot is open");
        self.snapshot = Some(snapshot);
        // Who closes the database sees this transaction from here on, or this sees that it is
        // closed: opening was a fence.
        fence_locked();
        db.lifecycle.admit(db.engine(), true)?;
        // What is still so was so when the snapshot was opened: whoever was about to change it then
        // has it locked, or has changed it.
        if let Err(conflict) = commit::validate_all(db, self.state()) {
            return Err(self.doom(conflict));
        }
        self.state().clear();
        Ok(())
    }

    /// As [`commit`](Self::commit); the transaction has ended then, whatever came of it. This
    /// thread is the one given.
    #[inline(always)]
    pub(crate) fn try_commit(&mut self, thread: &Thread<S::Engine>) -> Result<(), Error> {
        // Whoever has only read a row has nothing of what follows, neither its registers nor its
        // stack.
        if commit::is_trivially_committed::<S, M>(self.db, self.state())
            && self.doomed.is_none()
            && self.db.log.is_none()
        {
            self.state().session.counters.has_read();
            self.has_committed(thread);
            return Ok(());
        }
        self.try_commit_all(thread)
    }

    /// The same where there is something to do.
    #[inline(never)]
    fn try_commit_all(&mut self, thread: &Thread<S::Engine>) -> Result<(), Error> {
        let db = self.db;
        let committed = match self.doomed {
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
                    self.has_committed(thread);
                    Ok(())
                }
                Some(log) => {
                    cold_path();
                    self.has_committed_to(log, thread)
                }
            },
            Err(error) => Err(self.end_with(error, thread)),
        }
    }

    /// Ends a transaction that has committed, and waits for the log where it is to.
    #[inline(never)]
    fn has_committed_to(&mut self, log: &Log<S::Engine>, thread: &Thread<S::Engine>) -> Result<(), Error> {
        let past = self.past();
        let state = self.state();
        let choice = std::mem::take(&mut state.session.choice);
        let depends_on = match state.session.logged_in {
            0 => log.depends_on(&state.reads, state.writes.is_empty(), past),
            epoch => Ok(epoch),
        };
        self.has_committed(thread);
        let epoch = depends_on?;
        if choice == Choice::Token {
            thread.submitted.set(epoch);
        }
        log.after_commit(epoch, choice)
    }

    /// Chooses when this transaction's commit returns, whatever the
    /// [database](crate::Builder::durability) does otherwise: as soon as it is durable, or at once.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for [`Durability::None`], and in a database that is in memory only.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Durability, Error, Raw, TableDef};
    ///
    /// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
    /// let directory = std::env::temp_dir().join(format!("drtm-choice-{}", std::process::id()));
    /// let db = Db::builder().path(&directory).durability(Durability::Sync).build()?;
    /// let notes = db.table(NOTES)?;
    /// db.transact(|tx| {
    ///     tx.set_durability(Durability::Async)?;
    ///     tx.put(notes, &1, b"not worth waiting for")
    /// })?;
    /// # drop(db);
    /// # std::fs::remove_dir_all(&directory).expect("it is there");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn set_durability(&mut self, durability: Durability) -> Result<(), Error> {
        let choice = match durability {
            Durability::Async => Choice::Async,
            Durability::Sync => Choice::Sync,
            Durability::None => return Err(in_memory_only("a transaction's durability", "`Async` or `Sync`")),
        };
        self.choose("a transaction's durability", choice)
    }

    /// Chooses for this run of the transaction.
    pub(crate) fn choose(&mut self, what: &'static str, choice: Choice) -> Result<(), Error> {
        if self.db.log.is_none() {
            return Err(in_memory_only(what, "of a database with a path"));
        }
        self.state().session.choice = choice;
        Ok(())
    }

    /// Commits as [`commit`](Self::commit) does, but does not wait: the token can be waited for, or
    /// awaited.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] in a database that is in memory only. Otherwise as for
    /// [`commit`](Self::commit).
    ///
    /// # Example
    ///
    /// See [`CommitToken`].
    pub fn submit(mut self) -> Result<CommitToken, Error> {
        const WHAT: &str = "a commit's token";
        self.choose(WHAT, Choice::Token)?;
        let (db, thread) = (self.db, self.db.thread());
        self.try_commit(thread)?;
        let token = db.log.as_ref().and_then(|log| log.token(thread.submitted.get()));
        token.ok_or_else(|| in_memory_only(WHAT, "of a database with a path"))
    }

    #[inline(always)]
    fn has_committed(&mut self, thread: &Thread<S::Engine>) {
        let Some(mut state) = self.state.take() else { return };
        let db = self.db;
        state.session.commits = state.session.commits.wrapping_add(1);
        state.clear();
        self.leave_snapshot(&mut state);
        db.give_back(thread, state);
    }

    /// Gives the transaction up for this reason.
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

    /// Gives the transaction up, as dropping it does.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Raw, TableDef};
    ///
    /// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
    /// let db = Db::new()?;
    /// let notes = db.table(NOTES)?;
    /// let mut tx = db.begin()?;
    /// tx.insert(notes, &1, b"never")?;
    /// tx.rollback();
    /// assert!(!db.transact(|tx| tx.contains(notes, &1))?);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn rollback(mut self) {
        self.end(None, None);
    }

    #[inline(always)]
    fn leave_snapshot(&mut self, state: &mut TxState<S::Engine>) {
        if !M::WRITES
            && let Some(snapshot) = self.snapshot.take()
        {
            self.db.snapshots.close(&self.db.store, snapshot);
            event!(trace, database = self.db.number, until = snapshot.before.number(), "a snapshot is closed");
            // A store that is corrupt says so to whoever uses it next; here nobody is to be told.
            let _ = reclaim::try_some(self.db, state);
        }
    }

    /// Forgets what was to be written, and takes back what was made for it. This thread is the one
    /// given, if it is known.
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
            // This may be the thread that began it, or not, or have no data of its own any more.
            None => self.db.give_to_others(state),
        }
    }

    /// Notes that the transaction has failed, and publishes what it has touched if its thread holds
    /// the ticket.
    #[cold]
    fn conflicted(&self, state: &TxState<S::Engine>, conflict: Conflict) {
        let db = self.db;
        state.session.counters.conflicted(conflict);
        if db.ticket.is_taken() {
            db.ticket.claim(db.this_thread(), state.places());
        }
        if self.explains {
            *db.thread().culprit.borrow_mut() = culprit::find(db, state);
        }
    }

    /// Whether there is nothing special about the transaction.
    #[inline(always)]
    fn is_plain(&self) -> bool {
        !self.is_opaque && self.past().is_none()
    }

    fn codec_error<T>(opened: &Opened<S::Engine>, result: Result<T, crate::CodecError>) -> Result<T, Error> {
        result.map_err(|source| Error::Codec { table: opened.name.get(), source })
    }

    /// A value that was found.
    #[inline(always)]
    fn bytes(state: &TxState<S::Engine>, found: Found) -> &[u8] {
        match found {
            Found::Read => state.arena.value.bytes(),
            Found::Own { start, length } => state.arena.values.bytes().get(start..start + length).unwrap_or(&[]),
        }
    }

    #[inline(always)]
    fn decode<C: Codec>(&mut self, opened: &Opened<S::Engine>, found: Found) -> Result<C::Value, Error> {
        Self::codec_error(opened, C::decode(Self::bytes(self.state(), found)))
    }
}

/// Refuses what needs a log.
#[cold]
pub(crate) fn in_memory_only(what: &'static str, must_be: &'static str) -> Error {
    Error::Config { what, must_be, is: "in memory only".to_owned() }
}

impl<S: Config, M: Mode> Drop for Tx<'_, S, M> {
    #[inline(always)]
    fn drop(&mut self) {
        // Most have ended by themselves.
        if self.state.is_some() {
            self.end(None, None);
        }
    }
}
