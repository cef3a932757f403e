//! Tests of databases' public behaviour. They are one program, because most of their time is
//! compilation. Model checking is in `tests/loom`.
#![cfg(not(feature = "model"))]

mod clears;
mod close;
mod counts;
mod derived;
mod drops;
mod each;
mod faults;
mod full;
mod indexes;
mod joins;
mod keys;
mod large;
mod leaks;
mod loans;
mod many;
mod memory;
mod messages;
mod model;
mod opacity;
mod parts;
mod regions;
mod removals;
mod reuse;
mod savepoints;
mod sinks;
mod snapshots;
mod spans;
mod starvation;
mod waits;
mod walks;

// As an application knows it: derived code says so.
extern crate drtm_txn as drtm;

use std::{cell::Cell, marker::PhantomData};

use drtm_htm::Engine;
use drtm_txn::{Config, Mutation};

thread_local! {
    /// The deliberate fault of databases that this thread uses.
    static FAULT: Cell<Option<Mutation>> = const { Cell::new(None) };
}

/// Runs `run` on this thread with a deliberate fault.
fn with_fault<R>(fault: Mutation, run: impl FnOnce() -> R) -> R {
    drtm_testing::chosen::with(&FAULT, Some(fault), run)
}

/// Gives another thread the fault of this one.
fn inherit<R>(run: impl FnOnce() -> R) -> impl FnOnce() -> R {
    drtm_testing::chosen::inherited(&FAULT, run)
}

/// A database on a given engine, with the fault of the thread that uses it. A type for each fault
/// would have the whole database compiled for each.
#[derive(Debug)]
struct On<E>(PhantomData<E>);

impl<E: Engine> Config for On<E> {
    type Engine = E;
    const HTM_FROM: usize = 1;

    fn fault() -> Option<Mutation> {
        FAULT.get()
    }
}
