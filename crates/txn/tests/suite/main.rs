//! The behaviour of databases, seen from outside: one program, since most of the time that tests take is the compiler's. Model checking is in `tests/loom.rs`.
#![cfg(not(drtm_loom))]

mod close;
mod hooks;
mod indexes;
mod model;
mod parts;
mod snapshots;
mod starvation;
