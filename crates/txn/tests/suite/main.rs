//! The behaviour of databases, seen from outside: one program, since most of the time that tests take is the compiler's. Model checking is in `tests/loom`.
#![cfg(not(feature = "model"))]

mod close;
mod each;
mod hooks;
mod indexes;
mod many;
mod model;
mod parts;
mod regions;
mod snapshots;
mod starvation;

use drtm_htm::Engine;
use drtm_txn::{Setting, Unlogged};

/// A database on a given engine.
#[derive(Debug)]
struct On<E>(std::marker::PhantomData<E>);

impl<E: Engine> Setting for On<E> {
    type Engine = E;
    type Hook = Unlogged;
    const REGIONS_FROM: usize = 1;
}

/// How much longer a stress is to run than usual: `DRTM_STRESS`, where that is set.
fn scale() -> u64 {
    std::env::var("DRTM_STRESS").ok().map_or(1, |factor| {
        factor.parse().unwrap_or_else(|_| panic!("DRTM_STRESS must be a whole number, and is {factor:?}"))
    })
}
