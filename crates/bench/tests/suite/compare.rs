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
        let expected: &[&str] =
            if cfg!(feature = "stores") { &["drtm", "limit", "surrealmx", "redb"] } else { &["drtm", "limit"] };
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
fn what_is_for_one_thread_is_left_out_of_two() {
    let rows = compare(&["smallbank", "--records", "2000", "--threads", "2"]).expect("everything holds");
    assert!(rows.iter().all(|row| row["store"] != "limit" && row["threads"] == 2) && !rows.is_empty());
    let (status, why) = compare(&["ycsb", "--store", "limit", "--threads", "2"]).expect_err("nothing is left");
    assert!(status == Some(2) && why.contains("one thread"), "{status:?}: {why}");
}

#[test]
#[cfg(not(feature = "stores"))]
fn a_store_that_is_not_in_this_build_says_so() {
    let (status, why) = compare(&["ycsb", "--store", "redb"]).expect_err("it is not there");
    assert!(status == Some(2) && why.contains("--features stores"), "{status:?}: {why}");
}
