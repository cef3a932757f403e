//! One incarnation of a node: its registered memory, its mailboxes, and the one unit of its NIC
//! that atomics go through.

use std::sync::{
    Arc, OnceLock,
    atomic::{
        AtomicBool, AtomicU8, AtomicU32,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
        fence,
    },
};

use crossbeam_utils::{Backoff, CachePadded};
use drtm_htm::{Engine, Word};
use parking_lot::Mutex;

use crate::{
    FabricError, Incarnation, NodeId, Presence, Region, RegionId, Remote, VerbError,
    alarm::{Alarm, Ring},
    mailbox::Mailbox,
};

use super::LocalConfig;

/// Regions that a node can register.
const REGIONS: usize = 256;

const HERE: u8 = 0;
const LEFT: u8 = 1;
const DEAD: u8 = 2;

#[derive(Debug)]
pub(super) struct Life<E: Engine> {
    pub(super) incarnation: Incarnation,
    /// Filled from the front, and never changed after: read without a lock.
    regions: Box<[OnceLock<Arc<Region<E>>>]>,
    registration: Mutex<()>,
    state: AtomicU8,
    /// What was sent to the node.
    pub(super) mail: Mailbox,
    /// Endpoints that sleep, or are about to, and are to be woken for mail.
    sleepers: AtomicU32,
    /// A place for each endpoint, used again when one is dropped.
    endpoints: Box<[OnceLock<Arc<Place>>]>,
    /// Places that are free, the next one to use last; and how many were ever used.
    vacancies: Mutex<(Vec<u16>, usize)>,
    atomics: CachePadded<AtomicUnit>,
    mailbox: usize,
}

/// What others know of an endpoint.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) replies: Mailbox,
    /// Grows whenever an endpoint leaves the place, so that replies to an earlier one are not
    /// mistaken.
    pub(super) life: AtomicU32,
    pub(super) alarm: Alarm,
    /// Whether mail ends the endpoint's sleep.
    pub(super) receiving: AtomicBool,
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
            regions: (0..REGIONS).map(|_| OnceLock::new()).collect(),
            registration: Mutex::new(()),
            state: AtomicU8::new(HERE),
            mail: Mailbox::new(config.mailbox),
            sleepers: AtomicU32::new(0),
            endpoints: (0..config.endpoints).map(|_| OnceLock::new()).collect(),
            vacancies: Mutex::default(),
            atomics: CachePadded::default(),
            mailbox: config.mailbox,
        }
    }

    pub(super) fn register(&self, node: NodeId, region: Arc<Region<E>>) -> Result<RegionId, FabricError> {
        let _one_at_a_time = self.registration.lock();
        if self.is_over() {
            return Err(FabricError::Closed { node });
        }
        let full = FabricError::TooManyRegions { node, most: REGIONS };
        let index = self.regions.iter().position(|place| place.get().is_none()).ok_or(full)?;
        self.regions[index].set(region).map_err(|_| full)?;
        Ok(RegionId(index as u16))
    }

    pub(super) fn region(&self, region: RegionId) -> Option<&Arc<Region<E>>> {
        self.regions.get(usize::from(region.0))?.get()
    }

    pub(super) fn leave(&self) {
        self.state.fetch_max(LEFT, SeqCst);
    }

    pub(super) fn die(&self) {
        self.state.store(DEAD, SeqCst);
    }

    /// Whether it has left or died.
    #[inline(always)]
    pub(super) fn is_over(&self) -> bool {
        self.state.load(Acquire) != HERE
    }

    /// Whether it has died, so that its own endpoints, too, do nothing more.
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
        if self.is_over() {
            return Err(FabricError::Closed { node });
        }
        let (free, used) = &mut *self.vacancies.lock();
        if let Some(index) = free.pop() {
            return Ok(index);
        }
        let most = self.endpoints.len();
        let place = self.endpoints.get(*used).ok_or(FabricError::TooManyEndpoints { node, most })?;
        place.get_or_init(|| {
            Arc::new(Place {
                replies: Mailbox::new(self.mailbox),
                life: AtomicU32::new(0),
                alarm: Alarm::default(),
                receiving: AtomicBool::new(false),
            })
        });
        *used += 1;
        Ok((*used - 1) as u16)
    }

    /// The endpoint there moves out. What is still in its mailbox stays for the next one to
    /// discard.
    pub(super) fn move_out(&self, index: u16) {
        if let Some(place) = self.place(index) {
            place.life.fetch_add(1, Release);
        }
        self.vacancies.lock().0.push(index);
    }

    pub(super) fn place(&self, index: u16) -> Option<&Arc<Place>> {
        self.endpoints.get(usize::from(index))?.get()
    }

    /// Wakes an endpoint for mail that has just been delivered, if one sleeps.
    #[inline(always)]
    pub(super) fn wake_for_mail(&self) {
        // Beside the fence of a sleeper's announcement: either it finds the mail, or it is found
        // here.
        fence(SeqCst);
        if self.sleepers.load(Relaxed) > 0 {
            self.wake_one();
        }
    }

    #[cold]
    fn wake_one(&self) {
        let places = self.endpoints.iter().map_while(OnceLock::get);
        // One that is woken looks for mail before it sleeps again, so that no other needs to.
        let _ = places.filter(|place| place.receiving.load(Relaxed)).any(|place| place.alarm.ring_again());
    }

    /// Wakes all endpoints, for what concerns all.
    pub(super) fn wake_all(&self) {
        for place in self.endpoints.iter().map_while(OnceLock::get) {
            place.alarm.ring();
        }
    }

    /// An endpoint is about to sleep until mail comes. Comes before its announcement.
    pub(super) fn lie_down(&self, place: &Place) {
        place.receiving.store(true, Relaxed);
        self.sleepers.fetch_add(1, Relaxed);
    }

    pub(super) fn get_up(&self, place: &Place) {
        place.receiving.store(false, Relaxed);
        self.sleepers.fetch_sub(1, Relaxed);
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
