//! Secondary indexes, which everybody who writes rows keeps, and entries, by which rows are written.

mod build;
mod entries;
mod model;
mod stress;

use drtm_htm::Engine;
use drtm_txn::{Setting, Unlogged};

/// A database on a given engine.
#[derive(Debug)]
struct On<E>(std::marker::PhantomData<E>);

impl<E: Engine> Setting for On<E> {
    type Engine = E;
    type Hook = Unlogged;
}
