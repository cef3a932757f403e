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
        let mut rows = Rows::default();
        let buckets = self.buckets()?;
        for first in 0..buckets {
            let mut waiting = vec![first];
            while let Some(number) = waiting.pop() {
                let depth = self.rows_of::<K>(number, &mut rows)?;
                // What has been split off since; what was split off before is a class of its own.
                let bits = self.numbering.first_depth(number)..depth;
                waiting.extend(bits.map(|bit| self.numbering.child(number, bit)).filter(|split| *split >= buckets));
                rows.visit(&mut visit);
            }
        }
        Ok(())
    }

    /// Copies a bucket's rows, of the keys that it had at one moment, and gives its depth then. All before one is visited: a record that has
    /// left its memory meanwhile may be a key's that is still there, elsewhere, and then the bucket is asked again.
    fn rows_of<K: Keys>(&self, number: u64, rows: &mut Rows) -> Result<u32, KvError> {
        let waiter = Waiter::new();
        'again: loop {
            rows.clear();
            let (keys, depth) = self.keys_of(number)?;
            for (word, place) in keys {
                if self.numbering.bucket(K::hash(word), depth) != number {
                    continue;
                }
                match Record::at(self.region(), place)?.copy::<K>(word, &mut rows.value)? {
                    Look::Found(version) => rows.keep(word, version),
                    Look::Absent => {}
                    Look::Stale | Look::Other | Look::Busy => {
                        waiter.pause();
                        continue 'again;
                    }
                }
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
