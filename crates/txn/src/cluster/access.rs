//! Access of clients, and its end: how the one owner of a cluster frees what dead clients have
//! locked.
//!
//! A client's commit is one call ([`Apply`](super::requests::apply::Apply)), which the owner
//! carries out whole. So a transaction whose locks are there has not been decided, or its commit
//! has not arrived. Before the owner frees a lock of a dead incarnation, it revokes that one's
//! access: its calls that lock or write are refused from then on, and those that are being carried
//! out have ended. What was sent before the client died and arrives later does nothing.

use drtm_kv::Holder;
use drtm_rdma::NodeId;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use rustc_hash::FxHashMap;

use super::Refusal;

/// The last incarnation of each node that is meant, by the node.
type Incarnations = FxHashMap<u16, u32>;

/// Which incarnations of other nodes may lock and write here.
#[derive(Debug, Default)]
pub(super) struct Access {
    /// Those up to these must not any more.
    revoked: RwLock<Incarnations>,
    /// Those that have introduced themselves, and were not found dead yet.
    met: Mutex<Incarnations>,
}

/// A call that locks or writes is being carried out.
pub(super) type Entered<'a> = RwLockReadGuard<'a, Incarnations>;

impl Access {
    /// Lets a call in: as long as it is carried out, its node's access is not revoked.
    pub(super) fn enter(&self, holder: Holder) -> Result<Entered<'_>, Refusal> {
        let revoked = self.revoked.read();
        match revoked.get(&holder.node().into()) {
            Some(last) if holder.incarnation() <= *last => Err(Refusal::Revoked),
            _ => Ok(revoked),
        }
    }

    /// Revokes the access of a node's incarnation, and of those before. No call of theirs is being
    /// carried out when this returns.
    pub(super) fn revoke(&self, node: u16, incarnation: u32) {
        let mut revoked = self.revoked.write();
        let last = revoked.entry(node).or_insert(incarnation);
        *last = incarnation.max(*last);
    }

    /// Notes that a node has introduced itself.
    pub(super) fn meet(&self, node: NodeId, incarnation: u32) {
        self.met.lock().insert(node.0, incarnation);
    }

    /// Takes a node that has introduced itself, and is dead. Each is given to one caller.
    pub(super) fn dead(&self, is_dead: impl Fn(NodeId, u32) -> bool) -> Option<(u16, u32)> {
        let mut met = self.met.lock();
        let dead = met.iter().map(|(node, last)| (*node, *last)).find(|(node, last)| is_dead(NodeId(*node), *last))?;
        met.remove(&dead.0);
        Some(dead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(node: u8, incarnation: u32) -> Holder {
        Holder::new(node, incarnation, 3, 1)
    }

    #[test]
    fn access_that_is_revoked_stays_so() {
        let access = Access::default();
        assert!(access.enter(holder(1, 4)).is_ok());
        access.revoke(1, 4);
        access.revoke(1, 2);
        for incarnation in [1, 4] {
            assert_eq!(access.enter(holder(1, incarnation)).err(), Some(Refusal::Revoked));
        }
        assert!(access.enter(holder(1, 5)).is_ok() && access.enter(holder(2, 1)).is_ok());
    }

    #[test]
    fn what_has_entered_is_waited_for() {
        let (access, order) = (Access::default(), Mutex::new(Vec::new()));
        let entered = access.enter(holder(1, 1)).expect("it is not revoked");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                access.revoke(1, 1);
                order.lock().push("revoked");
            });
            std::thread::sleep(std::time::Duration::from_millis(20));
            order.lock().push("done");
            drop(entered);
        });
        assert_eq!(order.into_inner(), ["done", "revoked"]);
    }

    #[test]
    fn a_node_that_has_died_is_told_of_once() {
        let access = Access::default();
        access.meet(NodeId(1), 1);
        access.meet(NodeId(2), 7);
        assert_eq!(access.dead(|_, _| false), None);
        assert_eq!(access.dead(|node, last| (node, last) == (NodeId(2), 7)), Some((2, 7)));
        assert_eq!(access.dead(|node, _| node == NodeId(2)), None);
    }
}
