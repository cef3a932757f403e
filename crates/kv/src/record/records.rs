//! Operations on records by their handles, whatever table they are in: validate, lock, write,
//! unlock.

use std::ops::Range;

use drtm_htm::{Access, Engine, Plain};
use drtm_rdma::{Offset, Region};

use crate::{
    Handle, Holder, KvError, Leases, Lend, Locking, PhantomGuard, ReadEntry, RetainOutcome, State, Store, Version,
    Worker,
    record::{HEAD, HEADER_WORDS, KEY, Record, STATE, Shape, VERSION},
    store::layout::Head,
};

/// Operations on records by their handles, whatever table they are in. A transaction validates its
/// read set and writes its write set by them.
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
/// // A key to insert gets a record, which says that it is absent.
/// let Placed::Made(seen) = table.place::<ForHolder>(&mut worker, 7, b"seven", None, |_| ())? else { panic!("it is new") };
/// assert!(!seen.is_present() && !table.contains(7)?);
///
/// // The commit: lock, validate, write, unlock.
/// let records = store.records();
/// let Locking::Taken { version, .. } = records.lock(seen.at, me)? else { panic!("no other thread runs") };
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
    /// Returns the operations on the store's records by their handles, for transactions.
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

    /// Returns whether a record is unchanged since it was seen, and not locked by another holder.
    ///
    /// # Example
    ///
    /// See [`Records`].
    #[must_use]
    #[inline(always)]
    pub fn is_still(&self, seen: ReadEntry, holder: Holder) -> bool {
        let Ok(is_still) = self.is_still_in(&mut Plain::new(self.region.engine()), seen, holder);
        is_still
    }

    /// Returns a record's key word: the key itself, if the table's keys fit into a word. `None`:
    /// the record is no longer at its place. The word may be outdated if the record is being moved
    /// or removed.
    #[must_use]
    pub fn key_word(&self, at: Handle) -> Option<u64> {
        let header = self.header(at).ok()?;
        let (engine, head) = (self.region.engine(), Head(self.region.engine().load(&header[HEAD])));
        (head.incarnation() == at.place().incarnation).then(|| engine.load(&header[KEY]))
    }

    /// Returns whether a record is still at its place, and not locked by another holder. The
    /// record's key leads to it until another holder locks it.
    #[must_use]
    #[inline]
    pub fn is_there(&self, at: Handle, holder: Holder) -> bool {
        let Ok(header) = self.header(at) else { return false };
        // The lock is loaded first. A writer that moves or removes a record holds its lock until
        // the record has another incarnation.
        let state = State(self.region.engine().load(&header[STATE]));
        let head = Head(self.region.engine().load_relaxed(&header[HEAD]));
        head.incarnation() == at.place().incarnation && state.may_be_read_by(holder)
    }

    /// Locks a record for a holder if it is free.
    ///
    /// # Errors
    ///
    /// When the handle leads out of memory.
    #[inline(always)]
    pub fn lock(&self, at: Handle, holder: Holder) -> Result<Locking, KvError> {
        Ok(Record::at(self.region, at.place())?.lock_as_it_is(holder, Leases::None))
    }

    /// Leases a record until a time, or shares a lease that runs. Until the lease ends, no
    /// transaction can lock the record, so its value does not change. Returns when the lease ends,
    /// or [`Lend::Locked`] for a locked record. `None`: the record is no longer at its place.
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
        // The incarnation is loaded after the lease was taken: it cannot change before the lease
        // ends.
        if record.head().incarnation() != at.place().incarnation {
            return Ok(None);
        }
        Ok(Some(lent.map_or_else(Lend::Locked, Lend::Shared)))
    }

    /// Returns the length of the value of a locked record, which has this head. Another value of
    /// the same length needs no other memory.
    ///
    /// # Errors
    ///
    /// When the htm transaction has aborted.
    #[inline(always)]
    pub fn length_in<A: Access<'s>>(&self, tx: &mut A, at: Handle, head: Head) -> Result<u32, A::Abort> {
        if let Some(length) = head.short_length() {
            return Ok(length.into());
        }
        match self.region.array::<1>(Offset::new(8 * (at.place().word + HEADER_WORDS as u64))) {
            // The lower half: the key's length is in the upper half.
            Ok([lengths]) => Ok(tx.load(lengths)? as u32),
            // No value is so long, so writing the record will fail.
            Err(_) => Ok(u32::MAX),
        }
    }

    /// [Locks](Self::lock) a record in an htm transaction.
    ///
    /// # Errors
    ///
    /// When the htm transaction has aborted.
    #[inline(always)]
    pub fn lock_in<A: Access<'s>>(&self, tx: &mut A, at: Handle, holder: Holder) -> Result<Locking, A::Abort> {
        match Record::at(self.region, at.place()) {
            Ok(record) => record.lock_in(tx, holder),
            Err(_) => Ok(Locking::Gone),
        }
    }

    /// [Validates](Self::is_still) a record in an htm transaction.
    ///
    /// # Errors
    ///
    /// When the htm transaction has aborted.
    #[inline(always)]
    pub fn is_still_in<A: Access<'s>>(&self, tx: &mut A, seen: ReadEntry, holder: Holder) -> Result<bool, A::Abort> {
        let Ok(header) = self.header(seen.at) else { return Ok(false) };
        // The lock is loaded first. A holder that takes it later will find what this transaction
        // has locked.
        let state = State(tx.load(&header[STATE])?);
        let version = Version(tx.load(&header[VERSION])?);
        let head = Head(tx.load(&header[HEAD])?);
        Ok(version == seen.version && head.incarnation() == seen.at.place().incarnation && state.may_be_read_by(holder))
    }

    /// Returns whether a phantom guard is unchanged, and with it the absence of a key or the keys
    /// of a range.
    #[must_use]
    #[inline(always)]
    pub fn is_unchanged(&self, seen: &impl PhantomGuard) -> bool {
        seen.holds(self.region)
    }

    /// [Validates](Self::is_unchanged) a phantom guard in an htm transaction.
    ///
    /// # Errors
    ///
    /// When the htm transaction has aborted.
    #[inline(always)]
    pub fn is_unchanged_in<A: Access<'s>>(&self, tx: &mut A, seen: &impl PhantomGuard) -> Result<bool, A::Abort> {
        seen.holds_in(tx, self.region)
    }

    /// Copies a record that the caller has locked and is about to write, so that snapshots can
    /// still read the old version. Copies only if `may_take` allows it and there is memory.
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

    /// Frees the older versions of a locked record that no snapshot needs. `is_needed(from,
    /// before)` is called for a version that was current from `from` until before `before`. Returns
    /// the number of freed bytes.
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

    /// Returns whether a record links to older versions.
    ///
    /// # Errors
    ///
    /// When the handle leads out of memory.
    pub fn has_past(&self, at: Handle) -> Result<bool, KvError> {
        Ok(Record::at(self.region, at.place())?.has_past())
    }

    /// Returns whether the value of a locked record has this length. Another value of the same
    /// length is written in place.
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

    /// Returns where a record begins, and how many bytes it has. `None`: it is no longer at its
    /// place. The length is arbitrary while the record is being written.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{Current, HashConfig, KvTable, NoValue, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
    /// table.insert(&mut worker, 7, b"seven")?;
    /// let found = table.read(7, Current, &mut NoValue)?.expect("it is there");
    /// let (begin, bytes) = store.records().extent(found.at).expect("it is there");
    /// assert!(begin.bytes() > 0);
    /// assert_eq!(bytes, 8 * (4 + 1), "a header, and a word for the value");
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[must_use]
    pub fn extent(&self, at: Handle) -> Option<(Offset, usize)> {
        let (record, place) = (Record::at(self.region, at.place()).ok()?, at.place());
        let head = record.head();
        let shape = Shape::of_any(head, record.lengths()).ok().filter(|shape| shape.is_possible())?;
        (head.incarnation() == place.incarnation).then(|| (Offset::new(8 * place.word), 8 * shape.words()))
    }

    /// Prefetches a record that is going to be locked soon. This is only a hint.
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

    /// Returns the version of a record. `None`: this holder has not locked it.
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

    /// Sets the version of a record that a holder has locked back by one. Returns it, or `None` if
    /// the holder does not have it. A peer that died while it wrote the record may have written the
    /// version and not all of the value: to write the value again, at that version, begins with
    /// this.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{ForHolder, HashConfig, KvTable, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
    /// let inserted = table.insert(&mut worker, 7, b"seven")?.expect("it is new");
    /// let (records, me) = (store.records(), worker.holder());
    /// let Ok(seen) = table.read(7, ForHolder(me), &mut Vec::new())? else { panic!("it is there") };
    /// assert_eq!(records.step_back(seen.at, me), None);
    /// records.lock(seen.at, me)?;
    /// let before = records.step_back(seen.at, me).expect("it is locked");
    /// assert_eq!(before.next(), inserted);
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[must_use]
    pub fn step_back(&self, at: Handle, holder: Holder) -> Option<Version> {
        let version = self.held_version(at, holder)?;
        let before = Version(version.0.wrapping_sub(Version::new(1).0));
        self.region.engine().store(&self.header(at).ok()?[VERSION], before.0);
        Some(before)
    }

    /// Returns the transaction that has locked a record. `None`: the record is not locked, or the
    /// handle leads out of memory.
    ///
    /// # Example
    ///
    /// See [`held_version`](Self::held_version).
    #[must_use]
    pub fn holder_of(&self, at: Handle) -> Option<Holder> {
        State(self.region.engine().load(&self.header(at).ok()?[STATE])).holder()
    }

    /// Unlocks a record that the caller has locked, and leaves it unchanged.
    #[inline(always)]
    pub fn unlock(&self, at: Handle) {
        // The lock was taken through this handle, so the handle is in bounds.
        if let Ok(header) = self.header(at) {
            self.region.engine().store(&header[STATE], State::FREE.0);
        }
    }

    /// Unlocks a record if this holder has locked it.
    pub fn unlock_if_held(&self, at: Handle, holder: Holder) {
        if let Ok(record) = Record::at(self.region, at.place()) {
            // If another holder has locked it, it stays locked.
            let _ = record.release(holder);
        }
    }

    /// Writes some words of the value of a record that the caller has locked, and unlocks it. The
    /// first `skipped` words stay unchanged. The part must end at the end of a word of the value,
    /// or of the value itself. The record may be in any table.
    ///
    /// # Errors
    ///
    /// [`KvError::NotThisPart`] if the value has no such part. Any other error means that the store
    /// is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{ForHolder, HashConfig, KvError, KvTable, Placed, Store, Version};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
    /// let Placed::Made(seen) = table.place::<ForHolder>(&mut worker, 7, b"first   second", None, |_| ())? else { panic!("it is new") };
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

    /// Returns which bytes of a part of a value differ from those of a record that the caller has
    /// locked, rounded to whole words. The part begins behind the first `skipped` words. `None`:
    /// the value has no such part, or the handle leads out of memory.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{ForHolder, HashConfig, KvTable, Placed, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
    /// let Placed::Made(seen) = table.place::<ForHolder>(&mut worker, 7, b"first   second", None, |_| ())? else { panic!("it is new") };
    /// let records = store.records();
    /// records.lock(seen.at, worker.holder())?;
    /// assert_eq!(records.changed_bytes(seen.at, 0, b"first   secund"), Some(8..14));
    /// assert_eq!(records.changed_bytes(seen.at, 1, b"second"), Some(0..0));
    /// assert_eq!(records.changed_bytes(seen.at, 0, b"first"), None);
    /// records.unlock(seen.at);
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[must_use]
    pub fn changed_bytes(&self, at: Handle, skipped: usize, part: &[u8]) -> Option<Range<usize>> {
        Record::at(self.region, at.place()).ok()?.changed_bytes(skipped, part)
    }

    /// Sets the version of a record that the caller has locked, without changing the value, and
    /// unlocks it. A [removed](Version::as_removed) version makes the key absent. Any other version
    /// makes a key present with the value that the record already has.
    ///
    /// # Errors
    ///
    /// When the handle leads out of memory.
    #[inline(always)]
    pub fn publish(&self, at: Handle, version: Version) -> Result<(), KvError> {
        let (header, engine) = (self.header(at)?, self.region.engine());
        if !version.is_removed() && Head(engine.load_relaxed(&header[HEAD])).is_checked() {
            // The checksum also covers the version.
            return Record::at(self.region, at.place())?.write_part_held(version, 0, &[]);
        }
        engine.store(&header[VERSION], version.0);
        engine.store(&header[STATE], State::FREE.0);
        Ok(())
    }
}
