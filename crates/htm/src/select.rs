//! The choice of an engine: requested, overridden or probed. It is made once, and its reason is
//! kept.

use std::{fmt, str::FromStr};

use crate::{
    ENGINE_VARIABLE, Emulated, EmulatedConfig, Engine, EngineError, EngineKind, Htm, NoHtm, Profile, Rtm, probe::Probe,
};

/// A requested engine.
///
/// # Example
///
/// ```
/// use drtm_htm::{EmulatedConfig, Profile, Request};
///
/// let request: Request = "emulated:l1-48k-12".parse()?;
/// assert_eq!(request, Request::Emulated(EmulatedConfig::new(Profile::L1_48K_12)));
/// # Ok::<(), drtm_htm::EngineError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request {
    /// RTM where it is usable, otherwise none. The emulation is never chosen.
    #[default]
    Auto,
    /// RTM, or an error.
    Rtm,
    /// The emulation.
    Emulated(EmulatedConfig),
    /// No htm transactions.
    None,
}

impl FromStr for Request {
    type Err = EngineError;

    fn from_str(name: &str) -> Result<Self, EngineError> {
        match name {
            "auto" => Ok(Self::Auto),
            "rtm" => Ok(Self::Rtm),
            "none" => Ok(Self::None),
            "emulated" => Ok(Self::Emulated(EmulatedConfig::default())),
            _ => name
                .strip_prefix("emulated:")
                .and_then(Profile::named)
                .map(|profile| Self::Emulated(EmulatedConfig::new(profile)))
                .ok_or_else(|| EngineError::UnknownEngine { name: name.to_owned() }),
        }
    }
}

/// The reason for the choice of an engine.
///
/// # Example
///
/// ```
/// use drtm_htm::{Reason, Request, select};
///
/// let engine = select(Request::Auto)?;
/// println!("{}: {}", engine.kind(), engine.reason());
/// # Ok::<(), drtm_htm::EngineError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The configuration requested it.
    Asked,
    /// The environment variable requested it.
    Overridden,
    /// The probe of the machine chose it, with this result.
    Probed(Probe),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("asked for by configuration"),
            Self::Overridden => write!(f, "asked for by {ENGINE_VARIABLE}"),
            Self::Probed(probe) => write!(f, "{probe}"),
        }
    }
}

/// An engine chosen at run time, to be [dispatched](Self::dispatch) once into code that is generic
/// over it.
///
/// # Example
///
/// ```
/// use drtm_htm::{Engine, EngineVisitor, Htm, Request, Word, select};
///
/// struct Open;
/// impl EngineVisitor for Open {
///     type Output = u64;
///     fn visit<E: Engine>(self, htm: Htm<E>) -> u64 {
///         // From here on the engine is a type.
///         htm.engine().fetch_add(&Word::new(41), 1) + 1
///     }
/// }
/// assert_eq!(select(Request::None)?.dispatch(Open), 42);
/// # Ok::<(), drtm_htm::EngineError>(())
/// ```
#[derive(Clone, Debug)]
pub struct AnyHtm {
    chosen: Chosen,
    reason: Reason,
}

#[derive(Clone, Debug)]
enum Chosen {
    Rtm(Htm<Rtm>),
    Emulated(Htm<Emulated>),
    None(Htm<NoHtm>),
}

/// Code that is generic over the engine, for [`AnyHtm::dispatch`].
///
/// # Example
///
/// See [`AnyHtm`].
pub trait EngineVisitor {
    /// The code's return type.
    type Output;

    /// Runs the code.
    fn visit<E: Engine>(self, htm: Htm<E>) -> Self::Output;
}

impl AnyHtm {
    /// Returns the kind of the chosen engine.
    #[must_use]
    pub fn kind(&self) -> EngineKind {
        match self.chosen {
            Chosen::Rtm(_) => EngineKind::Rtm,
            Chosen::Emulated(_) => EngineKind::Emulated,
            Chosen::None(_) => EngineKind::None,
        }
    }

    /// Returns the reason for the choice.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Runs `visitor` with the engine as a type.
    ///
    /// # Example
    ///
    /// See [`AnyHtm`].
    pub fn dispatch<V: EngineVisitor>(self, visitor: V) -> V::Output {
        match self.chosen {
            Chosen::Rtm(htm) => visitor.visit(htm),
            Chosen::Emulated(htm) => visitor.visit(htm),
            Chosen::None(htm) => visitor.visit(htm),
        }
    }
}

/// Chooses an engine: the one of the environment variable [`ENGINE_VARIABLE`] if it is set,
/// otherwise the requested one.
///
/// # Errors
///
/// When the engine of the request or of the variable is unknown, or not available on this machine.
///
/// # Example
///
/// ```
/// use drtm_htm::{Request, select};
///
/// // On a machine without RTM, and with the variable unset: "none (CPUID lists no RTM)".
/// let engine = select(Request::default())?;
/// println!("{} ({})", engine.kind(), engine.reason());
/// # Ok::<(), drtm_htm::EngineError>(())
/// ```
pub fn select(request: Request) -> Result<AnyHtm, EngineError> {
    select_with(std::env::var_os(ENGINE_VARIABLE), request)
}

fn select_with(variable: Option<std::ffi::OsString>, request: Request) -> Result<AnyHtm, EngineError> {
    match variable {
        None => choose(request, Reason::Asked),
        Some(name) => name
            .to_string_lossy()
            .parse()
            .and_then(|request| choose(request, Reason::Overridden))
            .map_err(|source| EngineError::Environment { source: Box::new(source) }),
    }
}

fn choose(request: Request, reason: Reason) -> Result<AnyHtm, EngineError> {
    let chosen = match request {
        Request::Rtm => Chosen::Rtm(Htm::new(Rtm::detect()?)),
        Request::Emulated(config) => Chosen::Emulated(Htm::new(Emulated::new(config)?)),
        Request::None => Chosen::None(Htm::new(NoHtm)),
        Request::Auto => {
            let chosen = match Rtm::detect() {
                Ok(rtm) => Chosen::Rtm(Htm::new(rtm)),
                Err(_) => Chosen::None(Htm::new(NoHtm)),
            };
            return Ok(AnyHtm { chosen, reason: Reason::Probed(*Probe::of_this_machine()) });
        }
    };
    Ok(AnyHtm { chosen, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_overrides_the_request() {
        let chosen = select_with(Some("emulated".into()), Request::None).expect("emulated");
        assert_eq!(chosen.kind(), EngineKind::Emulated);
        assert_eq!(chosen.reason(), Reason::Overridden);
    }

    #[test]
    fn a_bad_variable_is_an_error_that_names_it() {
        for name in ["", "emulated:", "emulated:l1-31k-7", "RTM"] {
            let error = select_with(Some(name.into()), Request::None).expect_err(name);
            assert!(error.to_string().contains(ENGINE_VARIABLE), "{error}");
        }
    }

    #[test]
    fn auto_follows_the_probe_and_says_so() {
        let probe = *Probe::of_this_machine();
        let chosen = select_with(None, Request::Auto).expect("auto always finds an engine");
        // The emulation is never chosen by `auto`.
        let expected = if probe.usable() { EngineKind::Rtm } else { EngineKind::None };
        assert_eq!((chosen.kind(), chosen.reason()), (expected, Reason::Probed(probe)));
    }

    #[test]
    fn forced_rtm_is_had_or_refused_with_the_findings() {
        let probe = *Probe::of_this_machine();
        match select_with(None, Request::Rtm) {
            Ok(chosen) => assert!(probe.usable() && chosen.kind() == EngineKind::Rtm),
            Err(error) => {
                assert!(!probe.usable());
                assert_eq!(error, EngineError::RtmUnavailable { probe });
            }
        }
    }
}
