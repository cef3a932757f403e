//! Histories known to be serializable or not: both checkers must agree.

use super::*;

/// A transaction in a process of its own.
fn at(process: usize, invoked: u64, completed: u64, operations: Vec<Operation>) -> Observed {
    Observed { process, invoked, completed, outcome: Outcome::Committed, operations }
}

fn aborted(observed: Observed) -> Observed {
    Observed { outcome: Outcome::Aborted, ..observed }
}

fn append(key: u64, value: u64) -> Operation {
    Operation::Append { key, value }
}

fn list(key: u64, seen: &[u64]) -> Operation {
    Operation::List { key, seen: seen.to_vec() }
}

fn read(key: u64, seen: Option<u64>) -> Operation {
    Operation::Read { key, seen }
}

/// Uses the value as the version.
fn write(key: u64, value: u64) -> Operation {
    Operation::Write { key, value, version: value }
}

/// Asserts that our checker finds exactly one anomaly, which begins with `expected`, and that the
/// other checker finds one too.
#[track_caller]
fn both_find(record: &[Observed], expected: &str, by_adya: &[&str]) {
    let told = judge::anomalies(record);
    assert!(told.len() == 1 && told[0].starts_with(expected), "{told:?}");
    let (valid, types) = judged_by_adya(record, true);
    assert_eq!(valid, Valid::False);
    assert!(by_adya.iter().all(|name| types.iter().any(|found| found == name)), "{types:?}");
}

#[test]
fn sound_histories_pass() {
    let lists = [
        at(0, 0, 9, vec![append(1, 1), list(1, &[1])]),
        at(1, 5, 30, vec![list(1, &[1]), append(1, 2), append(2, 3)]),
        aborted(at(2, 10, 20, vec![append(1, 4)])),
        at(0, 40, 50, vec![list(1, &[1, 2]), list(2, &[3]), list(3, &[])]),
    ];
    assert_eq!((judge::anomalies(&lists), judged_by_adya(&lists, true).0), (vec![], Valid::True));
    let registers = [
        at(0, 0, 9, vec![read(1, None), write(1, 1)]),
        at(1, 10, 30, vec![read(1, Some(1)), write(1, 2), read(1, Some(2))]),
        at(0, 20, 40, vec![read(1, Some(1)), read(2, None)]),
    ];
    assert_eq!((judge::anomalies(&registers), judged_by_adya(&registers, true).0), (vec![], Valid::True));
}

#[test]
fn write_skew_of_lists() {
    let record = [
        at(0, 0, 9, vec![list(1, &[]), append(2, 1)]),
        at(1, 1, 9, vec![list(2, &[]), append(1, 2)]),
        at(2, 10, 20, vec![list(1, &[2]), list(2, &[1])]),
    ];
    both_find(&record, "G2-item", &["G2-item"]);
}

#[test]
fn a_lost_update_of_a_list() {
    let record = [
        at(0, 0, 9, vec![list(1, &[]), append(1, 1)]),
        at(1, 1, 9, vec![list(1, &[]), append(1, 2)]),
        at(2, 10, 20, vec![list(1, &[1, 2])]),
    ];
    both_find(&record, "lost update", &["lost-update"]);
}

#[test]
fn an_append_that_vanished() {
    let record = [at(0, 0, 9, vec![append(1, 1)]), at(1, 10, 20, vec![list(1, &[])])];
    both_find(&record, "real-time violation", &["G-single-item-realtime"]);
}

#[test]
fn a_read_of_what_was_aborted() {
    let record = [aborted(at(0, 0, 9, vec![append(1, 1)])), at(1, 10, 20, vec![list(1, &[1])])];
    both_find(&record, "G1a", &["G1a"]);
}

#[test]
fn a_read_of_half_a_transaction() {
    let record = [
        at(0, 0, 9, vec![append(1, 1), append(1, 2)]),
        at(1, 0, 9, vec![list(1, &[1])]),
        at(2, 10, 20, vec![list(1, &[1, 2])]),
    ];
    let told = judge::anomalies(&record);
    assert!(told.iter().any(|anomaly| anomaly.starts_with("G1b")), "{told:?}");
    assert!(judged_by_adya(&record, true).1.contains(&"G1b".to_owned()));
}

#[test]
fn a_list_in_two_orders() {
    let record = [
        at(0, 0, 9, vec![append(1, 1)]),
        at(1, 0, 9, vec![append(1, 2)]),
        at(2, 0, 9, vec![list(1, &[1, 2])]),
        at(3, 0, 9, vec![list(1, &[2])]),
    ];
    let told = judge::anomalies(&record);
    assert!(told.iter().any(|anomaly| anomaly.starts_with("T3 read list 1 as [2]")), "{told:?}");
    assert!(judged_by_adya(&record, true).1.contains(&"incompatible-order".to_owned()));
}

#[test]
fn a_value_that_is_there_twice() {
    let record = [at(0, 0, 9, vec![append(1, 1)]), at(1, 10, 20, vec![list(1, &[1, 1])])];
    both_find(&record, "T1 read 1 twice", &["duplicate-elements"]);
}

#[test]
fn a_value_without_a_writer() {
    let lists = [at(0, 0, 9, vec![append(1, 1)]), at(1, 10, 20, vec![list(1, &[1, 7])])];
    let told = judge::anomalies(&lists);
    assert!(told.iter().any(|anomaly| anomaly.contains("which no transaction wrote")), "{told:?}");
    let registers = [at(0, 0, 9, vec![read(1, Some(7))])];
    assert!(judge::anomalies(&registers)[0].contains("which no transaction wrote"));
}

#[test]
fn a_transaction_that_does_not_see_its_own_append() {
    let record = [at(0, 0, 9, vec![append(1, 1), list(1, &[])]), at(1, 10, 20, vec![list(1, &[1])])];
    both_find(&record, "T0 read nothing", &["internal"]);
}

/// The other checker misses it, unless it knows that writes follow reads.
#[test]
fn write_skew_of_registers() {
    let record = [
        at(0, 0, 9, vec![read(1, None), read(2, None), write(1, 10), write(2, 20)]),
        at(1, 10, 20, vec![read(1, Some(10)), read(2, Some(20)), write(2, 21)]),
        at(2, 11, 20, vec![read(2, Some(20)), read(1, Some(10)), write(1, 11)]),
    ];
    both_find(&record, "G2-item", &["G2-item"]);
    assert_ne!(judged_by_adya(&record, false).0, Valid::False);
}

#[test]
fn a_lost_update_of_a_register() {
    let record = [
        at(0, 0, 9, vec![read(1, None), write(1, 1)]),
        at(1, 10, 20, vec![read(1, Some(1)), write(1, 2)]),
        at(2, 11, 20, vec![read(1, Some(1)), write(1, 3)]),
    ];
    both_find(&record, "lost update", &["lost-update"]);
}

#[test]
fn a_stale_read_of_a_register() {
    let record = [
        at(0, 0, 9, vec![read(1, None), write(1, 1)]),
        at(1, 10, 20, vec![read(1, Some(1)), write(1, 2)]),
        at(2, 30, 40, vec![read(1, Some(1))]),
    ];
    both_find(&record, "real-time violation", &["G-single-item-realtime"]);
}

/// Only our checker finds these.
#[test]
fn phantoms_and_absent_keys() {
    let scan = |seen: &[(u64, u64)]| Operation::Scan { keys: 0..10, seen: seen.to_vec() };
    let phantom = [
        at(0, 0, 9, vec![scan(&[]), read(20, None), write(20, 1)]),
        at(1, 1, 9, vec![read(20, None), read(5, None), write(5, 2)]),
    ];
    let told = judge::anomalies(&phantom);
    assert!(told.len() == 1 && told[0].starts_with("G2:") && told[0].contains("phantom"), "{told:?}");
    let reappeared = [
        at(0, 0, 9, vec![read(1, None), write(1, 1)]),
        at(0, 10, 19, vec![read(1, Some(1)), Operation::Remove { key: 1, version: 2 }]),
        at(1, 20, 29, vec![scan(&[(1, 1)])]),
    ];
    assert!(judge::anomalies(&reappeared)[0].starts_with("real-time violation"));
    let disordered =
        [at(0, 0, 9, vec![read(1, None), write(1, 1), read(2, None), write(2, 2), scan(&[(2, 2), (1, 1)])])];
    assert!(judge::anomalies(&disordered)[0].contains("out of order"));
}

#[test]
fn the_file_is_what_its_description_says() {
    let record = [
        at(0, 5, 20, vec![append(3, 1), list(4, &[2, 5])]),
        aborted(at(1, 7, 7, vec![read(1, Some(9)), write(1, 10), Operation::Remove { key: 1, version: 11 }])),
        Observed { outcome: Outcome::Unknown, ..at(2, 20, 0, vec![append(3, 6)]) },
        at(
            1,
            21,
            22,
            vec![
                read(1, None),
                Operation::Scan { keys: 2..5, seen: vec![(2, 8), (4, 9)] },
                Operation::Remove { key: 2, version: 12 },
                Operation::Remove { key: 3, version: 0 },
            ],
        ),
    ];
    let expected = "\
{:index 0, :type :invoke, :process 0, :time 5, :f :txn, :value [[:append 3 1] [:r 4 nil]]}
{:index 1, :type :invoke, :process 1, :time 7, :f :txn, :value [[:r 1 nil] [:w 1 10] [:remove 1 nil]]}
{:index 2, :type :fail, :process 1, :time 7, :f :txn, :value [[:r 1 nil] [:w 1 10] [:remove 1 nil]]}
{:index 3, :type :invoke, :process 2, :time 20, :f :txn, :value [[:append 3 6]]}
{:index 4, :type :ok, :process 0, :time 20, :f :txn, :value [[:append 3 1] [:r 4 [2 5]]]}
{:index 5, :type :invoke, :process 1, :time 21, :f :txn, :value [[:r 1 nil] [:scan [2 5] nil] [:remove 2 nil] [:remove 3 nil]]}
{:index 6, :type :ok, :process 1, :time 22, :f :txn, :value [[:r 1 nil] [:scan [2 5] [[2 8] [4 9]]] [:remove 2 true] [:remove 3 false]]}
{:index 7, :type :info, :process 2, :time 9223372036854775807, :f :txn, :value [[:append 3 6]]}
";
    assert_eq!(file(&record), expected);
}
