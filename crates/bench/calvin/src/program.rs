//! What an application provides: transactions as data, and what they do.

use std::{cell::Cell, collections::BTreeMap};

use drtm_rdma::NodeId;

use crate::{
    key::{Key, Row, Sets},
    store::Store,
};

/// The reason why a program gives its transaction up. All participants that execute it see equal
/// rows, and find one reason.
///
/// # Example
///
/// See [`Program`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted(pub &'static str);

/// An application: what its transactions are, and what they read and write.
///
/// Each node that a transaction writes at executes all of it, and keeps what it owns of the result.
/// So [`run`](Self::run) must depend on the transaction and on rows alone.
///
/// # Example
///
/// ```
/// use drtm_calvin::{Aborted, Key, Program, Rows, Sets};
/// use drtm_rdma::NodeId;
///
/// /// Each transaction adds one to a counter.
/// struct Counters;
///
/// impl Program for Counters {
///     type Txn = Key;
///
///     fn encode(&self, key: &Key, bytes: &mut Vec<u8>) {
///         bytes.extend(key.word.to_le_bytes());
///     }
///
///     fn decode(&self, bytes: &[u8]) -> Option<Key> {
///         Some(Key { table: 0, word: u64::from_le_bytes(bytes.try_into().ok()?) })
///     }
///
///     fn owner(&self, key: Key) -> NodeId {
///         NodeId((key.word % 2) as u16)
///     }
///
///     fn declare(&self, key: &Key, sets: &mut Sets) {
///         sets.write(*key);
///     }
///
///     fn run(&self, key: &Key, rows: &mut Rows<'_>) -> Result<(), Aborted> {
///         let count = rows.get(*key).map_or(0, |row| row[0]);
///         rows.put(*key, [count + 1].into());
///         Ok(())
///     }
/// }
/// ```
pub trait Program: Send + Sync + 'static {
    /// A transaction: its inputs.
    type Txn: Send + Sync + 'static;

    /// Appends the bytes of a transaction, which are sent to its participants.
    fn encode(&self, txn: &Self::Txn, bytes: &mut Vec<u8>);

    /// Returns the transaction of these bytes. `None` if there is none.
    fn decode(&self, bytes: &[u8]) -> Option<Self::Txn>;

    /// Returns the node that has a key's row.
    fn owner(&self, key: Key) -> NodeId;

    /// Declares what a transaction locks. Its first key's owner is never none.
    ///
    /// A key can stand for rows that are not declared, if all transactions that access those
    /// declare that key, and one node owns them all.
    fn declare(&self, txn: &Self::Txn, sets: &mut Sets);

    /// Runs a transaction.
    ///
    /// # Errors
    ///
    /// [`Aborted`] if it is given up. Nothing of it is kept then.
    fn run(&self, txn: &Self::Txn, rows: &mut Rows<'_>) -> Result<(), Aborted>;
}

/// Accesses of a transaction to its own node's rows beyond the declared ones, and its writes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Work {
    pub(crate) lookups: u32,
    pub(crate) updates: u32,
    pub(crate) inserts: u32,
}

/// The rows that a transaction sees: those that it declared, wherever they are, and others of the
/// node that executes it.
///
/// # Example
///
/// See [`Program`].
pub struct Rows<'r> {
    store: &'r Store,
    /// Of all participants.
    declared: &'r BTreeMap<Key, Option<Row>>,
    is_here: &'r dyn Fn(Key) -> bool,
    written: BTreeMap<Key, Option<Row>>,
    lookups: Cell<u32>,
}

impl<'r> Rows<'r> {
    pub(crate) fn new(
        store: &'r Store,
        declared: &'r BTreeMap<Key, Option<Row>>,
        is_here: &'r dyn Fn(Key) -> bool,
    ) -> Self {
        Self { store, declared, is_here, written: BTreeMap::new(), lookups: Cell::new(0) }
    }

    /// Returns whether the node that executes the transaction has this key.
    pub fn is_here(&self, key: Key) -> bool {
        (self.is_here)(key)
    }

    /// Returns a row: as the transaction has written it, as it was declared, or as this node has
    /// it. `None` if there is none, or if it was not declared and is another node's.
    pub fn get(&self, key: Key) -> Option<Row> {
        if let Some(row) = self.written.get(&key).or_else(|| self.declared.get(&key)) {
            return row.clone();
        }
        if !self.is_here(key) {
            return None;
        }
        self.look_up();
        self.store.get(key)
    }

    /// Counts a lookup in a table that all nodes have a copy of, and that the program keeps itself.
    pub fn look_up(&self) {
        self.lookups.set(self.lookups.get() + 1);
    }

    /// Inserts or replaces a row, if its node executes the transaction.
    pub fn put(&mut self, key: Key, row: Row) {
        self.written.insert(key, Some(row));
    }

    /// Removes a row, if its node executes the transaction.
    pub fn remove(&mut self, key: Key) {
        self.written.insert(key, None);
    }

    /// Returns what was done to this node's rows.
    pub(crate) fn work(&self) -> Work {
        let mut work = Work { lookups: self.lookups.get(), ..Work::default() };
        for (key, row) in self.written.iter().filter(|(key, _)| self.is_here(**key)) {
            let is_update = row.is_some() && self.declared.get(key).is_some_and(Option::is_some);
            if is_update {
                work.updates += 1;
            } else {
                work.inserts += 1;
            }
        }
        work
    }

    /// Keeps the writes to this node's rows.
    pub(crate) fn apply(self) {
        let Self { store, is_here, written, .. } = self;
        for (key, row) in written.into_iter().filter(|(key, _)| is_here(*key)) {
            match row {
                Some(row) => store.put(key, row),
                None => store.remove(key),
            }
        }
    }
}

impl std::fmt::Debug for Rows<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rows").field("declared", &self.declared.len()).finish_non_exhaustive()
    }
}
