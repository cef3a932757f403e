//! The binary as scripts see it: one JSON value on stdout, stable fields, exit status.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

fn drtm_bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_drtm-bench"))
        .args(arguments)
        .env_remove("DRTM_HTM")
        .output()
        .expect("the binary starts")
}

/// Succeeds, and gives the one value on stdout.
fn json(arguments: &[&str]) -> Value {
    let output = drtm_bench(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

fn rows(value: &Value) -> &[Value] {
    value.as_array().expect("an array of rows")
}

/// A file of this test run's own, that is not there yet.
fn fresh(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    let _ = fs::remove_file(&path);
    path
}

fn assert_is_svg(path: &Path) {
    let svg = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(svg.starts_with("<svg") && svg.contains("SIMULATED"), "{}", path.display());
}

#[test]
fn the_probe_says_what_it_found_and_why_it_chose() {
    let found = json(&["htm", "probe", "--json"]);
    let engine = found["engine"].as_str().expect("a name");
    assert!(["rtm", "none"].contains(&engine), "never the emulation by itself");
    assert!(found["cpuid_rtm"].is_boolean() && found["always_abort"].is_boolean());
    assert!(found["trial_commits"].as_u64() <= found["trials"].as_u64());
    assert!(!found["reason"].as_str().expect("words").is_empty());
}

#[test]
fn the_probe_respects_the_override_and_refuses_a_wrong_one() {
    let probe = |engine| {
        Command::new(env!("CARGO_BIN_EXE_drtm-bench"))
            .args(["--json", "htm", "probe"])
            .env("DRTM_HTM", engine)
            .output()
            .expect("the binary starts")
    };
    let found: Value = serde_json::from_slice(&probe("emulated").stdout).expect("one value");
    assert_eq!(found["engine"], "emulated");
    assert_eq!(probe("warp-drive").status.code(), Some(2));
}

#[test]
fn limits_have_the_fields_that_scripts_rely_on() {
    let value = json(&[
        "htm",
        "limits",
        "--json",
        "--engine",
        "emulated",
        "--profile",
        "l1-48k-12",
        "--order",
        "seq",
        "--kind",
        "read-write",
        "--threads",
        "2",
        "--bytes-read",
        "4K,64K",
        "--bytes-written",
        "48K,49K",
        "--attempts",
        "20",
    ]);
    let rows = rows(&value);
    assert_eq!(rows.len(), 4, "every read with every write");
    for row in rows {
        for field in ["bytes_read", "bytes_written", "attempts", "aborts", "capacity", "conflict", "system"] {
            assert!(row[field].is_u64(), "{field} of {row}");
        }
        assert_eq!((&row["engine"], &row["profile"]), (&"emulated".into(), &"l1-48k-12".into()));
        assert_eq!((&row["order"], &row["kind"]), (&"seq".into(), &"read-write".into()));
        assert_eq!((row["threads"].as_u64(), row["attempts"].as_u64()), (Some(2), Some(40)));
        assert_eq!((&row["simulated"], &row["hyperthread"]), (&true.into(), &false.into()));
        assert_eq!(row["duration_us"], Value::Null);
        let overflows = row["bytes_written"].as_u64() > Some(48 << 10);
        assert_eq!(row["aborts"] == row["attempts"], overflows, "{row}");
    }
}

#[test]
fn durations_touch_no_memory() {
    let value = json(&["htm", "limits", "--duration-us", "1000,4000", "--json", "--attempts", "100"]);
    let rows = rows(&value);
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!((&row["bytes_read"], &row["bytes_written"]), (&0.into(), &0.into()));
        assert_eq!((&row["order"], &row["kind"]), (&Value::Null, &Value::Null));
    }
    assert_eq!((&rows[1]["duration_us"], &rows[1]["system"]), (&4000.into(), &100.into()));
}

#[test]
fn the_same_seed_gives_the_same_bytes_also_with_threads() {
    let run = |seed| {
        let arguments = ["htm", "limits", "--order", "random", "--bytes-written", "9K,14592", "--threads", "4"];
        let output = drtm_bench(&[&arguments[..], &["--attempts", "300", "--json", "--seed", seed]].concat());
        assert_eq!(output.status.code(), Some(0));
        output.stdout
    };
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7"), run("8"));
}

#[test]
fn a_figure_puts_the_published_values_beside_ours() {
    let value = json(&["paper", "dbx-fig1d", "--json"]);
    for row in rows(&value) {
        assert_eq!((&row["figure"], &row["series"]), (&"dbx-fig1d".into(), &"spin".into()));
        assert_eq!((&row["kind"], &row["x_unit"]), (&"simulated".into(), &"us".into()));
        let published = if row["x"] == 4000 { Value::from(1.0) } else { Value::Null };
        assert_eq!(row["published"], published, "{row}");
        assert_eq!(row["y"] == 1.0, row["x"].as_u64() >= Some(4000), "{row}");
    }
    assert!(rows(&value).iter().any(|row| row["x"] == 4000));
}

#[test]
fn tables_say_that_they_are_simulated_and_move_aside_for_json() {
    let table = drtm_bench(&["paper", "dbx-fig1d"]);
    let shown = String::from_utf8(table.stdout).expect("text");
    assert!(shown.contains("SIMULATED") && shown.contains("published") && shown.contains("4 ms"), "{shown}");
    let json = drtm_bench(&["paper", "dbx-fig1d", "--json"]);
    assert_eq!(String::from_utf8(json.stderr).expect("text"), shown);
}

#[test]
fn charts_go_to_the_file_or_the_directory_named() {
    let (file, directory) = (fresh("limits.svg"), fresh("figures"));
    let (file_name, directory_name) = (file.to_str().expect("utf-8"), directory.to_str().expect("utf-8"));
    let read_write = ["htm", "limits", "--kind", "read-write", "--bytes-read", "0,4K", "--bytes-written", "1K,2K"];
    json(&[&read_write[..], &["--attempts", "10", "--svg", file_name, "--json"]].concat());
    assert_is_svg(&file);
    json(&["paper", "dbx-fig1d", "--svg", directory_name, "--json"]);
    assert_is_svg(&directory.join("dbx-fig1d.svg"));
    json(&["paper", "dbx-fig1d", "--svg", file_name, "--json"]);
    assert_is_svg(&file);
    json(&["paper", "hades-storage", "--svg", directory_name, "--json"]);
    let bars = fs::read_to_string(directory.join("hades-storage.svg")).expect("a chart without a horizontal axis");
    assert_eq!(bars.matches("class=\"bar ").count(), 4, "{bars}");
}

#[test]
fn wrong_usage_is_told_apart_and_leaves_stdout_empty() {
    let limits = ["htm", "limits"];
    for wrong in [
        &["--engine", "warp-drive"][..],
        &["--profile", "l1-31k-7"],
        &["--order", "sideways"],
        &["--kind", "append"],
        &["--threads", "0"],
        &["--threads", "many"],
        &["--attempts", "0"],
        &["--bytes-written", "1.5K"],
        &["--bytes-written", ""],
        &["--kind", "read", "--bytes-written", "1K"],
        &["--kind", "write", "--bytes-read", "1K"],
        &["--duration-us", "0"],
        &["--duration-us", "10", "--bytes-written", "1K"],
        &["--threads", "256", "--kind", "read", "--bytes-read", "1G"],
        &["--attempts", "1", "--svg", "/no/such/directory/limits.svg"],
        &["--engine", "rtm", "--profile", "l1-32k-8"],
        &["--engine", "rtm", "--hyperthread"],
    ] {
        assert_wrong(&[&limits[..], wrong].concat());
    }
    for wrong in [
        &[][..],
        &["htm"],
        &["frobnicate"],
        &["paper"],
        &["paper", "dbx-fig99"],
        &["paper", "--all", "dbx-fig1d"],
        &["paper", "drtm-fig2", "--svg", "one.svg"],
        &["paper", "dbx-fig14", "--threads", "0"],
        &["paper", "dbx-fig14", "--quick", "--secs", "1"],
        &["htm", "working-set", "--workload", "ycsb"],
        &["htm", "working-set", "--engine", "rtm", "--profile", "l1-32k-8"],
        &["--seed", "minus-one", "htm", "probe"],
        &["history", "--workload", "bank"],
        &["history", "--threads", "0"],
        &["history", "--txns", "0"],
        &["history", "--nodes", "0"],
        &["history", "--txns", "10", "--out", "/no/such/directory/lists.edn"],
    ] {
        assert_wrong(wrong);
    }
}

fn assert_wrong(arguments: &[&str]) {
    let output = drtm_bench(&[arguments, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert!(!output.stderr.is_empty(), "{arguments:?}");
}

#[test]
fn rtm_is_measured_or_refused_with_what_was_found() {
    let usable = json(&["htm", "probe", "--json"])["engine"] == "rtm";
    let output = drtm_bench(&["htm", "limits", "--engine", "rtm", "--bytes-written", "1K", "--json"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    if usable {
        assert_eq!(output.status.code(), Some(0), "{errors}");
    } else {
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
        assert!(errors.contains("no usable RTM") && errors.contains("CPUID"), "{errors}");
    }
}

#[test]
fn every_level_of_help_has_examples() {
    let levels = [
        &["--help"][..],
        &["htm", "--help"],
        &["htm", "probe", "--help"],
        &["htm", "limits", "--help"],
        &["htm", "working-set", "--help"],
    ];
    for level in levels.into_iter().chain([
        &["paper", "--help"][..],
        &["tpcc", "--help"],
        &["smallbank", "--help"],
        &["tatp", "--help"],
        &["ycsb", "--help"],
        &["history", "--help"],
    ]) {
        let output = drtm_bench(level);
        assert_eq!(output.status.code(), Some(0), "{level:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("Examples:"), "{level:?}");
    }
    let help = drtm_bench(&["--help"]);
    let help = String::from_utf8_lossy(&help.stdout);
    assert!(help.contains("program `drtm`") && help.contains("--example tpcc"), "other programs: {help}");
}

#[test]
fn settings_of_workloads_that_cannot_be_are_refused_and_say_why() {
    let why = |workload: &str, arguments: &[&str]| {
        let output = drtm_bench(&[&[workload, "--json"], arguments].concat());
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (arguments, reason) in [
        (&["--durability", "sync"][..], "--path DIR"),
        (&["--path", "somewhere"], "--durability async or sync"),
        (&["--durability", "eventually"], "possible values"),
        (&["--durability", "async", "--path", "."], "name a directory that is empty"),
        (&["--fabric", "abacus"], "one of local"),
        (&["--protocol", "farm"], "several nodes"),
        (&["--engine", "warp-drive"], "possible values"),
        (&["--mix", "a"], "possible values"),
        (&["--engine", "limit"], "without isolation is no longer built"),
        (&["--warehouses", "0"], "1.."),
        (&["--remote-items", "101"], "100"),
        (&["--secs", "0"], "0.01"),
        (&["--secs", "1", "--transactions", "5"], "cannot be used with"),
        (&["--customers", "3001"], "3000"),
    ] {
        let said = why("tpcc", arguments);
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
    for (workload, arguments, reason) in [
        ("smallbank", &["--customers", "20"][..], "hot customers of 20"),
        ("smallbank", &["--customers", "1"], "2.."),
        ("smallbank", &["--engine", "limit", "--threads", "1"], "without isolation is no longer built"),
        ("history", &["--engine", "limit"], "without isolation is no longer built"),
        ("tatp", &["--engine", "limit"], "without isolation is no longer built"),
        ("ycsb", &["--engine", "limit"], "without isolation is no longer built"),
        ("tatp", &["--subscribers", "0"], "1.."),
        ("ycsb", &["--mix", "e", "--value-bytes", "100"], "scans are of"),
        ("ycsb", &["--mix", "x", "--dist", "latest"], "nothing is inserted"),
        ("ycsb", &["--mix", "x", "--ops", "16", "--records", "31"], "ask for 32"),
        ("ycsb", &["--mix", "x", "--ops", "17"], "16"),
        ("ycsb", &["--value-bytes", "104"], "100, 1000"),
    ] {
        let said = why(workload, arguments);
        assert!(said.contains(reason), "{workload} {arguments:?}: {said}");
    }
}

#[test]
fn a_workload_s_summary_is_for_people_unless_json_is_asked_for() {
    let output = drtm_bench(&["tpcc", "--customers", "30", "--items", "100", "--threads", "1", "--secs", "0.1"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let shown = String::from_utf8(output.stdout).expect("text");
    for part in [
        "tpcc, customers 30, items 100, mix standard, prefetch true, reads auto, remote_items 1",
        "warehouses 1, 1 thread",
        "read_reruns 0",
        "transactions/s",
        "p99.9",
        "every condition holds",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[test]
fn a_history_is_judged_and_written_with_every_invocation_and_completion() {
    for workload in ["list-append", "register", "predicate"] {
        let file = fresh(&format!("{workload}.edn"));
        let name = file.to_str().expect("utf-8");
        let arguments = ["history", "--workload", workload, "--threads", "3", "--txns", "700", "--seed", "5"];
        let verdict = json(&[&arguments[..], &["--engine", "none", "--out", name, "--json"]].concat());
        assert_eq!((&verdict["txns"], &verdict["anomalies"]), (&700.into(), &Value::Array(Vec::new())), "{verdict}");
        let count = |field: &str| verdict[field].as_u64().expect("a count");
        assert_eq!(count("committed") + count("aborted"), 700, "{verdict}");
        assert!(count("committed") > 350 && count("last_reads") > 0, "{verdict}");
        let written = fs::read_to_string(&file).expect("the file");
        let of_type =
            |kind: &str| written.lines().filter(|line| line.contains(&format!(":type :{kind},"))).count() as u64;
        let all = 700 + count("last_reads");
        assert_eq!((of_type("invoke"), of_type("ok") + of_type("fail")), (all, all));
        assert_eq!((of_type("fail"), written.lines().count() as u64), (count("aborted"), 2 * all));
        let indexed = written.lines().enumerate().all(|(at, line)| line.starts_with(&format!("{{:index {at}, ")));
        assert!(indexed && written.lines().all(|line| line.ends_with("]]}") && line.contains(":f :txn, :value [[:")));
    }
}

#[test]
fn a_history_without_json_is_told_to_people() {
    let output = drtm_bench(&["history", "--engine", "emulated", "--txns", "200", "--threads", "2"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let shown = String::from_utf8(output.stdout).expect("text");
    for part in ["list-append, 2 threads, engine emulated (SIMULATED)", "200 transactions: ", "strictly serializable"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}
