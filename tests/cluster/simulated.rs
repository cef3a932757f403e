//! Clusters that are simulated as a whole.
//!
//! They stand together so that libtest runs them one after the other: each takes a processor for
//! itself, and threads of other tests that pass messages would wait for a slice of it at each.

mod coordinators;
mod cut_off;
mod failover;
mod lost;
mod splits;
mod stale;
mod unmet;
