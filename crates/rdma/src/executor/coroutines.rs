//! A run: its coroutines, and which of them are ready.

use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use super::{
    Round,
    bell::Bells,
    idle::Idle,
    intake::{Intake, Kind},
};
use crate::{
    Cost, Endpoint, Port,
    endpoint::{
        port::Activity,
        tickets::{NOBODY, Task},
    },
};

struct Coroutine<F: ?Sized> {
    /// `None` once it has ended.
    future: Option<Pin<Box<F>>>,
    kind: Kind,
    waker: Waker,
}

/// Coroutines of one type, which may be a boxed future of any type, and the source of more.
pub(super) struct Coroutines<'e, P: Port, F: Future<Output = ()> + ?Sized, I: Intake<F>> {
    endpoint: &'e Endpoint<P>,
    coroutines: Vec<Coroutine<F>>,
    /// The places of ended coroutines, for reuse.
    vacant: Vec<usize>,
    bells: Bells,
    intake: I,
    /// Whether the endpoint knows of this run.
    begun: bool,
    /// The number of main coroutines that are not done.
    left: usize,
    /// The first panic of a coroutine.
    panic: Option<Box<dyn Any + Send>>,
    /// Whether a service has panicked, which ends the run.
    broken: bool,
    pub(super) patience: Option<Duration>,
}

impl<'e, P: Port, F: Future<Output = ()> + ?Sized, I: Intake<F>> Coroutines<'e, P, F, I> {
    pub(super) fn new(
        endpoint: &'e Endpoint<P>,
        futures: impl IntoIterator<Item = (Pin<Box<F>>, Kind)>,
        intake: I,
    ) -> Self {
        let mut this = Self {
            endpoint,
            coroutines: Vec::new(),
            vacant: Vec::new(),
            bells: Bells::new(endpoint.inner().port.ringer()),
            intake,
            begun: false,
            left: 0,
            panic: None,
            broken: false,
            patience: None,
        };
        for (future, kind) in futures {
            this.add(future, kind);
        }
        this
    }

    pub(super) fn intake(&self) -> &I {
        &self.intake
    }

    pub(super) fn count(&self) -> usize {
        self.coroutines.len() - self.vacant.len()
    }

    /// Adds a coroutine, which is ready.
    pub(super) fn add(&mut self, future: Pin<Box<F>>, kind: Kind) {
        self.left += usize::from(kind == Kind::Main);
        let task = match self.vacant.pop() {
            Some(task) => {
                let place = &mut self.coroutines[task];
                (place.future, place.kind) = (Some(future), kind);
                task
            }
            None => {
                let waker = self.bells.add();
                self.coroutines.push(Coroutine { future: Some(future), kind, waker });
                // So that the end of a coroutine does not allocate.
                self.vacant.reserve(self.coroutines.len());
                self.coroutines.len() - 1
            }
        };
        if self.begun {
            self.endpoint.inner().admit(task as Task);
        }
    }

    #[cold]
    fn begin(&mut self) {
        assert!(
            self.endpoint.current() == NOBODY,
            "a coroutine cannot run others on its own endpoint: spawn them beside it, or await them"
        );
        let begun = self.endpoint.inner().begin_run(self.coroutines.len());
        assert!(begun, "another executor has begun on this endpoint: spawn the coroutines there, or end it first");
        self.begun = true;
    }

    pub(super) fn run(mut self) {
        if !self.begun {
            self.begin();
        }
        let mut idle = Idle::default();
        while self.goes_on() {
            if self.round() {
                idle.end();
            } else if self.endpoint.inner().port.has_served() {
                idle.begin_again();
            } else if !P::VIRTUAL && !idle.is_due(|| self.endpoint.now(), P::YIELDS) {
                idle.spin(P::YIELDS);
            } else if !self.rest(&mut idle) {
                break;
            }
        }
        // The operations that they waited for continue to their end.
        self.coroutines.clear();
        self.endpoint.drain();
        if let Some(panic) = self.panic.take() {
            resume_unwind(panic);
        }
        assert!(
            self.left == 0 || self.broken,
            "{} coroutines wait, and nothing is under way that could wake one",
            self.left
        );
    }

    /// Returns whether there are, or may be, coroutines to finish.
    #[inline]
    fn goes_on(&mut self) -> bool {
        !self.broken && (self.left > 0 || self.more())
    }

    /// Takes the coroutines that arrived at the last moment, and then accepts no more.
    #[cold]
    fn more(&mut self) -> bool {
        self.take_in();
        self.left > 0 || !self.intake.shut()
    }

    /// Sleeps after an idle while, if that makes sense. Returns false if the sleep would last for
    /// ever, or too long.
    #[cold]
    fn rest(&mut self, idle: &mut Idle) -> bool {
        let now = self.endpoint.now();
        if idle.has_lasted(now, self.patience) || self.is_stuck() {
            return false;
        }
        let activity = self.endpoint.inner().activity;
        match activity {
            Activity::Busy if !P::VIRTUAL => idle.spin(true),
            activity => {
                let at_most = idle.nap_at_most(activity == Activity::Blocked, now, self.patience);
                self.nap(at_most);
                idle.napped(self.endpoint.now().since(now));
            }
        }
        true
    }

    fn nap(&mut self, at_most: Option<Duration>) {
        let mut inner = self.endpoint.inner();
        if !inner.completions.ready.any() && self.intake.is_empty() {
            inner.nap(at_most, || self.bells.are_quiet() && self.intake.is_quiet());
        }
    }

    pub(super) fn park(&mut self, at_most: Option<Duration>) {
        let activity = self.endpoint.inner().activity;
        if !self.begun || activity == Activity::Busy || !self.goes_on() {
            return std::thread::yield_now();
        }
        let blocked = (activity == Activity::Blocked).then_some(Idle::BLOCKED);
        self.nap([at_most, blocked].into_iter().flatten().min());
    }

    pub(super) fn one_round(&mut self) -> Round {
        if !self.begun {
            self.begin();
        }
        if !self.goes_on() {
            return Round::Done;
        }
        match self.round() {
            _ if self.left == 0 && !self.goes_on() => Round::Done,
            true => Round::Ran,
            false => Round::Idle,
        }
    }

    /// Polls for completions, and then each ready coroutine once. Returns whether there was one.
    #[inline]
    fn round(&mut self) -> bool {
        if !self.intake.is_empty() {
            self.take_in();
        }
        {
            let mut inner = self.endpoint.inner();
            inner.poll();
            self.bells.collect(|task| inner.completions.ready.insert(task as Task));
        }
        let mut ran = false;
        for index in 0..self.coroutines.len().div_ceil(64) {
            // Coroutines that become ready meanwhile run in the next round, so that none is
            // starved.
            let mut ready = self.endpoint.inner().completions.ready.take_word(index);
            while ready != 0 {
                let task = 64 * index + ready.trailing_zeros() as usize;
                ready &= ready - 1;
                ran |= self.resume(task);
            }
        }
        ran
    }

    #[cold]
    fn take_in(&mut self) {
        while let Some((future, kind)) = self.intake.next() {
            self.add(future, kind);
        }
    }

    #[inline]
    fn resume(&mut self, task: usize) -> bool {
        let Some(coroutine) = self.coroutines.get_mut(task) else { return false };
        let Some(future) = &mut coroutine.future else { return false };
        self.endpoint.charge(Cost::Switch);
        self.endpoint.enter(task as Task);
        let mut context = Context::from_waker(&coroutine.waker);
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
        self.endpoint.enter(NOBODY);
        if !matches!(polled, Ok(Poll::Pending)) {
            self.end(task, polled.err());
        }
        true
    }

    #[cold]
    fn end(&mut self, task: usize, panic: Option<Box<dyn Any + Send>>) {
        let Coroutine { future, kind, .. } = &mut self.coroutines[task];
        *future = None;
        match kind {
            Kind::Main => self.left -= 1,
            Kind::Service => self.broken |= panic.is_some(),
        }
        self.panic = self.panic.take().or(panic);
        self.vacant.push(task);
    }

    /// Returns whether the remaining coroutines can never become ready.
    #[cold]
    fn is_stuck(&self) -> bool {
        let inner = self.endpoint.inner();
        let mut left =
            self.coroutines.iter().enumerate().filter(|(_, it)| it.kind == Kind::Main && it.future.is_some());
        inner.completions.under_way == 0
            && inner.completions.calls == 0
            && inner.completions.timers.is_empty()
            && !self.intake.may_grow()
            && left.all(|(task, _)| {
                let waits = inner.receivers.contains(task as Task) || inner.completions.watchers.contains(task as Task);
                !waits && !self.bells.may_ring(task)
            })
            // This check is last: a waker rings before it is dropped.
            && self.bells.are_quiet()
            && self.intake.is_quiet()
    }
}

impl<P: Port, F: Future<Output = ()> + ?Sized, I: Intake<F>> Drop for Coroutines<'_, P, F, I> {
    fn drop(&mut self) {
        self.coroutines.clear();
        if self.begun {
            self.endpoint.inner().end_run();
        }
    }
}
