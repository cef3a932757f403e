//! What a scan makes of the records that it comes to.

use drtm_htm::Engine;
use drtm_rdma::OutOfBounds;

use crate::{
    Holder, Sighting, Version,
    keys::{Inline, Sliced},
    record::{Look, Past, PastView, Record},
    room::Room,
};

/// A look at records.
pub trait View {
    /// What is found.
    type Found;

    /// Looks at the record of a key that is a word, in the usual case. `None`: it must be [looked at](Self::row) with more care.
    fn glance<E: Engine>(&mut self, record: &Record<'_, E>, word: u64) -> Option<Self::Found>;

    /// Looks at the record of a key that is a word.
    fn row<E: Engine>(&mut self, record: &Record<'_, E>, word: u64) -> Result<Look<Self::Found>, OutOfBounds>;

    /// Looks at a record that keeps its key, and copies that too.
    fn keyed_row<E: Engine>(
        &mut self,
        record: &Record<'_, E>,
        key: &mut Vec<u8>,
    ) -> Result<Look<Self::Found>, OutOfBounds>;
}

/// A key, and what is found of its record.
pub(super) type FoundRow<K, V> = (K, <V as View>::Found);

/// Copies values.
pub(super) struct Copied<'v, R: Room>(pub(super) &'v mut R);

impl<R: Room> View for Copied<'_, R> {
    type Found = Version;

    #[inline(always)]
    fn glance<E: Engine>(&mut self, record: &Record<'_, E>, word: u64) -> Option<Version> {
        record.glance::<Inline>(word, |_| true, self.0)
    }

    #[inline(always)]
    fn row<E: Engine>(&mut self, record: &Record<'_, E>, word: u64) -> Result<Look<Version>, OutOfBounds> {
        record.copy::<Inline>(word, self.0)
    }

    #[inline(always)]
    fn keyed_row<E: Engine>(
        &mut self,
        record: &Record<'_, E>,
        key: &mut Vec<u8>,
    ) -> Result<Look<Version>, OutOfBounds> {
        record.copy_row::<Sliced>(key, self.0)
    }
}

/// Copies values for a transaction, which wants to see the records of absent keys too: as they are, to a holder of locks, or as they were.
pub(super) struct Observed<'v, V, R: Room> {
    pub(super) view: V,
    pub(super) value: &'v mut R,
}

impl<R: Room> View for Observed<'_, PastView, R> {
    type Found = Past;

    #[inline(always)]
    fn glance<E: Engine>(&mut self, record: &Record<'_, E>, word: u64) -> Option<Past> {
        record.glance_past::<Inline>(word, &self.view, self.value)
    }

    #[inline(always)]
    fn row<E: Engine>(&mut self, record: &Record<'_, E>, word: u64) -> Result<Look<Past>, OutOfBounds> {
        record.observe_past_word(word, &mut self.view, self.value)
    }

    #[inline(always)]
    fn keyed_row<E: Engine>(&mut self, record: &Record<'_, E>, key: &mut Vec<u8>) -> Result<Look<Past>, OutOfBounds> {
        record.observe_past_row::<Sliced>(key, &mut self.view, self.value)
    }
}

impl<R: Room> View for Observed<'_, Holder, R> {
    type Found = Sighting;

    #[inline(always)]
    fn glance<E: Engine>(&mut self, record: &Record<'_, E>, word: u64) -> Option<Sighting> {
        record.glance_for::<Inline>(word, self.view, self.value)
    }

    #[inline(always)]
    fn row<E: Engine>(&mut self, record: &Record<'_, E>, word: u64) -> Result<Look<Sighting>, OutOfBounds> {
        record.observe_word::<Inline>(word, self.view, self.value)
    }

    #[inline(always)]
    fn keyed_row<E: Engine>(
        &mut self,
        record: &Record<'_, E>,
        key: &mut Vec<u8>,
    ) -> Result<Look<Sighting>, OutOfBounds> {
        record.observe_row::<Sliced>(key, self.view, self.value)
    }
}
