//! A program that is being put together, wherever it is to run: it is analysed, and checked against
//! the tables that are there.

use std::collections::BTreeMap;

use drtm_chopping::{ALL_COLUMNS, Access as Described, Chopping, Kind, Options, PieceId, Program, Transaction};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    additions::Sum,
    permits::{Access, Permits},
    plan::{Plan, two_rounds},
    procedure::Pieces,
};
use crate::{ChoppedError, Config, Error, Stored, mutation::Mutation};

/// The most sums of a program.
const MOST_SUMS: usize = 64;

/// A program that is being put together.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) options: Options,
    described: Vec<Transaction<'static>>,
    wanted: Vec<(&'static str, &'static [&'static [&'static str]])>,
    /// The tables, by the names that descriptions have for them.
    tables: BTreeMap<&'static str, u16>,
    /// For each transaction, the pieces that have code. `None` if it is read as a whole.
    code: Vec<Option<Vec<(&'static str, bool)>>>,
    sums: Vec<Summed>,
}

/// A sum.
#[derive(Debug)]
struct Summed {
    described: Described<'static>,
    /// The column's name, with the table's.
    column: String,
    /// The number of the table whose rows it has.
    table: u16,
}

/// A program that was analysed.
#[derive(Debug)]
pub(crate) struct Analysed {
    pub(crate) chopping: Chopping,
    /// For each transaction.
    pub(crate) plans: Vec<Plan>,
    /// What each piece may do, by the places of the transaction and of the piece.
    pub(crate) permits: Vec<Vec<Permits>>,
}

/// The tables that a program finds.
pub(crate) trait Tables {
    /// Returns the number of a table. `None` if there is none of this name.
    fn named(&self, name: &str) -> Option<u16>;

    /// Returns the name of a table.
    fn name_of(&self, table: u16) -> &'static str;
}

impl Draft {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            options,
            described: Vec::new(),
            wanted: Vec::new(),
            tables: BTreeMap::new(),
            code: Vec::new(),
            sums: Vec::new(),
        }
    }

    pub(crate) fn insist(&mut self, transaction: &'static str, pieces: &'static [&'static [&'static str]]) {
        self.wanted.push((transaction, pieces));
    }

    pub(crate) fn name(&mut self, described: &'static str, table: u16) {
        self.tables.insert(described, table);
    }

    /// Adds a transaction with its code. Returns its number.
    pub(crate) fn add(&mut self, described: Transaction<'static>, code: &impl Pieces) -> usize {
        let mut pieces = Vec::new();
        code.visit(&mut |name, may_abort| pieces.push((name, may_abort)));
        self.push(described, Some(pieces))
    }

    /// Adds a transaction that is read as a whole. Returns its number.
    pub(crate) fn reader(&mut self, described: Transaction<'static>) -> usize {
        self.push(described, None)
    }

    fn push(&mut self, described: Transaction<'static>, code: Option<Vec<(&'static str, bool)>>) -> usize {
        self.described.push(described);
        self.code.push(code);
        self.described.len() - 1
    }

    /// Adds a sum.
    ///
    /// # Errors
    ///
    /// [`ChoppedError::TooManySums`].
    pub(crate) fn sum<R: Stored>(&mut self, described: Described<'static>, rows: R) -> Result<Sum<R>, Error> {
        if self.sums.len() == MOST_SUMS {
            return Err(ChoppedError::TooManySums { most: MOST_SUMS }.into());
        }
        let column = match described.column() {
            ALL_COLUMNS => described.table_name().to_owned(),
            column => format!("{}.{column}", described.table_name()),
        };
        let sum = Sum { rows, number: self.sums.len() as u8, id: xxh3_64(column.as_bytes()) };
        self.sums.push(Summed { described, column, table: rows.table().number });
        Ok(sum)
    }

    /// Analyses and checks the program.
    ///
    /// # Errors
    ///
    /// [`ChoppedError::Description`], [`ChoppedError::Refused`], [`ChoppedError::OtherCode`],
    /// [`ChoppedError::NoSuchTable`], [`ChoppedError::OtherRows`].
    pub(crate) fn analyse<S: Config>(&self, tables: &impl Tables) -> Result<Analysed, Error> {
        let program = Program::new(&self.described).map_err(ChoppedError::Description)?;
        let chopping = Chopping::insist(&program, self.options, &self.wanted).map_err(ChoppedError::Refused)?;
        let mut permits = Vec::new();
        for (transaction, code) in self.code.iter().enumerate() {
            check_code(&chopping, transaction, code.as_deref())?;
            permits.push(self.permits::<S>(&chopping, (transaction, code.is_none()), tables)?);
        }
        for Summed { described, column, table } in &self.sums {
            if self.number_of(described.table_name(), tables)? != *table {
                return Err(ChoppedError::OtherRows { sum: column.clone(), table: tables.name_of(*table) }.into());
            }
        }
        let plans = (0..self.code.len()).map(|transaction| Plan::of::<S>(&chopping, transaction)).collect();
        Ok(Analysed { chopping, plans, permits })
    }

    /// Returns what each piece may do: those of a reader all together.
    fn permits<S: Config>(
        &self,
        chopping: &Chopping,
        (transaction, is_reader): (usize, bool),
        tables: &impl Tables,
    ) -> Result<Vec<Permits>, Error> {
        let (program, chopped) = (chopping.program(), &chopping.transactions()[transaction]);
        let mut all = Vec::new();
        for (piece, name) in program.pieces(transaction).enumerate() {
            if all.is_empty() || !is_reader {
                let name = if is_reader { chopped.name().to_owned() } else { format!("{}/{name}", chopped.name()) };
                all.push(Permits::of(name));
            }
            let Some(permits) = all.last_mut() else { continue };
            for (table, kind) in program.accesses(PieceId { transaction, piece }) {
                permits.allow(self.number_of(table, tables)?, Access::allowed_by(kind));
            }
            for (number, Summed { described, column, .. }) in self.sums.iter().enumerate() {
                let mut deferrals = chopping.deferrals().iter();
                let is_deferred = deferrals.any(|one| one.publisher == transaction && one.column == *column);
                let is_forced = S::has(Mutation::DeferralWithoutPremise) && described.kind() == Kind::Add;
                if is_deferred || is_forced {
                    permits.defers |= 1 << number;
                }
            }
        }
        Ok(all)
    }

    fn number_of(&self, table: &str, tables: &impl Tables) -> Result<u16, Error> {
        let found = self.tables.get(table).copied().or_else(|| tables.named(table));
        found.ok_or_else(|| ChoppedError::NoSuchTable { table: table.to_owned() }.into())
    }
}

/// Checks that a transaction's code has the pieces of its description.
fn check_code(chopping: &Chopping, transaction: usize, code: Option<&[(&'static str, bool)]>) -> Result<(), Error> {
    let chopped = &chopping.transactions()[transaction];
    let program = chopping.program();
    let refuse = |piece: &str, why| {
        let (transaction, piece) = (chopped.name().to_owned(), piece.to_owned());
        Err(ChoppedError::OtherCode { transaction, piece, why }.into())
    };
    let pieces = match (code, two_rounds(chopped)) {
        (None, Some(_)) => return Ok(()),
        (None, None) => return refuse("*", "it is run in pieces: give each its code, by a procedure"),
        (Some(_), Some(_)) => return refuse("*", "it is read as a whole: add a reader"),
        (Some(pieces), None) => pieces,
    };
    for (place, name) in program.pieces(transaction).enumerate() {
        let may_abort = program.may_abort(PieceId { transaction, piece: place });
        match pieces.iter().filter(|(coded, _)| *coded == name).collect::<Vec<_>>()[..] {
            [] => return refuse(name, "it is described, and has no code: add it"),
            [(_, coded)] if *coded != may_abort => {
                return refuse(name, "its description and its code do not agree on whether it may abort");
            }
            [_] => {}
            _ => return refuse(name, "it has code twice: name each piece once"),
        }
    }
    match pieces.iter().find(|(coded, _)| program.pieces(transaction).all(|name| name != *coded)) {
        Some((name, _)) => refuse(name, "it has code, and is not described: check its spelling"),
        None => Ok(()),
    }
}
