//! Going back to a point within a transaction.

use drtm_kv::State;

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
    /// Which of its worker's it is, which of a database's workers, and which database: so that no transaction goes back to a point of another's, or to one
    /// that it has gone back beyond.
    number: u64,
    holder: State,
    database: u32,
}

impl<S: Setting> Tx<'_, S> {
    /// Remembers the writes up to here.
    pub fn savepoint(&mut self) -> Savepoint {
        let database = self.db.number;
        let work = self.work();
        work.has_savepoint = true;
        let number = work.next_savepoint;
        work.next_savepoint += 1;
        work.savepoints.push(number);
        Savepoint { writes: work.writes.len(), changes: work.changes.len(), number, holder: work.holder, database }
    }

    /// Undoes the writes since a savepoint. It can be returned to again.
    ///
    /// # Errors
    ///
    /// [`Error::OtherSavepoint`] if it is none of this transaction's, or of a part that was undone.
    pub fn return_to(&mut self, savepoint: Savepoint) -> Result<(), Error> {
        let database = self.db.number;
        let work = self.work();
        let known = work.savepoints.binary_search(&savepoint.number);
        let (Ok(known), true) = (known, savepoint.holder == work.holder && savepoint.database == database) else {
            return Err(Error::OtherSavepoint);
        };
        work.savepoints.truncate(known + 1);
        while work.changes.len() > savepoint.changes {
            if let Some((write, fate)) = work.changes.pop()
                && let Some(write) = work.writes.get_mut(write as usize)
            {
                write.fate = fate;
            }
        }
        // Records that were made stay until the end: they still say that their keys are not there, and what was seen around them stays as it is.
        let Work { writes, undone, reads, .. } = work;
        for write in writes.drain(savepoint.writes..) {
            reads.extend(write.is_read.then(|| write.seen()));
            undone.extend(write.is_made.then_some(write));
        }
        work.truncate_writes(savepoint.writes);
        Ok(())
    }
}
