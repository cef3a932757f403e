//! The guards of a scan detect every insertion and removal of a key in its range.

use crate::transacted::Transacted;
use drtm_htm::{Engine, NoHtm};
use drtm_kv::{Current, KvTable, NoValue, NodeVersion, Scan, Store, Tree};
use proptest::prelude::*;

use crate::support::{MIB, store};

/// Creates a tree with even keys, so that there is room between them.
fn filled(keys: u64) -> (Store<NoHtm>, Tree<NoHtm>) {
    let store = store(NoHtm, 64 * MIB);
    let tree = store.tree().expect("a tree");
    let mut worker = store.worker().expect("a worker");
    for key in 0..keys {
        tree.insert(&mut worker, 2 * (key * 7_919 % keys), &[1; 20]).expect("room");
    }
    (store, tree)
}

fn passed<E: Engine>(mut scan: Scan<'_, E>) -> Vec<NodeVersion> {
    while scan.next().expect("sound").is_some() {}
    scan.passed().to_vec()
}

/// Returns the guards of a scan that turns after every `each` rows.
fn passed_turning<E: Engine>(mut scan: Scan<'_, E>, each: usize) -> Vec<NodeVersion> {
    let mut rows = 0;
    while scan.next().expect("sound").is_some() {
        rows += 1;
        if rows % each == 0 {
            scan.reverse();
        }
    }
    scan.passed().to_vec()
}

fn holds(tree: &Tree<NoHtm>, passed: &[NodeVersion]) -> bool {
    passed.iter().all(|leaf| tree.unchanged(leaf))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_key_that_comes_or_goes_is_noticed(
        keys in 1_009..1_010u64, from in 0..2_100u64, length in 0..300u64, at in 0..300u64, up: bool,
        turning in prop_oneof![1..40_usize, Just(usize::MAX)],
    ) {
        let (store, tree) = filled(keys);
        let mut worker = store.worker().expect("a worker");
        let range = from..=from + length;
        let key = from + at % (length + 1);
        let rows = || if up { tree.range(range.clone()) } else { tree.range_back(range.clone()) };
        let scan = || passed_turning(rows(), turning);

        let before = scan();
        prop_assert!(holds(&tree, &before));
        let existed = tree.remove(&mut worker, key).expect("sound").is_some();
        prop_assert_eq!(holds(&tree, &before), !existed);

        let before = scan();
        prop_assert!(tree.insert(&mut worker, key, b"new").expect("room").is_some());
        prop_assert!(!holds(&tree, &before));

        // A removal and an insertion are detected, even if the keys are as before.
        let before = scan();
        prop_assert!(tree.remove(&mut worker, key).expect("sound").is_some());
        prop_assert!(tree.insert(&mut worker, key, b"new").expect("room").is_some());
        prop_assert!(!holds(&tree, &before));
    }

    #[test]
    fn all_that_happens_to_a_range_is_noticed_whatever_it_does_to_the_tree(from in 0..2_000u64, length in 0..400u64) {
        let (store, tree) = filled(1_009);
        let mut worker = store.worker().expect("a worker");
        let before = passed(tree.range(from..=from + length));
        // Everything is removed and as much inserted elsewhere, so that the nodes are reused.
        for key in 0..1_009 {
            tree.remove(&mut worker, 2 * key).expect("sound");
        }
        for key in 0..1_009 {
            tree.insert(&mut worker, 10_000 + key, b"").expect("room");
        }
        prop_assert!(!holds(&tree, &before));
        prop_assert!(before.iter().any(|leaf| !tree.unchanged(leaf)));
    }
}

#[test]
fn updates_are_no_phantoms() {
    let (store, tree) = filled(1_009);
    let mut worker = store.worker().expect("a worker");
    let all = passed(tree.range(..));
    for key in 0..1_009 {
        // In place, then elsewhere, and back.
        for length in [20, 700, 20] {
            assert!(tree.update(&mut worker, 2 * key, &vec![2; length]).expect("room").is_some());
        }
        assert!(tree.insert(&mut worker, 2 * key, b"there").expect("sound").is_none());
        assert!(tree.remove(&mut worker, 2 * key + 1).expect("sound").is_none());
    }
    assert!(holds(&tree, &all));
}

#[test]
fn what_is_outside_a_range_is_mostly_not_noticed() {
    let (store, tree) = filled(10_007);
    let mut worker = store.worker().expect("a worker");
    let passed = passed(tree.range(5_000..5_200));
    assert!(passed.len() < 20, "{}", passed.len());
    for key in (1..3_000).chain(8_000..12_000).step_by(2) {
        tree.insert(&mut worker, key | 1, b"elsewhere").expect("room");
    }
    assert!(holds(&tree, &passed));
}

#[test]
fn a_scan_that_stops_early_has_passed_what_it_came_to() {
    let (store, tree) = filled(1_009);
    let mut worker = store.worker().expect("a worker");
    let mut scan = tree.range(100..);
    for expected in (100..160).step_by(2) {
        assert_eq!(scan.next().expect("sound").map(|row| row.key), Some(expected));
    }
    let leaves = scan.passed().to_vec();
    for key in (101..159).step_by(2) {
        assert!(tree.insert(&mut worker, key, b"").expect("room").is_some());
        assert!(!holds(&tree, &leaves), "{key}");
        tree.remove(&mut worker, key).expect("sound");
    }
    // The scan continues all the same.
    assert_eq!(scan.next().expect("sound").map(|row| row.key), Some(160));
}

#[test]
fn a_key_that_is_not_there_is_not_there_until_its_leaf_changes() {
    let (store, tree) = filled(1_009);
    let mut worker = store.worker().expect("a worker");
    for key in (1..2_000).step_by(2) {
        let Err(leaf) = tree.read(key, Current, &mut NoValue).expect("sound") else { panic!("{key} is not there") };
        assert!(tree.unchanged(&leaf));
        tree.insert(&mut worker, key, b"").expect("room");
        assert!(!tree.unchanged(&leaf));
        assert!(tree.read(key, Current, &mut NoValue).expect("sound").is_ok());
    }
}

#[test]
fn an_empty_range_has_nothing_to_pass() {
    let (_store, tree) = filled(100);
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is tested")]
    let scans = [tree.range(7..3), tree.range(5..5), tree.range_back(7..3), tree.range_back(5..5)];
    for scan in scans {
        assert_eq!(passed(scan), []);
    }
}
