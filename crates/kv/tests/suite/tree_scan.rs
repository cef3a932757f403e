//! Scans of a tree that changes step by step meanwhile; and the fill of leaves after ascending
//! insertions.

use drtm_htm::NoHtm;
use drtm_kv::{Bytes, Inline, KvTable, Scan, Store, Tree, TreeKeys, Worker};
use proptest::prelude::*;

use crate::support::{MIB, each_row, store};

/// A change of a number's key between two rows.
type Change<'t> = dyn FnMut(u64, bool) + 't;

/// Runs a scan with a change after each row, and returns the numbers that it returned.
fn come_to<K: TreeKeys>(
    mut scan: Scan<'_, NoHtm, K>,
    number: impl Fn(K::Key<'_>) -> u64,
    changes: &[(u64, bool)],
    change: &mut Change<'_>,
) -> Vec<u64> {
    let mut changes = changes.iter().cycle();
    let mut numbers = Vec::new();
    each_row(&mut scan, |key, _, _| {
        numbers.push(number(key));
        changes.by_ref().take(3).for_each(|(number, comes)| change(*number, *comes));
    });
    numbers
}

/// Checks that each even number, which is always present, was returned once, and that all are
/// ordered.
fn are_right(mut numbers: Vec<u64>, up: bool, range: std::ops::RangeInclusive<u64>) -> Result<(), TestCaseError> {
    if !up {
        numbers.reverse();
    }
    prop_assert!(numbers.is_sorted_by(|one, other| one < other), "{numbers:?}");
    prop_assert!(numbers.iter().all(|number| range.contains(number)));
    let even: Vec<_> = numbers.into_iter().filter(|number| number % 2 == 0).collect();
    prop_assert!(even.into_iter().eq(range.filter(|number| number % 2 == 0)));
    Ok(())
}

/// Many keys share as many bytes as there are layers.
fn name(number: u64) -> Vec<u8> {
    format!("{:06}/{:02}", number / 20, number % 20).into_bytes()
}

fn number_of(name: &[u8]) -> u64 {
    let text = std::str::from_utf8(name).expect("made above");
    let (front, back) = text.split_once('/').expect("made above");
    20 * front.parse::<u64>().expect("made above") + back.parse::<u64>().expect("made above")
}

fn changes() -> impl Strategy<Value = Vec<(u64, bool)>> {
    prop::collection::vec(((0..400_u64).prop_map(|number| 2 * number + 1), any::<bool>()), 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_scan_goes_on_where_its_leaf_changes(changes in changes(), from in 0..800_u64, length in 0..800_u64, up: bool) {
        let store = store(NoHtm, 64 * MIB);
        let tree: Tree<NoHtm, Inline> = store.tree().expect("a tree");
        let mut worker = store.worker().expect("a worker");
        for number in (0..=1_600).step_by(2) {
            tree.insert(&mut worker, number, b"always").expect("room");
        }
        let range = from..=from + length;
        let scan = if up { tree.range(range.clone()) } else { tree.range_back(range.clone()) };
        let numbers = come_to(scan, |key| key, &changes, &mut |number, comes| {
            if comes {
                tree.put(&mut worker, number, b"perhaps").expect("room");
            } else {
                tree.remove(&mut worker, number).expect("sound");
            }
        });
        are_right(numbers, up, range)?;
    }

    #[test]
    fn a_scan_of_byte_strings_goes_on_where_its_leaf_changes(
        changes in changes(), from in 0..800_u64, length in 0..800_u64, up: bool,
    ) {
        let store = store(NoHtm, 64 * MIB);
        let tree: Tree<NoHtm, Bytes> = store.tree_of().expect("a tree");
        let mut worker = store.worker().expect("a worker");
        for number in (0..=1_600).step_by(2) {
            tree.insert(&mut worker, &name(number), b"always").expect("room");
        }
        let range = from..=from + length;
        let (low, high) = (name(from), name(from + length));
        let bounds = &low[..]..=&high[..];
        let scan = if up { tree.range(bounds) } else { tree.range_back(bounds) };
        let numbers = come_to(scan, number_of, &changes, &mut |number, comes| {
            if comes {
                tree.put(&mut worker, &name(number), b"perhaps").expect("room");
            } else {
                tree.remove(&mut worker, &name(number)).expect("sound");
            }
        });
        are_right(numbers, up, range)?;
    }
}

fn leaves(tree: &Tree<NoHtm>) -> usize {
    let mut scan = tree.range(..);
    while scan.next().expect("sound").is_some() {}
    scan.passed().len()
}

fn filled(fill: impl FnOnce(&Store<NoHtm>, &Tree<NoHtm>, &mut Worker<NoHtm>)) -> usize {
    let store = store(NoHtm, 64 * MIB);
    let tree = store.tree().expect("a tree");
    fill(&store, &tree, &mut store.worker().expect("a worker"));
    leaves(&tree)
}

/// Thirty keys fit into a leaf.
#[test]
fn ascending_keys_leave_full_leaves_behind() {
    let at_the_end = filled(|_, tree, worker| {
        for key in 0..3_000 {
            tree.insert(worker, key, b"").expect("room");
        }
    });
    assert_eq!(at_the_end, 100);

    // The same number of keys, but ten groups grow in turns, so that their keys interleave; and
    // another tree grows meanwhile.
    let between = filled(|store, tree, worker| {
        let other = store.tree().expect("another");
        for turn in 0..30_u64 {
            for group in 0..10_u64 {
                for key in 0..10_u64 {
                    tree.insert(worker, group << 32 | (10 * turn + key), b"").expect("room");
                    other.insert(worker, 7_919 * (100 * turn + 10 * group + key) % 3_001, b"").expect("room");
                }
            }
        }
    });
    assert!(between < 130, "{between}");

    // One key of a group, then one of the next; with prefetched leaves or not.
    for is_asked_for in [false, true] {
        let in_turn = filled(|_, tree, worker| {
            for key in 0..300_u64 {
                for word in (0..10_u64).map(|group| group << 32 | key) {
                    if is_asked_for {
                        tree.prefetch(worker, word);
                    }
                    tree.insert(worker, word, b"").expect("room");
                }
            }
        });
        assert!(in_turn < 130, "{in_turn}, {is_asked_for}");
    }
}

#[test]
fn ranges_without_keys_are_over_at_once_and_others_have_their_ends() {
    use std::ops::Bound::{Excluded, Included, Unbounded};

    let store = store(NoHtm, 16 * MIB);
    let (words, mut worker) = (store.tree().expect("a tree"), store.worker().expect("a worker"));
    for key in [0, 3, 4, 6, 7, u64::MAX] {
        assert!(words.insert(&mut worker, key, b"").expect("room").is_some());
    }
    let between = |low, high| {
        let mut keys = Vec::new();
        each_row(&mut words.range((low, high)), |key, _, _| keys.push(key));
        let mut back = Vec::new();
        each_row(&mut words.range_back((low, high)), |key, _, _| back.insert(0, key));
        assert_eq!(keys, back);
        keys
    };
    assert_eq!(between(Unbounded, Unbounded), [0, 3, 4, 6, 7, u64::MAX]);
    assert_eq!(between(Included(3), Excluded(7)), [3, 4, 6]);
    assert_eq!(between(Excluded(3), Included(7)), [4, 6, 7]);
    for (low, high) in [
        (Unbounded, Excluded(0)),
        (Excluded(u64::MAX), Unbounded),
        (Excluded(3), Excluded(4)),
        (Included(4), Excluded(4)),
        (Included(7), Included(3)),
    ] {
        assert!(between(low, high).is_empty(), "{low:?}, {high:?}");
    }

    let names = store.tree_of::<Bytes>().expect("a tree");
    for key in [&b""[..], b"a", b"abcdefg", b"abcdefgh"] {
        assert!(names.insert(&mut worker, key, b"").expect("room").is_some());
    }
    for (low, high, expected) in [
        (Unbounded, Unbounded, 4),
        (Included(&b"a"[..]), Included(&b"a"[..]), 1),
        (Excluded(b"abcdefg"), Included(b"abcdefgh"), 1),
        (Unbounded, Included(b""), 1),
        (Unbounded, Excluded(b""), 0),
        (Excluded(b"a"), Included(b"a"), 0),
        (Included(b"a"), Excluded(b"a"), 0),
        (Excluded(b"abcdefg"), Excluded(b"abcdefg"), 0),
        (Included(b"abcdefgh"), Included(b"abcdefg"), 0),
    ] {
        let (mut up, mut down) = (0, 0);
        each_row(&mut names.range((low, high)), |_, _, _| up += 1);
        each_row(&mut names.range_back((low, high)), |_, _, _| down += 1);
        assert_eq!((up, down), (expected, expected), "{low:?}, {high:?}");
    }
}

#[test]
fn a_leaf_s_memory_that_is_used_again_is_not_taken_for_what_it_was() {
    let store = store(NoHtm, 64 * MIB);
    let (tree, mut worker) = (store.tree().expect("a tree"), store.worker().expect("a worker"));
    let get = |key: u64| {
        let mut value = [0; 8];
        tree.get(key, &mut value).expect("sound").map(|_| u64::from_le_bytes(value))
    };
    for round in 0..20 {
        // Each time in leaves that were other leaves or inner nodes before.
        let mixed = |key: u64| key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20 << (round % 3);
        let keys: Vec<_> = (0..500).map(mixed).collect();
        for key in &keys {
            assert!(tree.insert(&mut worker, *key, &key.to_le_bytes()).expect("room").is_some());
        }
        for _ in 0..2 {
            assert!(keys.iter().all(|key| get(*key) == Some(*key)));
        }
        for key in &keys {
            assert!(tree.remove(&mut worker, *key).expect("sound").is_some());
            assert_eq!(get(*key), None);
        }
    }
}
