//! The write set: the rows that a transaction is going to write, and the savepoints that it can
//! return to.
//!
//! A transaction looks up every row that it reads here, since it sees its own writes. A filter
//! answers for most rows. It is exact for a single write, and a bitmap for several. If the filter
//! cannot exclude a row, a small set is searched linearly. A large one has an index, which is
//! brought up to date by the first lookup that needs it: a transaction that only inserts never pays
//! for it.

use drtm_kv::{Handle, ReadEntry, Version};
use rustc_hash::FxHashMap;

use crate::{
    Error,
    commit::epoch::version_in,
    memory::{
        arena::{ArenaKey, ArenaRange},
        heap_size::vec_bytes,
        storage::Absence,
    },
};

/// What a write does to its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteOp {
    /// Replaces the value with this one.
    Put(ArenaRange),
    /// Makes a record visible that this transaction has created, with this value in it.
    Insert(ArenaRange),
    /// Replaces the bytes behind the first `skipped` words of the value. The row was read.
    Patch { bytes: ArenaRange, skipped: u32 },
    /// Removes the row.
    Remove,
}

impl WriteOp {
    /// Returns the length of a value that replaces another, which may not fit in place.
    #[inline(always)]
    pub(crate) fn new_length(self) -> Option<usize> {
        match self {
            Self::Put(value) => Some(value.length()),
            Self::Insert(_) | Self::Patch { .. } | Self::Remove => None,
        }
    }
}

/// A record that a lookup has found, in relation to the write set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WriteTarget {
    /// A record that this transaction does not write yet.
    Seen(ReadEntry),
    /// The write with this number.
    Written(usize),
    /// An older version, which cannot be written.
    Past,
    /// No record, while this guard is unchanged: one has to be created.
    Missed(Absence),
}

/// One row of the write set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub(crate) at: Handle,
    pub(crate) table: u16,
    pub(crate) op: WriteOp,
    /// Whether this transaction has created the record.
    pub(crate) is_made: bool,
    /// Whether the row was read as well: then its version must not have changed when it is locked.
    pub(crate) is_read: bool,
    pub(crate) key: ArenaKey,
    /// The version when the row was found.
    pub(crate) seen: Version,
    /// The version when the row was locked.
    pub(crate) before: Version,
    /// Whether the new value fits in place.
    pub(crate) has_room: bool,
}

impl Write {
    /// Returns the write of a record that was found. If it was read, it must not be in the read set
    /// too.
    #[inline(always)]
    pub(crate) fn found(found: ReadEntry, table: u16, op: WriteOp, key: ArenaKey, is_read: bool) -> Self {
        let ReadEntry { at, version: seen } = found;
        Self { at, table, op, is_made: false, is_read, key, seen, before: Version::default(), has_room: true }
    }

    /// Returns the write of a record that was created for it. It counts as read: the key was
    /// absent.
    #[inline(always)]
    pub(crate) fn made(made: ReadEntry, table: u16, op: WriteOp, key: ArenaKey) -> Self {
        Self { is_made: true, ..Self::found(made, table, op, key, true) }
    }

    /// Returns the version that the row gets in an epoch.
    #[inline(always)]
    pub(crate) fn version_in(&self, epoch: u64) -> Version {
        let version = version_in(epoch, self.before);
        if self.op == WriteOp::Remove { version.as_removed() } else { version }
    }

    /// Returns the record as it was found.
    #[inline(always)]
    pub(crate) fn seen(&self) -> ReadEntry {
        ReadEntry { at: self.at, version: self.seen }
    }
}

/// The number of writes from which on the set has an index.
const INDEX_FROM: usize = if cfg!(test) { 4 } else { 64 };

/// The rows that a transaction writes.
#[derive(Debug, Default)]
pub(crate) struct WriteSet {
    writes: Vec<Write>,
    filter: Filter,
    /// The numbers of the first `indexed` writes, by their records.
    index: FxHashMap<Handle, u32>,
    indexed: usize,
    /// Whether the index, or anything below, is in use.
    has_more: bool,
    /// The savepoints that the transaction can return to, in order.
    savepoints: Vec<u64>,
    /// The number of the next savepoint. None is used twice.
    next_savepoint: u64,
    /// The previous operations of writes that were changed.
    changes: Vec<(u32, WriteOp)>,
    /// Writes that were undone, and whose records this transaction has created.
    undone: Vec<Write>,
    /// How many writes were undone.
    dropped: usize,
}

impl WriteSet {
    /// Returns its approximate size on the heap, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let index = self.index.capacity() * size_of::<(Handle, u32)>();
        let undone = vec_bytes(&self.savepoints) + vec_bytes(&self.changes) + vec_bytes(&self.undone);
        vec_bytes(&self.writes) + index + undone
    }

    #[inline(always)]
    pub(crate) fn as_slice(&self) -> &[Write] {
        &self.writes
    }

    #[inline(always)]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [Write] {
        &mut self.writes
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.writes.len()
    }

    /// Returns the number of writes, those that were undone included. It never falls.
    pub(crate) fn ever(&self) -> usize {
        self.writes.len() + self.dropped
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    #[inline(always)]
    pub(crate) fn get(&self, write: usize) -> &Write {
        &self.writes[write]
    }

    /// Returns whether a record may be in the set. Never false for one that is.
    #[inline(always)]
    pub(crate) fn may_have(&self, at: Handle) -> bool {
        self.filter.may_have(at)
    }

    /// Returns the number of the write of this record.
    #[inline(always)]
    pub(crate) fn position(&mut self, at: Handle) -> Option<usize> {
        if self.filter.may_have(at) { self.position_slow(at) } else { None }
    }

    #[inline(never)]
    fn position_slow(&mut self, at: Handle) -> Option<usize> {
        if self.writes.len() < INDEX_FROM {
            return self.writes.iter().position(|write| write.at == at);
        }
        let new = self.writes[self.indexed..].iter().zip(self.indexed as u32..);
        self.index.extend(new.map(|(write, number)| (write.at, number)));
        self.indexed = self.writes.len();
        self.has_more = true;
        self.index.get(&at).map(|number| *number as usize)
    }

    /// Adds a write of a record that is not in the set.
    #[inline(always)]
    pub(crate) fn push(&mut self, write: Write) {
        self.filter.add(write.at);
        self.writes.push(write);
    }

    /// Changes the operation of a write.
    #[inline]
    pub(crate) fn change(&mut self, write: usize, op: WriteOp) {
        if !self.savepoints.is_empty() {
            self.changes.push((write as u32, self.writes[write].op));
        }
        self.writes[write].op = op;
    }

    /// Returns the writes that were undone, and whose records this transaction has created.
    #[inline(always)]
    pub(crate) fn undone(&self) -> &[Write] {
        &self.undone
    }

    /// Takes a savepoint.
    pub(crate) fn savepoint(&mut self) -> Mark {
        self.has_more = true;
        let number = self.next_savepoint;
        self.next_savepoint += 1;
        self.savepoints.push(number);
        Mark { writes: self.writes.len(), changes: self.changes.len(), number }
    }

    /// Undoes the writes since a savepoint, and calls `read` for each undone row that was read.
    ///
    /// # Errors
    ///
    /// [`Error::OtherSavepoint`] if the transaction cannot return to it.
    pub(crate) fn return_to(&mut self, mark: Mark, mut read: impl FnMut(ReadEntry)) -> Result<(), Error> {
        let Ok(known) = self.savepoints.binary_search(&mark.number) else { return Err(Error::OtherSavepoint) };
        self.savepoints.truncate(known + 1);
        while self.changes.len() > mark.changes {
            if let Some((write, op)) = self.changes.pop()
                && let Some(write) = self.writes.get_mut(write as usize)
            {
                write.op = op;
            }
        }
        self.dropped += self.writes.len() - mark.writes;
        for write in self.writes.drain(mark.writes..) {
            // The filter may keep the bit: it must only never miss a record.
            self.index.remove(&write.at);
            if write.is_read {
                read(write.seen());
            }
            // The record stays until the transaction ends: it says that its key is absent, and the
            // guards around it hold.
            self.undone.extend(write.is_made.then_some(write));
        }
        self.indexed = self.indexed.min(mark.writes);
        Ok(())
    }

    /// Returns an empty set without memory, to replace this one.
    pub(crate) fn emptied(&self) -> Self {
        Self { next_savepoint: self.next_savepoint, ..Self::default() }
    }

    /// Empties the set.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if !self.writes.is_empty() {
            self.writes.clear();
            self.filter.clear();
        }
        if self.has_more {
            self.clear_more();
        }
    }

    #[cold]
    fn clear_more(&mut self) {
        self.index.clear();
        self.indexed = 0;
        self.savepoints.clear();
        self.changes.clear();
        self.undone.clear();
        self.has_more = false;
    }
}

/// A position in the write set, at which a savepoint was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    writes: usize,
    changes: usize,
    number: u64,
}

/// Answers whether a record may be in the set. A single record is stored exactly, and several have
/// a bit each.
#[derive(Debug, Default)]
struct Filter {
    first: Option<Handle>,
    has_several: bool,
    bits: [u64; FILTER_WORDS],
}

/// This many words make two of a hundred records seldom share a bit.
const FILTER_WORDS: usize = 32;

impl Filter {
    /// Returns the word of a record's bit, and the bit.
    #[inline(always)]
    fn bit(at: Handle) -> (usize, u64) {
        let bit = at.mixed() % (64 * FILTER_WORDS as u64);
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    #[inline(always)]
    fn add(&mut self, at: Handle) {
        match self.first {
            None => self.first = Some(at),
            Some(_) if self.has_several => self.set(at),
            Some(first) => {
                self.has_several = true;
                self.set(first);
                self.set(at);
            }
        }
    }

    #[inline(always)]
    fn set(&mut self, at: Handle) {
        let (word, bit) = Self::bit(at);
        self.bits[word] |= bit;
    }

    #[inline(always)]
    fn may_have(&self, at: Handle) -> bool {
        if !self.has_several {
            return self.first == Some(at);
        }
        let (word, bit) = Self::bit(at);
        self.bits[word] & bit != 0
    }

    #[inline(always)]
    fn clear(&mut self) {
        self.first = None;
        if self.has_several {
            self.has_several = false;
            self.bits = [0; FILTER_WORDS];
        }
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use drtm_htm::NoHtm;
    use drtm_kv::{ForHolder, HashConfig, KvTable, Placed, Store};
    use proptest::prelude::*;

    use super::*;

    /// Returns records to write.
    fn records(count: u64) -> Vec<ReadEntry> {
        let store = Store::in_memory(NoHtm, 16 << 20).expect("a store");
        let table = store.hash_table(HashConfig::default()).expect("a table");
        let mut worker = store.worker().expect("a worker");
        let mut record = |key| match table.place::<ForHolder>(&mut worker, key, b"", None, |_| ()).expect("room") {
            Placed::Made(seen) | Placed::Found(seen) => seen,
        };
        (0..count).map(&mut record).collect()
    }

    #[test]
    fn the_filter_misses_no_record_whether_there_are_none_one_or_many() {
        let records: Vec<_> = records(200).iter().map(|record| record.at).collect();
        let mut filter = Filter::default();
        for count in [0, 1, 2, 3, 100, 1, 0] {
            let (added, others) = records.split_at(count);
            added.iter().for_each(|at| filter.add(*at));
            assert!(added.iter().all(|at| filter.may_have(*at)));
            let mistaken = others.iter().filter(|at| filter.may_have(**at)).count();
            assert!(if count < 2 { mistaken == 0 } else { mistaken < others.len() / 4 }, "{mistaken} with {count}");
            filter.clear();
            assert!(!records.iter().any(|at| filter.may_have(*at)));
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// Writes a row.
        Write(usize),
        Savepoint,
        /// Returns to one of the savepoints.
        Return(usize),
        Clear,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            20 => (0..30_usize).prop_map(Step::Write),
            3 => Just(Step::Savepoint),
            2 => (0..4_usize).prop_map(Step::Return),
            1 => Just(Step::Clear),
        ];
        prop::collection::vec(step, 0..80)
    }

    proptest! {
        #[test]
        fn a_write_is_found_by_its_record_and_undone(steps in steps()) {
            let records = records(30);
            let (mut set, mut model) = (WriteSet::default(), Vec::<(usize, WriteOp)>::new());
            let mut savepoints: Vec<(Mark, Vec<(usize, WriteOp)>)> = Vec::new();
            for (step, number) in steps.into_iter().zip(0..) {
                // Each write has another operation.
                let op = WriteOp::Patch { bytes: ArenaRange::default(), skipped: number };
                match step {
                    Step::Write(row) => match set.position(records[row].at) {
                        Some(write) => {
                            set.change(write, op);
                            model[write].1 = op;
                        }
                        None => {
                            set.push(Write::found(records[row], 1, op, ArenaKey::Word(row as u64), row % 2 == 0));
                            model.push((row, op));
                        }
                    },
                    Step::Savepoint => savepoints.push((set.savepoint(), model.clone())),
                    Step::Return(back) => {
                        let Some(at) = savepoints.len().checked_sub(back + 1) else { continue };
                        let mut read = Vec::new();
                        let (mark, before) = savepoints[at].clone();
                        set.return_to(mark, |seen| read.push(seen)).expect("it is this transaction's");
                        let undone = model.split_off(before.len());
                        let undone = undone.iter().filter(|(row, _)| row % 2 == 0).map(|(row, _)| records[*row]);
                        prop_assert_eq!(read, undone.collect::<Vec<_>>());
                        model = before;
                        for (later, _) in savepoints.drain(at + 1..) {
                            prop_assert!(matches!(set.return_to(later, |_| ()), Err(Error::OtherSavepoint)));
                        }
                    }
                    Step::Clear => {
                        set.clear();
                        model.clear();
                        savepoints.clear();
                    }
                }
                prop_assert_eq!(set.as_slice().iter().map(|write| write.op).collect::<Vec<_>>(),
                    model.iter().map(|(_, op)| *op).collect::<Vec<_>>());
                for (row, record) in records.iter().enumerate() {
                    let expected = model.iter().position(|(written, _)| *written == row);
                    prop_assert_eq!(set.position(record.at), expected);
                }
            }
        }
    }
}
