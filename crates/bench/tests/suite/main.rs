//! The binary as scripts see it, and what its studies must find: one program, since most of the
//! time that tests take is the compiler's.

mod browser;
mod cluster;
mod command_line;
mod compare;
mod fabric;
mod limits;
mod log;
mod lookups;
mod paper;
mod report;
mod soak;
mod speed;
mod workloads;
