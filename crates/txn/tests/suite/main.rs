//! Tests of databases' public behaviour. They are one program, because most of their time is
//! compilation. Model checking is in `tests/loom`.
#![cfg(not(feature = "model"))]

mod close;
mod counts;
mod derived;
mod drops;
mod each;
mod faults;
mod full;
mod indexes;
mod keys;
mod large;
mod leaks;
mod loans;
mod many;
mod memory;
mod model;
mod opacity;
mod parts;
mod regions;
mod removals;
mod reuse;
mod sinks;
mod snapshots;
mod spans;
mod starvation;
mod waits;
mod walks;

// As an application knows it: derived code says so.
extern crate drtm_txn as drtm;

use drtm_htm::Engine;
use drtm_txn::Config;

/// A database on a given engine.
#[derive(Debug)]
struct On<E>(std::marker::PhantomData<E>);

impl<E: Engine> Config for On<E> {
    type Engine = E;
    const REGIONS_FROM: usize = 1;
}
