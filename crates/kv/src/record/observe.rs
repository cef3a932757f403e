//! Looking at a record for a transaction, which also wants to see records of keys that are not there.

use std::hint::cold_path;

use drtm_htm::{Engine, fence_acquire};
use drtm_rdma::OutOfBounds;

use super::{Look, Past, Record, STATE, Shape};
use crate::{
    Handle, Holder, Sighting,
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
        holder: Holder,
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
        holder: Holder,
        into: &mut impl Room,
    ) -> Result<Look<Sighting>, OutOfBounds> {
        match self.begin_for(holder) {
            Ok(version) => self.end_sighting(version, self.observe_value_of_word::<K>(word, version, into)),
            Err(look) => Ok(look),
        }
    }

    /// The same in the [usual case](Self::glance): nobody has it locked, or this holder.
    #[inline(always)]
    pub(crate) fn glance_for<K: Keys>(&self, word: u64, holder: Holder, into: &mut impl Room) -> Option<Sighting> {
        let version = self.glance::<K>(word, |_| !self.is_held_by_another_than(holder), into)?;
        Some(Sighting { at: Handle::of(self.place), version })
    }

    /// The same, and copies the key, of a record that keeps it.
    #[inline(always)]
    pub(crate) fn observe_row<K: Keys>(
        &self,
        key: &mut Vec<u8>,
        holder: Holder,
        into: &mut impl Room,
    ) -> Result<Look<Sighting>, OutOfBounds> {
        match self.begin_for(holder) {
            Ok(version) => self.end_sighting(version, self.observe_key_and_value::<K>(key, version, into)),
            Err(look) => Ok(look),
        }
    }

    /// Copies a key's value in the usual case, of a record that is one that `is_fit` from what its version is; without a look at the incarnation: the caller
    /// knows that it is the key's record. A value that is not as long as was expected is left to `copy_another`, which is given the record's head.
    #[inline(always)]
    pub(crate) fn peek<K: Keys, R: Room>(
        &self,
        key: K::Key<'_>,
        is_fit: impl FnOnce(Version) -> bool,
        into: &mut R,
        copy_another: impl FnOnce(Head, &mut R) -> Option<()>,
    ) -> Option<(Version, Head)> {
        let version = self.version();
        if version.is_writing() || !is_fit(version) {
            return None;
        }
        let head = self.head();
        if !K::FITS {
            self.observe_value::<K>(key, head, version, into).ok()??;
        } else if version.is_removed() || self.key_word() != K::word(key) {
            return None;
        } else if self.copy_expected::<K, _>(head, into).is_none() {
            copy_another(head, into)?;
        }
        fence_acquire();
        let is_same = self.version() == version || mutation::includes(Mutation::ReadWithoutVersion);
        is_same.then_some((version, head))
    }

    /// As [`observe`](Self::observe) in the [usual case](Self::peek).
    #[inline(always)]
    pub(crate) fn peek_sighting<K: Keys>(
        &self,
        key: K::Key<'_>,
        holder: Holder,
        into: &mut impl Room,
    ) -> Option<Sighting> {
        let (version, head) = self.peek::<K, _>(key, |_| !self.is_held_by_another_than(holder), into, |_, _| None)?;
        let place = Place { incarnation: head.incarnation(), ..self.place };
        Some(Sighting { at: Handle::of(place), version })
    }

    /// What the key was before a version, in the [usual case](Self::peek): nobody has written it since, or is about to.
    #[inline(always)]
    pub(crate) fn peek_past<K: Keys>(&self, key: K::Key<'_>, before: Version, into: &mut impl Room) -> Option<Past> {
        let is_free = || !State(self.engine().load(&self.header[STATE])).is_locked();
        let is_fit = |version: Version| is_free() && version.number() < before.number();
        self.peek::<K, _>(key, is_fit, into, |_, _| None).map(|(version, _)| Past::of(version))
    }

    /// [Begins](Self::begin) to look at a record that nobody else than this holder has locked.
    #[inline(always)]
    fn begin_for<T>(&self, holder: Holder) -> Result<Version, Look<T>> {
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
    fn is_held_by_another_than(&self, holder: Holder) -> bool {
        !State(self.engine().load_relaxed(&self.header[STATE])).may_be_read_by(holder)
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
