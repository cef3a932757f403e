//! Programs: transactions with their code, which are put together to be analysed.

use std::{borrow::Borrow, collections::BTreeMap, fmt, ops::AddAssign, sync::Arc};

use drtm_chopping::{ALL_COLUMNS, Access as Described, Options, Transaction};
use serde::{Serialize, de::DeserializeOwned};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    access::PieceTx,
    additions::{Addable, Apply, Sum},
    call::{Call, Resume},
    procedure::{Code, Procedure},
    reader::Reader,
    room::Room,
    stop::Stop,
};
use crate::{ChoppedError, Config, Db, DefaultConfig, Error, Stored};

/// The most sums of a program.
const MOST_SUMS: usize = 64;

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
    pub(super) options: Options,
    pub(super) described: Vec<Transaction<'static>>,
    pub(super) wanted: Vec<(&'static str, &'static [&'static [&'static str]])>,
    /// The tables of the database, by the names that descriptions have for them.
    pub(super) tables: BTreeMap<&'static str, u16>,
    pub(super) code: Vec<Coded<S>>,
    pub(super) sums: Vec<Summed<S>>,
}

/// A sum, and what it is added to.
pub(super) struct Summed<S: Config> {
    pub(super) described: Described<'static>,
    /// The column's name, with the table's.
    pub(super) column: String,
    pub(super) id: u64,
    pub(super) apply: Box<dyn Apply<S>>,
}

/// The code of a transaction.
pub(super) enum Coded<S: Config> {
    Procedure { resume: Arc<dyn Resume<S>>, pieces: Vec<(&'static str, bool)> },
    Reader,
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
            options: Options::ALL,
            described: Vec::new(),
            wanted: Vec::new(),
            tables: BTreeMap::new(),
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
    pub fn options(self, options: Options) -> Self {
        Self { options, ..self }
    }

    /// Insists on the pieces of a transaction: the names of those that run together, in order. The
    /// program is refused if they are not serializable.
    ///
    /// # Example
    ///
    /// See [`Procedures`].
    #[must_use]
    pub fn insist(mut self, transaction: &'static str, pieces: &'static [&'static [&'static str]]) -> Self {
        self.wanted.push((transaction, pieces));
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
        self.tables.insert(described, rows.table().number);
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
        let mut pieces = Vec::new();
        procedure.code.visit(&mut |name, may_abort| pieces.push((name, may_abort)));
        self.described.push(procedure.described);
        self.code.push(Coded::Procedure { resume: Arc::clone(&procedure) as _, pieces });
        Call::of(Arc::clone(&self.room), procedure, self.described.len() - 1)
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
        self.described.push(described);
        self.code.push(Coded::Reader);
        Reader::of(Arc::clone(&self.room), code, self.described.len() - 1)
    }

    /// Adds a sum: rows of numbers that pieces [add](PieceTx::add) to, by the addition that their
    /// descriptions have.
    ///
    /// # Errors
    ///
    /// [`ChoppedError::TooManySums`].
    ///
    /// # Example
    ///
    /// See [`Sum`].
    pub fn sum<R>(&mut self, described: Described<'static>, rows: R) -> Result<Sum<R>, Error>
    where
        R: Addable + Send + Sync + 'static,
        R::Row: AddAssign + Borrow<R::Given>,
    {
        if self.sums.len() == MOST_SUMS {
            return Err(ChoppedError::TooManySums { most: MOST_SUMS }.into());
        }
        let column = match described.column() {
            ALL_COLUMNS => described.table_name().to_owned(),
            column => format!("{}.{column}", described.table_name()),
        };
        let id = xxh3_64(column.as_bytes());
        let sum = Sum { rows, number: self.sums.len() as u8, id };
        self.sums.push(Summed { described, column, id, apply: Box::new(sum) });
        Ok(sum)
    }
}
