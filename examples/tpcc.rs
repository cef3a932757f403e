//! TPC-C on this machine: all five transactions with the specification's inputs, followed by its
//! consistency checks.
//!
//! ```text
//! cargo run --release --example tpcc
//! cargo run --release --example tpcc -- --prefetch both
//! cargo run --release --example tpcc -- --threads 1 --engine none
//! cargo run --release --features cluster --example tpcc -- --nodes 2 --fabric shm
//! cargo run --release --features cluster --example tpcc -- --nodes 2 --fabric tcp
//! cargo run --release --example tpcc -- --help
//! ```
//!
//! With several nodes on `shm` or `tcp`, it starts a process for each node.
//!
//! The code in `crates/bench/tpcc/src/transactions` shows transactions over a dozen tables: the
//! plain form, and rows that are prefetched `if tables.prefetches`. With `--prefetch both`, it runs
//! both forms, and reports what prefetching adds.

use std::process::ExitCode;

fn main() -> ExitCode {
    drtm_tpcc::run(std::env::args_os())
}
