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

/// Runs a soak of failovers for a few seconds, and gives its report.
fn failover(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_drtm-bench"))
        .args(["soak", "failover", "--secs", "3", "--json"])
        .args(arguments)
        .output()
        .expect("the binary starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    let report = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {errors}\n{report}");
    let report: Value = serde_json::from_str(&report).unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
    let counts = ["kills", "pauses", "partitions", "restarts", "acknowledged"];
    let wrong = ["lost", "torn", "anomalies", "stuck"];
    let mut keys: Vec<&str> = report.as_object().expect("an object").keys().map(String::as_str).collect();
    let mut expected: Vec<&str> = counts.into_iter().chain(wrong).chain(["simulated", "failovers_ms"]).collect();
    keys.sort_unstable();
    expected.sort_unstable();
    assert_eq!(keys, expected);
    assert!(wrong.iter().all(|count| report[count] == 0), "{report}");
    assert!(counts.iter().all(|count| report[count].is_u64()), "{report}");
    let ended = ["kills", "pauses", "partitions"].iter().filter_map(|count| report[count].as_u64()).sum::<u64>();
    assert!(ended >= 2 && report["acknowledged"].as_u64() > Some(50), "{report}");
    let failovers = &report["failovers_ms"];
    let [p50, p99, max] = ["p50", "p99", "max"].map(|rank| failovers[rank].as_f64());
    // Of simulated nodes, clients alone may have been killed.
    assert!(p50 > Some(0.0) || report["simulated"] == true, "{report}");
    assert!(p50 <= p99 && p99 <= max, "{report}");
    report
}

#[test]
fn simulated_nodes_that_end_lose_nothing() {
    let report = failover(&["--fabric", "sim"]);
    assert_eq!(report["simulated"], true);
}

#[test]
fn processes_of_a_cluster_that_are_killed_lose_nothing() {
    let report = failover(&["--fabric", "shm"]);
    assert_eq!((&report["simulated"], &report["pauses"], &report["partitions"]), (&false.into(), &0.into(), &0.into()));
    assert!(report["kills"].as_u64() >= Some(2) && report["restarts"].as_u64() >= Some(2), "{report}");
}

#[test]
fn processes_on_machines_that_are_killed_and_stopped_lose_nothing() {
    // A lease for a machine that does much else.
    let report = failover(&["--fabric", "tcp", "--lease", "3000"]);
    assert_eq!((&report["simulated"], &report["partitions"]), (&false.into(), &0.into()));
    assert!(report["kills"].as_u64() >= Some(1) && report["pauses"].as_u64() >= Some(1), "{report}");
}

#[test]
fn failovers_that_cannot_be_are_refused() {
    for arguments in [["--fabric", "local"], ["--backups", "3"], ["--fabric=tcp", "--lossy"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_drtm-bench"))
            .args(["soak", "failover"])
            .args(arguments)
            .output()
            .expect("the binary starts");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(!output.stderr.is_empty());
    }
}
