//! Finding a key.

use drtm_htm::{Engine, Waiter, fence_acquire};

use super::{Table, bucket, segments::Bucket};
use crate::{
    KvError,
    keys::Keys,
    mutation::{self, Mutation},
    record::{Look, Record},
};

/// The hash's lowest bits.
#[inline(always)]
pub(super) fn low_bits(hash: u64, bits: u32) -> u64 {
    hash & ((1 << bits) - 1)
}

/// The bucket of a hash in a table of so many buckets.
#[inline(always)]
pub(super) fn guess(hash: u64, buckets: u64) -> u64 {
    let mask = buckets.next_power_of_two() - 1;
    let guess = hash & mask;
    if guess < buckets { guess } else { guess & mask >> 1 }
}

/// The bucket that a bucket was split off.
#[inline(always)]
pub(super) fn parent(bucket: u64) -> u64 {
    bucket ^ 1 << bucket.ilog2()
}

impl<E: Engine> Table<E> {
    /// Where a search for this hash begins: the right bucket, unless the number of buckets has just changed.
    #[inline(always)]
    pub(super) fn first_guess(&self, hash: u64) -> Result<u64, KvError> {
        Ok(guess(hash, self.buckets()?))
    }

    /// An overflow bucket that a link names.
    #[inline(always)]
    pub(super) fn overflow(&self, link: u64) -> Result<&Bucket, KvError> {
        self.overflow.get(self.region(), link)?.ok_or(KvError::TooCrowded)
    }

    /// Looks at the key's record with `look`, as often as it takes for it to be found whole, or found not to be there.
    #[inline(always)]
    pub(super) fn search<K: Keys, T>(
        &self,
        key: K::Key<'_>,
        mut look: impl FnMut(&Record<'_, E>) -> Result<Look<T>, KvError>,
    ) -> Result<Option<T>, KvError> {
        let word = K::word(key);
        let hash = K::hash(word);
        // Straight to the record, as it nearly always goes: no loop, so that operations one after the other overlap.
        if let Ok(Some(main)) = self.main.get(self.region(), self.first_guess(hash)?)
            && let alike = bucket::matches(self.engine(), main, word)
            && alike != 0
            && let Some(place) = bucket::place(self.engine(), main, alike.trailing_zeros() as usize)
            && let Ok(record) = Record::at(self.region(), place)
            && let Ok(Look::Found(found)) = look(&record)
        {
            return Ok(Some(found));
        }
        self.search_thoroughly(word, hash, look)
    }

    #[cold]
    #[inline(never)]
    fn search_thoroughly<T>(
        &self,
        word: u64,
        hash: u64,
        mut look: impl FnMut(&Record<'_, E>) -> Result<Look<T>, KvError>,
    ) -> Result<Option<T>, KvError> {
        let engine = self.engine();
        let waiter = Waiter::new();
        let mut number = self.first_guess(hash)?;
        'again: loop {
            let Some(main) = self.main.get(self.region(), number)? else {
                number = parent(number);
                continue;
            };
            let before = bucket::seen(engine, main);
            let mut current = main;
            loop {
                let mut alike = bucket::matches(engine, current, word);
                while alike != 0 {
                    let slot = alike.trailing_zeros() as usize;
                    alike &= alike - 1;
                    let Some(place) = bucket::place(engine, current, slot) else { continue };
                    match look(&Record::at(self.region(), place)?)? {
                        Look::Found(found) => return Ok(Some(found)),
                        Look::Other => {}
                        Look::Stale | Look::Busy => {
                            waiter.pause();
                            continue 'again;
                        }
                    }
                }
                match bucket::link(engine, current) {
                    0 => break,
                    link => current = self.overflow(link)?,
                }
            }
            // Nothing was found. It is not there if this was the place to look, and stayed as it was.
            fence_acquire();
            match self.right_bucket(main, number, hash) {
                Err(elsewhere) => number = elsewhere,
                Ok(()) if bucket::seen(engine, main).version() == before.version() => return Ok(None),
                Ok(()) => {}
            }
        }
    }

    /// Whether this is the bucket for the hash, or else which to try next.
    #[inline(always)]
    pub(super) fn right_bucket(&self, bucket: &Bucket, number: u64, hash: u64) -> Result<(), u64> {
        match bucket::depth(self.engine(), bucket) {
            _ if mutation::includes(Mutation::AbsenceWithoutDepth) => Ok(()),
            // Not in use yet: its keys are where it will be split off.
            None => Err(parent(number)),
            Some(depth) => match low_bits(hash, depth) {
                right if right == number => Ok(()),
                right => Err(right),
            },
        }
    }
}
