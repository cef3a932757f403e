//! Time for coroutines: the clock, sleeping, deadlines.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use crate::{Elapsed, Endpoint, Port, Time, endpoint::tickets::NOBODY, executor::timers::TimerId};

/// The number of turns of the other coroutines after which a condition is checked less often.
const TURNS: u32 = 256;

/// The longest time between checks of a condition.
const LONGEST: Duration = Duration::from_millis(1);

impl<P: Port> Endpoint<P> {
    /// Returns the time on the fabric's clock.
    #[must_use]
    pub fn now(&self) -> Time {
        self.inner().port.now()
    }

    /// Waits until a moment, while other coroutines run. If none is ready, the thread sleeps.
    #[must_use = "a sleep does nothing unless it is awaited"]
    pub fn sleep_until(&self, at: Time) -> Sleep<'_, P> {
        Sleep { endpoint: self, at, timer: None }
    }

    /// Waits for a duration, from the time of this call.
    #[must_use = "a sleep does nothing unless it is awaited"]
    pub fn sleep(&self, duration: Duration) -> Sleep<'_, P> {
        self.sleep_until(self.now() + duration)
    }

    /// Waits for a future until a deadline.
    ///
    /// # Errors
    ///
    /// [`Elapsed`] if the deadline passes first. The future is then dropped; the operations that it
    /// has posted continue.
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

    /// Waits until a condition holds that other threads or coroutines bring about. It checks
    /// between their turns, and after a while less often, so that the thread can sleep. A future
    /// that is woken is better.
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

/// A wait for a moment, returned by [`Endpoint::sleep_until`].
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
    /// Set by the first poll, if that is too early.
    timer: Option<TimerId>,
}

impl<P: Port> Future for Sleep<'_, P> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let task = self.endpoint.current();
        {
            let mut inner = self.endpoint.inner();
            let timers = &mut inner.completions.timers;
            // A timer that is still set says that it is too early, without reading the clock.
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
        // Another executor only knows how to poll again.
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
