//! A database's directory, inspected, verified and salvaged by the binary.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// A directory of this test run's own, that is not there yet.
fn fresh(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    path
}

fn run(arguments: &[&str]) -> (Option<i32>, Value, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_drtm-bench"))
        .args(arguments)
        .arg("--json")
        .output()
        .expect("the binary starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or(Value::Null), said)
}

fn log(command: &str, directory: &Path, more: &[&str]) -> (Option<i32>, Value, String) {
    let directory = directory.to_str().expect("a name in Unicode");
    run(&[&["log", command, directory], more].concat())
}

/// A bank of a hundred customers, and payments between them.
fn bank(name: &str) -> PathBuf {
    let path = fresh(name);
    let place = path.to_str().expect("a name in Unicode");
    let small = ["smallbank", "--customers", "100", "--transactions", "200", "--threads", "2", "--hot", "none"];
    let (status, report, said) = run(&[&small[..], &["--durability", "sync", "--path", place]].concat());
    assert_eq!((status, &report["consistency"]), (Some(0), &"ok".into()), "{said}");
    path
}

#[test]
fn a_log_is_inspected_verified_and_salvaged() {
    let path = bank("log-whole");
    let (status, found, said) = log("inspect", &path, &["--frames", "--records"]);
    assert_eq!(status, Some(0), "{said}");
    let names: Vec<_> = found["tables"].as_array().expect("rows").iter().map(|table| &table["name"]).collect();
    assert_eq!(names, ["savings", "checking"]);
    let sum = |rows: &Value, field: &str| {
        rows.as_array().expect("rows").iter().map(|row| row[field].as_u64().expect("a count")).sum::<u64>()
    };
    assert_eq!(sum(&found["segments"], "frames"), found["frames"].as_array().expect("rows").len() as u64);
    assert_eq!(sum(&found["segments"], "records"), found["records"].as_array().expect("rows").len() as u64);
    assert_eq!(sum(&found["frames"], "records"), sum(&found["segments"], "records"));
    let rows: u64 = ["puts", "patches", "removals"].map(|kind| sum(&found["tables"], kind)).iter().sum();
    assert_eq!(rows, sum(&found["segments"], "rows"));
    let (status, verdict, said) = log("verify", &path, &[]);
    assert_eq!((status, &verdict["readable"], &verdict["rows"]), (Some(0), &true.into(), &200.into()), "{said}");
    assert_eq!((&verdict["damage"], &verdict["torn"]), (&Value::Null, &Value::Null));
    let (copy, file) = (fresh("log-copy"), fresh("log-rows"));
    let (into, lines) = (copy.to_str().expect("a name"), file.to_str().expect("a name"));
    let (status, salvaged, said) = log("salvage", &path, &["--into", into, "--rows", lines]);
    assert_eq!((status, &salvaged["rows"], &salvaged["tables"]), (Some(0), &200.into(), &2.into()), "{said}");
    assert_eq!(log("verify", &copy, &[]).1["rows"], 200);
    let text = fs::read_to_string(&file).expect("it was written");
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("a line is a value")).collect();
    assert_eq!(rows.len(), 200);
    assert!(rows.iter().all(|row| row["key"].as_str().map(str::len) == Some(16) && row["table"].is_string()));
    // What is there is not written over.
    let (status, _, said) = log("salvage", &path, &["--into", into]);
    assert!(status == Some(2) && said.contains("has files"), "{said}");
    fs::remove_file(&file).expect("it is there");
    [path, copy].iter().for_each(|path| fs::remove_dir_all(path).expect("it is there"));
}

#[test]
fn damage_is_named_and_the_rest_is_salvaged() {
    let path = bank("log-damaged");
    // In the middle of the segment with the population.
    let file = path.join("0000000000000001.log");
    let mut bytes = fs::read(&file).expect("it is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).expect("space");
    let (status, verdict, said) = log("verify", &path, &[]);
    assert_eq!((status, &verdict["readable"]), (Some(1), &false.into()), "{said}");
    assert_eq!(verdict["damage"]["file"], "0000000000000001.log");
    let offset = verdict["damage"]["offset"].as_u64().expect("an offset");
    assert!(offset <= middle as u64, "{verdict}");
    assert!(said.contains(&format!("offset {offset}")) && said.contains("salvage"), "{said}");
    let (status, found, _) = log("inspect", &path, &[]);
    assert!(status == Some(0) && !found["damages"].as_array().expect("rows").is_empty(), "{found}");
    let copy = fresh("log-salvaged");
    let (status, salvaged, said) = log("salvage", &path, &["--into", copy.to_str().expect("a name")]);
    assert_eq!(status, Some(0), "{said}");
    // One record is lost: at most a customer's two rows, unless transactions have written them
    // since.
    assert!(salvaged["rows"].as_u64() >= Some(198), "{salvaged}");
    assert!(salvaged["left"]["loose_records"].as_u64() > Some(0), "{salvaged}");
    assert_eq!(log("verify", &copy, &[]).0, Some(0));
    [path, copy].iter().for_each(|path| fs::remove_dir_all(path).expect("it is there"));
}

#[test]
fn a_directory_without_a_log_is_refused() {
    let path = fresh("no-log");
    for command in ["inspect", "verify"] {
        let (status, _, said) = log(command, &path, &[]);
        assert!(status == Some(2) && said.contains("holds no log"), "{said}");
    }
    assert!(!path.exists(), "nothing is made");
    assert_eq!(log("salvage", &path, &[]).0, Some(2), "it wants somewhere to write to");
}
