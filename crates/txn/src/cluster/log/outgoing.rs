//! A worker's rings at backups.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    task::Waker,
};

use drtm_rdma::{Incarnation, NodeId, Offset, RegionId, Remote};

use super::producer::Producer;
use crate::cluster::wire::parts::RingPlace;

/// A ring that this worker writes.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) node: NodeId,
    /// Of which incarnation of the backup it is.
    pub(super) incarnation: Option<Incarnation>,
    region: RegionId,
    pub(super) place: RingPlace,
    pub(super) producer: RefCell<Producer>,
}

impl Outgoing {
    pub(super) fn new(node: NodeId, incarnation: Option<Incarnation>, region: RegionId, place: RingPlace) -> Self {
        let producer = RefCell::new(Producer::new(place.size, place.start));
        Self { node, incarnation, region, place, producer }
    }

    /// Returns the address that is so many bytes into the ring.
    pub(super) fn at(&self, bytes: u64) -> Remote {
        Remote { node: self.node, region: self.region, offset: Offset::new(self.place.at + bytes) }
    }
}

/// A ring, or that one is being asked for.
#[derive(Debug, Default)]
struct Slot {
    ring: Option<Rc<Outgoing>>,
    is_opening: bool,
}

/// See the [module](self).
#[derive(Default)]
pub(in crate::cluster) struct Rings {
    /// By the backups' numbers.
    slots: RefCell<Vec<Slot>>,
    /// How many transactions of this worker were logged.
    sequence: Cell<u64>,
    /// What tells backups what is settled, when it has nothing to do.
    pub(super) waker: Cell<Option<Waker>>,
}

/// That a ring is being asked for, until it is dropped.
pub(super) struct Opening<'r> {
    rings: &'r Rings,
    node: NodeId,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.rings.slots.borrow_mut()[usize::from(self.node.0)].is_opening = false;
    }
}

impl Rings {
    /// Creates a worker's rings, none of which is open. Of all workers that a node ever has, no two
    /// number transactions alike.
    pub(in crate::cluster) fn of_worker(number: u64) -> Self {
        Self { sequence: Cell::new(number << 40), ..Self::default() }
    }

    /// Returns the ring at a node.
    pub(super) fn at(&self, node: NodeId) -> Option<Rc<Outgoing>> {
        self.slots.borrow().get(usize::from(node.0))?.ring.clone()
    }

    /// Returns all rings.
    pub(super) fn all(&self) -> Vec<Rc<Outgoing>> {
        self.slots.borrow().iter().filter_map(|slot| slot.ring.clone()).collect()
    }

    /// Begins to ask for a ring, unless another coroutine does.
    pub(super) fn begin_opening(&self, node: NodeId) -> Option<Opening<'_>> {
        let (mut slots, index) = (self.slots.borrow_mut(), usize::from(node.0));
        let length = slots.len().max(index + 1);
        slots.resize_with(length, Slot::default);
        let was_opening = std::mem::replace(&mut slots[index].is_opening, true);
        // Not made where it is not given: it ends the opening when it is dropped.
        if was_opening { None } else { Some(Opening { rings: self, node }) }
    }

    pub(super) fn is_opening(&self, node: NodeId) -> bool {
        self.slots.borrow().get(usize::from(node.0)).is_some_and(|slot| slot.is_opening)
    }

    /// Keeps a ring, in place of that of an incarnation which is gone.
    pub(super) fn keep(&self, ring: Rc<Outgoing>) {
        let index = usize::from(ring.node.0);
        self.slots.borrow_mut()[index].ring = Some(ring);
    }

    /// Forgets a ring at a node that is gone, unless there is a newer one at it.
    pub(super) fn forget(&self, gone: &Rc<Outgoing>) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(usize::from(gone.node.0)) {
            slot.ring.take_if(|ring| Rc::ptr_eq(ring, gone));
        }
    }

    pub(super) fn next_sequence(&self) -> u64 {
        self.sequence.set(self.sequence.get() + 1);
        self.sequence.get()
    }

    /// Wakes the coroutine that tells backups what is settled.
    pub(super) fn wake_sender(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
