//! One incarnation of a node: its registered memory, its mailboxes, and the unit of its NIC that
//! serializes atomics.

use std::sync::{Arc, Weak};

use crossbeam_utils::CachePadded;
use drtm_htm::{Engine, Word};
use parking_lot::Mutex;

use crate::{
    FabricError, Incarnation, Loopback, NodeId, Region, RegionId, Remote, VerbError,
    fabric::{
        lifetime::{self, Life as _, Lifetime},
        mailbox::Mailbox,
        places::{self, Places, Tenancy},
    },
    region::registry::Registry,
    sync::alarm::{Alarm, Ring},
};

use super::LocalConfig;

#[derive(Debug)]
pub struct Life<E: Engine> {
    lifetime: Lifetime,
    regions: Registry<E>,
    /// The messages sent to the node.
    pub(super) mail: Mailbox,
    pub(super) places: Places<Place>,
    atomics: CachePadded<AtomicUnit>,
    mailbox: usize,
}

/// The part of an endpoint that others access.
#[derive(Debug)]
pub(super) struct Place {
    /// Replies that are left when an endpoint leaves stay, and the next endpoint discards them.
    pub(super) replies: Mailbox,
    pub(super) alarm: Alarm,
    pub(super) tenancy: Tenancy,
}

impl places::Place for Place {
    fn tenancy(&self) -> &Tenancy {
        &self.tenancy
    }

    fn rouse(&self) -> bool {
        self.alarm.ring_again()
    }
}

impl Ring for Place {
    fn ring(&self) {
        self.alarm.ring();
    }
}

impl<E: Engine> lifetime::Life for Life<E> {
    #[inline(always)]
    fn lifetime(&self) -> &Lifetime {
        &self.lifetime
    }
}

impl<E: Engine> Life<E> {
    pub(super) fn new(node: NodeId, incarnation: Incarnation, config: &LocalConfig) -> Self {
        Self {
            lifetime: Lifetime::new(node, incarnation),
            regions: Registry::new(),
            mail: Mailbox::new(config.mailbox),
            places: Places::new(config.endpoints),
            atomics: CachePadded::default(),
            mailbox: config.mailbox,
        }
    }

    pub(super) fn register(&self, node: NodeId, region: Arc<Region<E>>) -> Result<RegionId, FabricError> {
        self.regions.register(node, region, || self.is_over())
    }

    /// Returns words of this node, and the engine to access them with.
    #[inline]
    pub(super) fn words(&self, at: Remote, count: usize) -> Result<(&E, &[Word]), VerbError> {
        let unknown = VerbError::UnknownRegion { node: at.node, region: at.region };
        let region = self.regions.get(at.region).ok_or(unknown)?;
        let words = region.words(at.offset, count).map_err(|_| VerbError::OutOfBounds { at, words: count })?;
        Ok((region.engine(), words))
    }

    /// Reserves a place for a new endpoint.
    pub(super) fn move_in(&self, node: NodeId) -> Result<(u16, Arc<Place>), FabricError> {
        if self.is_over() {
            return Err(FabricError::Closed { node });
        }
        self.places.move_in(node, || {
            Ok(Place { replies: Mailbox::new(self.mailbox), alarm: Alarm::default(), tenancy: Tenancy::default() })
        })
    }

    /// Begins an atomic, which finds `old` and is going to write what `change` makes of that.
    /// `None` if another is between its halves.
    pub(super) fn begin_atomic(
        &self,
        at: Remote,
        old: impl FnOnce() -> u64,
        change: impl FnOnce(u64) -> Option<u64>,
    ) -> Option<u64> {
        let mut half = self.atomics.half.lock();
        if half.is_some() {
            return None;
        }
        let old = old();
        *half = Some(Half { at, new: change(old) });
        Some(old)
    }

    /// Completes the atomic that is between its halves, if one is. It may be another than the
    /// caller's, which has been completed then.
    pub(super) fn end_atomic(&self) {
        self.complete(&mut self.atomics.half.lock());
    }

    /// Carries out an atomic completely.
    fn at_once<T>(&self, atomic: impl FnOnce(&mut Option<Half>) -> T) -> T {
        let mut half = self.atomics.half.lock();
        self.complete(&mut half);
        atomic(&mut half)
    }

    /// Carries out an atomic of a peer completely.
    pub(super) fn atomic_at_once(&self, old: impl FnOnce() -> u64, store: impl FnOnce(u64)) -> u64 {
        self.at_once(|_| {
            let old = old();
            store(old);
            old
        })
    }

    fn complete(&self, half: &mut Option<Half>) {
        if let Some(Half { at, new: Some(new) }) = half.take()
            // The word existed when the atomic began, and regions do not shrink.
            && let Ok((engine, words)) = self.words(at, 1)
        {
            engine.store(&words[0], new);
        }
    }
}

/// The unit that makes a NIC's atomics atomic with each other: it carries out one at a time.
///
/// One that is between its halves is completed by whichever comes next: by its poster, or by a
/// [loopback](Loopback), which cannot wait for the poster.
#[derive(Debug, Default)]
struct AtomicUnit {
    half: Mutex<Option<Half>>,
}

/// An atomic that has read and not yet written.
#[derive(Debug)]
struct Half {
    at: Remote,
    /// What it writes, if it writes.
    new: Option<u64>,
}

/// A node's NIC, for its own processors.
#[derive(Debug)]
pub(super) struct LocalLoopback<E: Engine> {
    /// The node's regions have this.
    pub(super) life: Weak<Life<E>>,
}

impl<E: Engine> Loopback<E> for LocalLoopback<E> {
    fn compare_swap(&self, engine: &E, word: &Word, expected: u64, new: u64) -> u64 {
        let swap = |_: &mut Option<Half>| {
            let found = engine.load(word);
            if found == expected {
                engine.store(word, new);
            }
            found
        };
        match self.life.upgrade() {
            Some(life) => life.at_once(swap),
            // The fabric is gone, and its NICs with it.
            None => engine.compare_exchange(word, expected, new).unwrap_or_else(|found| found),
        }
    }
}
