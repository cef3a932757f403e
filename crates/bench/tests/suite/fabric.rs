//! Fabrics, by the commands that scripts use. How fast anything is, is not tested; what is
//! simulated depends on the seed only, and is.

use std::process::{Command, Output};

use serde_json::Value;

fn fabric(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_drtm-bench")).arg("fabric").args(arguments).output().expect("the binary runs")
}

fn json(arguments: &[&str]) -> Vec<Value> {
    let output = fabric(&[arguments, &["--json"]].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {errors}");
    let value: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
    value.as_array().expect("an array of rows").clone()
}

/// The fields of latency, rate and multi, of which the raw ones are there where something raw was
/// measured; and the label of what is simulated.
fn assert_row(row: &Value, is_raw: bool) {
    let fabric = row["fabric"].as_str().expect("a name");
    assert_eq!(row["simulated"], fabric.starts_with("sim:"), "{row}");
    assert!(row["verb"].is_string() && row["bytes"].as_u64() > Some(0), "{row}");
    assert!(row["median_ns"].as_u64() <= row["p99_ns"].as_u64() && row["p99_ns"].as_u64() > Some(0), "{row}");
    assert!(row["per_s"].as_f64() > Some(0.0), "{row}");
    for field in ["raw_median_ns", "raw_per_s"] {
        assert!(row.get(field).is_some_and(|value| value.is_number() == is_raw), "{field} of {row}");
    }
}

fn column(rows: &[Value], field: &str) -> Vec<String> {
    rows.iter().map(|row| row[field].as_str().map_or_else(|| row[field].to_string(), str::to_owned)).collect()
}

#[test]
fn latencies_have_the_fields_that_scripts_rely_on_on_every_fabric() {
    let rows = json(&["latency", "--fabric", "local,shm,tcp,tcp-clear,sim:cx3", "--millis", "5", "--raw"]);
    assert_eq!(rows.len(), 5 * 5, "every verb on every fabric");
    for row in &rows {
        assert_row(row, row["fabric"] != "sim:ConnectX-3");
    }
    assert_eq!(column(&rows[..5], "verb"), ["read", "write", "cas", "faa", "message"]);
    assert_eq!(column(&rows[..5], "bytes"), ["64", "64", "8", "8", "64"]);
    // A large one needs larger buffers.
    let large = ["latency", "--fabric", "local,shm,tcp,sim:cx4", "--verb", "read,message", "--bytes", "4096,8"];
    let rows = json(&[&large[..], &["--millis", "2"]].concat());
    assert_eq!(rows.len(), 4 * 2 * 2);
    rows.iter().for_each(|row| assert_row(row, false));
}

#[test]
fn rates_have_the_fields_that_scripts_rely_on_on_every_fabric() {
    let many = ["--coroutines", "3", "--outstanding", "5", "--millis", "5", "--virtual-us", "20"];
    let arguments = ["rate", "--fabric", "local,shm,tcp,sim:cx3", "--verb", "read,cas,message", "--bytes", "1,2048"];
    let rows = json(&[&arguments[..], &many, &["--raw"]].concat());
    assert_eq!(rows.len(), 4 * 5, "atomics have one size");
    for row in &rows {
        assert_row(row, row["fabric"] != "sim:ConnectX-3");
        let published = row["simulated"] == true && row["verb"] == "read" && row["bytes"] == 2048;
        for field in ["published", "residual", "source"] {
            assert_eq!(row[field] != Value::Null, published, "{field} of {row}");
        }
        assert_eq!(row["events_per_s"].is_number(), row["simulated"] == true);
    }
}

#[test]
fn as_many_as_can_be_are_under_way_at_once() {
    let most = ["--coroutines", "64", "--outstanding", "64", "--verb", "read,message", "--millis", "2"];
    let rows = json(&[&["rate", "--fabric", "local,shm"][..], &most].concat());
    assert_eq!(rows.len(), 4);
    rows.iter().for_each(|row| assert_row(row, false));
}

#[test]
fn transactions_have_a_row_for_each_step_on_every_fabric() {
    let short = ["--ops", "4", "--bytes", "600", "--coroutines", "2", "--millis", "5", "--virtual-us", "20"];
    let rows = json(&[&["multi", "--fabric", "local,shm,tcp,sim:cx3", "--raw"][..], &short].concat());
    let [reads, writes] = [4, 5];
    assert_eq!(rows.len(), 4 * 2 * (reads + writes));
    for row in &rows {
        assert_row(row, row["simulated"] == false);
        assert_eq!(row["bytes"], 600);
        assert_eq!(row["gain"].is_number(), row["step"] != "base", "{row}");
        assert_eq!((&row["published"], &row["deviation"]), (&Value::Null, &Value::Null), "of other transactions");
    }
    let by_message = json(&[&["multi", "--verb", "message"][..], &short].concat());
    let steps = ["base", "coroutines", "outstanding", "doorbell"];
    assert_eq!(column(&by_message, "step"), [&steps[..], &steps, &["passive-ack"]].concat());
    assert_eq!(column(&by_message[..4], "workload"), ["reads"; 4]);
}

#[test]
fn connections_are_compared_with_one_of_them() {
    let rows = json(&["connections", "--fabric", "sim:cx3", "--connections", "8", "--virtual-us", "20"]);
    assert_eq!(rows.len(), 2 * 6);
    for pair in rows.chunks(2) {
        assert_eq!((&pair[0]["connections"], &pair[1]["connections"]), (&1.into(), &8.into()));
        assert_eq!(
            (&pair[0]["drop"], &pair[0]["simulated"], &pair[1]["simulated"]),
            (&Value::Null, &true.into(), &true.into())
        );
        let [one, many] = [0, 1].map(|at| pair[at]["per_s"].as_f64().expect("a rate"));
        let drop = pair[1]["drop"].as_f64().expect("a share");
        assert!((1.0 - many / one - drop).abs() < 1e-9, "{pair:?}");
    }
}

#[test]
fn the_same_seed_simulates_the_same() {
    let run = |seed| {
        let short = ["--verb", "read", "--virtual-us", "40", "--coroutines", "4", "--seed", seed];
        json(&[&["multi", "--fabric", "sim:cx3"][..], &short].concat())
    };
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7"), run("8"));
}

/// The residual of each input that a profile was calibrated from. The bounds are what is found, and
/// a little: one that grows is a model that has changed.
#[test]
fn the_residuals_of_the_calibration_are_what_the_documentation_says() {
    // Longer than it takes until a window of each stream of datagrams is under way.
    let rows = json(&["rate", "--fabric", "sim:cx3,sim:cx4", "--virtual-us", "400"]);
    let with_source = rows.iter().filter(|row| row["source"].is_string()).count();
    assert_eq!((rows.len(), with_source), (7, 7), "every input of both profiles");
    for row in &rows {
        let (published, per_s) = (row["published"].as_f64(), row["per_s"].as_f64());
        let ratio = per_s.zip(published).map(|(per_s, published)| per_s / published);
        let residual = row["residual"].as_f64().expect("a residual");
        assert!(ratio.is_some_and(|ratio| (ratio - 1.0 - residual).abs() < 1e-9), "{row}");
        // Calls cost more than was published: see `docs/figures.md`.
        let (low, high) = if row["verb"] == "message" { (-0.25, 0.0) } else { (-0.1, 0.1) };
        assert!((low..high).contains(&residual), "{row}");
    }
}

#[test]
fn what_is_simulated_says_so_in_tables_too() {
    for arguments in [
        &["latency", "--fabric", "sim:cx3", "--millis", "1"][..],
        &["rate", "--fabric", "sim:cx3", "--virtual-us", "10"],
        &["multi", "--fabric", "sim:cx3", "--virtual-us", "10", "--ops", "2"],
        &["connections", "--fabric", "sim:cx3", "--virtual-us", "10"],
    ] {
        let output = fabric(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let shown = String::from_utf8(output.stdout).expect("text");
        let rows = shown.lines().filter(|line| line.contains("sim:ConnectX-3"));
        assert!(rows.clone().count() >= 2 && rows.clone().all(|row| row.contains("(simulated)")), "{shown}");
    }
}

#[test]
fn charts_say_what_is_simulated() {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("fabric.svg");
    let name = file.to_str().expect("utf-8");
    let short = ["--virtual-us", "10", "--svg", name];
    for (arguments, caption) in [
        (&["latency", "--fabric", "sim:cx3", "--millis", "1", "--svg", name][..], "SIMULATED: nothing here"),
        (&["latency", "--fabric", "local,sim:cx3", "--raw", "--millis", "1", "--svg", name], "SIMULATED where"),
        (&["latency", "--verb", "read", "--millis", "1", "--svg", name], "measured on this machine"),
        (&[&["rate", "--fabric", "sim:cx3"][..], &short].concat(), "SIMULATED: nothing here"),
        (&[&["multi", "--fabric", "sim:cx3", "--ops", "2"][..], &short].concat(), "SIMULATED: nothing here"),
        (&[&["connections", "--fabric", "sim:cx3"][..], &short].concat(), "SIMULATED: nothing here"),
    ] {
        json(arguments);
        let svg = std::fs::read_to_string(&file).expect("a chart");
        assert!(svg.starts_with("<svg") && svg.contains(caption), "{arguments:?}");
        std::fs::remove_file(&file).expect("it was there");
    }
}

#[test]
fn wrong_usage_is_refused_and_says_why() {
    for (arguments, reason) in [
        (
            &["latency", "--fabric", "infiniband"][..],
            "one of local, shm, tcp, tcp-clear, verbs, sim:ConnectX-3, sim:ConnectX-4",
        ),
        (&["latency", "--fabric", "sim:abacus"], "one of local"),
        #[cfg(not(feature = "verbs"))]
        (&["rate", "--fabric", "verbs", "--raw"], "--features verbs"),
        (&["latency", "--fabric", "sim:cx3", "--raw"], "no floor"),
        (&["rate", "--fabric", "sim:cx3", "--raw"], "no floor"),
        (&["multi", "--fabric", "sim:cx3", "--raw"], "no floor"),
        (&["latency", "--bytes", "4097"], "4096"),
        (&["latency", "--verb", "fetch"], "possible values"),
        (&["rate", "--coroutines", "0"], "1..=64"),
        (&["rate", "--virtual-us", "0"], "1..=10000"),
        (&["multi", "--verb", "cas"], "--verb read,write,message"),
        (&["multi", "--bytes", "1025"], "1024"),
        (&["connections", "--fabric", "local"], "only a simulated NIC"),
        (&["connections", "--connections", "1"], "2..=64"),
    ] {
        let output = fabric(&[arguments, &["--json"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}: {said}");
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
}
