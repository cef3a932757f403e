//! Savepoints: undoing the writes since a point within a transaction.

use drtm_kv::Holder;

use super::Exclusive;
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
    mark: Mark,
    /// The transaction it belongs to: others refuse it.
    holder: Holder,
    database: u32,
}

impl<S: Config> Exclusive<'_, S> {
    pub(crate) fn savepoint(&mut self) -> Savepoint {
        let database = self.db.number;
        let TxState { writes, holder, .. } = self.state();
        Savepoint { mark: writes.savepoint(), holder: *holder, database }
    }

    pub(crate) fn return_to(&mut self, savepoint: Savepoint) -> Result<(), Error> {
        let database = self.db.number;
        let TxState { writes, reads, removed, holder, .. } = self.state();
        if savepoint.holder != *holder || savepoint.database != database {
            return Err(Error::OtherSavepoint);
        }
        // Rows that the transaction has removed since exist again.
        removed.clear();
        writes.return_to(savepoint.mark, |seen| {
            if !S::has(Mutation::UndoneReadsForgotten) {
                reads.records.push(seen);
            }
        })
    }
}
