//! What one transaction knows while it runs. Kept for the next one on the same thread, so that nothing is allocated once it has grown to its size.

use std::ops::Range;

use drtm_htm::Engine;
use drtm_kv::{BucketVersion, Handle, NodeVersion, Records, Room, Sighting, State, Version, Worker};

use crate::{
    Error, Key,
    gate::{Gate, Presence},
    index::{Encoded, Shift},
    secondary::RowEntries,
    snapshots::Needs,
    stats::Counters,
};

/// What becomes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It gets this value, which is among the transaction's.
    Put { start: u32, length: u32 },
    /// It gets this value, which its record, made by this transaction, has already.
    Fresh { start: u32, length: u32 },
    /// It goes.
    Remove,
}

/// A key that a transaction keeps: itself, or where it is among its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kept {
    Word(u64),
    Bytes { start: u32, length: u32 },
}

/// A row that the transaction writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub(crate) at: Handle,
    pub(crate) table: u16,
    pub(crate) fate: Fate,
    /// The version in which this transaction has made the record, if it did.
    pub(crate) made: Option<Version>,
    pub(crate) key: Kept,
    /// The version that it had when it was found.
    pub(crate) seen: Version,
    /// The version that it had when it was locked.
    pub(crate) before: Version,
    /// Whether the new value has room where the record is.
    pub(crate) has_room: bool,
    /// Whether the record has older versions.
    pub(crate) has_past: bool,
}

/// A value that was read. Its memory only grows, so that nothing is cleared to be written over.
#[derive(Debug, Default)]
pub(crate) struct Value {
    bytes: Vec<u8>,
    length: usize,
}

impl Value {
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Room for Value {
    #[inline(always)]
    fn of(&mut self, length: usize) -> &mut [u8] {
        self.length = length;
        if self.bytes.len() < length {
            self.bytes.resize(length, 0);
        }
        &mut self.bytes[..length]
    }
}

/// Which of so many bits may be set for each record that is written.
const FILTER_BITS: u64 = 512;

/// The most bytes of keys, or of values, that one transaction can write.
pub(crate) const MOST_BYTES: usize = u32::MAX as usize;

/// How many reads there are when they are looked at again for the first time.
const FIRST_CHECK: usize = 64;

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
    /// A bit for each of the records written: most reads are of others, and this says so at once.
    pub(crate) written: [u64; (FILTER_BITS / 64) as usize],
    pub(crate) values: Vec<u8>,
    pub(crate) keys: Vec<u8>,
    /// The value that was read last.
    pub(crate) value: Value,
    /// The key that is looked for.
    pub(crate) key: Vec<u8>,
    /// What the row that is written has in its table's indexes.
    pub(crate) entries: RowEntries,
    /// The writes in the order of their records, while a commit goes on.
    pub(crate) order: Vec<(Handle, u32)>,
    /// At how many reads they are looked at again.
    pub(crate) next_check: usize,
    /// What open snapshots need, as of this commit.
    pub(crate) needs: Needs,
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

/// The word of a record's bit in the filter, and the bit.
#[inline(always)]
fn bit(at: Handle) -> (usize, u64) {
    let bit = at.mixed() % FILTER_BITS;
    ((bit / 64) as usize, 1 << (bit % 64))
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
            written: [0; (FILTER_BITS / 64) as usize],
            values: Vec::new(),
            keys: Vec::new(),
            value: Value::default(),
            key: Vec::new(),
            entries: RowEntries::default(),
            order: Vec::new(),
            next_check: FIRST_CHECK,
            needs: Needs::default(),
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
        self.writes.clear();
        self.written = [0; (FILTER_BITS / 64) as usize];
        self.values.clear();
        self.keys.clear();
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
        let (word, bit) = bit(at);
        if self.written[word] & bit == 0 { None } else { self.writes.iter().position(|write| write.at == at) }
    }

    /// Adds a write of a record that none is of yet.
    #[inline]
    pub(crate) fn add(&mut self, found: Sighting, table: u16, fate: Fate, made: Option<Version>, key: Kept) {
        let Sighting { at, version: seen } = found;
        let (word, bit) = bit(at);
        self.written[word] |= bit;
        self.writes.push(Write {
            at,
            table,
            fate,
            made,
            key,
            seen,
            before: Version::default(),
            has_room: true,
            has_past: false,
        });
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
        self.written = [0; (FILTER_BITS / 64) as usize];
        for write in &self.writes {
            let (word, bit) = bit(write.at);
            self.written[word] |= bit;
        }
    }

    /// Keeps a key until the transaction ends.
    #[inline(always)]
    pub(crate) fn keep_key<K: Key>(&mut self, key: &K) -> Result<Kept, Error> {
        keep(&mut self.keys, key)
    }

    /// Keeps a value that `encode` appends.
    #[inline(always)]
    pub(crate) fn keep_value(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>) -> Result<Fate, Error> {
        let range = append(&mut self.values, encode)?;
        Ok(Fate::Put { start: range.start, length: range.end - range.start })
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

/// Keeps a key among these bytes, if it is not itself a word.
#[inline(always)]
pub(crate) fn keep<K: Key>(keys: &mut Vec<u8>, key: &K) -> Result<Kept, Error> {
    if K::FITS {
        return Ok(Kept::Word(key.word()));
    }
    let range = append(keys, |keys| {
        key.write(keys, true);
        Ok(())
    })?;
    Ok(Kept::Bytes { start: range.start, length: range.end - range.start })
}

/// A key that was kept among these bytes.
#[inline(always)]
pub(crate) fn encoded(keys: &[u8], key: Kept) -> Encoded<'_> {
    match key {
        Kept::Word(word) => Encoded::Word(word),
        Kept::Bytes { start, length } => Encoded::Bytes(slice(keys, start, length)),
    }
}

/// A part of what a transaction keeps.
#[inline(always)]
pub(crate) fn slice(bytes: &[u8], start: u32, length: u32) -> &[u8] {
    let start = start as usize;
    bytes.get(start..start + length as usize).unwrap_or(&[])
}

/// Appends something, and tells where it is; nothing is appended if that fails.
#[inline(always)]
fn append(to: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>) -> Result<Range<u32>, Error> {
    let start = to.len();
    if let Err(error) = write(to) {
        to.truncate(start);
        return Err(error);
    }
    match u32::try_from(to.len()) {
        Ok(end) => Ok(start as u32..end),
        Err(_) => {
            let bytes = to.len();
            to.truncate(start);
            Err(Error::TooLarge { bytes, most: MOST_BYTES })
        }
    }
}
