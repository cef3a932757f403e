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
fn a_cache_saves_reads_the_more_the_larger_and_the_warmer_it_is() {
    let (status, rows) =
        lookups(&["--scheme", "cluster+cache", "--occupancy", "0.75", "--records", "40000", "--seeds", "3"]);
    assert_eq!(status, Some(0));
    let rows = rows.as_array().expect("an array");
    let find = |keys: &str, mb: u64, warm: bool| {
        let row = rows.iter().find(|row| {
            (&row["keys"], &row["cache_mb_per_20m"], &row["warm"]) == (&keys.into(), &mb.into(), &warm.into())
        });
        row.unwrap_or_else(|| panic!("no row for {keys}, {mb} MB, {warm}"))
    };
    assert_eq!(rows.len(), 12);
    assert_eq!(
        (find("uniform", 20, true)["published"].as_f64(), &rows[0]["scheme"]),
        (Some(0.475), &"cluster+cache".into())
    );
    let reads = |keys, mb, warm| find(keys, mb, warm)["reads"].as_f64().expect("a number");
    for keys in ["uniform", "zipf"] {
        for warm in [false, true] {
            assert!(reads(keys, 20, warm) > reads(keys, 80, warm) && reads(keys, 80, warm) > reads(keys, 320, warm));
        }
        assert!([20, 80, 320].into_iter().all(|mb| reads(keys, mb, true) < reads(keys, mb, false)));
    }
    // A reader without room for a bucket fetches it: without a cache it would be 1.05 READs.
    assert!((0.9..1.06).contains(&reads("uniform", 20, true)));
    // DrTM says that 20 MB save about three quarters of the READs of Zipf keys, and 320 MB nearly
    // all when warm.
    assert!(reads("zipf", 20, false) < 0.55 && reads("zipf", 320, true) < 0.15, "{rows:?}");
}

#[test]
fn only_rows_with_a_cache_have_its_size() {
    let (status, rows) =
        lookups(&["--scheme", "cluster", "--keys", "uniform", "--occupancy", "0.5", "--records", "2000"]);
    assert_eq!(status, Some(0));
    assert!(rows[0].get("cache_mb_per_20m").is_none() && rows[0].get("warm").is_none(), "{rows}");
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
        ["--cache-mb", "0"],
    ] {
        assert_eq!(lookups(&arguments), (Some(2), Value::Null), "{arguments:?}");
    }
}
