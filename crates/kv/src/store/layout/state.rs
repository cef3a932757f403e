//! The state word: a record's lock, or its lease.
//!
//! ```text
//!  63                            33 32     25 24            9 8        1    0
//! +--------------------------------+---------+---------------+----------+------+
//! | locked: node incarnation (31)  | slot (8)| worker (16)   | node (8) | 1    |
//! | unlocked: lease end (55)                                 | zero (8) | 0    |
//! +----------------------------------------------------------+----------+------+
//! ```
//!
//! A locked word names the transaction that holds the lock: the node, its incarnation, the worker,
//! and the slot of that worker. Two transactions that run at the same time never have the same
//! word. This is DrTM's layout (Fig. 9), with the rest of the name in the bits that a lock leaves
//! of the lease.
//!
//! | field | meaning |
//! |---|---|
//! | lock | a transaction holds the record's lock |
//! | node | the holder's node |
//! | worker, slot | the worker of the node, and its transaction |
//! | node incarnation | the node's incarnation when the lock was taken |
//! | lease end | the value does not change before; zero: no lease |
//!
//! [`acquire`](crate::acquire) decides which words may be replaced by a lock.

use super::Field;

const LOCK: Field = Field::new(0, 1);
const NODE: Field = LOCK.then(8);
const LEASE_END: Field = NODE.then(55);
const WORKER: Field = NODE.then(16);
const SLOT: Field = WORKER.then(8);
const INCARNATION: Field = SLOT.then(31);

const _: () = assert!(LEASE_END.ends_word() && INCARNATION.ends_word());

/// The highest incarnation that a node can have: 31 bits.
pub(crate) const MAX_INCARNATION: u32 = INCARNATION.max() as u32;

/// A record's lock or lease, in one word.
///
/// # Example
///
/// ```
/// use drtm_kv::{Holder, KvTable, State};
///
/// let holder = Holder::new(3, 1, 17, 0);
/// assert_eq!((State::FREE.holder(), State::from(holder).holder()), (None, Some(holder)));
/// assert_eq!(State::leased_until(1_000).lease_end(), 1_000);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct State(pub(crate) u64);

/// A transaction's name in locks: the state word of a record that it has locked.
///
/// # Example
///
/// ```
/// use drtm_kv::Holder;
///
/// let holder = Holder::new(3, 1, 17, 2);
/// assert_eq!((holder.node(), holder.incarnation(), holder.worker(), holder.slot()), (3, 1, 17, 2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Holder(State);

impl State {
    /// The state of a record that is neither locked nor leased.
    pub const FREE: Self = Self(0);

    /// Makes the state of a record that is leased until a time. Keeps the 55 lowest bits.
    ///
    /// # Example
    ///
    /// See [`State`].
    #[must_use]
    pub const fn leased_until(end: u64) -> Self {
        Self(LEASE_END.set(0, end))
    }

    /// Returns when the lease ends. Zero: there is no lease, as in a locked record.
    ///
    /// # Example
    ///
    /// See [`State`].
    #[must_use]
    pub const fn lease_end(self) -> u64 {
        if self.is_locked() { 0 } else { LEASE_END.get(self.0) }
    }

    /// Returns whether a transaction has locked the record.
    #[must_use]
    #[inline(always)]
    pub const fn is_locked(self) -> bool {
        LOCK.get(self.0) != 0
    }

    /// Returns the transaction that has locked the record. `None`: it is not locked.
    ///
    /// # Example
    ///
    /// See [`State`].
    #[must_use]
    #[inline(always)]
    pub const fn holder(self) -> Option<Holder> {
        if self.is_locked() { Some(Holder(self)) } else { None }
    }

    /// Returns whether no transaction other than this one has locked the record.
    #[must_use]
    #[inline(always)]
    pub const fn may_be_read_by(self, holder: Holder) -> bool {
        !self.is_locked() || self.0 == holder.word()
    }
}

impl Holder {
    /// Makes the name of the transaction in this slot of a node's worker. Keeps the 31 lowest bits
    /// of the node's incarnation.
    ///
    /// # Example
    ///
    /// See [`Holder`].
    #[must_use]
    pub const fn new(node: u8, incarnation: u32, worker: u16, slot: u8) -> Self {
        let word = NODE.set(LOCK.set(0, 1), node as u64);
        let word = SLOT.set(WORKER.set(word, worker as u64), slot as u64);
        Self(State(INCARNATION.set(word, incarnation as u64)))
    }

    /// Returns the state word of a record that this transaction has locked, for a message.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_kv::Holder;
    ///
    /// let holder = Holder::new(3, 1, 17, 2);
    /// assert_eq!(Holder::from_word(holder.to_word()), Some(holder));
    /// assert_eq!(Holder::from_word(0), None);
    /// ```
    #[must_use]
    pub const fn to_word(self) -> u64 {
        self.word()
    }

    /// Returns the transaction that a [word](Self::to_word) names. `None`: it names none.
    ///
    /// # Example
    ///
    /// See [`to_word`](Self::to_word).
    #[must_use]
    pub const fn from_word(word: u64) -> Option<Self> {
        State(word).holder()
    }

    /// Returns the name of the transaction in another slot of the same worker.
    #[must_use]
    pub const fn in_slot(self, slot: u8) -> Self {
        Self(State(SLOT.set(self.word(), slot as u64)))
    }

    /// Returns the node.
    #[must_use]
    pub const fn node(self) -> u8 {
        NODE.get(self.word()) as u8
    }

    /// Returns the node's incarnation.
    ///
    /// # Example
    ///
    /// See [`Holder`].
    #[must_use]
    pub const fn incarnation(self) -> u32 {
        INCARNATION.get(self.word()) as u32
    }

    /// Returns the node's worker.
    ///
    /// # Example
    ///
    /// See [`Holder`].
    #[must_use]
    pub const fn worker(self) -> u16 {
        WORKER.get(self.word()) as u16
    }

    /// Returns the worker's slot.
    ///
    /// # Example
    ///
    /// See [`Holder`].
    #[must_use]
    pub const fn slot(self) -> u8 {
        SLOT.get(self.word()) as u8
    }

    #[inline(always)]
    pub(crate) const fn word(self) -> u64 {
        self.0.0
    }
}

impl From<Holder> for State {
    #[inline(always)]
    fn from(holder: Holder) -> Self {
        holder.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_drtm_s() {
        // W_LOCKED | (owner << 1), and lease end << (1 + 8), as in the paper.
        assert_eq!(Holder::new(0xAB, 0, 0, 0).word(), 0xAB << 1 | 1);
        assert_eq!(State::leased_until(7).0, 7 << 9);
        assert_eq!(State::leased_until(u64::MAX).lease_end(), (1 << 55) - 1);
    }

    #[test]
    fn a_lock_names_its_holder_and_is_no_lease() {
        let holder = Holder::new(255, MAX_INCARNATION, u16::MAX, 255);
        let fields = (holder.node(), holder.incarnation(), holder.worker(), holder.slot());
        assert_eq!(fields, (255, MAX_INCARNATION, u16::MAX, 255));
        assert_eq!((holder.word(), State::from(holder).lease_end()), (u64::MAX, 0));
        assert_eq!(holder.in_slot(7), Holder::new(255, MAX_INCARNATION, u16::MAX, 7));
    }
}
