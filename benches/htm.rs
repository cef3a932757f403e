//! The cost of transactional memory on machines without it, and the cost of the emulation.
//!
//! Compare within one group of one run.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use drtm_htm::{Access, Emulated, Engine, FallbackLock, Htm, Line, NoHtm, Outcome, Policy, Rtm, Worker};

fn lines(count: usize) -> Vec<Line> {
    (0..count).map(|_| Line::default()).collect()
}

fn add_to_all<'m, A: Access<'m>>(tx: &mut A, lines: &'m [Line]) -> Result<(), A::Abort> {
    lines.iter().try_for_each(|line| {
        let value = tx.load(&line[0])?;
        tx.store(&line[0], value.wrapping_add(1))
    })
}

fn software<E: Engine>(engine: &E, lines: &[Line]) {
    for line in lines {
        engine.store(&line[0], engine.load(&line[0]).wrapping_add(1));
    }
}

fn attempt<E: Engine>(worker: &mut Worker<E>, lines: &[Line]) {
    if let Outcome::Fallback(_) = worker.attempt(Policy::DBX, |tx| add_to_all(tx, lines)) {
        software(worker.engine(), lines);
    }
}

/// Shows that an attempt costs nothing without htm transactions.
fn without_htm(criterion: &mut Criterion) {
    let shared = lines(4);
    let mut worker = Htm::new(NoHtm).worker();
    let mut group = criterion.benchmark_group("without-transactions");
    group.bench_function("software-alone", |bench| bench.iter(|| software(&NoHtm, black_box(&shared))));
    group.bench_function("software-behind-an-attempt", |bench| {
        bench.iter(|| attempt(&mut worker, black_box(&shared)));
    });
    group.finish();
}

/// The cost of an htm transaction on each engine by lines touched, compared with the elided lock.
fn transactions(criterion: &mut Criterion) {
    let lock = FallbackLock::new();
    let mut emulated = Htm::new(Emulated::default()).worker();
    let mut hardware = Rtm::detect().ok().map(|rtm| Htm::new(rtm).worker());
    let mut group = criterion.benchmark_group("transaction");
    for count in [1, 4, 16, 64] {
        let shared = lines(count);
        group.bench_function(BenchmarkId::new("under-the-lock", count), |bench| {
            bench.iter(|| lock.run(&NoHtm, |held| add_to_all(held, black_box(&shared))));
        });
        group.bench_function(BenchmarkId::new("emulated", count), |bench| {
            bench.iter(|| attempt(&mut emulated, black_box(&shared)));
        });
        if let Some(worker) = &mut hardware {
            group.bench_function(BenchmarkId::new("rtm", count), |bench| {
                bench.iter(|| attempt(worker, black_box(&shared)));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, without_htm, transactions);
criterion_main!(benches);
