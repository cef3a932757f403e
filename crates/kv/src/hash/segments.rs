//! Buckets by number: an array that grows without moving.
//!
//! Buckets come in segments. The first ones double the array (16 buckets, 16 more, 32, 64, ...),
//! later ones have 4096 buckets each. A segment never moves, so a handle that has learned its
//! place, on this node or another, can keep it.
//!
//! The places of segments are words in the region. The first nine are in the table's header. Those
//! of the larger segments are in directories that the header points to, each twice as long as the
//! previous one.

use std::{
    hint::select_unpredictable,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use drtm_htm::{Engine, Word};
use drtm_rdma::{Offset, Region, RegionError};
use parking_lot::Mutex;

pub(super) use crate::store::bounds::{DOUBLING, FIRST};
use crate::{
    KvError, Store,
    store::layout::{BUCKET_BYTES, BUCKET_WORDS},
};

/// The number of buckets in every further segment.
const WHOLE: u64 = FIRST << (DOUBLING - 1);

/// The number of directories of further segments.
pub(super) const DIRECTORIES: usize = 20;

/// The number of words in the table's header.
pub(super) const HEADER_WORDS: usize = DOUBLING + DIRECTORIES;

/// The most buckets that can be numbered.
pub(super) const MOST: u64 = WHOLE << DIRECTORIES;

/// An offset that is in no region, even after adding or subtracting the size of all buckets.
const UNKNOWN: u64 = 1 << 59;

/// A bucket's words.
pub(super) type Bucket = [Word; BUCKET_WORDS];

#[derive(Debug)]
pub(super) struct Segments {
    /// The first of the header's words, which have the places.
    header: Offset,
    /// The places that this handle has learned, of the first runs, by [run] of buckets. Each is the
    /// word where bucket 0 would be if all buckets before the run lay right before it, or
    /// [`UNKNOWN`]. So a bucket's number alone leads to its place.
    known: Box<[AtomicU64]>,
    /// The further runs, as many as the region has room for, once there is one.
    further: OnceLock<Box<[AtomicU64]>>,
    /// The number of all runs.
    runs: usize,
    /// Segments that were allocated concurrently with others, and not needed.
    spare: Mutex<Vec<(u64, Offset)>>,
}

/// Returns a bucket's segment, and its index in the segment.
pub(super) fn locate(bucket: u64) -> (usize, u64) {
    let segment = segment(bucket);
    (segment, bucket - first_in(segment))
}

/// Returns a bucket's segment.
fn segment(bucket: u64) -> usize {
    match bucket / FIRST {
        0 => 0,
        firsts if bucket < WHOLE => 1 + firsts.ilog2() as usize,
        _ => DOUBLING - 1 + (bucket / WHOLE) as usize,
    }
}

/// The number of runs in all the segments that double the array. A run has as many buckets as the
/// first segment.
const SHORT_RUNS: usize = (WHOLE / FIRST) as usize;

/// The number of runs that every handle has room for: those of a table of six million keys. Few
/// tables need more, and room for all that a region could hold takes more than an empty table.
const FIRST_RUNS: usize = 2 * SHORT_RUNS;

/// Makes the error that there is no room for this many bytes.
pub(super) fn full<E: Engine>(store: &Store<E>, asked: u64) -> KvError {
    let (capacity, allocated) = (store.region().capacity(), store.region().allocated());
    store.explained(RegionError::Full { asked, left: capacity - allocated, capacity }.into(), None)
}

/// Makes room for what is known of this many runs.
fn unknown(runs: usize) -> Box<[AtomicU64]> {
    (0..runs).map(|_| AtomicU64::new(UNKNOWN)).collect()
}

/// Returns the run of a bucket. The segments that double the array have several runs each, the
/// others one. This takes fewer instructions than finding the segment.
#[inline(always)]
fn run(bucket: u64) -> usize {
    let short = (bucket / FIRST) as usize;
    let whole = SHORT_RUNS - 1 + (bucket / WHOLE) as usize;
    // In a table of medium size, a branch could not be predicted.
    select_unpredictable(bucket < WHOLE, short, whole)
}

/// Returns the number of a segment's first bucket.
fn first_in(segment: usize) -> u64 {
    match segment {
        0 => 0,
        segment if segment < DOUBLING => FIRST << (segment - 1),
        segment => WHOLE * (segment - DOUBLING + 1) as u64,
    }
}

fn buckets_in(segment: usize) -> u64 {
    match segment {
        0 => FIRST,
        segment if segment < DOUBLING => FIRST << (segment - 1),
        _ => WHOLE,
    }
}

/// The word that has a segment's place.
#[derive(Debug)]
pub(super) enum SegmentPlace {
    Header(usize),
    /// In the directory of this length that this word of the header points to.
    Directory {
        word: usize,
        length: u64,
        index: u64,
    },
}

pub(super) fn kept(segment: usize) -> SegmentPlace {
    if segment < DOUBLING {
        return SegmentPlace::Header(segment);
    }
    let further = (segment - DOUBLING + 1) as u64;
    let directory = further.ilog2();
    let length = 1 << directory;
    SegmentPlace::Directory { word: DOUBLING + directory as usize, length, index: further - length }
}

impl Segments {
    pub(super) fn new<E: Engine>(region: &Region<E>, header: Offset) -> Self {
        // No more segments than the region has room for.
        let runs = SHORT_RUNS + (region.capacity() / (WHOLE * BUCKET_BYTES)) as usize + 1;
        Self { header, known: unknown(runs.min(FIRST_RUNS)), further: OnceLock::new(), runs, spare: Mutex::default() }
    }

    /// Returns what this handle knows of a run. `None`: there is no room for it, or not yet.
    #[inline(always)]
    fn known(&self, run: usize) -> Option<&AtomicU64> {
        self.known.get(run).or_else(|| self.further.get()?.get(run - self.known.len()))
    }

    /// Returns a bucket. `None`: its segment does not exist.
    #[inline(always)]
    pub(super) fn get<'r, E: Engine>(&self, region: &'r Region<E>, bucket: u64) -> Result<Option<&'r Bucket>, KvError> {
        match self.try_get(region, bucket) {
            Some(found) => Ok(Some(found)),
            None => self.reach(region, bucket),
        }
    }

    /// Returns a bucket whose segment this handle knows. `None` otherwise.
    #[inline(always)]
    pub(super) fn try_get<'r, E: Engine>(&self, region: &'r Region<E>, bucket: u64) -> Option<&'r Bucket> {
        let begins = self.known(run(bucket))?.load(Relaxed);
        region.array(Self::offset(begins, bucket)).ok()
    }

    #[inline(always)]
    fn offset(begins: u64, bucket: u64) -> Offset {
        Offset::new(begins.wrapping_add(bucket.wrapping_mul(BUCKET_WORDS as u64)).wrapping_mul(8))
    }

    /// Returns the place of a bucket whose segment this handle knows.
    pub(super) fn place(&self, bucket: u64) -> Offset {
        let begins = self.known(run(bucket)).map_or(UNKNOWN, |known| known.load(Relaxed));
        Self::offset(begins, bucket)
    }

    #[cold]
    fn reach<'r, E: Engine>(&self, region: &'r Region<E>, bucket: u64) -> Result<Option<&'r Bucket>, KvError> {
        if run(bucket) >= self.runs || !self.learn(region, segment(bucket))? {
            return Ok(None);
        }
        Ok(Some(region.array(self.place(bucket))?))
    }

    /// Learns the place of a segment. Returns whether the segment exists.
    #[inline(never)]
    fn learn<E: Engine>(&self, region: &Region<E>, segment: usize) -> Result<bool, KvError> {
        let at = match self.entry(region, segment)? {
            Some(entry) => region.engine().load(entry),
            None => 0,
        };
        if at == 0 {
            return Ok(false);
        }
        // This checks that the whole segment is in memory, and that the mapping covers it.
        let (first, buckets) = (first_in(segment), buckets_in(segment));
        region.words(Offset::new(at), buckets as usize * BUCKET_WORDS)?;
        let begins = Offset::new(at).word().wrapping_sub(first * BUCKET_WORDS as u64);
        let runs = run(first)..=run(first + buckets - 1);
        if *runs.end() >= self.known.len() {
            self.further.get_or_init(|| unknown(self.runs - self.known.len()));
        }
        runs.filter_map(|run| self.known(run)).for_each(|known| known.store(begins, Relaxed));
        Ok(true)
    }

    fn header_word<'r, E: Engine>(&self, region: &'r Region<E>, word: usize) -> Result<&'r Word, KvError> {
        Ok(&region.words(self.header, HEADER_WORDS)?[word])
    }

    /// Returns the word that has a segment's place. `None`: its directory does not exist yet.
    fn entry<'r, E: Engine>(&self, region: &'r Region<E>, segment: usize) -> Result<Option<&'r Word>, KvError> {
        match kept(segment) {
            SegmentPlace::Header(word) => Ok(Some(self.header_word(region, word)?)),
            SegmentPlace::Directory { word, length, index } => {
                match region.engine().load(self.header_word(region, word)?) {
                    0 => Ok(None),
                    at => Ok(Some(&region.words(Offset::new(at), length as usize)?[index as usize])),
                }
            }
        }
    }

    /// Creates a bucket's segment if it does not exist. Returns whether it did not exist.
    #[inline(never)]
    pub(super) fn ensure<E: Engine>(&self, store: &Store<E>, bucket: u64) -> Result<bool, KvError> {
        let region = store.region();
        if self.get(region, bucket)?.is_some() {
            return Ok(false);
        }
        let (segment, _) = locate(bucket);
        if run(bucket) >= self.runs {
            return Err(full(store, buckets_in(segment) * BUCKET_BYTES));
        }
        if let SegmentPlace::Directory { word, length, .. } = kept(segment) {
            self.install(store, self.header_word(region, word)?, 8 * length)?;
        }
        let entry = self.entry(region, segment)?.ok_or(KvError::TooCrowded)?;
        self.install(store, entry, buckets_in(segment) * BUCKET_BYTES)?;
        self.learn(region, segment)?;
        Ok(true)
    }

    /// Points a word that is still zero to this many bytes of zeros.
    fn install<E: Engine>(&self, store: &Store<E>, word: &Word, bytes: u64) -> Result<(), KvError> {
        let region = store.region();
        if region.engine().load(word) != 0 {
            return Ok(());
        }
        let at = match self.take_spare(bytes) {
            Some(at) => at,
            None => store.extend(bytes, BUCKET_BYTES)?,
        };
        if region.engine().compare_exchange(word, 0, at.bytes()).is_err() {
            // Another handle was first, and its segment is used.
            self.spare.lock().push((bytes, at));
        }
        Ok(())
    }

    fn take_spare(&self, bytes: u64) -> Option<Offset> {
        let mut spare = self.spare.lock();
        let found = spare.iter().position(|(length, _)| *length == bytes)?;
        Some(spare.swap_remove(found).1)
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use drtm_htm::NoHtm;

    use super::*;

    #[test]
    fn buckets_are_numbered_without_gaps() {
        let mut expected = 0;
        let mut segment_of = [None; SHORT_RUNS + 40];
        for segment in 0..40 {
            for within in 0..buckets_in(segment) {
                assert_eq!(locate(expected), (segment, within));
                assert_eq!(segment_of[run(expected)].get_or_insert(segment), &segment, "a run is in one segment");
                expected += 1;
            }
        }
    }

    #[test]
    fn every_segment_is_kept_in_a_place_of_its_own() {
        let mut places = std::collections::HashSet::new();
        for segment in 0..5_000 {
            match kept(segment) {
                SegmentPlace::Header(word) => assert!(word < DOUBLING && places.insert((word, 0))),
                SegmentPlace::Directory { word, length, index } => {
                    assert!((DOUBLING..HEADER_WORDS).contains(&word) && index < length);
                    assert!(places.insert((word, index)));
                }
            }
        }
        let (last, _) = locate(MOST - 1);
        assert!(matches!(kept(last), SegmentPlace::Directory { word, .. } if word < HEADER_WORDS));
    }

    #[test]
    fn what_one_handle_installs_another_finds() {
        let store = Store::in_memory(NoHtm, 1 << 30).expect("a store");
        let region = store.region();
        let header = region.extend(8 * HEADER_WORDS as u64, 8).expect("room");
        let (one, two) = (Segments::new(region, header), Segments::new(region, header));
        let further = WHOLE * (FIRST_RUNS - SHORT_RUNS + 3) as u64;
        for bucket in [0, 15, 16, 4095, 4096, 8192, 40_000, further] {
            assert!(one.get(region, bucket).expect("sound").is_none() || bucket == 15);
            one.ensure(&store, bucket).expect("room");
            two.ensure(&store, bucket).expect("room");
            let [here, there] = [&one, &two].map(|handle| handle.get(region, bucket).expect("sound").expect("there"));
            assert!(std::ptr::eq(here, there));
        }
        assert!(matches!(one.ensure(&store, 10_000_000), Err(KvError::Full(_))));
    }
}
