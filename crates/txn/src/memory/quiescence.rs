//! Determines whether all operations have ended that may refer to memory, before it is divided for
//! rows of another size.
//!
//! A stale place is written before it is checked: the lock of a record is a swap of a word from
//! zero. In memory that holds another row by then, this would change a value. So it must be certain
//! that no transaction, snapshot, prefetch or garbage refers to the memory. Three steps determine
//! it, in this order:
//!
//! 1. *A barrier.* A transaction marks itself as active by a plain store, since a fence would cost
//!    each of them. Here, all processors that run this process execute a barrier (`membarrier`). A
//!    transaction whose mark is not seen afterwards begins to read after the barrier, and finds no
//!    link into the memory.
//! 2. *Marks.* No transaction is active that was admitted before the turn in which the memory was
//!    retired. Its prefetches have ended with it. A hint is checked against its leaf each time.
//! 3. *Garbage.* New entries get another age, and all of the present age are waited for. An entry
//!    that is just being made belongs to a transaction that began after the retirement, and has a
//!    record that is in use.
//!
//! If peers may refer to the memory, or the system has no such barrier, memory keeps its size.

use drtm_htm::Engine;

use crate::{db::lifecycle::Lifecycle, memory::garbage::Queue, model::sync::Mutex};

#[derive(Debug)]
pub(crate) struct Quiescence {
    is_certain: bool,
    /// The turn that was asked about last, and the age that garbage had then.
    asked: Mutex<(u64, u64)>,
}

impl Quiescence {
    /// Creates the check of a database whose memory only its own threads know.
    pub(crate) fn of_threads() -> Self {
        Self { is_certain: barrier::register(), asked: Mutex::default() }
    }

    /// Creates the check of a database whose memory other nodes may know.
    pub(crate) fn of_peers() -> Self {
        Self { is_certain: false, asked: Mutex::default() }
    }

    /// Returns whether the check can be certain.
    pub(crate) fn is_certain(&self) -> bool {
        self.is_certain
    }

    /// Checks whether all has ended that began before a turn.
    pub(crate) fn check<E: Engine>(&self, turn: u64, engine: &E, lifecycle: &Lifecycle, garbage: &Queue) -> bool {
        self.is_certain && self.check_seen(turn, engine, lifecycle, garbage)
    }

    /// Like [`check`](Self::check), but where it cannot be certain, it is enough that nothing is
    /// seen that has not ended.
    pub(crate) fn check_seen<E: Engine>(&self, turn: u64, engine: &E, lifecycle: &Lifecycle, garbage: &Queue) -> bool {
        if self.is_certain && !barrier::pass() || !lifecycle.has_passed(engine, turn) {
            return false;
        }
        let mut asked = self.asked.lock();
        if asked.0 != turn {
            let Some(age) = garbage.grow_older() else { return false };
            *asked = (turn, age);
        }
        garbage.is_drained_of(asked.1)
    }
}

#[cfg(not(feature = "model"))]
mod barrier {
    pub(super) use drtm_rdma::system::{barrier as pass, register_for_barrier as register};
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use drtm_htm::NoHtm;
    use drtm_kv::{Handle, Version};

    use super::*;
    use crate::memory::garbage::{Garbage, NewPast};

    #[test]
    fn garbage_that_was_left_before_is_waited_for() {
        let (quiescence, lifecycle, garbage) = (Quiescence::of_threads(), Lifecycle::new(&NoHtm), Queue::default());
        assert!(quiescence.is_certain(), "the system has the barrier");
        let leave = || NewPast::new(&garbage).add(Handle::default(), Version::new(1));
        let take = || match garbage.pop() {
            Some(Garbage::Past { age, .. }) => garbage.end(age),
            other => panic!("{other:?}"),
        };
        let has_ended = |turn| quiescence.check(turn, &NoHtm, &lifecycle, &garbage);
        leave();
        let turn = lifecycle.advance_count(&NoHtm);
        assert!(!has_ended(turn), "an entry may refer to the memory");
        // What is left from now on does not.
        leave();
        take();
        assert!(has_ended(turn));
        let next = lifecycle.advance_count(&NoHtm);
        assert!(!has_ended(next), "the second entry may");
        take();
        assert!(has_ended(next));
        // A transaction that was admitted before is waited for, too.
        let slot = lifecycle.slot();
        slot.enter(&NoHtm, lifecycle.now(&NoHtm));
        let last = lifecycle.advance_count(&NoHtm);
        assert!(!has_ended(last));
        slot.leave(&NoHtm);
        assert!(has_ended(last));
    }
}

/// The model checker knows no such barrier.
#[cfg(feature = "model")]
mod barrier {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn pass() -> bool {
        false
    }
}
