//! Secondary indexes, which everybody who writes rows keeps, and entries, by which rows are
//! written.

mod build;
mod entries;
mod model;
mod stress;
