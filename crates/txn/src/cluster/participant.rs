//! What a worker serves requests with: its node's tables, and a transaction's buffers. It never
//! waits for a record's lock.

mod logs;

use std::sync::{
    Arc, OnceLock,
    atomic::{
        AtomicUsize,
        Ordering::{Relaxed, Release},
    },
};

use drtm_htm::Engine;
use drtm_kv::{Current, Handle, Holder, KvError, NoValue, ReadEntry, Reserved, Version};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::{
    Refusal,
    changing::Changing,
    index_info::IndexInfo,
    log::{Backup, hash_of},
    partition::Divide,
    wire::parts::{Change, ChangedRow},
};
use crate::{
    Config, Conflict, Durability, Error,
    commit::{
        self,
        epoch::version_in,
        write_set::{Write, WriteOp},
    },
    db::inner::Inner,
    memory::{
        arena::{ArenaKey, ArenaRange},
        storage::{KeyRef, Storage},
    },
    mutation::Mutation,
    schema::table::Any,
    tx::state::TxState,
};

/// A node's tables, as its participants serve them.
#[derive(Debug)]
pub(super) struct Home<S: Config> {
    pub(super) db: Arc<Inner<S>>,
    /// The cluster's tables.
    pub(super) tables: Vec<Served<S::Engine>>,
    /// The rows that this node has: by [`View::store_of`](super::View::store_of).
    pub(super) stores: Box<[OnceLock<Stored<S::Engine>>]>,
    pub(super) reservations: Reservations,
    /// Whether it recovers from the logs of nodes that have died.
    pub(super) recovers: bool,
    /// What it knows of a change to another view.
    pub(super) changing: Changing,
    /// What it does with records of transactions, where these are recorded.
    pub(super) backup: Option<Backup<S::Engine>>,
}

impl<S: Config> Home<S> {
    /// Returns all rows that this node has.
    pub(super) fn all_stores(&self) -> impl Iterator<Item = &Stored<S::Engine>> {
        self.stores.iter().filter_map(OnceLock::get)
    }

    /// Returns rows that are served.
    pub(super) fn store(&self, store: u16) -> Result<&Stored<S::Engine>, Refusal> {
        self.stores.get(usize::from(store)).and_then(OnceLock::get).ok_or(Refusal::NoTable)
    }

    /// Returns rows that are served, if the key is one of theirs.
    pub(super) fn store_for(&self, store: u16, key: KeyRef<'_>) -> Result<&Stored<S::Engine>, Refusal> {
        let stored = self.store(store)?;
        if stored.storage.takes(key) { Ok(stored) } else { Err(Refusal::NotItsKey) }
    }

    /// Returns rows of which one is to be written.
    pub(super) fn store_to_write(&self, store: u16, key: KeyRef<'_>) -> Result<&Stored<S::Engine>, Refusal> {
        let stored = self.store_for(store, key)?;
        if stored.is_replicated { Err(Refusal::ReadOnly) } else { Ok(stored) }
    }

    /// Returns when its log has what is written to it. `None` without a log.
    pub(super) fn durability(&self) -> Option<Durability> {
        self.db.log.as_ref().map(|log| log.mode())
    }

    /// Returns a row that the holder has locked, and is to be changed.
    pub(super) fn held<'a>(&self, row: ChangedRow<'a>, holder: Holder) -> Result<Held<'a>, Refusal> {
        let number = self.store_to_write(row.table, row.key)?.number;
        let before = self.db.store.records().held_version(row.at, holder).ok_or(Refusal::NotHeld)?;
        Ok(Held { row, number, before })
    }

    /// Returns the record of a key that is locked, and the lock's holder.
    ///
    /// # Errors
    ///
    /// [`KvError::Busy`] if it is being written.
    pub(super) fn lock_of(
        &self,
        stored: &Stored<S::Engine>,
        key: KeyRef<'_>,
    ) -> Result<Option<(Handle, Holder)>, KvError> {
        let Ok(ReadEntry { at, .. }) = stored.storage.read::<Any, _>(key, Current, &mut NoValue)? else {
            return Ok(None);
        };
        Ok(self.db.store.records().holder_of(at).map(|holder| (at, holder)))
    }
}

impl Held<'_> {
    /// Returns the hash that a row of a transaction is known by which commits in this epoch.
    pub(super) fn hash(&self, epoch: u64) -> u64 {
        hash_of(self.number, self.row.key, version_in(epoch, self.before).number())
    }
}

/// A row that is to be changed, whose holder has it locked.
#[derive(Clone, Debug)]
pub(super) struct Held<'a> {
    row: ChangedRow<'a>,
    /// The number of its table in the node's database.
    number: u16,
    /// The version that it has.
    before: Version,
}

/// Rows of a table that this node has: those of a group, or those that every node has.
#[derive(Debug)]
pub(super) struct Stored<E: Engine> {
    /// Their table's number in the node's database.
    pub(super) number: u16,
    /// As a participant uses it, which does not wait.
    pub(super) storage: Storage<E>,
    /// Whether they are only read.
    pub(super) is_replicated: bool,
}

/// A table of the cluster.
#[derive(Debug)]
pub(super) struct Served<E: Engine> {
    /// The number in the node's database of the table that has this node's own rows.
    pub(super) number: u16,
    /// The same, as a participant uses it, which does not wait.
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
    pub(super) fn put(&self, holder: Holder, at: Handle, memory: Reserved) -> Option<Reserved> {
        let mut all = self.memory.lock();
        let before = all.insert((holder, at), memory);
        self.count.store(all.len(), Release);
        before
    }

    /// Takes the memory that is reserved under a lock. The reply to the lock came after the
    /// reservation was put here, so the count is known.
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

/// One worker's way to serve its node's tables.
#[derive(Debug)]
pub(super) struct Participant<S: Config> {
    pub(super) home: Arc<Home<S>>,
    pub(super) state: Box<TxState<S::Engine>>,
    /// The value that was read last.
    pub(super) value: Vec<u8>,
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

    /// Returns the name of this worker's first transaction.
    pub(super) fn holder(&self) -> Holder {
        self.state.holder
    }

    /// Returns the count of what has changed of the database itself.
    pub(super) fn count(&self) -> Result<u64, Refusal> {
        let now = self.home.db.lifecycle.now(self.home.db.engine());
        if now.is_closed() { Err(Refusal::Closed) } else { Ok(now.count()) }
    }

    /// Returns the refusal for a record that another transaction has locked.
    pub(super) fn locked(&mut self, at: Handle, is_dead: impl Fn(Holder) -> bool) -> Refusal {
        match self.home.db.store.records().holder_of(at) {
            // Where a view is going to be without it, its transaction is carried out or undone
            // first.
            Some(holder) if self.home.backup.is_some() => {
                if self.home.changing.is_dead(holder) {
                    self.unlock(at, holder);
                }
                Refusal::Locked
            }
            // It is carried out or undone by its log first.
            Some(_) if self.home.recovers => Refusal::Locked,
            Some(holder) if is_dead(holder) => Refusal::HolderDead,
            _ => Refusal::Locked,
        }
    }

    /// Makes a row of the write set, with this key and this operation, of this node's database.
    pub(super) fn write(
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

    /// Writes a row that the holder has locked, and unlocks it.
    pub(super) fn write_held(
        &mut self,
        home: &Home<S>,
        Held { row: ChangedRow { key, at, change, .. }, number, before }: &Held<'_>,
        (holder, epoch): (Holder, u64),
    ) -> Result<(), Refusal> {
        let (at, before) = (*at, *before);
        // A node that names a row twice has unlocked it by the first.
        if home.db.store.records().held_version(at, holder) != Some(before) {
            return Err(Refusal::NotHeld);
        }
        let mut write = self.write(*number, *key, (at, before), |this| {
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
}
