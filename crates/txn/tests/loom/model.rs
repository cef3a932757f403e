//! The databases under test: on loom's words, with and without a fault.

use std::{fmt::Debug, marker::PhantomData};

use drtm_htm::NoHtm;
use drtm_txn::{Config, Mutation};

/// A fault of the database.
pub(crate) trait Fault: Debug + Send + Sync + 'static {
    const FAULT: Option<Mutation>;
}

macro_rules! faults {
    ($($name:ident: $fault:expr),+) => {$(
        #[derive(Debug)]
        pub(crate) struct $name;

        impl Fault for $name {
            const FAULT: Option<Mutation> = $fault;
        }
    )+};
}
pub(crate) use faults;

faults! {
    Sound: None
}

#[derive(Debug)]
pub(crate) struct Model<F>(PhantomData<fn() -> F>);

impl<F: Fault> Config for Model<F> {
    type Engine = NoHtm;

    fn fault() -> Option<Mutation> {
        F::FAULT
    }
}
