//! Engines that run transactions, and their names on the command line.

use clap::{
    ValueEnum,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use drtm_htm::{Emulated, Engine, Native, NoHtm, Rtm, Traced};
use drtm_txn::{Config, DefaultConfig};
use serde::Serialize;

use crate::Error;

/// The engine that runs transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum EngineName {
    /// RTM if this machine has it, otherwise none
    #[default]
    Auto,
    /// No hardware transactions, even if this machine has them
    None,
    /// Software with the limits of the hardware; its speeds mean nothing
    Emulated,
    /// This machine's transactional memory; refused if there is none
    Rtm,
}

/// The configuration without htm transactions: of clusters' nodes, and of databases on storage that
/// fails.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

impl Config for Plain {
    type Engine = NoHtm;
}

/// The configuration with emulated transactional memory.
#[derive(Clone, Copy, Debug)]
pub struct Simulated;

impl Config for Simulated {
    type Engine = Emulated;
    const HTM_FROM: usize = 1;
}

/// The configuration with record locks, and all accesses to the store traced.
#[derive(Clone, Copy, Debug)]
pub struct Watched;

impl Config for Watched {
    type Engine = Traced;
}

/// Work on a database of any configuration.
pub trait Task {
    /// Its result.
    type Output;

    /// Does the work on an engine of this configuration.
    fn execute<S: Config>(self, engine: S::Engine) -> Result<Self::Output, Error>;
}

impl EngineName {
    /// Returns the name that options use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::None => "none",
            Self::Emulated => "emulated",
            Self::Rtm => "rtm",
        }
    }

    /// Runs a task on this engine. Returns the name of the chosen engine and the task's result.
    pub fn dispatch<T: Task>(self, task: T) -> Result<(&'static str, T::Output), Error> {
        Ok(match self {
            Self::Auto => {
                let engine = Native::chosen()?;
                let name = if engine.has_htm() { Self::Rtm } else { Self::None };
                (name.name(), task.execute::<DefaultConfig>(engine)?)
            }
            Self::Rtm => {
                let rtm = Rtm::detect().map_err(Error::no_rtm)?;
                (self.name(), task.execute::<DefaultConfig>(rtm.into())?)
            }
            Self::None => (self.name(), task.execute::<DefaultConfig>(Native::without_htm())?),
            #[cfg(feature = "studies")]
            Self::Emulated => (self.name(), task.execute::<Simulated>(drtm_htm::Emulated::default())?),
            #[cfg(not(feature = "studies"))]
            Self::Emulated => return Err(Error::Study { option: "--engine emulated", instead: "" }),
        })
    }
}

/// Why `limit` is refused where an option once offered it.
const NO_LIMIT: &str = "a database without isolation is no longer built; \
                        `drtm-bench kv speed` measures the tables without transactions";

/// Parses an option's values, and refuses `limit` with its reason.
pub fn reject_limit<V: ValueEnum + Send + Sync + 'static>() -> impl TypedValueParser<Value = V> {
    let offered = V::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    let known = offered.chain([PossibleValue::new("limit").hide(true)]);
    PossibleValuesParser::new(known).try_map(|name| V::from_str(&name, false).map_err(|_| NO_LIMIT))
}

#[cfg(test)]
#[cfg(not(feature = "studies"))]
mod tests {
    use drtm_report::Failure;

    use super::*;

    struct Nothing;

    impl Task for Nothing {
        type Output = ();

        fn execute<S: Config>(self, _engine: S::Engine) -> Result<(), Error> {
            Ok(())
        }
    }

    #[test]
    fn what_is_for_studies_is_refused_with_the_command_that_has_it() {
        let refusal = EngineName::Emulated.dispatch(Nothing).expect_err("it is not built");
        assert!(refusal.to_string().contains("cargo run --release -p drtm-bench"), "{refusal}");
        assert_eq!(refusal.exit_status(), 2);
        assert!(EngineName::None.dispatch(Nothing).is_ok());
    }
}
