//! Visiting every key.
//!
//! Keys are visited class by class: those that would be in one bucket if the table had as many as at the beginning. A class stays together in buckets that are split off
//! one another, whatever grows meanwhile.

use drtm_htm::{Engine, Waiter, fence_acquire};

use super::{HashTable, Table, bucket};
use crate::{
    Current, KvError, Version,
    keys::Keys,
    layout::{Place, SLOTS, key_word},
    record::{KeyInto, KeyWord, Look, Record},
    room::Nowhere,
};

/// Where a visit of a table's keys has come to.
///
/// # Example
///
/// See [`HashTable::advance`].
#[derive(Debug)]
pub struct Sweep {
    next: u64,
    /// How many buckets there were at the beginning, and so how many classes there are.
    classes: u64,
    key: Vec<u8>,
}

impl<E: Engine, K: Keys> HashTable<E, K> {
    /// The beginning of a visit of all keys.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// See [`advance`](Self::advance).
    pub fn sweep(&self) -> Result<Sweep, KvError> {
        Ok(Sweep { next: 0, classes: self.table.buckets()?, key: Vec::new() })
    }

    /// Visits some more keys, and says whether there may be others. A key is visited if it has a record, be it that the record says that the key is not there. One that has a record
    /// all the while is visited once; one that comes or goes meanwhile may be or not.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{Bytes, HashConfig, KvError, KvTable, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table_of::<Bytes>(HashConfig::default())?, store.worker()?);
    /// table.insert(&mut worker, b"ann", b"1")?;
    /// table.insert(&mut worker, b"bob", b"2")?;
    /// let (mut sweep, mut keys) = (table.sweep()?, Vec::new());
    /// while table.advance(&mut sweep, |key| keys.push(key.to_vec()))? {}
    /// keys.sort();
    /// assert_eq!(keys, [b"ann", b"bob"]);
    /// # Ok::<(), KvError>(())
    /// ```
    pub fn advance(&self, sweep: &mut Sweep, mut visit: impl FnMut(K::Key<'_>)) -> Result<bool, KvError> {
        let Sweep { next, classes, key } = sweep;
        if next == classes {
            return Ok(false);
        }
        let (mut keys, mut lengths) = (Vec::new(), Vec::new());
        self.table.for_class(*next, *classes, |number| {
            let depth = self.table.names_of::<K>(number, key, &mut keys, &mut lengths)?;
            let mut rest = &keys[..];
            for length in &lengths {
                let (name, others) = rest.split_at(*length);
                K::from_bytes(name).map(&mut visit);
                rest = others;
            }
            Ok(depth)
        })?;
        *next += 1;
        Ok(next < classes)
    }
}

impl<E: Engine> Table<E> {
    pub(super) fn for_each<K: Keys>(&self, mut visit: impl FnMut(u64, &[u8], Version)) -> Result<(), KvError> {
        let mut rows = Rows::default();
        let classes = self.buckets()?;
        (0..classes).try_for_each(|first| {
            self.for_class(first, classes, |number| {
                let depth = self.rows_of::<K>(number, &mut rows)?;
                rows.visit(&mut visit);
                Ok(depth)
            })
        })
    }

    /// Calls `each` for every bucket of a class. It gives the depth that the bucket has had.
    fn for_class(
        &self,
        first: u64,
        classes: u64,
        mut each: impl FnMut(u64) -> Result<u32, KvError>,
    ) -> Result<(), KvError> {
        let mut waiting = vec![first];
        while let Some(number) = waiting.pop() {
            let depth = each(number)?;
            // What has been split off since; what was split off before is a class of its own.
            let bits = self.numbering.first_depth(number)..depth;
            waiting.extend(bits.map(|bit| self.numbering.child(number, bit)).filter(|split| *split >= classes));
        }
        Ok(())
    }

    /// Copies the keys that a bucket had at one moment, one behind the other, and gives its depth then.
    fn names_of<K: Keys>(
        &self,
        number: u64,
        key: &mut Vec<u8>,
        keys: &mut Vec<u8>,
        lengths: &mut Vec<usize>,
    ) -> Result<u32, KvError> {
        let waiter = Waiter::new();
        'again: loop {
            keys.clear();
            lengths.clear();
            let since = self.turn();
            let (words, depth) = self.keys_of(number)?;
            for (word, place) in words {
                if self.numbering.bucket(K::hash(word), depth) != number {
                    continue;
                }
                if K::FITS {
                    key.clear();
                    key.extend(word.to_le_bytes());
                } else if !matches!(
                    Record::at(self.region(), place)?.read::<K, _>(KeyInto(key), &mut Current, &mut Nowhere)?,
                    Look::Found(_)
                ) {
                    // It has moved, perhaps.
                    waiter.pause();
                    continue 'again;
                }
                keys.extend_from_slice(key);
                lengths.push(key.len());
            }
            if !self.is_within(since) {
                continue;
            }
            return Ok(depth);
        }
    }

    /// Copies a bucket's rows, of the keys that it had at one moment, and gives its depth then. All before one is visited: a record that has
    /// left its memory meanwhile may be a key's that is still there, elsewhere, and then the bucket is asked again.
    fn rows_of<K: Keys>(&self, number: u64, rows: &mut Rows) -> Result<u32, KvError> {
        let waiter = Waiter::new();
        'again: loop {
            rows.clear();
            let since = self.turn();
            let (keys, depth) = self.keys_of(number)?;
            for (word, place) in keys {
                if self.numbering.bucket(K::hash(word), depth) != number {
                    continue;
                }
                let record = Record::at(self.region(), place)?;
                match record.read::<K, _>(KeyWord(word), &mut Current, &mut rows.value)? {
                    Look::Found(found) if found.is_present() => rows.keep(word, found.version),
                    Look::Found(_) => {}
                    Look::Absent | Look::Stale | Look::Other | Look::Busy => {
                        waiter.pause();
                        continue 'again;
                    }
                }
            }
            if !self.is_within(since) {
                continue;
            }
            return Ok(depth);
        }
    }

    /// A bucket's keys and depth at one moment.
    fn keys_of(&self, number: u64) -> Result<(Vec<(u64, Place)>, u32), KvError> {
        let engine = self.engine();
        let main = self.main_bucket(number)?;
        let waiter = Waiter::new();
        loop {
            let before = bucket::seen(engine, main);
            let mut keys = Vec::new();
            for bucket in self.chain(main)? {
                for slot in 0..SLOTS {
                    let word = engine.load_relaxed(&bucket[key_word(slot)]);
                    keys.extend(bucket::place(engine, bucket, slot).map(|place| (word, place)));
                }
            }
            let depth = bucket::depth(engine, main);
            fence_acquire();
            let after = bucket::seen(engine, main);
            if let Some(depth) = depth
                && before.version() == after.version()
                && !before.is_locked()
                // The version is one on only when a change is done, and half of a place may be the change's.
                && !after.is_locked()
            {
                return Ok((keys, depth));
            }
            waiter.pause();
        }
    }
}

/// Copies of rows, their values one behind the other.
#[derive(Debug, Default)]
struct Rows {
    rows: Vec<(u64, Version, usize)>,
    values: Vec<u8>,
    /// The value that is being copied.
    value: Vec<u8>,
}

impl Rows {
    fn clear(&mut self) {
        self.rows.clear();
        self.values.clear();
    }

    fn keep(&mut self, word: u64, version: Version) {
        self.rows.push((word, version, self.value.len()));
        self.values.extend_from_slice(&self.value);
    }

    fn visit(&self, visit: &mut impl FnMut(u64, &[u8], Version)) {
        let mut rest = &self.values[..];
        for (word, version, length) in &self.rows {
            let (value, others) = rest.split_at(*length);
            visit(*word, value, *version);
            rest = others;
        }
    }
}
