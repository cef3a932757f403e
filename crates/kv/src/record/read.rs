//! Reading a record: one algorithm for each visibility and each way to identify the record.
//!
//! A reader's [`Visibility`] says which versions it sees, and its [`Identity`] how it identifies
//! the record. [`Record::try_read`] is the fast path: it reads once, and gives up on anything
//! unusual. [`Record::read`] is the slow path, which says what was unusual. See
//! `docs/decisions/0026`.
//!
//! A writer of the owner marks the version before it changes the value. A peer does not: it writes
//! the new version with the value, in any order, under the record's lock. So a reader that copies a
//! value looks at the lock twice: after it has loaded the version, so that the write of that
//! version has ended; and after the copy, before it loads the version again, so that the next write
//! has not begun. A reader that passes locks compares the checksum instead (see
//! `docs/decisions/0099`).

use std::hint::cold_path;

use drtm_htm::{Engine, fence_acquire};
use drtm_rdma::{OutOfBounds, words_for};

use super::{HEADER_WORDS, Look, Record};
use crate::{
    Handle, Holder, ReadEntry,
    mutation::{self, Mutation},
    record::{checksum::checksum, keys::Keys, value_sink::ValueSink},
    store::layout::{Head, Place, State, Version},
};

/// The versions of records that a reader sees, as a type, so that the code is specialised for each.
///
/// # Example
///
/// See [`Current`], [`ForHolder`] and [`AsOf`].
pub trait Visibility: See {}

impl<V: See> Visibility for V {}

/// Sees a record in any state, also one whose writer has died halfway. Its value means nothing.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::{HashConfig, InAnyState, KvTable, NoValue, Store};
///
/// let store = Store::in_memory(NoHtm, 16 << 20)?;
/// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
/// let version = table.insert(&mut worker, 7, b"seven")?.expect("it is new");
/// let found = table.read(7, InAnyState, &mut NoValue)?.expect("it is there");
/// assert_eq!(found.version, version);
/// # Ok::<(), drtm_kv::KvError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct InAnyState;

/// A key, and what was found of its record.
pub(crate) type FoundRow<K, V> = (K, <V as See>::Found);

/// Sees the current version of a record, locked or not. Also sees the records of absent keys.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::{Current, HashConfig, KvTable, Store};
///
/// let store = Store::in_memory(NoHtm, 16 << 20)?;
/// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
/// let version = table.insert(&mut worker, 7, b"seven")?.expect("it is new");
/// let found = table.read(7, Current, &mut Vec::new())?.expect("it is there");
/// assert!(found.is_present() && found.version == version);
/// # Ok::<(), drtm_kv::KvError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Current;

/// Sees the current version of a record, unless another transaction has locked it. This is what a
/// transaction may see.
///
/// # Example
///
/// See [`KvTable::read`](crate::KvTable::read).
#[derive(Clone, Copy, Debug)]
pub struct ForHolder(pub Holder);

/// For whom a record is [placed](crate::KvTable::place): whose view it is looked up in, and which
/// version a new one has.
pub trait Placing: Visibility + See<Found = ReadEntry> + Copy {
    /// Returns the view of this thread.
    fn of(holder: Holder) -> Self;

    /// Returns the version of a new record, from the lowest number that it may have.
    fn first(number: u64) -> Version;
}

/// A transaction: its new record says that the key is absent, and already holds the value for when
/// it becomes present.
impl Placing for ForHolder {
    #[inline(always)]
    fn of(holder: Holder) -> Self {
        Self(holder)
    }

    #[inline(always)]
    fn first(number: u64) -> Version {
        Version::new(number).removed()
    }
}

/// A single insertion: its new record is present at once.
impl Placing for Current {
    #[inline(always)]
    fn of(_: Holder) -> Self {
        Self
    }

    #[inline(always)]
    fn first(number: u64) -> Version {
        Version::new(number)
    }
}

/// Sees the versions before a given one: a snapshot. The reader knows that all earlier versions
/// have been written, or are being written under the records' locks. It also knows that the
/// versions it needs were [kept](crate::Records::keep).
///
/// # Example
///
/// See [`KvTable::read`](crate::KvTable::read).
#[derive(Clone, Copy, Debug)]
pub struct AsOf {
    before: Version,
    /// The state, version and place of the locked record that was met first. Its holder may be an
    /// earlier writer.
    met: Option<(State, Version, u64)>,
}

impl AsOf {
    /// Makes a view of the versions before this one.
    #[must_use]
    pub fn new(before: Version) -> Self {
        Self { before, met: None }
    }

    #[inline(always)]
    pub(super) fn includes(&self, version: Version) -> bool {
        version.number() < self.before.number()
    }

    /// Returns whether to wait for the record's holder, which may write a version that is to be
    /// seen. A transaction that takes the lock later does not write such a version. So the reader
    /// waits only for the first holder that it meets.
    #[inline(always)]
    fn must_wait(&mut self, state: State, version: Version, word: u64) -> bool {
        if !state.is_locked() {
            return false;
        }
        match self.met {
            Some(met) if met.2 == word => met == (state, version, word),
            _ => {
                self.met = Some((state, version, word));
                true
            }
        }
    }
}

/// A record's state at some time.
///
/// # Example
///
/// See [`KvTable::read`](crate::KvTable::read).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past {
    /// The key was present, with this version.
    Present(Version),
    /// The key was absent.
    Absent,
    /// The version was discarded: there was no memory to keep it.
    TooOld,
}

impl From<ReadEntry> for Past {
    #[inline(always)]
    fn from(found: ReadEntry) -> Self {
        if found.is_present() { Self::Present(found.version) } else { Self::Absent }
    }
}

/// Sees the current versions of the records of present keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Present;

/// What a reader sees of a record with some version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The reader sees this version.
    Now,
    /// The reader must wait for the lock's holder.
    Locked,
    /// The reader sees an older version.
    Older,
}

/// The parts of a [`Visibility`]. Public only because that trait is.
pub trait See {
    /// What a read returns, made of a record and its version.
    type Found: From<ReadEntry>;

    /// Whether the records of absent keys are found, too.
    const FINDS_ABSENT: bool = true;

    /// Whether a record is found while it is being written.
    const SEES_WRITING: bool = false;

    /// Whether each row is valid by itself. Otherwise the reader validates the [turn](crate::Turn)
    /// of everything that it has read.
    const IS_ALONE: bool = false;

    /// Returns whether the reader sees this version, locked or not, on the fast path.
    #[inline(always)]
    fn sees_fast(&self, _version: Version) -> bool {
        true
    }

    /// Returns whether the record's lock is not in the way of a reader of this version, which may
    /// copy the value (`copies`): a peer writes values of records with a checksum under their
    /// locks, without a mark.
    #[inline(always)]
    fn passes_lock<E: Engine>(&self, record: &Record<'_, E>, (version, head): (Version, Head), copies: bool) -> bool {
        !copies || !head.is_checked() || !record.state().is_locked() || record.is_sealed(version)
    }

    /// Returns whether no peer has begun to write the value, behind the copy of it.
    #[inline(always)]
    fn is_settled<E: Engine>(&self, record: &Record<'_, E>, seen: (Version, Head)) -> bool {
        self.passes_lock(record, seen, true)
    }

    /// Returns what the reader sees of a record with this version and head.
    #[inline(always)]
    fn visibility_of<E: Engine>(&mut self, record: &Record<'_, E>, seen: (Version, Head), copies: bool) -> Seen {
        if self.passes_lock(record, seen, copies) { Seen::Now } else { Seen::Locked }
    }

    /// Follows a record's links to older versions.
    fn read_older<E: Engine>(
        &self,
        _record: &Record<'_, E>,
        _head: Head,
        _into: &mut impl ValueSink,
    ) -> Result<Look<Self::Found>, OutOfBounds> {
        Ok(Look::Busy)
    }
}

impl See for InAnyState {
    type Found = ReadEntry;
    const SEES_WRITING: bool = true;
}

impl See for Current {
    type Found = ReadEntry;
    const IS_ALONE: bool = true;
}

impl See for Present {
    type Found = ReadEntry;
    const FINDS_ABSENT: bool = false;
    const IS_ALONE: bool = true;
}

impl See for ForHolder {
    type Found = ReadEntry;

    #[inline(always)]
    fn passes_lock<E: Engine>(&self, record: &Record<'_, E>, _seen: (Version, Head), _copies: bool) -> bool {
        record.state().may_be_read_by(self.0)
    }
}

impl See for AsOf {
    type Found = Past;

    #[inline(always)]
    fn sees_fast(&self, version: Version) -> bool {
        self.includes(version)
    }

    #[inline(always)]
    fn passes_lock<E: Engine>(&self, record: &Record<'_, E>, _seen: (Version, Head), _copies: bool) -> bool {
        !record.state().is_locked()
    }

    #[inline(always)]
    fn is_settled<E: Engine>(&self, _record: &Record<'_, E>, _seen: (Version, Head)) -> bool {
        // It has waited for the holder that had the lock when the snapshot was opened. A peer that
        // has locked the record since knows of the snapshot, and writes by message.
        true
    }

    #[inline(always)]
    fn visibility_of<E: Engine>(
        &mut self,
        record: &Record<'_, E>,
        (version, _head): (Version, Head),
        _copies: bool,
    ) -> Seen {
        // A transaction that holds a record with a version that is too new writes a later one.
        if !self.includes(version) {
            return Seen::Older;
        }
        if self.must_wait(record.state(), version, record.place.word) { Seen::Locked } else { Seen::Now }
    }

    fn read_older<E: Engine>(
        &self,
        record: &Record<'_, E>,
        head: Head,
        into: &mut impl ValueSink,
    ) -> Result<Look<Past>, OutOfBounds> {
        record.read_older(head, self, into)
    }
}

/// Returns whether a sink takes a value.
#[inline(always)]
fn is_wanted<R: ValueSink>(_: &R) -> bool {
    R::IS_WANTED
}

/// How a reader identifies the record that it reads.
pub(crate) trait Identity<K: Keys> {
    /// Returns whether a record with this head is the right one.
    fn is<E: Engine>(&mut self, record: &Record<'_, E>, head: Head) -> Result<bool, OutOfBounds>;
}

/// Identifies a record by its whole key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WholeKey<'k, K: Keys>(pub(crate) K::Key<'k>);

/// Identifies a record by its key word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyWord(pub(crate) u64);

/// Identifies a record by its place alone, and copies its key, which the record stores.
#[derive(Debug)]
pub(crate) struct KeyInto<'b>(pub(crate) &'b mut Vec<u8>);

impl<K: Keys> Identity<K> for WholeKey<'_, K> {
    #[inline(always)]
    fn is<E: Engine>(&mut self, record: &Record<'_, E>, head: Head) -> Result<bool, OutOfBounds> {
        record.has_key::<K>(head, self.0)
    }
}

impl<K: Keys> Identity<K> for KeyWord {
    #[inline(always)]
    fn is<E: Engine>(&mut self, record: &Record<'_, E>, _head: Head) -> Result<bool, OutOfBounds> {
        Ok(record.key_word() == self.0)
    }
}

impl<K: Keys> Identity<K> for KeyInto<'_> {
    #[inline(always)]
    fn is<E: Engine>(&mut self, record: &Record<'_, E>, head: Head) -> Result<bool, OutOfBounds> {
        record.copy_kept_key::<K>(head, self.0).map(|()| true)
    }
}

impl<E: Engine> Record<'_, E> {
    /// Reads the record by the fast path, once. `None`: the record is being written, absent,
    /// another one, or locked, so the caller must [read](Self::read) it.
    #[inline(always)]
    pub(crate) fn try_read<K: Keys, V: See>(
        &self,
        identity: impl Identity<K>,
        view: &V,
        into: &mut impl ValueSink,
    ) -> Option<V::Found> {
        let (version, _) = self.look_once::<K, V>(identity, view, into)?;
        let is_same = self.head().incarnation() == self.place.incarnation
            || mutation::includes(Mutation::ReadWithoutVersion)
            || mutation::includes(Mutation::PlaceWithoutIncarnation);
        is_same.then(|| self.entry(version).into())
    }

    /// Reads by the fast path a record whose incarnation is not known, only its place. The caller
    /// makes sure that a slot leads there during the whole read.
    #[inline(always)]
    pub(crate) fn try_read_by_slot<K: Keys, V: See>(
        &self,
        identity: impl Identity<K>,
        view: &V,
        into: &mut impl ValueSink,
    ) -> Option<V::Found> {
        let (version, head) = self.look_once::<K, V>(identity, view, into)?;
        let at = Handle::of(Place { incarnation: head.incarnation(), ..self.place });
        Some(ReadEntry { at, version }.into())
    }

    /// Returns the record as it was seen with this version.
    #[inline(always)]
    pub(super) fn entry(&self, version: Version) -> ReadEntry {
        ReadEntry { at: Handle::of(self.place), version }
    }

    #[inline(always)]
    fn look_once<K: Keys, V: See>(
        &self,
        mut identity: impl Identity<K>,
        view: &V,
        into: &mut impl ValueSink,
    ) -> Option<(Version, Head)> {
        let version = self.version();
        if version.is_writing() || version.is_removed() || !view.sees_fast(version) {
            return None;
        }
        let (head, copies) = (self.head(), is_wanted(into));
        if !view.passes_lock(self, (version, head), copies) && !mutation::includes(Mutation::CopyWithoutLockBefore) {
            return None;
        }
        if !identity.is(self, head).ok()? {
            return None;
        }
        self.copy_expected::<K, _>(head, into)?;
        fence_acquire();
        if copies && !view.is_settled(self, (version, head)) && !mutation::includes(Mutation::CopyWithoutLockAfter) {
            return None;
        }
        let is_same = self.version() == version || mutation::includes(Mutation::ReadWithoutVersion);
        is_same.then_some((version, head))
    }

    /// Reads the record if it is the right one, and copies as much of its value as the sink takes.
    /// The copy is invalid unless something is found.
    #[inline(always)]
    pub(crate) fn read<K: Keys, V: See>(
        &self,
        mut identity: impl Identity<K>,
        view: &mut V,
        into: &mut impl ValueSink,
    ) -> Result<Look<V::Found>, OutOfBounds> {
        let version = self.version();
        let head = self.head();
        let is_current = head.incarnation() == self.place.incarnation;
        if version.is_writing() && !V::SEES_WRITING {
            cold_path();
            return Ok(if is_current { Look::Busy } else { Look::Stale });
        }
        let copies = is_wanted(into) && !version.is_removed();
        let mut seen = view.visibility_of(self, (version, head), copies);
        let is_it = match identity.is(self, head) {
            Ok(true) if seen == Seen::Now && !version.is_removed() => {
                self.shape::<K>(head).and_then(|shape| self.copy_wanted(shape, into)).map(|()| true)
            }
            is_it => is_it,
        };
        // What was read may be arbitrary, errors included, unless the version is unchanged.
        fence_acquire();
        if seen == Seen::Now && copies && !view.is_settled(self, (version, head)) {
            seen = Seen::Locked;
        }
        if self.version() != version && !mutation::includes(Mutation::ReadWithoutVersion) {
            cold_path();
            return Ok(Look::Busy);
        }
        // Then the incarnation and the key decide: the memory may have been reused since the reader
        // learned of the record.
        if self.head().incarnation() != self.place.incarnation {
            cold_path();
            return Ok(Look::Stale);
        }
        match is_it? {
            // Whether it is locked or not: a lock keeps readers from its own key only. An inserting
            // transaction may have locked another key that begins like it.
            false => Ok(Look::Other),
            true if seen == Seen::Locked => {
                cold_path();
                Ok(Look::Busy)
            }
            true if seen == Seen::Older => view.read_older(self, head, into),
            true if !V::FINDS_ABSENT && version.is_removed() => Ok(Look::Absent),
            true => Ok(Look::Found(self.entry(version).into())),
        }
    }

    /// Returns whether the value, as it is now, has the checksum of this version: for readers that
    /// pass locks. A value that had it before a copy and has it after was not written meanwhile.
    #[cold]
    #[inline(never)]
    fn is_sealed(&self, version: Version) -> bool {
        let head = self.head();
        let Ok(shape) = self.shape_of(head) else { return false };
        if !shape.is_possible() {
            return false;
        }
        let (mut value, behind) = (Vec::new(), shape.value_words().end - HEADER_WORDS);
        let (Ok(()), Ok([sum])) = (self.copy_wanted(shape, &mut value), self.body(behind, 1)) else { return false };
        self.engine().load_relaxed(sum) == checksum(self.key_word(), version, head, shape.lengths_if_any(), &value)
    }

    /// Copies as much of the value as the sink takes, on the fast path. `None`: the value has
    /// another length than expected.
    ///
    /// A value of the expected length is copied without waiting for the head: neither its place nor
    /// its length depends on the head then.
    // A value of another length is not copied here: the sink would have to be in memory on the fast
    // path, too.
    #[inline(always)]
    fn copy_expected<K: Keys, R: ValueSink>(&self, head: Head, into: &mut R) -> Option<()> {
        if !R::IS_WANTED {
            return Some(());
        }
        let (true, Some(whole)) = (K::FITS, into.whole()) else {
            return self.copy_wanted(self.shape::<K>(head).ok()?, into).ok();
        };
        let is_short = whole <= Head::MAX_SHORT;
        let before = usize::from(!is_short);
        let body = self.body(0, before + words_for(whole)).ok()?;
        let is_as_long = match head.short_length() {
            Some(length) => is_short && usize::from(length) == whole,
            None => !is_short && self.engine().load_relaxed(&body[0]) == whole as u64,
        };
        if is_as_long {
            self.copy_parts(&body[before..], whole, into);
        }
        is_as_long.then_some(())
    }
}
