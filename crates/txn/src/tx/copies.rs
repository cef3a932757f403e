//! Showing copies of rows, so that what the closure reads is not nested.

use super::{Exclusive, Lend, Mode, Range, Tx, scan::Scan};
use crate::{
    AsKey, Codec, Config, Error, Flow, Key, Ordered, Sorted, Stored, Table, db::name::Name, memory::arena::Values,
    schema::table::Kind, tx::projection::Projection,
};

impl<'db, S: Config, M: Mode> Exclusive<'db, S, M> {
    /// Copies a row, and returns also its table's name.
    fn copied<R: Stored>(&mut self, rows: R, key: impl AsKey<R::Key>) -> Result<Option<(Values, &'db Name)>, Error> {
        let name = &self.opened(rows.table())?.name;
        let mut copy = std::mem::take(&mut self.state().arena.copy);
        let found = self.find(rows, key, |part| {
            copy.set(part);
            Ok(())
        });
        if let Ok(Some(())) = found {
            return Ok(Some((copy, name)));
        }
        self.give_back(copy)?;
        found.map(|_| None)
    }

    /// Keeps the memory of a copy for the next one.
    fn give_back(&mut self, copy: Values) -> Result<(), Error> {
        self.state().arena.copy = copy;
        Ok(())
    }
}

impl<'db, R: Sorted, S: Config, M: Mode> Scan<'_, 'db, R, S, M> {
    /// Passes the next row, and returns a copy of it.
    pub(super) fn copy_next(&mut self) -> Result<Option<(R::Entry, Values)>, Error> {
        let Some((entry, found, _)) = self.advance(&Projection::TO_READ)? else { return Ok(None) };
        let mut copy = std::mem::take(&mut self.tx.state().arena.copy);
        self.tx.read_found(&self.at.opened.name, found, |whole| {
            copy.set(whole);
            Ok(())
        })?;
        Ok(Some((entry, copy)))
    }
}

impl<'db, R: Stored<Kind = Ordered>, L: Lend<'db, S>, S: Config> Range<'db, R, L, S> {
    /// Shows a copy of the next row.
    pub(super) fn view_next_copy<X>(
        &mut self,
        visit: impl FnOnce(R::Key, R::View<'_>) -> X,
    ) -> Result<Option<X>, Error> {
        let Some((key, copy)) = self.with(|mut scan| scan.copy_next())? else { return Ok(None) };
        let (rows, table) = (self.at.rows, &self.at.opened.name);
        let shown = rows.show(rows.part(copy.bytes())).map(|row| visit(key, row));
        self.lender.lend(|tx| tx.give_back(copy))?;
        shown.map(Some).map_err(|source| Error::Codec { table: table.get(), source })
    }
}

/// The methods of [`Tx`] for a transaction that copies.
impl<S: Config, M: Mode> Tx<'_, S, M> {
    /// Shows a row that was copied.
    fn show_copy<R: Stored, X>(
        &self,
        rows: R,
        (copy, table): (Values, &Name),
        visit: impl FnOnce(R::View<'_>) -> X,
    ) -> Result<X, Error> {
        let shown = rows.show(copy.bytes()).map(visit);
        self.with(|tx| tx.give_back(copy))?;
        shown.map_err(|source| Error::Codec { table: table.get(), source })
    }

    #[inline(never)]
    pub(super) fn view_copy<R: Stored, X>(
        &self,
        rows: R,
        key: impl AsKey<R::Key>,
        visit: impl FnOnce(R::View<'_>) -> X,
    ) -> Result<Option<X>, Error> {
        let copied = self.with(|tx| tx.copied(rows, key))?;
        copied.map(|copied| self.show_copy(rows, copied, visit)).transpose()
    }

    pub(super) fn view_copies<R: Stored, F: Flow>(
        &self,
        rows: R,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
        mut visit: impl FnMut(Option<R::View<'_>>) -> F,
    ) -> Result<(), Error> {
        for key in keys {
            let seen = self.view_copy(rows, key, |row| visit(Some(row)).flow())?;
            if seen.unwrap_or_else(|| visit(None).flow()).is_break() {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn walk_copies<K: Key, C: Codec, O: Kind, F: Flow>(
        &self,
        table: Table<K, C, O>,
        mut visit: impl FnMut(K, C::View<'_>) -> F,
    ) -> Result<(), Error> {
        if O::ORDERED {
            return self.range(table.as_ordered(), ..)?.view_each(visit);
        }
        let opened = self.with(|tx| tx.opened(table))?;
        let (mut tour, mut keys, mut has_more) = (opened.storage.tour()?, Vec::new(), true);
        while has_more {
            has_more = self.with(|tx| tx.next_keys(opened, &mut tour, &mut keys))?;
            for key in &keys {
                let Some(key) = key.as_ref().decode::<K>() else {
                    return Err(Error::Key { table: opened.name.get() });
                };
                let Some(copied) = self.with(|tx| tx.copied(table, &key))? else { continue };
                if self.show_copy(table, copied, |row| visit(key, row).flow())?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
