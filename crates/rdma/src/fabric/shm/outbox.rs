//! The rings that lead from an endpoint, in its node's own memory. They are created by the first
//! send, and reused by the next endpoint in the same place.

use std::collections::HashMap;

use drtm_htm::{Engine, NoHtm};

use crate::{
    Incarnation, NodeId, Offset,
    fabric::{die, lifetime::Life as _},
    sync::ring::{DATA, FrameHead, Producer},
};

use super::{
    Shared,
    control::{Announced, Control, Traffic},
    inbox::SIZE,
    node::Peer,
};

/// The destination of a ring.
type To = (NodeId, u16, Traffic);

/// The rings of a place.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    made: HashMap<To, (Incarnation, Offset)>,
}

/// A ring to one endpoint of one incarnation.
#[derive(Debug)]
pub(super) struct OutRing {
    at: Offset,
    words: usize,
    producer: Producer,
}

impl OutRing {
    /// Opens the ring from an endpoint of this node to one of a peer's. Returns `None` if there is
    /// no memory for one.
    #[cold]
    pub(super) fn open<E: Engine>(
        shared: &Shared<E>,
        from: u16,
        to: &Peer<E>,
        endpoint: u16,
        traffic: Traffic,
    ) -> Option<Self> {
        let mut outbox = shared.places[usize::from(from)].outbox.lock();
        let key = (to.node(), endpoint, traffic);
        let words = DATA + shared.config.ring_words;
        let control = shared.control();
        let made = outbox.made.get(&key).copied();
        if let Some((incarnation, at)) = made
            && incarnation == to.incarnation()
        {
            let producer = Producer::new(control.ring(at, words).ok()?);
            return Some(Self { at, words, producer });
        }
        // A ring to a dead incarnation has no consumer, and is reused for the next. A ring to an
        // incarnation that has left may still be read.
        let dead = |incarnation| shared.life_of(to.node(), incarnation).is_none_or(|life| life.has_died());
        let at = match made {
            Some((incarnation, at)) if dead(incarnation) => {
                control.ring(at, words).ok()?.iter().for_each(|word| NoHtm.store(word, 0));
                at
            }
            // Of zeros.
            _ => control.region().extend(8 * words as u64, 64).ok()?,
        };
        let ring = control.ring(at, words).ok()?;
        NoHtm.store(&ring[SIZE], shared.config.ring_words as u64);
        die::site("ring.made");
        outbox.made.insert(key, (to.incarnation(), at));
        let announced = Announced { incarnation: shared.home.incarnation(), at };
        to.control.announce(endpoint, traffic, (shared.node, from), announced);
        die::site("ring.announced");
        Some(Self { at, words, producer: Producer::new(ring) })
    }

    pub(super) fn push(&mut self, control: &Control, head: FrameHead, bytes: &[u8]) -> bool {
        match control.ring(self.at, self.words) {
            Ok(ring) => self.producer.push(ring, head, bytes),
            Err(error) => unreachable!("control memory has shrunk: {error}"),
        }
    }

    pub(super) fn is_drained(&self, control: &Control) -> bool {
        control.ring(self.at, self.words).is_ok_and(|ring| self.producer.is_drained(ring))
    }
}
