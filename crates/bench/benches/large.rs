//! Transactions of many rows: the cost of a row must not depend on the number of rows in its
//! transaction.
//!
//! Each time is that of one transaction. The throughput is in rows, so that sizes compare.
//! `DRTM_BENCH_RECORDS` is the largest size (default: ten thousand; `1000000` for all sizes). With
//! `--features stores`, redb runs as well: in memory, without durability.

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use drtm_txn::{Db, Error, Kind, Ordered, Pod, Table, TableDef, Tx};

type Row = [u64; 4];

const HASHED: TableDef<u64, Pod<Row>> = TableDef::hash("hashed");
const SORTED: TableDef<u64, Pod<Row>, Ordered> = TableDef::ordered("sorted");

const SIZES: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];

/// Returns keys in an order other than their own.
fn key(number: u64, size: u64) -> u64 {
    // Odd, and no multiple of five, so that all keys occur.
    number * 7_919 % size
}

/// The operation of one transaction on `size` rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Update,
    Put,
    Remove,
    Pop,
}

impl Work {
    const ALL: [(&'static str, Self); 4] =
        [("update", Self::Update), ("put", Self::Put), ("remove", Self::Remove), ("pop", Self::Pop)];

    /// Returns whether the rows must exist before.
    fn needs_rows(self) -> bool {
        self != Self::Put
    }

    /// Returns whether the rows exist afterwards.
    fn leaves_rows(self) -> bool {
        matches!(self, Self::Update | Self::Put)
    }
}

/// A store with one table of rows.
trait Subject {
    fn name(&self) -> &'static str;

    /// Returns whether rows are ordered, so that they can be popped.
    fn can_pop(&self) -> bool;

    /// Runs the operation on rows in one transaction.
    fn run(&mut self, work: Work, size: u64);
}

/// Pops the first row of a table. Returns whether there was one.
type Pop<O> = fn(&mut Tx<'_>, Table<u64, Pod<Row>, O>) -> Result<bool, Error>;

struct Ours<O: Kind> {
    name: &'static str,
    db: Db,
    table: Table<u64, Pod<Row>, O>,
    /// Pops a row; `None` without an order.
    pop: Option<Pop<O>>,
}

impl<O: Kind> Subject for Ours<O> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn can_pop(&self) -> bool {
        self.pop.is_some()
    }

    fn run(&mut self, work: Work, size: u64) {
        let Self { db, table, pop, .. } = self;
        let done = db.transact(|tx| {
            let mut keys = (0..size).map(|number| key(number, size));
            match (work, *pop) {
                (Work::Update, _) => keys.try_for_each(|key| tx.update(*table, &key, |row| row[0] += 1).map(drop)),
                (Work::Put, _) => keys.try_for_each(|key| tx.put(*table, key, &[key; 4])),
                (Work::Pop, Some(pop)) => {
                    while pop(tx, *table)? {}
                    Ok(())
                }
                (Work::Remove | Work::Pop, _) => keys.try_for_each(|key| tx.remove(*table, key).map(drop)),
            }
        });
        done.expect("one thread, and memory enough");
    }
}

fn measure(criterion: &mut Criterion, mut make: impl FnMut() -> Box<dyn Subject>) {
    let most = std::env::var("DRTM_BENCH_RECORDS").ok();
    let most: u64 = most.map_or(10_000, |most| most.parse().expect("DRTM_BENCH_RECORDS is a whole number"));
    let mut group = criterion.benchmark_group("large");
    group.sample_size(10).warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(500));
    for (name, work) in Work::ALL {
        for size in SIZES.into_iter().filter(|size| *size <= most) {
            let mut subject = make();
            if work == Work::Pop && !subject.can_pop() {
                continue;
            }
            let has_rows = |is_there, subject: &mut dyn Subject, is_wanted| match (is_there, is_wanted) {
                (false, true) => subject.run(Work::Put, size),
                (true, false) => subject.run(Work::Remove, size),
                _ => {}
            };
            let mut is_there = false;
            group.throughput(Throughput::Elements(size));
            group.bench_function(BenchmarkId::new(format!("{} {name}", subject.name()), size), |bench| {
                bench.iter_custom(|rounds| {
                    let mut spent = Duration::ZERO;
                    for _ in 0..rounds {
                        has_rows(is_there, &mut *subject, work.needs_rows());
                        let begin = Instant::now();
                        subject.run(work, size);
                        spent += begin.elapsed();
                        is_there = work.leaves_rows();
                    }
                    spent
                });
            });
        }
    }
    group.finish();
}

fn hashed(criterion: &mut Criterion) {
    measure(criterion, || {
        let db = Db::new().expect("memory");
        let table = db.table(HASHED).expect("memory");
        Box::new(Ours { name: "hash", db, table, pop: None })
    });
}

fn ordered(criterion: &mut Criterion) {
    measure(criterion, || {
        let db = Db::new().expect("memory");
        let table = db.table(SORTED).expect("memory");
        let pop: Pop<_> = |tx, table| Ok(tx.range_mut(table, ..)?.pop_first()?.is_some());
        Box::new(Ours { name: "ordered", db, table, pop: Some(pop) })
    });
}

#[cfg(feature = "stores")]
mod peer {
    use criterion::Criterion;
    use redb::{Database, Durability, ReadableTable, TableDefinition, backends::InMemoryBackend};

    use super::{Subject, Work, key, measure};

    const ROWS: TableDefinition<'_, u64, [u64; 4]> = TableDefinition::new("rows");

    struct Redb(Database);

    impl Subject for Redb {
        fn name(&self) -> &'static str {
            "redb"
        }

        fn can_pop(&self) -> bool {
            true
        }

        fn run(&mut self, work: Work, size: u64) {
            let mut tx = self.0.begin_write().expect("one thread");
            tx.set_durability(Durability::None).expect("no savepoint");
            {
                let mut table = tx.open_table(ROWS).expect("one table");
                for number in 0..size {
                    let key = key(number, size);
                    match work {
                        Work::Update => {
                            let row = table.get(key).expect("memory").map(|row| row.value());
                            let mut row = row.expect("it was put");
                            row[0] += 1;
                            table.insert(key, row).expect("memory");
                        }
                        Work::Put => drop(table.insert(key, [key; 4]).expect("memory")),
                        Work::Remove => drop(table.remove(key).expect("memory")),
                        Work::Pop => drop(table.pop_first().expect("memory")),
                    }
                }
            }
            tx.commit().expect("memory");
        }
    }

    pub(super) fn redb(criterion: &mut Criterion) {
        measure(criterion, || {
            let db = Database::builder().create_with_backend(InMemoryBackend::new()).expect("memory");
            Box::new(Redb(db))
        });
    }
}

#[cfg(not(feature = "stores"))]
criterion_group!(benches, hashed, ordered);
#[cfg(feature = "stores")]
criterion_group!(benches, hashed, ordered, peer::redb);
criterion_main!(benches);
