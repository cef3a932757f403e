//! The errors of chopped transactions.

use std::fmt;

use super::Error;

/// Why a chopped transaction, or the program that it belongs to, was refused.
///
/// # Example
///
/// ```
/// use drtm::{ChoppedError, Db, Error, chopped::Procedures, chopping::{Piece, Table, Transaction}};
///
/// const STOCK: Table = Table::new("stock", &[]);
/// const SELL: Transaction = Transaction::new("sell", &[Piece::new("take", &[STOCK.update("*")])]);
///
/// let db = Db::new()?;
/// let mut shop = Procedures::new(&db, "shop");
/// let sell = shop.procedure::<u64>(SELL).piece("take", |_, _| Ok(()));
/// shop.add(sell);
/// // No table was opened that could be the stock.
/// let Err(Error::Chopped(refused)) = shop.register() else { panic!("it is refused") };
/// assert!(matches!(*refused, ChoppedError::NoSuchTable { table } if table == "stock"));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum ChoppedError {
    /// The database has the rest of chopped transactions, which must be finished before it serves.
    Unfinished {
        /// The program that they belong to.
        program: String,
    },
    /// Another version of the program has left a transaction that this one does not have, or whose
    /// pieces are others.
    OtherPieces {
        /// The program.
        program: String,
        /// The transaction.
        transaction: String,
    },
    /// A piece has accessed a table in a way that its description does not have.
    Undeclared {
        /// The transaction and the piece.
        piece: String,
        /// The table.
        table: &'static str,
        /// What it wanted to do, in the words of the description.
        access: &'static str,
    },
    /// A piece has failed after others had had their effect. The rest of the transaction is kept,
    /// and run by [`Registered::resume`](crate::chopped::Registered::resume).
    Halted {
        /// The transaction.
        transaction: String,
        /// The place of the piece.
        piece: usize,
        /// Why it failed.
        source: Box<Error>,
    },
    /// There are transactions that have [halted](Self::Halted), so that nothing can be read at a
    /// moment without any under way.
    HaltedOthers {
        /// How many.
        transactions: usize,
    },
    /// Another node has taken the transaction to be left, and resumed it: it finishes it.
    TakenOver {
        /// The transaction.
        transaction: String,
    },
    /// The program needs what there is on one node only, and is to run in a cluster.
    OfOneNode {
        /// The program.
        program: String,
        /// What it needs.
        what: &'static str,
    },
    /// The program has not been registered yet.
    NotRegistered {
        /// The program.
        program: String,
    },
    /// The database has a program of this name: it is registered once.
    Registered {
        /// The program.
        program: String,
    },
    /// No table of the database has a name that a description has.
    NoSuchTable {
        /// The name.
        table: String,
    },
    /// The code of a transaction does not have exactly the pieces of its description, or may abort
    /// in others.
    OtherCode {
        /// The transaction.
        transaction: String,
        /// The piece.
        piece: String,
        /// What is wrong.
        why: &'static str,
    },
    /// A sum has the rows of another table than its description.
    OtherRows {
        /// The column, with the table, as described.
        sum: String,
        /// The table whose rows it has.
        table: &'static str,
    },
    /// Another version of the program has deferred additions to a sum that this one does not have.
    OtherSums {
        /// The program.
        program: String,
    },
    /// There are more sums than a program can have.
    TooManySums {
        /// The most that it can have.
        most: usize,
    },
    /// A row of one of the program's own tables cannot be decoded.
    Damaged {
        /// The table.
        table: &'static str,
    },
    /// The description of the program contradicts itself.
    #[cfg(all(feature = "chopping", not(feature = "model")))]
    Description(drtm_chopping::ProgramError),
    /// The pieces that were insisted on are not possible: if they are not serializable, the error
    /// names the cycle.
    #[cfg(all(feature = "chopping", not(feature = "model")))]
    Refused(drtm_chopping::Refusal),
}

impl fmt::Display for ChoppedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unfinished { program } => write!(
                f,
                "chopped transactions of the program `{program}` are to be finished first: register it \
                 (`Procedures::register`)"
            ),
            Self::OtherPieces { program, transaction } => write!(
                f,
                "`{transaction}` was begun by another version of the program `{program}`, with other pieces: finish \
                 it by that version"
            ),
            Self::Undeclared { piece, table, access } => {
                write!(f, "{piece} does not declare that it may {access} `{table}`: add that to its description")
            }
            Self::Halted { transaction, piece, source } => write!(
                f,
                "`{transaction}` has halted at its piece {piece}, after others had had their effect: {source}; remedy \
                 that, and call `Registered::resume`"
            ),
            Self::HaltedOthers { transactions } => {
                write!(f, "{transactions} transactions have halted: call `Registered::resume` first")
            }
            Self::TakenOver { transaction } => {
                write!(f, "`{transaction}` was resumed elsewhere, which finishes it: its result is not known here")
            }
            Self::OfOneNode { program, what } => write!(
                f,
                "the program `{program}` needs {what}, which clusters do not have: change its description, or the \
                 options of its analysis"
            ),
            Self::NotRegistered { program } => {
                write!(f, "the program `{program}` is not registered: call `Procedures::register` first")
            }
            Self::Registered { program } => write!(
                f,
                "the program `{program}` is registered already: use clones of its calls, or give this one another name"
            ),
            Self::NoSuchTable { table } => write!(
                f,
                "there is no table `{table}`: open it before the program is registered, or say which it is \
                 (`Procedures::table`)"
            ),
            Self::OtherCode { transaction, piece, why } => write!(f, "{transaction}/{piece}: {why}"),
            Self::OtherRows { sum, table } => {
                write!(f, "the sum `{sum}` has rows of `{table}`: give it those of the table that it describes")
            }
            Self::OtherSums { program } => write!(
                f,
                "another version of the program `{program}` has deferred additions to a sum that this one does not \
                 have: add the sum, or open the database by that version"
            ),
            Self::TooManySums { most } => write!(f, "a program has at most {most} sums: add to fewer columns"),
            Self::Damaged { table } => write!(f, "a row of `{table}` is damaged: only the database itself writes it"),
            #[cfg(all(feature = "chopping", not(feature = "model")))]
            Self::Description(why) => write!(f, "{why}"),
            #[cfg(all(feature = "chopping", not(feature = "model")))]
            Self::Refused(why) => write!(f, "{why}"),
        }
    }
}

impl std::error::Error for ChoppedError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Halted { source, .. } => Some(&**source),
            #[cfg(all(feature = "chopping", not(feature = "model")))]
            Self::Description(why) => Some(why),
            #[cfg(all(feature = "chopping", not(feature = "model")))]
            Self::Refused(why) => Some(why),
            _ => None,
        }
    }
}

impl From<ChoppedError> for Error {
    #[cold]
    fn from(why: ChoppedError) -> Self {
        Self::Chopped(Box::new(why))
    }
}
