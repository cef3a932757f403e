//! The locking buffers of a directory: copies of the filters of the transactions that have locked
//! it in part.
//!
//! A buffer denies others' writes of lines that its transaction has read or written, and others'
//! reads of those that it has written. Two kinds: a *lock* is a commit's, and lasts until its end.
//! A *hold* is a read's of several lines, and lasts as long as that.

use super::{
    filter::{Key, Pair},
    message::TxId,
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
    loaded: Vec<Buffer>,
}

/// What a commit meets that is about to lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// A read of several lines, which ends soon, or a lack of buffers.
    Passing,
    /// Another commit.
    Lock,
}

impl Buffers {
    pub(super) fn new(most: usize) -> Self {
        Self { most, loaded: Vec::new() }
    }

    /// Returns whether an access must be denied.
    #[inline]
    pub(super) fn denies(&self, owner: TxId, key: Key, kind: Kind) -> bool {
        self.loaded.iter().filter(|buffer| !buffer.owner.is(owner)).any(|buffer| match kind {
            Kind::Read => buffer.pair.writes.contains(key),
            Kind::Write => buffer.pair.meets_write(key),
        })
    }

    /// Returns what prevents a commit that has written these lines from locking.
    pub(super) fn obstacle(&self, owner: TxId, lines: &[Line]) -> Option<Obstacle> {
        let others = || self.loaded.iter().filter(|buffer| !buffer.owner.is(owner));
        let meets = |buffer: &&Buffer| lines.iter().any(|&line| buffer.pair.meets_write(Key::of(line)));
        if others().filter(|buffer| !buffer.is_hold).any(|buffer| meets(&buffer)) {
            return Some(Obstacle::Lock);
        }
        let is_held = others().filter(|buffer| buffer.is_hold).any(|buffer| meets(&buffer));
        (is_held || self.is_full()).then_some(Obstacle::Passing)
    }

    pub(super) fn is_full(&self) -> bool {
        self.loaded.len() == self.most
    }

    pub(super) fn load(&mut self, owner: TxId, is_hold: bool, pair: Pair) {
        debug_assert!(!self.is_full());
        self.loaded.push(Buffer { owner, is_hold, pair });
    }

    /// Clears the buffers of a transaction.
    pub(super) fn clear(&mut self, owner: TxId) {
        self.loaded.retain(|buffer| !buffer.owner.is(owner));
    }

    #[cfg(test)]
    pub(super) fn has(&self, owner: TxId) -> bool {
        self.loaded.iter().any(|buffer| buffer.owner == owner)
    }

    #[cfg(test)]
    pub(super) fn loaded(&self) -> &[Buffer] {
        &self.loaded
    }
}
