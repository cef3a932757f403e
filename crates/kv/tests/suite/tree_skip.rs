//! Cursors that skip part of their range, beside a sorted map.

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
    // Some of them are in deeper layers than others.
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

/// What a scan does: how many rows it returns before each skip, by how much that goes, and whether the key that it goes
/// to is included.
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
    // What is to come, in the scan's order.
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
        // Not back to what was returned.
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
}
