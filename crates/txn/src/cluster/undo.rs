//! What a transaction's writes were before, to return to a savepoint.

use crate::Error;

/// A point in a transaction's writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Tells savepoints of one state apart, also those of its earlier transactions.
    number: u64,
    changes: usize,
}

/// What was written before each write since the first savepoint.
#[derive(Debug)]
pub(super) struct Undo<O> {
    changes: Vec<(u32, O)>,
    /// The numbers of savepoints to which the transaction can return, in ascending order.
    savepoints: Vec<u64>,
    next: u64,
}

impl<O> Default for Undo<O> {
    fn default() -> Self {
        Self { changes: Vec::new(), savepoints: Vec::new(), next: 0 }
    }
}

impl<O> Undo<O> {
    /// Forgets everything, for the next run of a transaction.
    pub(super) fn clear(&mut self) {
        self.changes.clear();
        self.savepoints.clear();
    }

    pub(super) fn savepoint(&mut self) -> Mark {
        let number = self.next;
        self.next += 1;
        self.savepoints.push(number);
        Mark { number, changes: self.changes.len() }
    }

    /// Notes what was to become of a row before it is written once more.
    pub(super) fn note(&mut self, row: u32, before: O) {
        if !self.savepoints.is_empty() {
            self.changes.push((row, before));
        }
    }

    /// Undoes the writes since a savepoint: calls `undo` with each row, the last one first.
    ///
    /// # Errors
    ///
    /// [`Error::OtherSavepoint`] if the transaction cannot return to it.
    pub(super) fn return_to(&mut self, mark: Mark, mut undo: impl FnMut(u32, O)) -> Result<(), Error> {
        let Ok(known) = self.savepoints.binary_search(&mark.number) else { return Err(Error::OtherSavepoint) };
        self.savepoints.truncate(known + 1);
        self.changes.drain(mark.changes..).rev().for_each(|(row, before)| undo(row, before));
        Ok(())
    }
}
