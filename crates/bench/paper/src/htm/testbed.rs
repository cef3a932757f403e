//! Threads, memory and an engine that run loads.

use std::{
    sync::{PoisonError, RwLock},
    thread,
};

use drtm_htm::{Emulated, EmulatedConfig, Engine, Htm, Profile, Stats};

use super::{
    Load, Machine, Order,
    memory::Memory,
    region::{Work, pages_for},
};
use crate::Error;

/// The setup of a testbed.
///
/// # Example
///
/// ```
/// use drtm_paper::htm::{Machine, Order, Setup};
/// use drtm_htm::Profile;
///
/// let setup = Setup { threads: 4, order: Order::Random, ..Setup::on(Machine::Emulated(Profile::L1_32K_8)) };
/// assert_eq!(setup.seed, 0);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The machine.
    pub machine: Machine,
    /// The number of threads, each with memory of its own. They are not pinned to cores.
    pub threads: usize,
    /// The order in which transactions touch lines.
    pub order: Order,
    /// The seed of the lines drawn, and of the phases of the emulation's timers.
    pub seed: u64,
}

impl Setup {
    /// Creates a setup of one thread, in sequence, with seed zero.
    #[must_use]
    pub fn on(machine: Machine) -> Self {
        Self { machine, threads: 1, order: Order::default(), seed: 0 }
    }
}

/// A setup with the memory that its transactions touch.
///
/// # Example
///
/// ```
/// use std::time::Duration;
///
/// use drtm_paper::htm::{Load, Machine, Testbed, Setup, abort_rate};
/// use drtm_htm::Profile;
///
/// // The emulated timer fires every 4 ms, so no region lasts longer.
/// let testbed = Testbed::new(Setup::on(Machine::Emulated(Profile::L1_32K_8)), &[])?;
/// let stats = testbed.run(Load::spin(Duration::from_millis(4)), 10)?;
/// assert_eq!((stats.attempts(), stats.system), (10, 10));
/// # Ok::<(), drtm_paper::Error>(())
/// ```
#[derive(Debug)]
pub struct Testbed {
    setup: Setup,
    memory: Memory,
}

impl Testbed {
    /// Creates a testbed with memory for these loads, and for any smaller one.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooMuchMemory`] if all threads together need too much memory.
    pub fn new(setup: Setup, loads: &[Load]) -> Result<Self, Error> {
        let pages_each = loads.iter().map(|&load| pages_for(load, setup.order)).max().unwrap_or(0);
        Ok(Self { setup, memory: Memory::new(setup.threads, pages_each)? })
    }

    /// Begins `attempts` htm transactions of `load` in each thread, and returns their outcomes.
    ///
    /// On the emulation the result depends only on the setup, the load and the number of attempts,
    /// not on earlier runs.
    ///
    /// # Errors
    ///
    /// Returns an error if the load is larger than those of the testbed, or if threads cannot be
    /// spawned.
    pub fn run(&self, load: Load, attempts: u64) -> Result<Stats, Error> {
        let (needed, made_with) = (pages_for(load, self.setup.order), self.memory.pages_each());
        if needed > made_with {
            return Err(Error::LargerThanRig { needed, made_with });
        }
        match self.setup.machine {
            Machine::Emulated(profile) => self.run_on(Emulated::new(self.emulation_of(profile))?, load, attempts),
            Machine::Rtm(rtm) => self.run_on(rtm, load, attempts),
        }
    }

    /// Gives each line of the memory a version of its own, so that threads never conflict falsely.
    fn emulation_of(&self, profile: Profile) -> EmulatedConfig {
        let lines = self.memory.lines().next_power_of_two();
        EmulatedConfig::new(profile).with_seed(self.setup.seed).with_tracked_lines(lines)
    }

    fn run_on<E: Engine>(&self, engine: E, load: Load, attempts: u64) -> Result<Stats, Error> {
        let htm = Htm::new(engine);
        let order = self.setup.order;
        let mut seeds = fastrand::Rng::with_seed(self.setup.seed);
        // Holds the threads back until all are ready. It is a lock, because it opens by itself if a
        // thread cannot be spawned.
        let gate = RwLock::new(());
        thread::scope(|scope| {
            let closed = gate.write().unwrap_or_else(PoisonError::into_inner);
            for thread in 0..self.setup.threads {
                // Not created in the thread: the order of creation determines the workers'
                // randomness.
                let mut worker = htm.worker();
                let random = seeds.fork();
                let (gate, area) = (&gate, self.memory.area(thread));
                let run = move || {
                    let work = Work::prepare(load, order, E::KIND, area, random);
                    drop(gate.read());
                    work.run(&mut worker, attempts);
                };
                thread::Builder::new().spawn_scoped(scope, run).map_err(drtm_drive::Error::Thread)?;
            }
            drop(closed);
            Ok::<_, Error>(())
        })?;
        Ok(htm.stats())
    }
}

/// Returns the aborted share of all begun transactions, as the papers count; zero if none was
/// begun.
///
/// # Example
///
/// ```
/// use drtm_paper::htm::abort_rate;
/// use drtm_htm::Stats;
///
/// assert_eq!(abort_rate(&Stats::default()), 0.0);
/// ```
#[must_use]
pub fn abort_rate(stats: &Stats) -> f64 {
    match stats.attempts() {
        0 => 0.0,
        attempts => stats.aborts() as f64 / attempts as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_larger_than_the_rig_is_refused() {
        let testbed =
            Testbed::new(Setup::on(Machine::Emulated(Profile::L1_32K_8)), &[Load::read(4096)]).expect("small");
        let error = testbed.run(Load::read(4097), 1).expect_err("a page more");
        assert!(matches!(error, Error::LargerThanRig { needed: 2, made_with: 1 }), "{error}");
    }

    #[test]
    fn what_was_run_before_does_not_matter() {
        let load = Load::write(9 << 10);
        let setup = Setup { order: Order::Random, threads: 2, ..Setup::on(Machine::Emulated(Profile::L1_32K_8)) };
        let testbed = Testbed::new(setup, &[load]).expect("small");
        let first = testbed.run(load, 50).expect("runs");
        assert_eq!(testbed.run(load, 50).expect("runs"), first);
        assert_eq!(first.attempts(), 100);
    }
}
