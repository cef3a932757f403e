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
    let is_there = ["exact", "simulated", "measured"].contains(&row["kind"].as_str().expect("a kind"));
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

/// The series of a panel, and whether each has values.
fn series(rows: &[Value], panel: &str) -> Vec<(String, bool)> {
    let mut series: Vec<_> = rows
        .iter()
        .filter(|row| row["figure"] == panel)
        .map(|row| (row["series"].as_str().expect("a name").to_owned(), row["y"].is_f64()))
        .collect();
    series.sort();
    series.dedup_by(|later, earlier| {
        later.0 == earlier.0 && {
            earlier.1 |= later.1;
            true
        }
    });
    series
}

/// Whether this machine's regions commit.
fn has_rtm() -> bool {
    drtm_htm::Rtm::detect().is_ok()
}

#[test]
fn what_is_not_ours_or_not_here_has_a_reason_and_no_value() {
    let rows = rows("dbx-fig5");
    let expected = [
        ("DBX'", false),
        ("Silo", false),
        ("Silo-Masstree", false),
        ("commits in RTM", has_rtm()),
        ("record locks", true),
    ];
    assert_eq!(series(&rows, "dbx-fig5"), expected.map(|(name, is_here)| (name.to_owned(), is_here)));
    assert_eq!(points(&rows, "dbx-fig5", "record locks").len(), 2);
    let masstree: Vec<_> = rows.iter().filter(|row| row["series"] == "Silo-Masstree").collect();
    assert_eq!(
        masstree.iter().map(|row| row["published"].as_f64()).collect::<Vec<_>>(),
        [Some(78_816.0), Some(314_684.0)]
    );
}

#[test]
fn threads_go_beyond_the_processors() {
    let rows = rows("dbx-fig8");
    let threads: Vec<u64> = points(&rows, "dbx-fig8", "record locks").iter().map(|(threads, _)| *threads).collect();
    assert_eq!(threads, [1, 2, 4, 8]);
}

#[test]
fn regions_that_commit_are_simulated_unless_asked_for() {
    let rows = rows("dbx-fig9");
    for panel in ["dbx-fig9a", "dbx-fig9b"] {
        let rates = points(&rows, panel, "commits in RTM");
        assert!(rates.len() == 2 && rates.iter().all(|(_, rate)| (0.0..0.5).contains(rate)), "{rates:?}");
    }
    assert!(rows.iter().filter(|row| row["y"].is_f64()).all(|row| row["kind"] == "simulated"));
}

#[test]
fn whole_transactions_do_not_fit_into_regions_and_commits_do() {
    let rows = rows("dbx-fig10");
    assert_eq!(points(&rows, "dbx-fig10b", "one lock"), [(1, 1.0), (2, 1.0)], "always");
    let simulated = points(&rows, "dbx-fig10b", "whole, simulated");
    let [(1, alone), (8, halved)] = simulated[..] else { panic!("{simulated:?}") };
    assert!(0.0 < alone && alone <= halved && halved < 1.0, "{simulated:?}");
    assert_eq!(points(&rows, "dbx-fig10a", "whole in RTM").len(), if has_rtm() { 2 } else { 0 });
}

#[test]
fn working_sets_are_beside_the_published_ones() {
    let rows = rows("drtm-tab1");
    for panel in ["drtm-tab1a", "drtm-tab1b"] {
        let of_panel: Vec<_> = rows.iter().filter(|row| row["figure"] == panel).collect();
        assert_eq!(of_panel.len(), 11, "six transactions, and five");
        assert!(of_panel.iter().all(|row| row["published"].is_f64() && row["x"].is_null()), "{of_panel:?}");
    }
    let only = |panel, series| points(&rows, panel, series)[0].1;
    assert!(only("drtm-tab1a", "stock-level") > only("drtm-tab1a", "new-order"));
    assert!(only("drtm-tab1a", "new-order") > only("drtm-tab1a", "payment"));
    // A line that says that the thread is inside.
    assert_eq!((only("drtm-tab1b", "stock-level"), only("drtm-tab1b", "balance")), (64.0, 64.0), "they only read");
    assert_eq!(only("drtm-tab1c", "amalgamate"), 0.0);
    // Some fit: those of short orders. How many depends on the cache set of the line that the
    // thread writes, which is where the heap has put it.
    let too_large = only("drtm-tab1c", "stock-level");
    assert!(0.1 < too_large && too_large <= 1.0, "{too_large}");
}

#[test]
fn working_sets_have_the_fields_that_scripts_rely_on() {
    let output = Command::new(env!("CARGO_BIN_EXE_drtm-bench"))
        .args(["htm", "working-set", "--workload", "smallbank", "--transactions", "500", "--json"])
        .output()
        .expect("the binary starts");
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("rows");
    assert_eq!((output.status.code(), rows.len()), (Some(0), 6));
    for row in rows {
        assert!(row["transaction"].is_string() && row["simulated"] == true, "{row}");
        assert!(row["read_bytes"].as_f64() > Some(64.0) && row["write_bytes"].is_f64(), "{row}");
        assert_eq!((row["fallback_rate"].as_f64(), row["capacity_share"].is_null()), (Some(0.0), true), "{row}");
    }
}

/// A simulation has the same result each time.
#[test]
fn forms_that_are_chosen_are_not_the_worst() {
    for panel in ["auto-cx3b", "auto-cx4b"] {
        let rows = rows(panel);
        let rate = |series: &str| points(&rows, panel, series)[0].1;
        let fixed = ["fasst", "farm", "drtm-occ", "drtm+h"].map(rate);
        let worst = fixed.into_iter().fold(f64::INFINITY, f64::min);
        assert!(rate("auto") > worst, "{panel}: {}, and {fixed:?}", rate("auto"));
    }
}

#[test]
fn a_constant_of_a_simulated_cluster_can_be_varied() {
    let rates = |vary: &[&str]| {
        let command = ["paper", "drtmh-fig10b", "--quick", "--json", "--coroutines", "1"];
        let output =
            Command::new(env!("CARGO_BIN_EXE_drtm-bench")).args(command).args(vary).output().expect("it starts");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("rows");
        points(&rows, "drtmh-fig10b", "one-sided")
    };
    let (plain, slow) = (rates(&[]), rates(&["--vary", "wire=4"]));
    assert_eq!((plain.len(), plain[0].0, slow[0].0), (1, 1, 1));
    assert!(2.0 * slow[0].1 < plain[0].1, "{plain:?}, {slow:?}");
    let wrong = |vary: &str| {
        let command = ["paper", "drtmh-fig10b", "--quick", "--vary", vary];
        let output = Command::new(env!("CARGO_BIN_EXE_drtm-bench")).args(command).output().expect("it starts");
        output.status.code()
    };
    assert_eq!(["colour=2", "wire", "wire=-1"].map(wrong), [Some(2); 3]);
}

/// Runs a figure of simulated clusters by one coroutine, and returns what it has printed.
fn simulated(arguments: &[&str]) -> std::process::Output {
    let command = ["paper", "drtmh-fig14b", "--quick", "--json", "--coroutines", "1"];
    let output =
        Command::new(env!("CARGO_BIN_EXE_drtm-bench")).args(command).args(arguments).output().expect("it starts");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn several_seeds_give_a_median_and_what_it_lies_between() {
    let rows =
        |arguments: &[&str]| -> Vec<Value> { serde_json::from_slice(&simulated(arguments).stdout).expect("rows") };
    let of_seed = |seed: &str| points(&rows(&["--seed", seed]), "drtmh-fig14b", "FaRM")[0].1;
    let mut alone = ["7", "8", "9"].map(of_seed);
    alone.sort_by(f64::total_cmp);
    let together = rows(&["--seed", "7", "--seeds", "3"]);
    let row = together.iter().find(|row| row["series"] == "FaRM").expect("a row");
    assert_eq!(["least", "y", "most"].map(|key| row[key].as_f64()), alone.map(Some));
    assert!(alone[0] < alone[2], "{alone:?}");
    assert!(rows(&[]).iter().all(|row| row.get("least").is_none()), "one seed lies between nothing");
}

#[test]
fn the_filters_of_hades_are_as_false_as_theory_says() {
    let rows = rows("hades-tab4");
    for (panel, tolerance) in [("hades-tab4a", 0.2), ("hades-tab4b", 0.1)] {
        let [theory, simulated] = ["theory", "simulated"].map(|series| points(&rows, panel, series));
        assert_eq!(theory.iter().map(|(lines, _)| *lines).collect::<Vec<_>>(), [10, 20, 50, 100]);
        for ((_, expected), (_, found)) in theory.into_iter().zip(simulated) {
            assert!((expected - found).abs() < tolerance, "{panel}: {expected} % and {found} %");
        }
    }
    assert!(rows.iter().all(|row| row["published"].is_f64()));
    let kinds = rows.iter().filter(|row| row["series"] == "simulated").map(|row| &row["kind"]);
    assert!(kinds.eq([&Value::from("simulated"); 8]));
}

#[test]
fn the_storage_of_hades_is_as_published() {
    for (figure, digits) in [("hades-storage", 10.0), ("hades-tags", 1.0)] {
        for row in rows(figure) {
            let [found, published] = ["y", "published"].map(|key| row[key].as_f64().expect("a number"));
            assert_eq!((found * digits).round() / digits, published, "{row}");
        }
    }
    assert!(rows("hades-speed").iter().all(|row| row["y"].as_f64().is_some_and(|rate| rate > 0.0)));
}

#[test]
fn pieces_fit_more_often_than_whole_transactions() {
    let rows = rows("drtm-s82");
    let only = |panel, series| points(&rows, panel, series)[0].1;
    for (transaction, of_pieces, of_largest) in
        [("new-order", 0.006, 0.054), ("payment", 0.001, 0.001), ("delivery", 0.018, 0.214)]
    {
        let (pieces, largest) = (only("drtm-s82a", transaction), only("drtm-s82b", transaction));
        assert!(pieces <= largest && largest <= 1.0, "{transaction}: {pieces}, {largest}");
        for (panel, published) in [("drtm-s82a", of_pieces), ("drtm-s82b", of_largest)] {
            let row = rows.iter().find(|row| row["figure"] == panel && row["series"] == transaction).expect("a row");
            assert_eq!((row["published"].as_f64(), &row["kind"]), (Some(published), &"simulated".into()));
        }
    }
    assert_eq!(only("drtm-s82b", "payment"), 0.0);
    let (pieces, whole) = (only("drtm-s82c", "in pieces"), only("drtm-s82c", "whole"));
    assert!(pieces < whole, "{pieces}, {whole}");
    assert!((only("drtm-s82d", "all transactions") - pieces / whole).abs() < 1e-9);
}

#[test]
fn one_node_by_threads_has_what_is_here_and_reasons_for_what_is_not() {
    let rows = rows("drtm-fig15");
    for (panel, here, published) in [
        ("drtm-fig15a", &["DrTM: emulated", "DrTM: record locks", "DBX: emulated", "record locks"][..], 0),
        ("drtm-fig15c", &["DBX: emulated", "record locks"], 0),
        ("drtm-fig15b", &["emulated, over DBX, least", "record locks, over whole, most"], 4),
        ("drtm-fig15d", &[], 4),
    ] {
        let found = series(&rows, panel);
        for name in here {
            assert!(found.contains(&((*name).to_owned(), true)), "{panel}: no {name} in {found:?}");
        }
        let in_rtm = found.iter().filter(|(name, _)| name.contains("RTM"));
        assert!(in_rtm.clone().count() >= 2 && in_rtm.clone().all(|(_, is_here)| *is_here == has_rtm()), "{found:?}");
        assert!(found.iter().filter(|(name, _)| name.contains("Silo")).all(|(_, is_here)| !is_here), "{found:?}");
        let of_panel = rows.iter().filter(|row| row["figure"] == panel);
        assert_eq!(of_panel.filter(|row| row["published"].is_f64()).count(), published, "{panel}");
    }
    let of = |panel: &'static str| rows.iter().filter(move |row| row["figure"] == panel);
    assert!(of("drtm-fig15a").filter(|row| row["series"] == "DBX: emulated").all(|row| row["kind"] == "simulated"));
}

#[test]
fn a_log_is_beside_what_is_published_of_it() {
    let rows = rows("dbx-fig16");
    for series in ["no log", "commits that do not wait", "commits that wait"] {
        let rates = points(&rows, "dbx-fig16a", series);
        assert_eq!(rates.iter().map(|(threads, _)| *threads).collect::<Vec<_>>(), [1, 2]);
        assert!(rates.iter().all(|(_, rate)| *rate > 0.0), "{rates:?}");
    }
    let beside = rows.iter().find(|row| row["figure"] == "dbx-fig16b" && row["series"] == "Silo-Masstree");
    let beside = beside.expect("it is listed");
    assert_eq!((beside["published"].as_f64(), &beside["kind"]), (Some(1.3), &"unavailable".into()));
    let rows = self::rows("dbx-fig17");
    let only = |series| points(&rows, "dbx-fig17b", series)[0].1;
    let (least, most) = (only("commits that wait, least"), only("commits that wait, most"));
    assert!(0.0 < least && least <= most, "{least}, {most}");
    let published = rows.iter().filter(|row| row["figure"] == "dbx-fig17b").map(|row| row["published"].as_f64());
    assert_eq!(published.collect::<Vec<_>>(), [38_000.0, 63_000.0, 117_000.0, 480_000.0].map(Some));
}

#[test]
fn silo_is_beside_ours_where_its_program_is_given() {
    let directory = std::env::temp_dir().join(format!("drtm-dbtest-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("space");
    let program = directory.join("dbtest");
    std::fs::write(&program, "#!/bin/sh\necho 1000 900 0.01 120.5 0\n").expect("space");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("it is ours");
    let output = Command::new(env!("CARGO_BIN_EXE_drtm-bench"))
        .args(["paper", "dbx-fig17", "--quick", "--json", "--threads", "1", "--silo"])
        .arg(&program)
        .output()
        .expect("the binary starts");
    std::fs::remove_dir_all(&directory).expect("it is there");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("rows");
    let [(1, mean)] = points(&rows, "dbx-fig17a", "Silo-Masstree")[..] else { panic!("{rows:?}") };
    assert!((mean / 120_500.0 - 1.0).abs() < 0.02, "{mean} us");
    let row = rows.iter().find(|row| row["series"] == "Silo-Masstree, most").expect("a row");
    assert_eq!((row["published"].as_f64(), &row["kind"]), (Some(480_000.0), &"measured".into()));
}

#[test]
fn chopped_transactions_are_beside_whole_ones_by_threads_that_conflict() {
    let rows = rows("chopped-w1");
    for mix in ["payment", "new-order and delivery", "standard mix"] {
        let rate = |form| points(&rows, "chopped-w1a", &format!("{mix}, {form}"));
        let (whole, chopped, gain) = (rate("whole"), rate("chopped"), points(&rows, "chopped-w1b", mix));
        assert_eq!((whole.len(), chopped.len(), gain.len()), (2, 2, 2), "{mix}");
        for place in 0..2 {
            assert!((gain[place].1 - chopped[place].1 / whole[place].1).abs() < 1e-9, "{mix}: {gain:?}");
        }
    }
}

#[test]
fn a_crash_is_seen_in_throughput_and_repaired() {
    let rows = rows("drtm-recovery");
    assert!(rows.iter().all(|row| row["kind"] == "simulated"), "{rows:?}");
    let panel = "drtm-recovery";
    let throughput = points(&rows, panel, "throughput");
    assert!(throughput.iter().zip(0..).all(|((us, _), bucket)| *us == 1_000 * bucket), "{throughput:?}");
    let marks = ["crash", "new view", "repaired"].map(|series| points(&rows, panel, series)[0].0);
    assert!(marks.is_sorted() && marks[0] > 0, "{marks:?}");
    let rate = |from: u64, to: u64| -> f64 {
        let within = throughput.iter().filter(|(us, _)| (from..to).contains(us)).map(|(_, rate)| *rate);
        within.clone().sum::<f64>() / within.count() as f64
    };
    let last = throughput.last().expect("buckets").0;
    let [before, meanwhile, after] =
        [rate(0, marks[0] - 1_000), rate(marks[0] + 1_000, marks[1]), rate(last - 2_000, last)];
    assert!(meanwhile < before / 2.0 && after > before / 2.0, "{before}, {meanwhile}, {after}: {throughput:?}");
    let times = |series| points(&rows, "drtm-recovery-times", series)[0].1;
    assert!(0.0 < times("p50") && times("p50") <= times("p99"), "{rows:?}");
    let published = rows.iter().filter(|row| row["published"].is_f64()).map(|row| row["published"].as_f64());
    assert_eq!(published.collect::<Vec<_>>(), [Some(50_000.0)]);
}
