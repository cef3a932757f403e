//! Tests of the simulated machine.

mod costs;
mod explore;
mod faults;
mod parts;
mod world;
