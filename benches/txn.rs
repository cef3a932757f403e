//! The cost of transactions, compared with their tables alone, which are the lower bound.
//!
//! Compare within one group of one run. A time is that of a whole transaction; the throughput is in
//! operations or rows. `DRTM_BENCH_RECORDS` sets the number of rows (default: ten thousand, which
//! fit into a cache). This bench measures executed instructions; `benches/kv.rs` measures memory
//! access.
//!
//! The modes: `kv` is the table alone, without transactions. `transact` and `read` run closures.
//! `begin` validates all earlier reads at each read. `snapshot` uses a snapshot that is already
//! open.

use std::{
    hint::black_box,
    ops::ControlFlow,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use criterion::{
    BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use drtm::{
    Codec, Config, Db, Error, Hash, Key, Kind, Mode, Ordered, Pod, Raw, Serde, Table, TableDef, Tx, htm::NoHtm,
};
use drtm_kv::{HashConfig, HashTable, KvError, KvTable, Store, Tree, Worker};
use zerocopy::IntoBytes;

/// A row's value: plain data for one codec, a tuple of numbers for another, bytes for the third.
type Row = [u64; 4];

const ROW: Row = [1 << 10, 1 << 20, 1 << 30, 1 << 40];

const HASHED: TableDef<u64, Pod<Row>> = TableDef::hash("hashed");
const IN_ORDER: TableDef<u64, Pod<Row>, Ordered> = TableDef::ordered("in order");

/// Operations of a transaction where their number is not studied.
const SOME: usize = 16;

/// The rows of ranges. A table must have more.
const RANGES: [u64; 3] = [10, 100, 1_000];

fn records() -> u64 {
    let asked = std::env::var("DRTM_BENCH_RECORDS").ok();
    let records = asked.map_or(10_000, |asked| asked.parse().expect("DRTM_BENCH_RECORDS is a whole number"));
    assert!(records > 2 * RANGES[2], "DRTM_BENCH_RECORDS is {records}: too few for ranges of {} rows", RANGES[2]);
    records
}

/// Creates a key from its number.
trait Numbered: Key {
    fn numbered(number: u64) -> Self;
}

impl Numbered for u64 {
    fn numbered(number: u64) -> Self {
        number
    }
}

impl Numbered for String {
    /// A key of 32 bytes. Keys differ also in bytes before the last.
    fn numbered(number: u64) -> Self {
        format!("customers/{:06}/orders/{:08}", number / 8, number)
    }
}

/// Returns the keys of all rows, each once, in an unpredictable order.
fn keys<K: Numbered>() -> Vec<K> {
    let mut numbers: Vec<u64> = (0..records()).collect();
    fastrand::Rng::with_seed(7).shuffle(&mut numbers);
    numbers.into_iter().map(K::numbered).collect()
}

fn group<'c>(criterion: &'c mut Criterion, name: &str) -> BenchmarkGroup<'c, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.sample_size(20).warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(400));
    group
}

/// Measures `run` on slices of distinct keys; the next slice has other keys.
fn measure<K>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    (way, size): (&str, usize),
    keys: &[K],
    mut run: impl FnMut(&[K]) -> Result<u64, Error>,
) {
    let mut batches = keys.chunks_exact(size).cycle();
    group.throughput(Throughput::Elements(size as u64));
    group.bench_function(BenchmarkId::new(way, size), |bench| {
        bench.iter(|| run(batches.next().expect("there are more rows")).expect("one thread, and memory enough"));
    });
}

type Filled<K, C, O> = (Db, Table<K, C, O>);

/// Returns a database, and a table with a row of this value under each key.
fn filled<K: Key, C: Codec, O: Kind>(
    def: TableDef<K, C, O>,
    keys: &[K],
    value: &C::Given,
) -> Result<Filled<K, C, O>, Error> {
    let db = Db::new()?;
    let table = db.table(def)?;
    for keys in keys.chunks(1_000) {
        db.transact(|tx| keys.iter().try_for_each(|key| tx.insert(table, key, value)))?;
    }
    Ok((db, table))
}

/// Reads rows, and sums a part of each.
fn read<S: Config, M: Mode, K: Key, O: Kind>(
    tx: &Tx<'_, S, M>,
    table: Table<K, Pod<Row>, O>,
    keys: &[K],
) -> Result<u64, Error> {
    keys.iter().try_fold(0_u64, |sum, key| Ok(sum.wrapping_add(tx.get(table, key)?.map_or(0, |row| row[0]))))
}

/// Reads rows and changes them.
fn update<S: Config, K: Key, O: Kind>(
    tx: &mut Tx<'_, S>,
    table: Table<K, Pod<Row>, O>,
    keys: &[K],
) -> Result<u64, Error> {
    keys.iter().try_for_each(|key| tx.update(table, key, |row| row[0] += 1).map(drop))?;
    Ok(0)
}

fn scan<S: Config, M: Mode>(
    tx: &Tx<'_, S, M>,
    table: Table<u64, Pod<Row>, Ordered>,
    from: u64,
    rows: u64,
) -> Result<u64, Error> {
    let mut range = tx.range(table, from..from + rows)?;
    let mut sum = 0_u64;
    while let Some((_, row)) = range.next()? {
        sum = sum.wrapping_add(row[0]);
    }
    Ok(sum)
}

/// Runs an explicit transaction and commits it.
fn step_by_step(db: &Db, body: impl FnOnce(&mut Tx<'_>) -> Result<u64, Error>) -> Result<u64, Error> {
    let mut tx = db.begin()?;
    let result = body(&mut tx)?;
    tx.commit()?;
    Ok(result)
}

/// The table alone, with the same rows.
struct Alone {
    table: HashTable<NoHtm>,
    worker: Worker<NoHtm>,
}

impl Alone {
    fn filled(keys: &[u64]) -> Result<Self, KvError> {
        let store = Store::in_memory(NoHtm, 64 << 30)?;
        let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
        for key in keys {
            table.insert(&mut worker, *key, ROW.as_bytes())?;
        }
        Ok(Self { table, worker })
    }

    fn read(&self, keys: &[u64]) -> Result<u64, Error> {
        let mut row: Row = [0; 4];
        keys.iter().try_fold(0_u64, |sum, key| {
            self.table.get(*key, row.as_mut_bytes())?;
            Ok(sum.wrapping_add(row[0]))
        })
    }

    /// Reads the first number of a row.
    fn first(&self, key: &u64) -> Result<u64, Error> {
        let mut row: Row = [0; 4];
        self.table.get(*key, row.as_mut_bytes())?;
        Ok(row[0])
    }

    /// Reads the first number of a row, and increments another.
    fn count(&mut self, key: &u64) -> Result<u64, Error> {
        let mut row: Row = [0; 4];
        self.table.get(*key, row.as_mut_bytes())?;
        row[1] += 1;
        self.table.update(&mut self.worker, *key, row.as_bytes())?;
        Ok(row[0])
    }

    /// Overwrites a row.
    fn put(&mut self, key: &u64) -> Result<u64, Error> {
        let version = self.table.update(&mut self.worker, *key, ROW.as_bytes())?;
        // The result depends on the version found, as in a row that was read. No version is that
        // large.
        Ok(ROW[0] + version.map_or(0, |version| version.number() >> 50))
    }

    /// Reads and writes each row, each with a lookup.
    fn update(&mut self, keys: &[u64]) -> Result<u64, Error> {
        let mut row: Row = [0; 4];
        for key in keys {
            self.table.get(*key, row.as_mut_bytes())?;
            row[0] += 1;
            self.table.update(&mut self.worker, *key, row.as_bytes())?;
        }
        Ok(0)
    }
}

/// The tree alone. Rows are inserted in the same order as in databases, so that it is as full, and
/// its memory layout is alike.
fn tree_alone(keys: &[u64]) -> Result<Tree<NoHtm>, KvError> {
    let store = Store::in_memory(NoHtm, 64 << 30)?;
    let (tree, mut worker) = (store.tree()?, store.worker()?);
    keys.iter().try_for_each(|key| tree.insert(&mut worker, *key, ROW.as_bytes()).map(drop))?;
    Ok(tree)
}

/// Point reads by their number in a transaction, in every mode.
fn reads(criterion: &mut Criterion) {
    let keys = keys::<u64>();
    let alone = Alone::filled(&keys).expect("memory");
    let (db, hashed) = filled(HASHED, &keys, &ROW).expect("memory");
    let mut group = group(criterion, "read");
    for size in [1, 4, 16, 64] {
        measure(&mut group, ("kv", size), &keys, |keys| alone.read(keys));
        measure(&mut group, ("transact", size), &keys, |keys| db.transact(|tx| read(tx, hashed, keys)));
        measure(&mut group, ("begin", size), &keys, |keys| step_by_step(&db, |tx| read(tx, hashed, keys)));
        measure(&mut group, ("read", size), &keys, |keys| db.read(|tx| read(tx, hashed, keys)));
        let snapshot = db.snapshot().expect("there is no other");
        measure(&mut group, ("snapshot", size), &keys, |keys| read(&snapshot, hashed, keys));
    }
    group.finish();
}

/// Reads of many keys: viewed one by one, with a prefetch before, and by `view_many`. The gain
/// is overlapped memory latency: see [`records`] for rows that do not fit into the caches.
fn many(criterion: &mut Criterion) {
    let keys = keys::<u64>();
    let (db, hashed) = filled(HASHED, &keys, &ROW).expect("memory");
    let one_by_one = |tx: &mut Tx<'_>, keys: &[u64]| {
        keys.iter().try_fold(0_u64, |sum, key| Ok(sum.wrapping_add(tx.view(hashed, key, |row| row[0])?.unwrap_or(0))))
    };
    let mut group = group(criterion, "many");
    for size in [4, 16, 64, 256] {
        measure(&mut group, ("view", size), &keys, |keys| db.transact(|tx| one_by_one(tx, keys)));
        measure(&mut group, ("prefetch and view", size), &keys, |keys| {
            db.transact(|tx| {
                tx.prefetch(hashed, keys.iter())?;
                one_by_one(tx, keys)
            })
        });
        measure(&mut group, ("view_many", size), &keys, |keys| {
            db.transact(|tx| {
                let mut sum = 0_u64;
                tx.view_many(hashed, keys.iter(), |row| {
                    sum = sum.wrapping_add(row.map_or(0, |row| row[0]));
                })?;
                Ok(sum)
            })
        });
    }
    group.finish();
}

/// Updates, each a read and a write, by their number in a transaction.
fn updates(criterion: &mut Criterion) {
    let keys = keys::<u64>();
    let mut alone = Alone::filled(&keys).expect("memory");
    let (db, hashed) = filled(HASHED, &keys, &ROW).expect("memory");
    let mut group = group(criterion, "update");
    for size in [1, 4, 16, 64] {
        measure(&mut group, ("kv", size), &keys, |keys| alone.update(keys));
        measure(&mut group, ("transact", size), &keys, |keys| db.transact(|tx| update(tx, hashed, keys)));
        measure(&mut group, ("begin", size), &keys, |keys| step_by_step(&db, |tx| update(tx, hashed, keys)));
    }
    group.finish();
}

/// One operation per transaction, on a row that the previous operation determined. Each waits for
/// the one before, as within transactions, so that the processor cannot overlap them.
fn singles(criterion: &mut Criterion) {
    let keys = keys::<u64>();
    let mut alone = Alone::filled(&keys).expect("memory");
    let (db, hashed) = filled(HASHED, &keys, &ROW).expect("memory");
    let mut group = group(criterion, "single");
    chase(&mut group, "kv get", &keys, |key| alone.first(key));
    chase(&mut group, "transact get", &keys, |key| db.transact(|tx| Ok(tx.get(hashed, key)?.map_or(0, |row| row[0]))));
    chase(&mut group, "read get", &keys, |key| db.read(|tx| Ok(tx.get(hashed, key)?.map_or(0, |row| row[0]))));
    chase(&mut group, "kv update", &keys, |key| alone.count(key));
    chase(&mut group, "transact update", &keys, |key| {
        let first = db.transact(|tx| {
            tx.update(hashed, key, |row| {
                row[1] += 1;
                row[0]
            })
        })?;
        Ok(first.unwrap_or(0))
    });
    chase(&mut group, "kv put", &keys, |key| alone.put(key));
    chase(&mut group, "transact put", &keys, |key| {
        db.transact(|tx| tx.put(hashed, key, &ROW))?;
        Ok(black_box(ROW[0]))
    });
    group.finish();
}

/// Measures `run` on one key after the other, where each key depends on the previous result.
fn chase(
    group: &mut BenchmarkGroup<'_, WallTime>,
    way: &str,
    keys: &[u64],
    mut run: impl FnMut(&u64) -> Result<u64, Error>,
) {
    group.throughput(Throughput::Elements(1));
    let mut at = 0;
    group.bench_function(way, |bench| {
        bench.iter(|| {
            let first = run(&keys[at]).expect("one thread, and memory enough");
            // The row's value is constant, but the processor cannot know that.
            at = (at + (first / ROW[0]) as usize) % keys.len();
        });
    });
}

/// The same rows in each codec: get, view and put.
fn codecs(criterion: &mut Criterion) {
    fn measured<C: Codec>(criterion: &mut Criterion, name: &str, value: &C::Given, see: impl Fn(C::View<'_>) -> u64) {
        let keys = keys::<u64>();
        let def: TableDef<u64, C> = TableDef::hash("rows");
        let (db, rows) = filled(def, &keys, value).expect("memory");
        let mut group = group(criterion, &format!("codec/{name}"));
        measure(&mut group, ("get", SOME), &keys, |keys| {
            db.transact(|tx| keys.iter().try_for_each(|key| tx.get(rows, key).map(|row| drop(black_box(row)))))?;
            Ok(0)
        });
        measure(&mut group, ("view", SOME), &keys, |keys| {
            db.transact(|tx| keys.iter().try_fold(0, |sum, key| Ok(sum ^ tx.view(rows, key, &see)?.unwrap_or(0))))
        });
        measure(&mut group, ("put", SOME), &keys, |keys| {
            db.transact(|tx| keys.iter().try_for_each(|key| tx.put(rows, key, value)))?;
            Ok(0)
        });
        group.finish();
    }
    measured::<Raw>(criterion, "raw", ROW.as_bytes(), |bytes| bytes.len() as u64);
    measured::<Pod<Row>>(criterion, "pod", &ROW, |row| row[0]);
    measured::<Serde<Row>>(criterion, "serde", &ROW, |row| row[0]);
    measured::<Serde<Vec<u64>>>(criterion, "serde-of-a-vector", &ROW.to_vec(), |row| row[0]);
}

/// Keys of one word, and strings of 32 bytes.
fn kinds_of_keys(criterion: &mut Criterion) {
    fn measured<K: Numbered, O: Kind>(criterion: &mut Criterion, name: &str, def: TableDef<K, Pod<Row>, O>) {
        let keys = keys::<K>();
        let (db, rows) = filled(def, &keys, &ROW).expect("memory");
        let mut group = group(criterion, &format!("key/{name}"));
        measure(&mut group, ("read", SOME), &keys, |keys| db.transact(|tx| read(tx, rows, keys)));
        measure(&mut group, ("update", SOME), &keys, |keys| db.transact(|tx| update(tx, rows, keys)));
        group.finish();
    }
    const HASHED_STRINGS: TableDef<String, Pod<Row>, Hash> = TableDef::hash("hashed strings");
    const STRINGS_IN_ORDER: TableDef<String, Pod<Row>, Ordered> = TableDef::ordered("strings in order");
    measured(criterion, "hash-8", HASHED);
    measured(criterion, "hash-32", HASHED_STRINGS);
    measured(criterion, "ordered-8", IN_ORDER);
    measured(criterion, "ordered-32", STRINGS_IN_ORDER);
}

/// Ranges by their rows, in every mode; the last is a snapshot older than a write of every row.
fn ranges(criterion: &mut Criterion) {
    let keys = keys::<u64>();
    let records = records();
    let alone = tree_alone(&keys).expect("memory");
    let (db, ordered) = filled(IN_ORDER, &keys, &ROW).expect("memory");
    let mut group = group(criterion, "range");
    for rows in RANGES {
        let mut starts = keys.iter().map(|key| key % (records - rows)).cycle();
        let mut measure = |way: &str, run: &mut dyn FnMut(u64) -> Result<u64, Error>| {
            group.throughput(Throughput::Elements(rows));
            group.bench_function(BenchmarkId::new(way, rows), |bench| {
                bench.iter(|| run(starts.next().expect("there is a row")).expect("one thread, and memory enough"));
            });
        };
        measure("kv", &mut |from| {
            let mut row: Row = [0; 4];
            let mut sum = 0_u64;
            alone.range(from..from + rows).each_into(row.as_mut_bytes(), |_, _, row| {
                sum = sum.wrapping_add(row.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)));
                ControlFlow::Continue(())
            })?;
            Ok(sum)
        });
        measure("transact", &mut |from| db.transact(|tx| scan(tx, ordered, from, rows)));
        measure("read", &mut |from| db.read(|tx| scan(tx, ordered, from, rows)));
        let snapshot = db.snapshot().expect("there is no other");
        measure("snapshot", &mut |from| scan(&snapshot, ordered, from, rows));
        for keys in keys.chunks(SOME) {
            db.transact(|tx| update(tx, ordered, keys)).expect("memory for older versions");
        }
        measure("snapshot-of-older-rows", &mut |from| scan(&snapshot, ordered, from, rows));
    }
    group.finish();
}

/// Runs one thread's share of increments of a few rows. The slower thread's time counts.
fn increment(db: &Db, table: Table<u64, Pod<u64>>, (threads, rows): (usize, u64), times: u64) -> Duration {
    let start = Barrier::new(threads);
    let work = |thread: usize| {
        let mut chance = fastrand::Rng::with_seed(thread as u64);
        start.wait();
        let begun = Instant::now();
        for _ in 0..times {
            let key = chance.u64(..rows);
            let found = db.transact(|tx| tx.update(table, key, |count| *count += 1)).expect("memory");
            found.expect("the row is there");
        }
        begun.elapsed()
    };
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it found its rows")).max().unwrap_or_default()
    })
}

/// Two threads that increment the same few rows, compared with one. Checks that no increment is
/// lost.
fn contention(criterion: &mut Criterion) {
    const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");
    let mut group = group(criterion, "contention");
    for rows in [1, 10, 1_000] {
        for threads in [1, 2] {
            let keys: Vec<u64> = (0..rows).collect();
            let (db, counters) = filled(COUNTERS, &keys, &0).expect("memory");
            let mut increments = 0;
            group.throughput(Throughput::Elements(threads as u64));
            group.bench_function(BenchmarkId::new(format!("{threads}-threads"), rows), |bench| {
                bench.iter_custom(|times| {
                    increments += times * threads as u64;
                    increment(&db, counters, (threads, rows), times)
                });
            });
            let counts = db.transact(|tx| tx.get_many(counters, &keys)).expect("memory");
            assert_eq!(counts.into_iter().flatten().sum::<u64>(), increments, "increments were lost");
        }
    }
    group.finish();
}

criterion_group!(benches, reads, many, updates, singles, codecs, kinds_of_keys, ranges, contention);
criterion_main!(benches);
