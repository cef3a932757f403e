//! The places of a node's endpoints in its process, and which of them sleep until mail comes.

use std::sync::{
    Arc, OnceLock,
    atomic::{
        AtomicBool, AtomicU32,
        Ordering::{Relaxed, Release, SeqCst},
        fence,
    },
};

use parking_lot::Mutex;

use crate::{FabricError, NodeId, sync::alarm::Ring};

/// The part of a place that outlives its endpoint.
#[derive(Debug, Default)]
pub(crate) struct Tenancy {
    /// Increases whenever an endpoint leaves the place, so that mail for an earlier one is
    /// recognized.
    pub(crate) life: AtomicU32,
    /// Whether mail ends the endpoint's sleep.
    receiving: AtomicBool,
}

/// The part of an endpoint that others access.
pub(crate) trait Place: Ring {
    fn tenancy(&self) -> &Tenancy;

    /// Wakes the endpoint, by a thread that has executed a fence after publishing. Returns whether
    /// it slept, or was about to.
    fn rouse(&self) -> bool;
}

/// A place for each endpoint, reused after one is dropped.
#[derive(Debug)]
pub(crate) struct Places<P> {
    /// Filled from the front, and then never changed, so it is read without a lock.
    all: Box<[OnceLock<Arc<P>>]>,
    /// The free places, used from the end, and the number of places that were ever used.
    vacancies: Mutex<(Vec<u16>, usize)>,
    /// The number of endpoints that sleep, or are about to, and must be woken for mail.
    sleepers: AtomicU32,
}

impl<P: Place> Places<P> {
    /// Creates this many places.
    pub(crate) fn new(most: usize) -> Self {
        let all = (0..most).map(|_| OnceLock::new()).collect();
        Self { all, vacancies: Mutex::default(), sleepers: AtomicU32::new(0) }
    }

    /// Reserves a place for an endpoint, and creates it if none is free.
    pub(crate) fn move_in(
        &self,
        node: NodeId,
        make: impl FnOnce() -> Result<P, FabricError>,
    ) -> Result<(u16, Arc<P>), FabricError> {
        let full = FabricError::TooManyEndpoints { node, most: self.all.len() };
        let (free, used) = &mut *self.vacancies.lock();
        if let Some(index) = free.pop() {
            return Ok((index, Arc::clone(self.get(index).ok_or(full)?)));
        }
        let place = self.all.get(*used).ok_or(full)?;
        let made = Arc::new(make()?);
        let there = Arc::clone(place.get_or_init(|| made));
        *used += 1;
        Ok(((*used - 1) as u16, there))
    }

    /// Frees the place of an endpoint.
    pub(crate) fn move_out(&self, index: u16) {
        if let Some(place) = self.get(index) {
            place.tenancy().life.fetch_add(1, Release);
        }
        self.vacancies.lock().0.push(index);
    }

    pub(crate) fn get(&self, index: u16) -> Option<&Arc<P>> {
        self.all.get(usize::from(index))?.get()
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<P>> {
        self.all.iter().map_while(OnceLock::get)
    }

    /// Wakes a sleeping endpoint for mail that was just delivered, if there is one.
    #[inline(always)]
    pub(crate) fn wake_for_mail(&self) {
        // Pairs with the fence of a sleeper's announcement: either the sleeper finds the mail, or
        // this finds the sleeper.
        fence(SeqCst);
        if self.sleepers.load(Relaxed) > 0 {
            self.wake_one();
        }
    }

    #[cold]
    fn wake_one(&self) {
        // A woken endpoint checks for mail before it sleeps again, so that one is enough.
        let _ = self.iter().filter(|place| place.tenancy().receiving.load(Relaxed)).any(|place| place.rouse());
    }

    /// Wakes all endpoints, for changes that concern all.
    pub(crate) fn wake_all(&self) {
        self.iter().for_each(|place| place.ring());
    }

    /// Registers an endpoint that is about to sleep until mail comes. It must precede the
    /// announcement.
    pub(crate) fn lie_down(&self, place: &P) {
        place.tenancy().receiving.store(true, Relaxed);
        self.sleepers.fetch_add(1, Relaxed);
    }

    /// Returns whether an endpoint that must be woken for mail sleeps, or is about to.
    #[cfg(all(feature = "verbs", not(feature = "model")))]
    pub(crate) fn anyone_sleeps(&self) -> bool {
        self.sleepers.load(SeqCst) > 0
    }

    pub(crate) fn get_up(&self, place: &P) {
        place.tenancy().receiving.store(false, Relaxed);
        self.sleepers.fetch_sub(1, Relaxed);
    }
}
