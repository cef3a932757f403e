//! Registering a program: it is analysed and checked, and what a crash has left is finished.

use std::sync::Arc;

use super::{
    draft::{Analysed, Tables},
    program::Procedures,
    registered::Registered,
    room::{OwnTables, Shared, name_of},
};
use crate::{
    Config, Db, Error, Ordered, Raw, TableDef,
    db::unfinished::tables::{ADDITIONS, REMAINDERS},
};

impl<S: Config> Tables for Db<S> {
    fn named(&self, name: &str) -> Option<u16> {
        self.inner.catalog.named(name).map(|opened| opened.number)
    }

    fn name_of(&self, table: u16) -> &'static str {
        name_of(self, table)
    }
}

impl<S: Config> Procedures<S> {
    /// Analyses the program, and finishes what a crash has left of its transactions. Then they can
    /// run.
    ///
    /// # Errors
    ///
    /// [`Description`], [`Refused`], [`OtherCode`], [`NoSuchTable`], [`OtherRows`] if something is
    /// wrong with the program. [`Registered`](crate::ChoppedError::Registered) if the database has
    /// one of its name. [`OtherPieces`], [`OtherSums`], [`Halted`] if what was left cannot be
    /// finished. All these are of [`ChoppedError`](crate::ChoppedError). [`Error::Nested`] within a
    /// transaction.
    /// Otherwise as for [`Db::table`](crate::Db::table) and [`Db::transact`](crate::Db::transact).
    ///
    /// # Example
    ///
    /// See [`chopped`](super).
    ///
    /// [`Description`]: crate::ChoppedError::Description
    /// [`Refused`]: crate::ChoppedError::Refused
    /// [`OtherCode`]: crate::ChoppedError::OtherCode
    /// [`NoSuchTable`]: crate::ChoppedError::NoSuchTable
    /// [`OtherRows`]: crate::ChoppedError::OtherRows
    /// [`OtherPieces`]: crate::ChoppedError::OtherPieces
    /// [`OtherSums`]: crate::ChoppedError::OtherSums
    /// [`Halted`]: crate::ChoppedError::Halted
    pub fn register(self) -> Result<Registered<S>, Error> {
        if self.db.is_in_closure() {
            return Err(Error::Nested);
        }
        let analysed = self.draft.analyse::<S>(&self.db)?;
        let (db, name) = (self.db.clone(), self.room.program.clone());
        db.inner.lifecycle.register(db.inner.engine(), &name, || self.finish(analysed))
    }

    /// Finishes what was left, and lets transactions run.
    fn finish(self, analysed: Analysed) -> Result<Registered<S>, Error> {
        let tables = self.own_tables()?;
        let program = self.room.program.clone();
        let shared = Arc::new(Shared::new((self.db, program), analysed, tables, self.sums));
        let registered = Registered::of(Arc::clone(&shared), self.code);
        registered.finish()?;
        // Not before: what other threads leave is not what a crash has left.
        self.room.register(shared);
        Ok(registered)
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
