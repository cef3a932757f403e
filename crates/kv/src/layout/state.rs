//! The state word: a record's lock and lease.
//!
//! ```text
//!  63                                                             9 8        1    0
//! +----------------------------------------------------------------+----------+------+
//! | unlocked: lease end (55)                                       | owner    | lock |
//! | locked:   node incarnation (39)             | worker (16)      | (8)      |      |
//! +----------------------------------------------------------------+----------+------+
//! ```
//!
//! | field | written by | meaning |
//! |---|---|---|
//! | lock | whoever takes or gives up the lock | the record is about to be written |
//! | owner | the taker | the node that holds the lock; zero while unlocked |
//! | lease end | a reader on another node | until then the value must not change; zero for no lease |
//! | worker, node incarnation | the taker | which of the owner's workers, in which of the owner's lives |
//!
//! This is DrTM's layout (Fig. 9), which leaves the lease idle while the lock is held; here it then says who may have died
//! with the lock. Transitions: *free* (all zero) to *locked* and back, by the holder only; *free* to *leased* and to a later lease, by
//! anyone; *leased* to *locked* once the lease has ended.

use super::Field;

const LOCK: Field = Field::new(0, 1);
const OWNER: Field = LOCK.then(8);
const LEASE_END: Field = OWNER.then(55);
const WORKER: Field = OWNER.then(16);
const NODE_INCARNATION: Field = WORKER.then(39);

const _: () = assert!(LEASE_END.ends_word() && NODE_INCARNATION.ends_word());

/// A record's lock and lease, in one word.
///
/// # Example
///
/// ```
/// use drtm_kv::State;
///
/// assert!(!State::FREE.is_locked());
/// let locked = State::locked_by(3, 17, 1);
/// assert_eq!((locked.is_locked(), locked.owner(), locked.worker()), (true, 3, 17));
/// assert_eq!(State::leased_until(1_000).lease_end(), 1_000);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct State(pub(crate) u64);

impl State {
    /// Neither locked nor leased.
    pub const FREE: Self = Self(0);

    /// Locked by a worker of a node in one of its lives. The incarnation keeps its 39 lowest bits.
    #[must_use]
    pub const fn locked_by(owner: u8, worker: u16, node_incarnation: u64) -> Self {
        let word = LOCK.set(0, 1);
        let word = OWNER.set(word, owner as u64);
        let word = WORKER.set(word, worker as u64);
        Self(NODE_INCARNATION.set(word, node_incarnation))
    }

    /// Leased until a time, of which the 55 lowest bits are kept.
    #[must_use]
    pub const fn leased_until(end: u64) -> Self {
        Self(LEASE_END.set(0, end))
    }

    /// Whether the record is locked.
    #[must_use]
    #[inline(always)]
    pub const fn is_locked(self) -> bool {
        LOCK.get(self.0) != 0
    }

    /// The node that holds the lock.
    #[must_use]
    pub const fn owner(self) -> u8 {
        OWNER.get(self.0) as u8
    }

    /// The owner's worker that holds the lock. Only while locked.
    #[must_use]
    pub const fn worker(self) -> u16 {
        WORKER.get(self.0) as u16
    }

    /// The owner's life in which the lock was taken. Only while locked.
    #[must_use]
    pub const fn node_incarnation(self) -> u64 {
        NODE_INCARNATION.get(self.0)
    }

    /// When the lease ends, zero if there is none. A locked record has none.
    #[must_use]
    pub const fn lease_end(self) -> u64 {
        if self.is_locked() { 0 } else { LEASE_END.get(self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_drtm_s() {
        // W_LOCKED | (owner << 1), and lease end << (1 + 8), as in the paper.
        assert_eq!(State::locked_by(0xAB, 0, 0).0, 0xAB << 1 | 1);
        assert_eq!(State::leased_until(7).0, 7 << 9);
        assert_eq!(State::leased_until(u64::MAX).lease_end(), (1 << 55) - 1);
    }

    #[test]
    fn a_lock_names_its_holder_and_is_no_lease() {
        let state = State::locked_by(255, u16::MAX, (1 << 39) - 1);
        assert_eq!((state.owner(), state.worker(), state.node_incarnation()), (255, u16::MAX, (1 << 39) - 1));
        assert_eq!((state.0, state.lease_end()), (u64::MAX, 0));
    }
}
