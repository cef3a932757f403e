//! Figures of the papers, as scripts read them. What a speed is, is not tested.

use std::process::Command;

use serde_json::Value;

/// The rows of a figure, of tiny databases. What does not hold would be its exit status.
fn rows(figure: &str) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_drtm-bench"))
        .args(["paper", figure, "--quick", "--json"])
        .env_remove("DRTM_HTM")
        .output()
        .expect("the binary starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{figure}: {errors}");
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{figure}: {error}"));
    rows.iter().for_each(check);
    rows
}

/// What holds of every row.
fn check(row: &Value) {
    assert!(row["figure"].is_string() && row["series"].is_string() && row["y_unit"].is_string(), "{row}");
    let is_there = ["simulated", "measured"].contains(&row["kind"].as_str().expect("a kind"));
    assert!(is_there || row["kind"] == "unavailable", "{row}");
    assert_eq!((row["y"].is_f64(), row["why"].is_null()), (is_there, is_there), "{row}");
    assert!(row["x"].is_null() || row["x_unit"].is_string(), "{row}");
}

/// What a series of a panel has, by x.
fn points(rows: &[Value], panel: &str, series: &str) -> Vec<(u64, f64)> {
    let of_series = rows.iter().filter(|row| row["figure"] == panel && row["series"] == series);
    of_series.filter_map(|row| Some((row["x"].as_u64().unwrap_or(0), row["y"].as_f64()?))).collect()
}

#[test]
fn snapshots_are_never_refused() {
    let rows = rows("dbx-fig14");
    for series in ["snapshot", "validated", "auto"] {
        let throughput = points(&rows, "dbx-fig14a", series);
        assert_eq!(throughput.iter().map(|(threads, _)| *threads).collect::<Vec<_>>(), [1, 2]);
        assert!(throughput.iter().all(|(_, rate)| *rate > 0.0), "{rows:?}");
        assert_eq!(points(&rows, "dbx-fig14b", series).len(), 2);
    }
    assert_eq!(points(&rows, "dbx-fig14c", "snapshot"), [(1, 0.0), (2, 0.0)]);
    assert_eq!(points(&rows, "dbx-fig14c", "validated")[0], (1, 0.0), "alone");
    assert_eq!(points(&rows, "dbx-fig14d", "validated"), [(1, 1.0), (2, 1.0)]);
    let published = rows.iter().find(|row| row["figure"] == "dbx-fig14d" && row["x"] == 8).expect("in the paper");
    assert_eq!((&published["published"], &published["kind"]), (&1.41.into(), &"unavailable".into()));
}
