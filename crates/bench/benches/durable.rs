//! The cost of durability: TPC-C with a log that commits do not wait for, compared with TPC-C
//! without a log; the speed of recovery; and updates of single rows while checkpoints are made one
//! after the other, compared with updates without.
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
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use drtm_drive::rates::Rates;
use drtm_txn::{Db, Durability, Pod, Table, TableDef};
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

/// Updates rows in all threads for a while, and returns updates per second. With `checkpoints`,
/// another thread makes checkpoints all the while; their times are added to it.
fn updates(db: &Db, rows: Table<u64, Pod<[u8; 100]>>, checkpoints: Option<&mut Vec<f64>>) -> f64 {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let (slice, is_over) = (Duration::from_secs(2), AtomicBool::new(false));
    thread::scope(|scope| {
        let updaters: Vec<_> = (0..threads as u64)
            .map(|seed| {
                let is_over = &is_over;
                scope.spawn(move || {
                    let (mut random, mut count, began) = (fastrand::Rng::with_seed(seed), 0_u64, Instant::now());
                    while !is_over.load(Relaxed) {
                        let key = random.u64(..ROWS);
                        let updated = db.transact(|tx| tx.update(rows, key, |value| value[..8].fill(count as u8)));
                        assert!(updated.expect("memory").is_some());
                        count += 1;
                    }
                    count as f64 / began.elapsed().as_secs_f64()
                })
            })
            .collect();
        let began = Instant::now();
        match checkpoints {
            None => thread::sleep(slice),
            Some(times) => {
                while began.elapsed() < slice {
                    let began = Instant::now();
                    db.checkpoint().expect("a disk");
                    times.push(began.elapsed().as_secs_f64());
                }
            }
        }
        is_over.store(true, Relaxed);
        updaters.into_iter().map(|updater| updater.join().expect("no panic")).sum()
    })
}

/// The rows of which checkpoints are made.
const ROWS: u64 = 1_000_000;

fn checkpoints(directory: &Path, rounds: usize) {
    const DEF: TableDef<u64, Pod<[u8; 100]>> = TableDef::hash("rows");
    let builder = Db::builder().path(directory).create(true).durability(Durability::Async).checkpoint_every(u64::MAX);
    let db = builder.build().expect("a directory");
    let rows = db.table(DEF).expect("memory");
    for from in (0..ROWS).step_by(1000) {
        db.transact(|tx| (from..from + 1000).try_for_each(|key| tx.put(rows, key, &[7; 100]))).expect("memory");
    }
    let (mut without, mut with, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds {
        let rates = (updates(&db, rows, None), updates(&db, rows, Some(&mut times)));
        if round > 0 {
            without.push(rates.0);
            with.push(rates.1);
        }
    }
    drop(db);
    let _ = fs::remove_dir_all(directory);
    let median = |values: Vec<f64>| Rates::of(values).median;
    let (without, with, time) = (median(without), median(with), median(times));
    println!("single updates         {without:>12.0} transactions/s");
    println!("during checkpoints     {with:>12.0} transactions/s, {:.3} of that", with / without);
    println!("a checkpoint takes     {time:>12.2} s, of {ROWS} rows of 108 bytes");
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
    checkpoints(&directory, rounds);
}
