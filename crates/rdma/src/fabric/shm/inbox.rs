//! The rings that lead to an endpoint, of one kind of traffic.

use drtm_htm::{Engine, LINE_WORDS, NoHtm};

use crate::{
    NodeId, Offset,
    fabric::lifetime::Life as _,
    sync::ring::{Consumer, Corrupt, DATA, FrameHead},
};

use super::{
    ENDPOINTS, NODES, Shared,
    control::{Announced, Control, Traffic},
};

/// The offset of the ring's size, behind the producer's tail.
pub(super) const SIZE: usize = 1;

/// A ring that another endpoint writes.
#[derive(Debug)]
struct InRing {
    from: (NodeId, u16),
    announced: Announced,
    /// The producer's memory, which this keeps mapped.
    control: Control,
    at: Offset,
    words: usize,
    consumer: Consumer,
}

impl InRing {
    /// Opens a ring at the place that a peer has announced. `None` if it is invalid.
    fn open(from: (NodeId, u16), announced: Announced, control: &Control) -> Option<Self> {
        let head = control.ring(announced.at, DATA).ok()?;
        let size = usize::try_from(NoHtm.load(&head[SIZE]))
            .ok()
            .filter(|size| size.is_power_of_two() && *size >= LINE_WORDS)?;
        let words = DATA.checked_add(size)?;
        let consumer = Consumer::new(control.ring(announced.at, words).ok()?);
        Some(Self { from, announced, control: control.clone(), at: announced.at, words, consumer })
    }

    fn is_empty(&self) -> bool {
        match self.control.ring(self.at, self.words) {
            Ok(ring) => self.consumer.is_empty(ring),
            Err(_) => true,
        }
    }

    fn pop(&mut self, into: &mut Vec<u8>) -> Result<Option<FrameHead>, Corrupt> {
        let ring = self.control.ring(self.at, self.words).map_err(|_| Corrupt)?;
        self.consumer.pop(ring, into)
    }
}

/// The rings of one kind of traffic, and the number of announcements seen.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    rings: Vec<InRing>,
    seen: u64,
    /// The ring to check first, so that none is starved.
    next: usize,
}

impl Inbox {
    /// Returns whether there may be a frame.
    #[inline]
    pub(super) fn may_have<E: Engine>(&self, shared: &Shared<E>, endpoint: u16) -> bool {
        self.seen != shared.control().announcements(endpoint) || self.rings.iter().any(|ring| !ring.is_empty())
    }

    /// Takes the next frame, and returns the node it came from.
    #[inline]
    pub(super) fn take<E: Engine>(
        &mut self,
        shared: &Shared<E>,
        (endpoint, traffic): (u16, Traffic),
        into: &mut Vec<u8>,
    ) -> Option<(NodeId, Announced, FrameHead)> {
        let announcements = shared.control().announcements(endpoint);
        if self.seen != announcements {
            self.look(shared, endpoint, traffic);
            self.seen = announcements;
        }
        let mut index = self.next;
        for _ in 0..self.rings.len() {
            if index >= self.rings.len() {
                index = 0;
            }
            let ring = &mut self.rings[index];
            match ring.pop(into) {
                Ok(None) => index += 1,
                Ok(Some(head)) => {
                    let (from, announced) = (ring.from.0, ring.announced);
                    self.next = index + 1;
                    return Some((from, announced, head));
                }
                Err(Corrupt) => {
                    self.refuse(shared, index);
                    return None;
                }
            }
        }
        None
    }

    /// Disconnects a peer whose ring is corrupt: none of its writes can be trusted.
    #[cold]
    fn refuse<E: Engine>(&mut self, shared: &Shared<E>, index: usize) {
        let ring = self.rings.swap_remove(index);
        if let Some(life) = shared.life_of(ring.from.0, ring.announced.incarnation) {
            shared.part(&life, false);
        }
    }

    /// Opens the rings that were announced.
    #[cold]
    fn look<E: Engine>(&mut self, shared: &Shared<E>, endpoint: u16, traffic: Traffic) {
        // Rings of dead nodes are first read to their end.
        self.rings.retain(|ring| {
            let life = shared.life_of(ring.from.0, ring.announced.incarnation);
            life.is_some_and(|life| !life.is_over()) || !ring.is_empty()
        });
        for node in 0..NODES {
            if shared.life(NodeId(node as u16)).is_none() {
                continue;
            }
            for from in 0..ENDPOINTS {
                let Some(announced) = shared.control().announced(endpoint, traffic, node, from) else { continue };
                let from = (NodeId(node as u16), from as u16);
                if self.rings.iter().any(|ring| ring.from == from && ring.announced == announced) {
                    continue;
                }
                let producer = shared.life_of(from.0, announced.incarnation);
                let ring = producer.and_then(|life| InRing::open(from, announced, &life.control));
                self.rings.extend(ring);
            }
        }
    }
}
