//! The records of a store by their handles: looked at again, locked, written, unlocked, whatever
//! table they are in.

use drtm_htm::{Access, Engine, Plain};
use drtm_rdma::{Offset, Region};

use crate::{
    Handle, Holder, KvError, Leases, Lend, Locking, PhantomGuard, ReadEntry, RetainOutcome, State, Store, Version,
    Worker,
    layout::Head,
    record::{HEAD, HEADER_WORDS, KEY, Record, STATE, VERSION},
};

/// The records of a store by their handles, whatever table they are in: what a transaction does
/// with its read set and its write set.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::{ForHolder, HashConfig, KvTable, Locking, Placed, Store, Version};
///
/// let store = Store::in_memory(NoHtm, 16 << 20)?;
/// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
/// let me = worker.holder();
///
/// // A key that is to be inserted gets a record that says it is not there yet.
/// let Placed::Made(seen) = table.place(&mut worker, 7, b"seven", None, |_| ())? else { panic!("it is new") };
/// assert!(!seen.is_present() && !table.contains(7)?);
///
/// // The commit: lock, look whether all is as it was seen, write, unlock.
/// let records = store.records();
/// let Locking::Taken { version, .. } = records.lock(seen.at, me)? else { panic!("nobody else is here") };
/// assert!(records.is_still(seen, me) && version == seen.version);
/// table.write_held(seen.at, version.next(), b"seven")?;
///
/// let mut value = Vec::new();
/// let Ok(found) = table.read(7, ForHolder(me), &mut value)? else { panic!("it is there") };
/// assert!(found.is_present() && found.version > seen.version);
/// assert_eq!(value, b"seven");
/// # Ok::<(), drtm_kv::KvError>(())
/// ```
#[derive(Debug)]
pub struct Records<'s, E: Engine> {
    region: &'s Region<E>,
}

impl<E: Engine> Store<E> {
    /// Its records by their handles, for transactions.
    #[must_use]
    #[inline(always)]
    pub fn records(&self) -> Records<'_, E> {
        Records { region: self.region() }
    }
}

impl<'s, E: Engine> Records<'s, E> {
    #[inline(always)]
    fn header(&self, at: Handle) -> Result<&'s [drtm_htm::Word; HEADER_WORDS], KvError> {
        Ok(self.region.array(Offset::new(8 * at.place().word))?)
    }

    /// Whether a record is as it was seen, and nobody but this holder is about to change it.
    #[must_use]
    #[inline(always)]
    pub fn is_still(&self, seen: ReadEntry, holder: Holder) -> bool {
        let Ok(is_still) = self.is_still_in(&mut Plain::new(self.region.engine()), seen, holder);
        is_still
    }

    /// Returns the key's word of a record, if the record is still where it was: the key itself, if
    /// keys of its table fit into a word. What it says of a record that is being moved or taken out
    /// may be outdated.
    #[must_use]
    pub fn key_word(&self, at: Handle) -> Option<u64> {
        let header = self.header(at).ok()?;
        let (engine, head) = (self.region.engine(), Head(self.region.engine().load(&header[HEAD])));
        (head.incarnation() == at.place().incarnation).then(|| engine.load(&header[KEY]))
    }

    /// Whether a record is still where it was, and nobody but this holder is about to change it:
    /// until then its key leads to it.
    #[must_use]
    #[inline]
    pub fn is_there(&self, at: Handle, holder: Holder) -> bool {
        let Ok(header) = self.header(at) else { return false };
        // The lock first: who moves a record, or takes it out, holds it until the record has
        // another incarnation.
        let state = State(self.region.engine().load(&header[STATE]));
        let head = Head(self.region.engine().load_relaxed(&header[HEAD]));
        head.incarnation() == at.place().incarnation && state.may_be_read_by(holder)
    }

    /// Locks a record in a holder's name if it is free.
    ///
    /// # Errors
    ///
    /// When the handle leads out of memory.
    #[inline(always)]
    pub fn lock(&self, at: Handle, holder: Holder) -> Result<Locking, KvError> {
        Ok(Record::at(self.region, at.place())?.lock_as_it_is(holder, Leases::None))
    }

    /// Leases a record until a time, or shares a lease that runs: until it ends, no transaction can
    /// lock the record, and so its value stays what it is. Returns when it ends. A record that is
    /// locked is [`Lend::Locked`]; one that is not there any more is `None`.
    ///
    /// # Errors
    ///
    /// When the handle leads out of memory.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::{Engine, NoHtm};
    /// use drtm_kv::{ForHolder, HashConfig, KvTable, Leases, Lend, Locking, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
    /// table.insert(&mut worker, 7, b"seven")?;
    /// let (me, records) = (worker.holder(), store.records());
    /// let Ok(seen) = table.read(7, ForHolder(me), &mut Vec::new())? else { panic!("it is there") };
    ///
    /// assert_eq!(records.lease(seen.at, 500, Leases::None)?, Some(Lend::Shared(500)));
    /// assert_eq!(records.lease(seen.at, 900, Leases::None)?, Some(Lend::Shared(500)), "it is not made longer");
    /// assert!(matches!(records.lock(seen.at, me)?, Locking::Held(_)));
    /// // Later on.
    /// store.region().engine().store(store.region().time(), 501);
    /// assert!(matches!(records.lock(seen.at, me)?, Locking::Taken { .. }));
    /// assert_eq!(records.lease(seen.at, 900, Leases::None)?, Some(Lend::Locked(me)));
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    pub fn lease(&self, at: Handle, until: u64, leases: Leases) -> Result<Option<Lend>, KvError> {
        let record = Record::at(self.region, at.place())?;
        let lent = record.lease(until, leases);
        // The incarnation after the lease: until that ends, it stays the same.
        if record.head().incarnation() != at.place().incarnation {
            return Ok(None);
        }
        Ok(Some(lent.map_or_else(Lend::Locked, Lend::Shared)))
    }

    /// Returns the length of the value of a record that is locked, and has this head: another of
    /// the same length needs no other memory.
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
    pub fn lock_in<A: Access<'s>>(&self, tx: &mut A, at: Handle, holder: Holder) -> Result<Locking, A::Abort> {
        match Record::at(self.region, at.place()) {
            Ok(record) => record.lock_in(tx, holder),
            Err(_) => Ok(Locking::Gone),
        }
    }

    /// [Looks](Self::is_still) at a record in a hardware region.
    ///
    /// # Errors
    ///
    /// When the region has aborted.
    #[inline(always)]
    pub fn is_still_in<A: Access<'s>>(&self, tx: &mut A, seen: ReadEntry, holder: Holder) -> Result<bool, A::Abort> {
        let Ok(header) = self.header(seen.at) else { return Ok(false) };
        // The lock first: one that is taken later is taken by somebody who will find what this one
        // has locked.
        let state = State(tx.load(&header[STATE])?);
        let version = Version(tx.load(&header[VERSION])?);
        let head = Head(tx.load(&header[HEAD])?);
        Ok(version == seen.version && head.incarnation() == seen.at.place().incarnation && state.may_be_read_by(holder))
    }

    /// Whether what was seen where a key was looked for, or a range was passed, is unchanged.
    #[must_use]
    #[inline(always)]
    pub fn is_unchanged(&self, seen: &impl PhantomGuard) -> bool {
        seen.holds(self.region)
    }

    /// [The same](Self::is_unchanged) in a hardware region.
    ///
    /// # Errors
    ///
    /// When the region has aborted.
    #[inline(always)]
    pub fn is_unchanged_in<A: Access<'s>>(&self, tx: &mut A, seen: &impl PhantomGuard) -> Result<bool, A::Abort> {
        seen.holds_in(tx, self.region)
    }

    /// Copies a record that is locked by the caller, and about to be written by him, so that what
    /// it is now can be read later: if there is memory, and it may be taken.
    ///
    /// The record can be neither read nor unlocked until it has been written.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// See [`KvTable::read`](crate::KvTable::read).
    pub fn keep(&self, worker: &mut Worker<E>, at: Handle, may_take: bool) -> Result<RetainOutcome, KvError> {
        Ok(Record::at(self.region, at.place())?.keep(worker, may_take)?)
    }

    /// Forgets the older versions that nobody needs, of a record that is locked by the caller:
    /// `is_needed` is asked about what was from one version to before another. Gives the bytes that
    /// are free again.
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

    /// Whether the value of a record, which is locked, has this length: another of the same length
    /// is written where it is.
    ///
    /// # Errors
    ///
    /// When the handle leads out of memory.
    ///
    /// # Example
    ///
    /// See [`Records`].
    pub fn has_length(&self, at: Handle, length: usize) -> Result<bool, KvError> {
        let head = Record::at(self.region, at.place())?.head();
        let Ok(now) = self.length_in(&mut Plain::new(self.region.engine()), at, head);
        Ok(now as usize == length)
    }

    /// Asks for the memory of a record that is going to be locked soon. A hint.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{ForHolder, HashConfig, KvTable, Locking, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
    /// table.insert(&mut worker, 7, b"seven")?;
    /// let me = worker.holder();
    /// let Ok(seen) = table.read(7, ForHolder(me), &mut Vec::new())? else { panic!("it is there") };
    /// let records = store.records();
    /// records.prefetch(seen.at);
    /// // What takes its time goes here.
    /// assert!(matches!(records.lock(seen.at, me)?, Locking::Taken { .. }));
    /// records.unlock(seen.at);
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[inline(always)]
    pub fn prefetch(&self, at: Handle) {
        self.region.prefetch(at.place().word);
    }

    /// The version of a record, if this holder has it locked.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{ForHolder, HashConfig, KvTable, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
    /// let inserted = table.insert(&mut worker, 7, b"seven")?;
    /// let (me, records) = (worker.holder(), store.records());
    /// let Ok(seen) = table.read(7, ForHolder(me), &mut Vec::new())? else { panic!("it is there") };
    /// assert_eq!(records.held_version(seen.at, me), None);
    /// records.lock(seen.at, me)?;
    /// assert_eq!(records.held_version(seen.at, me), inserted);
    /// assert_eq!(records.holder_of(seen.at), Some(me));
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[must_use]
    pub fn held_version(&self, at: Handle, holder: Holder) -> Option<Version> {
        let (header, engine) = (self.header(at).ok()?, self.region.engine());
        let is_held = engine.load(&header[STATE]) == holder.word();
        let head = Head(engine.load(&header[HEAD]));
        (is_held && head.incarnation() == at.place().incarnation).then(|| Version(engine.load(&header[VERSION])))
    }

    /// The transaction that has a record locked, if one has.
    ///
    /// # Example
    ///
    /// See [`held_version`](Self::held_version).
    #[must_use]
    pub fn holder_of(&self, at: Handle) -> Option<Holder> {
        State(self.region.engine().load(&self.header(at).ok()?[STATE])).holder()
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
    pub fn unlock_if_held(&self, at: Handle, holder: Holder) {
        if let Ok(record) = Record::at(self.region, at.place()) {
            // If it is another's, it stays so.
            let _ = record.release(holder);
        }
    }

    /// Writes some words of the value of a record that the caller has locked, from the one behind
    /// the first `skipped` on, and unlocks it. What is written ends where a word of the value does,
    /// or the value itself. Which table the record is in does not matter.
    ///
    /// # Errors
    ///
    /// [`KvError::NotThisPart`]; or when the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{HashConfig, KvError, KvTable, Placed, Store, Version};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
    /// let Placed::Made(seen) = table.place(&mut worker, 7, b"first   second", None, |_| ())? else { panic!("it is new") };
    /// let (records, version) = (store.records(), Version::new(1_000));
    /// for (skipped, part) in [(1, b"SECOND".as_slice()), (0, b"FIRST   ")] {
    ///     records.lock(seen.at, worker.holder())?;
    ///     records.write_part(seen.at, version, skipped, part)?;
    /// }
    /// let mut value = [0; 14];
    /// table.get(7, &mut value)?;
    /// assert_eq!(&value, b"FIRST   SECOND");
    ///
    /// records.lock(seen.at, worker.holder())?;
    /// let refused = records.write_part(seen.at, version, 0, b"in a word");
    /// assert!(matches!(refused, Err(KvError::NotThisPart { length: 14, begin: 0, end: 9 })));
    /// # Ok::<(), KvError>(())
    /// ```
    #[inline(always)]
    pub fn write_part(&self, at: Handle, version: Version, skipped: usize, part: &[u8]) -> Result<(), KvError> {
        Record::at(self.region, at.place())?.write_part_held(version, skipped, part)
    }

    /// Gives another version to a record that is locked by the caller, without another value, and
    /// unlocks it. A [removed](Version::as_removed) one makes its key absent; one that is not makes
    /// a key present whose value the record has already.
    ///
    /// # Errors
    ///
    /// When the handle leads out of memory.
    #[inline(always)]
    pub fn publish(&self, at: Handle, version: Version) -> Result<(), KvError> {
        let (header, engine) = (self.header(at)?, self.region.engine());
        if !version.is_removed() && Head(engine.load_relaxed(&header[HEAD])).is_checked() {
            // The checksum is of the version, too.
            return Record::at(self.region, at.place())?.write_part_held(version, 0, &[]);
        }
        engine.store(&header[VERSION], version.0);
        engine.store(&header[STATE], State::FREE.0);
        Ok(())
    }
}
