//! TPC-C on this machine: all five transactions with the specification's inputs, and its
//! consistency conditions when all is over.
//!
//! ```text
//! cargo run --release --example tpcc
//! cargo run --release --example tpcc -- --threads 1 --engine none
//! cargo run --release --example tpcc -- --nodes 2 --fabric shm
//! cargo run --release --example tpcc -- --nodes 2 --fabric tcp
//! cargo run --release --example tpcc -- --help
//! ```
//!
//! With several nodes on `shm` or `tcp`, it starts a process for each.
//!
//! It is `drtm-bench tpcc` under another name; its code, in `crates/bench/src/tpcc`, shows what
//! transactions over a dozen tables look like.

use std::process::ExitCode;

fn main() -> ExitCode {
    let command = ["drtm-bench", "tpcc"].map(Into::into);
    drtm_bench::run(command.into_iter().chain(std::env::args_os().skip(1)))
}
