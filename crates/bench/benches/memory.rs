//! What rows take in memory, and whether memory that rows have left serves others.
//!
//! - *overhead*: bytes in use beside keys and values, for each row of a million.
//! - *churn*: rows of mixed sizes are replaced by others, ten times over; how much of the memory
//!   that tables have taken then holds rows.
//! - *reuse*: transactions that remove a row and insert another, by several threads.
//! - *leave*: how long it takes to remove all rows of a table: one by one, at once, and with the
//!   table; and how much memory serves rows of any size then.
//! - *apart*: point reads of an ordered table by two threads, beside two threads that have a
//!   database each.
//!
//! `DRTM_BENCH_RECORDS` (1,000,000) is the number of rows, `DRTM_BENCH_THREADS` (as many as there
//! are cores) the most threads, `DRTM_BENCH_ROUNDS` (5) the rounds of which medians are printed,
//! and `DRTM_BENCH_ONLY` one of the five names.

use std::{
    env,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use drtm_drive::rates::Rates;
use drtm_kv::record_bytes;
use drtm_txn::{Builder, Db, Kind, Ordered, Pod, Raw, Table, TableDef};

const HASHED: TableDef<u64, Pod<[u8; 100]>> = TableDef::hash("hashed");
const SORTED: TableDef<u64, Pod<[u8; 100]>, Ordered> = TableDef::ordered("sorted");
const MIXED: TableDef<u64, Raw> = TableDef::hash("mixed");

/// The bytes of a row: its key and its value.
const PAYLOAD: u64 = 108;

/// The rows of one transaction that loads.
const BATCH: u64 = 1000;

fn setting(name: &str, usual: u64) -> u64 {
    env::var(name).map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a whole number")))
}

fn rows() -> u64 {
    setting("DRTM_BENCH_RECORDS", 1_000_000)
}

/// `cargo test` runs benches only to check that they work.
fn is_measured() -> bool {
    env::args().any(|argument| argument == "--bench")
}

fn all_rounds() -> u64 {
    if is_measured() { setting("DRTM_BENCH_ROUNDS", 5) } else { 1 }
}

fn is_wanted(name: &str) -> bool {
    env::var("DRTM_BENCH_ONLY").is_ok_and(|only| only == name) || env::var_os("DRTM_BENCH_ONLY").is_none()
}

/// Puts rows, each key once.
fn load<O: Kind>(db: &Db, table: Table<u64, Pod<[u8; 100]>, O>, rows: u64) {
    for from in (0..rows).step_by(BATCH as usize) {
        let keys = from..rows.min(from + BATCH);
        db.transact(|tx| keys.clone().try_for_each(|key| tx.put(table, key, &[key as u8; 100]))).expect("memory");
    }
}

fn overhead<O: Kind>(name: &str, def: TableDef<u64, Pod<[u8; 100]>, O>, has_hints: bool) {
    let db = Builder::new().memory(4 << 30).hints(has_hints).build().expect("memory");
    let table = db.table(def).expect("memory");
    let rows = rows();
    load(&db, table, rows);
    // Hints come of reading.
    for key in 0..rows {
        assert!(db.read(|tx| tx.get(table, key)).expect("memory").is_some());
    }
    let used = db.memory();
    let beside = |bytes: u64| bytes as f64 / rows as f64;
    println!(
        "overhead  {name:<8} hints {:<3}  {:>6.1} B a row: tables {:.1}, hints {:.1}, threads and garbage {:.1}",
        if has_hints { "on" } else { "off" },
        beside(used.total()) - PAYLOAD as f64,
        beside(used.tables) - PAYLOAD as f64,
        beside(used.hints),
        beside(used.threads + used.garbage)
    );
}

/// Returns a length from 8 to 4,096: each power of two as likely as the next.
fn length(random: &mut fastrand::Rng) -> usize {
    (8.0 * 512_f64.powf(random.f64())) as usize
}

fn churn() {
    const TIMES: u64 = 10;
    // A value has 656 bytes on average, so that a million rows are two thirds of a gibibyte.
    let rows = rows() * 8 / 5;
    let db = Builder::new().memory(8 << 30).build().expect("memory");
    let table = db.table(MIXED).expect("memory");
    let (mut random, bytes) = (fastrand::Rng::with_seed(7), [7; 4096]);
    let mut lengths: Vec<_> = (0..rows).map(|_| length(&mut random)).collect();
    for (key, length) in (0..).zip(&lengths) {
        db.transact(|tx| tx.put(table, key, &bytes[..*length])).expect("memory");
    }
    let share = |lengths: &[usize]| {
        let live: u64 = lengths.iter().map(|length| record_bytes(None, *length)).sum();
        let used = db.memory();
        (live as f64 / used.tables as f64, live >> 20, used.tables >> 20)
    };
    let (loaded, ..) = share(&lengths);
    let began = Instant::now();
    for _ in 0..TIMES * rows {
        let key = random.u64(..rows);
        let length = length(&mut random);
        lengths[key as usize] = length;
        db.transact(|tx| tx.put(table, key, &bytes[..length])).expect("memory");
    }
    let rate = (TIMES * rows) as f64 / began.elapsed().as_secs_f64();
    let (churned, live, taken) = share(&lengths);
    println!(
        "churn     {churned:.3} of what tables have taken holds rows ({live} of {taken} MiB); {loaded:.3} when loaded"
    );
    let began = Instant::now();
    db.compact().expect("memory");
    let (compacted, ..) = share(&lengths);
    println!("churn     {compacted:.3} after compaction, which took {:.2?}; {rate:.0} puts/s", began.elapsed());
}

/// Runs work in threads that begin together, for a while, and returns the operations per second of
/// all.
fn rate(threads: u64, work: impl Fn(u64, &mut dyn FnMut() -> bool) + Sync) -> f64 {
    let slice = Duration::from_millis(if is_measured() { 500 } else { 5 });
    let barrier = Barrier::new(threads as usize);
    let rates: Vec<f64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                let (barrier, work) = (&barrier, &work);
                scope.spawn(move || {
                    barrier.wait();
                    let (began, mut count) = (Instant::now(), 0_u64);
                    work(thread, &mut || {
                        count += 1;
                        !count.is_multiple_of(64) || began.elapsed() < slice
                    });
                    count as f64 / began.elapsed().as_secs_f64()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    rates.iter().sum()
}

fn rounds(mut once: impl FnMut() -> f64) -> f64 {
    once();
    Rates::of((0..all_rounds()).map(|_| once()).collect()).median
}

/// Measures threads that each remove their oldest row and insert another, so that each insertion
/// takes memory that a removal has left.
fn reuse<O: Kind>(name: &str, def: TableDef<u64, Pod<[u8; 100]>, O>, threads: u64) {
    let each = rows() / 16;
    let db = Builder::new().memory(4 << 30).build().expect("memory");
    let table = db.table(def).expect("memory");
    let begins: Vec<_> = (0..threads).map(|thread| std::sync::atomic::AtomicU64::new(thread << 32)).collect();
    for thread in 0..threads {
        let keys = thread << 32..(thread << 32) + each;
        db.transact(|tx| keys.clone().try_for_each(|key| tx.put(table, key, &[1; 100]))).expect("memory");
    }
    let both = rounds(|| {
        rate(threads, |thread, goes_on| {
            let begin = &begins[thread as usize];
            let mut oldest = begin.load(std::sync::atomic::Ordering::Relaxed);
            while goes_on() {
                db.transact(|tx| tx.remove(table, oldest)).expect("memory");
                db.transact(|tx| tx.put(table, oldest + each, &[2; 100])).expect("memory");
                oldest += 1;
            }
            begin.store(oldest, std::sync::atomic::Ordering::Relaxed);
        })
    });
    println!("reuse     {name:<8} {threads:>2} threads  {both:>12.0} removals and insertions/s");
}

/// Removes all rows of a table, which another table has as many rows beside.
fn leave<O: Kind>(name: &str, def: TableDef<u64, Pod<[u8; 100]>, O>) {
    let db = Builder::new().memory(4 << 30).build().expect("memory");
    let other = db.table(MIXED).expect("memory");
    (0..rows()).for_each(|key| db.transact(|tx| tx.put(other, key, &[1; 60])).expect("memory"));
    let leave = |how: &str, leave: &dyn Fn(Table<u64, Pod<[u8; 100]>, O>)| {
        let table = db.table(def).expect("memory");
        load(&db, table, rows());
        let (before, began) = (db.memory().free, Instant::now());
        leave(table);
        let took = began.elapsed();
        let free = (db.memory().free - before) >> 20;
        println!("leave     {name:<8} {how:<11}  {took:>9.2?}, {free} MiB are free for any size");
    };
    leave("Tx::clear", &|table| db.transact(|tx| tx.clear(table).map(drop)).expect("memory"));
    leave("clear_table", &|table| db.clear_table(table).expect("memory"));
    leave("drop_table", &|_| db.drop_table(def.name()).expect("memory"));
}

/// Compares point reads of two threads that share a database with those of two that have one each,
/// in turns.
fn apart() {
    let rows = rows();
    let dbs = [(); 3].map(|()| Builder::new().memory(2 << 30).build().expect("memory"));
    let tables = dbs.each_ref().map(|db| db.table(SORTED).expect("memory"));
    dbs.iter().zip(tables).for_each(|(db, table)| load(db, table, rows));
    let read = |of: [usize; 2]| {
        rate(2, |thread, goes_on| {
            let (db, table) = (&dbs[of[thread as usize]], tables[of[thread as usize]]);
            let mut random = fastrand::Rng::with_seed(thread);
            while goes_on() {
                let key = random.u64(..rows);
                assert!(db.read(|tx| tx.get(table, key)).expect("memory").is_some());
            }
        })
    };
    let (mut shared, mut own) = (Vec::new(), Vec::new());
    for round in 0..=all_rounds() {
        let rates = (read([0, 0]), read([1, 2]));
        if round > 0 {
            shared.push(rates.0);
            own.push(rates.1);
        }
    }
    let (shared, own) = (Rates::of(shared).median, Rates::of(own).median);
    println!("apart     {shared:.0} reads/s of one ordered table, {:.3} of {own:.0} of two databases", shared / own);
}

fn main() {
    if is_wanted("overhead") {
        for has_hints in [false, true] {
            overhead("hash", HASHED, has_hints);
            overhead("ordered", SORTED, has_hints);
        }
    }
    if is_wanted("churn") {
        churn();
    }
    if is_wanted("reuse") {
        let most = setting("DRTM_BENCH_THREADS", thread::available_parallelism().map_or(1, |count| count.get() as u64));
        for threads in (0..).map(|power| 1 << power).take_while(|threads| *threads <= most) {
            reuse("hash", HASHED, threads);
            reuse("ordered", SORTED, threads);
        }
    }
    if is_wanted("leave") {
        leave("hashed", HASHED);
        leave("sorted", SORTED);
    }
    if is_wanted("apart") {
        apart();
    }
}
