//! Registering a program: it is analysed and checked, and what a crash has left is finished.

use std::sync::Arc;

use drtm_chopping::{Chopping, Kind, PieceId, Program};

use super::{
    permits::{Access, Permits},
    plan::{Plan, two_rounds},
    program::{Coded, Procedures, Summed},
    registered::Registered,
    room::{OwnTables, Shared, name_of},
};
use crate::{
    ChoppedError, Config, Error, Ordered, Raw, TableDef,
    db::unfinished::tables::{ADDITIONS, REMAINDERS},
    mutation::Mutation,
};

impl<S: Config> Procedures<S> {
    /// Analyses the program, and finishes what a crash has left of its transactions. Then they can
    /// run.
    ///
    /// # Errors
    ///
    /// [`ChoppedError::Description`], [`ChoppedError::Refused`], [`ChoppedError::OtherCode`],
    /// [`ChoppedError::NoSuchTable`], [`ChoppedError::OtherRows`] if something is wrong with the
    /// program. [`ChoppedError::Registered`] if the database has one of its name.
    /// [`ChoppedError::OtherPieces`], [`ChoppedError::OtherSums`], [`ChoppedError::Halted`] if what
    /// was left cannot be finished. [`Error::Nested`] within a transaction.
    /// Otherwise as for [`Db::table`](crate::Db::table) and [`Db::transact`](crate::Db::transact).
    ///
    /// # Example
    ///
    /// See [`chopped`](super).
    pub fn register(self) -> Result<Registered<S>, Error> {
        if self.db.is_in_closure() {
            return Err(Error::Nested);
        }
        let program = Program::new(&self.described).map_err(ChoppedError::Description)?;
        let chopping = Chopping::insist(&program, self.options, &self.wanted).map_err(ChoppedError::Refused)?;
        let mut permits = Vec::new();
        for (transaction, code) in self.code.iter().enumerate() {
            self.check_code(&chopping, transaction, code)?;
            permits.push(self.permits(&chopping, transaction, code)?);
        }
        self.check_sums()?;
        let (db, name) = (self.db.clone(), self.room.program.clone());
        db.inner.lifecycle.register(db.inner.engine(), &name, || self.finish(chopping, permits))
    }

    /// Finishes what was left, and lets transactions run.
    fn finish(self, chopping: Chopping, permits: Vec<Vec<Permits>>) -> Result<Registered<S>, Error> {
        let tables = self.own_tables()?;
        let plans = (0..self.code.len()).map(|transaction| Plan::of::<S>(&chopping, transaction)).collect();
        let resume = |code| match code {
            Coded::Procedure { resume, .. } => Some(resume),
            Coded::Reader => None,
        };
        let code = self.code.into_iter().map(resume).collect();
        let sums = self.sums.into_iter().map(|sum| (sum.id, sum.apply)).collect();
        let program = self.room.program.clone();
        let shared = Arc::new(Shared::new((self.db, program), (chopping, plans, permits), tables, sums));
        let registered = Registered::of(Arc::clone(&shared), code);
        registered.finish()?;
        // Not before: what other threads leave is not what a crash has left.
        self.room.register(shared);
        Ok(registered)
    }

    /// Checks that sums have the rows that their descriptions name.
    fn check_sums(&self) -> Result<(), Error> {
        for Summed { described, column, apply, .. } in &self.sums {
            if self.number_of(described.table_name())? != apply.table() {
                let table = name_of(&self.db, apply.table());
                return Err(ChoppedError::OtherRows { sum: column.clone(), table }.into());
            }
        }
        Ok(())
    }

    /// Checks that a transaction's code has the pieces of its description.
    fn check_code(&self, chopping: &Chopping, transaction: usize, code: &Coded<S>) -> Result<(), Error> {
        let chopped = &chopping.transactions()[transaction];
        let program = chopping.program();
        let refuse = |piece: &str, why| {
            let (transaction, piece) = (chopped.name().to_owned(), piece.to_owned());
            Err(ChoppedError::OtherCode { transaction, piece, why }.into())
        };
        let pieces = match (code, two_rounds(chopped)) {
            (Coded::Reader, Some(_)) => return Ok(()),
            (Coded::Reader, None) => return refuse("*", "it is run in pieces: give each its code, by a procedure"),
            (Coded::Procedure { .. }, Some(_)) => return refuse("*", "it is read as a whole: add a reader"),
            (Coded::Procedure { pieces, .. }, None) => pieces,
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

    /// Returns what each piece may do: those of a reader all together.
    fn permits(&self, chopping: &Chopping, transaction: usize, code: &Coded<S>) -> Result<Vec<Permits>, Error> {
        let (program, chopped) = (chopping.program(), &chopping.transactions()[transaction]);
        let is_reader = matches!(code, Coded::Reader);
        let mut all = Vec::new();
        for (piece, name) in program.pieces(transaction).enumerate() {
            if all.is_empty() || !is_reader {
                let name = if is_reader { chopped.name().to_owned() } else { format!("{}/{name}", chopped.name()) };
                all.push(Permits::of(name));
            }
            let Some(permits) = all.last_mut() else { continue };
            for (table, kind) in program.accesses(PieceId { transaction, piece }) {
                permits.allow(self.number_of(table)?, Access::allowed_by(kind));
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

    fn number_of(&self, table: &str) -> Result<u16, Error> {
        let named = || self.db.inner.catalog.named(table).map(|opened| opened.number);
        let found = self.tables.get(table).copied().or_else(named);
        found.ok_or_else(|| ChoppedError::NoSuchTable { table: table.to_owned() }.into())
    }

    /// Opens the program's own tables.
    fn own_tables(&self) -> Result<OwnTables, Error> {
        let program = &self.room.program;
        let remainders = TableDef::<u64, Raw>::hash("").named(&format!("{REMAINDERS}{program}"));
        let additions = TableDef::<u64, Raw, Ordered>::ordered("").named(&format!("{ADDITIONS}{program}"));
        let (remainders, additions) = (self.db.table(remainders)?, self.db.table(additions)?);
        let mut last = 0;
        self.db.read(|tx| {
            last = tx.range(additions, ..)?.last()?.map_or(0, |(key, _)| key);
            tx.walk(remainders, |key, _| last = last.max(key))
        })?;
        Ok((remainders, additions, last))
    }
}
