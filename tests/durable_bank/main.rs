//! The example `durable_bank`, killed again and again: it finds its money, and every transfer that
//! it has told of.

#[path = "../../examples/durable_bank.rs"]
#[expect(dead_code, reason = "its `main` is the example's own")]
mod durable_bank;

use std::{
    env, fs,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use drtm_testing::rounds;

/// Where the bank is, for the process that is going to be killed.
const DIRECTORY: &str = "DRTM_TEST_BANK_DIRECTORY";

/// The bank, for ever. Only where the other test has started it.
#[test]
fn a_bank_that_is_going_to_be_killed() {
    if let Ok(directory) = env::var(DIRECTORY) {
        durable_bank::run(&directory, u64::MAX).expect("money is there, and the disk is sound");
    }
}

/// A number that a line begins with, and what comes behind it.
fn told(line: &str) -> Option<(u64, &str)> {
    let (number, rest) = line.split_once(' ')?;
    Some((number.parse().ok()?, rest))
}

#[test]
fn a_bank_that_is_killed_loses_no_transfer_that_it_has_told_of() {
    let directory = env::temp_dir().join(format!("drtm-durable-bank-{}", std::process::id()));
    let path = directory.to_str().expect("a name in Unicode");
    let mut random = fastrand::Rng::with_seed(9);
    let mut safe = 0;
    for life in 0..=rounds(4) {
        let mut child = Command::new(env::current_exe().expect("this program"))
            .args(["--exact", "a_bank_that_is_going_to_be_killed", "--nocapture"])
            .env(DIRECTORY, path)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        // After so many lines it is killed, in the midst of the next transfers.
        let mut left = random.u32(1..6);
        let mut opened = None;
        for line in lines.map_while(Result::ok) {
            if let Some((_, rest)) = line.split_once(" holds ") {
                let (money, rest) = told(rest).expect("a sum");
                let (transfers, _) = told(rest.strip_prefix("after ").expect("words")).expect("a number");
                assert_eq!(money, 1_000_000, "life {life}");
                assert!(transfers >= safe, "life {life}: {transfers} transfers of {safe} that were safe");
                opened = Some(transfers);
            } else if let Some((transfers, "transfers are safe")) = told(&line) {
                // Also what it has told of before it died.
                safe = safe.max(transfers);
                left = left.saturating_sub(1);
                if left == 0 {
                    // It may be dead already.
                    child.kill().expect("it is ours");
                }
            }
        }
        child.wait().expect("it was killed");
        assert!(opened.is_some() && left == 0, "life {life}: the bank has ended by itself");
    }
    assert!(safe > 400, "{safe}");
    fs::remove_dir_all(&directory).expect("it is there");
}
