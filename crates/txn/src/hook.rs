//! Being told of commits: what logs and replicas begin with.

use std::fmt::Debug;

use drtm_kv::Version;

/// A row as a transaction leaves it.
///
/// # Example
///
/// See [`Hook`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change<'t> {
    /// The snapshot number in which it happens: transactions of a higher one come later.
    pub epoch: u64,
    /// The table's name.
    pub table: &'t str,
    /// The key: its encoding, which is in the order of keys.
    pub key: &'t [u8],
    /// The version of the row: of a key's, the last is the highest.
    pub version: Version,
    /// The value; `None` if the row is removed.
    pub value: Option<&'t [u8]>,
}

/// Who is told of every change of every transaction that commits: after nothing can stop it any more, and before anybody sees it.
///
/// Called with records locked, so it should be quick. If it panics, the transaction has not happened, and the panic goes to whoever ran it.
///
/// # Example
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use drtm_htm::NoHtm;
/// use drtm_txn::{Builder, Change, Hook, Raw, Setting, TableDef};
///
/// #[derive(Debug, Default)]
/// struct Bytes(AtomicU64);
///
/// impl Hook for Bytes {
///     fn changed(&self, change: Change<'_>) {
///         self.0.fetch_add(change.value.map_or(0, <[u8]>::len) as u64, Relaxed);
///     }
/// }
///
/// #[derive(Debug)]
/// struct Counted;
///
/// impl Setting for Counted {
///     type Engine = NoHtm;
///     type Hook = Bytes;
/// }
///
/// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
/// let db = Builder::new().build_with::<Counted>(NoHtm, Bytes::default())?;
/// let notes = db.table(NOTES)?;
/// db.transact(|tx| tx.put(notes, &1, b"seven"))?;
/// assert_eq!(db.hook().0.load(Relaxed), 5);
/// # Ok::<(), drtm_txn::Error>(())
/// ```
pub trait Hook: Send + Sync + Debug + 'static {
    /// Whether anything is to be told. If not, the commit does not even gather it.
    const LISTENS: bool = true;

    /// A transaction makes this change.
    fn changed(&self, change: Change<'_>);
}

/// Nobody is told.
///
/// # Example
///
/// See [`Setting`](crate::Setting).
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlogged;

impl Hook for Unlogged {
    const LISTENS: bool = false;

    fn changed(&self, _change: Change<'_>) {}
}
