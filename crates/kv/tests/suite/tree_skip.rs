//! Cursors that skip part of their range, or turn, compared with a sorted map.

use std::{collections::BTreeSet, ops::Bound};

use drtm_htm::NoHtm;
use drtm_kv::{Bytes, Current, Cursor, Inline, KvTable, Store, TreeKeys};
use proptest::prelude::*;

use crate::support::store;

/// Keys in the order of their numbers.
trait InOrder: TreeKeys {
    fn with<T>(number: u16, then: impl FnOnce(Self::Key<'_>) -> T) -> T;

    fn up(first: u16, end: u16) -> Cursor<Self>;

    fn down(first: u16, end: u16) -> Cursor<Self>;
}

impl InOrder for Inline {
    fn with<T>(number: u16, then: impl FnOnce(u64) -> T) -> T {
        then(u64::from(number))
    }

    fn up(first: u16, end: u16) -> Cursor<Self> {
        Cursor::up(u64::from(first)..end.into())
    }

    fn down(first: u16, end: u16) -> Cursor<Self> {
        Cursor::down(u64::from(first)..end.into())
    }
}

fn bytes(number: u16) -> Vec<u8> {
    // Some keys are in deeper layers than others.
    let mut key = b"the same for all of them".to_vec();
    key.extend((number / 50).to_be_bytes());
    key.extend(vec![b'+'; usize::from(number / 50 % 3) * 7]);
    key.extend(number.to_be_bytes());
    key
}

impl InOrder for Bytes {
    fn with<T>(number: u16, then: impl FnOnce(&[u8]) -> T) -> T {
        then(&bytes(number))
    }

    fn up(first: u16, end: u16) -> Cursor<Self> {
        Cursor::up(&*bytes(first)..&*bytes(end))
    }

    fn down(first: u16, end: u16) -> Cursor<Self> {
        Cursor::down(&*bytes(first)..&*bytes(end))
    }
}

/// A scan's skips: the rows before each skip, its distance, and whether its target is included.
type Skips = Vec<(usize, u16, bool)>;

fn run<K: InOrder>(store: &Store<NoHtm>, keys: &BTreeSet<u16>, is_up: bool, skips: &Skips) {
    let tree = store.tree_of::<K>().expect("a tree");
    let mut worker = store.worker().expect("a worker");
    for key in keys {
        K::with(*key, |key| tree.insert(&mut worker, key, b"")).expect("room");
    }
    let (first, end) = (10, 390);
    let mut cursor = if is_up { K::up(first, end) } else { K::down(first, end) };
    let in_range: Vec<u16> = keys.range(first..end).copied().collect();
    // The remaining keys, in the scan's order.
    let mut left: Vec<u16> = if is_up { in_range } else { in_range.into_iter().rev().collect() };
    let mut at = if is_up { first } else { end };
    let mut skips = skips.iter();
    loop {
        let skip = skips.next();
        for _ in 0..skip.map_or(usize::MAX, |skip| skip.0) {
            let row = tree.advance(&mut cursor, &mut Current, &mut (), &mut Vec::new()).expect("sound");
            let expected = (!left.is_empty()).then(|| left.remove(0));
            match (row, expected) {
                (Some((found, _)), Some(key)) => {
                    assert!(
                        K::with(key, |key| K::with_bytes(key, <[u8]>::to_vec)) == K::with_bytes(found, <[u8]>::to_vec),
                        "not {key}"
                    );
                    at = key;
                }
                (None, None) => break,
                (row, expected) => panic!("{} instead of {expected:?}", row.map_or("none", |_| "another")),
            }
        }
        let Some((_, by, is_included)) = skip else { break };
        // Not back to returned rows.
        let to = if is_up { at + by + 1 } else { at.saturating_sub(by + 1) };
        K::with(to, |key| {
            cursor.skip_to(if *is_included { Bound::Included(key) } else { Bound::Excluded(key) });
        });
        left.retain(|key| match (is_up, is_included) {
            (true, true) => *key >= to,
            (true, false) => *key > to,
            (false, true) => *key <= to,
            (false, false) => *key < to,
        });
        at = to;
    }
}

/// An operation on a tree and on a cursor in it.
#[derive(Clone, Debug)]
enum Step {
    Next(usize),
    Reverse,
    Insert(u16),
    Remove(u16),
    Skip(u16, bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..20_usize).prop_map(Step::Next),
        3 => Just(Step::Reverse),
        1 => (0..400_u16).prop_map(Step::Insert),
        1 => (0..400_u16).prop_map(Step::Remove),
        1 => (0..30_u16, any::<bool>()).prop_map(|(by, is_included)| Step::Skip(by, is_included)),
    ]
}

fn run_turning<K: InOrder>(store: &Store<NoHtm>, keys: &BTreeSet<u16>, steps: &[Step]) {
    let tree = store.tree_of::<K>().expect("a tree");
    let mut worker = store.worker().expect("a worker");
    let mut keys = keys.clone();
    for key in &keys {
        K::with(*key, |key| tree.insert(&mut worker, key, b"")).expect("room");
    }
    // Keys inserted since the scan began: it may miss them.
    let mut new = BTreeSet::new();
    // The rest of the range: from one key to before another.
    let (mut first, mut end) = (10, 390);
    let (mut cursor, mut is_up) = (K::up(first, end), true);
    for step in steps.iter().chain([&Step::Next(usize::MAX)]) {
        match *step {
            Step::Next(rows) => {
                for _ in 0..rows {
                    let row = tree.advance(&mut cursor, &mut Current, &mut (), &mut Vec::new()).expect("sound");
                    let found = row.map(|(key, _)| K::with_bytes(key, <[u8]>::to_vec));
                    let mut left: Vec<u16> = keys.range(first..end.max(first)).copied().collect();
                    if !is_up {
                        left.reverse();
                    }
                    // Any key up to the first mandatory one may be returned.
                    let must = left.iter().position(|key| !new.contains(key));
                    let Some(found) = found else {
                        assert_eq!(must, None, "{:?} is missing", must.map(|at| left[at]));
                        // Later insertions come too late.
                        end = first;
                        break;
                    };
                    let is_it = |key: &&u16| K::with(**key, |key| K::with_bytes(key, <[u8]>::to_vec)) == found;
                    let key = *left[..must.map_or(left.len(), |at| at + 1)].iter().find(is_it).expect("it is next");
                    if is_up {
                        first = key + 1;
                    } else {
                        end = key;
                    }
                }
            }
            Step::Reverse => {
                cursor.reverse();
                is_up = !is_up;
            }
            Step::Insert(key) => {
                if keys.insert(key) {
                    new.insert(key);
                    K::with(key, |key| tree.insert(&mut worker, key, b"")).expect("room");
                }
            }
            Step::Remove(key) => {
                if keys.remove(&key) {
                    K::with(key, |key| tree.remove(&mut worker, key)).expect("sound");
                }
            }
            // A range that has ended is over: its cursor may find later insertions after a skip.
            Step::Skip(..) if first >= end => {}
            // Not back to returned rows.
            Step::Skip(by, is_included) => {
                let to = if is_up { first + by } else { end.saturating_sub(by + 1) };
                K::with(to, |key| {
                    cursor.skip_to(if is_included { Bound::Included(key) } else { Bound::Excluded(key) });
                });
                if is_up {
                    first = to + u16::from(!is_included);
                } else {
                    end = to + u16::from(is_included);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn a_scan_continues_behind_what_it_skips(
        keys in prop::collection::btree_set(0..400_u16, 0..300),
        is_up: bool,
        skips in prop::collection::vec((0..20_usize, 0..60_u16, any::<bool>()), 0..8),
    ) {
        let store = store(NoHtm, 16 << 20);
        run::<Inline>(&store, &keys, is_up, &skips);
        run::<Bytes>(&store, &keys, is_up, &skips);
    }
    #[test]
    fn a_scan_turns_wherever_it_is_and_whatever_has_changed(
        keys in prop::collection::btree_set(0..400_u16, 0..300),
        steps in prop::collection::vec(step(), 0..40),
    ) {
        let store = store(NoHtm, 16 << 20);
        run_turning::<Inline>(&store, &keys, &steps);
        run_turning::<Bytes>(&store, &keys, &steps);
    }
}
