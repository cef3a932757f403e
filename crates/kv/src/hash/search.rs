//! Finding a key.

use drtm_htm::{Engine, LINE_WORDS, fence_acquire};
use drtm_rdma::{OutOfBounds, Region};

use super::{
    BucketHint, BucketVersion, Table, Whereabouts,
    bucket::{self, SeenSlot},
    segments::Bucket,
};
use crate::{
    Handle, Holder, KvError, Version, Visibility,
    keys::Keys,
    layout::{Bits, LINE_SLOTS, Place, SLOTS, meta_word},
    mutation::{self, Mutation},
    record::{Look, PrefetchMask, Record, Shape, WholeKey},
    value_sink::ValueSink,
};

/// What the fast path finds.
pub(super) enum Located<'t, E: Engine> {
    /// The record that the key's slot seems to lead to.
    Record(SeenSlot<'t>, Record<'t, E>),
    /// The key has none, as long as this bucket is unchanged.
    Absent(BucketVersion),
}

impl<E: Engine> Table<E> {
    /// Where a search for this hash begins: the right bucket, unless the number of buckets has just
    /// changed.
    pub(super) fn first_guess(&self, hash: u64) -> Result<u64, KvError> {
        self.hint.set(self.buckets()?);
        Ok(self.hint.guess(hash))
    }

    /// An overflow bucket that a link names.
    #[inline(always)]
    pub(super) fn overflow(&self, link: u64) -> Result<&Bucket, KvError> {
        self.overflow.get(self.region(), link)?.ok_or(KvError::NoBucket { bucket: link })
    }

    /// The fast path to a key's record: once, without a loop, so that operations one after the
    /// other overlap.
    ///
    /// It is that record for sure if the [`SeenSlot`] still holds after what was to be done with
    /// it.
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

    /// A key is not in a bucket without others behind it: if this is the key's, and as it was seen.
    #[inline(always)]
    fn try_miss(&self, main: &Bucket, number: u64, hash: u64, before: bucket::Seen) -> Option<Located<'_, E>> {
        fence_acquire();
        let is_right = self.elsewhere(main, number, hash).ok()?.is_none();
        let is_same = bucket::seen(self.engine(), main).version() == before.version();
        (is_right && is_same).then(|| Located::Absent(self.bucket_version(number, before)))
    }

    /// Asks for the memory of the buckets where keys most probably are.
    #[inline(always)]
    pub(super) fn ask_for_buckets<'k, K: Keys>(
        &self,
        keys: impl ExactSizeIterator<Item = K::Key<'k>>,
    ) -> impl ExactSizeIterator<Item = (K::Key<'k>, BucketHint)> {
        let (guess, region) = (self.hint.now(), self.region());
        keys.map(move |key| {
            let hash = K::hash(K::word(key));
            // Nowhere, if this handle has not come to its segment before.
            let bucket = self.main.place(guess.bucket(hash));
            (key, Self::ask_for_lines(region, BucketHint::of(bucket, guess.line(hash))))
        })
    }

    /// Asks for the memory of the record that a key has in a bucket of its chain, or of the next
    /// bucket, and tells where it is. Looks into one line first, where a place in one word needs no
    /// look at the bucket's version: whoever comes to the record looks whether it is the one.
    #[inline(always)]
    pub(super) fn ask_for_record<K: Keys>(
        &self,
        key: K::Key<'_>,
        hint: BucketHint,
        lines: &PrefetchMask,
    ) -> Whereabouts {
        let Ok(line) = self.region().array::<LINE_WORDS>(hint.0) else { return Whereabouts::Unknown };
        let slot = bucket::first_match(self.engine(), line, K::word(key));
        // A branch, but one that is seldom taken otherwise.
        if slot >= LINE_SLOTS - 1 {
            return self.ask_for_record_slow::<K>(key, hint, lines);
        }
        // The slot keeps its tag, and so its meta word says what a link says.
        let place = Place::from_link(self.engine().load(&line[meta_word(slot)]));
        if place.word == 0 { Whereabouts::Unknown } else { self.ask_for_place(place, lines) }
    }

    /// The same where the key is not in the line's first slots: anywhere in the bucket, or behind
    /// it.
    #[inline(never)]
    fn ask_for_record_slow<K: Keys>(&self, key: K::Key<'_>, hint: BucketHint, lines: &PrefetchMask) -> Whereabouts {
        let Ok(bucket) = self.region().array(hint.bucket()) else { return Whereabouts::Unknown };
        let (engine, word) = (self.engine(), K::word(key));
        let seen = bucket::seen(engine, bucket);
        let slot = bucket::first_match(engine, bucket, word);
        if slot == SLOTS {
            return match bucket::link(engine, bucket) {
                0 => Whereabouts::Unknown,
                link => {
                    let next = BucketHint::of(self.overflow.place(link), self.line_of::<K>(word));
                    Whereabouts::Bucket(Self::ask_for_lines(self.region(), next))
                }
            };
        }
        let Some(place) = bucket::place(engine, bucket, slot) else { return Whereabouts::Unknown };
        fence_acquire();
        // Of a chain's version only its first bucket knows. In the others a place is of one moment
        // if it is in one word.
        let is_one = !Bits::lends_its_tag(slot) || bucket::depth(engine, bucket).is_some();
        let is_same = bucket::seen(engine, bucket) == seen && !seen.is_locked();
        if is_one && is_same { self.ask_for_place(place, lines) } else { Whereabouts::Unknown }
    }

    #[inline(always)]
    fn ask_for_lines(region: &Region<E>, hint: BucketHint) -> BucketHint {
        region.prefetch(hint.0.word());
        // The other line, too: keys that found no room in theirs would be waited for.
        region.prefetch(hint.0.word() ^ LINE_WORDS as u64);
        hint
    }

    #[inline(always)]
    fn ask_for_place(&self, place: Place, lines: &PrefetchMask) -> Whereabouts {
        lines.prefetch(self.region(), place.word);
        Whereabouts::Record(Handle::of(place))
    }

    /// The line of its bucket that a key is put into, if there is room.
    #[inline(always)]
    pub(super) fn line_of<K: Keys>(&self, word: u64) -> usize {
        self.numbering.line(K::hash(word))
    }

    /// The slot among the chain's overflow buckets that seems to have this key.
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

    /// Reads a key's record by the fast path, or tells that it has none.
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

    /// Reads a key's record: by the fast path, or with more care.
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

    /// Gives a record another value of the same shape by the fast path.
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
        // From here on, no other can remove it or move it.
        let is_it = slot.holds(self.engine()) && self.is_within(since) && locked.is_like::<K>(shape, key);
        if is_it { locked.write(shape, value).ok() } else { None }
    }

    /// Looks at the key's record with `look`, until that has found it whole. `Err`: the bucket in
    /// which it was found that the key has none.
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
            // Nothing was found. It is not there if this was the place to look, and stayed as it
            // was.
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

    /// What a bucket was that has been looked at.
    pub(super) fn bucket_version(&self, number: u64, seen: bucket::Seen) -> BucketVersion {
        BucketVersion { at: self.main.place(number), version: seen.version() }
    }

    /// Which bucket to try for the hash if it is not this one.
    #[inline(always)]
    pub(super) fn elsewhere(&self, bucket: &Bucket, number: u64, hash: u64) -> Result<Option<u64>, KvError> {
        if mutation::includes(Mutation::AbsenceWithoutDepth) {
            return Ok(None);
        }
        let right = match bucket::depth(self.engine(), bucket) {
            // Not in use yet: its keys are where it will be split off.
            None => self.split_off(number)?,
            Some(depth) => self.numbering.bucket(hash, depth),
        };
        Ok((right != number).then_some(right))
    }

    /// The bucket that this one was split off, or will be.
    pub(super) fn split_off(&self, bucket: u64) -> Result<u64, KvError> {
        self.numbering.parent(bucket).ok_or(KvError::NoBucket { bucket })
    }
}
