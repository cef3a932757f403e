//! Looking up a key.

use drtm_htm::{Engine, LINE_WORDS, fence_acquire};
use drtm_rdma::{OutOfBounds, Region};

use super::{
    BucketHint, BucketVersion, Table, Whereabouts,
    bucket::{self, SeenSlot},
    segments::Bucket,
};
use crate::{
    Handle, Holder, KvError, Version, Visibility,
    mutation::{self, Mutation},
    record::{Look, PrefetchMask, Record, Shape, WholeKey, keys::Keys, value_sink::ValueSink},
    store::layout::{Bits, LINE_SLOTS, Place, SLOTS, meta_word},
};

/// The outcome of the fast path.
pub(super) enum Located<'t, E: Engine> {
    /// The record that the key's slot seems to lead to.
    Record(SeenSlot<'t>, Record<'t, E>),
    /// The key has no record for as long as this bucket is unchanged.
    Absent(BucketVersion),
}

impl<E: Engine> Table<E> {
    /// Returns the bucket at which a search for this hash begins. It is the right one, unless the
    /// number of buckets has just changed.
    pub(super) fn first_guess(&self, hash: u64) -> Result<u64, KvError> {
        self.hint.set(self.buckets()?);
        Ok(self.hint.guess(hash))
    }

    /// Returns the overflow bucket of a link.
    #[inline(always)]
    pub(super) fn overflow(&self, link: u64) -> Result<&Bucket, KvError> {
        self.overflow.get(self.region(), link)?.ok_or(KvError::NoBucket { bucket: link })
    }

    /// Returns a key's record by the fast path: once, without a loop, so that the processor
    /// overlaps successive operations. `None`: the slow path must decide.
    ///
    /// The record is the key's if the [`SeenSlot`] still holds after the caller has used the
    /// record.
    #[inline(always)]
    pub(super) fn try_locate<K: Keys>(&self, key: K::Key<'_>) -> Option<Located<'_, E>> {
        let engine = self.engine();
        let word = K::word(key);
        let (hash, guess) = (K::hash(word), self.hint.now());
        let number = guess.bucket(hash);
        let main = self.main.try_get(self.region(), number)?;
        let seen = bucket::seen(engine, main);
        let (bucket, slot) = match bucket::first_match_from(engine, main, guess.line(hash), word) {
            SLOTS if bucket::link(engine, main) == 0 => return self.try_miss(main, number, hash, seen),
            SLOTS => self.try_locate_beyond(main, word)?,
            slot => (main, slot),
        };
        let slot = SeenSlot::of(engine, main, seen, bucket, slot)?;
        let record = Record::at(self.region(), Place { word: slot.word(), incarnation: 0 }).ok()?;
        Some(Located::Record(slot, record))
    }

    /// Returns that a key is absent from a bucket without overflow buckets, if it is the right
    /// bucket and unchanged.
    #[inline(always)]
    fn try_miss(&self, main: &Bucket, number: u64, hash: u64, before: bucket::Seen) -> Option<Located<'_, E>> {
        fence_acquire();
        let is_right = self.elsewhere(main, number, hash).ok()?.is_none();
        let is_same = bucket::seen(self.engine(), main).version() == before.version();
        (is_right && is_same).then(|| Located::Absent(self.bucket_version(number, before)))
    }

    /// Prefetches the buckets where keys probably are.
    #[inline(always)]
    pub(super) fn prefetch_buckets<'k, K: Keys>(
        &self,
        keys: impl ExactSizeIterator<Item = K::Key<'k>>,
    ) -> impl ExactSizeIterator<Item = (K::Key<'k>, BucketHint)> {
        let (guess, region) = (self.hint.now(), self.region());
        keys.map(move |key| {
            let hash = K::hash(K::word(key));
            // This is out of bounds, and not prefetched, if this handle has never used the segment.
            let bucket = self.main.place(guess.bucket(hash));
            (key, Self::prefetch_lines(region, BucketHint::of(bucket, guess.line(hash))))
        })
    }

    /// Prefetches a key's record, from a bucket of its chain, or the next bucket. Returns its
    /// place.
    ///
    /// Looks into one line first. A place there is in one word, so the bucket's version need not be
    /// checked: a reader of the record checks its key.
    #[inline(always)]
    pub(super) fn prefetch_record<K: Keys>(
        &self,
        key: K::Key<'_>,
        hint: BucketHint,
        lines: &PrefetchMask,
    ) -> Whereabouts {
        let Ok(line) = self.region().array::<LINE_WORDS>(hint.0) else { return Whereabouts::Unknown };
        let slot = bucket::first_match(self.engine(), line, K::word(key));
        // This branch is seldom taken, and so predictable.
        if slot >= LINE_SLOTS - 1 {
            return self.prefetch_record_slow::<K>(key, hint, lines);
        }
        // The slot stores its own tag, so its meta word has the format of a link.
        let place = Place::from_link(self.engine().load(&line[meta_word(slot)]));
        if place.word == 0 { Whereabouts::Unknown } else { self.prefetch_place(place, lines) }
    }

    /// Prefetches a key's record like [`prefetch_record`](Self::prefetch_record), for keys that are
    /// not in the line's first slots: anywhere in the bucket, or behind it.
    #[inline(never)]
    fn prefetch_record_slow<K: Keys>(&self, key: K::Key<'_>, hint: BucketHint, lines: &PrefetchMask) -> Whereabouts {
        let Ok(bucket) = self.region().array(hint.bucket()) else { return Whereabouts::Unknown };
        let (engine, word) = (self.engine(), K::word(key));
        let seen = bucket::seen(engine, bucket);
        let slot = bucket::first_match(engine, bucket, word);
        if slot == SLOTS {
            return match bucket::link(engine, bucket) {
                0 => Whereabouts::Unknown,
                link => {
                    let next = BucketHint::of(self.overflow.place(link), self.line_of::<K>(word));
                    Whereabouts::Bucket(Self::prefetch_lines(self.region(), next))
                }
            };
        }
        let Some(place) = bucket::place(engine, bucket, slot) else { return Whereabouts::Unknown };
        fence_acquire();
        // Only a chain's first bucket has the version. In other buckets, a place is consistent if
        // it is in one word.
        let is_one = !Bits::lends_its_tag(slot) || bucket::depth(engine, bucket).is_some();
        let is_same = bucket::seen(engine, bucket) == seen && !seen.is_locked();
        if is_one && is_same { self.prefetch_place(place, lines) } else { Whereabouts::Unknown }
    }

    #[inline(always)]
    fn prefetch_lines(region: &Region<E>, hint: BucketHint) -> BucketHint {
        region.prefetch(hint.0.word());
        // The other line is prefetched too, for keys that found no room in their line.
        region.prefetch(hint.0.word() ^ LINE_WORDS as u64);
        hint
    }

    #[inline(always)]
    fn prefetch_place(&self, place: Place, lines: &PrefetchMask) -> Whereabouts {
        lines.prefetch(self.region(), place.word);
        Whereabouts::Record(Handle::of(place))
    }

    /// Returns the line of its bucket that a key is put into if there is room.
    #[inline(always)]
    pub(super) fn line_of<K: Keys>(&self, word: u64) -> usize {
        self.numbering.line(K::hash(word))
    }

    /// Returns the slot among the chain's overflow buckets that seems to have this key.
    #[inline(never)]
    fn try_locate_beyond<'t>(&'t self, main: &'t Bucket, key: u64) -> Option<(&'t Bucket, usize)> {
        let mut bucket = main;
        loop {
            bucket = match bucket::link(self.engine(), bucket) {
                0 => return None,
                link => self.overflow.try_get(self.region(), link)?,
            };
            match bucket::first_match(self.engine(), bucket, key) {
                SLOTS => {}
                slot => return Some((bucket, slot)),
            }
        }
    }

    /// Reads a key's record by the fast path. `Some(Err)`: the key has no record. `None`: the slow
    /// path must decide.
    #[inline(always)]
    pub(super) fn try_read<K: Keys, V: Visibility>(
        &self,
        key: K::Key<'_>,
        view: &V,
        into: &mut impl ValueSink,
    ) -> Option<Result<V::Found, BucketVersion>> {
        match self.try_locate::<K>(key)? {
            Located::Record(slot, record) => {
                let found = record.try_read_by_slot::<K, V>(WholeKey::<K>(key), view, into)?;
                slot.holds(self.engine()).then_some(Ok(found))
            }
            Located::Absent(bucket) => Some(Err(bucket)),
        }
    }

    /// Reads a key's record, by the fast path if possible. `Err`: the key has no record.
    #[inline(always)]
    pub(super) fn read<K: Keys, V: Visibility>(
        &self,
        key: K::Key<'_>,
        mut view: V,
        into: &mut impl ValueSink,
    ) -> Result<Result<V::Found, BucketVersion>, KvError> {
        match self.try_read::<K, V>(key, &view, into) {
            Some(read) => Ok(read),
            None => self.search::<K, _>(key, |record| record.read::<K, V>(WholeKey::<K>(key), &mut view, into)),
        }
    }

    /// Replaces a record's value by one of the same shape, by the fast path. `None`: the slow path
    /// must decide.
    #[inline(always)]
    pub(super) fn replace<K: Keys>(
        &self,
        key: K::Key<'_>,
        holder: Holder,
        shape: Shape,
        value: &[u8],
    ) -> Option<Version> {
        let since = self.turn();
        let Some(Located::Record(slot, record)) = self.try_locate::<K>(key) else { return None };
        let locked = record.try_lock::<K>(holder).ok()??;
        // The lock keeps others from removing or moving the record.
        let is_it = slot.holds(self.engine()) && self.is_within(since) && locked.is_like::<K>(shape, key);
        if is_it { locked.write(shape, value).ok() } else { None }
    }

    /// Calls `look` with the key's record until it has read the record consistently. `Err`: the key
    /// has no record, as of this bucket.
    #[inline(never)]
    pub(super) fn search<K: Keys, T>(
        &self,
        key: K::Key<'_>,
        mut look: impl FnMut(&Record<'_, E>) -> Result<Look<T>, OutOfBounds>,
    ) -> Result<Result<T, BucketVersion>, KvError> {
        let word = K::word(key);
        let hash = K::hash(word);
        let engine = self.engine();
        let waiting = self.base.patience.begin();
        let mut number = self.first_guess(hash)?;
        'again: loop {
            let Some(main) = self.main.get(self.region(), number)? else {
                number = self.split_off(number)?;
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
                        Look::Found(found) => return Ok(Ok(found)),
                        Look::Absent => return Ok(Err(self.bucket_version(number, before))),
                        Look::Other => {}
                        Look::Stale | Look::Busy => {
                            waiting.pause()?;
                            continue 'again;
                        }
                    }
                }
                match bucket::link(engine, current) {
                    0 => break,
                    link => current = self.overflow(link)?,
                }
            }
            // Not found. The key is absent if this was the right bucket and it has not changed.
            fence_acquire();
            match self.elsewhere(main, number, hash)? {
                Some(elsewhere) => number = elsewhere,
                None if bucket::seen(engine, main).version() == before.version() => {
                    return Ok(Err(self.bucket_version(number, before)));
                }
                None => {}
            }
        }
    }

    /// Returns the version of a bucket that was read.
    pub(super) fn bucket_version(&self, number: u64, seen: bucket::Seen) -> BucketVersion {
        BucketVersion { at: self.main.place(number), version: seen.version() }
    }

    /// Returns the bucket to try for the hash. `None`: this one is right.
    #[inline(always)]
    pub(super) fn elsewhere(&self, bucket: &Bucket, number: u64, hash: u64) -> Result<Option<u64>, KvError> {
        if mutation::includes(Mutation::AbsenceWithoutDepth) {
            return Ok(None);
        }
        let right = match bucket::depth(self.engine(), bucket) {
            // The bucket is not in use yet: its keys are in the bucket that it will be split off
            // from.
            None => self.split_off(number)?,
            Some(depth) => self.numbering.bucket(hash, depth),
        };
        Ok((right != number).then_some(right))
    }

    /// Returns the bucket that this one was split off from, or will be.
    pub(super) fn split_off(&self, bucket: u64) -> Result<u64, KvError> {
        self.numbering.parent(bucket).ok_or(KvError::NoBucket { bucket })
    }
}
