//! Visiting every key.

use drtm_htm::{Engine, Waiter, fence_acquire};

use super::{Table, bucket};
use crate::{
    KvError, Version,
    keys::Keys,
    layout::{Place, SLOTS, key_word},
    record::{Look, Record},
};

impl<E: Engine> Table<E> {
    /// Visits the keys class by class: those that would be in one bucket if the table had as many as now. A class stays together
    /// in buckets that are split off one another, whatever grows meanwhile.
    pub(super) fn for_each<K: Keys>(&self, mut visit: impl FnMut(u64, &[u8], Version)) -> Result<(), KvError> {
        let mut value = Vec::new();
        let buckets = self.buckets()?;
        for first in 0..buckets {
            let mut waiting = vec![first];
            while let Some(number) = waiting.pop() {
                let (keys, depth) = self.keys_of(number)?;
                // What has been split off since; what was split off before is a class of its own.
                let bits = self.numbering.first_depth(number)..depth;
                waiting.extend(bits.map(|bit| self.numbering.child(number, bit)).filter(|split| *split >= buckets));
                for (word, place) in keys {
                    if self.numbering.bucket(K::hash(word), depth) == number
                        && let Some(version) = self.copy::<K>(place, word, &mut value)?
                    {
                        visit(word, &value, version);
                    }
                }
            }
        }
        Ok(())
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
            {
                return Ok((keys, depth));
            }
            waiter.pause();
        }
    }

    /// Copies a record's value; `None` if the record is gone.
    fn copy<K: Keys>(&self, place: Place, word: u64, value: &mut Vec<u8>) -> Result<Option<Version>, KvError> {
        let record = Record::at(self.region(), place)?;
        let waiter = Waiter::new();
        loop {
            match record.copy::<K>(word, value)? {
                Look::Found(version) => return Ok(Some(version)),
                Look::Stale | Look::Other => return Ok(None),
                Look::Busy => waiter.pause(),
            }
        }
    }
}
