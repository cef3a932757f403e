//! Iterating over all rows of a table, hash or ordered.
//!
//! In a hash table, each bucket is guarded like that of an absent key: an insertion into it, or a
//! split of it, is a phantom. The keys of a few buckets are collected, and looked up one by one.

use std::ops::ControlFlow;

use super::{Mode, Tx, read::Row, scan::Scan};
use crate::{
    Codec, Config, Error, Flow, Key, Table, catalog::Opened, projection::Projection, storage::OwnedKey, table::Kind,
};

impl<S: Config, M: Mode> Tx<'_, S, M> {
    /// Shows all rows of a table, until they end or `visit` breaks off. Rows of an ordered table
    /// come in key order, those of a hash table in no order. If the transaction commits, they are
    /// all the rows there were at one moment.
    ///
    /// A hash table with frequent insertions is better walked in a [snapshot](crate::Db::read),
    /// which never conflicts.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Pod, TableDef};
    ///
    /// const STOCK: TableDef<String, Pod<u64>> = TableDef::hash("stock");
    /// let db = Db::new()?;
    /// let stock = db.table(STOCK)?;
    /// db.transact(|tx| [("nails", 500), ("nuts", 7)].iter().try_for_each(|(name, count)| tx.put(stock, *name, count)))?;
    /// let few = db.read(|tx| {
    ///     let mut few = Vec::new();
    ///     tx.walk(stock, |name, count| {
    ///         few.extend((count < 10).then_some(name));
    ///     })?;
    ///     Ok(few)
    /// })?;
    /// assert_eq!(few, ["nuts"]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn walk<K: Key, C: Codec, O: Kind, F: Flow>(
        &mut self,
        table: Table<K, C, O>,
        mut visit: impl FnMut(K, C::View<'_>) -> F,
    ) -> Result<(), Error> {
        if O::ORDERED {
            let at = &mut self.range_in(table.as_ordered(), ..)?;
            return Scan { tx: self, at }.view_each(|key, row| visit(key, row).flow());
        }
        let opened = self.opened(table)?;
        self.walk_hash::<K, C, O>(opened, &Projection::TO_READ, |tx, key, found| {
            tx.read_found(&opened.name, found, |bytes| C::view(bytes).map(|view| visit(key, view).flow()))
        })
    }

    /// Counts the rows of a table, by reading all of them.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`retain`](Self::retain).
    pub fn len<K: Key, C: Codec, O: Kind>(&mut self, table: Table<K, C, O>) -> Result<u64, Error> {
        if O::ORDERED {
            return self.range(table.as_ordered(), ..)?.count();
        }
        let (opened, mut rows) = (self.opened(table)?, 0);
        self.walk_hash::<K, C, O>(opened, &Projection::NOTHING, |_, _, _| {
            rows += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(rows)
    }

    /// Looks up the keys of a hash table, and shows the rows that exist.
    fn walk_hash<K: Key, C: Codec, O: Kind>(
        &mut self,
        opened: &Opened<S::Engine>,
        wanted: &Projection,
        mut show: impl FnMut(&mut Self, K, super::Found) -> Result<ControlFlow<()>, Error>,
    ) -> Result<(), Error> {
        let (mut tour, mut keys, mut has_more) = (opened.storage.tour()?, Vec::<OwnedKey>::new(), true);
        while has_more {
            keys.clear();
            let is_past = self.past().is_some();
            let reads = &mut self.state().reads;
            has_more = opened.storage.visit_some_guarded(
                &mut tour,
                |guard| {
                    // Nothing is inserted into a snapshot.
                    if !is_past {
                        reads.track_absent(guard);
                    }
                },
                |key| keys.push(key.into()),
            )?;
            self.passed()?;
            for key in &keys {
                let key = key.as_ref();
                let Row { found: Some(found), .. } = self.row::<C, O>(opened, key, wanted)? else { continue };
                let Some(key) = key.decode() else { return Err(Error::Key { table: opened.name.get() }) };
                if show(self, key, found)?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

impl<S: Config> Tx<'_, S> {
    /// Removes the rows of a table for which `keep` returns false. Returns how many. All of them
    /// are in one transaction's write set.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Pod, TableDef};
    ///
    /// /// When sessions end.
    /// const SESSIONS: TableDef<u64, Pod<u64>> = TableDef::hash("sessions");
    /// let db = Db::new()?;
    /// let sessions = db.table(SESSIONS)?;
    /// db.transact(|tx| (0..100).try_for_each(|session| tx.put(sessions, session, &(1_000 + session))))?;
    /// let ended = db.transact(|tx| tx.retain(sessions, |_, end| end > 1_030))?;
    /// assert_eq!(ended, 31);
    /// assert_eq!(db.read(|tx| tx.len(sessions))?, 69);
    /// assert_eq!(db.transact(|tx| tx.clear(sessions))?, 69);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn retain<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        mut keep: impl FnMut(&K, C::View<'_>) -> bool,
    ) -> Result<u64, Error> {
        let mut gone = Vec::new();
        self.walk(table, |key, row| {
            if !keep(&key, row) {
                gone.push(key);
            }
        })?;
        gone.iter().try_for_each(|key| self.discard(table, key).map(drop))?;
        Ok(gone.len() as u64)
    }

    /// Removes all rows of a table, without reading their values unless it has indexes. Returns how
    /// many there were.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    ///
    /// # Example
    ///
    /// See [`retain`](Self::retain).
    pub fn clear<K: Key, C: Codec, O: Kind>(&mut self, table: Table<K, C, O>) -> Result<u64, Error> {
        let mut keys = Vec::new();
        if O::ORDERED {
            let at = &mut self.range_in(table.as_ordered(), ..)?;
            while let Some((key, ..)) = (Scan { tx: self, at }).advance(&Projection::NOTHING)? {
                keys.push(key);
            }
        } else {
            let opened = self.opened(table)?;
            self.walk_hash::<K, C, O>(opened, &Projection::NOTHING, |_, key, _| {
                keys.push(key);
                Ok(ControlFlow::Continue(()))
            })?;
        }
        keys.iter().try_for_each(|key| self.discard(table, key).map(drop))?;
        Ok(keys.len() as u64)
    }
}
