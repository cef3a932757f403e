//! Using names again: turns, and the quarantine of objects.

use std::sync::{Arc, Weak};

use drtm_htm::Engine;
use drtm_rdma::Offset;

use super::{Store, Worker};
use crate::{
    KvError, Turn, Watch,
    heap::{Class, Object},
    layout::Head,
    mutation::{self, Mutation},
    quarantine::DETAINED,
    record::HEAD,
};

impl<E: Engine> Store<E> {
    /// The turn that it is now: to be asked before a reader takes note of something that it will
    /// look at again.
    #[must_use]
    #[inline(always)]
    pub fn turn(&self) -> Turn {
        Turn::of(self.region())
    }

    /// Whether what a reader has found unchanged is so, if it took note of it since this turn.
    #[must_use]
    #[inline(always)]
    pub fn is_within(&self, since: Turn) -> bool {
        since.holds_in(self.region())
    }

    /// Lets a watch see to it that memory does not come round while operations are active, and hear
    /// of turns. There can be one.
    pub fn watched_by(&self, watch: Weak<dyn Watch>) {
        // The first one stays.
        let _ = self.shared.watch.set(watch);
    }

    /// Counts a turn: something begins a quarter, which nobody sees yet.
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
    /// so many.
    fn let_out(&self, least: usize) -> Vec<Object> {
        let quarantine = &self.shared.quarantine;
        let mut out = Vec::new();
        loop {
            if let Some(turn) = quarantine.turn() {
                if !self.watch().is_none_or(|watch| watch.has_passed(turn)) {
                    return out;
                }
                out.append(&mut quarantine.take(turn));
            }
            // In a statement of its own, so that no lock is held while words are accessed.
            if !quarantine.close(least) {
                return out;
            }
            quarantine.closed_in(self.turn_over());
        }
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
        if !self.receive(1) {
            return Err(error);
        }
        self.arena.allocate(&self.store.shared.heap, &self.store.shared.region, class)
    }

    /// Frees what comes out of quarantine. Whether there was something.
    fn receive(&mut self, least: usize) -> bool {
        let out = self.store.let_out(least);
        out.iter().for_each(|(class, word)| self.give_back_object(*class, *word));
        !out.is_empty()
    }
}
