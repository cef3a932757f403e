//! The configuration of the emulated hardware: its profile, timer, and source of randomness.

use std::time::Duration;

use super::profile::Profile;
use crate::error::EngineError;

/// The timer interrupt, which aborts the transaction in which it occurs.
///
/// # Example
///
/// ```
/// use drtm_htm::{Cause, EmulatedConfig, Emulated, Htm, Outcome, Policy, Profile, Timer, Access};
///
/// let timer = Timer::Virtual { period: 1_000, access: 1 };
/// let config = EmulatedConfig::new(Profile::L1_32K_8).with_timer(timer);
/// let mut worker = Htm::new(Emulated::new(config)?).worker();
/// // Longer than the period: an interrupt occurs in it every time.
/// assert_eq!(worker.attempt(Policy::DBX, |tx| tx.spin(1_000)), Outcome::Fallback(Cause::System));
/// # Ok::<(), drtm_htm::EngineError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// No interrupts.
    Off,
    /// Interrupts every `period` of real time.
    Wall {
        /// The time between two interrupts.
        period: Duration,
    },
    /// Each worker has a clock of its own that only its transactions advance, so that a run is a
    /// function of its seed.
    Virtual {
        /// The ticks between two interrupts.
        period: u64,
        /// The ticks that a load, a store or a beginning takes. An iteration of
        /// [`Access::spin`](crate::Access::spin) takes one.
        access: u64,
    },
}

impl Timer {
    /// The period of the machine that DBX was measured on: 4 ms.
    pub const DBX_PERIOD: Duration = Duration::from_millis(4);
}

/// The configuration of an [`Emulated`](crate::Emulated) engine.
///
/// # Example
///
/// ```
/// use drtm_htm::{Emulated, EmulatedConfig, Profile};
///
/// // So small that most transactions overflow: good for testing software paths.
/// let tiny = EmulatedConfig::new(Profile::new(1, 2, 4)).with_seed(7).with_events_one_in(50);
/// let engine = Emulated::new(tiny)?;
/// assert_eq!(engine.config().seed, 7);
/// # Ok::<(), drtm_htm::EngineError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EmulatedConfig {
    /// The limits of a transaction.
    pub profile: Profile,
    /// The timer interrupt.
    pub timer: Timer,
    /// The number of lines that conflict detection can distinguish; a power of two. Lines further
    /// apart than this share a version, and may conflict falsely.
    pub tracked_lines: usize,
    /// The seed of all randomness: the workers' timer phases and the random events.
    pub seed: u64,
    /// One access in this many is hit by a system event, such as a page fault. Zero means never.
    pub events_one_in: u32,
}

impl EmulatedConfig {
    /// Makes a configuration with this profile and DBX's timer, in virtual ticks of a nanosecond.
    /// An access takes five ticks. There are no random events.
    ///
    /// # Example
    ///
    /// See [`EmulatedConfig`].
    #[must_use]
    pub const fn new(profile: Profile) -> Self {
        Self {
            profile,
            timer: Timer::Virtual { period: Timer::DBX_PERIOD.as_nanos() as u64, access: 5 },
            tracked_lines: 1 << 16,
            seed: 0,
            events_one_in: 0,
        }
    }

    /// Sets the timer.
    #[must_use]
    pub const fn with_timer(self, timer: Timer) -> Self {
        Self { timer, ..self }
    }

    /// Sets the number of lines that are distinguished.
    #[must_use]
    pub const fn with_tracked_lines(self, tracked_lines: usize) -> Self {
        Self { tracked_lines, ..self }
    }

    /// Sets the seed.
    ///
    /// # Example
    ///
    /// See [`EmulatedConfig`].
    #[must_use]
    pub const fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Sets the rate of system events to one in `events_one_in` accesses.
    ///
    /// # Example
    ///
    /// See [`EmulatedConfig`].
    #[must_use]
    pub const fn with_events_one_in(self, events_one_in: u32) -> Self {
        Self { events_one_in, ..self }
    }

    pub(super) fn check(&self) -> Result<(), EngineError> {
        let at_least_one = |what, is: u64| match is {
            0 => Err(EngineError::Emulation { what, must_be: "at least 1", is }),
            _ => Ok(()),
        };
        at_least_one("the number of sets", self.profile.sets as u64)?;
        at_least_one("the number of ways", self.profile.ways as u64)?;
        at_least_one("the read tracker's number of lines", self.profile.read_lines as u64)?;
        match self.timer {
            Timer::Off => {}
            Timer::Wall { period } => {
                at_least_one("the timer's period in nanoseconds", u64::try_from(period.as_nanos()).unwrap_or(u64::MAX))?
            }
            Timer::Virtual { period, .. } => at_least_one("the timer's period in ticks", period)?,
        }
        if !self.tracked_lines.is_power_of_two() || self.tracked_lines > MOST_TRACKED_LINES {
            return Err(EngineError::Emulation {
                what: "the number of tracked lines",
                must_be: "a power of two, at most 2^28",
                is: self.tracked_lines as u64,
            });
        }
        Ok(())
    }
}

/// 2 GiB of versions, which cover 16 GiB of memory.
const MOST_TRACKED_LINES: usize = 1 << 28;

impl Default for EmulatedConfig {
    fn default() -> Self {
        Self::new(Profile::L1_32K_8)
    }
}
