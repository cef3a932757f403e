//! Workloads on several nodes, by the commands that scripts use, on every fabric: small, and their
//! conditions after the run.

use std::process::Command;

use drtm_txn::cluster::Protocol;
use serde_json::Value;

fn run(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_drtm-bench"))
        .args(arguments)
        .args(["--memory", "4", "--json"])
        .output()
        .expect("the binary starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

const ALL: &[&str] = &["local", "shm", "tcp", "sim:ConnectX-4"];
const PROCESSES: &[&str] = &["shm", "tcp"];

/// Runs a workload on three nodes of each of these fabrics, with so many transactions in each
/// thread.
fn run_on(fabrics: &[&str], arguments: &[&str], transactions: u64, kinds: usize) {
    for &fabric in fabrics {
        let count = transactions.to_string();
        let report =
            run(&[arguments, &["--nodes", "3", "--fabric", fabric, "--coroutines", "4", "--transactions", &count]]
                .concat());
        assert_eq!((&report["consistency"], &report["workload"]), (&"ok".into(), &arguments[0].into()), "{report}");
        assert_eq!((&report["nodes"], &report["fabric"]), (&3.into(), &fabric.into()));
        assert_eq!((&report["coroutines"], &report["simulated"]), (&4.into(), &fabric.starts_with("sim:").into()));
        assert_eq!(report["latency_us"].as_object().map(serde_json::Map::len), Some(kinds), "{report}");
        let of_user = report["aborts"]["user"].as_u64().expect("a count");
        let workers = 3 * report["threads"].as_u64().expect("a count");
        assert_eq!(report["committed"].as_u64().expect("a count") + of_user, workers * transactions, "{report}");
        assert_eq!(report["cpu_us"].as_f64().is_some_and(|cpu| cpu > 0.0), !fabric.starts_with("sim:"), "{report}");
        for field in ["round_trips", "messages", "bytes", "wait_us"] {
            let of = |phase: &Value| phase[field].as_f64().expect("a number");
            let phases: f64 = report["per_phase"].as_object().expect("phases").values().map(of).sum();
            let all = of(&report["per_transaction"]);
            assert!((all - phases).abs() < 1e-6, "{field} of {report}");
            // Some protocols need no messages.
            assert!(all > 0.5 || field == "messages", "{field} of {report}");
        }
    }
}

/// Runs a simulation for a window of virtual time, twice: a run is a function of the seed.
fn simulate(arguments: &[&str]) {
    let run = |seed| {
        let window = ["--nodes", "4", "--fabric", "sim:cx3", "--virtual-us", "300", "--warm-us", "100", "--seed", seed];
        let mut report = run(&[arguments, &window].concat());
        assert_eq!((&report["simulated"], &report["seconds"]), (&true.into(), &0.0003.into()), "{report}");
        // Of this machine.
        report.as_object_mut().expect("fields").remove("max_rss_mib");
        report
    };
    assert_eq!(run("5"), run("5"));
    assert_ne!(run("5"), run("6"));
}

#[test]
fn smallbank() {
    run_on(ALL, &["smallbank", "--customers", "200"], 200, 6);
    run_on(&["tcp"], &["smallbank", "--customers", "50", "--hot", "none", "--threads", "2"], 100, 6);
    simulate(&["smallbank", "--customers", "100"]);
    run_on(&["shm"], &["smallbank", "--customers", "200", "--protocol", "drtm+h"], 200, 6);
    run_on(&["shm"], &["smallbank", "--customers", "200", "--protocol", "drtm"], 200, 6);
    run_on(&["shm"], &["smallbank", "--customers", "200", "--protocol", "drtm+r"], 200, 6);
}

#[test]
fn tpcc() {
    let small = ["tpcc", "--customers", "20", "--items", "100"];
    run_on(ALL, &[&small[..], &["--warehouses", "4", "--threads", "2"]].concat(), 60, 5);
    let all_remote = ["--remote-items", "100", "--remote-payments", "100", "--protocol", "drtm+h"];
    run_on(PROCESSES, &[&small[..], &all_remote].concat(), 120, 5);
    let fetched = ["--protocol", "drtm", "--warehouses", "4"];
    run_on(PROCESSES, &[&small[..], &fetched].concat(), 120, 5);
    let all_remote = ["--remote-items", "100", "--remote-payments", "100"];
    run_on(&["shm"], &[&small[..], &fetched, &all_remote].concat(), 120, 5);
    simulate(&[&small[..], &fetched].concat());
    simulate(&[&small[..], &["--mix", "new-order", "--remote-items", "30"]].concat());
    let report = run(&[&small[..], &["--nodes", "2", "--transactions", "10"]].concat());
    let is = |field: &str, value: Value| assert_eq!(report[field], value, "{field} of {report}");
    is("customers", 20.into());
    is("items", 100.into());
    is("scaled_down", true.into());
    is("remote_payments", 15.into());
    is("mix", "standard".into());
}

#[test]
fn tatp() {
    run_on(ALL, &["tatp", "--subscribers", "100"], 400, 7);
    run_on(&["shm"], &["tatp", "--subscribers", "100", "--protocol", "drtm"], 400, 7);
}

#[test]
fn customer_positions() {
    let small = ["tpce-cp", "--customers", "300", "--protocol", "drtm-occ"];
    run_on(ALL, &[&small[..], &["--feeds", "20"]].concat(), 40, 2);
    let fetched = ["tpce-cp", "--customers", "300", "--feeds", "20", "--protocol", "drtm"];
    run_on(&["shm"], &fetched, 40, 2);
    let report = run(&[&small[..], &["--transactions", "40"]].concat());
    assert_eq!((&report["nodes"], &report["securities"], &report["feeds"]), (&1.into(), &205.into(), &0.into()));
}

#[test]
fn core_workloads_of_ycsb() {
    let small = ["ycsb", "--records", "1000"];
    run_on(PROCESSES, &[&small[..], &["--mix", "a"]].concat(), 100, 2);
    run_on(ALL, &[&small[..], &["--mix", "e", "--protocol", "drtm-occ"]].concat(), 100, 2);
    run_on(&["shm"], &[&small[..], &["--mix", "e", "--protocol", "drtm"]].concat(), 50, 2);
    for mix in ["b", "c", "d", "f"] {
        let on_nodes = ["--mix", mix, "--value-bytes", "100", "--nodes", "2", "--transactions", "200"];
        let report = run(&[&small[..], &on_nodes].concat());
        assert_eq!((&report["mix"], &report["consistency"]), (&mix.into(), &"ok".into()), "{report}");
    }
}

#[test]
fn transactions_of_ycsb() {
    let small = ["ycsb", "--mix", "x", "--records", "1000", "--reads", "50"];
    run_on(ALL, &small, 100, 1);
    run_on(&["tcp"], &[&small[..], &["--ops", "16", "--protocol", "farm"]].concat(), 20, 1);
}

#[test]
fn histories() {
    for (fabric, workload) in [("local", "register"), ("tcp", "predicate"), ("tcp", "register"), ("sim", "predicate")] {
        is_strictly_serializable(&["--workload", workload, "--fabric", fabric], 300);
    }
}

#[test]
fn histories_of_processes_in_every_protocol() {
    for protocol in Protocol::ALL.into_iter().chain([Protocol::DRTM]) {
        for (seed, workload) in [("1", "predicate"), ("2", "list-append")] {
            let name = protocol.name;
            let report = is_strictly_serializable(
                &["--fabric", "shm", "--workload", workload, "--seed", seed, "--protocol", name],
                90,
            );
            assert_eq!(report["protocol"], name);
        }
    }
}

/// Runs so many random transactions on three nodes, which the command judges.
fn is_strictly_serializable(arguments: &[&str], transactions: u64) -> Value {
    let count = transactions.to_string();
    let report = run_history(&[arguments, &["--nodes", "3", "--coroutines", "4", "--txns", &count]].concat());
    assert_eq!(report["anomalies"], Value::Array(vec![]), "{report}");
    assert_eq!((&report["nodes"], &report["coroutines"]), (&3.into(), &4.into()));
    assert_eq!(report["simulated"], arguments.contains(&"sim"));
    assert!(report["txns"].as_u64() >= Some(transactions), "{report}");
    // Transactions that scan make each other fail, and are given up after a while.
    assert!(report["committed"].as_u64() > Some(transactions / 3), "{report}");
    report
}

/// Runs random transactions, and looks at the file that they leave.
fn run_history(arguments: &[&str]) -> Value {
    let name = format!("cluster-{}-{}.edn", std::process::id(), arguments.join(""));
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let output = Command::new(env!("CARGO_BIN_EXE_drtm-bench"))
        .arg("history")
        .args(arguments)
        .args(["--json", "--out"])
        .arg(&file)
        .output()
        .expect("the binary starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {errors}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    let written = std::fs::read_to_string(&file).expect("a file");
    let all = report["txns"].as_u64().expect("a count") + report["last_reads"].as_u64().expect("a count");
    assert_eq!(written.lines().count() as u64, 2 * all, "an invocation and a completion of each");
    std::fs::remove_file(&file).expect("it was there");
    report
}

#[test]
fn nodes_whose_memory_is_full_say_so() {
    for fabric in PROCESSES {
        // A third of a GiB for each node, and 400 MB of values.
        let output = Command::new(env!("CARGO_BIN_EXE_drtm-bench"))
            .args(["ycsb", "--nodes", "3", "--fabric", fabric, "--memory", "1"])
            .args(["--mix", "x", "--records", "1200000", "--value-bytes", "1000"])
            .output()
            .expect("the binary starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains("memory is full"), "{errors}");
    }
}

#[test]
fn what_a_cluster_cannot_do_is_refused_and_says_why() {
    for (arguments, reason) in [
        (&["smallbank", "--nodes", "2", "--engine", "emulated"][..], "no hardware transactions"),
        (&["smallbank", "--nodes", "2", "--durability", "async", "--path", "logs"], "no logs yet"),
        (&["smallbank", "--nodes", "65"], "1..=64"),
        (&["smallbank", "--fabric", "sim:abacus"], "one of local"),
        (&["smallbank", "--coroutines", "0"], "1..=128"),
        (&["tpcc", "--nodes", "2", "--reads", "snapshot"], "they validate what is read"),
        (&["tpcc", "--mix", "new-order", "--nodes", "3", "--warehouses", "2"], "one warehouse at least"),
        (&["history", "--fabric", "sim", "--engine", "emulated"], "no hardware transactions"),
        (&["smallbank", "--protocol", "farm"], "on several nodes"),
        (&["smallbank", "--nodes", "2", "--protocol", "dbx"], "possible values"),
        (&["ycsb", "--mix", "e", "--fabric", "sim", "--value-bytes", "100"], "the core package's 1000"),
    ] {
        let command = Command::new(env!("CARGO_BIN_EXE_drtm-bench")).args(arguments).arg("--json").output();
        let output = command.expect("the binary starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}: {said}");
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
}

#[test]
fn what_is_simulated_says_so_in_the_table_too() {
    let arguments = ["smallbank", "--customers", "100", "--nodes", "2", "--fabric", "sim", "--virtual-us", "100"];
    let output = Command::new(env!("CARGO_BIN_EXE_drtm-bench")).args(arguments).output().expect("the binary starts");
    let shown = String::from_utf8(output.stdout).expect("text");
    assert!(shown.contains("SIMULATED: nothing here was measured"), "{shown}");
    assert!(shown.contains("of virtual time (simulated)"), "{shown}");
}
