//! The locking buffers of a directory: copies of the filters of the transactions that have locked
//! it in part.
//!
//! A buffer denies others' writes of lines that its transaction has read or written, and others'
//! reads of those that it has written. Two kinds: a *lock* is a commit's, and lasts until its end.
//! A *hold* is a read's of several lines, and lasts as long as that.
//!
//! Invariant: nothing that has a buffer waits for another one's. A commit waits for holds before it
//! loads its own. A hold's reads pass locks that were loaded later: such a commit has written none
//! of its lines, and only a false positive of the lock's filter could deny them.

use super::{
    filter::{Key, Pair},
    message::TxId,
    mutation::{Mutation, includes},
    private::Kind,
    profile::Line,
};

#[derive(Clone, Debug)]
pub(super) struct Buffer {
    pub(super) owner: TxId,
    pub(super) is_hold: bool,
    pub(super) pair: Pair,
}

#[derive(Clone, Debug)]
pub(super) struct Buffers {
    most: usize,
    /// In the order of loading.
    loaded: Vec<Buffer>,
}

/// What a commit meets that is about to lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// A read of several lines, which ends soon.
    Hold,
    /// Another commit, or a lack of buffers.
    Lock,
}

impl Buffers {
    pub(super) fn new(most: usize) -> Self {
        Self { most, loaded: Vec::new() }
    }

    /// Returns whether an access must be denied.
    #[inline]
    pub(super) fn denies(&self, owner: TxId, key: Key, kind: Kind) -> bool {
        for buffer in &self.loaded {
            let denies = if buffer.owner.is(owner) {
                let is_held = buffer.is_hold && kind == Kind::Read && buffer.pair.reads.contains(key);
                if is_held && !includes(Mutation::HoldsMeetLaterLocks) {
                    return false;
                }
                false
            } else if kind == Kind::Read {
                buffer.pair.writes.contains(key)
            } else {
                buffer.pair.meets_write(key)
            };
            if denies {
                return true;
            }
        }
        false
    }

    /// Returns what prevents a commit that has written these lines from locking.
    pub(super) fn obstacle(&self, owner: TxId, lines: &[Line]) -> Option<Obstacle> {
        let others = || self.loaded.iter().filter(|buffer| !buffer.owner.is(owner));
        let meets = |buffer: &&Buffer| lines.iter().any(|&line| buffer.pair.meets_write(Key::of(line)));
        if self.is_full() || others().filter(|buffer| !buffer.is_hold).any(|buffer| meets(&buffer)) {
            return Some(Obstacle::Lock);
        }
        others().filter(|buffer| buffer.is_hold).any(|buffer| meets(&buffer)).then_some(Obstacle::Hold)
    }

    pub(super) fn is_full(&self) -> bool {
        self.loaded.len() == self.most
    }

    pub(super) fn load(&mut self, owner: TxId, is_hold: bool, pair: Pair) {
        debug_assert!(!self.is_full());
        self.loaded.push(Buffer { owner, is_hold, pair });
    }

    /// Clears the holds of a transaction.
    pub(super) fn release(&mut self, owner: TxId) {
        self.loaded.retain(|buffer| !buffer.is_hold || !buffer.owner.is(owner));
    }

    /// Clears the buffers of a transaction.
    pub(super) fn clear(&mut self, owner: TxId) {
        self.loaded.retain(|buffer| !buffer.owner.is(owner));
    }

    #[cfg(test)]
    pub(super) fn has(&self, owner: TxId) -> bool {
        self.loaded.iter().any(|buffer| buffer.owner == owner)
    }

    pub(super) fn loaded(&self) -> &[Buffer] {
        &self.loaded
    }
}
