//! The description of a transaction: its pieces, what each does to which table, and on which
//! others it depends. All of it is plain data that can be `const`.

/// A table, and the groups of its columns that are accessed apart.
///
/// The analysis knows no keys: two accesses to the same columns of a table are taken to be accesses
/// to the same row. Columns that are always accessed together are described as one.
///
/// # Example
///
/// ```
/// use drtm_chopping::{Piece, Table};
///
/// const DISTRICT: Table = Table::new("district", &["tax", "next-order", "ytd"]);
/// const NUMBER: Piece = Piece::new("number", &[DISTRICT.read("tax"), DISTRICT.update("next-order")]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table<'a> {
    pub(crate) name: &'a str,
    pub(crate) columns: &'a [&'a str],
    pub(crate) stationary: bool,
}

/// The name that stands for all columns of a table.
pub const ALL_COLUMNS: &str = "*";

impl<'a> Table<'a> {
    /// Describes a table. Without `columns`, a row is accessed as a whole, as
    /// [`ALL_COLUMNS`].
    #[must_use]
    pub const fn new(name: &'a str, columns: &'a [&'a str]) -> Self {
        Self { name, columns, stationary: false }
    }

    /// States that no transaction writes the table. A program with one that does is refused.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_chopping::{Piece, Program, ProgramError, Table, Transaction};
    ///
    /// const ITEM: Table = Table::new("item", &["price"]).stationary();
    ///
    /// const RAISE: Transaction = Transaction::new("raise", &[Piece::new("raise", &[ITEM.update("price")])]);
    ///
    /// let refused = Program::new(&[RAISE]).unwrap_err();
    /// assert!(matches!(refused, ProgramError::WritesStationary { .. }));
    /// ```
    #[must_use]
    pub const fn stationary(mut self) -> Self {
        self.stationary = true;
        self
    }

    /// Describes a read of a column.
    #[must_use]
    pub const fn read(self, column: &'a str) -> Access<'a> {
        Access::new(self, Kind::Read, column)
    }

    /// Describes a write of a column, which may read it first.
    #[must_use]
    pub const fn update(self, column: &'a str) -> Access<'a> {
        Access::new(self, Kind::Update, column)
    }

    /// Describes a commutative update of a column, which returns nothing of it: an addition.
    ///
    /// Additions commute with each other, and with nothing else. A transaction that depends on the
    /// sum, or is refused by it, [updates](Self::update) the column.
    #[must_use]
    pub const fn add(self, column: &'a str) -> Access<'a> {
        Access::new(self, Kind::Add, column)
    }

    /// Describes an insertion of rows.
    #[must_use]
    pub const fn insert(self) -> Access<'a> {
        Access::new(self, Kind::Insert, ALL_COLUMNS)
    }

    /// Describes an insertion of rows under keys that no other insertion can have. Such insertions
    /// commute with each other.
    #[must_use]
    pub const fn append(self) -> Access<'a> {
        Access::new(self, Kind::Append, ALL_COLUMNS)
    }

    /// Describes a search for rows, and their removal.
    #[must_use]
    pub const fn remove(self) -> Access<'a> {
        Access::new(self, Kind::Remove, ALL_COLUMNS)
    }

    /// Describes a search in an index of the table, which finds rows and reads none of their
    /// columns, except for those of their keys.
    #[must_use]
    pub const fn search(self) -> Access<'a> {
        Access::new(self, Kind::Search, ALL_COLUMNS)
    }
}

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Reads a column.
    Read,
    /// Writes a column, and may read it first.
    Update,
    /// Adds to a column, and learns nothing of it.
    Add,
    /// Inserts rows.
    Insert,
    /// Inserts rows under keys of their own.
    Append,
    /// Finds rows and removes them.
    Remove,
    /// Finds rows by an index.
    Search,
}

impl Kind {
    /// All kinds, by the words of the text format.
    pub(crate) const ALL: [(&'static str, Self); 7] = [
        ("read", Self::Read),
        ("update", Self::Update),
        ("add", Self::Add),
        ("insert", Self::Insert),
        ("append", Self::Append),
        ("remove", Self::Remove),
        ("search", Self::Search),
    ];

    /// Returns the kind's word.
    #[must_use]
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(word, _)| word)
    }

    /// Returns whether the access is to a table's rows as a whole, and names no column.
    pub(crate) const fn is_of_rows(self) -> bool {
        matches!(self, Self::Insert | Self::Append | Self::Remove | Self::Search)
    }

    /// Returns whether the access leaves something behind.
    pub(crate) const fn has_effect(self) -> bool {
        !matches!(self, Self::Read | Self::Search)
    }
}

/// One access of a piece to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access<'a> {
    pub(crate) table: Table<'a>,
    pub(crate) kind: Kind,
    pub(crate) column: &'a str,
    pub(crate) claimed_by: Option<&'a str>,
}

impl<'a> Access<'a> {
    const fn new(table: Table<'a>, kind: Kind, column: &'a str) -> Self {
        Self { table, kind, column, claimed_by: None }
    }

    /// Returns the table's name.
    #[must_use]
    pub const fn table_name(&self) -> &'a str {
        self.table.name
    }

    /// Returns what the access does.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the column's name, or [`ALL_COLUMNS`].
    #[must_use]
    pub const fn column(&self) -> &'a str {
        self.column
    }

    /// States that the rows have the keys of those that an earlier piece, named `piece`, has
    /// removed.
    ///
    /// A key must be inserted once only, so a row can be removed once only. The transaction that
    /// removes it has claimed the rows of other tables with the same key, if all others that access
    /// these claim them, too, or insert them together with the row that is removed. The analysis
    /// [checks](crate::Options::claims) the latter.
    ///
    /// # Example
    ///
    /// Workers take jobs off a queue. Each writes the result of a job in a piece of its own.
    ///
    /// ```
    /// use drtm_chopping::{Chopping, Options, Piece, Program, Table, Transaction};
    ///
    /// const QUEUE: Table = Table::new("queue", &[]);
    /// const JOB: Table = Table::new("job", &["input", "result"]);
    ///
    /// const SUBMIT: Transaction =
    ///     Transaction::new("submit", &[Piece::new("submit", &[JOB.insert(), QUEUE.insert()])]);
    /// const WORK: Transaction = Transaction::new("work", &[
    ///     Piece::new("take", &[QUEUE.remove()]),
    ///     Piece::new("work", &[JOB.read("input").claimed_by("take"), JOB.update("result").claimed_by("take")]),
    /// ]);
    ///
    /// let program = Program::new(&[SUBMIT, WORK])?;
    /// let chopping = Chopping::finest(&program, Options::ALL);
    /// assert_eq!(chopping.transaction("work").unwrap().pieces().len(), 2);
    /// # Ok::<(), drtm_chopping::ProgramError>(())
    /// ```
    #[must_use]
    pub const fn claimed_by(mut self, piece: &'a str) -> Self {
        self.claimed_by = Some(piece);
        self
    }
}

/// The smallest part of a transaction that can be run by itself.
///
/// What a loop does to a table is one piece, with all its rounds. If the analysis finds that it
/// conflicts with nothing, each round can be run by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    pub(crate) name: &'a str,
    pub(crate) accesses: &'a [Access<'a>],
    pub(crate) after: Option<&'a [&'a str]>,
    pub(crate) may_abort: bool,
}

impl<'a> Piece<'a> {
    /// Describes a piece that depends on all pieces before it.
    #[must_use]
    pub const fn new(name: &'a str, accesses: &'a [Access<'a>]) -> Self {
        Self { name, accesses, after: None, may_abort: false }
    }

    /// States that the piece depends on these earlier pieces only, and what they depend on: it uses
    /// no result of others. It may then run before others.
    ///
    /// Pieces of one transaction whose accesses conflict stay in their order, stated or not.
    #[must_use]
    pub const fn after(mut self, pieces: &'a [&'a str]) -> Self {
        self.after = Some(pieces);
        self
    }

    /// States that the transaction can be aborted by its user in this piece.
    #[must_use]
    pub const fn may_abort(mut self) -> Self {
        self.may_abort = true;
        self
    }
}

/// A transaction: pieces in the order of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction<'a> {
    pub(crate) name: &'a str,
    pub(crate) pieces: &'a [Piece<'a>],
    pub(crate) alone: bool,
}

impl<'a> Transaction<'a> {
    /// Describes a transaction of which any number can run at once.
    #[must_use]
    pub const fn new(name: &'a str, pieces: &'a [Piece<'a>]) -> Self {
        Self { name, pieces, alone: false }
    }

    /// Returns the transaction's name.
    #[must_use]
    pub const fn name(&self) -> &'a str {
        self.name
    }

    /// Returns the place of the piece with this name, or `None` if there is none.
    #[must_use]
    pub fn place(&self, piece: &str) -> Option<usize> {
        self.pieces.iter().position(|one| one.name == piece)
    }

    /// States that the transaction never runs beside another instance of itself: the next one
    /// begins when all pieces of this one have ended.
    #[must_use]
    pub const fn alone(mut self) -> Self {
        self.alone = true;
        self
    }
}
