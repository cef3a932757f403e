//! Each workload on each engine: small, with two threads, and its conditions after the run.

use std::{fs, path::Path, process::Command};

use serde_json::Value;

/// Runs a workload to its end, and gives its report. What does not hold would be its exit status.
fn run(arguments: &[&str], engine: &str) -> Value {
    let threads = "2";
    let output = Command::new(env!("CARGO_BIN_EXE_drtm-bench"))
        .args(arguments)
        .args(["--engine", engine, "--threads", threads, "--memory", "4", "--json"])
        .env_remove("DRTM_HTM")
        .output()
        .expect("the binary starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?} on {engine}: {errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
    assert_eq!(report["consistency"], "ok", "{report}");
    assert_eq!(report["workload"], arguments[0]);
    assert_eq!(report["threads"].to_string(), threads);
    assert_eq!((&report["nodes"], &report["fabric"]), (&1.into(), &"local".into()));
    assert_eq!(report["simulated"], engine == "emulated");
    for field in ["seconds", "throughput"] {
        assert!(report[field].as_f64() > Some(0.0), "{field} of {report}");
    }
    report
}

/// On every engine that differs from the others here, with so many transactions in each thread.
fn run_everywhere(arguments: &[&str], transactions: u64, kinds: usize) {
    // Without RTM, `auto` is `none`.
    let auto = drtm_htm::Rtm::detect().is_ok().then_some("auto");
    for engine in ["none", "emulated"].into_iter().chain(auto) {
        let transactions = transactions.to_string();
        let report = run(&[arguments, &["--transactions", &transactions]].concat(), engine);
        assert_eq!(report["latency_us"].as_object().map(serde_json::Map::len), Some(kinds), "{report}");
        let of_user = report["aborts"]["user"].as_u64().expect("a count");
        let all = report["committed"].as_u64().expect("a count") + of_user;
        assert_eq!(all, report["threads"].as_u64().expect("a count") * transactions.parse::<u64>().expect("a number"));
    }
}

#[test]
fn tpcc() {
    let small = ["tpcc", "--customers", "60", "--items", "300"];
    run_everywhere(&[&small[..], &["--warehouses", "2"]].concat(), 2_000, 5);
    // Both threads in one warehouse: most transactions meet.
    let report = run(&[&small[..], &["--warehouses", "1", "--transactions", "4000"]].concat(), "none");
    assert!(
        (10..=90).contains(&report["aborts"]["user"].as_u64().expect("a count")),
        "about one order of 100, of which there are 3600: {report}"
    );
    // Long reads in each of the ways that there are, of which one is never refused.
    for reads in ["auto", "snapshot", "validated"] {
        let half = ["--warehouses", "1", "--mix", "stock-level-half", "--reads", reads, "--transactions", "2000"];
        let report = run(&[&small[..], &half].concat(), "none");
        assert_eq!(
            (&report["reads"], report["latency_us"].as_object().map(serde_json::Map::len)),
            (&reads.into(), Some(2))
        );
        let reruns = report["read_reruns"].as_u64().expect("a count");
        assert!(reads != "snapshot" || reruns == 0, "{report}");
    }
    // The plain form, and what prefetching adds.
    let plain = ["--warehouses", "2", "--prefetch", "no", "--transactions", "500"];
    assert_eq!(run(&[&small[..], &plain].concat(), "none")["prefetch"], false);
    let both = ["--warehouses", "2", "--prefetch", "both", "--transactions", "500", "--threads", "1"];
    let output = Command::new(env!("CARGO_BIN_EXE_drtm-bench")).args(small).args(both).output().expect("it starts");
    let text = String::from_utf8(output.stdout).expect("text");
    let forms: Vec<_> = ["prefetch false", "prefetch true"].map(|form| text.matches(form).count()).into();
    assert!(output.status.success() && forms == [1, 1] && text.contains("\nprefetching: "), "{text}");
    // All lines from elsewhere.
    run(
        &[&small[..], &["--warehouses", "2", "--remote-items", "100", "--mix", "new-order", "--secs", "0.2"]].concat(),
        "none",
    );
}

/// Runs a workload with a log, whose database is closed, opened again and checked again, and gives
/// its report.
fn run_with_a_log(arguments: &[&str], durability: &str) -> Value {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
        "log-{}-{durability}-{}",
        arguments[0],
        std::process::id()
    ));
    let _ = fs::remove_dir_all(&directory);
    let path = directory.to_str().expect("a name in Unicode");
    let report = run(&[arguments, &["--durability", durability, "--path", path]].concat(), "none");
    assert_eq!(report["durability"], durability);
    for field in ["log_bytes_per_transaction", "log_bytes_per_s", "log_syncs_per_s", "recovery_s"] {
        assert!(report[field].as_f64() > Some(0.0), "{field} of {report}");
    }
    let bytes: u64 = fs::read_dir(&directory)
        .expect("the log is left")
        .map(|entry| entry.and_then(|entry| entry.metadata()).expect("a file").len())
        .sum();
    // Segments' space is given back, and the lock's file has a line.
    let logged = report["recovery_log_bytes"].as_u64().expect("a count");
    assert!((logged..logged + 1_000).contains(&bytes), "{bytes} bytes of {report}");
    fs::remove_dir_all(&directory).expect("it is there");
    report
}

#[test]
fn workloads_with_a_log_hold_when_they_are_opened_again() {
    for (arguments, rows) in [
        (&["tpcc", "--customers", "60", "--items", "300", "--warehouses", "1", "--transactions", "300"][..], 8_000),
        (&["smallbank", "--customers", "200", "--transactions", "300"], 400),
        (&["tatp", "--subscribers", "300", "--transactions", "300"], 1_000),
        (&["ycsb", "--mix", "a", "--records", "500", "--transactions", "300"], 500),
        (&["ycsb", "--mix", "d", "--records", "500", "--transactions", "300"], 500),
    ] {
        for durability in ["async", "sync"] {
            let report = run_with_a_log(arguments, durability);
            assert!(report["recovery_rows"].as_u64() >= Some(rows), "{report}");
        }
    }
    assert_eq!(
        run(&["smallbank", "--customers", "200", "--transactions", "10"], "none")["log_bytes_per_s"],
        Value::Null
    );
}

#[test]
fn smallbank() {
    run_everywhere(&["smallbank", "--customers", "200"], 5_000, 6);
    // Few customers, all of them hot or cold: transactions meet all the time.
    let report = run(&["smallbank", "--customers", "100", "--transactions", "50000"], "none");
    assert!(report["aborts"]["user"].as_u64() > Some(0), "an account has nothing left: {report}");
    run(&["smallbank", "--customers", "2000", "--hot", "alomari", "--secs", "0.1"], "auto");
    run(&["smallbank", "--customers", "2", "--hot", "none", "--secs", "0.1"], "none");
}

#[test]
fn tatp() {
    run_everywhere(&["tatp", "--subscribers", "300"], 5_000, 7);
    run(&["tatp", "--subscribers", "5", "--choice", "uniform", "--transactions", "50000"], "none");
}

#[test]
fn ycsb() {
    for (mix, kinds) in [("a", 2), ("b", 2), ("c", 1), ("d", 2), ("e", 2), ("f", 2), ("x", 1)] {
        let transactions = if mix == "e" { 300 } else { 2_000 };
        run_everywhere(&["ycsb", "--mix", mix, "--records", "500"], transactions, kinds);
    }
    let contended = ["ycsb", "--mix", "x", "--records", "40", "--ops", "16", "--reads", "50", "--transactions", "5000"];
    let report = run(&contended, "none");
    assert_eq!((&report["ops"], &report["value_bytes"], &report["table"]), (&16.into(), &100.into(), &"hash".into()));
    let small = ["ycsb", "--mix", "f", "--value-bytes", "100", "--dist", "uniform", "--records", "100"];
    let report = run(&[&small[..], &["--secs", "0.1"]].concat(), "none");
    assert_eq!((&report["dist"], &report["value_bytes"]), (&"uniform".into(), &100.into()));
}
