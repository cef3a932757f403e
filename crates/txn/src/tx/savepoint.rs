//! Going back to a point within a transaction.

use super::Tx;
use crate::{Error, Setting, work::Work};

/// A point in a transaction to which its writes can go back.
///
/// What was read since stays read: the transaction still commits only if it is true.
///
/// # Example
///
/// ```
/// use drtm_txn::{Db, Error, Pod, TableDef};
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
    writes: usize,
    changes: usize,
    /// Of which transaction, so that none goes back to a point of another's.
    serial: u64,
}

impl<S: Setting> Tx<'_, S> {
    /// Remembers the writes up to here.
    pub fn savepoint(&mut self) -> Savepoint {
        let work = self.work();
        work.has_savepoint = true;
        Savepoint { writes: work.writes.len(), changes: work.changes.len(), serial: work.serial }
    }

    /// Undoes the writes since a savepoint. It can be returned to again.
    ///
    /// # Errors
    ///
    /// [`Error::OtherSavepoint`] if it is none of this transaction's, or of a part that was undone.
    pub fn return_to(&mut self, savepoint: Savepoint) -> Result<(), Error> {
        let work = self.work();
        let is_known = savepoint.serial == work.serial
            && savepoint.writes <= work.writes.len()
            && savepoint.changes <= work.changes.len();
        if !is_known {
            return Err(Error::OtherSavepoint);
        }
        while work.changes.len() > savepoint.changes {
            if let Some((write, fate)) = work.changes.pop()
                && let Some(write) = work.writes.get_mut(write as usize)
            {
                write.fate = fate;
            }
        }
        // Records that were made stay until the end: they still say that their keys are not there, and what was seen around them stays as it is.
        let Work { writes, undone, .. } = work;
        undone.extend(writes.drain(savepoint.writes..).filter(|write| write.made.is_some()));
        work.truncate_writes(savepoint.writes);
        Ok(())
    }
}
