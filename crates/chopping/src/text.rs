//! Programs as text.

use crate::{
    describe::{ALL_COLUMNS, Access, Kind, Piece, Table, Transaction},
    program::{Program, ProgramError},
};

/// A text is not a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A line cannot be read.
    #[error("line {line}: {what}")]
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// What is wrong, and what is expected.
        what: String,
    },

    /// The lines can be read, and contradict each other.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

#[derive(Default)]
struct Parsed<'t> {
    tables: Vec<(&'t str, Vec<&'t str>)>,
    stationary: Vec<(usize, &'t str)>,
    transactions: Vec<ParsedTransaction<'t>>,
}

struct ParsedTransaction<'t> {
    name: &'t str,
    alone: bool,
    pieces: Vec<ParsedPiece<'t>>,
}

struct ParsedPiece<'t> {
    name: &'t str,
    after: Option<Vec<&'t str>>,
    may_abort: bool,
    accesses: Vec<ParsedAccess<'t>>,
    line: usize,
}

struct ParsedAccess<'t> {
    kind: Kind,
    table: &'t str,
    column: &'t str,
    claimed_by: Option<&'t str>,
}

impl Program {
    /// Reads a program from text.
    ///
    /// Each line is one statement. `#` begins a comment.
    ///
    /// | line | meaning |
    /// |---|---|
    /// | `table NAME COLUMN...` | a [table](Table), with groups of columns or without |
    /// | `stationary NAME...` | tables that are [never written](Table::stationary) |
    /// | `transaction NAME [alone]` | begins a transaction, of which perhaps one runs [at a time](Transaction::alone) |
    /// | `piece NAME [after PIECE...] [, may abort]: ACCESS, ...` | its next piece, [after](Piece::after) some earlier ones, or `after nothing`; otherwise after all |
    ///
    /// An `ACCESS` is `read`, `update` or `add` and `TABLE.COLUMN`, or `TABLE` for all columns; or
    /// `insert`, `append`, `remove` or `search` and `TABLE`. Then comes `by PIECE` if the rows are
    /// [claimed](Access::claimed_by) by that piece.
    ///
    /// # Errors
    ///
    /// Returns an error if a line cannot be read, with its number, or if the program contradicts
    /// itself.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_chopping::{Chopping, Options, Program};
    ///
    /// let program = Program::parse(
    ///     "table stock amount
    ///      table log
    ///      transaction sell
    ///      piece stock, may abort: update stock.amount
    ///      piece log: append log",
    /// )?;
    /// let chopping = Chopping::finest(&program, Options::ALL);
    /// assert_eq!(chopping.transactions()[0].pieces().len(), 2);
    /// # Ok::<(), drtm_chopping::TextError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let mut parsed = Parsed::default();
        for (place, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                parsed.line(place + 1, line).map_err(|what| TextError::Line { line: place + 1, what })?;
            }
        }
        parsed.program()
    }
}

impl<'t> Parsed<'t> {
    fn line(&mut self, number: usize, line: &'t str) -> Result<(), String> {
        let (head, accesses) = match line.split_once(':') {
            Some((head, accesses)) => (head, Some(accesses)),
            None => (line, None),
        };
        let mut words = head.split_whitespace();
        let statement = words.next().unwrap_or_default();
        if accesses.is_some() && statement != "piece" {
            return Err(format!("only a piece has a colon, and this is {statement:?}"));
        }
        match statement {
            "table" => {
                let name = words.next().ok_or("a table needs a name: `table NAME COLUMN...`")?;
                if self.tables.iter().any(|(known, _)| *known == name) {
                    return Err(format!("there is a table {name:?} already: rename one"));
                }
                self.tables.push((name, words.collect()));
            }
            "stationary" => self.stationary.extend(words.map(|name| (number, name))),
            "transaction" => {
                let name = words.next().ok_or("a transaction needs a name: `transaction NAME`")?;
                let alone = match words.next() {
                    None => false,
                    Some("alone") => true,
                    Some(other) => return Err(format!("{other:?} after the name: only `alone` can be there")),
                };
                self.transactions.push(ParsedTransaction { name, alone, pieces: Vec::new() });
            }
            "piece" => {
                let accesses = accesses.ok_or("a piece needs a colon: `piece NAME: ACCESS, ...`")?;
                let piece = piece(number, head, accesses)?;
                let transaction = self.transactions.last_mut().ok_or("a piece before the first transaction")?;
                transaction.pieces.push(piece);
            }
            other => {
                return Err(format!("{other:?} begins no statement: use table, stationary, transaction or piece"));
            }
        }
        Ok(())
    }

    fn program(&self) -> Result<Program, TextError> {
        for &(line, name) in &self.stationary {
            if !self.tables.iter().any(|(known, _)| *known == name) {
                return Err(TextError::Line { line, what: format!("there is no table {name:?}") });
            }
        }
        let table = |name: &str| {
            let (name, columns) = self.tables.iter().find(|(known, _)| *known == name)?;
            let table = Table::new(name, columns);
            let is_stationary = self.stationary.iter().any(|(_, known)| known == name);
            Some(if is_stationary { table.stationary() } else { table })
        };
        let mut accesses: Vec<Vec<Vec<Access<'_>>>> = Vec::new();
        for transaction in &self.transactions {
            let mut of_transaction = Vec::new();
            for piece in &transaction.pieces {
                let access = |parsed: &ParsedAccess<'t>| {
                    let unknown = || TextError::Line {
                        line: piece.line,
                        what: format!("there is no table {:?}: add `table {}`", parsed.table, parsed.table),
                    };
                    let table = table(parsed.table).ok_or_else(unknown)?;
                    Ok(Access { table, kind: parsed.kind, column: parsed.column, claimed_by: parsed.claimed_by })
                };
                of_transaction.push(piece.accesses.iter().map(access).collect::<Result<_, TextError>>()?);
            }
            accesses.push(of_transaction);
        }
        let describe = |parsed: &'_ ParsedPiece<'t>, accesses| Piece {
            name: parsed.name,
            accesses,
            after: None,
            may_abort: parsed.may_abort,
        };
        let pieces: Vec<Vec<Piece<'_>>> = std::iter::zip(&self.transactions, &accesses)
            .map(|(transaction, accesses)| {
                let described = std::iter::zip(&transaction.pieces, accesses);
                let stated = described.map(|(parsed, accesses)| {
                    let piece = describe(parsed, accesses);
                    parsed.after.as_deref().map_or(piece, |after| piece.after(after))
                });
                stated.collect()
            })
            .collect();
        let transactions: Vec<Transaction<'_>> = std::iter::zip(&self.transactions, &pieces)
            .map(|(parsed, pieces)| Transaction { name: parsed.name, pieces, alone: parsed.alone })
            .collect();
        Ok(Program::new(&transactions)?)
    }
}

/// Reads a piece: what is before its colon, and what is after it.
fn piece<'t>(line: usize, head: &'t str, accesses: &'t str) -> Result<ParsedPiece<'t>, String> {
    let mut parts = head.split(',').map(str::trim);
    let mut words = parts.next().unwrap_or_default().split_whitespace().skip(1);
    let name = words.next().ok_or("a piece needs a name: `piece NAME: ACCESS, ...`")?;
    let after = match words.next() {
        None => None,
        Some("after") => match words.collect::<Vec<_>>().as_slice() {
            [] => return Err("`after` names earlier pieces, or `nothing`".to_owned()),
            ["nothing"] => Some(Vec::new()),
            pieces => Some(pieces.to_vec()),
        },
        Some(other) => return Err(format!("{other:?} after the name: only `after PIECE...` can be there")),
    };
    let may_abort = match parts.next() {
        None => false,
        Some("may abort") => true,
        Some(other) => return Err(format!("{other:?} after a comma: only `may abort` can be there")),
    };
    if let Some(other) = parts.next() {
        return Err(format!("{other:?} after `may abort`: a colon comes there"));
    }
    let accesses = accesses.split(',').map(str::trim).filter(|access| !access.is_empty());
    Ok(ParsedPiece { name, after, may_abort, accesses: accesses.map(access).collect::<Result<_, _>>()?, line })
}

fn access(text: &str) -> Result<ParsedAccess<'_>, String> {
    let mut words = text.split_whitespace();
    let word = words.next().unwrap_or_default();
    let kind = Kind::ALL.iter().find(|(known, _)| *known == word).map(|(_, kind)| *kind);
    let kind = kind.ok_or_else(|| {
        let known: Vec<_> = Kind::ALL.iter().map(|(word, _)| *word).collect();
        format!("{word:?} is no access: use one of {}", known.join(", "))
    })?;
    let place = words.next().ok_or_else(|| format!("`{word}` needs a table"))?;
    let (table, column) = place.split_once('.').unwrap_or((place, ALL_COLUMNS));
    if kind.is_of_rows() && column != ALL_COLUMNS {
        return Err(format!("`{word}` is of whole rows: leave out .{column}"));
    }
    let claimed_by = match (words.next(), words.next(), words.next()) {
        (None, ..) => None,
        (Some("by"), Some(piece), None) => Some(piece),
        _ => return Err(format!("{text:?} does not end after the table: only `by PIECE` can be there")),
    };
    Ok(ParsedAccess { kind, table, column, claimed_by })
}
