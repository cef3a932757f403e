//! What transactions run on, and how the command line names it.

use clap::{
    ValueEnum,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use drtm_htm::{Emulated, Engine, Native, Rtm, Traced};
use drtm_txn::{Config, DefaultConfig};
use serde::Serialize;

use crate::Error;

/// What transactions run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EngineName {
    /// RTM where this machine has it, and otherwise none
    #[default]
    Auto,
    /// No hardware transactions, whatever this machine has
    None,
    /// Software with the limits of the hardware; speeds mean nothing
    Emulated,
    /// This machine's own transactional memory; refused where there is none
    Rtm,
}

/// The emulation of transactional memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Simulated;

impl Config for Simulated {
    type Engine = Emulated;
    const REGIONS_FROM: usize = 1;
}

/// Record locks, with all accesses to the store traced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched;

impl Config for Watched {
    type Engine = Traced;
}

/// Work on a database of any configuration.
pub(crate) trait Task {
    /// Its result.
    type Output;

    fn carry_out<S: Config>(self, engine: S::Engine) -> Result<Self::Output, Error>;
}

impl EngineName {
    /// As options name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::None => "none",
            Self::Emulated => "emulated",
            Self::Rtm => "rtm",
        }
    }

    /// Carries a task out on the engine of this name, and returns the name of the engine that was
    /// chosen beside the task's result.
    pub(crate) fn dispatch<T: Task>(self, task: T) -> Result<(&'static str, T::Output), Error> {
        Ok(match self {
            Self::Auto => {
                let engine = Native::chosen()?;
                let name = if engine.has_regions() { Self::Rtm } else { Self::None };
                (name.name(), task.carry_out::<DefaultConfig>(engine)?)
            }
            Self::Rtm => {
                let rtm = Rtm::detect().map_err(Error::no_rtm)?;
                (self.name(), task.carry_out::<DefaultConfig>(rtm.into())?)
            }
            Self::None => (self.name(), task.carry_out::<DefaultConfig>(Native::without_regions())?),
            Self::Emulated => (self.name(), task.carry_out::<Simulated>(Emulated::default())?),
        })
    }
}

/// Why `limit` is refused where an option offered it before.
const NO_LIMIT: &str = "a database without isolation is no longer built; \
                        `drtm-bench kv speed` measures the tables without transactions";

/// Parses an option's values, and refuses `limit` with its reason.
pub(crate) fn but_limit<V: ValueEnum + Send + Sync + 'static>() -> impl TypedValueParser<Value = V> {
    let offered = V::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    let known = offered.chain([PossibleValue::new("limit").hide(true)]);
    PossibleValuesParser::new(known).try_map(|name| V::from_str(&name, false).map_err(|_| NO_LIMIT))
}
