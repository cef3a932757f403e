//! What can be wrong with a choice of engine.

use crate::probe::Probe;

/// An engine that cannot be had, or not so.
///
/// # Example
///
/// ```
/// use drtm_htm::{EngineError, Request};
///
/// let error = "warp-drive".parse::<Request>().unwrap_err();
/// assert!(matches!(error, EngineError::UnknownEngine { .. }));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// RTM was asked for, and this machine has none that commits.
    #[error("this machine has no usable RTM ({probe}); ask for `auto`, `none`, or (for tests) `emulated`")]
    RtmUnavailable {
        /// What was found.
        probe: Probe,
    },
    /// A name that is no engine's.
    #[error(
        "`{name}` is no engine: use auto, rtm, none, emulated, or emulated:PROFILE with a profile of {}",
        profiles()
    )]
    UnknownEngine {
        /// The name.
        name: String,
    },
    /// The environment variable names no engine or one that cannot be had.
    #[error("environment variable {}: {source}", crate::ENGINE_VARIABLE)]
    Environment {
        /// What is wrong with it.
        source: Box<EngineError>,
    },
    /// A profile or configuration of the emulation that describes no machine.
    #[error("emulation: {what} must be {must_be}, and is {is}")]
    Emulation {
        /// Which setting.
        what: &'static str,
        /// What is allowed.
        must_be: &'static str,
        /// What was given.
        is: u64,
    },
    /// The emulation was to protect memory that other processes map; it tracks the accesses of this
    /// process only.
    #[error("the emulated engine cannot protect memory that is shared between processes; use `auto` or `none` there")]
    ForeignMemory,
    /// The environment asks for the emulation where only the machine's own engine can be had.
    #[error("the emulated engine is for tests that name it: here use `auto`, `rtm` or `none`")]
    OnlyForTests,
}

fn profiles() -> String {
    crate::Profile::NAMED.map(|(name, _)| name).join(", ")
}
