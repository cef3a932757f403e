//! Answers: the outcome of a request, for threads and for any executor.
//!
//! Requests never block, so that nodes can make them from coroutines and in virtual time. Each
//! ends exactly once. If what would have answered is dropped first, the answer is an error that
//! was chosen when the request was made.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

use crate::error::Error;

#[derive(Debug)]
struct Shared<T> {
    outcome: Mutex<Outcome<T>>,
    arrived: Condvar,
}

#[derive(Debug)]
enum Outcome<T> {
    Awaited(Option<Waker>),
    Here(Result<T, Error>),
    Taken,
}

/// The answer to a request: a future, which a thread can also wait for or look at.
///
/// Dropping it withdraws no request.
///
/// # Example
///
/// ```
/// use drtm_membership::{Configuration, Fixed, Membership};
///
/// let membership = Fixed::new(Configuration::new(1, *b"two nodes"));
/// let mut answer = membership.watch(1);
/// assert!(answer.take().is_none(), "it never changes");
/// ```
#[must_use = "a request is made, and its outcome is in the answer"]
pub struct Answer<T>(Arc<Shared<T>>);

impl<T> Answer<T> {
    pub(crate) fn ready(outcome: Result<T, Error>) -> Self {
        Self::of(Outcome::Here(outcome))
    }

    /// Makes an answer and what answers. `dropped` is the outcome where nothing answers.
    pub(crate) fn awaited(dropped: Error) -> (Self, Promise<T>) {
        let answer = Self::of(Outcome::Awaited(None));
        let promise = Promise { shared: Arc::clone(&answer.0), dropped: Some(dropped) };
        (answer, promise)
    }

    fn of(outcome: Outcome<T>) -> Self {
        Self(Arc::new(Shared { outcome: Mutex::new(outcome), arrived: Condvar::new() }))
    }

    /// Takes the outcome, if it is here. `None` if it is not, or has been taken.
    pub fn take(&mut self) -> Option<Result<T, Error>> {
        self.0.outcome.lock().take()
    }

    /// Waits for the outcome, and blocks the thread.
    ///
    /// # Errors
    ///
    /// The request's error; [`Error::Closed`] if the outcome has been taken.
    pub fn wait(self) -> Result<T, Error> {
        let mut outcome = self.0.outcome.lock();
        while matches!(*outcome, Outcome::Awaited(_)) {
            self.0.arrived.wait(&mut outcome);
        }
        outcome.take().unwrap_or(Err(Error::Closed))
    }

    /// Waits for the outcome for some time, and blocks the thread. `None` if it is not here then,
    /// or has been taken.
    pub fn wait_for(&mut self, time: Duration) -> Option<Result<T, Error>> {
        let until = Instant::now() + time;
        let mut outcome = self.0.outcome.lock();
        while matches!(*outcome, Outcome::Awaited(_)) {
            if self.0.arrived.wait_until(&mut outcome, until).timed_out() {
                break;
            }
        }
        outcome.take()
    }
}

impl<T> Outcome<T> {
    fn take(&mut self) -> Option<Result<T, Error>> {
        if matches!(self, Self::Awaited(_)) {
            return None;
        }
        match std::mem::replace(self, Self::Taken) {
            Self::Here(result) => Some(result),
            Self::Awaited(_) | Self::Taken => None,
        }
    }
}

impl<T> Future for Answer<T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut outcome = self.0.outcome.lock();
        if let Outcome::Awaited(waker) = &mut *outcome {
            match waker {
                Some(waker) => waker.clone_from(context.waker()),
                None => *waker = Some(context.waker().clone()),
            }
            return Poll::Pending;
        }
        Poll::Ready(outcome.take().unwrap_or(Err(Error::Closed)))
    }
}

impl<T> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_here = matches!(*self.0.outcome.lock(), Outcome::Here(_));
        f.debug_struct("Answer").field("is_here", &is_here).finish_non_exhaustive()
    }
}

/// What answers a request, once.
#[derive(Debug)]
pub(crate) struct Promise<T> {
    shared: Arc<Shared<T>>,
    dropped: Option<Error>,
}

impl<T> Promise<T> {
    pub(crate) fn keep(mut self, outcome: Result<T, Error>) {
        self.dropped = None;
        self.settle(outcome);
    }

    /// Returns whether the answer has been dropped.
    pub(crate) fn is_unheard(&self) -> bool {
        Arc::strong_count(&self.shared) == 1
    }

    fn settle(&self, result: Result<T, Error>) {
        let before = std::mem::replace(&mut *self.shared.outcome.lock(), Outcome::Here(result));
        self.shared.arrived.notify_all();
        if let Outcome::Awaited(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if let Some(error) = self.dropped.take() {
            self.settle(Err(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
        task::Wake,
        thread,
    };

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn a_future_is_woken_once_and_a_thread_waits() {
        let (mut answer, promise) = Answer::awaited(Error::Closed);
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        assert!(Pin::new(&mut answer).poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(answer.wait_for(Duration::from_millis(1)), None);
        let waiting = thread::spawn(move || answer.wait());
        promise.keep(Ok(7));
        assert_eq!(waiting.join().expect("it waited"), Ok(7));
        assert_eq!(wakes.0.load(Relaxed), 1);
    }

    #[test]
    fn a_request_that_is_never_answered_ends_as_it_said() {
        let (mut answer, promise) = Answer::<u8>::awaited(Error::unknown("it is gone"));
        assert_eq!(answer.take(), None);
        drop(promise);
        assert_eq!(answer.take(), Some(Err(Error::unknown("it is gone"))));
        assert_eq!(answer.take(), None, "once");
    }

    #[test]
    fn a_dropped_answer_is_noticed() {
        let (answer, promise) = Answer::<u8>::awaited(Error::Closed);
        assert!(!promise.is_unheard());
        drop(answer);
        assert!(promise.is_unheard());
    }
}
