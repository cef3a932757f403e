//! Asks for leases on the view: see [`tenure`](super::tenure).

use std::{
    convert::Infallible,
    sync::atomic::{
        AtomicBool,
        Ordering::{AcqRel, Release},
    },
    time::Duration,
};

use drtm_membership::Heartbeat;
use drtm_rdma::{Fabric, NodeId, Presence};

use super::{
    coordinator::Coordinator,
    requests::tenure::{AskFor, Renew},
    tenure::Tenure,
};
use crate::{Config, Error};

/// How often another worker of the node looks whether it is to do something that one does.
const TURN_AFTER: Duration = Duration::from_millis(10);

/// How often leases are asked for while they last, and while there is none, as parts of one.
const OFTEN: u32 = 5;
const AT_ONCE: u32 = 20;

/// How often in succession the leader takes nothing of this node before the node knows that it is
/// out. It may only have been suspected for a while.
const REFUSED: u32 = 20;

/// Lets another worker do something that one does, also when this one ends.
pub(super) struct Kept<'a>(&'a AtomicBool);

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Waits until no other worker of the node does something.
    pub(super) async fn turn<'a>(&self, is_kept: &'a AtomicBool) -> Kept<'a> {
        while is_kept.swap(true, AcqRel) {
            self.endpoint().sleep(TURN_AFTER).await;
        }
        Kept(is_kept)
    }

    /// Asks for leases, for ever. One worker of a node does so at a time.
    pub(super) async fn keep_lease(&self) -> Infallible {
        let Some(tenure) = &self.node.tenure else { return std::future::pending().await };
        let _kept = self.turn(&tenure.is_kept).await;
        let (lease, mut refused) = (tenure.terms.lease, 0);
        loop {
            let asked = match tenure.to_ask() {
                _ if tenure.is_out() => return std::future::pending().await,
                Some(to) => self.ask_lease(tenure, to).await,
                None => Ok(()),
            };
            let is_held = asked.is_ok() && tenure.holds(self.endpoint().now());
            let view = self.node.view.view();
            // A member is out where a configuration is without it: the leader may be out itself.
            let is_member = view.has_life(self.id(), self.node.incarnation);
            if !is_held && !is_member && self.endpoint().is_refused_by(view.leader()) {
                refused += 1;
                if refused > REFUSED {
                    self.node.note_out(self.node.view.number());
                }
            } else {
                refused = 0;
            }
            self.endpoint().sleep(lease / if is_held { OFTEN } else { AT_ONCE }).await;
        }
    }

    /// Asks the leader of a view for a lease.
    async fn ask_lease(&self, tenure: &Tenure, (leader, view, heard): (NodeId, u32, u64)) -> Result<(), Error> {
        let until = self.endpoint().now() + tenure.terms.lease / 2;
        self.in_time(leader, until, self.greet(leader)).await?;
        let heartbeat = self.call::<Renew, _>(leader, AskFor { view, heard }, Heartbeat::from);
        let heartbeat = self.in_time(leader, until, heartbeat).await?;
        tenure.hear(self.endpoint().now(), view, heartbeat);
        Ok(())
    }

    /// Returns whether this node may acknowledge a view that another node drives.
    pub(super) fn may_acknowledge(&self, driver: NodeId) -> bool {
        let Some(tenure) = &self.node.tenure else { return true };
        tenure.is_free(self.endpoint().now(), Duration::ZERO, driver)
            || self.is_certainly_gone(self.node.view.view().leader())
    }

    /// Returns whether nothing of a node that is gone goes on anywhere.
    pub(super) fn is_certainly_gone(&self, node: NodeId) -> bool {
        match self.endpoint().presence(node) {
            Presence::Left(_) => true,
            Presence::Died(_) => self.endpoint().capabilities().certain_deaths,
            _ => false,
        }
    }
}
