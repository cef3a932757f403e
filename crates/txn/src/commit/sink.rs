//! The sink: the observer of every transaction before it becomes visible. Examples are a log, a
//! replica and a change feed.

use std::{fmt::Debug, sync::OnceLock};

use drtm_kv::{Handle, Version};

use crate::{
    SinkError,
    commit::write_set::{Write, WriteOp},
    memory::{
        arena::{Arena, ArenaRange},
        storage::KeyRef,
    },
    schema::table::TableInfo,
};

/// Receives every transaction that is about to commit, and may refuse it.
///
/// A database has at most one sink, chosen when it is [built](crate::Builder::sink). It is called
/// once per transaction that writes, by the committing thread. That is after validation, when only
/// the sink can still stop the commit, and before any of its writes is visible. Dependent
/// transactions are passed in their serialization order; others may be passed concurrently.
///
/// The rows are locked during the call, so it should be quick. It must not wait for another
/// transaction. It must not read in a transaction that was begun before, or in a snapshot: that
/// would wait for these locks. A transaction that it begins in the same database fails with
/// [`Error::Nested`](crate::Error::Nested).
///
/// If it returns an error or panics, none of the writes are applied and the locks are released. The
/// application gets [`Error::Refused`](crate::Error::Refused), or the panic.
///
/// # Example
///
/// ```
/// use std::sync::{Arc, atomic::{AtomicUsize, Ordering::Relaxed}};
/// use drtm::{Builder, Commit, Error, Raw, RowChange, Sink, SinkError, TableDef};
///
/// /// Counts the bytes of values, and accepts no more than a hundred in a transaction.
/// #[derive(Debug, Default)]
/// struct Bytes(AtomicUsize);
///
/// impl Sink for Bytes {
///     fn commit(&self, commit: &Commit<'_>) -> Result<(), SinkError> {
///         let bytes = commit.rows().map(|row| match row.change() {
///             RowChange::Put(value) => value.len(),
///             RowChange::Patch { bytes, .. } => bytes.len(),
///             _ => 0,
///         });
///         let bytes: usize = bytes.sum();
///         if bytes > 100 {
///             return Err(format!("{bytes} bytes are too many").into());
///         }
///         self.0.fetch_add(bytes, Relaxed);
///         Ok(())
///     }
/// }
///
/// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
/// let bytes = Arc::new(Bytes::default());
/// let db = Builder::new().sink(bytes.clone()).build()?;
/// let notes = db.table(NOTES)?;
/// db.transact(|tx| tx.put(notes, &1, b"seven"))?;
/// let refused = db.transact(|tx| tx.put(notes, &2, &[0; 200]));
/// assert!(matches!(refused, Err(Error::Refused { .. })));
/// assert_eq!(bytes.0.load(Relaxed), 5);
/// assert_eq!(db.read(|tx| tx.get(notes, &2))?, None);
/// # Ok::<(), Error>(())
/// ```
pub trait Sink: Send + Sync + Debug + 'static {
    /// Accepts a transaction, or refuses it.
    ///
    /// # Errors
    ///
    /// The reason why the transaction must not commit.
    fn commit(&self, commit: &Commit<'_>) -> Result<(), SinkError>;
}

/// A transaction that is about to commit.
///
/// # Example
///
/// See [`Sink`].
#[derive(Debug)]
pub struct Commit<'t> {
    pub(crate) epoch: u64,
    pub(crate) writes: &'t [Write],
    pub(crate) arena: &'t Arena,
    pub(crate) tables: &'t [OnceLock<TableInfo>],
}

impl<'t> Commit<'t> {
    /// Returns the snapshot number under which the transaction commits. A transaction with a higher
    /// one comes later.
    ///
    /// # Example
    ///
    /// ```
    /// use std::sync::{Arc, atomic::{AtomicU64, Ordering::Relaxed}};
    ///
    /// use drtm::{Builder, Commit, Error, Pod, Sink, SinkError, TableDef};
    ///
    /// /// The snapshot number of the last transaction.
    /// #[derive(Debug, Default)]
    /// struct Last(AtomicU64);
    ///
    /// impl Sink for Last {
    ///     fn commit(&self, commit: &Commit<'_>) -> Result<(), SinkError> {
    ///         self.0.fetch_max(commit.epoch(), Relaxed);
    ///         Ok(())
    ///     }
    /// }
    ///
    /// const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");
    /// let last = Arc::new(Last::default());
    /// let db = Builder::new().sink(last.clone()).build()?;
    /// let counters = db.table(COUNTERS)?;
    /// db.transact(|tx| tx.put(counters, 1, &1))?;
    /// let before = last.0.load(Relaxed);
    /// drop(db.snapshot()?);
    /// db.transact(|tx| tx.put(counters, 1, &2))?;
    /// assert!(last.0.load(Relaxed) > before, "a snapshot advances the number");
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the rows that the transaction writes, each once. A row that was inserted and removed
    /// again counts as removed.
    ///
    /// # Example
    ///
    /// See [`Sink`].
    #[inline]
    pub fn rows(&self) -> impl Iterator<Item = Row<'t>> + use<'t> {
        let Self { epoch, writes, arena, tables } = *self;
        writes.iter().filter_map(move |write| Row::new(epoch, write, arena, tables))
    }
}

/// What a transaction does to a row.
///
/// # Example
///
/// See [`Sink`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowChange<'t> {
    /// The row's new value.
    Put(&'t [u8]),
    /// These bytes replace those from `offset` on. The rest of the [previous](Row::previous)
    /// version's value stays.
    Patch {
        /// Where the bytes begin in the value.
        offset: usize,
        /// The bytes.
        bytes: &'t [u8],
    },
    /// The row is removed.
    Remove,
}

/// A row that a transaction writes.
///
/// # Example
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use drtm::{Builder, Commit, Error, Pod, RowChange, Sink, SinkError, TableDef};
///
/// #[derive(Debug, Default)]
/// struct Log(Mutex<Vec<(String, Vec<u8>, bool)>>);
///
/// impl Sink for Log {
///     fn commit(&self, commit: &Commit<'_>) -> Result<(), SinkError> {
///         let mut log = self.0.lock().map_err(|_| "the log's writer has panicked")?;
///         for row in commit.rows() {
///             assert!(row.version() > row.previous() && !row.is_index());
///             log.push((row.table().to_owned(), row.key().to_vec(), row.change() == RowChange::Remove));
///         }
///         Ok(())
///     }
/// }
///
/// const STOCK: TableDef<u16, Pod<u32>> = TableDef::hash("stock");
/// let log = Arc::new(Log::default());
/// let db = Builder::new().sink(log.clone()).build()?;
/// let stock = db.table(STOCK)?;
/// db.transact(|tx| tx.put(stock, &258, &5))?;
/// db.transact(|tx| tx.remove(stock, &258).map(drop))?;
/// let stock = |removed| ("stock".to_owned(), vec![1, 2], removed);
/// assert_eq!(*log.0.lock().expect("no panic"), [stock(false), stock(true)]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Row<'t> {
    table: &'t TableInfo,
    write: &'t Write,
    arena: &'t Arena,
    epoch: u64,
    /// The bytes of a key that is kept as a word, right-aligned.
    word: [u8; 8],
}

impl<'t> Row<'t> {
    #[inline]
    fn new(epoch: u64, write: &'t Write, arena: &'t Arena, tables: &'t [OnceLock<TableInfo>]) -> Option<Self> {
        let table = tables.get(usize::from(write.table))?.get()?;
        let word = match write.key.in_bytes(&arena.keys) {
            KeyRef::Word(word) => word.to_be_bytes(),
            KeyRef::Bytes(_) => [0; 8],
        };
        Some(Self { table, write, arena, epoch, word })
    }

    /// Returns the table's name.
    ///
    /// # Example
    ///
    /// See [`Row`].
    #[must_use]
    #[inline]
    pub fn table(&self) -> &'static str {
        self.table.name.get()
    }

    /// Returns the table's number, which a sink can use to find its own data for the table. When a
    /// table is dropped, a later one may get its number.
    #[must_use]
    #[inline]
    pub fn table_number(&self) -> u16 {
        self.write.table
    }

    /// Returns what identifies the table across restarts.
    #[inline]
    pub(crate) fn table_id(&self) -> u16 {
        self.table.id()
    }

    /// Returns whether the table holds the entries of an index, which follow from the rows of
    /// another table.
    ///
    /// # Example
    ///
    /// See [`Row`].
    #[must_use]
    #[inline]
    pub fn is_index(&self) -> bool {
        self.table.is_index()
    }

    /// Returns the key's encoding. Encodings are in the order of the keys.
    ///
    /// # Example
    ///
    /// See [`Row`].
    #[must_use]
    #[inline]
    pub fn key(&self) -> &[u8] {
        match self.write.key.in_bytes(&self.arena.keys) {
            KeyRef::Bytes(bytes) => bytes,
            KeyRef::Word(_) => &self.word[self.word.len() - self.table.key_size().min(self.word.len())..],
        }
    }

    /// Returns the version that the row gets. A key's versions increase, even across removal and
    /// insertion.
    ///
    /// # Example
    ///
    /// See [`Row`].
    #[must_use]
    #[inline]
    pub fn version(&self) -> Version {
        self.write.version_in(self.epoch)
    }

    /// Returns the version that the row had before. If the key was absent, it is a
    /// [removed](Version::is_removed) one.
    ///
    /// # Example
    ///
    /// See [`Row`].
    #[must_use]
    #[inline]
    pub fn previous(&self) -> Version {
        self.write.before
    }

    /// Returns the record that has the row's previous value until the transaction is applied.
    /// `None` if the row was absent, or is removed.
    #[inline]
    pub(crate) fn overwritten(&self) -> Option<Handle> {
        let keeps = matches!(self.write.op, WriteOp::Put(_) | WriteOp::Patch { .. });
        (keeps && !self.write.before.is_removed()).then_some(self.write.at)
    }

    /// Returns the change of the row.
    ///
    /// # Example
    ///
    /// See [`Row`].
    #[must_use]
    #[inline]
    pub fn change(&self) -> RowChange<'t> {
        let bytes = |range: ArenaRange| range.of(self.arena.values.bytes());
        match self.write.op {
            WriteOp::Put(value) | WriteOp::Insert(value) => RowChange::Put(bytes(value)),
            WriteOp::Patch { bytes: patch, skipped } => {
                RowChange::Patch { offset: size_of::<u64>() * skipped as usize, bytes: bytes(patch) }
            }
            WriteOp::Remove => RowChange::Remove,
        }
    }
}
