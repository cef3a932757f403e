//! What one transaction knows while it runs. Kept for the next one on the same thread, so that nothing is allocated once it has grown to its size.

use drtm_htm::Engine;
use drtm_kv::{BucketVersion, Handle, NodeVersion, Records, Reserved, Sighting, State, Version, Worker};

use crate::{
    Error, Key,
    gate::{Gate, Presence},
    index::{Encoded, Shift},
    kept::{Kept, Stretch, encoded, keep},
    located::Located,
    secondary::RowEntries,
    snapshots::Needs,
    stats::Counters,
    values::{Value, Values},
};

/// What becomes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It gets this value, which is among the transaction's.
    Put(Stretch),
    /// It gets this value, which its record, made by this transaction, has already.
    Fresh(Stretch),
    /// These bytes of its value, which are among the transaction's, take the place of those behind its first `skipped` words. It was read.
    Patch { bytes: Stretch, skipped: u32 },
    /// It goes.
    Remove,
}

impl Fate {
    /// How long a value is that takes the place of another, for which there may be no room.
    #[inline(always)]
    pub(crate) fn new_length(self) -> Option<usize> {
        match self {
            Self::Put(value) => Some(value.length()),
            Self::Fresh(_) | Self::Patch { .. } | Self::Remove => None,
        }
    }
}

/// A record that was found: new to this transaction, or one that it writes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spotted {
    Seen(Sighting),
    Written(usize),
    /// What it was before: it cannot be written.
    Past,
}

/// A row that the transaction writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub(crate) at: Handle,
    pub(crate) table: u16,
    pub(crate) fate: Fate,
    /// Whether this transaction has made the record.
    pub(crate) is_made: bool,
    /// Whether it was read as well: then it must still be as it was seen when it is locked.
    pub(crate) is_read: bool,
    pub(crate) key: Kept,
    /// The version that it had when it was found.
    pub(crate) seen: Version,
    /// The version that it had when it was locked.
    pub(crate) before: Version,
    /// Whether the new value has room where the record is.
    pub(crate) has_room: bool,
}

impl Write {
    /// Of a record that was just found.
    #[inline(always)]
    fn new(found: Sighting, table: u16, fate: Fate, key: Kept) -> Self {
        let Sighting { at, version: seen } = found;
        let before = Version::default();
        Self { at, table, fate, is_made: false, is_read: false, key, seen, before, has_room: true }
    }

    /// Of a record that was made for it. It counts as read: the key was not there.
    #[inline(always)]
    pub(crate) fn made(made: Sighting, table: u16, fate: Fate, key: Kept) -> Self {
        Self { is_made: true, is_read: true, ..Self::new(made, table, fate, key) }
    }

    /// Of a record that was read.
    #[inline(always)]
    pub(crate) fn read(found: Sighting, table: u16, fate: Fate, key: Kept) -> Self {
        Self { is_read: true, ..Self::new(found, table, fate, key) }
    }

    /// The record as it was found.
    #[inline(always)]
    pub(crate) fn seen(&self) -> Sighting {
        Sighting { at: self.at, version: self.seen }
    }
}

/// How many reads there are when they are looked at again for the first time.
const FIRST_CHECK: usize = 256;

/// How many reads a transaction that only reads has made when it goes on in a snapshot. Fewer are looked at again sooner than others have kept for a snapshot what
/// they write meanwhile, and nobody but the reader has any work with it.
pub(crate) const LONG_READ: usize = 1024;

#[derive(Debug)]
pub(crate) struct Work<E: Engine> {
    pub(crate) worker: Worker<E>,
    /// This worker's name in locks.
    pub(crate) holder: State,
    pub(crate) reads: Vec<Sighting>,
    /// What was locked when it was read. Only with the ticket.
    pub(crate) held: Vec<Handle>,
    /// Leaves that ranges went through, and in which keys were missing.
    pub(crate) leaves: Vec<NodeVersion>,
    /// Buckets in which keys were missing.
    pub(crate) buckets: Vec<BucketVersion>,
    pub(crate) writes: Vec<Write>,
    /// The records written.
    pub(crate) written: Filter,
    pub(crate) values: Values,
    /// How many bytes of the values are still wanted when what was written is there at once.
    pub(crate) pinned: usize,
    pub(crate) keys: Vec<u8>,
    /// The value that was read last.
    pub(crate) value: Value,
    /// The key that is looked for.
    pub(crate) key: Vec<u8>,
    /// Where the rows are that were asked for ahead.
    pub(crate) located: Located,
    /// What the row that is written has in its table's indexes.
    pub(crate) entries: RowEntries,
    /// The writes in the order of their records, where it matters.
    pub(crate) order: Vec<(Handle, u32)>,
    /// At how many reads they are looked at again.
    pub(crate) next_check: usize,
    /// What open snapshots need, as of this commit.
    pub(crate) needs: Needs,
    /// Memory for values that have no room where their records are, by the numbers of their writes.
    pub(crate) reserved: Vec<(u32, Reserved)>,
    /// Commits of this state.
    pub(crate) commits: u32,
    /// Whether changes of writes are to be remembered.
    pub(crate) has_savepoint: bool,
    /// The savepoints that the transaction can go back to, in order.
    pub(crate) savepoints: Vec<u64>,
    /// The number of the next savepoint. None is used twice.
    pub(crate) next_savepoint: u64,
    /// What fates writes had before they were changed.
    pub(crate) changes: Vec<(u32, Fate)>,
    /// Writes that were undone, but whose records are there.
    pub(crate) undone: Vec<Write>,
    pub(crate) counters: std::sync::Arc<Counters>,
    /// What was so when the transaction came in (see `gate`).
    pub(crate) terms: u64,
    /// Where it says that it is inside, if it was begun without a closure.
    presence: Option<std::sync::Arc<Presence>>,
    /// Whether it says so now.
    is_alone: bool,
}

/// A row that was read to be changed, and is not among the reads. When that comes to nothing, by an error or a panic, it is.
#[derive(Debug)]
pub(crate) struct Changing<'w, E: Engine> {
    pub(crate) work: &'w mut Work<E>,
    record: Spotted,
}

impl<E: Engine> Changing<'_, E> {
    /// It has been changed, and is to be written.
    #[inline(always)]
    pub(crate) fn done(self) {
        std::mem::forget(self);
    }
}

impl<E: Engine> Drop for Changing<'_, E> {
    #[cold]
    fn drop(&mut self) {
        if let Spotted::Seen(seen) = self.record {
            self.work.reads.push(seen);
        }
    }
}

/// Whether a record may be one of some: most reads are of others, and this says so at once. One record is kept as it is, several have a bit each.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    first: Option<Handle>,
    has_several: bool,
    bits: [u64; FILTER_WORDS],
}

/// So many that of a hundred records seldom two have the same bit.
const FILTER_WORDS: usize = 32;

impl Filter {
    /// The word of a record's bit, and the bit.
    #[inline(always)]
    fn bit(at: Handle) -> (usize, u64) {
        let bit = at.mixed() % (64 * FILTER_WORDS as u64);
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    #[inline(always)]
    pub(crate) fn add(&mut self, at: Handle) {
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
    pub(crate) fn may_have(&self, at: Handle) -> bool {
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

impl<E: Engine> Work<E> {
    pub(crate) fn new(worker: Worker<E>, counters: std::sync::Arc<Counters>) -> Self {
        Self {
            holder: worker.lock_state(),
            worker,
            reads: Vec::new(),
            held: Vec::new(),
            leaves: Vec::new(),
            buckets: Vec::new(),
            writes: Vec::new(),
            written: Filter::default(),
            values: Values::default(),
            pinned: 0,
            keys: Vec::new(),
            value: Value::default(),
            key: Vec::new(),
            located: Located::default(),
            entries: RowEntries::default(),
            order: Vec::new(),
            next_check: FIRST_CHECK,
            needs: Needs::default(),
            reserved: Vec::new(),
            commits: 0,
            has_savepoint: false,
            savepoints: Vec::new(),
            next_savepoint: 0,
            changes: Vec::new(),
            undone: Vec::new(),
            counters,
            terms: 0,
            presence: None,
            is_alone: false,
        }
    }

    /// Says that a transaction without a closure is inside, which this thread has begun.
    pub(crate) fn enter(&mut self, engine: &E, gate: &Gate, who: u64) {
        self.presence.get_or_insert_with(|| gate.presence()).enter(engine, who);
        self.is_alone = true;
    }

    /// Says that it is over, if it was there without a closure.
    #[inline(always)]
    pub(crate) fn leave(&mut self, engine: &E) {
        if self.is_alone {
            self.is_alone = false;
            if let Some(presence) = &self.presence {
                presence.leave(engine);
            }
        }
    }

    /// Forgets everything, for the next transaction.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.reads.clear();
        self.leaves.clear();
        self.buckets.clear();
        if !self.writes.is_empty() {
            self.writes.clear();
            self.written.clear();
        }
        self.values.truncate(0);
        self.keys.clear();
        self.located.clear();
        self.next_check = FIRST_CHECK;
        if self.has_savepoint {
            self.has_savepoint = false;
            self.savepoints.clear();
            self.changes.clear();
            self.undone.clear();
        }
    }

    /// Unlocks what was locked when it was read.
    #[inline(always)]
    pub(crate) fn release(&mut self, records: &Records<'_, E>) {
        if !self.held.is_empty() {
            let holder = self.holder;
            // What was written has been unlocked then, and may be another's by now.
            self.held.drain(..).for_each(|at| records.unlock_if_held(at, holder));
        }
    }

    /// Which write is of this record.
    #[inline(always)]
    pub(crate) fn written_at(&self, at: Handle) -> Option<usize> {
        if self.written.may_have(at) { self.writes.iter().position(|write| write.at == at) } else { None }
    }

    /// Adds a write of a record that none is of yet. One that was read must not be among the reads too: it would be looked at twice.
    #[inline(always)]
    pub(crate) fn add(&mut self, found: Sighting, table: u16, fate: Fate, key: Kept, is_read: bool) {
        self.written.add(found.at);
        self.writes.push(Write { is_read, ..Write::new(found, table, fate, key) });
    }

    /// Takes a record back that was read, if it was read last.
    #[inline(always)]
    pub(crate) fn take_back(&mut self, seen: Sighting) -> bool {
        self.reads.pop_if(|last| *last == seen).is_some()
    }

    /// For the time in which a value is changed by others' code.
    #[inline(always)]
    pub(crate) fn changing(&mut self, record: Spotted) -> Changing<'_, E> {
        Changing { work: self, record }
    }

    /// Adds a write of a record that was made for it.
    #[inline]
    pub(crate) fn add_made(&mut self, made: Sighting, table: u16, fate: Fate, key: Kept) {
        self.written.add(made.at);
        self.writes.push(Write::made(made, table, fate, key));
    }

    /// Takes note of the records of writes that were added by others, from this one on.
    #[inline(always)]
    pub(crate) fn note_writes_from(&mut self, begin: usize) {
        self.writes[begin..].iter().for_each(|write| self.written.add(write.at));
    }

    /// Whether anything was read that is not written.
    #[inline(always)]
    pub(crate) fn has_read(&self) -> bool {
        !(self.reads.is_empty() && self.leaves.is_empty() && self.buckets.is_empty())
    }

    /// How much there is to be looked at again.
    #[inline(always)]
    pub(crate) fn seen(&self) -> usize {
        self.reads.len() + self.writes.len()
    }

    /// Gives a write another fate.
    #[inline]
    pub(crate) fn change(&mut self, write: usize, fate: Fate) {
        if self.has_savepoint {
            self.changes.push((write as u32, self.writes[write].fate));
        }
        self.writes[write].fate = fate;
    }

    /// Recomputes what writes there are, when some are forgotten.
    pub(crate) fn truncate_writes(&mut self, length: usize) {
        self.writes.truncate(length);
        self.written.clear();
        self.note_writes_from(0);
    }

    /// Keeps a key until the transaction ends.
    #[inline(always)]
    pub(crate) fn keep_key<K: Key>(&mut self, key: &K) -> Result<Kept, Error> {
        keep(&mut self.keys, key)
    }

    /// Keeps a value that `encode` appends.
    #[inline(always)]
    pub(crate) fn keep_value(
        &mut self,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<Stretch, Error> {
        let (value, ()) = self.values.append(encode)?;
        Ok(value)
    }

    pub(crate) fn key_of(&self, key: Kept) -> Encoded<'_> {
        encoded(&self.keys, key)
    }

    /// Lets what was seen follow a change of this transaction's own.
    pub(crate) fn follow(leaves: &mut Vec<NodeVersion>, buckets: &mut Vec<BucketVersion>, shift: Shift) {
        match shift {
            Shift::Leaf(change) => change.carry(leaves),
            Shift::Bucket(change) => change.carry(buckets),
        }
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use drtm_htm::NoHtm;
    use drtm_kv::{HashConfig, Placed, Store};

    use super::*;

    #[test]
    fn no_record_is_missed_whether_there_are_none_one_or_many() {
        let store = Store::in_memory(NoHtm, 16 << 20).expect("a store");
        let table = store.hash_table(HashConfig::default()).expect("a table");
        let mut worker = store.worker();
        let mut handle = |key| match table.place(&mut worker, key, b"", |_| ()).expect("room") {
            Placed::Made(seen) | Placed::Found(seen) => seen.at,
        };
        let handles: Vec<Handle> = (0..200).map(&mut handle).collect();
        let mut filter = Filter::default();
        for count in [0, 1, 2, 3, 100, 1, 0] {
            let (added, others) = handles.split_at(count);
            added.iter().for_each(|at| filter.add(*at));
            assert!(added.iter().all(|at| filter.may_have(*at)));
            let mistaken = others.iter().filter(|at| filter.may_have(**at)).count();
            assert!(if count < 2 { mistaken == 0 } else { mistaken < others.len() / 4 }, "{mistaken} with {count}");
            filter.clear();
            assert!(!handles.iter().any(|at| filter.may_have(*at)));
        }
    }
}
