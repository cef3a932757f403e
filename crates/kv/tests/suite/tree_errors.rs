//! Operations that a tree refuses. The tree stays usable.

use drtm_htm::NoHtm;
use drtm_kv::{Cursor, ForHolder, HashConfig, Inline, KvError, KvTable, MAX_VALUE, Tree, Worker};
use drtm_rdma::Offset;

use crate::support::{MIB, store};

#[test]
fn values_up_to_the_limit_and_no_longer() {
    let store = store(NoHtm, 64 * MIB);
    let (tree, mut worker) = (store.tree().expect("a tree"), store.worker().expect("a worker"));
    let value = vec![2; MAX_VALUE];
    assert!(tree.insert(&mut worker, 1, &value).expect("just fits").is_some());
    let mut found = vec![0; MAX_VALUE];
    assert_eq!(tree.get(1, &mut found).expect("sound").expect("there").length, MAX_VALUE);
    assert_eq!(found, value);
    let long = vec![2; MAX_VALUE + 1];
    let too_long = |error| matches!(error, KvError::ValueTooLong { length, longest } if length == MAX_VALUE + 1 && longest == MAX_VALUE);
    assert!(too_long(tree.insert(&mut worker, 2, &long).expect_err("a byte too long")));
    assert!(too_long(tree.update(&mut worker, 1, &long).expect_err("a byte too long")));
    assert!(too_long(tree.put(&mut worker, 1, &long).expect_err("a byte too long")));
    assert!(too_long(tree.place::<ForHolder>(&mut worker, 2, &long, None, |_| ()).expect_err("a byte too long")));
    assert_eq!(tree.count().expect("sound"), 1);
}

/// Inserts keys in some order until memory runs out, and returns them.
fn fill(tree: &Tree<NoHtm>, worker: &mut Worker<NoHtm>, length: usize, order: fn(u64) -> u64) -> Vec<u64> {
    let mut inserted = Vec::new();
    let refused = (0..).map(order).find_map(|key| match tree.insert(worker, key, &vec![7; length]) {
        Ok(Some(_)) => {
            inserted.push(key);
            None
        }
        Ok(None) => panic!("{key} was not there"),
        Err(error) => Some(error),
    });
    assert!(matches!(refused, Some(KvError::Full(_))), "{refused:?}");
    inserted
}

#[test]
fn a_full_region_refuses_insertions_and_keeps_the_rest() {
    // With long values records run out first, with empty ones nodes do.
    for (length, least) in [(500, 500), (0, 5_000)] {
        let store = store(NoHtm, MIB);
        let (tree, mut worker) = (store.tree().expect("a tree"), store.worker().expect("a worker"));
        let inserted = fill(&tree, &mut worker, length, |step| step.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        assert!(inserted.len() > least, "{}", inserted.len());
        let all_there = || {
            let mut sorted = inserted.clone();
            sorted.sort_unstable();
            let mut scan = tree.range(..);
            for key in sorted {
                let row = scan.next().expect("sound").expect("a row");
                assert_eq!((row.key, row.value), (key, &vec![7; length][..]));
            }
            assert_eq!(scan.next().expect("sound"), None);
        };
        all_there();
        // Removals free memory, which is reused.
        for round in 0..20 {
            for key in &inserted[..100] {
                assert!(tree.remove(&mut worker, *key).expect("sound").is_some(), "round {round}");
            }
            for key in &inserted[..100] {
                assert!(tree.insert(&mut worker, *key, &vec![7; length]).expect("room was made").is_some());
            }
        }
        all_there();
        assert_eq!(tree.count().expect("sound"), inserted.len() as u64);
    }
}

#[test]
fn a_run_that_fails_leaves_nothing_behind() {
    let store = store(NoHtm, MIB);
    let (tree, mut worker) = (store.tree().expect("a tree"), store.worker().expect("a worker"));
    let (value, long) = (vec![7; 500], vec![7; MAX_VALUE + 1]);
    let place_run = |worker: &mut Worker<NoHtm>, from: u64, values: [&[u8]; 3]| {
        let mut made = Vec::new();
        let placed = tree.place_run(worker, (from..).zip(values), |seen| made.push(seen), |_| ());
        assert_eq!(placed.as_ref().map_or(0, |count| *count), made.len());
        placed
    };
    tree.place::<ForHolder>(&mut worker, 0, &value, None, |_| ()).expect("room");
    // More often than there is memory for what was allocated before the refused row.
    for _ in 0..10_000 {
        let refused = place_run(&mut worker, 1, [&value, &value, &long]);
        assert!(matches!(refused, Err(KvError::ValueTooLong { .. })), "{refused:?}");
    }
    assert_eq!(tree.count().expect("sound"), 1);

    let mut next = 1;
    let refused = loop {
        match place_run(&mut worker, next, [&value, &value, &value]) {
            Ok(0) => match tree.place::<ForHolder>(&mut worker, next, &value, None, |_| ()) {
                Ok(_) => next += 1,
                Err(error) => break error,
            },
            Ok(count) => next += count as u64,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, KvError::Full(_)), "{refused:?}");
    assert!(next > 500, "{next}");
    assert_eq!(tree.count().expect("sound"), next);
    let (mut cursor, mut passed, mut found) = (Cursor::up(..), Vec::new(), Vec::new());
    let mut me = ForHolder(worker.holder());
    for key in 0..next {
        let row = tree.advance(&mut cursor, &mut me, &mut passed, &mut found).expect("sound");
        assert!(row.is_some_and(|(there, seen)| there == key && !seen.is_present()), "{key}");
    }
    assert!(tree.advance(&mut cursor, &mut me, &mut passed, &mut found).expect("sound").is_none());
}

#[test]
fn only_the_tree_that_is_there_can_be_opened() {
    let store = store(NoHtm, 64 * MIB);
    let tree = store.tree().expect("a tree");
    let table = store.hash_table(HashConfig::default()).expect("a table");
    for at in [tree.location() + 64, tree.location() + 8, table.location()] {
        let refused = store.open_tree::<Inline>(at).expect_err("not a tree");
        assert!(matches!(refused, KvError::NotThisTable { .. }), "{refused}");
    }
    assert!(matches!(store.open_hash_table::<Inline>(tree.location()), Err(KvError::NotThisTable { .. })));
    assert!(matches!(store.open_tree::<Inline>(Offset::new(1 << 60)), Err(KvError::Corrupt(_))));
    assert!(store.open_tree::<Inline>(tree.location()).is_ok());
}

#[test]
fn a_region_has_room_for_so_many_trees_and_no_more() {
    let store = store(NoHtm, MIB);
    let trees: Vec<_> = std::iter::from_fn(|| store.tree().ok()).collect();
    assert!(trees.len() > 500, "{}", trees.len());
    assert!(matches!(store.tree(), Err(KvError::Full(_))));
    assert!(trees.iter().all(|tree| tree.count().expect("sound") == 0));
}
