//! What transactions run on, and how the command line names it.

use clap::ValueEnum;
use drtm_htm::{Emulated, Engine, Native, NoHtm, Rtm};
use drtm_txn::{Embedded, Setting};
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
    /// No isolation, no validation, no way back: one thread on the same tables, which no transactions can be faster than
    Limit,
}

/// The emulation of transactional memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Simulated;

impl Setting for Simulated {
    type Engine = Emulated;
    const REGIONS_FROM: usize = 1;
}

/// What transactions cost is measured against this: the same tables, and nothing that keeps transactions apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit;

impl Setting for Limit {
    type Engine = NoHtm;
    const ISOLATED: bool = false;
}

/// What is to be done in a database of whatever setting.
pub(crate) trait Task {
    /// What comes of it.
    type Output;

    fn carry_out<S: Setting>(self, engine: S::Engine) -> Result<Self::Output, Error>;
}

impl EngineName {
    /// As options name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::None => "none",
            Self::Emulated => "emulated",
            Self::Rtm => "rtm",
            Self::Limit => "limit",
        }
    }

    /// Carries a task out in the setting of this name, and says which engine that is.
    pub(crate) fn dispatch<T: Task>(self, task: T) -> Result<(&'static str, T::Output), Error> {
        Ok(match self {
            Self::Auto => {
                let engine = Native::chosen()?;
                let name = if engine.has_regions() { Self::Rtm } else { Self::None };
                (name.name(), task.carry_out::<Embedded>(engine)?)
            }
            Self::Rtm => {
                let rtm = Rtm::detect().map_err(Error::no_rtm)?;
                (self.name(), task.carry_out::<Embedded>(rtm.into())?)
            }
            Self::None => (self.name(), task.carry_out::<Embedded>(Native::without_regions())?),
            Self::Emulated => (self.name(), task.carry_out::<Simulated>(Emulated::default())?),
            Self::Limit => (self.name(), task.carry_out::<Limit>(NoHtm)?),
        })
    }
}
