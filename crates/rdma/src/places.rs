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

use crate::{FabricError, NodeId, alarm::Ring};

/// What stays in a place when its endpoint leaves.
#[derive(Debug, Default)]
pub(crate) struct Tenancy {
    /// Grows whenever an endpoint leaves the place, so that what is for an earlier one is not
    /// mistaken.
    pub(crate) life: AtomicU32,
    /// Whether mail ends the endpoint's sleep.
    receiving: AtomicBool,
}

/// What others know of an endpoint.
pub(crate) trait Place: Ring {
    fn tenancy(&self) -> &Tenancy;

    /// Wakes the endpoint, by a thread that has put a fence behind what it published. Tells whether
    /// it slept, or was about to.
    fn rouse(&self) -> bool;
}

/// A place for each endpoint, used again when one is dropped.
#[derive(Debug)]
pub(crate) struct Places<P> {
    /// Filled from the front, and never changed after: read without a lock.
    all: Box<[OnceLock<Arc<P>>]>,
    /// Places that are free, the next one to use last; and how many were ever used.
    vacancies: Mutex<(Vec<u16>, usize)>,
    /// Endpoints that sleep, or are about to, and are to be woken for mail.
    sleepers: AtomicU32,
}

impl<P: Place> Places<P> {
    /// So many places.
    pub(crate) fn new(most: usize) -> Self {
        let all = (0..most).map(|_| OnceLock::new()).collect();
        Self { all, vacancies: Mutex::default(), sleepers: AtomicU32::new(0) }
    }

    /// A place for an endpoint, which is made if no other has left one.
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

    /// The endpoint there moves out.
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

    /// Wakes an endpoint for mail that has just been delivered, if one sleeps.
    #[inline(always)]
    pub(crate) fn wake_for_mail(&self) {
        // Beside the fence of a sleeper's announcement: either it finds the mail, or it is found
        // here.
        fence(SeqCst);
        if self.sleepers.load(Relaxed) > 0 {
            self.wake_one();
        }
    }

    #[cold]
    fn wake_one(&self) {
        // One that is woken looks for mail before it sleeps again, so that no other needs to.
        let _ = self.iter().filter(|place| place.tenancy().receiving.load(Relaxed)).any(|place| place.rouse());
    }

    /// Wakes all endpoints, for what concerns all.
    pub(crate) fn wake_all(&self) {
        self.iter().for_each(|place| place.ring());
    }

    /// An endpoint is about to sleep until mail comes. Comes before its announcement.
    pub(crate) fn lie_down(&self, place: &P) {
        place.tenancy().receiving.store(true, Relaxed);
        self.sleepers.fetch_add(1, Relaxed);
    }

    /// Whether an endpoint sleeps, or is about to, that is to be woken for mail.
    #[cfg(all(feature = "verbs", not(feature = "model")))]
    pub(crate) fn anyone_sleeps(&self) -> bool {
        self.sleepers.load(SeqCst) > 0
    }

    pub(crate) fn get_up(&self, place: &P) {
        place.tenancy().receiving.store(false, Relaxed);
        self.sleepers.fetch_sub(1, Relaxed);
    }
}
