//! Programs: transactions with their code, which are put together to be analysed.

use std::{borrow::Borrow, fmt, ops::AddAssign, sync::Arc};

use drtm_chopping::{Access as Described, Options, Transaction};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    access::PieceTx,
    additions::{Addable, Apply, Sum},
    call::{Call, Resume},
    draft::Draft,
    procedure::{Code, Procedure},
    reader::Reader,
    room::Room,
    stop::Stop,
};
use crate::{Config, Db, DefaultConfig, Error, Stored};

/// A program that is being put together: chopped transactions with their code.
///
/// Its descriptions name tables. A table of the database that has another name is
/// [told](Self::table).
///
/// # Example
///
/// A chopping that is not serializable is refused, and the cycle is named.
///
/// ```
/// use drtm::{
///     ChoppedError, Db, Error, Pod, TableDef,
///     chopped::Procedures,
///     chopping::{Piece, Table, Transaction},
/// };
///
/// const ACCOUNT: Table = Table::new("account", &[]);
/// const TRANSFER: Transaction = Transaction::new("transfer", &[
///     Piece::new("withdraw", &[ACCOUNT.update("*")]),
///     Piece::new("deposit", &[ACCOUNT.update("*")]),
/// ]);
/// const ACCOUNTS: TableDef<u64, Pod<i64>> = TableDef::hash("account");
///
/// let db = Db::new()?;
/// let accounts = db.table(ACCOUNTS)?;
/// let mut bank = Procedures::new(&db, "bank").insist("transfer", &[&["withdraw"], &["deposit"]]);
/// let transfer = bank
///     .procedure::<(u64, u64)>(TRANSFER)
///     .piece("withdraw", move |tx, (from, _)| {
///         tx.update(accounts, *from, |left| *left -= 1).map(drop)
///     })
///     .piece("deposit", move |tx, (_, to)| {
///         tx.update(accounts, *to, |left| *left += 1).map(drop)
///     });
/// bank.add(transfer);
/// let Err(Error::Chopped(refused)) = bank.register() else { panic!("it is refused") };
/// assert!(matches!(*refused, ChoppedError::Refused(_)));
/// assert!(refused.to_string().contains("transfer/withdraw"), "{refused}");
/// # Ok::<(), Error>(())
/// ```
pub struct Procedures<S: Config = DefaultConfig> {
    pub(super) db: Db<S>,
    pub(super) room: Arc<Room<S>>,
    pub(super) draft: Draft,
    /// What finishes each transaction. `None` for those that only read.
    pub(super) code: Vec<Option<Arc<dyn Resume<S>>>>,
    /// The sums, each with its hash.
    pub(super) sums: Vec<(u64, Box<dyn Apply<S>>)>,
}

impl<S: Config> fmt::Debug for Procedures<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Procedures").field("program", &self.room.program).finish_non_exhaustive()
    }
}

impl<S: Config> Procedures<S> {
    /// Begins a program. Its name tells it from other programs of the database, also when that is
    /// opened again.
    ///
    /// # Example
    ///
    /// See [`chopped`](super).
    #[must_use]
    pub fn new(db: &Db<S>, program: &str) -> Self {
        Self {
            db: db.clone(),
            room: Arc::new(Room::of(program)),
            draft: Draft::new(Options::ALL),
            code: Vec::new(),
            sums: Vec::new(),
        }
    }

    /// Sets the optimisations that the analysis uses: all of them by default.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, chopped::Procedures, chopping::Options};
    ///
    /// let program = Procedures::new(&Db::new()?, "plain").options(Options::NONE);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.draft.options = options;
        self
    }

    /// Insists on the pieces of a transaction: the names of those that run together, in order. The
    /// program is refused if they are not serializable.
    ///
    /// # Example
    ///
    /// See [`Procedures`].
    #[must_use]
    pub fn insist(mut self, transaction: &'static str, pieces: &'static [&'static [&'static str]]) -> Self {
        self.draft.insist(transaction, pieces);
        self
    }

    /// Says which table a name in descriptions stands for, if the table has another one.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Pod, TableDef, chopped::Procedures};
    ///
    /// const ACCOUNTS: TableDef<u64, Pod<i64>> = TableDef::hash("accounts of the bank");
    /// let db = Db::new()?;
    /// let accounts = db.table(ACCOUNTS)?;
    /// let bank = Procedures::new(&db, "bank").table("account", accounts);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn table(mut self, described: &'static str, rows: impl Stored) -> Self {
        self.draft.name(described, rows.table().number);
        self
    }

    /// Begins the code of a transaction, whose pieces hand over a `St`.
    ///
    /// # Example
    ///
    /// See [`chopped`](super).
    #[must_use]
    pub fn procedure<St>(&self, described: Transaction<'static>) -> Procedure<S, St> {
        Procedure::of(described)
    }

    /// Adds a transaction with its code. It can run once the program is registered.
    ///
    /// # Example
    ///
    /// See [`chopped`](super).
    pub fn add<St, L>(&mut self, procedure: Procedure<S, St, L>) -> Call<S, St, L>
    where
        St: Clone + Serialize + DeserializeOwned + 'static,
        L: Code<S, St>,
    {
        let procedure = Arc::new(procedure);
        let number = self.draft.add(procedure.described, &procedure.code);
        self.code.push(Some(Arc::clone(&procedure) as _));
        Call::of(Arc::clone(&self.room), procedure, number)
    }

    /// Adds a transaction that is read as a whole, by two rounds.
    ///
    /// # Example
    ///
    /// See [`Reader`].
    pub fn reader<I, T, F>(&mut self, described: Transaction<'static>, code: F) -> Reader<S, F>
    where
        F: Fn(&mut PieceTx<'_, '_, S>, &I) -> Result<T, Stop>,
    {
        self.code.push(None);
        Reader::of(Arc::clone(&self.room), code, self.draft.reader(described))
    }

    /// Adds a sum: rows of numbers that pieces [add](PieceTx::add) to, by the addition that their
    /// descriptions have.
    ///
    /// # Errors
    ///
    /// [`ChoppedError::TooManySums`](crate::ChoppedError::TooManySums).
    ///
    /// # Example
    ///
    /// See [`Sum`].
    pub fn sum<R>(&mut self, described: Described<'static>, rows: R) -> Result<Sum<R>, Error>
    where
        R: Addable + Send + Sync + 'static,
        R::Row: AddAssign + Borrow<R::Given>,
    {
        let sum = self.draft.sum(described, rows)?;
        self.sums.push((sum.id, Box::new(sum)));
        Ok(sum)
    }
}
