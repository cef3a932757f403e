//! Programs: descriptions that were checked, with numbers in place of names.

use crate::describe::{ALL_COLUMNS, Access, Kind, Piece, Table, Transaction};

/// The number of a piece: its transaction's place in the program, and its own place in the
/// transaction's description. An executor finds a piece's closure by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PieceId {
    /// The place of the transaction.
    pub transaction: usize,
    /// The place of the piece.
    pub piece: usize,
}

/// Transactions that run beside each other: all that access their tables, or a chopping means
/// nothing.
///
/// # Example
///
/// ```
/// use drtm_chopping::{Piece, PieceId, Program, Table, Transaction};
///
/// const ACCOUNT: Table = Table::new("account", &["balance"]);
/// const DEPOSIT: Transaction = Transaction::new("deposit", &[Piece::new("add", &[ACCOUNT.add("balance")])]);
///
/// let program = Program::new(&[DEPOSIT])?;
/// assert_eq!(program.piece("deposit", "add"), Some(PieceId { transaction: 0, piece: 0 }));
/// # Ok::<(), drtm_chopping::ProgramError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) tables: Vec<KnownTable>,
    pub(crate) transactions: Vec<KnownTransaction>,
}

#[derive(Clone, Debug)]
pub(crate) struct KnownTable {
    pub(crate) name: String,
    pub(crate) columns: Vec<String>,
    stationary: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct KnownTransaction {
    pub(crate) name: String,
    pub(crate) alone: bool,
    pub(crate) pieces: Vec<KnownPiece>,
}

#[derive(Clone, Debug)]
pub(crate) struct KnownPiece {
    pub(crate) name: String,
    pub(crate) accesses: Vec<KnownAccess>,
    /// The pieces that it depends on, without those that they depend on.
    pub(crate) after: Vec<usize>,
    pub(crate) may_abort: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownAccess {
    pub(crate) table: usize,
    pub(crate) kind: Kind,
    /// A bit for each column.
    pub(crate) columns: u64,
    pub(crate) claimed_by: Option<usize>,
}

/// How many columns a table can have.
const MOST_COLUMNS: usize = 63;

/// A description contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// Two things have one name.
    #[error("two {what} have the name {name:?}: rename one")]
    SameName {
        /// What they are.
        what: &'static str,
        /// Their name.
        name: String,
    },

    /// Two descriptions of one table differ.
    #[error("table {table:?} is described in two ways: use one constant for all accesses to it")]
    TablesDiffer {
        /// The table.
        table: String,
    },

    /// A table has no column of this name.
    #[error("table {table:?} has no column {column:?}: add it to the table's columns, or use one of {columns:?}")]
    NoSuchColumn {
        /// The table.
        table: String,
        /// The name.
        column: String,
        /// The columns that there are.
        columns: Vec<String>,
    },

    /// A table has too many columns.
    #[error("table {table:?} has more than 63 columns: describe those that are always accessed together as one")]
    TooManyColumns {
        /// The table.
        table: String,
    },

    /// A transaction has no pieces.
    #[error("transaction {transaction:?} has no pieces: leave it out")]
    NoPieces {
        /// The transaction.
        transaction: String,
    },

    /// A piece writes a table that was declared stationary.
    #[error("{transaction}/{piece} writes table {table:?}, which is declared stationary: drop the declaration")]
    WritesStationary {
        /// The transaction.
        transaction: String,
        /// The piece.
        piece: String,
        /// The table.
        table: String,
    },

    /// A piece refers to one that does not come before it.
    #[error("{transaction}/{piece} refers to {named:?}: name an earlier piece of the same transaction")]
    NotEarlier {
        /// The transaction.
        transaction: String,
        /// The piece.
        piece: String,
        /// The name that it refers to.
        named: String,
    },

    /// A piece refers to rows that another has removed, which removes none, or rows of two tables.
    #[error("{transaction}/{piece} has rows claimed by {claim:?}: that piece must remove rows of exactly one table")]
    NotAClaim {
        /// The transaction.
        transaction: String,
        /// The piece.
        piece: String,
        /// The piece that should claim the rows.
        claim: String,
    },
}

impl Program {
    /// Checks a description.
    ///
    /// # Errors
    ///
    /// Returns an error that names what contradicts itself, and what to do.
    pub fn new(transactions: &[Transaction<'_>]) -> Result<Self, ProgramError> {
        let mut program = Self { tables: Vec::new(), transactions: Vec::new() };
        for described in transactions {
            if program.transactions.iter().any(|known| known.name == described.name) {
                return Err(ProgramError::SameName { what: "transactions", name: described.name.to_owned() });
            }
            let known = program.check(described)?;
            program.transactions.push(known);
        }
        Ok(program)
    }

    /// Returns the piece of these names, or `None` if there is none.
    #[must_use]
    pub fn piece(&self, transaction: &str, piece: &str) -> Option<PieceId> {
        let transaction = self.transactions.iter().position(|known| known.name == transaction)?;
        let piece = self.transactions[transaction].pieces.iter().position(|known| known.name == piece)?;
        Some(PieceId { transaction, piece })
    }

    /// Returns the name of a piece, without its transaction's.
    ///
    /// # Panics
    ///
    /// Panics if the piece is another program's.
    #[must_use]
    pub fn piece_name(&self, piece: PieceId) -> &str {
        &self.at(piece).name
    }

    /// Returns what a piece does, in words: `read district.tax, update district.next-order`.
    ///
    /// # Panics
    ///
    /// Panics if the piece is another program's.
    #[must_use]
    pub fn operations(&self, piece: PieceId) -> String {
        let accesses = &self.at(piece).accesses;
        if accesses.is_empty() {
            return "nothing".to_owned();
        }
        let operation = |access| self.operation(piece.transaction, access);
        accesses.iter().map(operation).collect::<Vec<_>>().join(", ")
    }

    fn operation(&self, transaction: usize, access: &KnownAccess) -> String {
        let table = &self.tables[access.table];
        let named = |column: &usize| access.columns == 1 << column;
        let column = (0..table.columns.len()).find(named).map_or(ALL_COLUMNS, |column| &table.columns[column]);
        let column =
            if access.kind.is_of_rows() || table.columns.is_empty() { String::new() } else { format!(".{column}") };
        let by = |claim: usize| format!(" by {}", self.transactions[transaction].pieces[claim].name);
        let by = access.claimed_by.map_or(String::new(), by);
        format!("{} {}{column}{by}", access.kind.word(), table.name)
    }

    /// Returns the names of a transaction's pieces, in the program's order.
    ///
    /// # Panics
    ///
    /// Panics if there is no such transaction.
    pub fn pieces(&self, transaction: usize) -> impl Iterator<Item = &str> {
        self.transactions[transaction].pieces.iter().map(|piece| piece.name.as_str())
    }

    /// Returns the accesses of a piece: the table's name, and what the access does.
    ///
    /// # Panics
    ///
    /// Panics if the piece is another program's.
    pub fn accesses(&self, piece: PieceId) -> impl Iterator<Item = (&str, Kind)> {
        self.at(piece).accesses.iter().map(|access| (self.tables[access.table].name.as_str(), access.kind))
    }

    /// Returns whether the transaction can be aborted by its user in this piece.
    ///
    /// # Panics
    ///
    /// Panics if the piece is another program's.
    #[must_use]
    pub fn may_abort(&self, piece: PieceId) -> bool {
        self.at(piece).may_abort
    }

    /// Returns whether a transaction never runs beside another instance of itself.
    ///
    /// # Panics
    ///
    /// Panics if there is no such transaction.
    #[must_use]
    pub fn runs_alone(&self, transaction: usize) -> bool {
        self.transactions[transaction].alone
    }

    pub(crate) fn at(&self, piece: PieceId) -> &KnownPiece {
        &self.transactions[piece.transaction].pieces[piece.piece]
    }

    fn check(&mut self, described: &Transaction<'_>) -> Result<KnownTransaction, ProgramError> {
        if described.pieces.is_empty() {
            return Err(ProgramError::NoPieces { transaction: described.name.to_owned() });
        }
        let mut pieces: Vec<KnownPiece> = Vec::new();
        for piece in described.pieces {
            if pieces.iter().any(|known| known.name == piece.name) {
                let name = format!("{}/{}", described.name, piece.name);
                return Err(ProgramError::SameName { what: "pieces", name });
            }
            let known = self.check_piece(described.name, &pieces, piece)?;
            pieces.push(known);
        }
        Ok(KnownTransaction { name: described.name.to_owned(), alone: described.alone, pieces })
    }

    /// Checks a piece of a transaction, of which `earlier` are known.
    fn check_piece(
        &mut self,
        transaction: &str,
        earlier: &[KnownPiece],
        described: &Piece<'_>,
    ) -> Result<KnownPiece, ProgramError> {
        let find = |named: &str| {
            earlier.iter().position(|known| known.name == named).ok_or_else(|| ProgramError::NotEarlier {
                transaction: transaction.to_owned(),
                piece: described.name.to_owned(),
                named: named.to_owned(),
            })
        };
        let mut after: Vec<usize> = match described.after {
            Some(named) => named.iter().map(|named| find(named)).collect::<Result<_, _>>()?,
            None => (0..earlier.len()).collect(),
        };
        let mut accesses = Vec::new();
        for access in described.accesses {
            let table = self.table(&access.table)?;
            if access.kind.has_effect() && self.tables[table].stationary {
                return Err(ProgramError::WritesStationary {
                    transaction: transaction.to_owned(),
                    piece: described.name.to_owned(),
                    table: access.table.name.to_owned(),
                });
            }
            let claimed_by = access.claimed_by.map(find).transpose()?;
            if let Some(claim) = claimed_by {
                if earlier[claim].claims().is_none() {
                    return Err(ProgramError::NotAClaim {
                        transaction: transaction.to_owned(),
                        piece: described.name.to_owned(),
                        claim: earlier[claim].name.clone(),
                    });
                }
                after.push(claim);
            }
            let columns = self.columns(table, access)?;
            accesses.push(KnownAccess { table, kind: access.kind, columns, claimed_by });
        }
        after.sort_unstable();
        after.dedup();
        Ok(KnownPiece { name: described.name.to_owned(), accesses, after, may_abort: described.may_abort })
    }

    /// Returns the number of a table, which is new if it has not been accessed before.
    fn table(&mut self, described: &Table<'_>) -> Result<usize, ProgramError> {
        let name = || described.name.to_owned();
        if let Some(number) = self.tables.iter().position(|known| known.name == described.name) {
            let known = &self.tables[number];
            let is_the_same = known.columns == described.columns && known.stationary == described.stationary;
            return if is_the_same { Ok(number) } else { Err(ProgramError::TablesDiffer { table: name() }) };
        }
        if described.columns.len() > MOST_COLUMNS {
            return Err(ProgramError::TooManyColumns { table: name() });
        }
        if let Some((_, twice)) =
            described.columns.iter().enumerate().find(|(place, column)| described.columns[..*place].contains(column))
        {
            return Err(ProgramError::SameName { what: "columns", name: format!("{}.{twice}", described.name) });
        }
        let columns = described.columns.iter().map(|&column| column.to_owned()).collect();
        self.tables.push(KnownTable { name: name(), columns, stationary: described.stationary });
        Ok(self.tables.len() - 1)
    }

    /// Returns the columns that an access names, a bit for each.
    fn columns(&self, table: usize, access: &Access<'_>) -> Result<u64, ProgramError> {
        let known = &self.tables[table];
        if access.column == ALL_COLUMNS {
            return Ok(known.all_columns());
        }
        let place = known.columns.iter().position(|column| column == access.column);
        place.map(|place| 1 << place).ok_or_else(|| ProgramError::NoSuchColumn {
            table: known.name.clone(),
            column: access.column.to_owned(),
            columns: known.columns.clone(),
        })
    }
}

impl KnownTable {
    /// A bit for each column. A table without named columns has one.
    pub(crate) fn all_columns(&self) -> u64 {
        (1 << self.columns.len().max(1)) - 1
    }
}

impl KnownTransaction {
    pub(crate) fn has_effect(&self) -> bool {
        self.pieces.iter().any(KnownPiece::has_effect)
    }
}

impl KnownPiece {
    pub(crate) fn has_effect(&self) -> bool {
        self.accesses.iter().any(|access| access.kind.has_effect())
    }

    /// Returns the one table whose rows it removes.
    pub(crate) fn claims(&self) -> Option<usize> {
        let mut removed = self.accesses.iter().filter(|access| access.kind == Kind::Remove);
        let first = removed.next()?;
        removed.all(|access| access.table == first.table).then_some(first.table)
    }
}
