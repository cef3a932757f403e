//! Time on the fabric's clock: the machine's, or a simulation's.

use std::{fmt, ops::Add, time::Duration};

/// A moment on a fabric's clock, in nanoseconds. It never goes backwards.
///
/// On the fabrics of one machine all processes share the clock, so moments can be exchanged between
/// them. Machines do not share it.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, block_on};
///
/// let endpoint = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect()).endpoint(NodeId(0))?;
/// let start = endpoint.now();
/// block_on(&endpoint, endpoint.sleep_until(start + Duration::from_millis(2)));
/// assert!(endpoint.now().since(start) >= Duration::from_millis(2));
/// # Ok::<(), drtm_rdma::FabricError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// Returns the moment this many nanoseconds after the clock's beginning.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the clock's beginning.
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Returns the time since `earlier`. Zero if that is later.
    ///
    /// # Example
    ///
    /// See [`Time`].
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// Returns the moment this much later, or the last possible one.
    fn add(self, after: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09} s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// Returns the time of the machine's monotonic clock, which all its processes share.
#[inline]
pub(crate) fn of_this_machine() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // The clock begins at zero and does not reach the end of 64 bits.
    Time(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// A deadline that has passed.
///
/// # Example
///
/// See [`Endpoint::before`](crate::Endpoint::before).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the deadline passed at {deadline}; what was waited for may still happen")]
pub struct Elapsed {
    /// The deadline.
    pub deadline: Time,
}
