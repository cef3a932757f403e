//! Looking at a record for a transaction, which also wants to see records of keys that are not there.

use std::hint::cold_path;

use drtm_htm::{Engine, fence_acquire};
use drtm_rdma::OutOfBounds;

use super::{Look, Past, Record, STATE, Shape};
use crate::{
    Handle, Sighting,
    keys::{Keys, MAX_KEY},
    layout::{Head, Place, State, Version},
    mutation::{self, Mutation},
    room::Room,
};

impl<E: Engine> Record<'_, E> {
    /// Copies a key's value, unless the key is not there. [`Look::Busy`] while somebody else than this holder has the record locked: what would be
    /// read is about to change.
    #[inline(always)]
    pub(crate) fn observe<K: Keys>(
        &self,
        key: K::Key<'_>,
        holder: State,
        into: &mut impl Room,
    ) -> Result<Look<Sighting>, OutOfBounds> {
        match self.begin_for(holder) {
            Ok(version) => self.end_sighting(version, self.observe_value::<K>(key, self.head(), version, into)),
            Err(look) => Ok(look),
        }
    }

    /// The same, of a record of which only the key's word is known.
    #[inline(always)]
    pub(crate) fn observe_word<K: Keys>(
        &self,
        word: u64,
        holder: State,
        into: &mut impl Room,
    ) -> Result<Look<Sighting>, OutOfBounds> {
        match self.begin_for(holder) {
            Ok(version) => self.end_sighting(version, self.observe_value_of_word::<K>(word, version, into)),
            Err(look) => Ok(look),
        }
    }

    /// The same in the [usual case](Self::glance): nobody has it locked, or this holder.
    #[inline(always)]
    pub(crate) fn glance_for<K: Keys>(&self, word: u64, holder: State, into: &mut impl Room) -> Option<Sighting> {
        let version = self.glance::<K>(word, |_| !self.is_held_by_another_than(holder), into)?;
        Some(Sighting { at: Handle::of(self.place), version })
    }

    /// The same, and copies the key, of a record that keeps it.
    #[inline(always)]
    pub(crate) fn observe_row<K: Keys>(
        &self,
        key: &mut Vec<u8>,
        holder: State,
        into: &mut impl Room,
    ) -> Result<Look<Sighting>, OutOfBounds> {
        match self.begin_for(holder) {
            Ok(version) => self.end_sighting(version, self.observe_key_and_value::<K>(key, version, into)),
            Err(look) => Ok(look),
        }
    }

    /// As [`observe`](Self::observe) in the usual case, and without a look at the incarnation: the caller knows that it is the key's record.
    #[inline(always)]
    pub(crate) fn peek_sighting<K: Keys>(
        &self,
        key: K::Key<'_>,
        holder: State,
        into: &mut impl Room,
    ) -> Option<Sighting> {
        let version = self.version();
        if version.is_writing() || self.is_held_by_another_than(holder) {
            return None;
        }
        let head = self.head();
        self.observe_expected::<K>(key, head, version, into)?;
        fence_acquire();
        let is_same = self.version() == version || mutation::includes(Mutation::ReadWithoutVersion);
        let place = Place { incarnation: head.incarnation(), ..self.place };
        is_same.then_some(Sighting { at: Handle::of(place), version })
    }

    /// What the key was before a version, in the usual case: nobody has written it since, or is about to. As [`peek_sighting`](Self::peek_sighting).
    #[inline(always)]
    pub(crate) fn peek_past<K: Keys>(&self, key: K::Key<'_>, before: Version, into: &mut impl Room) -> Option<Past> {
        let version = self.version();
        let state = State(self.engine().load(&self.header[STATE]));
        if version.is_writing() || state.is_locked() || version.number() >= before.number() {
            return None;
        }
        self.observe_expected::<K>(key, self.head(), version, into)?;
        fence_acquire();
        let is_same = self.version() == version || mutation::includes(Mutation::ReadWithoutVersion);
        is_same.then(|| Past::of(version))
    }

    /// [Begins](Self::begin) to look at a record that nobody else than this holder has locked.
    #[inline(always)]
    fn begin_for<T>(&self, holder: State) -> Result<Version, Look<T>> {
        let version = self.begin()?;
        if self.is_held_by_another_than(holder) {
            cold_path();
            if self.head().incarnation() == self.place.incarnation {
                return Err(Look::Busy);
            }
        }
        Ok(version)
    }

    /// [Ends](Self::end_either) it.
    #[inline(always)]
    fn end_sighting(
        &self,
        version: Version,
        seen: Result<Option<()>, OutOfBounds>,
    ) -> Result<Look<Sighting>, OutOfBounds> {
        let sighting = Sighting { at: Handle::of(self.place), version };
        Ok(self.end_either(version, seen)?.map(|()| sighting))
    }

    #[inline(always)]
    fn is_held_by_another_than(&self, holder: State) -> bool {
        let state = State(self.engine().load_relaxed(&self.header[STATE]));
        state.is_locked() && state != holder
    }

    #[inline(always)]
    fn observe_value<K: Keys>(
        &self,
        key: K::Key<'_>,
        head: Head,
        version: Version,
        into: &mut impl Room,
    ) -> Result<Option<()>, OutOfBounds> {
        self.copy_if_it(self.shape_for::<K>(head, key), version, into)
    }

    /// The same in the usual case.
    #[inline(always)]
    fn observe_expected<K: Keys>(
        &self,
        key: K::Key<'_>,
        head: Head,
        version: Version,
        into: &mut impl Room,
    ) -> Option<()> {
        if !K::FITS {
            return self.observe_value::<K>(key, head, version, into).ok()?;
        }
        if version.is_removed() || self.key_word() != K::word(key) {
            return None;
        }
        self.copy_expected::<K, _>(head, into)
    }

    /// Copies the value of a record that has a shape only if it is the one looked for.
    #[inline(always)]
    pub(super) fn copy_if_it(
        &self,
        shape: Result<Option<Shape>, OutOfBounds>,
        version: Version,
        into: &mut impl Room,
    ) -> Result<Option<()>, OutOfBounds> {
        match shape? {
            None => Ok(None),
            Some(shape) => self.copy_present(shape, version, into).map(Some),
        }
    }

    #[inline(always)]
    fn observe_value_of_word<K: Keys>(
        &self,
        word: u64,
        version: Version,
        into: &mut impl Room,
    ) -> Result<Option<()>, OutOfBounds> {
        if self.key_word() != word {
            return Ok(None);
        }
        let shape = self.shape::<K>(self.head())?;
        self.copy_present(shape, version, into).map(Some)
    }

    #[inline(always)]
    fn observe_key_and_value<K: Keys>(
        &self,
        key: &mut Vec<u8>,
        version: Version,
        into: &mut impl Room,
    ) -> Result<Option<()>, OutOfBounds> {
        let shape = self.shape::<K>(self.head())?;
        if shape.key.is_some_and(|length| length > MAX_KEY) {
            return Ok(None);
        }
        self.copy_kept_key::<K>(key)?;
        self.copy_present(shape, version, into).map(Some)
    }

    #[inline(always)]
    pub(super) fn copy_present(&self, shape: Shape, version: Version, into: &mut impl Room) -> Result<(), OutOfBounds> {
        if version.is_removed() {
            return Ok(());
        }
        self.copy_wanted(shape, into)
    }
}
