//! Visiting every key.
//!
//! Keys are visited class by class. A class has the keys that would share a bucket if the table
//! still had as many buckets as at the beginning. A class stays in buckets that are split off from
//! one another, however the table grows meanwhile.

use drtm_htm::{Engine, Waiter, fence_acquire};
use smallvec::SmallVec;

use super::{BucketVersion, HashTable, Table, bucket};
use crate::{
    Current, KvError,
    record::{KeyInto, Look, Record, keys::Keys, value_sink::NoValue},
    store::layout::{Place, SLOTS, key_word},
};

/// A key's bytes, usually without an allocation.
type Name = SmallVec<[u8; 16]>;

/// The contents of a bucket at one moment.
struct Contents<T> {
    keys: Vec<T>,
    depth: u32,
    seen: bucket::Seen,
}

/// The progress of a visit of a table's keys.
///
/// # Example
///
/// See [`HashTable::advance`].
#[derive(Debug)]
pub struct Sweep {
    next: u64,
    /// The number of buckets at the beginning, which is the number of classes.
    classes: u64,
}

impl Sweep {
    /// Returns how far it is: the next class, and the number of classes. With these another sweep
    /// [continues](HashTable::sweep_at).
    ///
    /// # Example
    ///
    /// See [`HashTable::sweep_at`].
    #[must_use]
    pub fn position(&self) -> (u64, u64) {
        (self.next, self.classes)
    }
}

impl<E: Engine, K: Keys> HashTable<E, K> {
    /// Continues a visit at the [position](Sweep::position) of another sweep. Returns `None` if no
    /// sweep of this table can be there.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{HashConfig, KvError, KvTable, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
    /// (0..100).try_for_each(|key| table.insert(&mut worker, key, b"row").map(drop))?;
    /// let (mut keys, mut position) = (Vec::new(), table.sweep()?.position());
    /// loop {
    ///     let mut sweep = table.sweep_at(position)?.expect("it is one of this table");
    ///     let has_more = table.advance(&mut sweep, |key| keys.push(key))?;
    ///     position = sweep.position();
    ///     if !has_more {
    ///         break;
    ///     }
    /// }
    /// keys.sort_unstable();
    /// assert!(keys.into_iter().eq(0..100));
    /// assert!(table.sweep_at((0, u64::MAX))?.is_none());
    /// # Ok::<(), KvError>(())
    /// ```
    pub fn sweep_at(&self, (next, classes): (u64, u64)) -> Result<Option<Sweep>, KvError> {
        let is_possible = next < classes && classes <= self.table.buckets()?;
        Ok(is_possible.then_some(Sweep { next, classes }))
    }

    /// Begins a visit of all keys.
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

    /// Visits some more keys. Returns whether there may be others. A key is visited if it has a
    /// record, also if the record says that the key is absent. A key that has a record during the
    /// whole visit is visited once. A key that is inserted or removed meanwhile may be visited or
    /// not.
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

    /// Like [`advance`](Self::advance), but also calls `guard` for each bucket that was read. A
    /// guard is unchanged as long as no other key is inserted into its bucket.
    ///
    /// # Errors
    ///
    /// Like [`advance`](Self::advance).
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
    /// Calls `each` for every bucket of a class. It returns the bucket's depth.
    fn for_class(
        &self,
        first: u64,
        classes: u64,
        mut each: impl FnMut(u64) -> Result<u32, KvError>,
    ) -> Result<(), KvError> {
        let mut waiting = vec![first];
        while let Some(number) = waiting.pop() {
            let depth = each(number)?;
            // These were split off since. Those that were split off before are in classes of their
            // own.
            let bits = self.numbering.first_depth(number)..depth;
            waiting.extend(bits.map(|bit| self.numbering.child(number, bit)).filter(|split| *split >= classes));
        }
        Ok(())
    }

    /// Copies the keys of a bucket.
    #[inline(never)]
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
                    // The record may have moved.
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

    /// Returns a bucket's key words, and the places of the records.
    #[inline(never)]
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
                // The version is only incremented when a change completes. A place may be half
                // changed before.
                && !after.is_locked()
            {
                return Ok(Contents { keys, depth, seen: before });
            }
            waiter.pause();
        }
    }
}
