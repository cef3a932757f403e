//! A NIC's filters for the transactions of other nodes (module 4a of the paper).

use super::{
    filter::{Pair, Shape},
    message::{Stopped, TxId},
    profile::{Line, MachineProfile},
};

/// Why another node fetches lines.
///
/// # Example
///
/// See [`Node::fetch`](super::Node::fetch).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fetch {
    /// To read them.
    Read,
    /// To write a part of each. Lines that are written as a whole are not fetched.
    Write,
}

/// A transaction of another node.
#[derive(Clone, Debug)]
pub(super) struct Guest {
    pub(super) tx: TxId,
    pub(super) pair: Pair,
    /// Why it was squashed. Then it cannot lock any more.
    pub(super) squashed: Option<Stopped>,
    /// The lines that it will update, if it has locked.
    pub(super) intended: Vec<Line>,
}

#[derive(Clone, Debug)]
pub(super) struct Nic {
    most: usize,
    shape: Shape,
    pub(super) guests: Vec<Guest>,
}

impl Nic {
    pub(super) fn new(profile: &MachineProfile) -> Self {
        Self { most: profile.nic_pairs, shape: Shape::Hashed { bits: profile.nic_bits }, guests: Vec::new() }
    }

    /// Returns a transaction, which gets a pair of filters if it has none. `None` if none is free.
    pub(super) fn admit(&mut self, tx: TxId) -> Option<&mut Guest> {
        let known = self.guests.iter().position(|guest| guest.tx.is(tx));
        if known.is_none() {
            if self.guests.len() == self.most {
                return None;
            }
            let pair = Pair::new(self.shape, self.shape);
            self.guests.push(Guest { tx, pair, squashed: None, intended: Vec::new() });
        }
        let at = known.unwrap_or(self.guests.len() - 1);
        self.guests.get_mut(at)
    }

    /// Returns why a transaction was squashed here. `None` if it was not.
    pub(super) fn squashed(&self, tx: TxId) -> Option<Stopped> {
        self.guests.iter().find(|guest| guest.tx.is(tx))?.squashed
    }

    /// Removes a transaction.
    pub(super) fn dismiss(&mut self, tx: TxId) -> Option<Guest> {
        let at = self.guests.iter().position(|guest| guest.tx.is(tx))?;
        Some(self.guests.swap_remove(at))
    }
}
