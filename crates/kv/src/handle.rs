//! Records as transactions know them: by where they are, in which use of their memory, and in which version they were seen.

use drtm_htm::{Access, Engine, Plain};
use drtm_rdma::{Offset, Region};

use crate::{
    KvError, State, Version, Worker,
    heap::Class,
    layout::{Head, Place},
    record::{HEAD, HEADER_WORDS, Record, STATE, Shape, VERSION},
};

/// Where a record is in its region, and in which use of that memory: in one word. Handles are ordered by place.
///
/// # Example
///
/// See [`Records`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Handle(u64);

impl Handle {
    #[inline(always)]
    pub(crate) fn of(place: Place) -> Self {
        // The place above the incarnation, so that the order is that of memory.
        Self(place.word << 16 | u64::from(place.incarnation))
    }

    #[inline(always)]
    pub(crate) fn place(self) -> Place {
        Place { word: self.0 >> 16, incarnation: self.0 as u16 }
    }

    /// A number in which handles of different records differ, mostly in the lowest bits.
    #[must_use]
    #[inline(always)]
    pub const fn mixed(self) -> u64 {
        self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32
    }
}

/// A record as it was seen. If its version is a [removed](Version::is_removed) one, it stands for a key that is not there.
///
/// # Example
///
/// See [`Records`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The record.
    pub at: Handle,
    /// The version it had.
    pub version: Version,
}

impl Sighting {
    /// Whether there was such a key.
    #[must_use]
    #[inline(always)]
    pub const fn is_present(&self) -> bool {
        !self.version.is_removed()
    }
}

/// Where a key was not found: as long as it is unchanged, the key is not there.
///
/// # Example
///
/// See [`HashTable::fetch`](crate::HashTable::fetch), [`Tree::fetch`](crate::Tree::fetch).
pub trait Witness {
    /// Whether it is unchanged.
    #[doc(hidden)]
    #[inline(always)]
    fn holds<E: Engine>(&self, region: &Region<E>) -> bool {
        let Ok(holds) = self.holds_in(&mut Plain::new(region.engine()), region);
        holds
    }

    /// The same in a hardware region.
    #[doc(hidden)]
    fn holds_in<'m, E: Engine, A: Access<'m>>(&self, tx: &mut A, region: &'m Region<E>) -> Result<bool, A::Abort>;
}

/// What a transaction finds of a key: a record, or nothing in a place that is looked at again later.
///
/// # Example
///
/// See [`HashTable::fetch`](crate::HashTable::fetch).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched<N> {
    /// The key's record. The key itself may be absent.
    Record(Sighting),
    /// There is none, as long as this is unchanged.
    Nothing(N),
}

/// The record of a key that is to be inserted.
///
/// # Example
///
/// See [`Records`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// There was one.
    Found(Sighting),
    /// There is one now. It says that the key is not there, until its transaction commits.
    Made(Sighting),
}

/// What came of an attempt to take the record of an absent key out of its table.
///
/// # Example
///
/// See [`HashTable::reap`](crate::HashTable::reap).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaped {
    /// It is out.
    Out,
    /// It is not as it was seen, or not there: somebody else has use for it, or has taken it out.
    Gone,
    /// Somebody has it locked: try again later.
    Busy,
}

/// What came of an attempt to keep what a record is, before it is written.
///
/// # Example
///
/// See [`HashTable::fetch_past`](crate::HashTable::fetch_past).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "memory for older versions is counted by who keeps them"]
pub enum Kept {
    /// There is a copy of it.
    Copy {
        /// The bytes that it takes.
        bytes: u64,
    },
    /// There was no memory for one, or it might not be taken. What the record is now and was before will be forgotten, and whoever asks is told so.
    Forgotten {
        /// The bytes that what it was before took, and which are free again.
        freed: u64,
    },
}

/// Memory for a record that has to move, for a value of one length.
///
/// # Example
///
/// See [`HashTable::reserve`](crate::HashTable::reserve).
#[derive(Debug)]
#[must_use = "memory that is not given back is lost"]
pub struct Reserved {
    pub(crate) word: u64,
    pub(crate) class: Class,
    pub(crate) shape: Shape,
}

/// What came of an attempt to lock a record.
///
/// # Example
///
/// See [`Records`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locking {
    /// It is locked now.
    Taken {
        /// Its version.
        version: Version,
        /// Its head: whether it links to older versions, and how long its value is, or [where](Records::length) that is to be found.
        head: Head,
    },
    /// Somebody has it locked, or leased.
    Held(State),
    /// It is not the record of that handle any more.
    Gone,
}

/// A record that somebody has [locked](Records::lock_record), and what it was like then. It stays locked until it is written or unlocked.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::{HashConfig, Placed, Store};
///
/// let store = Store::in_memory(NoHtm, 16 << 20)?;
/// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker());
/// table.insert(&mut worker, 7, b"seven")?;
/// let Placed::Found(seen) = table.place(&mut worker, 7, b"", |_| ())? else { panic!("it is there") };
///
/// let locked = store.records().lock_record(seen.at, worker.lock_state())?.expect("nobody else is here");
/// assert_eq!(locked.version(), seen.version);
/// let locked = locked.write(seen.version.next(), b"longer").expect_err("it has no room for that");
/// assert!(locked.write(seen.version.next(), b"SEVEN").is_ok());
/// let mut value = [0; 5];
/// table.get(7, &mut value)?;
/// assert_eq!(&value, b"SEVEN");
/// # Ok::<(), drtm_kv::KvError>(())
/// ```
#[derive(Debug)]
#[must_use = "somebody has to unlock it"]
pub struct LockedRecord<'s, E: Engine> {
    record: Record<'s, E>,
    version: Version,
    head: Head,
}

impl<E: Engine> LockedRecord<'_, E> {
    /// Its version.
    #[inline(always)]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Its head: whether it links to older versions, and how long its value is.
    #[inline(always)]
    pub fn head(&self) -> Head {
        self.head
    }

    /// Gives it another value, and unlocks it: if that is all there is to do, as it is for one of the same length, and without a checksum or older versions. Otherwise nothing has
    /// happened, and it is given back.
    ///
    /// # Errors
    ///
    /// The record, still locked.
    #[inline(always)]
    pub fn write(self, version: Version, value: &[u8]) -> Result<(), Self> {
        match self.record.plain_words(self.head, value.len()) {
            Some(words) => {
                self.record.write_words(self.version, version, words, value);
                Ok(())
            }
            None => Err(self),
        }
    }

    /// Unlocks it as it is.
    #[inline(always)]
    pub fn unlock(self) {
        self.record.unlock();
    }
}

/// The records of a store by their handles, whatever table they are in: what a transaction does with its read set and its write set.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::{Fetched, HashConfig, Locking, Placed, Store, Version};
///
/// let store = Store::in_memory(NoHtm, 16 << 20)?;
/// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker());
/// let me = worker.lock_state();
///
/// // A key that is to be inserted gets a record that says it is not there yet.
/// let Placed::Made(seen) = table.place(&mut worker, 7, b"seven", |_| ())? else { panic!("it is new") };
/// assert!(!seen.is_present() && !table.contains(7)?);
///
/// // The commit: lock, look whether all is as it was seen, write, unlock.
/// let records = store.records();
/// let Locking::Taken { version, .. } = records.lock(seen.at, me)? else { panic!("nobody else is here") };
/// assert!(records.is_still(seen, me) && version == seen.version);
/// table.write_held(seen.at, version.next(), b"seven")?;
///
/// let mut value = Vec::new();
/// let Fetched::Record(found) = table.fetch(7, me, &mut value)? else { panic!("it is there") };
/// assert!(found.is_present() && found.version > seen.version);
/// assert_eq!(value, b"seven");
/// # Ok::<(), drtm_kv::KvError>(())
/// ```
#[derive(Debug)]
pub struct Records<'s, E: Engine> {
    region: &'s Region<E>,
}

impl<'s, E: Engine> Records<'s, E> {
    pub(crate) fn new(region: &'s Region<E>) -> Self {
        Self { region }
    }

    #[inline(always)]
    fn header(&self, at: Handle) -> Result<&'s [drtm_htm::Word; HEADER_WORDS], KvError> {
        Ok(self.region.array(Offset::new(8 * at.place().word))?)
    }

    /// Whether a record is as it was seen, and nobody but this holder is about to change it.
    #[must_use]
    #[inline(always)]
    pub fn is_still(&self, seen: Sighting, holder: State) -> bool {
        let Ok(is_still) = self.is_still_in(&mut Plain::new(self.region.engine()), seen, holder);
        is_still
    }

    /// Whether a record is still where it was, and nobody but this holder is about to change it: until then its key leads to it.
    #[must_use]
    #[inline]
    pub fn is_there(&self, at: Handle, holder: State) -> bool {
        let Ok(header) = self.header(at) else { return false };
        // The lock first: who moves a record, or takes it out, holds it until the record has another incarnation.
        let state = State(self.region.engine().load(&header[STATE]));
        let head = Head(self.region.engine().load_relaxed(&header[HEAD]));
        head.incarnation() == at.place().incarnation && (!state.is_locked() || state == holder)
    }

    /// Locks a record in a holder's name if it is free.
    ///
    /// # Errors
    ///
    /// When the handle leads out of memory.
    #[inline(always)]
    pub fn lock(&self, at: Handle, holder: State) -> Result<Locking, KvError> {
        Ok(match self.lock_record(at, holder)? {
            Ok(LockedRecord { version, head, .. }) => Locking::Taken { version, head },
            Err(Some(state)) => Locking::Held(state),
            Err(None) => Locking::Gone,
        })
    }

    /// The same for who goes on with the record at once. `Err`: who has it locked, or nobody if it is not the record of that handle any more.
    ///
    /// # Errors
    ///
    /// As for [`lock`](Self::lock).
    ///
    /// # Example
    ///
    /// See [`LockedRecord`].
    #[inline(always)]
    pub fn lock_record(
        &self,
        at: Handle,
        holder: State,
    ) -> Result<Result<LockedRecord<'s, E>, Option<State>>, KvError> {
        let record = Record::at(self.region, at.place())?;
        Ok(match record.lock_as_it_is(holder) {
            Ok((version, head)) => Ok(LockedRecord { record, version, head }),
            Err(state) => Err(state),
        })
    }

    /// The length of the value of a record that is locked, and has this head: another of the same length needs no other memory.
    #[must_use]
    #[inline(always)]
    pub fn length(&self, at: Handle, head: Head) -> u32 {
        let Ok(length) = self.length_in(&mut Plain::new(self.region.engine()), at, head);
        length
    }

    /// [The same](Self::length) in a hardware region.
    ///
    /// # Errors
    ///
    /// When the region has aborted.
    #[inline(always)]
    pub fn length_in<A: Access<'s>>(&self, tx: &mut A, at: Handle, head: Head) -> Result<u32, A::Abort> {
        if let Some(length) = head.short_length() {
            return Ok(length.into());
        }
        match self.region.array::<1>(Offset::new(8 * (at.place().word + HEADER_WORDS as u64))) {
            // The lower half: the key's is above.
            Ok([lengths]) => Ok(tx.load(lengths)? as u32),
            // No value has so many bytes, so that whoever writes the record finds out.
            Err(_) => Ok(u32::MAX),
        }
    }

    /// [Locks](Self::lock) a record in a hardware region.
    ///
    /// # Errors
    ///
    /// When the region has aborted.
    #[inline(always)]
    pub fn lock_in<A: Access<'s>>(&self, tx: &mut A, at: Handle, holder: State) -> Result<Locking, A::Abort> {
        let Ok(header) = self.header(at) else { return Ok(Locking::Gone) };
        let head = Head(tx.load(&header[HEAD])?);
        let version = Version(tx.load(&header[VERSION])?);
        if head.incarnation() != at.place().incarnation || version.is_writing() {
            return Ok(Locking::Gone);
        }
        let state = State(tx.load(&header[STATE])?);
        if state != State::FREE {
            return Ok(Locking::Held(state));
        }
        tx.store(&header[STATE], holder.0)?;
        Ok(Locking::Taken { version, head })
    }

    /// [Looks](Self::is_still) at a record in a hardware region.
    ///
    /// # Errors
    ///
    /// When the region has aborted.
    #[inline(always)]
    pub fn is_still_in<A: Access<'s>>(&self, tx: &mut A, seen: Sighting, holder: State) -> Result<bool, A::Abort> {
        let Ok(header) = self.header(seen.at) else { return Ok(false) };
        // The lock first: one that is taken later is taken by somebody who will find what this one has locked.
        let state = State(tx.load(&header[STATE])?);
        let version = Version(tx.load(&header[VERSION])?);
        let head = Head(tx.load(&header[HEAD])?);
        Ok(version == seen.version
            && head.incarnation() == seen.at.place().incarnation
            && (!state.is_locked() || state == holder))
    }

    /// Whether what was seen where a key was looked for, or a range was passed, is unchanged.
    #[must_use]
    #[inline(always)]
    pub fn is_unchanged(&self, seen: &impl Witness) -> bool {
        seen.holds(self.region)
    }

    /// [The same](Self::is_unchanged) in a hardware region.
    ///
    /// # Errors
    ///
    /// When the region has aborted.
    #[inline(always)]
    pub fn is_unchanged_in<A: Access<'s>>(&self, tx: &mut A, seen: &impl Witness) -> Result<bool, A::Abort> {
        seen.holds_in(tx, self.region)
    }

    /// Copies a record that is locked by the caller, and about to be written by him, so that what it is now can be read later: if there is memory, and it may be taken.
    ///
    /// The record can be neither read nor unlocked until it has been written.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// See [`HashTable::fetch_past`](crate::HashTable::fetch_past).
    pub fn keep(&self, worker: &mut Worker<E>, at: Handle, may_take: bool) -> Result<Kept, KvError> {
        Ok(Record::at(self.region, at.place())?.keep(worker, may_take)?)
    }

    /// Forgets the older versions that nobody needs, of a record that is locked by the caller: `is_needed` is asked about what was from one version to before
    /// another. Gives the bytes that are free again.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    pub fn forget(
        &self,
        worker: &mut Worker<E>,
        at: Handle,
        is_needed: impl Fn(Version, Version) -> bool,
    ) -> Result<u64, KvError> {
        let record = Record::at(self.region, at.place())?;
        if !record.has_past() {
            return Ok(0);
        }
        let now = Version(self.region.engine().load(&self.header(at)?[VERSION]));
        Ok(record.forget(worker, now, is_needed)?)
    }

    /// Whether a record links to older versions.
    ///
    /// # Errors
    ///
    /// When the handle leads out of memory.
    pub fn has_past(&self, at: Handle) -> Result<bool, KvError> {
        Ok(Record::at(self.region, at.place())?.has_past())
    }

    /// Asks for the memory of a record that is going to be locked soon. A hint.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{Fetched, HashConfig, Locking, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker());
    /// table.insert(&mut worker, 7, b"seven")?;
    /// let me = worker.lock_state();
    /// let Fetched::Record(seen) = table.fetch(7, me, &mut Vec::new())? else { panic!("it is there") };
    /// let records = store.records();
    /// records.ask_for(seen.at);
    /// // What takes its time goes here.
    /// assert!(matches!(records.lock(seen.at, me)?, Locking::Taken { .. }));
    /// records.unlock(seen.at);
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[inline(always)]
    pub fn ask_for(&self, at: Handle) {
        self.region.prefetch(at.place().word);
    }

    /// Gives up the lock of a record that is locked by the caller, as it is.
    #[inline(always)]
    pub fn unlock(&self, at: Handle) {
        // A lock was taken through this handle, so it leads somewhere.
        if let Ok(header) = self.header(at) {
            self.region.engine().store(&header[STATE], State::FREE.0);
        }
    }

    /// Gives up the lock of a record if it is this holder's.
    pub fn unlock_if_held(&self, at: Handle, holder: State) {
        if let Ok(record) = Record::at(self.region, at.place()) {
            // If it is another's, it stays so.
            let _ = record.release(holder);
        }
    }

    /// What a record is like that the caller has locked before.
    ///
    /// # Errors
    ///
    /// When the handle leads out of memory.
    pub fn held(&self, at: Handle) -> Result<Locking, KvError> {
        let (header, engine) = (self.header(at)?, self.region.engine());
        let (version, head) = (Version(engine.load(&header[VERSION])), Head(engine.load_relaxed(&header[HEAD])));
        Ok(Locking::Taken { version, head })
    }

    /// Writes some words of the value of a record that the caller has locked, from the one behind the first `skipped` on, and unlocks it. What is written ends where a
    /// word of the value does, or the value itself. Which table the record is in does not matter.
    ///
    /// # Errors
    ///
    /// [`KvError::NotThisPart`]; or when the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{HashConfig, KvError, Placed, Store, Version};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker());
    /// let Placed::Made(seen) = table.place(&mut worker, 7, b"first   second", |_| ())? else { panic!("it is new") };
    /// let (records, version) = (store.records(), Version::new(1_000));
    /// for (skipped, part) in [(1, b"SECOND".as_slice()), (0, b"FIRST   ")] {
    ///     records.lock(seen.at, worker.lock_state())?;
    ///     records.write_part(seen.at, version, skipped, part)?;
    /// }
    /// let mut value = Vec::new();
    /// table.fetch(7, worker.lock_state(), &mut value)?;
    /// assert_eq!(value, b"FIRST   SECOND");
    ///
    /// records.lock(seen.at, worker.lock_state())?;
    /// let refused = records.write_part(seen.at, version, 0, b"in a word");
    /// assert!(matches!(refused, Err(KvError::NotThisPart { length: 14, begin: 0, end: 9 })));
    /// # Ok::<(), KvError>(())
    /// ```
    #[inline(always)]
    pub fn write_part(&self, at: Handle, version: Version, skipped: usize, part: &[u8]) -> Result<(), KvError> {
        Record::at(self.region, at.place())?.write_part_held(version, skipped, part)
    }

    /// Gives another version to a record that is locked by the caller, without another value, and unlocks it. A [removed](Version::as_removed) one makes its
    /// key absent; one that is not makes a key present whose value the record has already.
    ///
    /// # Errors
    ///
    /// When the handle leads out of memory.
    #[inline(always)]
    pub fn publish(&self, at: Handle, version: Version) -> Result<(), KvError> {
        let (header, engine) = (self.header(at)?, self.region.engine());
        engine.store(&header[VERSION], version.0);
        engine.store(&header[STATE], State::FREE.0);
        Ok(())
    }
}
