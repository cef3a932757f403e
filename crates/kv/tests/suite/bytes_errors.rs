//! Operations that a tree of byte strings refuses. It stays usable, and detects corrupt memory.

use drtm_htm::{Engine, NoHtm, Word};
use drtm_kv::{
    Bytes, Current, ForHolder, Holder, Inline, KvError, KvTable, Locking, MAX_KEY, NoValue, Placed, Store, Tree,
};

use crate::support::{MIB, store};

fn tree(capacity: u64) -> (Store<NoHtm>, Tree<NoHtm, Bytes>) {
    let store = store(NoHtm, capacity);
    let tree = store.tree_of().expect("a tree");
    (store, tree)
}

#[test]
fn keys_up_to_the_limit_and_no_longer() {
    let (store, tree) = tree(64 * MIB);
    let mut worker = store.worker().expect("a worker");
    for length in [0, 1, MAX_KEY] {
        assert!(tree.insert(&mut worker, &vec![9; length], b"fits").expect("room").is_some());
        assert!(tree.contains(&vec![9; length]).expect("sound"));
    }
    let long = vec![9; MAX_KEY + 1];
    let refused = [
        tree.insert(&mut worker, &long, b"").map(drop),
        tree.update(&mut worker, &long, b"").map(drop),
        tree.put(&mut worker, &long, b"").map(drop),
        tree.remove(&mut worker, &long).map(drop),
        tree.get(&long, &mut []).map(drop),
        tree.read(&long, Current, &mut NoValue).map(drop),
        tree.place::<ForHolder>(&mut worker, &long, b"", None, |_| ()).map(drop),
    ];
    for refused in refused {
        assert!(
            matches!(refused, Err(KvError::KeyTooLong { length, longest: MAX_KEY }) if length == MAX_KEY + 1),
            "{refused:?}"
        );
    }
    // A range may end at any key.
    let mut scan = tree.range(..=&long[..]);
    let lengths: Vec<_> = std::iter::from_fn(|| scan.next().expect("sound").map(|row| row.key.len())).collect();
    assert_eq!(lengths, [0, 1, MAX_KEY]);
    assert!(tree.range(&long[..]..).next().expect("sound").is_none());
    assert_eq!(tree.count().expect("sound"), 3);
}

/// A lock keeps others from its own key only, though it takes the key's record to tell the keys
/// apart.
#[test]
fn a_locked_record_is_not_in_the_way_of_a_key_that_begins_like_its_own() {
    let (store, tree) = tree(16 * MIB);
    let (tree, records, other) = (tree.impatient(), store.records(), Holder::new(1, 1, 1, 0));
    let mut worker = store.worker().expect("a worker");
    let keys = [&b"begins like this"[..], b"begins like that", b"begins like those"];
    tree.insert(&mut worker, keys[0], b"").expect("room").expect("it is new");
    let seen = tree.read(keys[0], Current, &mut NoValue).expect("sound").expect("it is there");
    assert!(matches!(records.lock(seen.at, other), Ok(Locking::Taken { .. })));
    for key in &keys[1..] {
        assert!(tree.read(key, ForHolder(worker.holder()), &mut NoValue).expect("it is not locked").is_err());
        let placed = tree.place::<ForHolder>(&mut worker, key, b"", None, |_| ()).expect("it is not locked");
        assert!(matches!(placed, Placed::Made(_)), "{placed:?}");
    }
    let read = tree.read(keys[0], ForHolder(worker.holder()), &mut NoValue);
    assert!(matches!(read, Err(KvError::Busy)), "{read:?}");
    records.unlock(seen.at);
    assert!(tree.read(keys[0], ForHolder(worker.holder()), &mut NoValue).expect("it is free").is_ok());
}

#[test]
fn trees_are_opened_as_what_they_are() {
    let (store, strings) = tree(16 * MIB);
    let integers = store.tree().expect("a tree");
    let refused = store.open_tree::<Inline>(strings.location()).map(drop);
    assert!(matches!(refused, Err(KvError::NotThisTable { .. })), "{refused:?}");
    let refused = store.open_tree::<Bytes>(integers.location()).map(drop);
    assert!(matches!(refused, Err(KvError::NotThisTable { .. })), "{refused:?}");
    assert!(store.open_tree::<Bytes>(strings.location()).is_ok());
}

#[test]
fn a_full_region_refuses_insertions_and_keeps_the_rest() {
    // With a common prefix each key needs layers of its own; without one, records run out.
    for common in [0, 700] {
        let (store, tree) = tree(MIB);
        let mut worker = store.worker().expect("a worker");
        let key = |number: u32| {
            [vec![(number / 2) as u8; common], (number / 2).to_be_bytes().repeat(3), vec![number as u8 % 2]].concat()
        };
        let (mut inserted, mut refused) = (Vec::new(), None);
        for number in 0.. {
            match tree.insert(&mut worker, &key(number), &number.to_le_bytes()) {
                Ok(version) => inserted.push((number, version.expect("it was not there"))),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        assert!(matches!(refused, Some(KvError::Full(_))), "{refused:?}");
        assert!(inserted.len() > 15, "{}", inserted.len());
        let all_there = || {
            assert!(inserted.iter().all(|(number, _)| tree.contains(&key(*number)).expect("sound")));
            let mut scan = tree.range(..);
            let mut rows = 0;
            while scan.next().expect("sound").is_some() {
                rows += 1;
            }
            assert_eq!(rows, inserted.len());
            assert_eq!(tree.count().expect("sound"), inserted.len() as u64);
        };
        all_there();
        // Removals free memory, which is reused.
        for round in 0..20 {
            for (number, _) in &inserted[..10] {
                assert!(tree.remove(&mut worker, &key(*number)).expect("sound").is_some(), "round {round}");
            }
            for (number, _) in &inserted[..10] {
                assert!(tree.insert(&mut worker, &key(*number), &number.to_le_bytes()).expect("room").is_some());
            }
        }
        all_there();
    }
}

/// Returns the link of an entry in a tree's root that is a leaf. Behind the tree's header of 136
/// words come the node's four words and thirty keys.
fn link<'t>(store: &'t Store<NoHtm>, tree: &Tree<NoHtm, Bytes>, slot: u64) -> &'t Word {
    &store.region().words(tree.location() + 8 * (136 + 4 + 30 + slot), 1).expect("a root")[0]
}

/// Returns a tree of two keys in a layer, to which the root's only link leads.
fn with_layer() -> (Store<NoHtm>, Tree<NoHtm, Bytes>) {
    let (store, tree) = tree(MIB);
    let mut worker = store.worker().expect("a worker");
    for key in [&b"a layer: one"[..], b"a layer: two"] {
        tree.insert(&mut worker, key, key).expect("room").expect("it was not there");
    }
    (store, tree)
}

fn scan_all(tree: &Tree<NoHtm, Bytes>, up: bool) -> Result<(), KvError> {
    let mut scan = if up { tree.range(..) } else { tree.range_back(..) };
    while scan.next()?.is_some() {}
    Ok(())
}

#[test]
fn a_link_out_of_memory_is_noticed() {
    let (store, tree) = with_layer();
    let link = link(&store, &tree, 0);
    NoHtm.store(link, NoHtm.load(link) | 0xFF << 32);
    let mut worker = store.worker().expect("a worker");
    for tried in [
        tree.get(b"a layer: one", &mut []).map(drop),
        tree.insert(&mut worker, b"a layer: three", b"").map(drop),
        tree.update(&mut worker, b"a layer: one", b"").map(drop),
        tree.remove(&mut worker, b"a layer: one").map(drop),
        scan_all(&tree, true),
        scan_all(&tree, false),
    ] {
        assert!(matches!(tried, Err(KvError::Corrupt(_))), "{tried:?}");
    }
    assert!(!tree.contains(b"elsewhere").expect("this way is sound"));
}

#[test]
fn layers_that_go_in_a_circle_are_noticed() {
    let (store, tree) = with_layer();
    let link = link(&store, &tree, 0);
    // The root's only entry leads to the root.
    NoHtm.store(link, NoHtm.load(link) >> 40 << 40 | (tree.location().word() + 136));
    for up in [true, false] {
        let tried = scan_all(&tree, up);
        assert!(matches!(tried, Err(KvError::Inconsistent { .. })), "{tried:?}");
    }
    // A lookup ends where its key ends.
    assert!(!tree.contains(b"a layer: one").expect("it ends"));
    assert!(!tree.contains(&b"a layer".repeat(500)).expect("it ends"));
}

#[test]
fn a_layer_below_the_end_of_a_key_is_noticed() {
    let (store, tree) = with_layer();
    let mut worker = store.worker().expect("a worker");
    tree.insert(&mut worker, b"short", b"").expect("room").expect("it was not there");
    let (layer, short) = (link(&store, &tree, 0), link(&store, &tree, 1));
    NoHtm.store(short, NoHtm.load(layer));
    for tried in
        [tree.get(b"short", &mut []).map(drop), tree.remove(&mut worker, b"short").map(drop), scan_all(&tree, true)]
    {
        assert!(matches!(tried, Err(KvError::Inconsistent { .. })), "{tried:?}");
    }
}

#[test]
fn a_record_of_another_way_is_noticed() {
    let (store, tree) = tree(MIB);
    let mut worker = store.worker().expect("a worker");
    tree.insert(&mut worker, b"some key", b"").expect("room").expect("it was not there");
    tree.insert(&mut worker, b"that key", b"").expect("room").expect("it was not there");
    NoHtm.store(link(&store, &tree, 0), NoHtm.load(link(&store, &tree, 1)));
    for tried in [scan_all(&tree, true), tree.insert(&mut worker, b"some keys", b"").map(drop)] {
        assert!(matches!(tried, Err(KvError::Inconsistent { .. })), "{tried:?}");
    }
    assert!(!tree.contains(b"some key").expect("another key's record"));
    assert!(tree.contains(b"that key").expect("sound"));
}
