//! What an operator orders of a cluster: to any of its nodes, which passes it to the view's leader.
//! The leader carries it out by the next view, as whatever else changes it.
//!
//! An order is kept in memory until it is carried out. If the leader dies before, the operator
//! gives it once more: carried out twice, it is as once.

use std::net::SocketAddr;

use drtm_rdma::NodeId;
use parking_lot::Mutex;

use super::{ClusterError, Refusal, View, shard::ShardId, view::Lost};

/// How many orders a node keeps.
const MOST: usize = 64;

/// What an operator orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// To serve a lost shard again, without rows.
    GiveUp(ShardId),
    /// To take a node that is gone for the one at this address from now on.
    Replace(NodeId, SocketAddr),
}

impl Order {
    /// Returns the order as a message has it.
    pub(super) fn to_parts(self) -> (u8, u16, String) {
        match self {
            Self::GiveUp(shard) => (1, shard.0, String::new()),
            Self::Replace(node, address) => (2, node.0, address.to_string()),
        }
    }

    /// Returns the order of a message. `None` if it is not known.
    pub(super) fn of_parts(kind: u8, subject: u16, address: &str) -> Option<Self> {
        match kind {
            1 => Some(Self::GiveUp(ShardId(subject))),
            2 => Some(Self::Replace(NodeId(subject), address.parse().ok()?)),
            _ => None,
        }
    }

    /// Returns whether it is carried out in a view.
    pub(super) fn is_done(self, view: &View) -> bool {
        match self {
            Self::GiveUp(shard) => !view.is_lost(shard),
            Self::Replace(node, address) => view.address_of(node) == Some(address),
        }
    }

    /// Returns what a refusal says of what it is about. `None` if it says nothing of that.
    pub(super) fn not_taken(self, reason: Refusal) -> Option<ClusterError> {
        match (self, reason) {
            (Self::GiveUp(shard), Refusal::NotLost) => Some(ClusterError::NotLost { shard }),
            (Self::Replace(node, _), Refusal::StillHere) => Some(ClusterError::StillHere { node }),
            (Self::Replace(node, address), Refusal::AddressTaken) => Some(ClusterError::AddressTaken { node, address }),
            (Self::Replace(node, _), Refusal::NoSuchNode) => Some(ClusterError::NoSuchNode { node }),
            _ => None,
        }
    }

    /// Returns what it means that a node refuses it.
    pub(super) fn refused(self, node: NodeId, reason: Refusal) -> ClusterError {
        self.not_taken(reason).unwrap_or(ClusterError::Refused { node, reason })
    }
}

/// The orders that a node has taken, and has not passed on or carried out.
#[derive(Debug, Default)]
pub(super) struct Orders(Mutex<Vec<Order>>);

impl Orders {
    /// Takes an order.
    ///
    /// # Errors
    ///
    /// [`Refusal::Full`].
    pub(super) fn take(&self, order: Order) -> Result<(), Refusal> {
        let mut orders = self.0.lock();
        if orders.contains(&order) {
            return Ok(());
        }
        if orders.len() >= MOST {
            return Err(Refusal::Full);
        }
        orders.push(order);
        Ok(())
    }

    /// Returns those that are left.
    pub(super) fn all(&self) -> Vec<Order> {
        self.0.lock().clone()
    }

    /// Forgets an order that was passed on, or is carried out.
    pub(super) fn forget(&self, order: Order) {
        self.0.lock().retain(|other| *other != order);
    }
}

/// Returns whether a shard's rows are given up by one of these orders, of this view.
pub(super) fn gives_up(orders: &[Order], view: &View, group: u16) -> bool {
    let is_its = |order: &Order| match order {
        Order::GiveUp(shard) => view.group_of(*shard) == Some(group),
        Order::Replace(..) => false,
    };
    let is_held = view.placement(group).is_some_and(|placed| matches!(placed.lost, Some(Lost::Held(_))));
    is_held && orders.iter().any(is_its)
}
