//! Growing by one bucket at a time.

use drtm_htm::Engine;

use super::{
    BucketChange, Table, bucket, header,
    segments::{self, Bucket},
};
use crate::{
    KvError,
    mutation::{self, Mutation},
    record::keys::Keys,
    store::{
        bounds::TURN,
        layout::{SLOTS, key_word},
    },
};

impl<E: Engine> Table<E> {
    /// Makes the first `count` buckets of a new table.
    pub(super) fn make_buckets(&self, count: u64) -> Result<(), KvError> {
        for number in 0..count {
            self.main.ensure(&self.base.store, number)?;
            let bucket = self.main_bucket(number)?;
            bucket::set_depth(self.engine(), bucket, 0);
        }
        Ok(())
    }

    /// Returns a bucket that has been counted, and so exists.
    pub(super) fn main_bucket(&self, number: u64) -> Result<&Bucket, KvError> {
        self.main.get(self.region(), number)?.ok_or(KvError::NoBucket { bucket: number })
    }

    /// Adds buckets if the table has too many keys, and this shard's count has reached a multiple
    /// of [`TURN`].
    pub(super) fn grow_if_full<K: Keys>(&self, counted: i64, note: impl FnMut(BucketChange)) -> Result<(), KvError> {
        match self.grows_at {
            Some(keys_per_bucket) if counted % TURN == 0 => self.grow::<K>(keys_per_bucket, note),
            _ => Ok(()),
        }
    }

    /// Adds buckets until there are at most `keys_per_bucket` keys per bucket. Without memory,
    /// chains get longer instead, and the inserted key stays.
    #[cold]
    fn grow<K: Keys>(&self, keys_per_bucket: f64, mut note: impl FnMut(BucketChange)) -> Result<(), KvError> {
        let keys = self.base.keys()? as f64;
        while keys > self.buckets()? as f64 * keys_per_bucket {
            match self.split::<K>() {
                Ok(Some(change)) => note(change),
                Ok(None) | Err(KvError::Full(_)) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Splits the next bucket. `None`: the bucket is locked, another thread has just split it, or
    /// the maximum number of buckets is reached.
    #[inline(never)]
    pub(super) fn split<K: Keys>(&self) -> Result<Option<BucketChange>, KvError> {
        let engine = self.engine();
        let buckets = self.base.word(header::BUCKETS)?;
        let number = engine.load(buckets);
        if number >= segments::MOST {
            return Ok(None);
        }
        if self.main.ensure(&self.base.store, number)? {
            #[cfg(feature = "tracing")]
            tracing::debug!(target: "drtm", buckets = number, keys = self.base.keys()?, "a hash table takes memory for more buckets");
        }
        let parent = self.split_off(number)?;
        let (new, old) = (self.main_bucket(number)?, self.main_bucket(parent)?);
        let (seen, fresh) = (bucket::seen(engine, old), bucket::seen(engine, new));
        if !bucket::try_lock(engine, old, seen) {
            return Ok(None);
        }
        let divided = if engine.load(buckets) == number {
            self.divide::<K>(old, new, self.numbering.first_depth(number)).map(Some)
        } else {
            // Another thread has just split it.
            Ok(None)
        };
        match divided {
            Ok(Some(_)) => {
                engine.store(buckets, number + 1);
                self.release(old);
            }
            Ok(None) | Err(KvError::Full(_) | KvError::Region(_)) => bucket::release_unchanged(engine, old),
            Err(_) => self.release(old),
        }
        let Some(emptied) = divided? else { return Ok(None) };
        self.free_overflows(emptied);
        // Any insertion into the new bucket from now on changes its version.
        let split_off = Some(self.bucket_version(number, fresh));
        let before = self.bucket_version(parent, seen);
        Ok(Some(BucketChange { before, after: before.next(), split_off }))
    }

    /// Moves the keys selected by the hash's next bit from `old`, which is locked, to `new`, which
    /// is not in use yet. Both have the new depth afterwards. Returns the links of overflow buckets
    /// that have become empty.
    #[inline(never)]
    fn divide<K: Keys>(&self, old: &Bucket, new: &Bucket, depth: u32) -> Result<Vec<u64>, KvError> {
        let engine = self.engine();
        let moves = |key: u64| K::hash(key) >> (depth - 1) & 1 != 0;
        let mut moving = Vec::new();
        for bucket in self.chain(old) {
            let bucket = bucket?;
            for slot in 0..SLOTS {
                let key = engine.load(&bucket[key_word(slot)]);
                let place = bucket::place(engine, bucket, slot).filter(|_| moves(key));
                moving.extend(place.map(|place| (bucket, slot, key, place)));
            }
        }

        // Everything that can fail comes first.
        let mut links = Vec::new();
        for _ in 1..moving.len().div_ceil(SLOTS) {
            match self.new_overflow() {
                Ok(link) => links.push(link),
                Err(error) => {
                    self.free_overflows(links);
                    return Err(error);
                }
            }
        }
        let (mut to, mut free) = (new, bucket::ALL_SLOTS);
        for (index, (_, _, key, place)) in moving.iter().copied().enumerate() {
            if index > 0 && index % SLOTS == 0 {
                let link = links[index / SLOTS - 1];
                bucket::set_link(engine, to, link);
                (to, free) = (self.overflow(link)?, bucket::ALL_SLOTS);
            }
            let line = self.line_of::<K>(key);
            let slot = bucket::first_of(free, line);
            free &= !(1 << slot);
            bucket::fill(engine, to, slot, key, place);
        }
        let drop_moving = || moving.iter().for_each(|(bucket, slot, ..)| bucket::clear(engine, bucket, *slot));
        if mutation::includes(Mutation::SplitDropsKeysFirst) {
            drop_moving();
        }
        // The order matters: the keys are valid in the new bucket, the old bucket declares the
        // split, then it drops the keys.
        bucket::set_depth(engine, new, depth);
        bucket::set_depth(engine, old, depth);
        drop_moving();
        self.unlink_empty(old)
    }
}
