//! The rings that lead from one endpoint to those of one node.

use drtm_htm::Engine;

use crate::{
    Incarnation,
    fabric::{die, lifetime::Life as _},
    sync::ring::FrameHead,
};

use super::{
    ENDPOINTS, Shared,
    control::{Control, Traffic},
    node::Peer,
    outbox::OutRing,
};

#[derive(Debug)]
pub(super) struct Rings {
    /// For each endpoint of the node, the ring for requests and the one for replies.
    rings: Vec<[Option<OutRing>; 2]>,
    /// The incarnation that they lead to.
    to: Incarnation,
}

impl Default for Rings {
    fn default() -> Self {
        Self { rings: Vec::new(), to: Incarnation(0) }
    }
}

impl Rings {
    /// Returns whether an endpoint has requests to take.
    pub(super) fn has_requests(&self, endpoint: u16, control: &Control) -> bool {
        matches!(self.rings.get(usize::from(endpoint)), Some([Some(ring), _]) if !ring.is_drained(control))
    }

    /// Pushes a frame into the ring to an endpoint, and wakes it. Returns false if there is no
    /// room.
    #[inline]
    pub(super) fn push<E: Engine>(
        &mut self,
        shared: &Shared<E>,
        from: u16,
        life: &Peer<E>,
        (endpoint, traffic): (u16, Traffic),
        head: FrameHead,
        bytes: &[u8],
    ) -> bool {
        if self.to != life.incarnation() {
            self.lead_to(life.incarnation());
        }
        let Some(rings) = self.rings.get_mut(usize::from(endpoint) % ENDPOINTS) else { return false };
        let ring = &mut rings[usize::from(traffic == Traffic::Replies)];
        if ring.is_none() {
            *ring = OutRing::open(shared, from, life, endpoint, traffic);
        }
        let pushed = ring.as_mut().is_some_and(|ring| ring.push(shared.control(), head, bytes));
        if pushed {
            die::site("wake.looked");
            life.control.alarm(endpoint).ring();
            die::site("wake.rung");
        }
        pushed
    }

    #[cold]
    fn lead_to(&mut self, incarnation: Incarnation) {
        self.rings.clear();
        self.rings.resize_with(ENDPOINTS, Default::default);
        self.to = incarnation;
    }
}
