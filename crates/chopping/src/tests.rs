//! The analysis is checked against searches that share no code with it.

mod brute_force;
mod descriptions;
mod examples;
mod faults;
mod naive;
mod properties;
mod random;
mod store;
mod workloads;
