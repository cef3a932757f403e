//! What an owner does for transactions: every request, carried out on local memory.
//!
//! A transaction of this node calls it directly, one of another by message. It never waits for a
//! record's lock.

mod logs;

use std::{
    ops::{Bound, ControlFlow},
    sync::{
        Arc,
        atomic::{
            AtomicUsize,
            Ordering::{Relaxed, Release},
        },
    },
};

use drtm_htm::Engine;
use drtm_kv::{Current, ForHolder, Handle, Holder, KvError, Leases, Lend, NoValue, ReadEntry, Reserved, Version};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::{
    access::{Access, Entered},
    index_info::IndexInfo,
    log::Backup,
    partition::Divide,
    wire::{
        ApplyRows, Change, ChangedRow, Found, Is, LeasedRow, LineIs, Placed, Refusal, Scanned, ScannedRow, Shifted,
        Shifts, Wire as _,
    },
};
use crate::{
    Config, Conflict, Durability, Error,
    commit::{
        self,
        write_set::{Write, WriteOp},
    },
    db::inner::Inner,
    memory::{
        arena::{ArenaKey, ArenaRange},
        reclaim,
        storage::{Absence, Expected, KeyRef, Shift, Storage},
    },
    mutation::Mutation,
    schema::table::Any,
    tx::{position::Way, state::TxState},
};

/// A node's tables, as its participants serve them.
#[derive(Debug)]
pub(super) struct Home<S: Config> {
    pub(super) db: Arc<Inner<S>>,
    pub(super) tables: Vec<Served<S::Engine>>,
    pub(super) reservations: Reservations,
    /// Which clients have access, if it is the one owner and frees what dead ones have locked.
    pub(super) access: Option<Access>,
    /// What it does for other owners, where owners have backups.
    pub(super) backup: Option<Backup<S::Engine>>,
}

impl<S: Config> Home<S> {
    /// Lets a transaction's call in that locks or writes.
    fn enter(&self, holder: Holder) -> Result<Option<Entered<'_>>, Refusal> {
        self.access
            .as_ref()
            .filter(|_| !S::has(Mutation::AccessNotRevoked))
            .map(|access| access.enter(holder))
            .transpose()
    }

    /// When its log has what is written to it. `None` without a log.
    pub(super) fn durability(&self) -> Option<Durability> {
        self.db.log.as_ref().map(|log| log.mode())
    }

    /// The record of a key that is locked, and the lock's holder.
    pub(super) fn lock_of(&self, table: &Served<S::Engine>, key: KeyRef<'_>) -> Option<(Handle, Holder)> {
        let at = table.storage.read::<Any, _>(key, Current, &mut NoValue).ok()?.ok()?.at;
        Some((at, self.db.store.records().holder_of(at)?))
    }
}

/// A table that is served.
#[derive(Debug)]
pub(super) struct Served<E: Engine> {
    /// Its number in the node's database.
    pub(super) number: u16,
    /// As a participant uses it, which does not wait.
    pub(super) storage: Storage<E>,
    /// Bytes of a key that packs into a word.
    pub(super) key_size: usize,
    /// Whether every node has all rows, and they are only read.
    pub(super) is_replicated: bool,
    /// How its rows are divided among the owners; those of an index, by the index's keys.
    pub(super) partition: Box<dyn Divide>,
    pub(super) indexes: Vec<Box<dyn IndexInfo>>,
    /// The table whose index it is, and which of that one's indexes.
    pub(super) is_index_of: Option<(u16, usize)>,
}

/// Memory for values of rows that are locked, by lock and record.
///
/// A reservation ends with the lock that it belongs to, and that may be at another worker.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    /// How many there are, so that most commits need not look.
    count: AtomicUsize,
    memory: Mutex<FxHashMap<(Holder, Handle), Reserved>>,
}

impl Reservations {
    fn put(&self, holder: Holder, at: Handle, memory: Reserved) -> Option<Reserved> {
        let mut all = self.memory.lock();
        let before = all.insert((holder, at), memory);
        self.count.store(all.len(), Release);
        before
    }

    /// The reply to the lock came after the reservation was put here, so the count is known.
    fn take(&self, holder: Holder, at: Handle) -> Option<Reserved> {
        if self.count.load(Relaxed) == 0 {
            return None;
        }
        let mut all = self.memory.lock();
        let memory = all.remove(&(holder, at));
        self.count.store(all.len(), Release);
        memory
    }
}

/// About how many bytes a guard has in a message.
const GUARD_BYTES: usize = 40;

/// One worker's way to serve its node's tables.
#[derive(Debug)]
pub(super) struct Participant<S: Config> {
    home: Arc<Home<S>>,
    state: Box<TxState<S::Engine>>,
    /// The value that was read last.
    value: Vec<u8>,
}

impl From<KvError> for Refusal {
    fn from(error: KvError) -> Self {
        match Error::from(error) {
            Error::Store(KvError::Busy) => Self::Locked,
            error => Self::from(error),
        }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error {
            Error::Conflict(Conflict::Locked) => Self::Locked,
            Error::Conflict(_) => Self::Moved,
            Error::Full { .. } | Error::NoMemory { .. } => Self::Full,
            Error::TooLong { .. } | Error::TooLarge { .. } => Self::TooLong,
            Error::Closed => Self::Closed,
            Error::Poisoned { .. }
            | Error::OutcomeUnknown { .. }
            | Error::DiskFull { .. }
            | Error::ReadOnly { .. }
            | Error::Log(_) => Self::LogFailed,
            _ => Self::Corrupt,
        }
    }
}

impl<S: Config> Participant<S> {
    pub(super) fn new(home: Arc<Home<S>>) -> Result<Self, Error> {
        let mut state = TxState::new(home.db.store.worker()?, home.db.registry.register(home.db.engine()));
        state.session.participant = home.db.log.as_ref().map(|log| log.participant());
        Ok(Self { home, state: Box::new(state), value: Vec::new() })
    }

    /// The name of this worker's first transaction.
    pub(super) fn holder(&self) -> Holder {
        self.state.holder
    }

    fn table<'h>(home: &'h Home<S>, table: u16, key: KeyRef<'_>) -> Result<&'h Served<S::Engine>, Refusal> {
        let served = home.tables.get(usize::from(table)).ok_or(Refusal::NoTable)?;
        if served.storage.takes(key) { Ok(served) } else { Err(Refusal::NotItsKey) }
    }

    /// A table in which a row is to be written.
    fn table_to_write<'h>(home: &'h Home<S>, table: u16, key: KeyRef<'_>) -> Result<&'h Served<S::Engine>, Refusal> {
        let served = Self::table(home, table, key)?;
        if served.is_replicated { Err(Refusal::ReadOnly) } else { Ok(served) }
    }

    /// The count of what has changed of the database itself.
    fn count(&self) -> Result<u64, Refusal> {
        let now = self.home.db.lifecycle.now(self.home.db.engine());
        if now.is_closed() { Err(Refusal::Closed) } else { Ok(now.count()) }
    }

    /// What to say of a record that another transaction has locked.
    fn locked(&mut self, at: Handle, is_dead: impl Fn(Holder) -> bool) -> Refusal {
        match self.home.db.store.records().holder_of(at) {
            Some(holder) if is_dead(holder) => self.free_from_dead(at, holder),
            _ => Refusal::Locked,
        }
    }

    /// What to say of a record whose lock has a dead holder. It is free then, if this owner frees
    /// what dead clients have locked.
    fn free_from_dead(&mut self, at: Handle, holder: Holder) -> Refusal {
        let home = Arc::clone(&self.home);
        let Some(access) = &home.access else { return Refusal::HolderDead };
        access.revoke(holder.node().into(), holder.incarnation());
        self.unlock(at, holder);
        Refusal::Locked
    }

    /// Reads a row. It may be locked by a transaction whose node `is_dead`.
    pub(super) fn read(
        &mut self,
        table: u16,
        key: KeyRef<'_>,
        holder: Holder,
        is_dead: impl Fn(Holder) -> bool,
    ) -> Result<Found<'_>, Refusal> {
        let count = self.count()?;
        let served = Self::table(&self.home, table, key)?;
        let read = match served.storage.read::<Any, _>(key, ForHolder(holder), &mut self.value) {
            Err(KvError::Busy) => {
                // Where it is can be said all the same: to lock it later, it need not be looked up
                // again.
                let located = served.storage.read::<Any, _>(key, Current, &mut NoValue)?;
                let at = located.map_err(|_| Refusal::Locked)?.at;
                return match self.locked(at, is_dead) {
                    Refusal::Locked => Ok(Found { count, is: Is::Locked(at) }),
                    refusal => Err(refusal),
                };
            }
            read => read?,
        };
        let is = match read {
            Ok(ReadEntry { at, version }) => {
                let value: &[u8] = if version.is_removed() { &[] } else { &self.value };
                Is::Record { at, version, value }
            }
            Err(absence) => Is::Nothing(absence),
        };
        Ok(Found { count, is })
    }

    /// Leases a row until a time, or shares the lease that it has, and reads it.
    pub(super) fn lease(
        &mut self,
        table: u16,
        key: KeyRef<'_>,
        holder: Holder,
        until: u64,
        is_dead: impl Fn(Holder) -> bool,
    ) -> Result<LeasedRow<'_>, Refusal> {
        let count = self.count()?;
        let served = Self::table(&self.home, table, key)?;
        let at = match served.storage.read::<Any, _>(key, Current, &mut NoValue)? {
            Ok(located) => located.at,
            Err(absence) => return Ok(LeasedRow { end: 0, found: Found { count, is: Is::Nothing(absence) } }),
        };
        let end = match self.home.db.store.records().lease(at, until, Leases::None)? {
            Some(Lend::Shared(end)) => end,
            Some(_) => return Err(self.locked(at, is_dead)),
            None => return Err(Refusal::Moved),
        };
        // Under the lease from here on, so that it is one row's value.
        let found = self.read(table, key, holder, is_dead)?;
        match found.is {
            Is::Record { at: now_at, .. } if now_at == at => Ok(LeasedRow { end, found }),
            Is::Locked(_) => Err(Refusal::Locked),
            _ => Err(Refusal::Moved),
        }
    }

    /// Reads the rows of a range from one end: so many at most, and as many as there is room for in
    /// so many bytes.
    pub(super) fn scan(
        &mut self,
        table: u16,
        (low, high, way): (Bound<KeyRef<'_>>, Bound<KeyRef<'_>>, Way),
        holder: Holder,
        (most_rows, most): (u32, usize),
        is_dead: impl Fn(Holder) -> bool,
    ) -> Result<Scanned<'_>, Refusal> {
        let count = self.count()?;
        let served = self.home.tables.get(usize::from(table)).ok_or(Refusal::NoTable)?;
        if !served.storage.is_ordered() {
            return self.list(table, (low, high), most);
        }
        for key in [&low, &high] {
            if let Bound::Included(key) | Bound::Excluded(key) = key
                && !served.storage.takes(*key)
            {
                return Err(Refusal::NotItsKey);
            }
        }
        if let (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) =
            (low, high)
            && low > high
        {
            return Ok(Scanned { count, is_whole: true, next: (0, 0), passed: SmallVec::new(), rows: &[] });
        }
        let (records, value) = (self.home.db.store.records(), &mut self.value);
        let (mut passed, mut refused, mut is_whole, mut left) = (Vec::new(), None, true, most_rows);
        let mut dead = None;
        value.clear();
        served.storage.scan((low, high, way), &mut passed, |key, ReadEntry { at, version }, bytes| {
            // Looked at after the value: a lock that was given up meanwhile has left another
            // version.
            if let Some(other) = records.holder_of(at).filter(|other| *other != holder) {
                refused = Some(Refusal::Locked);
                dead = is_dead(other).then_some((at, other));
                return ControlFlow::Break(());
            }
            let (end, bytes) = (value.len(), if version.is_removed() { &[] } else { bytes });
            ScannedRow { key, at, version, value: bytes }.put(value);
            if value.len() > most {
                value.truncate(end);
                is_whole = false;
                refused = (end == 0).then_some(Refusal::TooLong);
                return ControlFlow::Break(());
            }
            left = left.saturating_sub(u32::from(!version.is_removed()));
            is_whole = left > 0;
            if is_whole { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if let Some((at, holder)) = dead {
            return Err(self.free_from_dead(at, holder));
        }
        match refused {
            Some(refusal) => Err(refusal),
            None => {
                let passed = passed.into_iter().map(Absence::Leaf).collect();
                Ok(Scanned { count, is_whole, next: (0, 0), passed, rows: &self.value })
            }
        }
    }

    /// Lists the next keys of a hash table, without their rows, and the guards of their buckets:
    /// from the position between these bounds on, about as many as fit `most` bytes.
    fn list(
        &mut self,
        table: u16,
        bounds: (Bound<KeyRef<'_>>, Bound<KeyRef<'_>>),
        most: usize,
    ) -> Result<Scanned<'_>, Refusal> {
        let count = self.count()?;
        let served = self.home.tables.get(usize::from(table)).ok_or(Refusal::NoTable)?;
        let mut tour = match bounds {
            (Bound::Unbounded, Bound::Unbounded) => served.storage.tour()?,
            (Bound::Included(KeyRef::Word(next)), Bound::Excluded(KeyRef::Word(classes))) => {
                served.storage.tour_at((next, classes))?.ok_or(Refusal::NotItsKey)?
            }
            _ => return Err(Refusal::NotOrdered),
        };
        let (keys, mut passed) = (&mut self.value, SmallVec::<[Absence; 8]>::new());
        keys.clear();
        loop {
            let before = (tour.position(), keys.len(), passed.len());
            let key = |key: KeyRef<'_>| {
                ScannedRow { key, at: Handle::default(), version: Version::default(), value: &[] }.put(keys);
            };
            let guard = |guard| passed.push(guard);
            let has_more = served.storage.visit_some_guarded(&mut tour, guard, key)?;
            let is_full = keys.len() + GUARD_BYTES * passed.len() > most;
            if !is_full && has_more {
                continue;
            }
            let (is_whole, mut next) = (!is_full, tour.position());
            if is_full {
                if before.2 == 0 {
                    return Err(Refusal::TooLong);
                }
                (next, _, _) = before;
                keys.truncate(before.1);
                passed.truncate(before.2);
            }
            return Ok(Scanned { count, is_whole, next: next.unwrap_or_default(), passed, rows: &self.value });
        }
    }

    /// Finds a record for a row that is to be written, or makes one.
    pub(super) fn place(
        &mut self,
        table: u16,
        key: KeyRef<'_>,
        value: &[u8],
        is_dead: impl Fn(Holder) -> bool,
    ) -> Result<Placed, Refusal> {
        let count = self.count()?;
        let served = Self::table_to_write(&self.home, table, key)?;
        let mut shifts = Shifts::new();
        let note = |shift: Shift| {
            let mut shifted = Shifted::from(shift);
            if S::has(Mutation::SplitsNotGuarded) {
                shifted.split_off = None;
            }
            shifts.push(shifted);
        };
        let placed = served.storage.place::<Any>(&mut self.state.worker, key, value, &Expected::Nothing, note);
        if let Err(KvError::Busy) = placed
            && let Ok(ReadEntry { at, .. }) = served.storage.read::<Any, _>(key, Current, &mut NoValue)?
        {
            return Err(self.locked(at, is_dead));
        }
        let placed = placed?;
        let (ReadEntry { at, version }, is_made) = match placed {
            drtm_kv::Placed::Found(found) => (found, false),
            drtm_kv::Placed::Made(made) => (made, true),
        };
        Ok(Placed { count, at, version, is_made, shifts })
    }

    /// Makes a row of the write set, with this key and this operation, of this node's database.
    fn write(
        &mut self,
        number: u16,
        key: KeyRef<'_>,
        (at, seen): (Handle, Version),
        op: impl FnOnce(&mut Self) -> Result<WriteOp, Refusal>,
    ) -> Result<Write, Refusal> {
        self.state.arena.clear();
        let key = self.state.arena.keep_key(key)?;
        let op = op(self)?;
        Ok(Write::found(ReadEntry { at, version: seen }, number, op, key, false))
    }

    /// Locks a record, and reserves memory for a value of a length. Returns its version.
    pub(super) fn lock(
        &mut self,
        table: u16,
        key: KeyRef<'_>,
        (at, seen): (Handle, Version),
        holder: Holder,
        length: Option<u32>,
        is_dead: impl Fn(Holder) -> bool,
    ) -> Result<Version, Refusal> {
        let home = Arc::clone(&self.home);
        let number = Self::table_to_write(&home, table, key)?.number;
        self.check_log()?;
        let mut write = self.write(number, key, (at, seen), |_| {
            Ok(match length {
                Some(length) => WriteOp::Put(ArenaRange::between(0, length as usize)?),
                None => WriteOp::Remove,
            })
        })?;
        // Not longer than this: what is in the way may be a dead client's.
        let entered = home.enter(holder)?;
        let locked = commit::lock_row(&home.db, &mut self.state, &mut write, holder);
        drop(entered);
        if let Err(Error::Conflict(Conflict::Locked)) = locked {
            return Err(self.locked(at, is_dead));
        }
        let (before, reserved) = locked?;
        if let Some(memory) = reserved
            && let Some(other) = home.reservations.put(holder, at, memory)
        {
            self.state.worker.give_back(other);
        }
        Ok(before)
    }

    /// Locks rows of this node that a transaction has read, and looks again at others, all at one
    /// moment: in an htm transaction. Tells whether it did.
    ///
    /// # Errors
    ///
    /// A conflict; nothing is locked then.
    pub(super) fn enter(&mut self, holder: Holder, writes: &[ReadEntry], reads: &[ReadEntry]) -> Result<bool, Error> {
        // Neither key nor value plays a part: memory for values is reserved when they are locked.
        let lock = |seen: &ReadEntry| Write::found(*seen, 0, WriteOp::Remove, ArenaKey::Word(0), true);
        let mut writes: Vec<Write> = writes.iter().map(lock).collect();
        commit::lock_in_htm(&self.home.db, &mut self.state, &mut writes, reads, holder)
    }

    /// The line of this owner, read after every lock that was taken before.
    pub(super) fn line(&self) -> Result<LineIs, Refusal> {
        drtm_htm::fence_locked();
        let db = &self.home.db;
        let epoch = db.engine().load(db.snapshot_number()?);
        Ok(LineIs { epoch, count: self.count()? })
    }

    /// Whether a record is as it was seen, and no other transaction has it locked.
    pub(super) fn check(&self, at: Handle, seen: Version, holder: Holder) -> bool {
        self.home.db.store.records().is_still(ReadEntry { at, version: seen }, holder)
    }

    /// Whether no key has come to where one was missing.
    pub(super) fn guard(&self, absence: Absence) -> bool {
        let records = self.home.db.store.records();
        match absence {
            Absence::Bucket(bucket) => records.is_unchanged(&bucket),
            Absence::Leaf(leaf) => records.is_unchanged(&leaf),
        }
    }

    /// Writes a row that the holder has locked, and unlocks it.
    pub(super) fn apply(
        &mut self,
        table: u16,
        key: KeyRef<'_>,
        at: Handle,
        holder: Holder,
        (epoch, change): (u64, Change<'_>),
    ) -> Result<(), Refusal> {
        let home = Arc::clone(&self.home);
        let _entered = home.enter(holder)?;
        self.write_locked(table, key, at, holder, (epoch, change))
    }

    fn write_locked(
        &mut self,
        table: u16,
        key: KeyRef<'_>,
        at: Handle,
        holder: Holder,
        (epoch, change): (u64, Change<'_>),
    ) -> Result<(), Refusal> {
        let home = Arc::clone(&self.home);
        let number = Self::table_to_write(&home, table, key)?.number;
        let before = home.db.store.records().held_version(at, holder).ok_or(Refusal::NotHeld)?;
        let mut write = self.write(number, key, (at, before), |this| {
            Ok(match change {
                Change::Put(value) => WriteOp::Put(this.state.arena.keep_value(|bytes| {
                    bytes.extend_from_slice(value);
                    Ok(())
                })?),
                Change::Publish(_) => WriteOp::Insert(ArenaRange::default()),
                Change::Remove => WriteOp::Remove,
            })
        })?;
        write.before = before;
        let reserved = home.reservations.take(holder, at);
        Ok(commit::apply_row(&home.db, &mut self.state, write, epoch, reserved)?)
    }

    /// Writes all rows that a transaction has changed here, and unlocks them; or none.
    pub(super) fn apply_all(&mut self, all: &ApplyRows<'_>) -> Result<(), Refusal> {
        let (home, ApplyRows { holder, epoch, .. }) = (Arc::clone(&self.home), *all);
        let _entered = home.enter(holder)?;
        for ChangedRow { table, key, at, .. } in all.iter() {
            Self::table_to_write(&home, table, key)?;
            home.db.store.records().held_version(at, holder).ok_or(Refusal::NotHeld)?;
        }
        let apply = |this: &mut Self, row: ChangedRow<'_>| {
            this.write_locked(row.table, row.key, row.at, holder, (epoch, row.change))
        };
        let Some(log) = &home.db.log else { return all.iter().try_for_each(|row| apply(self, row)) };
        let participant = self.state.session.participant.clone().ok_or(Refusal::LogFailed)?;
        if S::has(Mutation::RowsLoggedApart) {
            return all.iter().try_for_each(|row| {
                let logged = self.log_rows((log, &participant), holder, epoch, std::iter::once(row));
                let applied = logged.and_then(|_open| apply(self, row));
                // Lets a flush come in between.
                let _ = log.request_flush();
                std::thread::sleep(std::time::Duration::from_millis(5));
                applied
            });
        }
        let logged = self.log_rows((log, &participant), holder, epoch, all.iter());
        // It is decided, and happens, whatever has become of the log.
        let applied = all.iter().try_for_each(|row| apply(self, row));
        applied.and(logged.map(drop))
    }

    /// Gives up a lock, if the holder has it, and what was reserved under it.
    pub(super) fn unlock(&mut self, at: Handle, holder: Holder) {
        if let Some(memory) = self.home.reservations.take(holder, at) {
            self.state.worker.give_back(memory);
        }
        if S::has(Mutation::OthersUnlocked) {
            return self.home.db.store.records().unlock(at);
        }
        self.home.db.store.records().unlock_if_held(at, holder);
    }

    /// Takes out a record that was made for a row which is not inserted.
    pub(super) fn reap(&mut self, table: u16, key: KeyRef<'_>, at: Handle, seen: Version) -> Result<(), Refusal> {
        let home = Arc::clone(&self.home);
        let number = Self::table_to_write(&home, table, key)?.number;
        // A record of a row that is there is not one that was made for an insertion which failed.
        if !seen.is_removed() {
            return Err(Refusal::Moved);
        }
        let TxState { worker, session, .. } = &mut *self.state;
        let seen = ReadEntry { at, version: seen };
        Ok(reclaim::reap(&home.db, (worker, &session.counters), number, key, seen)?)
    }
}
