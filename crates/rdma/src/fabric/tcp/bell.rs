//! How a thread sleeps until one of its sockets, or another thread, wakes it.
//!
//! The protocol is the one of `alarm`: announce, look once more, sleep. The sleep is on an epoll
//! instance that has the thread's sockets and an event; another thread that finds the sleeper
//! announced writes to the event. What a socket has is seen whenever it came, since epoll reports
//! levels.

use std::{
    fmt,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use rustix::{
    event::{
        EventfdFlags, PollFd, PollFlags,
        epoll::{self, CreateFlags, EventData, EventFlags},
        eventfd, poll,
    },
    io::{Errno, read, write},
    time::Timespec,
};

use crate::sync::alarm::{Alarm, Ring};

use super::TcpError;

/// The token of the event.
const RUNG: u64 = u64::MAX;

/// Sockets that are reported at a time.
const EVENTS: usize = 64;

/// What one thread sleeps on, and others ring.
pub(super) struct Bell {
    alarm: Alarm,
    event: OwnedFd,
    epoll: OwnedFd,
}

/// A socket that has something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) token: u64,
    /// It takes bytes again.
    pub(super) output: bool,
    /// The connection has ended.
    pub(super) broken: bool,
}

/// What a socket is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interest {
    pub(super) input: bool,
    pub(super) output: bool,
}

impl Interest {
    pub(super) const INPUT: Self = Self { input: true, output: false };

    fn flags(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, self.input);
        flags.set(EventFlags::OUT, self.output);
        flags
    }
}

impl Bell {
    pub(super) fn new() -> Result<Self, TcpError> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event = event.map_err(TcpError::system("make an event"))?;
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(TcpError::system("make an epoll instance"))?;
        epoll::add(&epoll, &event, EventData::new_u64(RUNG), EventFlags::IN)
            .map_err(TcpError::system("watch an event"))?;
        Ok(Self { alarm: Alarm::default(), event, epoll })
    }

    /// Wakes the sleeper, if it sleeps or is about to. Tells whether it did.
    pub(super) fn rouse(&self) -> bool {
        let asleep = self.alarm.call_off();
        if asleep {
            // It fails only when it has been rung too often.
            let _ = write(&self.event, &1_u64.to_ne_bytes());
        }
        asleep
    }

    /// Wakes the sleeper even where it was roused before: another thread may have taken that ring
    /// off the event.
    pub(super) fn insist(&self) {
        let _ = write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Watches a socket, until it is [forgotten](Self::forget) or its last descriptor is closed.
    pub(super) fn watch(&self, socket: impl AsFd, token: u64, interest: Interest) -> Result<(), Errno> {
        epoll::add(&self.epoll, socket, EventData::new_u64(token), interest.flags())
    }

    /// Lets what another bell's sleeper is woken by end this one's sleep.
    pub(super) fn watch_bell(&self, other: &Self, token: u64) -> Result<(), Errno> {
        self.watch(&other.epoll, token, Interest::INPUT)
    }

    pub(super) fn unwatch_bell(&self, other: &Self) {
        // It fails only for one that is not watched.
        let _ = epoll::delete(&self.epoll, &other.epoll);
    }

    /// Watches a socket for something else.
    pub(super) fn rewatch(&self, socket: impl AsFd, token: u64, interest: Interest) -> Result<(), Errno> {
        epoll::modify(&self.epoll, socket, EventData::new_u64(token), interest.flags())
    }

    /// Watches a socket no more.
    pub(super) fn forget(&self, socket: impl AsFd) {
        // It fails only for a socket that is not watched.
        let _ = epoll::delete(&self.epoll, socket);
    }

    /// Tells of the sockets that have something, without a wait.
    pub(super) fn look(&self, ready: &mut Vec<Ready>) {
        self.collect(ready, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    }

    fn collect(&self, ready: &mut Vec<Ready>, timeout: Option<&Timespec>) {
        ready.clear();
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        // It fails when a signal comes, and then there is nothing to tell.
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, timeout) else { return };
        for event in events {
            let token = event.data.u64();
            if token == RUNG {
                // Where there is nothing to read, there is nothing to forget.
                let _ = read(&self.event, &mut [0_u8; 8]);
            } else {
                let flags = event.flags;
                let broken = flags.intersects(EventFlags::HUP | EventFlags::ERR);
                ready.push(Ready { token, output: flags.contains(EventFlags::OUT), broken });
            }
        }
    }

    /// Sleeps until there is something, unless there is: `nothing` is asked when whatever comes
    /// later would end the sleep.
    pub(super) fn sleep(&self, ready: &mut Vec<Ready>, at_most: Option<Duration>, nothing: impl FnOnce() -> bool) {
        self.alarm.announce();
        if nothing() {
            match at_most {
                None => self.collect(ready, None),
                // Epoll counts milliseconds.
                Some(at_most) => {
                    let timeout = Timespec {
                        tv_sec: i64::try_from(at_most.as_secs()).unwrap_or(i64::MAX),
                        tv_nsec: at_most.subsec_nanos().into(),
                    };
                    // Whether it was the time or a socket is told by the look.
                    let _ = poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&timeout));
                    self.look(ready);
                }
            }
        } else {
            self.look(ready);
        }
        self.alarm.retract();
    }
}

impl Ring for Bell {
    fn ring(&self) {
        self.rouse();
    }
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bell(..)")
    }
}
