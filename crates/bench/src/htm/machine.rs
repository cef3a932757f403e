//! What regions run on, and how the command line names it.

use clap::{
    ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};
use drtm_htm::{Profile, Rtm};

use crate::Error;

/// What regions run on.
///
/// # Example
///
/// ```
/// use drtm_bench::htm::Machine;
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
    /// This machine's own processor.
    Rtm(Rtm),
}

/// An engine that has regions, as options name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineName {
    /// Software with the limits of the hardware; results are simulated
    #[default]
    Emulated,
    /// This machine's own transactional memory; refused where there is none
    Rtm,
}

impl EngineName {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Emulated => "emulated",
            Self::Rtm => "rtm",
        }
    }

    /// Whether results are those of a model and not of a machine.
    pub(crate) fn simulates(self) -> bool {
        self == Self::Emulated
    }

    /// The machine, with `profile` if it is an emulated one.
    pub(crate) fn machine(self, profile: Profile) -> Result<Machine, Error> {
        Ok(match self {
            Self::Emulated => Machine::Emulated(profile),
            Self::Rtm => Machine::Rtm(Rtm::detect().map_err(Error::no_rtm)?),
        })
    }
}

/// A profile together with its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedProfile {
    pub(crate) name: &'static str,
    pub(crate) profile: Profile,
}

impl NamedProfile {
    /// That of the processors that the papers' authors had.
    pub(crate) const OF_THE_PAPERS: Self = Self { name: Profile::NAMED[0].0, profile: Profile::NAMED[0].1 };

    pub(crate) fn parser() -> impl TypedValueParser<Value = Self> {
        let find = |given: String| {
            let named = Profile::NAMED.into_iter().find(|(name, _)| *name == given);
            named.map(|(name, profile)| Self { name, profile }).ok_or("no such profile")
        };
        PossibleValuesParser::new(Profile::NAMED.map(|(name, _)| name)).try_map(find)
    }
}

/// What is said of results from real hardware, until somebody has seen some.
pub(crate) const MEASURED: &str = "MEASURED on this machine's RTM";

/// What a profile consists of, in words.
pub(crate) fn describe(profile: &Profile) -> String {
    let Profile { sets, ways, read_lines, .. } = profile;
    format!("{sets} sets, {ways} ways, read tracker of {read_lines} lines")
}
