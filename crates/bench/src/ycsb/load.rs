//! What clients do, by the names of the command line, wherever records are.

use std::sync::Arc;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::{Choice, Inputs, Plan, Shape, Transactions, Workload as Core, worker::Task};
use crate::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(super) enum MixName {
    /// Half reads, half updates
    A,
    /// 95 % reads, 5 % updates
    B,
    /// Reads only
    C,
    /// 95 % reads of what was inserted last, 5 % insertions
    D,
    /// 95 % scans of up to a hundred records, 5 % insertions
    E,
    /// Half reads, half reads with a write of what was read
    F,
    /// Transactions of several reads and writes
    X,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(super) enum Dist {
    /// Each as often as any other
    Uniform,
    /// Few of them often, with an exponent of 0.99
    Zipf,
    /// Those that were inserted last most often
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

/// What workers do, wherever records are.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Load {
    pub(super) mix: MixName,
    pub(super) dist: Dist,
    pub(super) fields: u8,
    /// Of X.
    pub(super) shape: Shape,
}

impl Load {
    #[cfg(test)]
    pub(super) fn of(mix: MixName, dist: Dist, fields: u8) -> Self {
        Self { mix, dist, fields, shape: Shape::STANDARD }
    }

    /// What so many workers do together, who insert about `room` records.
    pub(super) fn shared(&self, records: u64, room: u64, workers: usize) -> Result<Kind, Error> {
        let Some(core) = self.mix.core() else {
            // Whether there are enough records, before they are loaded.
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

/// What is done in a transaction.
#[derive(Debug)]
pub(super) enum Kind {
    Core(Arc<Plan>),
    Transactions(Shape),
}

impl Kind {
    /// What one of the workers does.
    pub(super) fn task(&self, records: u64, worker: usize, seed: u64) -> Result<Task, Error> {
        Ok(match self {
            Self::Core(plan) => Task::Core(Inputs::new(plan, worker, seed)?),
            Self::Transactions(shape) => Task::Transactions(Transactions::new(records, *shape, seed)?),
        })
    }
}
