//! A row's place in a table, whether there is a row or not: found once, then read and written there.

use std::borrow::Borrow;

use super::{Found, Tx, read::Row};
use crate::{Codec, Embedded, Error, Hash, Key, Setting, Table, catalog::Opened, table::Kind};

/// A row's place in a table, as maps have it.
///
/// # Example
///
/// ```
/// use drtm_txn::{Db, Error, Pod, TableDef};
///
/// const WORDS: TableDef<String, Pod<u64>> = TableDef::hash("words");
/// let db = Db::new()?;
/// let words = db.table(WORDS)?;
/// let times = db.transact(|tx| {
///     for word in "to be or not to be".split(' ') {
///         tx.entry(words, &word.to_owned())?.and_modify(|times| *times += 1)?.or_insert(1)?;
///     }
///     tx.entry(words, &"be".to_owned())?.or_default()
/// })?;
/// assert_eq!(times, 2);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub enum Entry<'t, 'db, K: Key, C: Codec, O: Kind = Hash, S: Setting = Embedded> {
    /// There is a row.
    Occupied(OccupiedEntry<'t, 'db, K, C, O, S>),
    /// There is none.
    Vacant(VacantEntry<'t, 'db, K, C, O, S>),
}

/// Where a row is.
///
/// # Example
///
/// ```
/// use drtm_txn::{Db, Entry, Error, Pod, TableDef};
///
/// const LEASES: TableDef<u64, Pod<u32>> = TableDef::hash("leases");
/// let db = Db::new()?;
/// let leases = db.table(LEASES)?;
/// let use_one = || {
///     db.transact(|tx| match tx.entry(leases, &1)? {
///         Entry::Vacant(entry) => entry.insert(&1).map(|()| true),
///         Entry::Occupied(mut entry) if *entry.get()? == 0 => entry.remove().map(|()| false),
///         Entry::Occupied(entry) => entry.update(|uses| *uses -= 1).map(|()| true),
///     })
/// };
/// assert_eq!([use_one()?, use_one()?, use_one()?, use_one()?], [true, true, false, true]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct OccupiedEntry<'t, 'db, K: Key, C: Codec, O: Kind = Hash, S: Setting = Embedded> {
    place: Place<'t, 'db, K, C, O, S>,
    /// Where it was found, until it is changed.
    found: Option<(Found, Spotted)>,
    /// Its value, once somebody has asked.
    value: Option<C::Value>,
}
