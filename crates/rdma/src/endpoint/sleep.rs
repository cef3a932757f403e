//! Time, as coroutines see it: the clock, sleeping, deadlines.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use crate::{Elapsed, Endpoint, Port, Time, tickets::NOBODY, timers::TimerId};

/// Turns of the other coroutines before a condition is looked at more seldom.
const TURNS: u32 = 256;

/// The longest that a condition is not looked at.
const LONGEST: Duration = Duration::from_millis(1);

impl<P: Port> Endpoint<P> {
    /// The time on the fabric's clock.
    #[must_use]
    pub fn now(&self) -> Time {
        self.inner().port.now()
    }

    /// Waits until a moment, while other coroutines go on. Where none has anything to do, the
    /// thread sleeps.
    #[must_use = "a sleep does nothing unless it is awaited"]
    pub fn sleep_until(&self, at: Time) -> Sleep<'_, P> {
        Sleep { endpoint: self, at, timer: None }
    }

    /// Waits so long, from the time of this call.
    #[must_use = "a sleep does nothing unless it is awaited"]
    pub fn sleep(&self, duration: Duration) -> Sleep<'_, P> {
        self.sleep_until(self.now() + duration)
    }

    /// Waits for a future until a deadline.
    ///
    /// # Errors
    ///
    /// [`Elapsed`], when the deadline passes first. The future is dropped then; what it has posted
    /// goes on.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    /// use drtm_htm::NoHtm;
    /// use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, Phase, block_on};
    ///
    /// let fabric = LocalFabric::<NoHtm>::new(2, LocalConfig::perfect());
    /// let endpoint = fabric.endpoint(NodeId(0))?;
    /// let deadline = endpoint.now() + Duration::from_millis(5);
    /// // No endpoint answers there.
    /// let call = endpoint.during(Phase::Other).call(NodeId(1), b"hello?");
    /// assert!(block_on(&endpoint, endpoint.before(deadline, call)).is_err());
    /// # Ok::<(), drtm_rdma::FabricError>(())
    /// ```
    pub async fn before<T>(&self, deadline: Time, future: impl Future<Output = T>) -> Result<T, Elapsed> {
        let (mut future, mut sleep) = (pin!(future), self.sleep_until(deadline));
        poll_fn(|context| {
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                return Poll::Ready(Ok(value));
            }
            Pin::new(&mut sleep).poll(context).map(|()| Err(Elapsed { deadline }))
        })
        .await
    }

    /// Waits until something holds that other threads or coroutines bring about: asks between their
    /// turns, and after a while more seldom, so that the thread can sleep. Better is a future that
    /// is woken.
    pub async fn until(&self, mut holds: impl FnMut() -> bool) {
        let mut turns = 0;
        let mut pause = Duration::from_micros(10);
        while !holds() {
            if turns < TURNS || self.current() == NOBODY {
                turns += 1;
                self.yield_now().await;
            } else {
                self.sleep(pause).await;
                pause = (pause * 2).min(LONGEST);
            }
        }
    }
}

/// A wait for a moment, from [`Endpoint::sleep_until`].
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, run};
///
/// let endpoint = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect()).endpoint(NodeId(0))?;
/// let start = endpoint.now();
/// // All at the same time.
/// run(&endpoint, 100, |_| endpoint.sleep_until(start + Duration::from_millis(3)));
/// assert!(endpoint.now() >= start + Duration::from_millis(3));
/// # Ok::<(), drtm_rdma::FabricError>(())
/// ```
pub struct Sleep<'e, P: Port> {
    endpoint: &'e Endpoint<P>,
    at: Time,
    /// Set at the first poll that finds it too early.
    timer: Option<TimerId>,
}

impl<P: Port> Future for Sleep<'_, P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let task = self.endpoint.current();
        {
            let mut inner = self.endpoint.inner();
            let timers = &mut inner.completions.timers;
            // A timer that is still set tells the time without a look at the clock.
            if let Some(timer) = self.timer {
                if task != NOBODY && timers.hand_over(timer, task) {
                    return Poll::Pending;
                }
                timers.take_out(timer);
                self.timer = None;
            }
            if inner.port.now() >= self.at {
                return Poll::Ready(());
            }
            if task != NOBODY {
                self.timer = Some(inner.completions.timers.set(self.at, task));
                return Poll::Pending;
            }
        }
        // Another executor, which only knows to poll again.
        self.endpoint.again(context);
        std::thread::yield_now();
        Poll::Pending
    }
}

impl<P: Port> Drop for Sleep<'_, P> {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            self.endpoint.inner().completions.timers.take_out(timer);
        }
    }
}

impl<P: Port> fmt::Debug for Sleep<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("at", &self.at).finish_non_exhaustive()
    }
}
