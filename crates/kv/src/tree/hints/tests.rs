use std::sync::Arc;

use drtm_htm::NoHtm;

use super::*;
use crate::{Bytes, KvTable, Store, Tree, Worker, tree::kind::TreeKeys};

const CAPACITY: u64 = 64 << 20;

fn beside() -> Arc<Beside> {
    Arc::new(Beside::new(CAPACITY))
}

fn hint(number: u64) -> Hint {
    Hint { leaf: 64 * number, slot: number as usize % FANOUT, link: number << 3, beyond: number as usize % 4 }
}

/// Returns hashes of which all bits are random.
fn hashes() -> impl Iterator<Item = u64> {
    (0..).map(Hints::hash)
}

#[test]
fn the_first_byte_of_some_kind_is_found() {
    for bytes in
        [[0; 8], [1, 2, 0, 1, 0, 255, 254, 1], [255; 8], [0, 1, 0, 1, 1, 0, 0, 128], [128, 127, 1, 0, 3, 3, 2, 1]]
    {
        for byte in 0..=u8::MAX {
            let expected = bytes.iter().position(|other| *other == byte);
            assert_eq!(first(u64::from_le_bytes(bytes), u64::from(byte)), expected, "{byte} in {bytes:?}");
        }
    }
}

#[test]
fn what_is_kept_is_found_until_others_need_the_room() {
    // All hashes are in one set.
    let hints = Hints::new(CAPACITY, &beside(), true);
    let kept: Vec<_> = hashes().take(1_000).enumerate().map(|(number, hash)| (hash, hint(number as u64))).collect();
    for (number, (hash, hint)) in kept.iter().enumerate() {
        hints.keep(*hash, *hint);
        assert_eq!(hints.find(*hash), Some(*hint));
        let found = kept[..=number].iter().filter(|(hash, _)| hints.find(*hash).is_some());
        let found: Vec<_> = found.map(|(hash, hint)| (hints.find(*hash), *hint)).collect();
        assert!(found.iter().all(|(found, hint)| *found == Some(*hint)), "another key's");
        assert!(found.len() <= WAYS && (number >= WAYS || found.len() > number / 2), "{} of {number}", found.len());
    }
    // A new hint of a key replaces its old one.
    let (hash, _) = kept[999];
    hints.keep(hash, hint(5_000));
    assert_eq!(hints.find(hash), Some(hint(5_000)));
}

#[test]
fn there_is_room_for_as_many_as_there_are_keys() {
    let hints = Hints::new(CAPACITY, &beside(), false);
    hints.keep(1, hint(1));
    assert_eq!(hints.find(1), None, "there are no hints yet");
    hints.make_room(LEAST_KEYS - 1, || 0);
    assert!(!hints.are_kept(), "too few keys");
    hints.make_room(LEAST_KEYS, || 0);
    for keys in [LEAST_KEYS, 10_000, 100_000] {
        hints.make_room(keys, || 0);
        for (number, hash) in hashes().take(keys as usize).enumerate() {
            hints.keep(hash, hint(number as u64));
        }
        let found = hashes().take(keys as usize).filter(|hash| hints.find(*hash).is_some()).count();
        assert!(found as f64 > 0.8 * keys as f64, "{found} of {keys}");
    }
    // With more room in the same generation, half of the hints are still found. The others are
    // looked for in other sets now.
    let before: Vec<_> = hashes().take(100_000).filter(|hash| hints.find(*hash).is_some()).collect();
    hints.make_room(200_000, || 0);
    let after = before.iter().filter(|hash| hints.find(**hash).is_some()).count();
    assert!((0.45..0.55).contains(&(after as f64 / before.len() as f64)), "{after} of {}", before.len());
    // There are never more hints than keys could be.
    hints.make_room(u64::MAX / 2, || 0);
    let most = InUse::of(hints.most);
    assert_eq!((most.mask() + 1) * WAYS as u64, CAPACITY / BYTES_PER_KEY);
    assert_eq!(InUse(hints.in_use.load(Relaxed)), most);
    assert_eq!(hints.beside.taken(), most.sets() * SET_BYTES);
    // With somewhat fewer keys, the memory stays. With far fewer it is freed.
    hints.make_room(CAPACITY / BYTES_PER_KEY / 4, || 0);
    assert_eq!(InUse(hints.in_use.load(Relaxed)), most);
    hints.make_room(LEAST_KEYS, || 0);
    assert_eq!((InUse(hints.in_use.load(Relaxed)).sets(), hints.beside.taken()), (1, 0));
    // The first set shares a page with others.
    let left = before.iter().filter(|hash| hints.find(**hash).is_some()).count();
    assert!(left <= WAYS, "{left} hints are left that were given back");
    // The freed memory can be used again.
    hints.make_room(100_000, || 0);
    before.iter().for_each(|hash| hints.keep(*hash, hint(7)));
    assert!(before.iter().filter(|hash| hints.find(**hash).is_some()).count() > before.len() / 2);
    let beside = Arc::clone(&hints.beside);
    drop(hints);
    assert_eq!(beside.taken(), 0);
}

#[test]
fn hints_leave_memory_to_the_region() {
    let hints = Hints::new(CAPACITY, &beside(), false);
    hints.make_room(100_000, || CAPACITY - (1 << 20));
    assert!(!hints.are_kept() && hints.beside.taken() == 0, "there is no room beside the region");
    hints.make_room(100_000, || CAPACITY / 2);
    let taken = hints.beside.taken();
    assert!(hints.are_kept() && taken > 100_000 * 8);
    hints.beside.release_for(1 << 20, || CAPACITY / 2);
    assert_eq!(hints.beside.taken(), taken, "there is room for both");
    hints.beside.release_for(1 << 20, || CAPACITY - (1 << 20));
    assert_eq!(hints.beside.taken(), 0, "the region needs it");
    hints.make_room(100_000, || CAPACITY - 3 * (1 << 20));
    assert_eq!(hints.beside.taken(), 0, "nor is it taken again at once");
}

#[test]
fn generations_have_room_for_their_sets() {
    for bits in 0..FIRST_BITS + GENERATION_BITS * (GENERATIONS as u32 - 1) {
        let in_use = InUse::of(1 << bits);
        assert_eq!(in_use.mask() + 1, 1 << bits);
        assert!(in_use.mask() < largest(in_use.generation()));
        assert!(in_use.generation() == 0 || 1 << bits > largest(in_use.generation() - 1));
    }
}

/// Makes a tree with hints, and a worker that changes it.
fn tree<K: TreeKeys>() -> (Tree<NoHtm, K>, Worker<NoHtm>) {
    let store = Store::in_memory(NoHtm, CAPACITY).expect("a store").hinting_at_once();
    (store.tree_of().expect("a tree"), store.worker().expect("a worker"))
}

/// Returns whether a lookup would use a hint.
fn is_hinted<K: TreeKeys>(tree: &Tree<NoHtm, K>, key: K::Key<'_>) -> bool {
    tree.table.hinted(Hints::hash(K::word(key))).is_some()
}

/// Returns the number that is a key's value.
fn get<K: TreeKeys>(tree: &Tree<NoHtm, K>, key: K::Key<'_>) -> Option<u64> {
    let mut value = [0; 8];
    tree.get(key, &mut value).expect("sound").map(|_| u64::from_le_bytes(value))
}

#[test]
fn a_key_that_was_found_is_hinted_at_until_its_leaf_is_another() {
    let (tree, mut worker) = tree::<crate::Inline>();
    let mut insert = |key: u64| assert!(tree.insert(&mut worker, key, &key.to_le_bytes()).expect("room").is_some());
    (0..FANOUT as u64).for_each(|key| insert(10 * key));
    let last = 10 * FANOUT as u64 - 10;
    assert!(!is_hinted(&tree, last));
    assert!(get(&tree, last) == Some(last) && is_hinted(&tree, last));
    // The leaf, which was the root, is split.
    insert(5);
    assert!(!is_hinted(&tree, last));
    assert!(get(&tree, last) == Some(last) && is_hinted(&tree, last));
    // The entry moves to another slot.
    insert(last - 1);
    assert!(!is_hinted(&tree, last) && get(&tree, last) == Some(last) && is_hinted(&tree, last));
    // An update in place does not change the hint, another size class does.
    let mut worker = tree.store().worker().expect("a worker");
    assert!(tree.update(&mut worker, last, &7_u64.to_le_bytes()).expect("room").is_some());
    assert!(is_hinted(&tree, last) && get(&tree, last) == Some(7));
    assert!(tree.update(&mut worker, last, &[8; 200]).expect("room").is_some());
    assert!(!is_hinted(&tree, last));
    assert!(get(&tree, last) == Some(u64::from_le_bytes([8; 8])) && is_hinted(&tree, last));
    assert!(tree.remove(&mut worker, last).expect("sound").is_some());
    assert!(!is_hinted(&tree, last) && get(&tree, last).is_none());
}

#[test]
fn with_a_key_the_others_of_its_leaf_are_hinted_at_where_there_is_room() {
    let (tree, mut worker) = tree::<crate::Inline>();
    let mut insert = |key: u64| assert!(tree.insert(&mut worker, key, &key.to_le_bytes()).expect("room").is_some());
    const KEYS: u64 = 10_000;
    (0..KEYS).for_each(&mut insert);
    let hinted = || (0..KEYS).filter(|key| is_hinted(&tree, *key)).count();
    // All hashes are in one set: a key that was looked up replaces another, and its neighbours do
    // not.
    assert!(get(&tree, 0).is_some() && hinted() == WAYS);
    let others: Vec<_> = (0..KEYS).filter(|key| !is_hinted(&tree, *key)).take(3).collect();
    for key in others {
        assert!(get(&tree, key).is_some() && is_hinted(&tree, key) && hinted() == WAYS);
    }
    tree.table.hints.make_room(KEYS, || 0);
    let leaf = |key: u64| crate::Inline::insert_point(&tree.table, key).expect("sound").leaf.node.place;
    let (mut asked, mut last) = (0, None);
    for key in 0..KEYS {
        if last.replace(leaf(key)) != Some(leaf(key)) {
            assert!(get(&tree, key).is_some());
            asked += 1;
        }
    }
    assert!(asked < KEYS / 10 && hinted() as u64 > 8 * KEYS / 10, "{} of {KEYS}, by {asked}", hinted());
}

#[test]
fn byte_strings_are_hinted_at_in_whatever_layer_they_are() {
    let (tree, mut worker) = tree::<Bytes>();
    let keys = ["a", "prefix: a", "prefix: a, and more of it", "prefix: a, and more", "lonely: and long", ""];
    for (number, key) in keys.iter().enumerate() {
        let value = (number as u64).to_le_bytes();
        assert!(tree.insert(&mut worker, key.as_bytes(), &value).expect("room").is_some());
    }
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(get(&tree, key.as_bytes()), Some(number as u64));
        assert!(is_hinted(&tree, key.as_bytes()), "{key}");
        assert_eq!(get(&tree, key.as_bytes()), Some(number as u64));
    }
    // The record's entry moves to a new layer.
    assert!(tree.insert(&mut worker, b"lonely: and short", &9_u64.to_le_bytes()).expect("room").is_some());
    assert!(!is_hinted(&tree, b"lonely: and long") && get(&tree, b"lonely: and long") == Some(4));
    for key in keys {
        assert!(tree.remove(&mut worker, key.as_bytes()).expect("sound").is_some());
        assert_eq!(get(&tree, key.as_bytes()), None);
    }
}

#[test]
fn hints_for_others_keys_with_the_same_hash_are_not_believed() {
    let (tree, mut worker) = tree::<crate::Inline>();
    for key in 1..=20_u64 {
        assert!(tree.insert(&mut worker, key, &key.to_le_bytes()).expect("room").is_some());
        get(&tree, key);
        let hint = tree.table.hints.find(Hints::hash(key)).expect("just left");
        // Hints for other keys, one of which is present.
        for other in [key - 1, 1_000] {
            tree.table.hints.keep(Hints::hash(other), hint);
            assert_eq!(get(&tree, other), (1..key).contains(&other).then_some(other));
        }
    }
}

#[test]
fn small_trees_have_none_and_large_ones_do() {
    let store = Store::in_memory(NoHtm, CAPACITY).expect("a store");
    let (tree, mut worker) = (store.tree().expect("a tree"), store.worker().expect("a worker"));
    let insert = |keys: std::ops::Range<u64>, worker: &mut Worker<NoHtm>| {
        keys.for_each(|key| assert!(tree.insert(worker, key, b"").expect("room").is_some()));
    };
    insert(0..LEAST_KEYS - 1, &mut worker);
    (0..LEAST_KEYS - 1).for_each(|key| assert!(tree.contains(key).expect("sound")));
    assert!(!tree.table.hints.are_kept());
    insert(LEAST_KEYS..20_000, &mut worker);
    (0..2).for_each(|_| (LEAST_KEYS..20_000).for_each(|key| assert!(tree.contains(key).expect("sound"))));
    let hinted = (LEAST_KEYS..20_000).filter(|key| is_hinted(&tree, *key)).count();
    assert!(hinted > 15_000, "{hinted}");
    assert!(Arc::ptr_eq(&tree.table.hints, &tree.impatient().table.hints), "handles share them");
}

/// Returns a tree with this many keys, each of which was looked up twice.
fn hinted(store: &Store<NoHtm>, keys: u64) -> (Tree<NoHtm>, Worker<NoHtm>) {
    let (tree, mut worker) = (store.tree().expect("a tree"), store.worker().expect("a worker"));
    (0..keys).for_each(|key| assert!(tree.insert(&mut worker, key, &[7; 100]).expect("room").is_some()));
    (0..2).for_each(|_| (0..keys).for_each(|key| assert!(tree.contains(key).expect("sound"))));
    (tree, worker)
}

#[test]
fn memory_of_hints_comes_back_when_the_keys_are_gone() {
    const KEYS: u64 = 100_000;
    let store = Store::in_memory(NoHtm, CAPACITY).expect("a store");
    let (tree, mut worker) = hinted(&store, KEYS);
    let taken = store.beside();
    assert!(taken > KEYS * 8, "{taken}");
    (0..KEYS).for_each(|key| assert!(tree.remove(&mut worker, key).expect("sound").is_some()));
    assert!(store.beside() <= taken / FEWER, "{} of {taken} bytes", store.beside());
    drop((tree, worker));
    assert_eq!(store.beside(), 0);
    let (tree, _worker) = hinted(&store, KEYS);
    assert!(store.beside() > 0);
    tree.forget_hints();
    assert_eq!(store.beside(), 0);
    assert!((0..KEYS).all(|key| tree.contains(key).expect("sound")));
    let without = Store::in_memory(NoHtm, CAPACITY).expect("a store").without_hints();
    let (tree, _worker) = hinted(&without, KEYS);
    assert_eq!(without.beside(), 0);
    assert!((0..KEYS).all(|key| !is_hinted(&tree, key)));
}

#[test]
fn a_store_that_is_filled_takes_no_more_than_its_capacity() {
    let store = Store::in_memory(NoHtm, CAPACITY).expect("a store");
    let (tree, mut worker) = hinted(&store, 100_000);
    assert!(store.beside() > 0);
    let mut all = 0;
    while tree.insert(&mut worker, 1_000_000 + all, &[7; 1_000]).is_ok() {
        assert!(store.region().allocated() + store.beside() <= CAPACITY);
        assert!(tree.contains(all).expect("sound"));
        all += 1;
    }
    assert!(store.beside() == 0 && store.region().allocated() > CAPACITY - (1 << 20), "{all}");
}
