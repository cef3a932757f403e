//! Older versions of records: reading them, keeping them, and freeing those that no snapshot needs.
//!
//! A record's head links to the previous version, which is a record too, and so on: newest first. A
//! writer that holds the record's lock decides whether a snapshot still needs the current version,
//! and keeps a copy then. It also unlinks older versions that no snapshot needs. Only the link of
//! an older version is ever changed, and only one head links to it.
//!
//! # Reading
//!
//! A reader goes hand over hand: after it has read an older version, the head that led there must
//! be unchanged. Then the older version had not been freed before. Versions that are freed together
//! are all marked as free before any of their memory is reused. The older version must be
//! unchanged, too: freed memory may be reused at once for another version, and be linked from the
//! same head.

use drtm_htm::{Engine, fence_acquire, fence_release};
use drtm_rdma::OutOfBounds;

use super::{AsOf, HEAD, Look, Past, Record, Shape, VERSION};
use crate::{
    RetainOutcome, Version, Worker,
    record::value_sink::ValueSink,
    store::{
        heap::Class,
        layout::{Head, Place},
    },
};

impl<E: Engine> Record<'_, E> {
    /// Follows the links from a head, which the record had when its version was last validated.
    #[cold]
    pub(super) fn read_older(
        &self,
        mut head: Head,
        view: &AsOf,
        into: &mut impl ValueSink,
    ) -> Result<Look<Past>, OutOfBounds> {
        let mut newer = self.again();
        loop {
            let word = match head.older() {
                0 => return Ok(Look::Found(Past::Absent)),
                Head::FORGOTTEN => return Ok(Look::Found(Past::TooOld)),
                word => word,
            };
            let older = Record::at(self.region, Place { word, incarnation: 0 })?;
            let (version, its_head) = (older.version(), older.head());
            fence_acquire();
            if newer.head() != head || version.is_writing() {
                return Ok(Look::Busy);
            }
            let past = view.includes(version).then(|| {
                if !version.is_removed() {
                    older.copy_wanted(older.shape_of(its_head)?, into)?;
                }
                Ok(Past::from(older.entry(version)))
            });
            // Its memory may have been reused when its head was read, and have been linked from
            // here again since.
            fence_acquire();
            if older.version() != version || older.shape_bits() != its_head.without_older() {
                return Ok(Look::Busy);
            }
            if let Some(past) = past {
                return past.map(Look::Found);
            }
            (newer, head) = (older, its_head);
        }
    }

    #[inline(always)]
    pub(super) fn again(&self) -> Self {
        Record { region: self.region, place: self.place, header: self.header }
    }

    fn shape_bits(&self) -> Head {
        self.head().without_older()
    }

    /// Returns the record's shape, whichever kind of keys its table has.
    #[inline(always)]
    pub(super) fn shape_of(&self, head: Head) -> Result<Shape, OutOfBounds> {
        Shape::of_any(head, self.lengths())
    }

    /// Marks a record that the caller has locked as being written, and links its head to an older
    /// version.
    fn link_older(&self, word: u64) {
        let engine = self.engine();
        engine.store_relaxed(&self.header[VERSION], self.version().writing().0);
        fence_release();
        engine.store_relaxed(&self.header[HEAD], self.head().with_older(word).0);
    }

    /// Copies a record that the caller has locked, so that its current version can still be read
    /// after it has been written. Without memory for the copy, the current version and all older
    /// ones are discarded.
    ///
    /// The record is marked as being written afterwards: the caller then writes it.
    pub(crate) fn keep(&self, worker: &mut Worker<E>, may_take: bool) -> Result<RetainOutcome, OutOfBounds> {
        let (head, version) = (self.head(), self.version());
        let shape = if version.is_removed() { Shape::EMPTY } else { self.shape_of(head)? };
        let class = shape.class();
        let memory = if may_take { worker.allocate(class).ok() } else { None };
        let Some(word) = memory else {
            self.link_older(Head::FORGOTTEN);
            return Ok(RetainOutcome::Discarded { freed: self.discard_from(head.older(), worker)? });
        };
        let engine = self.engine();
        let mut copy = Self::at(self.region, Place { word, incarnation: 0 })?;
        copy.place.incarnation = copy.head().incarnation();
        engine.store_relaxed(&copy.header[VERSION], version.writing().0);
        fence_release();
        engine.store_relaxed(&copy.header[super::KEY], self.key_word());
        let its_head = shape.head(copy.place.incarnation).with_older(head.older());
        engine.store_relaxed(&copy.header[HEAD], its_head.0);
        let body = self.body(0, shape.body_words())?.iter().zip(copy.body(0, shape.body_words())?);
        body.for_each(|(from, to)| engine.store_relaxed(to, engine.load_relaxed(from)));
        // The copy stays locked: no table leads to it, and no thread writes it.
        engine.store(&copy.header[VERSION], version.0);
        self.link_older(word);
        Ok(RetainOutcome::Copied { bytes: 8 * class.words() })
    }

    /// Frees the older versions of a locked record that no snapshot needs. `is_needed(from,
    /// before)` is called for a version that was current from `from` until before `before`. Returns
    /// the number of freed bytes.
    pub(crate) fn forget(
        &self,
        worker: &mut Worker<E>,
        mut until: Version,
        is_needed: impl Fn(Version, Version) -> bool,
    ) -> Result<u64, OutOfBounds> {
        let mut unneeded = worker.take_discarded();
        let mut newer = self.again();
        loop {
            let word = newer.head().older();
            if word == 0 || word == Head::FORGOTTEN {
                // The mark that a version was discarded stays as long as a snapshot may need that
                // version.
                if word == Head::FORGOTTEN && !is_needed(Version::default(), until) {
                    newer.relink(0);
                }
                break;
            }
            let older = Record::at(self.region, Place { word, incarnation: 0 })?;
            let (version, head) = (older.version(), older.head());
            if is_needed(version, until) {
                (newer, until) = (older, version);
                continue;
            }
            newer.relink(head.older());
            let class = older.shape_of(head)?.class();
            older.discard(worker.holder());
            unneeded.push((class, word));
        }
        Ok(free_all(unneeded, worker))
    }

    /// Frees all older versions from one on, to which nothing links any more. Returns the number of
    /// bytes.
    fn discard_from(&self, mut word: u64, worker: &mut Worker<E>) -> Result<u64, OutOfBounds> {
        let mut discarded = worker.take_discarded();
        while word != 0 && word != Head::FORGOTTEN {
            let older = Record::at(self.region, Place { word, incarnation: 0 })?;
            let head = older.head();
            let class = older.shape_of(head)?.class();
            older.discard(worker.holder());
            discarded.push((class, word));
            word = head.older();
        }
        Ok(free_all(discarded, worker))
    }

    /// Links a head to another record. A reader that has followed the old link starts again.
    fn relink(&self, older: u64) {
        let engine = self.engine();
        engine.store(&self.header[HEAD], self.head().with_older(older).0);
    }

    /// Links a record that no reader can find yet to the older versions of the one that it
    /// replaces.
    pub(super) fn take_over(&self, from: &Record<'_, E>) {
        self.relink(from.head().older());
    }

    /// Returns whether there are older versions.
    pub(crate) fn has_past(&self) -> bool {
        self.head().older() != 0
    }
}

/// Frees the memory of older versions, after all of them have been marked. Returns the number of
/// bytes.
fn free_all<E: Engine>(mut discarded: Vec<(Class, u64)>, worker: &mut Worker<E>) -> u64 {
    let bytes = discarded.iter().map(|(class, _)| 8 * class.words()).sum();
    discarded.drain(..).for_each(|(class, word)| worker.free(class, word));
    worker.give_back_discarded(discarded);
    bytes
}
