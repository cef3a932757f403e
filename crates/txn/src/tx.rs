//! A transaction: what an application does with rows.
//!
//! Execution is optimistic: reads take no locks and remember what they have seen; writes are kept until the commit (see `commit`). Only the index changes
//! before it: a key that is to be inserted gets its record at once, which says that the key is not there yet. So a transaction finds its own insertions
//! where it looks for anything, ranges included, and whoever else looks for the key finds something that will change if the insertion commits.

mod by;
mod each;
mod entry;
mod many;
mod mode;
mod part;
mod range;
mod read;
mod run;
mod savepoint;
mod seize;
mod sweep;
mod upkeep;
mod write;

pub use by::RangeBy;
pub use entry::{Entry, OccupiedEntry, VacantEntry};
pub use mode::{Mode, ReadOnly, Update};
pub use range::Range;
pub use savepoint::Savepoint;

use std::{hint::cold_path, marker::PhantomData};

use drtm_htm::fence_locked;
use drtm_kv::{Sighting, Version};

use crate::{
    Codec, Conflict, Embedded, Error, Key, Setting, Table,
    catalog::Opened,
    commit,
    db::{Inner, Thread},
    garbage,
    index::{Absence, Encoded},
    snapshots,
    trace::event,
    work::{Fate, LONG_READ, Work},
};

/// A transaction. Dropped without a [commit](Self::commit), it has never happened.
///
/// # Example
///
/// ```
/// use drtm_txn::{Db, Error, Ordered, Pod, TableDef};
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
pub struct Tx<'db, S: Setting = Embedded, M: Mode = Update> {
    pub(crate) db: &'db Inner<S>,
    /// Until it has ended.
    work: Option<Box<Work<S::Engine>>>,
    /// Whether every read is checked against those before.
    is_opaque: bool,
    /// Whether it locks what it reads.
    has_ticket: bool,
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
pub type Snapshot<'db, S = Embedded> = Tx<'db, S, ReadOnly>;

/// Where a value is that was found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// In the buffer for what was read last.
    Read,
    /// Among what the transaction writes. In whole words, as this is given from function to function: what is written by halves and read as a whole is waited for.
    Own { start: usize, length: usize },
}

impl Found {
    /// The value of a row that the transaction writes, if it is to have one.
    #[inline(always)]
    fn of(fate: Fate) -> Option<Self> {
        match fate {
            Fate::Put(value) | Fate::Fresh(value) => {
                Some(Self::Own { start: value.range().start, length: value.length() })
            }
            // Who comes to such a row reads it, and puts the patch into what was read.
            Fate::Patch { .. } => Some(Self::Read),
            Fate::Remove => None,
        }
    }
}

/// A key as the store takes it.
#[inline(always)]
pub(crate) fn encode<'b, K: Key>(key: &K, buffer: &'b mut Vec<u8>) -> Encoded<'b> {
    if K::FITS {
        Encoded::Word(key.word())
    } else {
        buffer.clear();
        key.write(buffer, true);
        Encoded::Bytes(buffer)
    }
}

impl<'db, S: Setting, M: Mode> Tx<'db, S, M> {
    pub(crate) fn new(db: &'db Inner<S>, work: Box<Work<S::Engine>>, is_opaque: bool, has_ticket: bool) -> Self {
        Self { db, work: Some(work), is_opaque, has_ticket, doomed: None, snapshot: None, mode: PhantomData }
    }

    /// What the transaction knows. There until it ends, which takes the transaction itself.
    #[inline(always)]
    pub(crate) fn work(&mut self) -> &mut Work<S::Engine> {
        match &mut self.work {
            Some(work) => work,
            None => unreachable!("the transaction has ended"),
        }
    }

    #[inline(always)]
    fn opened<K, C, O>(&self, table: Table<K, C, O>) -> Result<&'db Opened<S::Engine>, Error> {
        if table.database != self.db.number {
            return Err(Error::OtherDatabase);
        }
        match self.db.catalog.get(table.number) {
            Some(opened) => Ok(opened),
            None => Err(Error::OtherDatabase),
        }
    }

    /// Remembers that the transaction cannot commit.
    #[cold]
    pub(crate) fn doom(&mut self, conflict: Conflict) -> Error {
        self.doomed = Some(conflict);
        Error::Conflict(conflict)
    }

    /// Remembers a record that was read. From time to time looks at all of them again, so that a transaction that cannot commit does not go on for long.
    #[inline(always)]
    pub(crate) fn saw(&mut self, seen: Sighting) -> Result<(), Error> {
        if self.past().is_some() {
            return Ok(());
        }
        self.work().reads.push(seen);
        if self.is_to_check() { self.check() } else { Ok(()) }
    }

    /// The same for a row that is going to be changed, which is not remembered: it is once [that has failed](crate::work::Changing), and otherwise is among what is written.
    #[inline(always)]
    pub(crate) fn saw_to_change(&mut self, seen: Sighting) -> Result<(), Error> {
        if self.is_to_check() {
            cold_path();
            self.saw(seen)?;
            self.work().take_back(seen);
        }
        Ok(())
    }

    /// Whether it is time to look again at all that was read.
    #[inline(always)]
    fn is_to_check(&mut self) -> bool {
        let is_opaque = self.is_opaque;
        let work = self.work();
        work.seen() >= work.next_check || is_opaque
    }

    /// Remembers where a key was missing.
    #[inline]
    fn missed(&mut self, absence: Absence) -> Result<(), Error> {
        let work = self.work();
        match absence {
            Absence::Bucket(bucket) => work.buckets.push(bucket),
            Absence::Leaf(leaf) => work.leaves.push(leaf),
        }
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
        if !M::WRITES && self.work().seen() >= LONG_READ {
            return self.turn_to_snapshot();
        }
        let db = self.db;
        let work = self.work();
        work.next_check = 2 * work.seen();
        match commit::is_true(db, work) {
            Ok(()) => Ok(()),
            Err(conflict) => Err(self.doom(conflict)),
        }
    }

    /// Why what was read is not true any more, if it is not.
    pub(crate) fn refuted(&mut self) -> Option<Conflict> {
        let db = self.db;
        self.doomed.or_else(|| commit::is_true(db, self.work()).err())
    }

    /// Ends the transaction: makes everything that it has written happen, at one moment.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] when others have changed what it has read; or when memory has run out. Nothing has happened then.
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
        // Who closes the database sees this transaction from here on, or this sees that it is closed: opening was a fence.
        fence_locked();
        db.gate.admit(db.engine(), true)?;
        // What is still so was so when the snapshot was opened: whoever was about to change it then has it locked, or has changed it.
        if let Err(conflict) = commit::is_true(db, self.work()) {
            return Err(self.doom(conflict));
        }
        self.work().clear();
        Ok(())
    }

    /// As [`commit`](Self::commit); the transaction has ended then, whatever came of it. This thread is the one given.
    #[inline(always)]
    pub(crate) fn try_commit(&mut self, thread: &Thread<S::Engine>) -> Result<(), Error> {
        // Whoever has only read a row has nothing of what follows, neither its registers nor its stack.
        if commit::has_happened::<S, M>(self.work()) && self.doomed.is_none() {
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
            None => commit::commit::<S, M>(db, self.work()),
        };
        match committed {
            Ok(()) => {
                self.has_committed(thread);
                Ok(())
            }
            Err(error) => Err(self.end_with(error)),
        }
    }

    #[inline(always)]
    fn has_committed(&mut self, thread: &Thread<S::Engine>) {
        let Some(mut work) = self.work.take() else { return };
        let db = self.db;
        work.commits = work.commits.wrapping_add(1);
        work.counters.committed();
        work.release(&db.store.records());
        work.clear();
        self.leave_snapshot(&mut work);
        db.give_back(thread, work);
    }

    /// Gives the transaction up for this reason.
    #[cold]
    #[inline(never)]
    fn end_with(&mut self, error: Error) -> Error {
        self.end(match error {
            Error::Conflict(conflict) => Some(conflict),
            _ => None,
        });
        error
    }

    /// Gives the transaction up, as dropping it does.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_txn::{Db, Error, Raw, TableDef};
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
        self.end(None);
    }

    #[inline(always)]
    fn leave_snapshot(&mut self, work: &mut Work<S::Engine>) {
        if !M::WRITES
            && let Some(snapshot) = self.snapshot.take()
        {
            self.db.snapshots.close(&self.db.store, snapshot);
            event!(trace, database = self.db.number, until = snapshot.before.number(), "a snapshot is closed");
            // A store that is corrupt says so to whoever uses it next; here nobody is to be told.
            let _ = garbage::try_some(self.db, work);
        }
    }

    /// Forgets what was to be written, and takes back what was made for it.
    #[cold]
    pub(crate) fn end(&mut self, conflict: Option<Conflict>) {
        let Some(mut work) = self.work.take() else { return };
        self.leave_snapshot(&mut work);
        match conflict {
            Some(conflict) => work.counters.conflicted(conflict),
            None => work.counters.gave_up(),
        }
        work.release(&self.db.store.records());
        garbage::take_back(self.db, &mut work);
        work.clear();
        self.db.give_back(self.db.thread(), work);
    }

    /// Whether there is nothing special about the transaction.
    #[inline(always)]
    fn is_plain(&self) -> bool {
        !self.is_opaque && !self.has_ticket() && self.past().is_none()
    }

    fn codec_error<T>(opened: &Opened<S::Engine>, result: Result<T, crate::CodecError>) -> Result<T, Error> {
        result.map_err(|source| Error::Codec { table: opened.name, source })
    }

    /// Shows a value that was found.
    #[inline(always)]
    fn show<C: Codec, R>(
        &mut self,
        opened: &Opened<S::Engine>,
        found: Found,
        see: impl FnOnce(C::View<'_>) -> R,
    ) -> Result<R, Error> {
        Ok(see(Self::codec_error(opened, C::view(Self::bytes(self.work(), found)))?))
    }

    /// A value that was found.
    #[inline(always)]
    fn bytes(work: &Work<S::Engine>, found: Found) -> &[u8] {
        match found {
            Found::Read => work.value.bytes(),
            Found::Own { start, length } => work.values.bytes().get(start..start + length).unwrap_or(&[]),
        }
    }

    #[inline(always)]
    fn decode<C: Codec>(&mut self, opened: &Opened<S::Engine>, found: Found) -> Result<C::Value, Error> {
        Self::codec_error(opened, C::decode(Self::bytes(self.work(), found)))
    }
}

impl<S: Setting, M: Mode> Drop for Tx<'_, S, M> {
    #[inline(always)]
    fn drop(&mut self) {
        // Most have ended by themselves.
        if self.work.is_some() {
            self.end(None);
        }
    }
}
