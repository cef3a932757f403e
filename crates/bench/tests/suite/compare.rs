//! Stores beside one another: small, and each store's rows checked.

use std::process::Command;

use serde_json::Value;

/// Runs a comparison to its end, and gives its rows, or what it says against it.
fn compare(arguments: &[&str]) -> Result<Vec<Value>, (Option<i32>, String)> {
    let output = Command::new(env!("CARGO_BIN_EXE_drtm-bench"))
        .arg("compare")
        .args(arguments)
        .args(["--rounds", "2", "--slice", "20", "--memory", "4", "--json"])
        .output()
        .expect("the binary starts");
    if !output.status.success() {
        return Err((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    match serde_json::from_slice(&output.stdout) {
        Ok(Value::Array(rows)) => Ok(rows),
        other => panic!("{arguments:?}: {other:?}"),
    }
}

#[test]
fn all_stores_of_this_build_run_both_workloads() {
    for workload in ["smallbank", "ycsb"] {
        let rows = compare(&[workload, "--records", "2000"]).expect("everything holds");
        let names: Vec<&Value> = rows.iter().map(|row| &row["store"]).collect();
        let expected: &[&str] = if cfg!(feature = "stores") { &["drtm", "surrealmx", "redb"] } else { &["drtm"] };
        assert_eq!(names, expected);
        for row in &rows {
            assert_eq!(
                (&row["workload"], &row["consistency"], &row["records"]),
                (&workload.into(), &"ok".into(), &2_000.into())
            );
            let [min, median, max] = ["min", "median", "max"].map(|part| row["transactions_per_s"][part].as_f64());
            assert!(Some(0.0) < min && min <= median && median <= max, "{row}");
        }
    }
}

#[test]
fn a_store_without_isolation_is_refused_with_the_reason() {
    let (status, why) = compare(&["ycsb", "--store", "drtm,limit"]).expect_err("it is no longer built");
    assert!(status == Some(2) && why.contains("without isolation is no longer built"), "{status:?}: {why}");
}

#[test]
#[cfg(not(feature = "stores"))]
fn a_store_that_is_not_in_this_build_says_so() {
    let (status, why) = compare(&["ycsb", "--store", "redb"]).expect_err("it is not there");
    assert!(status == Some(2) && why.contains("--features stores"), "{status:?}: {why}");
}
