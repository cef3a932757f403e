//! The cost of durability: TPC-C with a log that commits do not wait for, compared with TPC-C
//! without a log; and the speed of recovery.
//!
//! Runs `drtm-bench tpcc` in turns and prints medians. `DRTM_BENCH_ROUNDS` (3) sets the rounds,
//! `DRTM_BENCH_SECS` (3) the seconds, and `DRTM_BENCH_PATH` (among the system's temporary files)
//! the disk. `drtm-bench compare --durability sync` measures commits that wait.

use std::{
    env, fs,
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use drtm_bench::rates::Rates;
use serde_json::Value;

/// A mebibyte.
const MIB: f64 = (1 << 20) as f64;

fn setting(name: &str, usual: &str) -> String {
    env::var(name).unwrap_or_else(|_| usual.to_owned())
}

/// Runs TPC-C, and returns its report.
fn tpcc(durability: &str, directory: &Path) -> Value {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_drtm-bench"));
    command.args(["tpcc", "--json", "--threads", &threads, "--secs", &setting("DRTM_BENCH_SECS", "3")]);
    if durability != "none" {
        command.args(["--durability", durability, "--path"]).arg(directory);
    }
    let output = command.output().expect("the binary starts");
    let _ = fs::remove_dir_all(directory);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one value")
}

fn number(report: &Value, field: &str) -> f64 {
    report[field].as_f64().unwrap_or_else(|| panic!("{field} of {report}"))
}

/// Returns the disk's bytes per second, in writes of four mebibytes with a sync each.
fn disk(directory: &Path) -> f64 {
    const WRITE: usize = 4 << 20;
    const WRITES: usize = 64;
    fs::create_dir_all(directory).expect("a directory");
    let file = File::create(directory.join("disk")).expect("a file");
    let bytes = vec![7; WRITE];
    let began = Instant::now();
    for place in 0..WRITES {
        file.write_all_at(&bytes, (place * WRITE) as u64).expect("space");
        file.sync_data().expect("a disk");
    }
    let rate = (WRITE * WRITES) as f64 / began.elapsed().as_secs_f64();
    fs::remove_dir_all(directory).expect("it is there");
    rate
}

fn main() {
    // `cargo test` runs benches only to check that they compile.
    if !env::args().any(|argument| argument == "--bench") {
        return;
    }
    let rounds: usize = setting("DRTM_BENCH_ROUNDS", "3").parse().expect("DRTM_BENCH_ROUNDS is a whole number");
    let place = env::var_os("DRTM_BENCH_PATH").map_or_else(env::temp_dir, PathBuf::from);
    let directory = place.join(format!("drtm-durable-{}", std::process::id()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let (mut none, mut with_log, mut disks) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds {
        let reports = (tpcc("none", &directory), tpcc("async", &directory), disk(&directory));
        // The first round is not counted.
        if round > 0 {
            none.push(reports.0);
            with_log.push(reports.1);
            disks.push(reports.2);
        }
    }
    let median = |values: Vec<f64>| Rates::of(values).median;
    let of = |reports: &[Value], field: &str| median(reports.iter().map(|report| number(report, field)).collect());
    let (without, with) = (of(&none, "throughput"), of(&with_log, "throughput"));
    println!("tpcc, {threads} threads, medians of {rounds} rounds");
    println!("durability none        {without:>12.0} transactions/s");
    println!("durability async       {with:>12.0} transactions/s, {:.3} of none", with / without);
    println!("bytes logged           {:>12.0} bytes/transaction", of(&with_log, "log_bytes_per_transaction"));
    let (log, disk) = (of(&with_log, "log_bytes_per_s"), median(disks));
    println!("log                    {:>12.1} MiB/s, {:.2} of the disk's {:.1}", log / MIB, log / disk, disk / MIB);
    let rows = |report: &Value| number(report, "recovery_rows") / number(report, "recovery_s") / threads;
    println!("recovery               {:>12.0} rows/s and thread", median(with_log.iter().map(rows).collect()));
    let read = |report: &Value| number(report, "recovery_log_bytes") / number(report, "recovery_s");
    println!("recovery               {:>12.1} MiB/s of log", median(with_log.iter().map(read).collect()) / MIB);
}
