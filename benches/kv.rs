//! The hash table beside other maps, and beside `hashbrown`, which synchronises nothing and is the limit.
//!
//! Two kinds of gets: *overlapping*, where the processor may begin one before the last has ended, and *dependent*, where each key
//! depends on the value before, as in most transactions. Compare within one group. `DRTM_BENCH_RECORDS` sets the number of
//! records (a million unless it is set).

use std::hint::black_box;

use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime};
use drtm::{
    htm::NoHtm,
    kv::{HashConfig, HashTable, Store, Worker},
};

const VALUE: usize = 100;
type Value = [u8; VALUE];

/// Operations in one iteration.
const BATCH: usize = 4_096;

/// Iterations before keys come again: their records must not fit into the cache.
const BATCHES: usize = 256;

fn records() -> u64 {
    let asked = std::env::var("DRTM_BENCH_RECORDS").ok();
    asked.map_or(1_000_000, |asked| asked.parse().expect("DRTM_BENCH_RECORDS is a whole number"))
}

fn key(number: u64) -> u64 {
    number.wrapping_mul(0xD134_2543_DE82_EF95)
}

/// How keys are drawn.
#[derive(Clone, Copy)]
enum Draw {
    Uniform,
    /// The continuous approximation of a Zipf distribution with an exponent of one: some keys are hot.
    Skewed,
}

impl Draw {
    fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Skewed => "skewed",
        }
    }

    fn keys(self, records: u64, random: &mut fastrand::Rng) -> Vec<u64> {
        let one = |random: &mut fastrand::Rng| match self {
            Self::Uniform => random.u64(0..records),
            Self::Skewed => ((records as f64).powf(random.f64()) as u64).min(records - 1),
        };
        (0..BATCH * BATCHES).map(|_| key(one(random))).collect()
    }
}

/// A map under test.
trait Map {
    fn name(&self) -> &'static str;
    fn get(&mut self, key: u64, into: &mut Value);
    fn update(&mut self, key: u64, value: &Value);
}

struct Drtm(HashTable<NoHtm>, Worker<NoHtm>);

impl Map for Drtm {
    fn name(&self) -> &'static str {
        "drtm-hash"
    }
    fn get(&mut self, key: u64, into: &mut Value) {
        self.0.get(key, into).expect("sound").expect("there");
    }
    fn update(&mut self, key: u64, value: &Value) {
        self.0.update(&mut self.1, key, value).expect("room").expect("there");
    }
}

impl Map for hashbrown::HashMap<u64, Value> {
    fn name(&self) -> &'static str {
        "hashbrown (limit)"
    }
    fn get(&mut self, key: u64, into: &mut Value) {
        *into = *hashbrown::HashMap::get(self, &key).expect("there");
    }
    fn update(&mut self, key: u64, value: &Value) {
        *self.get_mut(&key).expect("there") = *value;
    }
}

impl Map for dashmap::DashMap<u64, Value> {
    fn name(&self) -> &'static str {
        "dashmap"
    }
    fn get(&mut self, key: u64, into: &mut Value) {
        *into = *dashmap::DashMap::get(self, &key).expect("there");
    }
    fn update(&mut self, key: u64, value: &Value) {
        *dashmap::DashMap::get_mut(self, &key).expect("there") = *value;
    }
}

impl Map for papaya::HashMap<u64, Value> {
    fn name(&self) -> &'static str {
        "papaya"
    }
    fn get(&mut self, key: u64, into: &mut Value) {
        *into = *self.pin().get(&key).expect("there");
    }
    fn update(&mut self, key: u64, value: &Value) {
        self.pin().insert(key, *value);
    }
}

impl Map for scc::HashMap<u64, Value> {
    fn name(&self) -> &'static str {
        "scc"
    }
    fn get(&mut self, key: u64, into: &mut Value) {
        *into = self.read_sync(&key, |_, value| *value).expect("there");
    }
    fn update(&mut self, key: u64, value: &Value) {
        self.update_sync(&key, |_, old| *old = *value).expect("there");
    }
}

fn measure<M: Map>(group: &mut BenchmarkGroup<'_, WallTime>, mut map: M, draw: Draw, records: u64) {
    let mut random = fastrand::Rng::with_seed(1);
    let keys = draw.keys(records, &mut random);
    let mut batches = keys.chunks(BATCH).cycle();
    let mut batch = || batches.next().unwrap_or_default();
    let mut value = [7; VALUE];
    let id = |operation: &str| format!("{operation}/{}", map.name());
    let (overlapping, dependent, update) = (id("get-overlapping"), id("get-dependent"), id("update"));
    group.bench_function(overlapping, |bench| {
        bench.iter(|| {
            for key in batch() {
                map.get(*key, &mut value);
                black_box(&mut value);
            }
        });
    });
    // Zero, but the compiler must think that the value decides.
    let nothing = black_box(0);
    group.bench_function(dependent, |bench| {
        bench.iter(|| {
            for key in batch() {
                map.get(*key ^ u64::from(value[3]) & nothing, &mut value);
                black_box(&mut value);
            }
        });
    });
    group.bench_function(update, |bench| {
        bench.iter(|| {
            for key in batch() {
                map.update(*key, black_box(&value));
            }
        });
    });
}

fn hash_tables(criterion: &mut Criterion) {
    let records = records();
    for draw in [Draw::Uniform, Draw::Skewed] {
        let mut group = criterion.benchmark_group(format!("hash/{}/{records}", draw.name()));
        group.throughput(Throughput::Elements(BATCH as u64));

        let store = Store::in_memory(NoHtm, 256 * records + (64 << 20)).expect("memory");
        let table = store.hash_table(HashConfig::for_keys(records)).expect("memory");
        let mut worker = store.worker();
        for number in 0..records {
            table.insert(&mut worker, key(number), &[7; VALUE]).expect("memory").expect("not there yet");
        }
        measure(&mut group, Drtm(table, worker), draw, records);
        drop(store);

        let all = || (0..records).map(|number| (key(number), [7; VALUE]));
        measure(&mut group, all().collect::<hashbrown::HashMap<u64, Value>>(), draw, records);
        measure(&mut group, all().collect::<dashmap::DashMap<u64, Value>>(), draw, records);
        measure(&mut group, all().collect::<papaya::HashMap<u64, Value>>(), draw, records);
        let scc = scc::HashMap::with_capacity(records as usize);
        for (key, value) in all() {
            scc.insert_sync(key, value).expect("not there yet");
        }
        measure(&mut group, scc, draw, records);
        group.finish();
    }
}

criterion_group!(benches, hash_tables);
criterion_main!(benches);
