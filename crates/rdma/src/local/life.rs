//! One incarnation of a node: its registered memory, its mailboxes, and the unit of its NIC that
//! serializes atomics.

use std::sync::{
    Arc,
    atomic::{
        AtomicBool, AtomicU8,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
    },
};

use crossbeam_utils::{Backoff, CachePadded};
use drtm_htm::{Engine, Word};

use crate::{
    FabricError, Incarnation, NodeId, Presence, Region, RegionId, Remote, VerbError,
    alarm::{Alarm, Ring},
    mailbox::Mailbox,
    places::{self, Places, Tenancy},
    registry::Registry,
};

use super::LocalConfig;

const HERE: u8 = 0;
const LEFT: u8 = 1;
const DEAD: u8 = 2;

#[derive(Debug)]
pub(super) struct Life<E: Engine> {
    pub(super) incarnation: Incarnation,
    regions: Registry<E>,
    state: AtomicU8,
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

impl<E: Engine> Life<E> {
    pub(super) fn new(incarnation: Incarnation, config: &LocalConfig) -> Self {
        Self {
            incarnation,
            regions: Registry::new(),
            state: AtomicU8::new(HERE),
            mail: Mailbox::new(config.mailbox),
            places: Places::new(config.endpoints),
            atomics: CachePadded::default(),
            mailbox: config.mailbox,
        }
    }

    pub(super) fn register(&self, node: NodeId, region: Arc<Region<E>>) -> Result<RegionId, FabricError> {
        self.regions.register(node, region, || self.is_over())
    }

    pub(super) fn region(&self, region: RegionId) -> Option<&Arc<Region<E>>> {
        self.regions.get(region)
    }

    pub(super) fn leave(&self) {
        self.state.fetch_max(LEFT, SeqCst);
    }

    pub(super) fn die(&self) {
        self.state.store(DEAD, SeqCst);
    }

    /// Returns whether the incarnation has left or died.
    #[inline(always)]
    pub(super) fn is_over(&self) -> bool {
        self.state.load(Acquire) != HERE
    }

    /// Returns whether it has died, so that its own endpoints stop too.
    #[inline(always)]
    pub(super) fn is_dead(&self) -> bool {
        self.state.load(Acquire) == DEAD
    }

    pub(super) fn presence(&self) -> Presence {
        match self.state.load(Acquire) {
            HERE => Presence::Here(self.incarnation),
            LEFT => Presence::Left(self.incarnation),
            _ => Presence::Died(self.incarnation),
        }
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

    pub(super) fn atomics(&self) -> &AtomicUnit {
        &self.atomics
    }
}

/// The unit that makes a NIC's atomics atomic with each other: it carries out one at a time.
#[derive(Debug, Default)]
pub(super) struct AtomicUnit {
    taken: AtomicBool,
}

impl AtomicUnit {
    pub(super) fn try_take(&self) -> bool {
        !self.taken.load(Relaxed) && !self.taken.swap(true, Acquire)
    }

    pub(super) fn take(&self) {
        let backoff = Backoff::new();
        while !self.try_take() {
            backoff.snooze();
        }
    }

    pub(super) fn release(&self) {
        self.taken.store(false, Release);
    }
}
