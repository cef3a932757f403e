//! A whole chain: a main bucket and the overflow buckets behind it, as writers see it.

use std::iter;

use drtm_htm::Engine;

use super::{Table, bucket, header, segments::Bucket};
use crate::{
    KvError,
    record::keys::Keys,
    store::layout::{Bits, Place, SLOTS},
};

/// Where a key can be put: a free slot, or a new bucket behind the chain's last.
#[derive(Debug)]
pub(super) enum Vacancy<'b> {
    Slot(&'b Bucket, usize),
    Behind(&'b Bucket),
}

/// A slot with the key word that was searched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Match<'b> {
    pub(super) bucket: &'b Bucket,
    pub(super) slot: usize,
    pub(super) place: Place,
}

impl<E: Engine> Table<E> {
    /// Traverses a locked chain, and calls `found` with every match. Returns the first vacancy, in
    /// the key's line if the bucket has room there.
    pub(super) fn survey<'t, K: Keys>(
        &'t self,
        main: &'t Bucket,
        key: u64,
        mut found: impl FnMut(Match<'t>),
    ) -> Result<Vacancy<'t>, KvError> {
        let (engine, line) = (self.engine(), self.line_of::<K>(key));
        let (mut free, mut last) = (None, main);
        for bucket in self.chain(main) {
            let bucket = bucket?;
            let mut alike = bucket::matches(engine, bucket, key);
            while alike != 0 {
                let slot = alike.trailing_zeros() as usize;
                alike &= alike - 1;
                if let Some(place) = bucket::place(engine, bucket, slot) {
                    found(Match { bucket, slot, place });
                }
            }
            let empty = bucket::empty(engine, bucket);
            if empty != 0 && free.is_none() {
                free = Some(Vacancy::Slot(bucket, bucket::first_of(empty, line)));
            }
            last = bucket;
        }
        Ok(free.unwrap_or(Vacancy::Behind(last)))
    }

    /// Returns the buckets of a chain, in order.
    pub(super) fn chain<'t>(&'t self, main: &'t Bucket) -> impl Iterator<Item = Result<&'t Bucket, KvError>> {
        iter::successors(Some(Ok(main)), |last: &Result<&'t Bucket, _>| {
            match bucket::link(self.engine(), last.as_ref().ok()?) {
                0 => None,
                link => Some(self.overflow(link)),
            }
        })
    }

    /// Unlinks empty overflow buckets from a locked chain, and returns their links. They must not
    /// be reused before the chain's version has changed. Until then, readers may be in them, on
    /// their way to the buckets behind.
    #[inline(never)]
    pub(super) fn unlink_empty(&self, main: &Bucket) -> Result<Vec<u64>, KvError> {
        let engine = self.engine();
        let mut empty = Vec::new();
        let mut last = main;
        loop {
            let link = bucket::link(engine, last);
            if link == 0 {
                return Ok(empty);
            }
            let bucket = self.overflow(link)?;
            if (0..SLOTS).all(|slot| bucket::place(engine, bucket, slot).is_none()) {
                let next = bucket::link(engine, bucket);
                bucket::set_link(engine, last, next);
                empty.push(link);
            } else {
                last = bucket;
            }
        }
    }

    /// Returns the link of an overflow bucket that is empty, and neither links to a bucket nor is
    /// linked.
    #[inline(never)]
    pub(super) fn new_overflow(&self) -> Result<u64, KvError> {
        // A statement of its own, so that the lock is not held while words are accessed.
        let free = self.free_overflows.lock().pop();
        if let Some(link) = free {
            let bucket = self.overflow(link)?;
            bucket::set_link(self.engine(), bucket, 0);
            return Ok(link);
        }
        let used = self.base.word(header::OVERFLOWS)?;
        loop {
            let before = self.engine().load(used);
            // Link zero means no bucket.
            let link = before + 1;
            if link > Bits::MAX_LINK {
                return Err(KvError::TooCrowded);
            }
            self.overflow.ensure(&self.base.store, link)?;
            if self.engine().compare_exchange(used, before, link).is_ok() {
                return Ok(link);
            }
        }
    }

    /// Takes back empty overflow buckets that no chain links to.
    pub(super) fn free_overflows(&self, links: Vec<u64>) {
        if !links.is_empty() {
            self.free_overflows.lock().extend(links);
        }
    }
}
