//! Databases with a deliberate fault, for tests of what notices them.

use drtm_htm::NoHtm;
use drtm_txn::{Config, Mutation};
use parking_lot::{Mutex, RwLock};

/// The fault that all databases with the configuration [`Faulty`] have now.
static FAULT: RwLock<Option<Mutation>> = RwLock::new(None);

/// Held while there is one.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The configuration with a deliberate fault. A type for each fault would have a database, or a
/// whole cluster, compiled for each.
#[derive(Clone, Copy, Debug)]
pub struct Faulty;

impl Config for Faulty {
    type Engine = NoHtm;

    fn fault() -> Option<Mutation> {
        *FAULT.read()
    }
}

/// Runs `run` while databases with the configuration [`Faulty`] have this fault. Tests of other
/// faults wait.
pub fn with_fault<R>(fault: Mutation, run: impl FnOnce() -> R) -> R {
    let _one = ONE_AT_A_TIME.lock();
    *FAULT.write() = Some(fault);
    run()
}
