//! The errors of choosing an engine.

use crate::probe::Probe;

/// An engine that is not available, or not in this configuration.
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
    /// RTM was requested, and this machine has none that commits.
    #[error("this machine has no usable RTM ({probe}); ask for `auto`, `none`, or (for tests) `emulated`")]
    RtmUnavailable {
        /// The result of the probe.
        probe: Probe,
    },
    /// The name of no engine.
    #[error(
        "`{name}` is no engine: use auto, rtm, none, emulated, or emulated:PROFILE with a profile of {}",
        profiles()
    )]
    UnknownEngine {
        /// The name.
        name: String,
    },
    /// The environment variable names an engine that does not exist or is not available.
    #[error("environment variable {}: {source}", crate::ENGINE_VARIABLE)]
    Environment {
        /// What is wrong with it.
        source: Box<EngineError>,
    },
    /// The profile or configuration of the emulation is invalid.
    #[error("emulation: {what} must be {must_be}, and is {is}")]
    Emulation {
        /// The setting.
        what: &'static str,
        /// The allowed values.
        must_be: &'static str,
        /// The given value.
        is: u64,
    },
    /// The emulation cannot protect memory that other processes map: it tracks only the accesses of
    /// this process.
    #[error("the emulated engine cannot protect memory that is shared between processes; use `auto` or `none` there")]
    ForeignMemory,
    /// The environment requests the emulation where only the machine's own engine is available.
    #[error("the emulated engine is for tests that name it: here use `auto`, `rtm` or `none`")]
    OnlyForTests,
}

fn profiles() -> String {
    crate::Profile::NAMED.map(|(name, _)| name).join(", ")
}
