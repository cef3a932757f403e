//! Iterating over all rows of a table, hash or ordered.
//!
//! In a hash table, each bucket is guarded like that of an absent key: an insertion into it, or a
//! split of it, is a phantom. The keys of a few buckets are collected, and looked up one by one.

use std::ops::ControlFlow;

use super::{Exclusive, Mode, read::Row, scan::Scan};
use crate::{
    Codec, Config, Error, Flow, Key, Table,
    memory::storage::{OwnedKey, Tour},
    schema::{catalog::Opened, table::Kind},
    tx::projection::Projection,
};

impl<S: Config, M: Mode> Exclusive<'_, S, M> {
    pub(crate) fn walk<K: Key, C: Codec, O: Kind, F: Flow>(
        &mut self,
        table: Table<K, C, O>,
        mut visit: impl FnMut(K, C::View<'_>) -> F,
    ) -> Result<(), Error> {
        if O::ORDERED {
            let at = &mut self.range_in(table.as_ordered(), ..)?;
            return Scan::at_front(self, at)?.view_each(|key, row| visit(key, row).flow());
        }
        let opened = self.opened(table)?;
        self.walk_hash::<K, C, O>(opened, &Projection::TO_READ, |tx, key, found| {
            tx.read_found(&opened.name, found, |bytes| C::view(bytes).map(|view| visit(key, view).flow()))
        })
    }

    pub(crate) fn len<K: Key, C: Codec, O: Kind>(&mut self, table: Table<K, C, O>) -> Result<u64, Error> {
        if O::ORDERED {
            let at = &mut self.range_in(table.as_ordered(), ..)?;
            return Scan::at_front(self, at)?.count();
        }
        let (opened, mut rows) = (self.opened(table)?, 0);
        self.walk_hash::<K, C, O>(opened, &Projection::NOTHING, |_, _, _| {
            rows += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(rows)
    }

    /// Replaces `keys` by those of the next few buckets of a hash table. Returns whether there are
    /// more.
    pub(super) fn next_keys(
        &mut self,
        opened: &Opened<S::Engine>,
        tour: &mut Tour,
        keys: &mut Vec<OwnedKey>,
    ) -> Result<bool, Error> {
        keys.clear();
        let is_past = self.past().is_some();
        let reads = &mut self.state().reads;
        let has_more = opened.storage.visit_some_guarded(
            tour,
            |guard| {
                // Nothing is inserted into a snapshot.
                if !is_past {
                    reads.track_absent(guard);
                }
            },
            |key| keys.push(key.into()),
        )?;
        self.passed()?;
        Ok(has_more)
    }

    /// Looks up the keys of a hash table, and shows the rows that exist.
    fn walk_hash<K: Key, C: Codec, O: Kind>(
        &mut self,
        opened: &Opened<S::Engine>,
        wanted: &Projection,
        mut show: impl FnMut(&mut Self, K, super::Found) -> Result<ControlFlow<()>, Error>,
    ) -> Result<(), Error> {
        let (mut tour, mut keys, mut has_more) = (opened.storage.tour()?, Vec::new(), true);
        while has_more {
            has_more = self.next_keys(opened, &mut tour, &mut keys)?;
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

impl<S: Config> Exclusive<'_, S> {
    pub(crate) fn retain<K: Key, C: Codec, O: Kind>(
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

    pub(crate) fn clear<K: Key, C: Codec, O: Kind>(&mut self, table: Table<K, C, O>) -> Result<u64, Error> {
        let mut keys = Vec::new();
        if O::ORDERED {
            let at = &mut self.range_in(table.as_ordered(), ..)?;
            let mut scan = Scan::at_front(self, at)?;
            while let Some((key, ..)) = scan.advance(&Projection::NOTHING)? {
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
