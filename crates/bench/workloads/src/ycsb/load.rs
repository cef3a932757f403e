//! The mixes and distributions, named as on the command line, on one node or several.

use std::sync::Arc;

use clap::ValueEnum;
use drtm_drive::Error;
use serde::{Deserialize, Serialize};

use super::{Choice, Inputs, Plan, Shape, Transactions, Workload as Core, worker::Task};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(super) enum MixName {
    /// Half reads, half updates
    A,
    /// 95 % reads, 5 % updates
    B,
    /// Reads only
    C,
    /// 95 % reads of the newest records, 5 % insertions
    D,
    /// 95 % scans of up to a hundred records, 5 % insertions
    E,
    /// Half reads, half read-modify-writes
    F,
    /// Transactions of several reads and writes
    X,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(super) enum Dist {
    /// All records equally often
    Uniform,
    /// Zipf's distribution with an exponent of 0.99
    Zipf,
    /// The newest records most often
    Latest,
}

impl MixName {
    pub(super) fn core(self) -> Option<Core> {
        Some(match self {
            Self::A => Core::A,
            Self::B => Core::B,
            Self::C => Core::C,
            Self::D => Core::D,
            Self::E => Core::E,
            Self::F => Core::F,
            Self::X => return None,
        })
    }
}

/// The load of workers, on one node or several.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Load {
    pub(super) mix: MixName,
    pub(super) dist: Dist,
    pub(super) fields: u8,
    /// The shape of X.
    pub(super) shape: Shape,
}

impl Load {
    #[cfg(test)]
    pub(super) fn of(mix: MixName, dist: Dist, fields: u8) -> Self {
        Self { mix, dist, fields, shape: Shape::STANDARD }
    }

    /// Returns the shared load of `workers`, which insert about `room` records.
    pub(super) fn shared(&self, records: u64, room: u64, workers: usize) -> Result<Kind, Error> {
        let Some(core) = self.mix.core() else {
            // Detects too few records before they are loaded.
            Transactions::new(records, self.shape, 0)?;
            return Ok(Kind::Transactions(self.shape));
        };
        let choice = match self.dist {
            Dist::Uniform => Choice::Uniform,
            Dist::Zipf => Choice::Zipfian,
            Dist::Latest => Choice::Latest,
        };
        let core = Core { choice, fields: self.fields, ..core };
        Ok(Kind::Core(Arc::new(Plan::new(core, records, room, workers)?)))
    }
}

/// The kind of load.
#[derive(Debug)]
pub(super) enum Kind {
    Core(Arc<Plan>),
    Transactions(Shape),
}

impl Kind {
    /// Returns the task of one worker.
    pub(super) fn task(&self, records: u64, worker: usize, seed: u64) -> Result<Task, Error> {
        Ok(match self {
            Self::Core(plan) => Task::Core(Inputs::new(plan, worker, seed)?),
            Self::Transactions(shape) => Task::Transactions(Transactions::new(records, *shape, seed)?),
        })
    }
}
