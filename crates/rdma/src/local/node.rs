//! A node: its registered memory, its mailboxes, and the one unit of its NIC that atomics go through.

use std::sync::{
    Arc, OnceLock,
    atomic::{
        AtomicBool, AtomicU32,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use crossbeam_utils::{Backoff, CachePadded};
use drtm_htm::{Engine, Word};
use parking_lot::Mutex;

use crate::{FabricError, NodeId, Region, RegionId, Remote, VerbError};

use super::{LocalConfig, mailbox::Mailbox};

/// Regions that a node can register.
const REGIONS: usize = 256;

#[derive(Debug)]
pub(super) struct Node<E: Engine> {
    /// Filled from the front, and never changed after: read without a lock.
    regions: Box<[OnceLock<Arc<Region<E>>>]>,
    registration: Mutex<()>,
    closed: AtomicBool,
    /// What was sent to the node.
    pub(super) mail: Mailbox,
    /// A place for each endpoint, used again when one is dropped.
    endpoints: Box<[OnceLock<Place>]>,
    /// Places that are free, the next one to use last; and how many were ever used.
    vacancies: Mutex<(Vec<u16>, usize)>,
    atomics: CachePadded<AtomicUnit>,
    mailbox: usize,
}

/// What others know of an endpoint.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) replies: Mailbox,
    /// Grows whenever an endpoint leaves the place, so that replies to an earlier one are not mistaken.
    pub(super) life: AtomicU32,
}

impl<E: Engine> Node<E> {
    pub(super) fn new(config: &LocalConfig) -> Self {
        Self {
            regions: (0..REGIONS).map(|_| OnceLock::new()).collect(),
            registration: Mutex::new(()),
            closed: AtomicBool::new(false),
            mail: Mailbox::new(config.mailbox),
            endpoints: (0..config.endpoints).map(|_| OnceLock::new()).collect(),
            vacancies: Mutex::default(),
            atomics: CachePadded::default(),
            mailbox: config.mailbox,
        }
    }

    pub(super) fn register(&self, node: NodeId, region: Arc<Region<E>>) -> Result<RegionId, FabricError> {
        let _one_at_a_time = self.registration.lock();
        let full = FabricError::TooManyRegions { node, most: REGIONS };
        let index = self.regions.iter().position(|place| place.get().is_none()).ok_or(full)?;
        self.regions[index].set(region).map_err(|_| full)?;
        Ok(RegionId(index as u16))
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Release);
    }

    #[inline(always)]
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    /// Words of this node, and the engine to access them by.
    #[inline]
    pub(super) fn words(&self, at: Remote, count: usize) -> Result<(&E, &[Word]), VerbError> {
        let region = self
            .regions
            .get(usize::from(at.region.0))
            .and_then(OnceLock::get)
            .ok_or(VerbError::UnknownRegion { node: at.node, region: at.region })?;
        let words = region.words(at.offset, count).map_err(|_| VerbError::OutOfBounds { at, words: count })?;
        Ok((region.engine(), words))
    }

    /// Moves an endpoint in.
    pub(super) fn move_in(&self, node: NodeId) -> Result<u16, FabricError> {
        if self.is_closed() {
            return Err(FabricError::Closed { node });
        }
        let (free, used) = &mut *self.vacancies.lock();
        if let Some(index) = free.pop() {
            return Ok(index);
        }
        let most = self.endpoints.len();
        let place = self.endpoints.get(*used).ok_or(FabricError::TooManyEndpoints { node, most })?;
        place.get_or_init(|| Place { replies: Mailbox::new(self.mailbox), life: AtomicU32::new(0) });
        *used += 1;
        Ok((*used - 1) as u16)
    }

    /// The endpoint there moves out. What is still in its mailbox stays for the next one to discard.
    pub(super) fn move_out(&self, index: u16) {
        if let Some(place) = self.place(index) {
            place.life.fetch_add(1, Release);
        }
        self.vacancies.lock().0.push(index);
    }

    pub(super) fn place(&self, index: u16) -> Option<&Place> {
        self.endpoints.get(usize::from(index))?.get()
    }

    pub(super) fn atomics(&self) -> &AtomicUnit {
        &self.atomics
    }
}

/// What makes a NIC's atomics atomic with each other: only one is carried out at a time.
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
