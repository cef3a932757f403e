//! The threads that drive a node's sockets: its own, and an endpoint that polls anyway.
//!
//! An endpoint that spins for messages, or sleeps until one comes, would otherwise be handed each
//! by another thread: one more switch of threads, and one more thread that spins. So the node's
//! thread offers the lead (`lead`) where members have had something, an endpoint that waits for
//! messages takes it, and keeps it. A verb does not wait for long where that endpoint's coroutines
//! take their time: the thread looks every [`WATCH`] whether the endpoint still takes turns, and
//! takes over where it does not.
//!
//! An endpoint serves members only. Where a stranger comes, or a node is to be dialed, it gives the
//! lead back: handshakes take long, and what strangers take is the thread's to divide (`shares`).

use std::{
    sync::{
        Arc,
        atomic::{
            Ordering::{Relaxed, SeqCst},
            fence,
        },
    },
    time::Duration,
};

use drtm_htm::Engine;
use parking_lot::Mutex;

use crate::{executor::idle::Idle, lead::Leader, time};

use super::{service::Service, shared::Shared};

/// What is driven, until the node leaves.
pub(super) type Work<E> = Arc<Mutex<Option<Service<E>>>>;

/// From one look of the thread at an endpoint that leads to the next. A verb waits twice as long at
/// the most.
const WATCH: Duration = Duration::from_micros(200);

/// Looks at an endpoint that rests before the thread sleeps for longer.
const LOOKS: u32 = 4;

/// The node's thread.
pub(super) fn run<E: Engine>(work: &Mutex<Option<Service<E>>>, shared: &Shared<E>) {
    if let Some(service) = &mut *work.lock() {
        service.dial_all();
    }
    while !shared.leaving.load(SeqCst) {
        if shared.lead.leader() == Leader::Thread {
            if let Some(service) = &mut *work.lock() {
                service.lead();
            }
        } else {
            watch(work, shared);
        }
    }
    let service = work.lock().take();
    if let Some(mut service) = service {
        service.say_goodbye();
    }
}

/// Looks after an endpoint that leads, and does what is to be done by the clock.
fn watch<E: Engine>(work: &Mutex<Option<Service<E>>>, shared: &Shared<E>) {
    let (mut turns, mut rests) = (shared.lead.turns(), 0);
    while !shared.leaving.load(SeqCst) {
        match shared.lead.leader() {
            Leader::Thread => return,
            Leader::Resting => rests += 1,
            Leader::Endpoint => rests = 0,
        }
        if rests > LOOKS {
            let next = work.lock().as_mut().and_then(Service::keep_time);
            shared.lead.sleep(next, || !shared.leaving.load(SeqCst));
        } else {
            // Where the endpoint has it at the moment, it is the next time.
            if let Some(mut work) = work.try_lock() {
                work.as_mut().and_then(Service::keep_time);
            }
            std::thread::sleep(WATCH);
        }
        turns = shared.lead.take_over(turns);
    }
}

impl<E: Engine> Service<E> {
    /// Drives the sockets until an endpoint has taken over.
    fn lead(&mut self) {
        self.begin(false, false);
        let mut idle = Idle::default();
        while !self.shared.leaving.load(SeqCst) && self.shared.lead.leader() == Leader::Thread {
            if self.round() {
                idle.end();
                self.offer();
            } else if !idle.is_due(time::of_this_machine, false) {
                idle.spin(false);
            } else {
                let before = time::of_this_machine();
                self.sleep();
                self.offer();
                idle.napped(time::of_this_machine().since(before));
            }
        }
    }

    /// Lets an endpoint take over that polls anyway, unless there are strangers.
    fn offer(&self) {
        if self.shares.had_members() && self.shared.attendant.is_none() {
            self.shared.lead.offer(self.strangers.is_empty());
        }
    }

    fn sleep(&mut self) {
        let tick = self.next_tick();
        let at_most = [tick, self.tend()].into_iter().flatten().min();
        let mut ready = std::mem::take(&mut self.ready);
        self.lie_down();
        let shared = &self.shared;
        shared.service.sleep(&mut ready, at_most, || shared.is_quiet() && shared.lead.leader() == Leader::Thread);
        shared.starved.store(false, Relaxed);
        self.shares.begin_round(&self.shared.totals);
        self.handle(&ready);
        self.ready = ready;
        self.look_after();
    }

    /// Prepares for a sleep on the sockets. Returns false if there is still something to do.
    pub(super) fn lie_down(&mut self) -> bool {
        self.hot.clear();
        self.shared.starved.store(!self.stalled.is_empty(), Relaxed);
        fence(SeqCst);
        self.unfinished.is_empty()
    }

    /// The thread, while an endpoint leads: does what is due. Returns after how long there is more.
    fn keep_time(&mut self) -> Option<Duration> {
        self.begin(false, false);
        self.shares.begin_round(&self.shared.totals);
        self.look_after();
        self.next_tick()
    }

    /// A turn of an endpoint that leads. Tells whether there was something.
    pub(super) fn attend(&mut self, receiving: bool) -> bool {
        self.begin(true, receiving);
        self.round()
    }

    fn begin(&mut self, is_guest: bool, receiving: bool) {
        (self.is_guest, self.needs_thread) = (is_guest, false);
        self.hand.begin(receiving);
    }
}
