//! A transaction: the reads and writes of an application.
//!
//! Execution is optimistic. Reads take no locks and are added to the read set. Writes are buffered
//! until the commit (see `commit`). Only the index changes before the commit: a key that is to be
//! inserted gets its record at once, marked absent. So a transaction finds its own insertions by
//! every access path, ranges included. Any other transaction that looks up the key reads a record
//! that changes if the insertion commits.
//!
//! A read has the transaction for itself for as long as it lasts ([`Exclusive`]). While a closure
//! is shown a row in place, the read that shows it is not over. If the closure reads too, it gets
//! another state: the read is *nested*. At the end, what nested reads have seen is added to the
//! read set, and validated with it. Another state does not have the transaction's writes, nor what
//! an opaque transaction validates at each read. So where there are any, a row is copied before it
//! is shown, and the read is over by then.

mod copies;
pub(crate) mod culprit;
mod drive;
mod each;
mod entry;
mod exclusive;
pub(crate) mod flow;
mod index;
mod lend;
pub(crate) mod located;
mod many;
mod mode;
pub(crate) mod nodes;
mod one_node;
pub(crate) mod opacity;
mod part;
pub(crate) mod position;
pub(crate) mod projection;
mod range;
mod read;
mod reads;
pub(crate) mod removed;
pub(crate) mod rows;
mod run;
mod savepoint;
mod scan;
pub(crate) mod state;
mod sweep;
pub(crate) mod ticket;
mod transaction;
mod upkeep;
pub(crate) mod value_sink;
mod walk;
pub(crate) mod way;
mod write;
mod writes;
mod yield_to_ticket;

pub use entry::{Entry, OccupiedEntry, VacantEntry};
pub(crate) use exclusive::{Exclusive, Found, encode, in_memory_only};
pub use lend::Lend;
pub use mode::{Mode, ReadOnly, Update};
pub use one_node::{OneNode, ready};
pub use range::Range;
pub use savepoint::Savepoint;
pub use transaction::{EntryIn, OccupiedIn, Transaction, VacantIn};

use std::{
    cell::{OnceCell, RefCell},
    fmt,
};

use crate::{
    Config, Conflict, DefaultConfig, Error,
    db::inner::{Inner, Thread},
    snapshot,
    tx::state::TxState,
};

/// A transaction. Dropping it without a [commit](Self::commit) aborts it: none of its writes are
/// applied.
///
/// Reads take `&self`. So several ranges can be open at once, and rows can be read while a range is
/// open, or while a closure is shown a row. Such reads see what all others see, the transaction's
/// own writes included. What writes takes `&mut self`: no closure and no range sees a row change
/// under it. A [`range_mut`](Self::range_mut) writes where it reads.
///
/// A transaction can move to another thread, but threads cannot share it: it is `Send`, and not
/// `Sync`.
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
/// assert_eq!(tx.len(stock)?, 2);
/// tx.commit()?;
///
/// let mut abandoned = db.begin()?;
/// assert_eq!(abandoned.remove(stock, &2)?, Some(20));
/// drop(abandoned);
/// assert_eq!(db.transact(|tx| tx.get(stock, &2))?, Some(20));
/// # Ok::<(), Error>(())
/// ```
///
/// ```
/// fn moves<T: Send>() {}
/// moves::<drtm::Tx<'_>>();
/// ```
///
/// ```compile_fail
/// fn is_shared<T: Sync>() {}
/// is_shared::<drtm::Tx<'_>>();
/// ```
#[doc(alias("rollback", "abort"))]
pub struct Tx<'db, S: Config = DefaultConfig, M: Mode = Update> {
    db: &'db Inner<S>,
    main: RefCell<Exclusive<'db, S, M>>,
    nested: OnceCell<Box<Nested<'db, S, M>>>,
    /// The snapshot that all of its reads see. `None` if it began to read in the present.
    since: Option<snapshot::Opened>,
    /// Whether a row is copied before a closure is shown it: there may be writes, or it is opaque.
    copies: bool,
}

/// A read-only transaction, or a snapshot. It never blocks or aborts writers.
///
/// A read within a closure that is shown a row sees what any other read of the transaction sees. In
/// a [snapshot](crate::Db::snapshot) that is the snapshot. In [`Db::read`](crate::Db::read) it is
/// validated when the transaction ends, together with all others. If such closures read more than
/// about a thousand rows, the transaction runs again in a snapshot.
///
/// # Example
///
/// ```
/// use drtm::{Db, Error, Ordered, Pod, Serde, TableDef};
///
/// const ORDERS: TableDef<(u32, u32), Pod<u64>, Ordered> = TableDef::ordered("orders");
/// const ITEMS: TableDef<u64, Serde<String>> = TableDef::hash("items");
/// let db = Db::new()?;
/// let (orders, items) = (db.table(ORDERS)?, db.table(ITEMS)?);
/// db.transact(|tx| {
///     tx.insert(items, 17, &"nails".to_owned())?;
///     tx.insert(items, 18, &"nuts".to_owned())?;
///     tx.insert(orders, (7, 1), &18)?;
///     tx.insert(orders, (7, 2), &17)
/// })?;
/// let ordered: Vec<_> = db.read(|tx| {
///     let of_customer = tx.range(orders, (7, 0)..=(7, u32::MAX))?;
///     of_customer.rows().filter_map(|row| row.and_then(|(_, item)| tx.get(items, item)).transpose()).collect()
/// })?;
/// assert_eq!(ordered, ["nuts", "nails"]);
///
/// // A row can be read while another one is shown.
/// let snapshot = db.snapshot()?;
/// let name = snapshot.view(orders, (7, 1), |item| snapshot.get(items, item))?;
/// assert_eq!(name.transpose()?.flatten().as_deref(), Some("nuts"));
/// # Ok::<(), Error>(())
/// ```
///
/// ```
/// fn moves<T: Send>() {}
/// moves::<drtm::Snapshot<'_>>();
/// ```
///
/// ```compile_fail
/// fn is_shared<T: Sync>() {}
/// is_shared::<drtm::Snapshot<'_>>();
/// ```
///
/// A snapshot has no methods that write. This does not compile:
///
/// ```compile_fail
/// use drtm::{Db, Error, Raw, TableDef};
///
/// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
/// let db = Db::new()?;
/// let notes = db.table(NOTES)?;
/// db.read(|tx| tx.put(notes, &1, b"no"))?;
/// # Ok::<(), Error>(())
/// ```
///
/// It does not end while a range of it is open. Neither does this compile:
///
/// ```compile_fail
/// use drtm::{Db, Error, Ordered, Raw, TableDef};
///
/// const NOTES: TableDef<u64, Raw, Ordered> = TableDef::ordered("notes");
/// let db = Db::new()?;
/// let notes = db.table(NOTES)?;
/// let snapshot = db.snapshot()?;
/// let mut rows = snapshot.range(notes, ..)?;
/// snapshot.commit()?;
/// rows.next()?;
/// # Ok::<(), Error>(())
/// ```
pub type Snapshot<'db, S = DefaultConfig> = Tx<'db, S, ReadOnly>;

/// A transaction for nested reads, and one for those that are nested in these.
struct Nested<'db, S: Config, M: Mode> {
    tx: RefCell<Exclusive<'db, S, M>>,
    next: OnceCell<Box<Self>>,
}

impl<S: Config, M: Mode> Drop for Nested<'_, S, M> {
    fn drop(&mut self) {
        self.tx.get_mut().leave_nested();
    }
}

impl<S: Config, M: Mode> fmt::Debug for Tx<'_, S, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").field("since", &self.since).finish_non_exhaustive()
    }
}

impl<'db, S: Config, M: Mode> Tx<'db, S, M> {
    #[inline(always)]
    pub(crate) fn new(db: &'db Inner<S>, state: Box<TxState<S::Engine>>, is_opaque: bool, explains: bool) -> Self {
        let main = RefCell::new(Exclusive::new(db, state, is_opaque, explains));
        Self { db, main, nested: OnceCell::new(), since: None, copies: M::WRITES && is_opaque }
    }

    /// Continues in a snapshot of now, which has read nothing yet.
    #[cold]
    pub(crate) fn turn_to_snapshot(&mut self) -> Result<(), Error> {
        let main = self.main.get_mut();
        main.turn_to_snapshot()?;
        self.since = main.snapshot();
        Ok(())
    }

    /// Returns the name of the table with this number.
    #[cfg(all(feature = "chopping", not(feature = "model")))]
    pub(crate) fn name_of(&self, table: u16) -> &'static str {
        self.db.catalog.get(table).map_or("", |opened| opened.name.get())
    }

    /// Calls `read` with a transaction that is not in use.
    #[inline(always)]
    fn with<T>(&self, read: impl FnOnce(&mut Exclusive<'db, S, M>) -> Result<T, Error>) -> Result<T, Error> {
        let tx = if self.main.try_borrow_mut().is_ok() { &self.main } else { self.nested()? };
        read(&mut tx.borrow_mut())
    }

    /// Returns the transaction to write with.
    #[inline(always)]
    pub(crate) fn exclusive(&mut self) -> &mut Exclusive<'db, S, M> {
        self.copies = M::WRITES;
        self.main.get_mut()
    }

    /// Returns a transaction for a nested read.
    ///
    /// # Errors
    ///
    /// [`Error::Nested`] if it would not see the transaction's writes: an iterator over keys reads
    /// the transaction that iterates over them.
    #[cold]
    #[inline(never)]
    fn nested(&self) -> Result<&RefCell<Exclusive<'db, S, M>>, Error> {
        if self.copies {
            return Err(Error::Nested);
        }
        let mut place = &self.nested;
        loop {
            let nested = match place.get() {
                Some(nested) => nested,
                None => {
                    let nested = self.begin_nested()?;
                    place.get_or_init(|| nested)
                }
            };
            if nested.tx.try_borrow_mut().is_ok() {
                return Ok(&nested.tx);
            }
            place = &nested.next;
        }
    }

    fn begin_nested(&self) -> Result<Box<Nested<'db, S, M>>, Error> {
        let tx = RefCell::new(Exclusive::new_nested(self.db, self.since)?);
        Ok(Box::new(Nested { tx, next: OnceCell::new() }))
    }

    /// Returns the transaction with all that it has read, to be ended.
    #[inline(always)]
    fn whole(&mut self) -> &mut Exclusive<'db, S, M> {
        if self.nested.get().is_some() {
            self.absorb();
        }
        self.main.get_mut()
    }

    /// Adds what nested reads have seen to the read set.
    #[cold]
    #[inline(never)]
    fn absorb(&mut self) {
        let main = self.main.get_mut();
        // Its own reads are of the snapshot in which it has continued, and the nested ones are not.
        let is_mixed = main.snapshot().is_some() && self.since.is_none();
        let mut rest = self.nested.take();
        while let Some(mut nested) = rest {
            rest = nested.next.take();
            let tx = nested.tx.get_mut();
            let reads = &mut tx.state().reads;
            if is_mixed && !reads.is_empty() {
                main.doomed.set(main.doomed.get().or(Some(Conflict::Validation)));
            }
            main.state().reads.absorb(reads);
            main.doomed.set(main.doomed.get().or(tx.doomed.get()));
        }
    }

    /// Commits by reference. The transaction has ended afterwards, whatever the result. `thread` is
    /// this thread.
    #[inline(always)]
    pub(crate) fn try_commit(&mut self, thread: &Thread<S::Engine>) -> Result<(), Error> {
        self.whole().try_commit(thread)
    }

    /// Returns the conflict that keeps the transaction from committing. `None` if its reads still
    /// hold.
    pub(crate) fn validation_error(&mut self) -> Option<Conflict> {
        self.whole().validation_error()
    }

    /// Aborts the transaction.
    #[cold]
    pub(crate) fn end(&mut self, conflict: Option<Conflict>, thread: Option<&Thread<S::Engine>>) {
        self.whole().end(conflict, thread);
    }
}
