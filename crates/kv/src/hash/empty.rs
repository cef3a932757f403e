//! Removing all keys at once.

use drtm_htm::{Engine, Waiter};

use super::{HashTable, Table, bucket};
use crate::{
    Emptied, KvError, Version, Worker,
    record::keys::Keys,
    store::{Census, Entry, layout::SLOTS},
};

impl<E: Engine, K: Keys> HashTable<E, K> {
    /// Removes all keys, whose versions are up to `last`. Visits all buckets, and few records: most
    /// memory is freed by whole spans, once no operation can refer to it.
    ///
    /// No other operation on the table may be running, except [visits](crate::Store::visit), and
    /// those that take out absent rows or move records. No record may have older versions.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{HashConfig, KvTable, Store, Version};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
    /// (0..1_000).try_for_each(|key| table.insert(&mut worker, key, b"value").map(drop))?;
    /// let emptied = table.empty(&mut worker, Version::new(10_000))?;
    /// assert_eq!((emptied.records, table.count()?), (1_000, 0));
    /// let again = table.insert(&mut worker, 7, b"again")?.expect("it is new");
    /// assert!(again > Version::new(10_000));
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    pub fn empty(&self, worker: &mut Worker<E>, last: Version) -> Result<Emptied, KvError> {
        let table = &*self.table;
        table.base.raise_floor(last)?;
        let mut census = Census::begin(worker);
        let buckets = table.buckets()?;
        (0..buckets).try_for_each(|number| table.count_chain(number, &mut census))?;
        census.decide();
        for number in 0..buckets {
            let waiter = Waiter::new();
            while !table.empty_chain::<K>(number, worker, &mut census)? {
                waiter.pause();
            }
        }
        let emptied = census.end();
        table.base.count(worker, (emptied.records as i64).wrapping_neg())?;
        Ok(emptied)
    }
}

impl<E: Engine> Table<E> {
    /// Counts the records of a chain. It is not locked: an entry that is removed meanwhile may be
    /// counted, and its span does not leave as a whole then.
    fn count_chain(&self, number: u64, census: &mut Census<E>) -> Result<(), KvError> {
        for bucket in self.chain(self.main_bucket(number)?) {
            let bucket = bucket?;
            let places = (0..SLOTS).filter_map(|slot| bucket::place(self.engine(), bucket, slot));
            places.for_each(|place| census.count(place));
        }
        Ok(())
    }

    /// Takes the records out of a chain, under its lock. Returns whether there are no others: a
    /// record that is locked stays for now.
    fn empty_chain<K: Keys>(
        &self,
        number: u64,
        worker: &mut Worker<E>,
        census: &mut Census<E>,
    ) -> Result<bool, KvError> {
        let (engine, main) = (self.engine(), self.main_bucket(number)?);
        let waiter = Waiter::new();
        while !bucket::try_lock(engine, main, bucket::seen(engine, main)) {
            waiter.pause();
        }
        let mut is_empty = true;
        let taken_out = self.chain(main).try_for_each(|bucket| {
            let bucket = bucket?;
            for slot in 0..SLOTS {
                let Some(place) = bucket::place(engine, bucket, slot) else { continue };
                match census.take_out::<K>(worker, place)? {
                    Entry::Removed => bucket::clear(engine, bucket, slot),
                    Entry::Busy => is_empty = false,
                }
            }
            Ok(())
        });
        let unlinked = taken_out.and_then(|()| self.unlink_empty(main));
        self.release(main);
        census.free(worker);
        self.free_overflows(unlinked?);
        Ok(is_empty)
    }
}
