//! Savepoints: undoing the writes since a point within a transaction.

use drtm_kv::Holder;

use super::Exclusive;
#[cfg(all(feature = "cluster", not(feature = "model")))]
use crate::cluster::undo;
use crate::{Config, Error, commit::write_set::Mark, mutation::Mutation, tx::state::TxState};

/// A point in a transaction to which its writes can be rolled back.
///
/// Reads since then stay in the read set: the transaction commits only if they still hold.
///
/// # Example
///
/// ```
/// use drtm::{Db, Error, Pod, TableDef};
///
/// const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");
/// let db = Db::new()?;
/// let counters = db.table(COUNTERS)?;
/// db.transact(|tx| {
///     tx.put(counters, &1, &1)?;
///     let before = tx.savepoint();
///     tx.put(counters, &1, &2)?;
///     tx.insert(counters, &2, &2)?;
///     tx.return_to(before)?;
///     assert_eq!(tx.get_many(counters, &[1, 2])?, [Some(1), None]);
///     Ok(())
/// })?;
/// assert_eq!(db.transact(|tx| tx.get_many(counters, &[1, 2]))?, [Some(1), None]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Savepoint {
    of: Of,
    /// The transaction it belongs to: others refuse it.
    holder: Holder,
}

#[derive(Clone, Copy, Debug)]
enum Of {
    /// A database's transaction.
    Node { mark: Mark, database: u32 },
    /// A transaction over nodes.
    #[cfg(all(feature = "cluster", not(feature = "model")))]
    Nodes(undo::Mark),
}

#[cfg(all(feature = "cluster", not(feature = "model")))]
impl Savepoint {
    pub(crate) fn of_cluster(mark: undo::Mark, holder: Holder) -> Self {
        Self { of: Of::Nodes(mark), holder }
    }

    /// Returns the point in the transaction over nodes with this name.
    pub(crate) fn in_cluster(self, holder: Holder) -> Result<undo::Mark, Error> {
        match self.of {
            Of::Nodes(mark) if self.holder == holder => Ok(mark),
            _ => Err(Error::OtherSavepoint),
        }
    }
}

impl<S: Config> Exclusive<'_, S> {
    pub(crate) fn savepoint(&mut self) -> Savepoint {
        let database = self.db.number;
        let TxState { writes, holder, .. } = self.state();
        Savepoint { of: Of::Node { mark: writes.savepoint(), database }, holder: *holder }
    }

    pub(crate) fn return_to(&mut self, savepoint: Savepoint) -> Result<(), Error> {
        let ours = self.db.number;
        let TxState { writes, reads, removed, holder, .. } = self.state();
        let mark = match savepoint.of {
            Of::Node { mark, database } if savepoint.holder == *holder && database == ours => mark,
            _ => return Err(Error::OtherSavepoint),
        };
        // Rows that the transaction has removed since exist again.
        removed.clear();
        writes.return_to(mark, |seen| {
            if !S::has(Mutation::UndoneReadsForgotten) {
                reads.records.push(seen);
            }
        })
    }
}
