//! Which thread drives a node's sockets: the node's own thread, or an endpoint that polls anyway.
//!
//! ```text
//!            offer                adopt                 rest
//!   THREAD --------> OFFERED ------------> endpoint ------------> endpoint | RESTING
//!      ^                |                   |    ^                    |
//!      |    withdraw    |     take over,    |    |        rise        |
//!      +----------------+---- give back ----+    +--------------------+
//! ```
//!
//! The word says which thread looks for input; a mutex around what is driven is what keeps two
//! threads from driving at once. So the word decides about progress only:
//!
//! - Only the thread offers, withdraws and takes over. It sleeps on the sockets only while it
//!   leads. An endpoint that adopts rings it.
//! - Only the named endpoint rests, rises and gives back. It sleeps on the sockets only while it
//!   rests, and whatever ends that sleep makes it rise.
//! - An endpoint that leads and does not rest counts its turns. Where the count stands still
//!   between two looks of the thread, the thread takes over: the endpoint runs something long, or
//!   has been forgotten.
//! - The thread looks every so often while the endpoint does not rest. While it rests, the thread
//!   sleeps for as long as it likes, by the protocol of `alarm`: to rise is to publish, and rings.
//!
//! So input waits for a thread that is awake and comes back to it, for the system to wake one that
//! sleeps on it, or for the thread's next look but one. The model below checks that nothing waits
//! for ever.

use std::time::Duration;

use crate::sync::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    alarm::Alarm,
};

const THREAD: u32 = 0;
const OFFERED: u32 = 1;
/// Endpoint `n` is this plus `n`.
const ENDPOINT: u32 = 2;
const RESTING: u32 = 1 << 31;

/// What the thread finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leader {
    Thread,
    /// An endpoint that is awake.
    Endpoint,
    /// An endpoint that sleeps on the sockets.
    Resting,
}

/// The word, and what belongs to it.
#[derive(Debug)]
pub(crate) struct Lead {
    word: AtomicU32,
    /// Turns of endpoints that lead.
    turns: AtomicU32,
    /// Not zero while the thread looks after an endpoint that leads.
    watched: AtomicU32,
    /// What the thread sleeps on while an endpoint rests.
    thread: Alarm,
}

impl Default for Lead {
    fn default() -> Self {
        Self {
            word: AtomicU32::new(THREAD),
            turns: AtomicU32::new(0),
            watched: AtomicU32::new(0),
            thread: Alarm::default(),
        }
    }
}

fn named(endpoint: u16) -> u32 {
    ENDPOINT + u32::from(endpoint)
}

impl Lead {
    fn change(&self, from: u32, to: u32) -> bool {
        self.word.compare_exchange(from, to, SeqCst, Relaxed).is_ok()
    }

    /// Returns what the thread has to do with.
    pub(crate) fn leader(&self) -> Leader {
        match self.word.load(Acquire) {
            THREAD | OFFERED => Leader::Thread,
            word if word & RESTING != 0 => Leader::Resting,
            _ => Leader::Endpoint,
        }
    }

    /// The endpoint that sleeps on the sockets: to be read behind a fence by a thread that has
    /// published something for what drives them.
    pub(crate) fn resting(&self) -> Option<u16> {
        let word = self.word.load(Relaxed);
        (word & RESTING != 0).then(|| ((word & !RESTING) - ENDPOINT) as u16)
    }

    /// The thread: lets an endpoint take over, or not any more.
    pub(crate) fn offer(&self, offered: bool) {
        let (from, to) = if offered { (THREAD, OFFERED) } else { (OFFERED, THREAD) };
        if self.word.load(Relaxed) == from {
            self.change(from, to);
        }
    }

    /// The thread: takes over from an endpoint that has taken no turn since `turns`, unless it
    /// rests. Returns the turns so far.
    pub(crate) fn take_over(&self, turns: u32) -> u32 {
        let now = self.turns();
        let word = self.word.load(Relaxed);
        if now == turns && word >= ENDPOINT && word & RESTING == 0 {
            self.change(word, THREAD);
        }
        now
    }

    /// The thread: looks after whichever endpoint leads, or not any more.
    pub(crate) fn watch(&self, watched: bool) {
        self.watched.store(watched.into(), Release);
    }

    /// An endpoint: whether the thread would soon notice that it takes no turns. The thread may
    /// also sleep on the sockets still, where the endpoint has taken its ring off the event.
    pub(crate) fn is_watched(&self) -> bool {
        self.watched.load(Acquire) != 0
    }

    pub(crate) fn turns(&self) -> u32 {
        self.turns.load(Relaxed)
    }

    /// The thread: sleeps while an endpoint rests, until `at_most` has passed. Does not sleep if
    /// `quiet` returns false.
    pub(crate) fn sleep(&self, at_most: Option<Duration>, quiet: impl FnOnce() -> bool) {
        self.thread.announce();
        if self.leader() == Leader::Resting && quiet() {
            self.thread.sleep(at_most);
        }
        self.thread.retract();
    }

    /// Wakes the thread from [`sleep`](Self::sleep), after something was published for it.
    pub(crate) fn wake_thread(&self) {
        self.thread.ring();
    }

    /// An endpoint: takes over, if that is offered. Then it rings the thread, which may sleep on
    /// the sockets.
    #[inline(always)]
    pub(crate) fn adopt(&self, endpoint: u16) -> bool {
        self.word.load(Relaxed) == OFFERED && self.change(OFFERED, named(endpoint))
    }

    /// An endpoint that has led: begins a turn. Returns false if it leads no more.
    pub(crate) fn turn(&self, endpoint: u16) -> bool {
        let leads = self.word.load(Relaxed) == named(endpoint);
        if leads {
            self.count();
        }
        leads
    }

    /// Only an endpoint that leads counts, so a turn is lost at most where it is replaced.
    fn count(&self) {
        self.turns.store(self.turns.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// An endpoint: is about to sleep on the sockets. Its last look must follow. Returns false if
    /// it leads no more.
    pub(crate) fn rest(&self, endpoint: u16) -> bool {
        self.change(named(endpoint), named(endpoint) | RESTING)
    }

    /// An endpoint that rests: is awake.
    pub(crate) fn rise(&self, endpoint: u16) {
        // First, so that the thread gives it the time of a look.
        self.count();
        let risen = self.change(named(endpoint) | RESTING, named(endpoint));
        debug_assert!(risen, "nothing takes over from one that rests");
        self.wake_thread();
    }

    /// An endpoint that has led: leaves the sockets to the thread.
    pub(crate) fn give_back(&self, endpoint: u16) {
        if self.change(named(endpoint), THREAD) {
            self.wake_thread();
        }
    }
}

#[cfg(all(test, feature = "loom"))]
mod model {
    use std::sync::Arc;

    use loom::{
        sync::{Condvar, Mutex},
        thread,
    };

    use super::*;
    use crate::sync::explore;

    /// A socket to which one byte of input comes, and on which threads sleep as on the system.
    #[derive(Default)]
    struct Socket {
        /// What there is to be served, and what was.
        bytes: Mutex<(u32, u32)>,
        changed: Condvar,
    }

    impl Socket {
        fn arrive(&self) {
            self.bytes.lock().expect("no panic").0 += 1;
            self.changed.notify_all();
        }

        fn drive(&self) {
            let mut bytes = self.bytes.lock().expect("no panic");
            *bytes = (0, bytes.0 + bytes.1);
            self.changed.notify_all();
        }

        fn is_served(&self) -> bool {
            self.bytes.lock().expect("no panic").1 > 0
        }

        /// As epoll does: it reports levels. Also ends where `rung` is true, after a ring.
        fn sleep(&self, rung: impl Fn() -> bool) {
            let mut bytes = self.bytes.lock().expect("no panic");
            while *bytes == (0, 0) && !rung() {
                bytes = self.changed.wait(bytes).expect("no panic");
            }
        }

        fn ring(&self) {
            let _bytes = self.bytes.lock().expect("no panic");
            self.changed.notify_all();
        }
    }

    /// The node's thread, until the input is served.
    fn attend(lead: &Lead, socket: &Socket) {
        lead.offer(true);
        let mut seen = lead.turns();
        while !socket.is_served() {
            match lead.leader() {
                Leader::Thread => {
                    socket.drive();
                    if !socket.is_served() {
                        socket.sleep(|| lead.leader() != Leader::Thread);
                    }
                }
                Leader::Endpoint => {
                    thread::yield_now();
                    seen = lead.take_over(seen);
                }
                Leader::Resting => {
                    lead.sleep(None, || !socket.is_served());
                    seen = lead.turns();
                }
            }
        }
    }

    /// Runs an endpoint beside the thread, while input arrives. The end of the model is that the
    /// thread has seen it served: where it never is, loom reports a deadlock.
    fn with_endpoint(endpoint: impl Fn(&Lead, &Socket) + Sync + Send + 'static) {
        let endpoint = Arc::new(endpoint);
        explore(move || {
            let shared = Arc::new((Lead::default(), Socket::default()));
            let peers = Arc::clone(&shared);
            let peer = thread::spawn(move || peers.1.arrive());
            let (theirs, endpoint) = (Arc::clone(&shared), Arc::clone(&endpoint));
            let endpoint = thread::spawn(move || endpoint(&theirs.0, &theirs.1));
            attend(&shared.0, &shared.1);
            peer.join().expect("no panic");
            endpoint.join().expect("no panic");
            assert!(shared.1.is_served());
        });
    }

    fn adopt(lead: &Lead, socket: &Socket) -> bool {
        let leads = lead.adopt(0);
        if leads {
            socket.ring();
        }
        leads
    }

    #[test]
    fn an_endpoint_that_leads_and_is_forgotten_is_replaced() {
        with_endpoint(|lead, socket| {
            if adopt(lead, socket) && lead.turn(0) {
                socket.drive();
            }
        });
    }

    #[test]
    fn one_that_rests_is_woken_and_may_be_forgotten_then() {
        with_endpoint(|lead, socket| {
            if adopt(lead, socket) && lead.rest(0) {
                socket.sleep(|| false);
                // It does something long now.
                lead.rise(0);
            }
        });
    }

    #[test]
    fn one_that_gives_back_wakes_the_thread() {
        with_endpoint(|lead, socket| {
            if adopt(lead, socket) && lead.rest(0) {
                socket.sleep(|| false);
                lead.rise(0);
                lead.give_back(0);
            }
        });
    }

    /// A deliberate fault: an endpoint that rests is awake without a word.
    #[test]
    #[should_panic(expected = "deadlock")]
    fn rising_without_a_ring_is_found() {
        with_endpoint(|lead, socket| {
            if adopt(lead, socket) && lead.rest(0) {
                socket.sleep(|| false);
                lead.change(named(0) | RESTING, named(0));
            }
        });
    }
}
