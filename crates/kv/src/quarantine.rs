//! Quarantine: free objects that are not to be used again before the operations have ended that may
//! know them.
//!
//! An object's incarnation tells its uses, and comes round. Each time that it begins a quarter, the
//! free object comes here, in a *batch* with others. When a batch is closed, a [turn](crate::turns)
//! is counted; when all operations that are seen to be active began after that turn, its objects
//! can be used again. There is one closed batch at a time, and the others wait in an open one,
//! until there are [so many](DETAINED) or memory is wanted. So however often memory is used again,
//! a long transaction sees one turn for it, and what waits meanwhile is one object in four thousand
//! uses.
//!
//! Whether operations are active is no more than a look: a turn is counted for each batch, and so
//! an operation that was overlooked finds out by itself.

use parking_lot::Mutex;

use crate::heap::{Class, Object};

pub(crate) use crate::bounds::DETAINED;

#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    batches: Mutex<Batches>,
}

#[derive(Debug, Default)]
struct Batches {
    open: Vec<Object>,
    closed: Vec<Object>,
    /// The turn that was counted for the closed batch, once it was.
    turn: Option<u64>,
}

impl Quarantine {
    /// Takes an object in.
    pub(crate) fn add(&self, class: Class, word: u64) {
        self.batches.lock().open.push((class, word));
    }

    /// Closes the open batch, if it has so many objects and no other is closed. The caller counts a
    /// turn then, and [says](Self::closed_in) which.
    pub(crate) fn close(&self, least: usize) -> bool {
        let mut batches = self.batches.lock();
        let is_to_close = batches.closed.is_empty() && batches.open.len() >= least;
        if is_to_close {
            batches.closed = std::mem::take(&mut batches.open);
        }
        is_to_close
    }

    pub(crate) fn closed_in(&self, turn: u64) {
        self.batches.lock().turn = Some(turn);
    }

    /// The turn of the closed batch.
    pub(crate) fn turn(&self) -> Option<u64> {
        self.batches.lock().turn
    }

    /// Takes the batch that was closed in this turn, unless another thread has.
    pub(crate) fn take(&self, turn: u64) -> Vec<Object> {
        let mut batches = self.batches.lock();
        if batches.turn == Some(turn) {
            batches.turn = None;
            std::mem::take(&mut batches.closed)
        } else {
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!((quarantine.turn(), quarantine.take(6)), (Some(7), Vec::new()));
        assert_eq!(quarantine.take(7), [(class, 1), (class, 2)]);
        assert_eq!((quarantine.turn(), quarantine.take(7)), (None, Vec::new()));
        assert!(quarantine.close(1));
        quarantine.closed_in(8);
        assert_eq!(quarantine.take(8), [(class, 3)]);
    }
}
