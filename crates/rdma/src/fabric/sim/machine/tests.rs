//! Tests of the simulated machine.

mod costs;
mod explore;
mod faults;
mod limits;
mod parts;
mod world;
