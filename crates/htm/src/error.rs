//! The errors of choosing an engine.

use std::fmt;

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
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineError {
    /// RTM was requested, and this machine has none that commits.
    RtmUnavailable {
        /// The result of the probe.
        probe: Probe,
    },
    /// The name of no engine.
    UnknownEngine {
        /// The name.
        name: String,
    },
    /// The environment variable names an engine that does not exist or is not available.
    Environment {
        /// What is wrong with it.
        source: Box<EngineError>,
    },
    /// The profile or configuration of the emulation is invalid.
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
    ForeignMemory,
    /// The environment requests the emulation where only the machine's own engine is available.
    OnlyForTests,
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RtmUnavailable { probe } => {
                write!(f, "this machine has no usable RTM ({probe}); ask for `auto`, `none`, or (for tests) `emulated`")
            }
            Self::UnknownEngine { name } => write!(
                f,
                "`{name}` is no engine: use auto, rtm, none, emulated, or emulated:PROFILE with a profile of {}",
                profiles()
            ),
            Self::Environment { source } => write!(f, "environment variable {}: {source}", crate::ENGINE_VARIABLE),
            Self::Emulation { what, must_be, is } => write!(f, "emulation: {what} must be {must_be}, and is {is}"),
            Self::ForeignMemory => f.write_str(
                "the emulated engine cannot protect memory that is shared between processes; use `auto` or `none` \
                 there",
            ),
            Self::OnlyForTests => {
                f.write_str("the emulated engine is for tests that name it: here use `auto`, `rtm` or `none`")
            }
        }
    }
}

impl std::error::Error for EngineError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Environment { source } => Some(source),
            _ => None,
        }
    }
}

fn profiles() -> String {
    crate::Profile::NAMED.map(|(name, _)| name).join(", ")
}
