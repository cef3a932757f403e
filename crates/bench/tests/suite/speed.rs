//! Speed and memory of maps, by the commands that scripts use. How fast anything is, is not tested.

use std::process::{Command, Output};

use serde_json::Value;

fn kv(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_drtm-bench")).arg("kv").args(arguments).output().expect("the binary runs")
}

fn json(arguments: &[&str]) -> Value {
    let output = kv(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

const QUICK: [&str; 8] = ["speed", "--json", "--records", "20000", "--slice", "1000", "--rounds", "3"];

fn quick<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [&QUICK, arguments].concat()
}

#[test]
fn rows_have_the_fields_that_scripts_rely_on() {
    let rows = json(&quick(&[
        "--engine",
        "drtm-hash,drtm-tree,btreemap",
        "--op",
        "get,update,insert,scan",
        "--threads",
        "1,2",
        "--dist",
        "uniform,zipf",
        "--rows",
        "10",
    ]));
    let rows = rows.as_array().expect("an array");
    // The hash table has no scans, and the map without synchronisation no second thread.
    assert_eq!(rows.len(), 2 * (3 * 2 + 4 * 2 + 4));
    for row in rows {
        let rate = |which: &str| row["ops_per_s"][which].as_f64().unwrap_or_else(|| panic!("{which} of {row}"));
        assert!(0.0 < rate("min") && rate("min") <= rate("median") && rate("median") <= rate("max"), "{row}");
        assert!(row["engine"] != "drtm-hash" || row["op"] != "scan");
        assert!(row["engine"] != "btreemap" || row["threads"] == 1);
        assert_eq!((row["records"].as_u64(), row["key_bytes"].as_u64()), (Some(20_000), Some(8)));
        assert_eq!(row["style"].as_str(), (row["op"] == "get" || row["op"] == "update").then_some("dependent"));
        // Key and value are 108 of them.
        let bytes = row["bytes_per_record"].as_f64().expect("measured");
        assert!((108.0..500.0).contains(&bytes), "{row}");
    }
}

#[test]
fn strings_are_keys_of_both_tables() {
    let rows = json(&quick(&["--engine", "drtm-hash,drtm-tree", "--key-bytes", "32", "--no-memory"]));
    let rows = rows.as_array().expect("an array");
    assert!(rows.len() == 4 && rows.iter().all(|row| row["key_bytes"] == 32));
    assert!(rows.iter().all(|row| row["bytes_per_record"].is_null()));
}

#[cfg(feature = "peers")]
#[test]
fn strings_are_no_keys_of_a_map_of_numbers() {
    let refused = kv(&quick(&["--engine", "congee", "--key-bytes", "32"]));
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("congee does not support keys"));
    assert!(refused.stdout.is_empty());
}

#[cfg(not(feature = "peers"))]
#[test]
fn a_map_that_is_not_built_in_is_refused_and_names_the_feature() {
    let refused = kv(&quick(&["--engine", "congee"]));
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(2), 0));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("the feature `peers`"), "{refused:?}");
}

#[test]
fn people_get_a_table_with_ratios_and_what_was_left_out() {
    let output =
        kv(&["speed", "--records", "2000", "--slice", "100", "--rounds", "1", "--no-memory", "--op", "get,scan"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    assert!(text.contains("dependent get uniform, 1 thread, 2000 records"), "{text}");
    assert!(text.contains("ratio") && text.contains("Left out: drtm-hash does not support scans"), "{text}");
}

#[test]
fn a_footprint_is_what_the_system_and_the_region_say() {
    let found = json(&["footprint", "--json", "--records", "200000"]);
    let number = |field: &str| found[field].as_f64().unwrap_or_else(|| panic!("{field} of {found}"));
    // A header of 32 bytes, a value of 104, and three quarters of eight slots of 16.
    let (resident, region) = (number("bytes_per_record"), number("region_bytes_per_record"));
    assert!((157.0..180.0).contains(&region), "{found}");
    // Pages that are taken and not touched, or huge and touched in part.
    assert!((region * 0.95..region + 40.0).contains(&resident), "{found}");
}

#[test]
fn wrong_usage_exits_with_2() {
    for arguments in [
        ["speed", "--engine", "btree"],
        ["speed", "--op", "put"],
        ["speed", "--threads", "0"],
        ["speed", "--key-bytes", "16"],
        ["speed", "--rounds", "0"],
        ["speed", "--dist", "normal"],
        ["footprint", "--records", "0"],
    ] {
        let output = kv(&arguments);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}");
    }
}
