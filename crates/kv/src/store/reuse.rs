//! Using memory again: turns, the quarantine of objects and spans, and what is done where there is
//! no memory.

use std::{
    cell::Cell,
    sync::{Arc, Weak},
};

use drtm_htm::{Engine, fence_locked};
use drtm_rdma::{Offset, RegionError};

use super::{Shared, Store, Worker};
use crate::{
    KvError, Shortage, Turn, Watch,
    mutation::{self, Mutation},
    record::HEAD,
    store::{
        heap::{Class, Object},
        layout::Head,
        quarantine::{Batch, DETAINED},
    },
};

thread_local! {
    static LACKED: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether an allocation of this thread has failed since the last call or
/// [`forget_lack`], although memory will come out of quarantine when operations have ended.
#[doc(hidden)]
#[must_use]
pub fn has_lacked_memory() -> bool {
    LACKED.take()
}

/// Forgets failed allocations of this thread: what follows is another operation.
#[doc(hidden)]
#[inline]
pub fn forget_lack() {
    LACKED.set(false);
}

impl<E: Engine> Store<E> {
    /// The turn that it is now: to be asked before a reader takes note of something that it will
    /// look at again.
    #[must_use]
    #[inline(always)]
    pub fn turn(&self) -> Turn {
        Turn::of(self.region())
    }

    /// Returns whether no narrow counter can have wrapped since this turn. If so, a value that a
    /// reader finds again is unchanged.
    #[must_use]
    #[inline(always)]
    pub fn is_within(&self, since: Turn) -> bool {
        since.holds_in(self.region())
    }

    /// Sets the watch, which says when operations have ended, and is notified of turns. There can
    /// be one.
    pub fn watched_by(&self, watch: Weak<dyn Watch>) {
        // The first one stays.
        let _ = self.shared.watch.set(watch);
    }

    /// Counts a turn: a counter is about to begin a quarter, which is not visible yet.
    #[cold]
    #[inline(never)]
    pub(crate) fn turn_over(&self) -> u64 {
        if mutation::includes(Mutation::TurnsNotCounted) {
            return 0;
        }
        // In this order: a turn of the region that is seen has been counted by the watch.
        let watched = self.watch().map(|watch| watch.turned());
        let turn = self.region().engine().fetch_add(self.region().turns(), 1) + 1;
        watched.unwrap_or(turn)
    }

    /// What watches the store's turns, if anything does.
    fn watch(&self) -> Option<Arc<dyn Watch>> {
        self.shared.watch.get()?.upgrade()
    }

    /// Whether the incarnation of an object begins a quarter.
    #[inline(always)]
    pub(super) fn begins_quarter(&self, word: u64) -> bool {
        // With these faults it is always the first one, and nothing would be used again.
        if mutation::includes(Mutation::RetireWithoutIncarnation) || mutation::includes(Mutation::HintWithoutLeaf) {
            return false;
        }
        let region = &self.shared.region;
        let head = region.array::<1>(Offset::new(8 * (word + HEAD as u64)));
        head.is_ok_and(|[head]| Head(region.engine().load_relaxed(head)).begins_quarter())
    }

    /// Takes objects out of quarantine whose time is over, and begins with the next batch if it has
    /// so many. Spans come into the common pool. Returns the objects, and whether there was a span.
    fn let_out(&self, least: usize) -> (Vec<Object>, bool) {
        let Shared { quarantine, heap, .. } = &*self.shared;
        let mut out = Batch::default();
        loop {
            if let Some((turn, has_spans)) = quarantine.turn() {
                if !self.is_over(turn, has_spans) {
                    break;
                }
                out.append(quarantine.take(turn));
            }
            // In a statement of its own, so that no lock is held while words are accessed.
            if !quarantine.close(least) {
                break;
            }
            quarantine.closed_in(self.turn_over());
        }
        let Batch { objects, spans } = out;
        let has_spans = !spans.is_empty();
        if has_spans {
            heap.pool(self.region().engine(), spans);
        }
        (objects, has_spans)
    }

    /// Whether what was closed in this turn can be used again.
    fn is_over(&self, turn: u64, has_spans: bool) -> bool {
        if mutation::includes(Mutation::CutWithoutQuiescence) {
            return true;
        }
        let Some(watch) = self.watch() else { return !has_spans };
        if !has_spans {
            return watch.has_passed(turn);
        }
        // One that begins after this look finds nothing that leads into the spans.
        fence_locked();
        self.region().engine().load(&self.shared.visits[0]) == 0 && watch.have_all_ended(turn)
    }

    /// Retires spans of which no object is out, if the end of operations can be determined.
    pub(crate) fn retire(&self) {
        if self.is_certain() {
            let retired = self.shared.heap.retire(self.region().engine());
            self.shared.quarantine.add_spans(retired);
        }
    }

    /// Returns whether the end of operations can be determined, so that spans can be retired.
    pub(super) fn is_certain(&self) -> bool {
        self.watch().is_some_and(|watch| watch.is_certain())
    }

    /// Looks for memory when there is none: retires free spans, and takes memory out of quarantine
    /// if possible. Returns whether that freed a span.
    #[doc(hidden)]
    #[cold]
    #[inline(never)]
    pub fn find_memory(&self) -> bool {
        self.retire();
        self.release(1)
    }

    /// Frees the objects that come out of quarantine: there is no worker here to take them. Returns
    /// whether spans have come out, too.
    fn release(&self, least: usize) -> bool {
        let (objects, has_spans) = self.let_out(least);
        objects.iter().for_each(|(class, word)| self.shared.heap.free(self.region().engine(), *class, *word));
        has_spans
    }

    /// Lets a retired span that served this class serve it again, if one is in quarantine. So an
    /// allocation for another class that fails takes nothing away.
    fn call_back(&self, class: Class) -> bool {
        let retired = self.shared.quarantine.call_back(class.0);
        retired.is_some_and(|retired| {
            self.shared.heap.revive(self.region().engine(), class, retired.run);
            true
        })
    }

    /// Adds to an error of full memory what holds the memory: of other sizes than this class.
    #[cold]
    #[inline(never)]
    pub(crate) fn explained(&self, error: KvError, class: Option<Class>) -> KvError {
        let KvError::Region(RegionError::Full { asked, left, capacity }) = error else { return error };
        let Shared { heap, .. } = &*self.shared;
        let (other_sizes, other_size) = heap.free_for_others(self.region().engine(), class);
        let (pieces, waiting) = (heap.pooled(), self.waiting_spans());
        let mut shortage =
            Shortage { asked, left, capacity, pieces, waiting, other_sizes, other_size, ..Shortage::default() };
        if let Some(watch) = self.watch() {
            watch.explain(&mut shortage);
        }
        KvError::Full(Box::new(shortage))
    }

    /// Takes memory out of quarantine, if operations have ended that may refer to it, but retires
    /// no spans.
    #[doc(hidden)]
    pub fn release_spans(&self) {
        self.release(DETAINED);
    }

    /// Records that this thread got no memory while some is in quarantine.
    pub(super) fn note_lack(&self) {
        if self.shared.quarantine.units() > 0 {
            LACKED.set(true);
        }
    }

    /// Marks an operation that reads records, and that the store's watch does not track, until the
    /// returned guard is dropped. Until then no memory that it may refer to is divided anew.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{HashConfig, KvTable, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let table = store.hash_table(HashConfig::default())?;
    /// table.insert(&mut store.worker()?, 7, b"seven")?;
    /// let _visit = store.visit();
    /// assert!(table.contains(7)?);
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    pub fn visit(&self) -> Visit<'_, E> {
        self.region().engine().fetch_add(&self.shared.visits[0], 1);
        fence_locked();
        Visit { store: self }
    }

    /// Bytes that will be in the common pool when operations have ended that may know them.
    #[doc(hidden)]
    #[must_use]
    pub fn waiting_spans(&self) -> u64 {
        self.shared.quarantine.units() * 8 * self.shared.heap.spans.unit_words()
    }

    /// Bytes of the region that serve no size: in the common pool, or on the way there.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::Store;
    ///
    /// assert_eq!(Store::in_memory(NoHtm, 16 << 20)?.free_spans(), 0);
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[must_use]
    pub fn free_spans(&self) -> u64 {
        self.shared.heap.pooled() + self.waiting_spans()
    }
}

/// An operation that looks at records, until it is dropped.
///
/// # Example
///
/// See [`Store::visit`].
#[derive(Debug)]
#[must_use = "dropped, it ends"]
pub struct Visit<'s, E: Engine> {
    store: &'s Store<E>,
}

impl<E: Engine> Drop for Visit<'_, E> {
    fn drop(&mut self) {
        self.store.region().engine().fetch_add(&self.store.shared.visits[0], 1_u64.wrapping_neg());
    }
}

impl<E: Engine> Worker<E> {
    /// Frees an object that begins a quarter: in its time.
    #[cold]
    #[inline(never)]
    pub(super) fn detain(&mut self, class: Class, word: u64) {
        self.store.shared.quarantine.add(class, word);
        self.receive(DETAINED);
    }

    /// Allocates where there was no memory for this reason, if some comes out of quarantine.
    #[cold]
    #[inline(never)]
    pub(super) fn allocate_late(&mut self, class: Class, error: KvError) -> Result<u64, KvError> {
        if self.receive(1) {
            let allocated = self.arena.allocate(&self.store.shared.heap, &self.store.shared.region, class);
            if allocated.is_ok() {
                return allocated;
            }
        }
        self.leave_free();
        let mut found = Err(error);
        if self.store.find_memory() {
            found = self.arena.allocate(&self.store.shared.heap, &self.store.shared.region, class);
        }
        // Another thread may take all that one span has.
        while found.is_err() && self.store.call_back(class) {
            found = self.arena.allocate(&self.store.shared.heap, &self.store.shared.region, class);
        }
        found.map_err(|error| {
            self.store.note_lack();
            self.store.explained(error, Some(class))
        })
    }

    /// Leaves its free memory to all workers, as it does when it is dropped.
    ///
    /// # Example
    ///
    /// See [`Compaction`](crate::Compaction).
    pub fn leave_free(&mut self) {
        self.arena.leave(&self.store.shared.heap, self.store.shared.region.engine());
    }

    /// Frees what comes out of quarantine. Whether there was something.
    fn receive(&mut self, least: usize) -> bool {
        let (objects, has_spans) = self.store.let_out(least);
        objects.iter().for_each(|(class, word)| self.give_back_object(*class, *word));
        has_spans || !objects.is_empty()
    }
}
