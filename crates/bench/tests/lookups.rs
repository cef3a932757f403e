//! READs per lookup, by the command that scripts use, against DrTM's Table VI.

use std::process::Command;

use serde_json::Value;

fn lookups(arguments: &[&str]) -> (Option<i32>, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_drtm-bench"))
        .args(["kv", "lookups", "--json"])
        .args(arguments)
        .output()
        .expect("the binary runs");
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or(Value::Null))
}

#[test]
fn uniform_keys_take_as_many_reads_as_published() {
    let (status, rows) = lookups(&["--keys", "uniform"]);
    assert_eq!(status, Some(0));
    let rows = rows.as_array().expect("an array");
    assert_eq!(rows.len(), 9);
    for row in rows {
        let number = |field: &str| row[field].as_f64().unwrap_or_else(|| panic!("{field} of {row}"));
        let allowed = if row["scheme"] == "cluster" { 0.005 } else { 0.02 };
        assert!((number("reads") / number("published") - 1.0).abs() < allowed, "{row}");
        assert_eq!((number("seeds"), number("reads_sd")), (1.0, 0.0));
    }
}

#[test]
fn zipf_keys_are_averaged_over_seeds_and_beside_the_published_value() {
    let (status, rows) =
        lookups(&["--keys", "zipf", "--scheme", "cluster", "--occupancy", "0.9", "--records", "5000", "--seeds", "40"]);
    assert_eq!(status, Some(0));
    let row = &rows[0];
    assert_eq!((row["seeds"].as_u64(), row["published"].as_f64()), (Some(40), Some(1.091)));
    let reads = row["reads"].as_f64().expect("a number");
    assert!((1.04..1.2).contains(&reads) && row["reads_sd"].as_f64() > Some(0.0), "{row}");
}

#[test]
fn an_occupancy_that_the_paper_has_not_is_compared_with_nothing() {
    let (status, rows) =
        lookups(&["--keys", "uniform", "--scheme", "cluster", "--occupancy", "0.6", "--records", "2000"]);
    assert_eq!((status, &rows[0]["published"]), (Some(0), &Value::Null));
}

#[test]
fn wrong_usage_exits_with_2() {
    for arguments in [
        ["--scheme", "linear"],
        ["--occupancy", "1.5"],
        ["--occupancy", "x"],
        ["--records", "0"],
        ["--seeds", "0"],
        ["--keys", "normal"],
    ] {
        assert_eq!(lookups(&arguments), (Some(2), Value::Null), "{arguments:?}");
    }
}
