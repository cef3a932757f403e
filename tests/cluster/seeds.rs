//! Runs many numbers of `failover`, more than tests do: `scripts/failover-seeds FROM COUNT`. A
//! number that fails is a case of the test, too, with `DRTM_SEED`.
// What tests alone use is left out.
#![allow(dead_code, unused_imports)]

mod bed;
mod chopped;
mod cooperative;
mod directory;
#[path = "../chopped/drawn.rs"]
mod drawn;
mod drops;
#[path = "simulated/failover.rs"]
mod failover;
mod hades;
mod history;
mod indexes;
mod leases;
mod program;
mod restarts;

use std::{env, panic, process::ExitCode};

/// How much of what a panic says is shown: it has whole nodes.
const SHOWN: usize = 1_500;

fn main() -> ExitCode {
    let numbers: Vec<u64> = env::args().skip(1).filter_map(|number| number.parse().ok()).collect();
    let [from, count] = numbers[..] else {
        eprintln!("usage: seeds FROM COUNT");
        return ExitCode::from(2);
    };
    panic::set_hook(Box::new(|info| {
        let said = info.to_string();
        eprintln!("{}", said.chars().take(SHOWN).collect::<String>());
    }));
    let (failed, _) = failover::by_number(from..from + count);
    println!("{count} from {from} on: {} failed", failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
