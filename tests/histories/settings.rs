//! The configurations under test: every engine, with and without a fault.

use std::{fmt::Debug, marker::PhantomData, sync::Arc};

use drtm_htm::{Emulated, EmulatedConfig, Engine, Native, NoHtm, Profile};
use drtm_txn::{Builder, Config, Db, Mutation};

use crate::scribe::Scribe;

/// A fault of the database.
pub(crate) trait Fault: Debug + Send + Sync + 'static {
    const FAULT: Option<Mutation>;
}

/// No fault.
#[derive(Debug)]
pub(crate) struct Sound;

impl Fault for Sound {
    const FAULT: Option<Mutation> = None;
}

/// An engine, and a fault.
#[derive(Debug)]
pub(crate) struct On<E, F = Sound>(PhantomData<fn() -> (E, F)>);

impl<E: Engine, F: Fault> Config for On<E, F> {
    type Engine = E;
    const HTM_FROM: usize = 1;

    fn fault() -> Option<Mutation> {
        F::FAULT
    }
}

/// An engine under test.
pub(crate) trait Tested: Engine {
    /// Returns the engines with their names.
    fn all() -> Vec<(&'static str, Self)>;
}

impl Tested for NoHtm {
    fn all() -> Vec<(&'static str, Self)> {
        vec![("none", Self)]
    }
}

impl Tested for Native {
    fn all() -> Vec<(&'static str, Self)> {
        vec![("native", Self::of_this_machine())]
    }
}

impl Tested for Emulated {
    fn all() -> Vec<(&'static str, Self)> {
        // Most commits do not fit into the smaller cache, so that htm transactions run beside
        // locking commits.
        let tiny = EmulatedConfig::new(Profile::new(2, 2, 6)).with_events_one_in(50);
        vec![("emulated", Self::default()), ("emulated, tiny", Self::new(tiny).expect("a configuration"))]
    }
}

pub(crate) fn database<E: Engine, F: Fault>(engine: &E) -> Db<On<E, F>> {
    Builder::new().memory(256 << 20).sink(Arc::new(Scribe)).build_with(engine.clone()).expect("memory")
}
