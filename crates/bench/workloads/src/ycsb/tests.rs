//! Shares of many inputs, and rows in an ordinary map.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, thread};

use drtm_drive::mix::Mix;
use drtm_testing::chance::{assert_distribution, assert_share, assert_uniform};
use zerocopy::{FromBytes, IntoBytes};

use super::*;

const RECORDS: u64 = 1_000;

fn plan(workload: Workload, room: u64, workers: usize) -> Arc<Plan> {
    Arc::new(Plan::new(workload, RECORDS, room, workers).expect("possible"))
}

fn draw(workload: Workload, count: usize, seed: u64) -> Vec<Operation> {
    let mut inputs = Inputs::new(&plan(workload, 0, 1), 0, seed).expect("the only worker");
    (0..count).map(|_| inputs.draw()).collect()
}

fn number_of(operation: Operation) -> u64 {
    match operation {
        Operation::Read { number }
        | Operation::Update { number, .. }
        | Operation::Insert { number }
        | Operation::Scan { number, .. }
        | Operation::ReadModifyWrite { number, .. } => number,
    }
}

/// Returns Zipf's probabilities, the likeliest first.
fn zipf(limit: u64, exponent: f64) -> Vec<f64> {
    let powers: Vec<f64> = (1..=limit).map(|rank| (rank as f64).powf(-exponent)).collect();
    let whole: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / whole).collect()
}

#[test]
fn the_core_workloads_are_what_they_say() {
    // Reads, updates, insertions, scans, reads with writes.
    let core = [
        (Workload::A, [50, 50, 0, 0, 0]),
        (Workload::B, [95, 5, 0, 0, 0]),
        (Workload::C, [100, 0, 0, 0, 0]),
        (Workload::D, [95, 0, 5, 0, 0]),
        (Workload::E, [0, 0, 5, 95, 0]),
        (Workload::F, [50, 0, 0, 0, 50]),
    ];
    for (workload, shares) in core {
        assert_eq!(Kind::ALL.map(|kind| workload.mix.share(kind)), shares);
        let drawn = draw(workload, 20_000, 1);
        for (kind, share) in Kind::ALL.into_iter().zip(shares) {
            let count = drawn.iter().filter(|operation| operation.kind() == kind).count();
            assert_share(count, drawn.len(), f64::from(share) / 100.0);
        }
    }
    let lengths = draw(Workload::E, 50_000, 2).into_iter().filter_map(|operation| match operation {
        Operation::Scan { length, .. } => Some(length.into()),
        _ => None,
    });
    assert_uniform(lengths, 1, 100);
    let fields = draw(Workload::F, 50_000, 3).into_iter().filter_map(|operation| match operation {
        Operation::ReadModifyWrite { field, .. } => Some(field.into()),
        _ => None,
    });
    assert_uniform(fields, 0, 9);
}

#[test]
fn zipfian_records_are_hashed_ones() {
    let drawn = draw(Workload::C, 200_000, 4);
    // Each of the hottest numbers belongs to a different record; the others together are nearly
    // uniform.
    let whole = 26.469_028_201_783_02;
    for rank in 1..=3_u64 {
        let record = inputs::hash(rank - 1) % RECORDS;
        let count = drawn.iter().filter(|operation| number_of(**operation) == record).count();
        let own = (rank as f64).powf(-EXPONENT) / whole;
        let share = count as f64 / drawn.len() as f64;
        assert!((0.0..0.003).contains(&(share - own)), "rank {rank}: {share}, of which {own} for itself");
    }
    let all: std::collections::BTreeSet<u64> = drawn.iter().map(|operation| number_of(*operation)).collect();
    assert_eq!(all.len(), 1_000, "every record is asked for");
}

#[test]
fn the_hash_is_fnv_s() {
    // The hash of eight zero bytes.
    assert_eq!(inputs::hash(0), 0xA8C7_F832_281A_39C5_u64.cast_signed().unsigned_abs());
    assert!((0..1_000).all(|number| inputs::hash(number) <= 1 << 63));
}

#[test]
fn uniform_records_are_uniform() {
    let drawn = draw(Workload { choice: Choice::Uniform, ..Workload::C }, 100_000, 5);
    assert_uniform(drawn.into_iter().map(number_of), 0, RECORDS - 1);
}

#[test]
fn the_latest_records_are_the_hottest_also_when_there_are_more() {
    let only_reads = Workload { mix: Mix::new([(Kind::Read, 100)]).expect("all"), ..Workload::D };
    for inserted in [0, 250] {
        let plan = plan(only_reads, 500, 1);
        plan.set_inserted(0, inserted);
        let mut inputs = Inputs::new(&plan, 0, 6).expect("the only worker");
        let present = RECORDS + inserted;
        let mut counts = vec![0; present as usize];
        for _ in 0..300_000 {
            counts[(present - 1 - number_of(inputs.draw())) as usize] += 1;
        }
        assert_distribution(&counts, &zipf(present, EXPONENT));
    }
}

#[test]
fn workers_insert_every_record_once_and_read_only_what_is_there() {
    for workload in [Workload::D, Workload::E, Workload { choice: Choice::Uniform, ..Workload::D }] {
        let plan = plan(workload, 300, 3);
        let there: Vec<_> = (0..100_000).map(|_| std::sync::atomic::AtomicBool::new(false)).collect();
        let is_there = |number: u64| &there[number as usize];
        for number in 0..RECORDS {
            is_there(number).store(true, std::sync::atomic::Ordering::Relaxed);
        }
        let work = |worker| {
            let mut inputs = Inputs::new(&plan, worker, worker as u64).expect("one of three");
            for _ in 0..10_000 {
                // Only the plan orders an insertion before its readers.
                match inputs.draw() {
                    Operation::Insert { number } => {
                        assert!(!is_there(number).swap(true, std::sync::atomic::Ordering::Relaxed), "inserted twice");
                        inputs.inserted();
                    }
                    other => assert!(is_there(number_of(other)).load(std::sync::atomic::Ordering::Relaxed)),
                }
            }
        };
        thread::scope(|scope| {
            for worker in 0..3 {
                scope.spawn(move || work(worker));
            }
        });
        let present = plan.present();
        assert!(present > RECORDS + 1_000);
        assert!((0..present).all(|number| is_there(number).load(std::sync::atomic::Ordering::Relaxed)));
    }
}

#[test]
fn an_insertion_that_was_not_done_is_asked_for_again() {
    let only_insertions = Workload { mix: Mix::new([(Kind::Insert, 100)]).expect("all"), ..Workload::D };
    let plan = plan(only_insertions, 10, 2);
    let mut inputs = Inputs::new(&plan, 1, 7).expect("one of two");
    let numbers = [(); 4].map(|()| {
        let number = number_of(inputs.draw());
        assert_eq!(inputs.draw(), Operation::Insert { number });
        inputs.inserted();
        number
    });
    assert_eq!(numbers, [1_001, 1_003, 1_005, 1_007]);
    assert_eq!(plan.present(), 1_000, "the other worker has inserted none");
}

#[test]
fn impossible_plans_are_refused() {
    let plan = |workload, records, room| Plan::new(workload, records, room, 2).map(|_| ());
    assert_eq!(plan(Workload::A, 0, 1), Err(PlanError::NoRecords));
    assert_eq!(plan(Workload::A, 1, u64::MAX), Err(PlanError::TooManyRecords(u64::MAX)));
    assert_eq!(plan(Workload { longest_scan: 0, ..Workload::E }, 1, 0), Err(PlanError::Nothing));
    assert_eq!(plan(Workload { fields: 0, ..Workload::E }, 1, 0), Err(PlanError::Nothing));
    let two = Arc::new(Plan::new(Workload::A, 1, 0, 2).expect("possible"));
    assert_eq!(Inputs::new(&two, 2, 0).err(), Some(PlanError::Worker { worker: 2, workers: 2 }));
    let shape = |records, shape| Transactions::new(records, shape, 0).err();
    let standard = Shape::STANDARD;
    assert_eq!(shape(8, standard), None);
    assert_eq!(shape(7, standard), Some(ShapeError::Records { records: 7, accesses: 4 }));
    for accesses in [0, MOST + 1] {
        assert_eq!(shape(1_000, Shape { accesses, ..standard }), Some(ShapeError::Accesses(accesses)));
    }
    assert_eq!(shape(1_000, Shape { exponent: 2.1, ..standard }), Some(ShapeError::Exponent(2.1)));
    assert_eq!(
        shape(1_000, Shape { exponent: -1.0, ..standard }),
        Some(ShapeError::Zipf(drtm_drive::zipf::ZipfError::Exponent(-1.0)))
    );
}

#[test]
fn transactions_are_of_different_records_in_the_shares_asked_for() {
    for accesses in [1, SHORT, LONG] {
        let shape = Shape { accesses, ..Shape::STANDARD };
        let mut transactions = Transactions::new(RECORDS, shape, 8).expect("possible");
        let drawn: Vec<Transaction> = (0..20_000).map(|_| *transactions.draw()).collect();
        let all: usize = drawn.iter().map(|transaction| transaction.accesses().len()).sum();
        assert_eq!(all, drawn.len() * usize::from(accesses));
        assert_share(drawn.iter().map(Transaction::writes).sum(), all, 0.2);
        for transaction in &drawn {
            let mut numbers: Vec<u64> = transaction.accesses().iter().map(|access| access.number).collect();
            numbers.sort_unstable();
            assert!(numbers.is_sorted_by(|one, two| one < two) && numbers.iter().all(|number| *number < RECORDS));
        }
        // The first access of each transaction is not constrained by others.
        let mut counts = vec![0; RECORDS as usize];
        for transaction in &drawn {
            counts[transaction.accesses()[0].number as usize] += 1;
        }
        assert_distribution(&counts, &zipf(RECORDS, 0.99));
    }
    // The most operations on few records, some of which are hardly ever drawn.
    let least = Shape { accesses: MOST, exponent: 2.0, ..Shape::STANDARD };
    let mut transactions = Transactions::new(32, least, 9).expect("possible");
    assert!((0..100).all(|_| transactions.draw().accesses().len() == 16));
}

#[test]
fn a_row_says_whether_it_is_whole() {
    let mut row = StandardRow::inserted(5);
    for (count, field) in (1..).zip([0, 9, 9, 3, 13]) {
        row.write(5, field);
        assert_eq!((row.writes(5), row.writes(4)), (Some(count), None));
    }
    assert_ne!(StandardRow::inserted(5), StandardRow::inserted(6));
    let (older, mut newer) = (row, row);
    newer.write(5, 9);
    // A mixture of two versions is detected at any split within a field. A split between fields
    // gives a valid row of another state.
    for split in 901..1_000 {
        let mut torn = older.as_bytes().to_vec();
        torn[split..].copy_from_slice(&newer.as_bytes()[split..]);
        // A filler byte may be equal by chance, and then nothing is torn.
        let is_torn = torn != newer.as_bytes() && torn != older.as_bytes();
        let torn = StandardRow::read_from_bytes(&torn).expect("as many bytes");
        assert_eq!(torn.writes(5).is_none(), is_torn, "at {split}");
    }
}

#[test]
fn keys_are_numbers_and_back() {
    for number in [0, 1, 2, u64::MAX, 1 << 47] {
        assert_eq!(super::number(key(number)), number);
    }
}

#[test]
fn lost_and_torn_writes_are_found() {
    let mut rows: BTreeMap<u64, StandardRow> = population(0..RECORDS).collect();
    let mut written = 0;
    let mut transactions = Transactions::new(RECORDS, Shape::STANDARD, 10).expect("possible");
    for _ in 0..5_000 {
        for access in transactions.draw().accesses().iter().filter(|access| access.writes) {
            rows.get_mut(&key(access.number)).expect("a record").write(access.number, (access.number % 10) as u8);
            written += 1;
        }
    }
    let check = |rows: &BTreeMap<u64, StandardRow>| {
        let Ok(violations) = check(rows.iter().map(|(key, row)| Ok::<_, Infallible>((*key, *row))), RECORDS, written);
        violations
    };
    assert_eq!(check(&rows), []);
    let mut lost = rows.clone();
    lost.get_mut(&key(7)).expect("a record").write(7, 0);
    assert_eq!(check(&lost), [Violation::Writes { found: written + 1, expected: written }]);
    let mut missing = rows.clone();
    let was_written = missing.remove(&key(7)).and_then(|row| row.writes(7)).expect("a record");
    let found = Violation::Rows { found: RECORDS - 1, expected: RECORDS };
    assert!(check(&missing).contains(&found));
    let mut torn = rows.clone();
    torn.insert(key(7), rows[&key(8)]);
    let found = check(&torn);
    assert_eq!(found[0], Violation::Torn { number: 7 });
    assert_eq!(found.len(), if was_written == 0 { 1 } else { 2 });
}

#[test]
fn a_seed_s_operations_and_rows_stay_what_they_are() {
    let expected =
        [Operation::Update { number: 531, field: 6 }, Operation::Read { number: 367 }, Operation::Read { number: 776 }];
    assert_eq!(draw(Workload::A, 3, 11), expected);
    let expected = [(531, 61), (367, 3), (705, 37)].map(|(number, length)| Operation::Scan { number, length });
    assert_eq!(draw(Workload::E, 3, 11), expected);
    let mut transactions = Transactions::new(1_000_000, Shape::STANDARD, 11).expect("possible");
    let drawn = transactions.draw();
    let expected = [(210_469, true), (11_886, false), (94, false), (94_860, false)];
    assert_eq!(drawn.accesses(), expected.map(|(number, writes)| Access { number, writes }));
    assert_eq!(drtm_drive::scatter::scatter(1), 0x5692_161D_100B_05E5);
}

#[test]
fn transactions_can_be_of_a_clients_node() {
    let place = drtm_drive::cluster::Place { node: 1, nodes: 4, clients: 2 };
    let nearby = drtm_drive::cluster::Nearby::new(100, place, 7);
    let shape = Shape { accesses: 5, ..Shape::STANDARD };
    let mut transactions = Transactions::new(RECORDS, shape, 7).expect("possible").near(Some(nearby));
    for _ in 0..1_000 {
        let numbers: BTreeMap<u64, bool> =
            transactions.draw().accesses().iter().map(|access| (access.number, access.writes)).collect();
        assert!(numbers.len() == 5 && numbers.keys().all(|number| place.owns(*number) && *number < RECORDS));
    }
}
