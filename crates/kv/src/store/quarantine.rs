//! Quarantine: free memory that must not be reused while running operations may refer to it.
//!
//! An object's incarnation counts its uses, and wraps. Each time that it begins a quarter, the free
//! object waits here, in a *batch* with others. So do retired [spans](super::spans), before they
//! are divided anew. When a batch is closed, a [turn](super::turns) is counted. When all operations
//! that are seen to be active began after that turn, the batch's memory can be reused. One closed
//! batch waits at a time. Other memory is collected in an open one, until it has [enough
//! objects](DETAINED) or a span, or memory is needed. So however often memory is reused, a long
//! transaction sees one turn for it, and one object in four thousand uses waits meanwhile.
//!
//! For objects, the check for active operations may overlook one: a turn is counted for each batch,
//! so that operation detects the reuse. For spans the check must be exact: a late operation could
//! take any words there for a record's.

use parking_lot::Mutex;

use crate::store::{
    heap::{Class, Object},
    spans::Retired,
};

pub(crate) use crate::store::bounds::DETAINED;

#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    batches: Mutex<Batches>,
}

/// Memory in quarantine.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) objects: Vec<Object>,
    pub(crate) spans: Vec<Retired>,
}

#[derive(Debug, Default)]
struct Batches {
    open: Batch,
    /// One that waits, even if all of its spans have been [called back](Quarantine::call_back): its
    /// turn may be about to be counted.
    closed: Option<Batch>,
    /// The turn that was counted for the closed batch, once it was.
    turn: Option<u64>,
}

impl Batch {
    pub(crate) fn append(&mut self, mut other: Self) {
        self.objects.append(&mut other.objects);
        self.spans.append(&mut other.spans);
    }
}

impl Quarantine {
    /// Takes an object in.
    pub(crate) fn add(&self, class: Class, word: u64) {
        self.batches.lock().open.objects.push((class, word));
    }

    /// Takes spans in.
    pub(crate) fn add_spans(&self, spans: impl IntoIterator<Item = Retired>) {
        self.batches.lock().open.spans.extend(spans);
    }

    /// Closes the open batch, if it has so many objects, or a span, and no other is closed. The
    /// caller counts a turn then, and [says](Self::closed_in) which.
    pub(crate) fn close(&self, least: usize) -> bool {
        let mut batches = self.batches.lock();
        let is_wanted = batches.open.objects.len() >= least || !batches.open.spans.is_empty();
        let is_to_close = batches.closed.is_none() && is_wanted;
        if is_to_close {
            batches.closed = Some(std::mem::take(&mut batches.open));
        }
        is_to_close
    }

    pub(crate) fn closed_in(&self, turn: u64) {
        self.batches.lock().turn = Some(turn);
    }

    /// The turn of the closed batch, and whether there are spans in it.
    pub(crate) fn turn(&self) -> Option<(u64, bool)> {
        let batches = self.batches.lock();
        Some((batches.turn?, batches.closed.as_ref().is_some_and(|closed| !closed.spans.is_empty())))
    }

    /// Takes the batch that was closed in this turn, unless another thread has.
    pub(crate) fn take(&self, turn: u64) -> Batch {
        let mut batches = self.batches.lock();
        if batches.turn == Some(turn) {
            batches.turn = None;
            batches.closed.take().unwrap_or_default()
        } else {
            Batch::default()
        }
    }

    /// Takes a span out early, to serve the class again that it served before. Its objects are
    /// records of the same size then, so a stale place is detected by their incarnations.
    pub(crate) fn call_back(&self, class: u8) -> Option<Retired> {
        let mut batches = self.batches.lock();
        let Batches { open, closed, .. } = &mut *batches;
        std::iter::once(open).chain(closed).find_map(|batch| {
            let at = batch.spans.iter().position(|span| span.class == class)?;
            Some(batch.spans.swap_remove(at))
        })
    }

    /// Returns how many units of retired spans there are.
    pub(crate) fn units(&self) -> u64 {
        let batches = self.batches.lock();
        let spans = std::iter::once(&batches.open).chain(&batches.closed).flat_map(|batch| &batch.spans);
        spans.map(|span| span.run.units).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::spans::Run;

    #[test]
    fn one_batch_is_closed_at_a_time() {
        let (quarantine, class) = (Quarantine::default(), Class::of(4).expect("small"));
        assert!(!quarantine.close(1), "there is nothing");
        quarantine.add(class, 1);
        assert!(!quarantine.close(2), "there are not so many");
        quarantine.add(class, 2);
        assert!(quarantine.close(2));
        assert_eq!(quarantine.turn(), None, "no turn has been counted yet");
        quarantine.add(class, 3);
        assert!(!quarantine.close(1));
        quarantine.closed_in(7);
        assert_eq!((quarantine.turn(), quarantine.take(6)), (Some((7, false)), Batch::default()));
        assert_eq!(quarantine.take(7).objects, [(class, 1), (class, 2)]);
        assert_eq!((quarantine.turn(), quarantine.take(7)), (None, Batch::default()));
        assert!(quarantine.close(1));
        quarantine.closed_in(8);
        assert_eq!(quarantine.take(8).objects, [(class, 3)]);
    }

    #[test]
    fn a_span_is_reason_enough_to_close_a_batch() {
        let (quarantine, class) = (Quarantine::default(), Class::of(4).expect("small"));
        let span = Retired { run: Run { first: 3, units: 2 }, class: 0 };
        quarantine.add(class, 1);
        quarantine.add_spans([span]);
        assert!(quarantine.close(DETAINED));
        quarantine.closed_in(7);
        assert_eq!((quarantine.turn(), quarantine.units()), (Some((7, true)), 2));
        assert_eq!(quarantine.take(7), Batch { objects: vec![(class, 1)], spans: vec![span] });
    }

    #[test]
    fn a_span_is_called_back_only_for_its_class() {
        let quarantine = Quarantine::default();
        let span = |first, class| Retired { run: Run { first, units: 1 }, class };
        quarantine.add_spans([span(3, 7)]);
        assert!(quarantine.close(DETAINED));
        quarantine.add_spans([span(4, 8)]);
        assert_eq!((quarantine.call_back(6), quarantine.call_back(8)), (None, Some(span(4, 8))));
        // Its turn has not been counted yet.
        assert_eq!((quarantine.call_back(7), quarantine.call_back(7)), (Some(span(3, 7)), None));
        quarantine.add_spans([span(5, 7)]);
        assert!(!quarantine.close(DETAINED), "what is counted now was not closed before");
        quarantine.closed_in(9);
        assert_eq!((quarantine.take(9), quarantine.units()), (Batch::default(), 1));
    }
}
