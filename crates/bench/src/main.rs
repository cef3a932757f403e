//! The binary `drtm-bench`: everything is in the library of the same name.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    drtm_bench::run(std::env::args_os())
}
