//! Machines that run htm transactions, and their names on the command line.

use clap::{
    ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};
use drtm_htm::{Profile, Rtm};

use crate::Error;

/// The machine that runs htm transactions.
///
/// # Example
///
/// ```
/// use drtm_paper::htm::Machine;
/// use drtm_htm::{EngineError, Profile, Rtm};
///
/// let machine = match Rtm::detect() {
///     Ok(rtm) => Machine::Rtm(rtm),
///     Err(_none_here) => Machine::Emulated(Profile::L1_48K_12),
/// };
/// # let _ = machine;
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Machine {
    /// The emulation of a processor with this profile, its timer in virtual time.
    Emulated(Profile),
    /// This machine's processor.
    Rtm(Rtm),
}

/// An engine with htm transactions, named as on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineName {
    /// Software with the limits of the hardware; results are simulated
    #[default]
    Emulated,
    /// This machine's transactional memory; refused if there is none
    Rtm,
}

impl EngineName {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Emulated => "emulated",
            Self::Rtm => "rtm",
        }
    }

    /// Returns whether results are simulated.
    pub(crate) fn simulates(self) -> bool {
        self == Self::Emulated
    }

    /// Returns the machine, with `profile` if it is emulated.
    pub(crate) fn machine(self, profile: Profile) -> Result<Machine, Error> {
        Ok(match self {
            Self::Emulated => Machine::Emulated(profile),
            Self::Rtm => Machine::Rtm(Rtm::detect().map_err(drtm_drive::Error::no_rtm)?),
        })
    }
}

/// A profile with its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedProfile {
    pub(crate) name: &'static str,
    pub(crate) profile: Profile,
}

impl NamedProfile {
    /// The profile of the papers' processors.
    pub(crate) const OF_THE_PAPERS: Self = Self { name: Profile::NAMED[0].0, profile: Profile::NAMED[0].1 };

    pub(crate) fn parser() -> impl TypedValueParser<Value = Self> {
        let find = |given: String| {
            let named = Profile::NAMED.into_iter().find(|(name, _)| *name == given);
            named.map(|(name, profile)| Self { name, profile }).ok_or("no such profile")
        };
        PossibleValuesParser::new(Profile::NAMED.map(|(name, _)| name)).try_map(find)
    }
}

/// Labels results of real hardware.
pub(crate) const MEASURED: &str = "MEASURED on this machine's RTM";

/// Describes a profile in words.
pub(crate) fn describe(profile: &Profile) -> String {
    let Profile { sets, ways, read_lines, .. } = profile;
    format!("{sets} sets, {ways} ways, read tracker of {read_lines} lines")
}
