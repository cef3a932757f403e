//! The store's tables, compared with other concurrent maps and with unsynchronised maps, which are
//! the limit of one thread.
//!
//! Gets are of two kinds. *Overlapping*: the processor may begin one before the last has ended.
//! *Dependent*: each key depends on the previous value, as in most transactions. Compare within one
//! group. `DRTM_BENCH_RECORDS` sets the number of records (default: a million; more do not fit into
//! any cache). The maps are those of `drtm-bench kv speed`, which measures them in turns.

use std::time::Duration;

use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime};
use drtm_paper::kv::{Draw, Fill, Key, MapName, Op, Style, Subject, Work};

/// Operations of a thread in one iteration: enough to make the start negligible.
const SLICE: usize = 16_384;

/// Iterations before keys repeat: their records must not fit into the cache.
const SLICES: usize = 64;

/// Rows of a scan.
const ROWS: usize = 100;

fn records() -> u64 {
    let asked = std::env::var("DRTM_BENCH_RECORDS").ok();
    asked.map_or(1_000_000, |asked| asked.parse().expect("DRTM_BENCH_RECORDS is a whole number"))
}

/// The measurements of one group of maps.
struct Study {
    name: &'static str,
    maps: &'static [MapName],
    draws: &'static [Draw],
    operations: &'static [(Op, Style)],
    threads: &'static [usize],
}

/// Returns slices of one kind of work, each with keys of its own.
fn slices<K: Key>((op, style): (Op, Style), threads: usize, draw: Draw, records: u64) -> Vec<Work<K>> {
    let slice = if op == Op::Scan { SLICE / ROWS } else { SLICE };
    let work = |number: usize| {
        let keys = |thread: usize| {
            let part = (number * threads + thread) as u64;
            if op == Op::Insert {
                let first = records + part * slice as u64;
                (first..first + slice as u64).map(K::numbered).collect()
            } else {
                draw.keys(records, slice, part + 1)
            }
        };
        Work { op, style, rows: ROWS, keys: (0..threads).map(keys).collect() }
    };
    (0..SLICES).map(work).collect()
}

fn measure<K: Key>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    map: MapName,
    subject: &dyn Subject<K>,
    operation: (Op, Style),
    (threads, draw, records): (usize, Draw, u64),
) {
    if map.refuses(operation.0, threads, K::BYTES).is_some() {
        return;
    }
    let work = slices::<K>(operation, threads, draw, records);
    let of_one: usize = work[0].keys.iter().map(Vec::len).sum();
    let name = match operation {
        (Op::Get, Style::Dependent) => "get-dependent",
        (Op::Get, Style::Overlapping) => "get-overlapping",
        (Op::Update, _) => "update",
        (Op::Insert, _) => "insert",
        (Op::Scan, _) => "scan-100",
    };
    let mut turns = work.iter().cycle();
    group.throughput(Throughput::Elements(of_one as u64));
    group.bench_function(format!("{name}/{threads}/{}", map.name()), |bench| {
        bench.iter_custom(|iterations| {
            let turns = turns.by_ref().take(iterations as usize);
            turns.map(|work| subject.run(work).expect("the map does what it must")).sum::<Duration>()
        });
    });
}

impl Study {
    fn run<K: Fill>(&self, criterion: &mut Criterion) {
        let records = records();
        for draw in self.draws {
            let mut group = criterion.benchmark_group(format!("{}/{draw:?}/{records}", self.name).to_lowercase());
            // Some maps support one kind of keys only.
            for map in self.maps.iter().filter(|map| map.refuses(Op::Get, 1, K::BYTES).is_none()) {
                let subject = K::subject(*map, records).expect("memory, and keys of this kind");
                for threads in self.threads {
                    for operation in self.operations {
                        measure(&mut group, *map, &*subject, *operation, (*threads, *draw, records));
                    }
                }
            }
            group.finish();
        }
    }
}

const GET: (Op, Style) = (Op::Get, Style::Dependent);
const GET_OVERLAPPING: (Op, Style) = (Op::Get, Style::Overlapping);
const UPDATE: (Op, Style) = (Op::Update, Style::Dependent);
const INSERT: (Op, Style) = (Op::Insert, Style::Dependent);
const SCAN: (Op, Style) = (Op::Scan, Style::Dependent);

const HASH_TABLES: [MapName; 5] =
    [MapName::DrtmHash, MapName::Hashbrown, MapName::Dashmap, MapName::Papaya, MapName::Scc];
const ORDERED: [MapName; 5] =
    [MapName::DrtmTree, MapName::BTreeMap, MapName::CrossbeamSkiplist, MapName::Congee, MapName::ConcurrentMap];

fn hash_tables(criterion: &mut Criterion) {
    let operations = &[GET_OVERLAPPING, GET, UPDATE, INSERT];
    let (draws, threads) = (&[Draw::Uniform, Draw::Zipf], &[1, 2]);
    Study { name: "hash", maps: &HASH_TABLES, draws, operations, threads }.run::<u64>(criterion);
}

fn hash_tables_of_strings(criterion: &mut Criterion) {
    let (draws, operations) = (&[Draw::Uniform], &[GET, UPDATE]);
    Study { name: "hash-32", maps: &HASH_TABLES, draws, operations, threads: &[1] }.run::<[u8; 32]>(criterion);
}

fn trees(criterion: &mut Criterion) {
    let (draws, operations) = (&[Draw::Uniform], &[GET, UPDATE, INSERT, SCAN]);
    Study { name: "tree", maps: &ORDERED, draws, operations, threads: &[1, 2] }.run::<u64>(criterion);
}

fn trees_of_strings(criterion: &mut Criterion) {
    let (draws, operations) = (&[Draw::Uniform], &[GET, SCAN]);
    Study { name: "tree-32", maps: &ORDERED, draws, operations, threads: &[1] }.run::<[u8; 32]>(criterion);
}

criterion_group!(benches, hash_tables, hash_tables_of_strings, trees, trees_of_strings);
criterion_main!(benches);
