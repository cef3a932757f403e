//! Freeing the records of a table by whole spans, when all of them go.
//!
//! A table's records are counted span by span. Where they are all that is in use of a span, the
//! span is retired as a whole, and none of its records is visited. Only the others are freed one by
//! one: those in spans that also have another table's records, or free objects of another thread.
//!
//! From when the first record of a span is counted, nothing of it is given out. So if as many
//! objects are out in the end as were counted, these are the same, and remain so.
//!
//! A record that is not visited keeps its incarnation, so a stale place would not be detected. The
//! span is in quarantine until there is none, and does not serve its class again before
//! (`docs/decisions/0073`).

use drtm_htm::Engine;

use super::{Store, Worker};
use crate::{
    KvError,
    record::{Record, keys::Keys},
    store::{heap::Class, layout::Place},
};

/// What [emptying](crate::HashTable::empty) a table has done.
///
/// # Example
///
/// See [`HashTable::empty`](crate::HashTable::empty).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Emptied {
    /// The number of records that there were.
    pub records: u64,
    /// How many of them were visited: those that did not leave with a whole span.
    pub visited: u64,
    /// The number of spans that left as a whole.
    pub spans: u64,
}

/// The records of a table that is emptied, counted by their spans.
#[derive(Debug)]
pub(crate) struct Census<E: Engine> {
    store: Store<E>,
    /// The table's records in each span, by the span's first unit. After the decision: one more
    /// than were taken out of a span that leaves as a whole, and zero for all others.
    objects: Vec<u64>,
    /// The first units of spans of which nothing is given out.
    spans: Vec<u64>,
    /// Records that were taken out of their bucket or leaf, and are to be freed.
    freed: Vec<(Class, u64)>,
    emptied: Emptied,
}

/// What became of a record's entry.
pub(crate) enum Entry {
    /// It must be removed from its bucket or leaf: nothing needs its record.
    Removed,
    /// It stays, since the record is locked at the moment.
    Busy,
}

impl<E: Engine> Census<E> {
    /// Begins counting. What the worker has of free memory is left to all, so that it does not
    /// count as in use.
    pub(crate) fn begin(worker: &mut Worker<E>) -> Self {
        worker.leave_free();
        let store = worker.store.clone();
        store.shared.heap.settle(store.region().engine());
        // Only these spans can be retired.
        let units = if store.is_certain() { store.shared.heap.spans.units() as usize } else { 0 };
        let emptied = Emptied::default();
        Self { store, objects: vec![0; units], spans: Vec::new(), freed: Vec::new(), emptied }
    }

    /// Counts a record of the table, once.
    pub(crate) fn count(&mut self, place: Place) {
        let (spans, engine) = (&self.store.shared.heap.spans, self.store.region().engine());
        let Some(first) = spans.first_unit_of(engine, place.word) else { return };
        let Some(objects) = self.objects.get_mut(first as usize) else { return };
        if *objects == 0 {
            // It may be sparse for another reason: then it is not retired as a whole.
            if !spans.set_sparse(engine, first, true) {
                return;
            }
            self.spans.push(first);
        }
        *objects += 1;
    }

    /// Ends counting, and decides which spans leave as a whole.
    pub(crate) fn decide(&mut self) {
        let Self { store, objects, spans, .. } = self;
        let (heap, engine) = (&store.shared.heap, store.region().engine());
        let is_whole = |first: &u64| heap.spans.is_sparse_with(engine, *first, objects[*first as usize]);
        let (whole, shared): (Vec<_>, Vec<_>) = spans.iter().copied().partition(is_whole);
        heap.leave_sparse(engine, &shared);
        shared.iter().for_each(|first| objects[*first as usize] = 0);
        whole.iter().for_each(|first| objects[*first as usize] = 1);
        *spans = whole;
    }

    /// Takes out a record whose bucket or leaf is locked. A record of a span that leaves as a whole
    /// is not visited.
    pub(crate) fn take_out<K: Keys>(&mut self, worker: &Worker<E>, place: Place) -> Result<Entry, KvError> {
        let (spans, region) = (&self.store.shared.heap.spans, self.store.region());
        let first = spans.first_unit_of(region.engine(), place.word);
        match first.and_then(|first| self.objects.get_mut(first as usize)) {
            Some(objects) if *objects != 0 => *objects += 1,
            _ => {
                let record = Record::at(region, place)?;
                // The holder of the lock may be waiting for the bucket or leaf.
                let Some(locked) = record.try_lock::<K>(worker.holder())? else { return Ok(Entry::Busy) };
                self.freed.push((locked.class(), place.word));
                locked.retire();
                self.emptied.visited += 1;
            }
        }
        self.emptied.records += 1;
        Ok(Entry::Removed)
    }

    /// Frees the records that were taken out of a bucket or leaf, which is not locked any more.
    pub(crate) fn free(&mut self, worker: &mut Worker<E>) {
        self.freed.drain(..).for_each(|(class, word)| worker.free(class, word));
    }

    /// Retires the spans of which every record was taken out. Where another thread has taken one
    /// out meanwhile, the span is retired once that thread has freed its memory.
    pub(crate) fn end(mut self) -> Emptied {
        let (heap, engine) = (&self.store.shared.heap, self.store.region().engine());
        let taken_out = |first: &u64| self.objects[*first as usize] - 1;
        let retired: Vec<_> =
            self.spans.iter().filter_map(|first| heap.spans.retire_whole(engine, *first, taken_out(first))).collect();
        self.emptied.spans = retired.len() as u64;
        self.store.shared.quarantine.add_spans(retired);
        // What was free in other spans meanwhile.
        heap.leave_sparse(engine, &[]);
        self.emptied
    }
}
