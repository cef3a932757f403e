//! Transactions that run in pieces. Random programs are recorded, and the checker of histories
//! judges whole transactions; processes die between pieces; and each deliberate fault must be
//! found. It is a program of its own, because it starts itself as the process that dies.
//!
//! `DRTM_STRESS=N` runs everything N times longer.
#![cfg(all(feature = "chopping", not(feature = "model")))]

mod crash;
mod deferred;
mod drawn;
mod histories;
mod pieces;

use std::cell::Cell;

use drtm::Config;
use drtm_htm::NoHtm;
use drtm_txn::Mutation;

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

/// A database with the fault of the thread that uses it. A type for each fault would have the whole
/// database compiled for each.
#[derive(Debug)]
struct Chosen;

impl Config for Chosen {
    type Engine = NoHtm;

    fn fault() -> Option<Mutation> {
        FAULT.get()
    }
}
