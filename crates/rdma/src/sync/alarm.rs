//! Sleeping and waking: one word for each endpoint.
//!
//! ```text
//!   sleeper                               waker
//!   word = ASLEEP                         publishes (a message, a flag, a rung bell)
//!   fence                                 fence
//!   last look at what is published        word = ASLEEP?  then  word = AWAKE, and wake
//!   sleeps while word = ASLEEP
//!   word = AWAKE
//! ```
//!
//! Either the waker's fence comes first, and then the sleeper's last check finds what was
//! published; or the sleeper's comes first, and then the waker finds it asleep. A waker that does
//! not find it asleep has only executed a fence and a load, and never a system call. The model
//! below checks this; without either fence it fails.

use std::{fmt, sync::Arc, time::Duration};

use crate::sync::{
    Futex,
    Ordering::{Relaxed, SeqCst},
    fence,
};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// One endpoint's word.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Alarm(Futex);

impl Alarm {
    /// Announces that the owner is about to sleep. The owner's last check must follow.
    pub(crate) fn announce(&self) {
        self.0.word().store(ASLEEP, Relaxed);
        fence(SeqCst);
    }

    /// Sleeps until it is rung, or until `at_most` has passed. May return earlier.
    pub(crate) fn sleep(&self, at_most: Option<Duration>) {
        self.0.sleep(ASLEEP, at_most);
    }

    /// Withdraws the announcement: the owner is awake.
    pub(crate) fn retract(&self) {
        self.0.word().store(AWAKE, Relaxed);
    }

    /// Wakes the owner, if it sleeps or is about to, after something was published for it. Returns
    /// whether it did.
    #[inline]
    pub(crate) fn ring(&self) -> bool {
        fence(SeqCst);
        self.ring_again()
    }

    /// Like [`ring`](Self::ring), for an owner that sleeps on something other than this word: if
    /// this returns true, the caller wakes it.
    #[cfg(not(feature = "model"))]
    #[inline]
    #[cfg_attr(not(feature = "tcp"), allow(dead_code, reason = "the fabric over TCP uses it"))]
    pub(crate) fn call_off(&self) -> bool {
        fence(SeqCst);
        self.0.word().load(Relaxed) == ASLEEP && self.claim()
    }

    /// Like [`ring`](Self::ring), for a thread that has executed a fence after publishing.
    #[inline]
    pub(crate) fn ring_again(&self) -> bool {
        self.0.word().load(Relaxed) == ASLEEP && self.wake()
    }

    /// Claims the wake-up: of several wakers, one makes the system call.
    fn claim(&self) -> bool {
        self.0.word().swap(AWAKE, SeqCst) == ASLEEP
    }

    #[cold]
    fn wake(&self) -> bool {
        let asleep = self.claim();
        if asleep {
            self.0.wake();
        }
        asleep
    }
}

/// Rings an endpoint's alarm from other threads. It is on no hot path, hence behind a pointer.
#[derive(Clone)]
pub struct Ringer(Arc<dyn Ring>);

/// A type that contains an alarm.
pub(crate) trait Ring: Send + Sync {
    fn ring(&self);
}

impl Ringer {
    pub(crate) fn new(alarm: Arc<dyn Ring>) -> Self {
        Self(alarm)
    }

    pub(crate) fn ring(&self) {
        self.0.ring();
    }
}

impl fmt::Debug for Ringer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ringer(..)")
    }
}

#[cfg(all(test, feature = "loom"))]
mod model {
    use std::sync::Arc;

    use loom::{sync::atomic::AtomicBool, thread};

    use super::*;
    use crate::sync::explore;

    /// Sleeps until all that `published` stands for is there. A lost wake-up is a deadlock, which
    /// loom reports.
    fn sleep_until(alarm: &Alarm, published: impl Fn() -> bool) {
        while !published() {
            alarm.announce();
            if !published() {
                alarm.sleep(None);
            }
            alarm.retract();
        }
    }

    #[test]
    fn no_wake_up_is_lost() {
        explore(|| {
            let shared = Arc::new((Alarm::default(), AtomicBool::new(false)));
            let theirs = Arc::clone(&shared);
            let waker = thread::spawn(move || {
                theirs.1.store(true, Relaxed);
                theirs.0.ring();
            });
            sleep_until(&shared.0, || shared.1.load(Relaxed));
            waker.join().expect("no panic");
        });
    }

    #[test]
    fn two_wakers_need_not_know_of_each_other() {
        explore(|| {
            let shared = Arc::new((Alarm::default(), AtomicBool::new(false), AtomicBool::new(false)));
            let wakers = [0, 1].map(|which| {
                let theirs = Arc::clone(&shared);
                thread::spawn(move || {
                    if which == 0 { &theirs.1 } else { &theirs.2 }.store(true, Relaxed);
                    theirs.0.ring();
                })
            });
            sleep_until(&shared.0, || shared.1.load(Relaxed) && shared.2.load(Relaxed));
            for waker in wakers {
                waker.join().expect("no panic");
            }
        });
    }

    /// A waker that first checks whether a sleeper waits for something, such as room in a mailbox.
    /// The flag is set before the announcement, and the waker's fence comes before it reads both.
    fn wakes_where_something_waits(fenced: bool) {
        explore(move || {
            let shared = Arc::new((Alarm::default(), AtomicBool::new(false), AtomicBool::new(false)));
            let theirs = Arc::clone(&shared);
            let waker = thread::spawn(move || {
                let (alarm, room, starved) = &*theirs;
                room.store(true, Relaxed);
                if fenced {
                    fence(SeqCst);
                }
                if starved.load(Relaxed) {
                    alarm.ring_again();
                }
            });
            let (alarm, room, starved) = &*shared;
            while !room.load(Relaxed) {
                starved.store(true, Relaxed);
                alarm.announce();
                if !room.load(Relaxed) {
                    alarm.sleep(None);
                }
                alarm.retract();
                starved.store(false, Relaxed);
            }
            waker.join().expect("no panic");
        });
    }

    #[test]
    fn a_waker_may_look_first_whether_anything_waits() {
        wakes_where_something_waits(true);
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn a_look_without_a_fence_is_found() {
        wakes_where_something_waits(false);
    }

    /// A deliberate fault: a waker without its fence.
    #[test]
    #[should_panic(expected = "deadlock")]
    fn a_waker_without_its_fence_is_found() {
        explore(|| {
            let shared = Arc::new((Alarm::default(), AtomicBool::new(false)));
            let theirs = Arc::clone(&shared);
            let waker = thread::spawn(move || {
                theirs.1.store(true, Relaxed);
                theirs.0.ring_again();
            });
            sleep_until(&shared.0, || shared.1.load(Relaxed));
            waker.join().expect("no panic");
        });
    }
}
