//! The guards of a scan of byte strings through all layers, and the scan's behaviour when layers
//! change meanwhile.

use std::{collections::BTreeSet, ops::Bound};

use crate::transacted::Transacted;
use drtm_htm::NoHtm;
use drtm_kv::{Bytes, Current, KvTable, NoValue, NodeVersion, Scan, Store, Tree};
use proptest::prelude::*;

use crate::support::{Key, MIB, is_backward, key, key_bound, store};

type Bounds = (Bound<Key>, Bound<Key>);

fn filled(keys: &BTreeSet<Key>) -> (Store<NoHtm>, Tree<NoHtm, Bytes>) {
    let store = store(NoHtm, 64 * MIB);
    let tree = store.tree_of().expect("a tree");
    let mut worker = store.worker().expect("a worker");
    for key in keys.iter().map(Vec::as_slice) {
        assert!(tree.insert(&mut worker, key, key).expect("room").is_some());
    }
    (store, tree)
}

fn scan<'t>(tree: &'t Tree<NoHtm, Bytes>, bounds: &Bounds, up: bool) -> Scan<'t, NoHtm, Bytes> {
    let range = (bounds.0.as_ref().map(Vec::as_slice), bounds.1.as_ref().map(Vec::as_slice));
    if up { tree.range(range) } else { tree.range_back(range) }
}

fn passed(mut scan: Scan<'_, NoHtm, Bytes>) -> Vec<NodeVersion> {
    while scan.next().expect("sound").is_some() {}
    scan.passed().to_vec()
}

fn holds(tree: &Tree<NoHtm, Bytes>, passed: &[NodeVersion]) -> bool {
    passed.iter().all(|leaf| tree.unchanged(leaf))
}

fn is_within(bounds: &Bounds, key: &Key) -> bool {
    !is_backward(bounds) && std::ops::RangeBounds::contains(&(bounds.0.as_ref(), bounds.1.as_ref()), key)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn every_key_that_comes_or_goes_is_noticed(
        keys in prop::collection::btree_set(key(), 0..150),
        others in prop::collection::vec(key(), 1..20),
        bounds in (key_bound(), key_bound()),
        up: bool,
    ) {
        let (store, tree) = filled(&keys);
        let mut worker = store.worker().expect("a worker");
        for key in others.iter().filter(|key| is_within(&bounds, key)) {
            let before = passed(scan(&tree, &bounds, up));
            prop_assert!(holds(&tree, &before));
            let existed = tree.remove(&mut worker, key).expect("sound").is_some();
            prop_assert_eq!(holds(&tree, &before), !existed);

            let before = passed(scan(&tree, &bounds, up));
            let Err(leaf) = tree.read(key, Current, &mut NoValue).expect("sound") else {
                return Err(TestCaseError::fail("it was removed"));
            };
            prop_assert!(tree.insert(&mut worker, key, b"new").expect("room").is_some());
            prop_assert!(!holds(&tree, &before) && !tree.unchanged(&leaf));

            // A removal and an insertion are detected, even if the keys are as before.
            let before = passed(scan(&tree, &bounds, up));
            prop_assert!(tree.remove(&mut worker, key).expect("sound").is_some());
            prop_assert!(tree.insert(&mut worker, key, b"new").expect("room").is_some());
            prop_assert!(!holds(&tree, &before));
        }
    }

    #[test]
    fn a_scan_that_stops_early_has_passed_what_it_came_to(
        keys in prop::collection::btree_set(key(), 1..150),
        others in prop::collection::vec(key(), 1..20),
        bounds in (key_bound(), key_bound()),
        rows in 1..20,
        up: bool,
    ) {
        let (store, tree) = filled(&keys);
        let mut worker = store.worker().expect("a worker");
        let mut scan = scan(&tree, &bounds, up);
        let mut last = None;
        for _ in 0..rows {
            if let Some(row) = scan.next().expect("sound") {
                last = Some(row.key.to_vec());
            }
        }
        let Some(last) = last else { return Ok(()) };
        let come_to = if up { (bounds.0, Bound::Included(last)) } else { (Bound::Included(last), bounds.1) };
        for key in others.iter().filter(|key| is_within(&come_to, key) && !keys.contains(*key)) {
            if tree.insert(&mut worker, key, b"").expect("room").is_some() {
                prop_assert!(!holds(&tree, scan.passed()), "{:?}", key);
            }
        }
    }

    /// Between rows, other keys come and go, and values move. The permanent keys are returned once
    /// and in order, and no key out of the range is.
    #[test]
    fn a_scan_goes_on_whatever_happens(
        stays in prop::collection::btree_set(key(), 0..100),
        comes in prop::collection::vec((key(), 0..4u8), 1..300),
        bounds in (key_bound(), key_bound()),
        up: bool,
    ) {
        let (store, tree) = filled(&stays);
        let mut worker = store.worker().expect("a worker");
        let mut scan = scan(&tree, &bounds, up);
        let mut changes = comes.chunks(5).cycle().take(500);
        let mut found: Vec<Key> = Vec::new();
        while let Some(row) = scan.next().expect("sound") {
            prop_assert!(row.value.starts_with(row.key));
            prop_assert!(is_within(&bounds, &row.key.to_vec()), "{:?} is out of range", row.key);
            found.push(row.key.to_vec());
            for (key, what) in changes.next().into_iter().flatten() {
                match what {
                    0 => drop(tree.insert(&mut worker, key, key).expect("room")),
                    1 if !stays.contains(key) => drop(tree.remove(&mut worker, key).expect("sound")),
                    2 => drop(tree.update(&mut worker, key, key).expect("room")),
                    _ => drop(tree.update(&mut worker, key, &[&key[..], &[7; 300]].concat()).expect("room")),
                }
            }
        }
        let is_in_order = if up { found.is_sorted_by(|a, b| a < b) } else { found.is_sorted_by(|a, b| a > b) };
        prop_assert!(is_in_order);
        for key in stays.iter().filter(|key| is_within(&bounds, key)) {
            prop_assert!(found.contains(key), "{:?} was always there", key);
        }
    }
}

#[test]
fn updates_are_no_phantoms_and_what_is_elsewhere_is_not_noticed() {
    let keys =
        |prefix: &'static str| (0..500).map(move |number: u32| format!("{prefix}, number {number:05}").into_bytes());
    let names = ["some common prefix", "some other prefix", "some prefix"];
    let (store, tree) = filled(&names.into_iter().flat_map(keys).collect());
    let mut worker = store.worker().expect("a worker");
    let range = (Bound::Included(b"some other".to_vec()), Bound::Excluded(b"some others".to_vec()));
    let all = passed(scan(&tree, &range, true));
    assert!((20..60).contains(&all.len()), "{}", all.len());
    for key in keys("some other prefix") {
        // In place, then elsewhere, and back.
        for length in [20, 700, 20] {
            assert!(tree.update(&mut worker, &key, &vec![2; length]).expect("room").is_some());
        }
        assert!(tree.insert(&mut worker, &key, b"there").expect("sound").is_none());
    }
    for key in [names[0], names[2]].into_iter().flat_map(keys) {
        assert!(tree.insert(&mut worker, &[&key[..], b" and more"].concat(), b"elsewhere").expect("room").is_some());
        assert!(tree.remove(&mut worker, &key).expect("sound").is_some());
    }
    assert!(holds(&tree, &all));
}

#[test]
fn an_empty_range_has_nothing_to_pass() {
    let (_store, tree) = filled(&BTreeSet::from([b"a".to_vec(), b"abcdefgh".to_vec()]));
    let (a, ab) = (&b"a"[..], &b"ab"[..]);
    for scan in [tree.range(ab..a), tree.range(a..a), tree.range_back(ab..a), tree.range(..&b""[..])] {
        assert_eq!(passed(scan), []);
    }
}
