//! Model checking of the tree of byte strings: layers are created and removed while keys are looked
//! up, scanned and inserted.
//!
//! The code is the production code; only the words are loom's, in a small box, and a node has three
//! entries. Each case runs twice, with either thread first, because loom's exploration depends on
//! it.

use std::sync::{Arc, Mutex};

use crate::transacted::{Transacted, carry};
use drtm_htm::NoHtm;
use drtm_kv::{Bytes, Current, KvTable, NoValue, Scan, Store, Tree, Worker};

use crate::explore;

/// Keys that diverge in the second layer, two that diverge in the third, and a lone one. (A slice
/// has seven bytes.)
const ONE: &str = "layer: one";
const TWO: &str = "layer: two";
const LESS: &str = "layer: two, and less";
const MORE: &str = "layer: two, and more";
const ALONE: &str = "none";

#[derive(Clone)]
struct World {
    store: Store<NoHtm>,
    tree: Tree<NoHtm, Bytes>,
    /// Workers that have freed memory are kept here. Loom does not know the mutex that would hand
    /// the memory to another thread, and would not order the accesses before and after.
    kept: Arc<Mutex<Vec<Worker<NoHtm>>>>,
}

impl World {
    /// Creates a tree with these keys inserted, each with itself as its value, and some of them
    /// removed.
    fn new(keys: &[&str], removed: &[&str]) -> Self {
        let store = Store::in_memory(NoHtm, 2048).expect("a store");
        let tree = store.tree_of().expect("a tree");
        let world = Self { store, tree, kept: Arc::default() };
        assert!(keys.iter().all(|key| world.insert(key)));
        assert!(removed.iter().all(|key| world.remove(key)));
        world
    }

    fn insert(&self, key: &str) -> bool {
        let mut worker = self.store.worker().expect("a worker");
        self.tree.insert(&mut worker, key.as_bytes(), key.as_bytes()).expect("room").is_some()
    }

    fn remove(&self, key: &str) -> bool {
        let mut worker = self.store.worker().expect("a worker");
        let removed = self.tree.remove(&mut worker, key.as_bytes()).expect("sound").is_some();
        self.kept.lock().expect("no panic").push(worker);
        removed
    }

    fn has(&self, key: &str) -> bool {
        let mut value = [0; 32];
        let read = self.tree.get(key.as_bytes(), &mut value).expect("sound");
        read.inspect(|read| assert!(value[..read.length].starts_with(key.as_bytes()))).is_some()
    }

    /// Returns all keys, upward or downward.
    fn keys(&self, up: bool) -> Vec<String> {
        Self::rows(if up { self.tree.range(..) } else { self.tree.range_back(..) })
    }

    /// Returns the keys of a scan. Asserts that each value is its key or a prefix of it.
    fn rows(mut scan: Scan<'_, NoHtm, Bytes>) -> Vec<String> {
        let mut keys = Vec::new();
        while let Some(row) = scan.next().expect("sound") {
            assert!(row.value.starts_with(row.key));
            keys.push(String::from_utf8(row.key.to_vec()).expect("only text was inserted"));
        }
        keys
    }

    /// Returns whether a scan finds keys in order, all of `always`, and of the others only
    /// `perhaps`.
    fn scans(&self, up: bool, always: &[&str], perhaps: &str) -> bool {
        let mut keys = self.keys(up);
        if !up {
            keys.reverse();
        }
        keys.is_sorted_by(|a, b| a < b)
            && always.iter().all(|always| keys.iter().any(|key| key == always))
            && keys.iter().all(|key| always.contains(&&key[..]) || key == perhaps)
    }

    /// Returns whether an absent key's insertion is detected, once the key is visible.
    fn tells_of(&self, key: &str) -> bool {
        let Err(leaf) = self.tree.read(key.as_bytes(), Current, &mut NoValue).expect("sound") else { return true };
        let seen = self.has(key);
        !(seen && self.tree.unchanged(&leaf))
    }
}

/// Explores all interleavings of both with this many preemptions, with either thread first. Then
/// these keys must be left.
fn explore(
    preemptions: usize,
    (keys, removed): (&'static [&'static str], &'static [&'static str]),
    one: impl Fn(&World) -> bool + Copy + Send + Sync + 'static,
    other: impl Fn(&World) -> bool + Copy + Send + Sync + 'static,
    left: &'static [&'static str],
) {
    let world = move || World::new(keys, removed);
    let check = move |world: &World, one, other| {
        assert!(one && other, "{one} {other}");
        assert_eq!(world.keys(true), left);
        assert_eq!(world.tree.count().expect("sound"), left.len() as u64);
    };
    explore::explore(preemptions, world, one, other, check);
    explore::explore(preemptions, world, other, one, check);
}

#[test]
fn a_key_can_be_found_while_a_layer_is_made_for_it() {
    explore(3, (&[ONE], &[]), |world| world.insert(TWO), |world| world.has(ONE), &[ONE, TWO]);
}

#[test]
fn a_key_can_be_found_while_several_layers_are_made_for_it() {
    explore(2, (&[LESS], &[]), |world| world.insert(MORE), |world| world.has(LESS), &[LESS, MORE]);
}

#[test]
fn a_key_that_comes_with_a_layer_is_told_of() {
    explore(3, (&[ONE], &[]), |world| world.insert(TWO), |world| world.tells_of(TWO), &[ONE, TWO]);
}

#[test]
fn following_ones_own_layer_does_not_hide_a_key_of_another() {
    let tells = |world: &World| {
        let Err(leaf) = world.tree.read(MORE.as_bytes(), Current, &mut NoValue).expect("sound") else {
            return world.insert(TWO);
        };
        let (mut seen, mut worker) = (vec![leaf], world.store.worker().expect("a worker"));
        let inserted = world
            .tree
            .insert_noting(&mut worker, TWO.as_bytes(), TWO.as_bytes(), None, |change| carry(&change, &mut seen));
        assert!(inserted.expect("room").is_some());
        let deceived = world.has(MORE) && seen.iter().all(|leaf| world.tree.unchanged(leaf));
        !deceived
    };
    explore(2, (&[ONE], &[]), |world| world.insert(MORE), tells, &[ONE, TWO, MORE]);
}

/// The leaf of an absent key guards that key only while it covers it, also when its layer is
/// removed meanwhile.
#[test]
fn a_layer_that_leaves_does_not_hide_a_key_of_another() {
    let tells = |world: &World| {
        let Err(leaf) = world.tree.read(TWO.as_bytes(), Current, &mut NoValue).expect("sound") else {
            return world.remove(ONE);
        };
        assert!(world.remove(ONE));
        let deceived = world.has(TWO) && world.tree.unchanged(&leaf);
        !deceived
    };
    explore(2, (&[ONE, TWO], &[TWO]), |world| world.insert(TWO), tells, &[TWO]);
}

#[test]
fn two_make_one_layer() {
    explore(3, (&[ONE], &[]), |world| world.insert(TWO), |world| world.insert(MORE), &[ONE, TWO, MORE]);
}

#[test]
fn of_two_who_insert_a_key_that_needs_a_layer_one_does() {
    let insert = |world: &World| world.insert(TWO);
    let check = |world: &World, one, other| {
        assert!(one != other, "{one} {other}");
        assert_eq!(world.keys(true), [ONE, TWO]);
    };
    explore::explore(2, || World::new(&[ONE], &[]), insert, insert, check);
}

#[test]
fn a_scan_sees_what_is_always_there_while_a_layer_is_made() {
    for up in [true, false] {
        let scans = move |world: &World| world.scans(up, &[ONE, ALONE], TWO);
        explore(2, (&[ONE, ALONE], &[]), |world| world.insert(TWO), scans, &[ONE, TWO, ALONE]);
    }
}

#[test]
fn a_scan_that_begins_again_begins_where_it_did() {
    // The leaf above the layer changes before the scan has entered the layer.
    let upward = |world: &World| World::rows(world.tree.range(TWO.as_bytes()..))[0] == TWO;
    explore(2, (&[ONE, TWO], &[]), |world| world.insert(ALONE), upward, &[ONE, TWO, ALONE]);
    let downward = |world: &World| World::rows(world.tree.range_back(..=ONE.as_bytes())) == [ONE];
    explore(2, (&[ONE, TWO], &[]), |world| world.insert(ALONE), downward, &[ONE, TWO, ALONE]);
}

#[test]
fn a_key_leaves_while_a_layer_is_made_for_it() {
    explore(3, (&[ONE], &[]), |world| world.insert(TWO), |world| world.remove(ONE), &[TWO]);
}

#[test]
fn a_key_moves_while_a_layer_is_made_for_it() {
    let moves = |world: &World| {
        let (mut worker, key) = (world.store.worker().expect("a worker"), ONE.as_bytes());
        let moved = world.tree.update(&mut worker, key, &[key; 3].concat()).expect("room").is_some();
        world.kept.lock().expect("no panic").push(worker);
        moved
    };
    explore(1, (&[ONE], &[]), |world| world.insert(TWO), moves, &[ONE, TWO]);
}

#[test]
fn a_key_is_not_found_in_a_layer_that_leaves_with_another() {
    let absent = |world: &World| !world.has(TWO);
    explore(3, (&[ONE, TWO], &[TWO]), |world| world.remove(ONE), absent, &[]);
}

#[test]
fn a_key_is_inserted_into_a_layer_that_leaves() {
    explore(2, (&[ONE, TWO], &[TWO]), |world| world.remove(ONE), |world| world.insert(TWO), &[TWO]);
}

#[test]
fn a_key_that_is_inserted_where_a_layer_was_is_told_of() {
    let comes_back = |world: &World| world.remove(ONE) && world.insert(TWO);
    explore(1, (&[ONE, TWO], &[TWO]), comes_back, |world| world.tells_of(TWO), &[TWO]);
}

#[test]
fn two_empty_a_layer_at_once() {
    explore(3, (&[ONE, TWO], &[]), |world| world.remove(ONE), |world| world.remove(TWO), &[]);
}

#[test]
fn several_layers_leave_while_a_key_comes_into_one() {
    explore(3, (&[LESS, MORE], &[LESS]), |world| world.remove(MORE), |world| world.insert(ONE), &[ONE]);
}

#[test]
fn a_scan_sees_what_is_always_there_while_a_layer_leaves() {
    for up in [true, false] {
        let scans = move |world: &World| world.scans(up, &[ALONE], ONE);
        explore(2, (&[ONE, TWO, ALONE], &[TWO]), |world| world.remove(ONE), scans, &[ALONE]);
    }
}

/// A layer of two leaves shrinks to one node. One of its leaves is reused in another layer, to
/// which all keys belong.
#[test]
fn a_node_that_is_used_again_in_another_layer_is_not_taken_for_what_it_was() {
    const KEYS: [&str; 5] = ["layer: a", "layer: b", "layer: c", "layer: d", "other: 1"];
    const LEFT: [&str; 3] = ["layer: c", "other: 1", "other: 2"];
    let becomes_another = |world: &World| world.remove("layer: d") && world.insert("other: 2");
    explore(1, (&KEYS, &KEYS[..2]), becomes_another, |world| world.has("layer: c"), &LEFT);
}

/// A layer's only node is reused in another layer. A key of the first layer must not be inserted
/// there.
#[test]
fn a_layer_that_is_used_again_is_not_taken_for_what_it_was() {
    const LEFT: [&str; 3] = ["layer: two", "other: one", "other: two"];
    let becomes_another = |world: &World| world.remove(ONE) && world.insert(LEFT[2]);
    explore(1, (&[ONE, TWO, LEFT[1]], &[TWO]), becomes_another, |world| world.insert(TWO), &LEFT);
}
