//! Visiting every key.
//!
//! Keys are visited class by class: those that would be in one bucket if the table had as many as
//! at the beginning. A class stays together in buckets that are split off one another, whatever
//! grows meanwhile.

use drtm_htm::{Engine, Waiter, fence_acquire};
use smallvec::SmallVec;

use super::{BucketVersion, HashTable, Table, bucket};
use crate::{
    Current, KvError,
    keys::Keys,
    layout::{Place, SLOTS, key_word},
    record::{KeyInto, Look, Record},
    value_sink::NoValue,
};

/// A key's bytes, most often without an allocation.
type Name = SmallVec<[u8; 16]>;

/// What a bucket had at one moment.
struct Contents<T> {
    keys: Vec<T>,
    depth: u32,
    seen: bucket::Seen,
}

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
        Ok(Sweep { next: 0, classes: self.table.buckets()? })
    }

    /// Visits some more keys, and says whether there may be others. A key is visited if it has a
    /// record, be it that the record says that the key is not there. One that has a record all the
    /// while is visited once; one that comes or goes meanwhile may be or not.
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
    pub fn advance(&self, sweep: &mut Sweep, visit: impl FnMut(K::Key<'_>)) -> Result<bool, KvError> {
        self.advance_guarded(sweep, |_| (), visit)
    }

    /// As [`advance`](Self::advance). Calls `guard` for each bucket that was looked at: it is
    /// unchanged as long as no other key has come into it.
    ///
    /// # Errors
    ///
    /// As for [`advance`](Self::advance).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{HashConfig, KvError, KvTable, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
    /// table.insert(&mut worker, 7, b"seven")?;
    /// let (mut sweep, mut guards, mut keys) = (table.sweep()?, Vec::new(), Vec::new());
    /// while table.advance_guarded(&mut sweep, |guard| guards.push(guard), |key| keys.push(key))? {}
    /// assert!(keys == [7] && guards.iter().all(|guard| store.records().is_unchanged(guard)));
    /// table.insert(&mut worker, 8, b"eight")?;
    /// assert!(!guards.iter().all(|guard| store.records().is_unchanged(guard)));
    /// # Ok::<(), KvError>(())
    /// ```
    pub fn advance_guarded(
        &self,
        sweep: &mut Sweep,
        mut guard: impl FnMut(BucketVersion),
        mut visit: impl FnMut(K::Key<'_>),
    ) -> Result<bool, KvError> {
        let Sweep { next, classes } = sweep;
        if next == classes {
            return Ok(false);
        }
        self.table.for_class(*next, *classes, |number| {
            let Contents { keys, depth, seen } = self.table.names_of::<K>(number)?;
            guard(self.table.bucket_version(number, seen));
            keys.iter().filter_map(|name| K::from_bytes(name)).for_each(&mut visit);
            Ok(depth)
        })?;
        *next += 1;
        Ok(next < classes)
    }
}

impl<E: Engine> Table<E> {
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

    /// Copies the keys that a bucket had.
    fn names_of<K: Keys>(&self, number: u64) -> Result<Contents<Name>, KvError> {
        let (waiter, mut key) = (Waiter::new(), Vec::new());
        'again: loop {
            let (mut names, since) = (Vec::new(), self.turn());
            let Contents { keys: words, depth, seen } = self.keys_of(number)?;
            for (word, place) in words {
                if self.numbering.bucket(K::hash(word), depth) != number {
                    continue;
                }
                if K::FITS {
                    names.push(Name::from_slice(&word.to_le_bytes()));
                    continue;
                }
                let record = Record::at(self.region(), place)?;
                let Look::Found(_) = record.read::<K, _>(KeyInto(&mut key), &mut Current, &mut NoValue)? else {
                    // It has moved, perhaps.
                    waiter.pause();
                    continue 'again;
                };
                names.push(Name::from_slice(&key));
            }
            if !self.is_within(since) {
                continue;
            }
            return Ok(Contents { keys: names, depth, seen });
        }
    }

    /// A bucket's keys, as words, and where their records are.
    fn keys_of(&self, number: u64) -> Result<Contents<(u64, Place)>, KvError> {
        let engine = self.engine();
        let main = self.main_bucket(number)?;
        let waiter = Waiter::new();
        loop {
            let before = bucket::seen(engine, main);
            let mut keys = Vec::new();
            for bucket in self.chain(main) {
                let bucket = bucket?;
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
                // The version is one on only when a change is done, and half of a place may be the
                // change's.
                && !after.is_locked()
            {
                return Ok(Contents { keys, depth, seen: before });
            }
            waiter.pause();
        }
    }
}
