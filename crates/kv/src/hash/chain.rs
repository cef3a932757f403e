//! A whole chain: a main bucket and the overflow buckets behind it, as its changers see it.

use drtm_htm::{Access, Engine, Plain};

use super::{
    Table,
    bucket::{self, Change},
    header,
    segments::Bucket,
};
use crate::{
    KvError,
    keys::Keys,
    layout::{Bits, Place, SLOTS},
};

/// Where a key can be put: in a free slot, or in a new bucket behind the chain's last.
#[derive(Debug)]
pub(super) enum Room<'b> {
    Slot(&'b Bucket, usize),
    Behind(&'b Bucket),
}

/// A slot whose key word is the one looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Match<'b> {
    pub(super) bucket: &'b Bucket,
    pub(super) slot: usize,
    pub(super) place: Place,
}

/// Runs a body by plain accesses, which cannot fail.
#[inline(always)]
pub(super) fn plainly<'e, E: Engine, T>(
    engine: &'e E,
    body: impl FnOnce(&mut Plain<'e, E>) -> Result<T, std::convert::Infallible>,
) -> T {
    let Ok(value) = body(&mut Plain::new(engine));
    value
}

impl<E: Engine> Table<E> {
    /// Goes through a chain that is locked: calls `found` with every match, and gives the first room: in the key's line, if there is some in its bucket.
    pub(super) fn survey<'t, K: Keys>(
        &'t self,
        main: &'t Bucket,
        key: u64,
        found: impl FnMut(Match<'t>),
    ) -> Result<Room<'t>, KvError> {
        plainly(self.engine(), |tx| self.survey_by::<K, _>(tx, main, key, |link| self.overflow(link), found))
    }

    /// The same in a region. It fails where the handle has not come to a bucket before, too: whoever locks the chain will.
    pub(super) fn survey_in_region<'t, K: Keys, A: Access<'t>>(
        &'t self,
        tx: &mut A,
        main: &'t Bucket,
        key: u64,
        found: impl FnMut(Match<'t>),
    ) -> Result<Result<Room<'t>, KvError>, A::Abort> {
        self.survey_by::<K, _>(tx, main, key, |link| self.overflow_in_region(link), found)
    }

    fn survey_by<'t, K: Keys, A: Access<'t>>(
        &'t self,
        tx: &mut A,
        main: &'t Bucket,
        key: u64,
        overflow: impl Fn(u64) -> Result<&'t Bucket, KvError>,
        mut found: impl FnMut(Match<'t>),
    ) -> Result<Result<Room<'t>, KvError>, A::Abort> {
        let line = self.line_of::<K>(key);
        let mut free = None;
        let mut bucket = main;
        loop {
            let change = Change(bucket);
            let empty = change.empty(tx)?;
            let mut alike = change.alike(tx, key)? & !empty;
            while alike != 0 {
                let slot = alike.trailing_zeros() as usize;
                alike &= alike - 1;
                let meta = change.meta(tx, slot)?;
                found(Match { bucket, slot, place: change.place(tx, slot, meta)? });
            }
            if empty != 0 && free.is_none() {
                free = Some(Room::Slot(bucket, bucket::first_of(empty, line)));
            }
            bucket = match change.link(tx)? {
                0 => return Ok(Ok(free.unwrap_or(Room::Behind(bucket)))),
                link => match overflow(link) {
                    Ok(bucket) => bucket,
                    Err(error) => return Ok(Err(error)),
                },
            };
        }
    }

    /// The buckets of a chain, in order.
    pub(super) fn chain<'t>(&'t self, main: &'t Bucket) -> Result<Vec<&'t Bucket>, KvError> {
        let mut chain = vec![main];
        let mut last = main;
        loop {
            match bucket::link(self.engine(), last) {
                0 => return Ok(chain),
                link => last = self.overflow(link)?,
            }
            chain.push(last);
        }
    }

    /// Takes empty overflow buckets out of a chain that is locked, and gives their links. They must not be used again before the
    /// chain's version has changed: until then readers may be in them, on their way to those behind.
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
                plainly(engine, |tx| Change(last).set_link(tx, next));
                empty.push(link);
            } else {
                last = bucket;
            }
        }
    }

    /// An overflow bucket that is empty, links to nothing, and is linked to by nothing.
    pub(super) fn new_overflow(&self) -> Result<u64, KvError> {
        // By itself, so that the lock is not held while words are accessed.
        let free = self.free_overflows.lock().pop();
        if let Some(link) = free {
            let bucket = self.overflow(link)?;
            plainly(self.engine(), |tx| Change(bucket).set_link(tx, 0));
            return Ok(link);
        }
        let used = self.header(header::OVERFLOWS)?;
        loop {
            let before = self.engine().load(used);
            // Link zero is none.
            let link = before + 1;
            if link > Bits::MAX_LINK {
                return Err(KvError::TooCrowded);
            }
            self.overflow.ensure(self.region(), link)?;
            if self.engine().compare_exchange(used, before, link).is_ok() {
                return Ok(link);
            }
        }
    }

    /// Takes overflow buckets back that are empty, and that no chain links to.
    pub(super) fn free_overflows(&self, links: Vec<u64>) {
        if !links.is_empty() {
            self.free_overflows.lock().extend(links);
        }
    }
}
