//! The state of a running transaction. A thread keeps it for its next one, so that nothing is
//! allocated once it has grown to its size.

use std::sync::Arc;

use drtm_htm::Engine;
use drtm_kv::{Handle, Holder, Reserved, Worker};

use crate::{
    commit::{
        read_set::ReadSet,
        write_set::{WriteOp, WriteSet},
    },
    db::{
        lifecycle::{ActiveSlot, Admission, Lifecycle},
        stats::Counters,
    },
    durability::{Choice, Participant},
    index::RowEntries,
    memory::{arena::Arena, heap_size::vec_bytes},
    snapshot::Needs,
    tx::{located::Located, opacity::Opacity, removed::RemovedSpans, ticket::Claim},
};

/// The number of reads after which a read-only transaction continues in a snapshot. Validating
/// fewer is cheaper than older versions are for writers, and costs only the reader.
pub(crate) const LONG_READ: usize = 1024;

/// The most bytes of values, and rows of the read set, for which a transaction's state keeps its
/// memory for the next one.
const KEPT_BYTES: usize = 1 << 20;
const KEPT_ROWS: usize = 1 << 15;

#[derive(Debug)]
pub(crate) struct TxState<E: Engine> {
    pub(crate) worker: Worker<E>,
    /// The lock word of this transaction.
    pub(crate) holder: Holder,
    pub(crate) reads: ReadSet,
    pub(crate) writes: WriteSet,
    /// The spans of keys in which the transaction has removed every row.
    pub(crate) removed: RemovedSpans,
    pub(crate) arena: Arena,
    /// Places of rows that were prefetched.
    pub(crate) located: Located,
    /// Index entries of the row that is being written.
    pub(crate) entries: RowEntries,
    pub(crate) scratch: Scratch,
    pub(crate) opacity: Opacity,
    pub(crate) session: Session,
    /// Whether it serves reads within others (`Exclusive::new_nested`).
    pub(crate) is_nested: bool,
}

/// What a commit needs beside the sets.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The writes in the order of their records, for locking in that order.
    pub(crate) order: Vec<(Handle, u32)>,
    /// What open snapshots need at this commit.
    pub(crate) needs: Needs,
    /// Memory for values that do not fit in place, by the numbers of their writes, in order.
    pub(crate) reserved: Vec<(u32, Reserved)>,
}

/// The part of the state that outlives one transaction.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) counters: Arc<Counters>,
    /// The number of commits of this state.
    pub(crate) commits: u32,
    /// The admission of the current transaction (see `lifecycle`).
    pub(crate) admission: Admission,
    /// The log's participant, if there is a log, and the epoch of the last logged commit.
    pub(crate) participant: Option<Arc<Participant>>,
    pub(crate) logged_in: u64,
    /// When the current transaction's commit returns.
    pub(crate) choice: Choice,
    /// Marks an explicit transaction as active. A closure is marked by its thread's slot.
    slot: Option<Arc<ActiveSlot>>,
    is_explicit: bool,
}

impl Session {
    /// Marks an explicit transaction as active, begun by this thread.
    pub(crate) fn enter<E: Engine>(&mut self, engine: &E, lifecycle: &Lifecycle, thread: u64) {
        let slot = self.slot.get_or_insert_with(|| lifecycle.slot());
        slot.enter_by(engine, self.admission, thread);
        self.is_explicit = true;
    }

    /// Returns whether the transaction runs no closure.
    pub(crate) const fn is_explicit(&self) -> bool {
        self.is_explicit
    }

    /// Marks an explicit transaction as ended.
    #[inline(always)]
    pub(crate) fn leave<E: Engine>(&mut self, engine: &E) {
        if self.is_explicit {
            self.is_explicit = false;
            if let Some(slot) = &self.slot {
                slot.leave(engine);
            }
        }
    }
}

impl<E: Engine> TxState<E> {
    pub(crate) fn new(worker: Worker<E>, counters: Arc<Counters>) -> Self {
        Self {
            holder: worker.holder(),
            worker,
            reads: ReadSet::default(),
            writes: WriteSet::default(),
            removed: RemovedSpans::default(),
            arena: Arena::default(),
            located: Located::default(),
            entries: RowEntries::default(),
            scratch: Scratch::default(),
            opacity: Opacity::default(),
            session: Session {
                counters,
                commits: 0,
                admission: Admission::default(),
                participant: None,
                logged_in: 0,
                choice: Choice::Default,
                slot: None,
                is_explicit: false,
            },
            is_nested: false,
        }
    }

    /// Clears the state, for the next transaction.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.reads.clear();
        self.writes.clear();
        self.arena.clear();
        self.located.clear();
        self.removed.clear();
    }

    /// Returns whether the transaction has taken more memory than is kept for the next one.
    #[inline(always)]
    pub(crate) fn is_large(&self) -> bool {
        self.arena.values.len() > KEPT_BYTES || self.reads.records.capacity() > KEPT_ROWS
    }

    /// Records how much memory the state keeps.
    pub(crate) fn note_bytes(&self) {
        let Self { worker, reads, writes, arena, located, entries, scratch, session, .. } = self;
        let scratch = vec_bytes(&scratch.order) + vec_bytes(&scratch.reserved) + scratch.needs.bytes();
        let logged = session.participant.as_ref().map_or(0, |participant| participant.bytes());
        let sets = reads.bytes() + writes.bytes() + located.bytes();
        let bytes = size_of::<Self>() + worker.bytes() + sets + arena.bytes() + entries.bytes() + scratch + logged;
        session.counters.keeps(bytes);
    }

    /// Frees the memory of a large transaction, which has ended.
    #[cold]
    #[inline(never)]
    pub(crate) fn shed(&mut self) {
        self.reads = ReadSet::default();
        self.writes = self.writes.emptied();
        self.removed = RemovedSpans::default();
        self.arena = Arena::default();
        self.located = Located::default();
        self.scratch = Scratch::default();
        self.note_bytes();
    }

    /// Frees memory that a failed commit has reserved.
    pub(crate) fn give_back_reserved(&mut self) {
        let Self { scratch, worker, .. } = self;
        scratch.reserved.drain(..).for_each(|(_, memory)| worker.give_back(memory));
    }

    /// Returns the places that the transaction has touched.
    pub(crate) fn places(&self) -> impl Iterator<Item = Claim> {
        self.reads.places().chain(self.writes.as_slice().iter().map(|write| Claim::Record(write.at)))
    }

    /// Removes the key of a write from the spans without rows, unless the write removes its row.
    #[inline(always)]
    pub(crate) fn uncover(&mut self, write: usize) {
        if !self.removed.is_empty() {
            self.uncover_slow(write);
        }
    }

    #[cold]
    fn uncover_slow(&mut self, write: usize) {
        let write = self.writes.get(write);
        if write.op != WriteOp::Remove {
            self.removed.cut(write.table, write.key.in_bytes(&self.arena.keys));
        }
    }

    /// Returns whether there is nothing to validate.
    pub(crate) fn has_seen_nothing(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty()
    }

    /// Returns how many rows there are to validate.
    #[inline(always)]
    pub(crate) fn seen(&self) -> usize {
        self.reads.records.len() + self.writes.len()
    }
}
