//! Short soaks: `DRTM_STRESS` makes them longer.

use std::process::Command;

use drtm_testing::rounds;
use serde_json::Value;

/// Runs a soak to its end, and gives its report. What does not hold would be its exit status.
fn soak(command: &str, runs: u64) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_drtm-bench"))
        .args(["soak", command, "--runs", &rounds(runs).to_string(), "--seed", "11", "--json"])
        .output()
        .expect("the binary starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{command}: {errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{command}: {error}"));
    assert_eq!((&report["runs"], report["seed"].as_u64()), (&rounds(runs).into(), Some(11)), "{report}");
    for count in ["lost", "partial", "anomalies"] {
        assert_eq!(report[count].as_u64(), Some(0), "{report}");
    }
    assert!(report["acknowledged"].as_u64() > Some(runs), "{report}");
    report
}

#[test]
fn crashes_on_a_simulated_disk_lose_nothing() {
    let report = soak("crash", 60);
    assert!(report["crash_points"].as_u64() > Some(150) && report["disk"] == "simulated", "{report}");
}

#[test]
fn calls_to_the_disk_that_fail_lose_nothing() {
    let report = soak("io-faults", 120);
    let kinds = ["no-space", "device", "short"].map(|kind| report["faults"][kind].as_u64().unwrap_or(0));
    assert_eq!(kinds.iter().sum::<u64>(), rounds(120), "{report}");
}

#[test]
fn a_process_that_is_killed_loses_nothing() {
    let report = soak("kill", 3);
    assert!(report["kills"].as_u64() >= Some(9) && report["disk"] == "files", "{report}");
}
