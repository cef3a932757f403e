//! Iterating over all keys of a table, concurrently with writers and outside of any transaction.

use std::ops::{Bound, ControlFlow};

use drtm_htm::Engine;
use drtm_kv::{
    Bytes, Current, Cursor, HashTable, Inline, Keys, KvError, KvTable, NoValue, Store, Sweep, Tree, TreeKeys, Version,
};

use super::{Absence, KeyRef, Storage};

/// The position of an iteration. It visits every key that has a record throughout, even if the
/// record says that the row is absent.
#[derive(Debug)]
pub(crate) struct Tour {
    at: At,
    /// The buffer for the current value.
    value: Vec<u8>,
}

/// The number of rows of a tree that are shown by one step.
const AT_ONCE: u32 = 64;

#[derive(Debug)]
enum At {
    Buckets(Sweep),
    Words(Cursor<Inline>),
    Bytes(Cursor<Bytes>),
}

impl Tour {
    /// Returns how far an iteration over a hash table is.
    pub(crate) fn position(&self) -> Option<(u64, u64)> {
        if let At::Buckets(sweep) = &self.at { Some(sweep.position()) } else { None }
    }
}

impl<E: Engine> Storage<E> {
    /// Returns the store that it is in.
    fn store(&self) -> &Store<E> {
        match self {
            Self::HashOfWords(table) => table.store(),
            Self::HashOfBytes(table) => table.store(),
            Self::TreeOfWords(table) => table.store(),
            Self::TreeOfBytes(table) => table.store(),
        }
    }

    /// Begins an iteration before the first key.
    pub(crate) fn tour(&self) -> Result<Tour, KvError> {
        let at = match self {
            Self::HashOfWords(table) => At::Buckets(table.sweep()?),
            Self::HashOfBytes(table) => At::Buckets(table.sweep()?),
            Self::TreeOfWords(_) => At::Words(Cursor::up(..)),
            Self::TreeOfBytes(_) => At::Bytes(Cursor::up(..)),
        };
        Ok(Tour { at, value: Vec::new() })
    }

    /// Continues an iteration over a hash table where another one was. Returns `None` if none can
    /// be there.
    pub(crate) fn tour_at(&self, position: (u64, u64)) -> Result<Option<Tour>, KvError> {
        let sweep = match self {
            Self::HashOfWords(table) => table.sweep_at(position)?,
            Self::HashOfBytes(table) => table.sweep_at(position)?,
            Self::TreeOfWords(_) | Self::TreeOfBytes(_) => None,
        };
        Ok(sweep.map(|sweep| Tour { at: At::Buckets(sweep), value: Vec::new() }))
    }

    /// Begins an iteration over an ordered table behind a key. `None` for a hash table, or for a
    /// key of another kind.
    pub(crate) fn tour_behind(&self, key: KeyRef<'_>) -> Option<Tour> {
        let at = match (self, key) {
            (Self::TreeOfWords(_), KeyRef::Word(word)) => {
                At::Words(Cursor::up((Bound::Excluded(word), Bound::Unbounded)))
            }
            (Self::TreeOfBytes(_), KeyRef::Bytes(bytes)) => {
                At::Bytes(Cursor::up((Bound::Excluded(bytes), Bound::Unbounded)))
            }
            _ => return None,
        };
        Some(Tour { at, value: Vec::new() })
    }

    /// Shows some more keys, and returns whether there may be others.
    pub(crate) fn visit_some(&self, tour: &mut Tour, mut show: impl FnMut(KeyRef<'_>)) -> Result<bool, KvError> {
        let _visit = self.store().visit();
        match (self, &mut tour.at) {
            (Self::HashOfWords(table), At::Buckets(sweep)) => table.advance(sweep, |word| show(KeyRef::Word(word))),
            (Self::HashOfBytes(table), At::Buckets(sweep)) => table.advance(sweep, |bytes| show(KeyRef::Bytes(bytes))),
            (Self::TreeOfWords(tree), At::Words(cursor)) => {
                let row = tree.advance(cursor, &mut Current, &mut (), &mut NoValue)?;
                Ok(row.map(|(word, _)| show(KeyRef::Word(word))).is_some())
            }
            (Self::TreeOfBytes(tree), At::Bytes(cursor)) => {
                let row = tree.advance(cursor, &mut Current, &mut (), &mut NoValue)?;
                Ok(row.map(|(bytes, _)| show(KeyRef::Bytes(bytes))).is_some())
            }
            // A tour begins and continues on the same table.
            _ => unreachable!("a tour of a table of another kind"),
        }
    }

    /// Like [`visit_some`](Self::visit_some), for a hash table, but also passes the guards of the
    /// keys' buckets to `guard`.
    pub(crate) fn visit_some_guarded(
        &self,
        tour: &mut Tour,
        mut guard: impl FnMut(Absence),
        mut show: impl FnMut(KeyRef<'_>),
    ) -> Result<bool, KvError> {
        let _visit = self.store().visit();
        let guard = |bucket| guard(Absence::Bucket(bucket));
        match (self, &mut tour.at) {
            (Self::HashOfWords(table), At::Buckets(sweep)) => {
                table.advance_guarded(sweep, guard, |word| show(KeyRef::Word(word)))
            }
            (Self::HashOfBytes(table), At::Buckets(sweep)) => {
                table.advance_guarded(sweep, guard, |bytes| show(KeyRef::Bytes(bytes)))
            }
            // The table's type says that it is a hash table.
            _ => unreachable!("a tour of an ordered table"),
        }
    }

    /// Shows some more existing rows, each with its version, read atomically. Returns whether there
    /// may be others.
    pub(crate) fn rows(
        &self,
        tour: &mut Tour,
        mut show: impl FnMut(KeyRef<'_>, &[u8], Version),
    ) -> Result<bool, KvError> {
        let _visit = self.store().visit();
        let Tour { at, value } = tour;
        match (self, at) {
            (Self::HashOfWords(table), At::Buckets(sweep)) => {
                some_of_hash(table, sweep, value, |word, value, version| show(KeyRef::Word(word), value, version))
            }
            (Self::HashOfBytes(table), At::Buckets(sweep)) => {
                some_of_hash(table, sweep, value, |bytes, value, version| show(KeyRef::Bytes(bytes), value, version))
            }
            (Self::TreeOfWords(tree), At::Words(cursor)) => {
                some_of_tree(tree, cursor, value, |word, value, version| show(KeyRef::Word(word), value, version))
            }
            (Self::TreeOfBytes(tree), At::Bytes(cursor)) => {
                some_of_tree(tree, cursor, value, |bytes, value, version| show(KeyRef::Bytes(bytes), value, version))
            }
            // A tour begins and continues on the same table.
            _ => unreachable!("a tour of a table of another kind"),
        }
    }
}

fn some_of_hash<E: Engine, K: Keys>(
    table: &HashTable<E, K>,
    sweep: &mut Sweep,
    value: &mut Vec<u8>,
    mut show: impl FnMut(K::Key<'_>, &[u8], Version),
) -> Result<bool, KvError> {
    let mut failed = None;
    let has_more = table.advance(sweep, |key| match table.undisturbed(|_| table.read(key, Current, value)) {
        Ok(Ok(found)) if found.is_present() => show(key, value, found.version),
        Ok(_) => {}
        Err(error) => failed = Some(error),
    })?;
    failed.map_or(Ok(has_more), Err)
}

fn some_of_tree<E: Engine, K: TreeKeys>(
    tree: &Tree<E, K>,
    cursor: &mut Cursor<K>,
    value: &mut Vec<u8>,
    mut show: impl FnMut(K::Key<'_>, &[u8], Version),
) -> Result<bool, KvError> {
    let mut shown = 0;
    tree.advance_each(cursor, &mut Current, &mut (), value, |key, found, value| {
        if found.is_present() {
            show(key, value, found.version);
        }
        shown += 1;
        if shown < AT_ONCE { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(shown == AT_ONCE)
}
