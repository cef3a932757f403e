//! Model checking of the tree: every interleaving, and every value that weak memory lets a load
//! return, of small cases.
//!
//! The code is the production code; only the words are loom's, in a small box, and a node has three
//! entries. *Mutations*, deliberate faults, must make the same checks fail; those tests expect a
//! panic.

mod hinted;

use std::ops::ControlFlow;

use crate::transacted::{Transacted, carry};
use drtm_htm::NoHtm;
use drtm_kv::{Current, ForHolder, KvTable, Mutation, NoValue, Placed, Store, Tree, Version, mutated};

use crate::explore;

#[derive(Clone)]
struct World {
    store: Store<NoHtm>,
    tree: Tree<NoHtm>,
}

impl World {
    /// Creates a tree with these keys inserted, each with itself as its value, and some of them
    /// removed.
    fn new(keys: &[u64], removed: &[u64]) -> Self {
        let store = Store::in_memory(NoHtm, 1536).expect("a store");
        let tree = store.tree().expect("a tree");
        let world = Self { store, tree };
        for key in keys {
            assert!(world.insert(*key, *key));
        }
        for key in removed {
            assert!(world.remove(*key));
        }
        world
    }

    fn insert(&self, key: u64, value: u64) -> bool {
        self.tree
            .insert(&mut self.store.worker().expect("a worker"), key, &value.to_le_bytes())
            .expect("room")
            .is_some()
    }

    /// Inserts keys, each with itself as its value, by one worker. It tries the previous key's leaf
    /// first.
    fn insert_all(&self, keys: &[u64]) -> bool {
        let mut worker = self.store.worker().expect("a worker");
        keys.iter().all(|key| self.tree.insert(&mut worker, *key, &key.to_le_bytes()).expect("room").is_some())
    }

    /// Creates records of absent keys: after the first, as many at once as possible.
    fn place_all(&self, keys: &[u64]) -> bool {
        let mut worker = self.store.worker().expect("a worker");
        let mut keys = keys;
        while let Some(key) = keys.first() {
            let values: Vec<_> = keys.iter().map(|key| key.to_le_bytes()).collect();
            let rows = keys.iter().copied().zip(values.iter().map(<[u8; 8]>::as_slice));
            let mut made = Vec::new();
            let mut count = self.tree.place_run(&mut worker, rows, |seen| made.push(seen), |_| ()).expect("room");
            if count == 0 {
                match self.tree.place::<ForHolder>(&mut worker, *key, &key.to_le_bytes(), None, |_| ()).expect("room") {
                    Placed::Made(seen) => made.push(seen),
                    Placed::Found(_) => return false,
                }
                count = 1;
            }
            for seen in made {
                self.store.records().lock(seen.at, worker.holder()).expect("sound");
                self.store.records().publish(seen.at, Version::new(1 << 20)).expect("sound");
            }
            keys = &keys[count..];
        }
        true
    }

    fn remove(&self, key: u64) -> bool {
        self.tree.remove(&mut self.store.worker().expect("a worker"), key).expect("sound").is_some()
    }

    fn get(&self, key: u64) -> Option<u64> {
        let mut value = [0; 8];
        let read = self.tree.get(key, &mut value).expect("sound")?;
        assert_eq!(read.length, 8);
        Some(u64::from_le_bytes(value))
    }

    /// Returns all keys, upward or downward. Asserts that each value is its key.
    fn keys(&self, up: bool) -> Vec<u64> {
        let mut scan = if up { self.tree.range(..) } else { self.tree.range_back(..) };
        let mut keys = Vec::new();
        if up {
            let each = scan.each_into(&mut [0; 8], |key, _, value| {
                assert_eq!(value, key.to_le_bytes());
                keys.push(key);
                ControlFlow::Continue(())
            });
            each.expect("sound");
            return keys;
        }
        while let Some(row) = scan.next().expect("sound") {
            assert_eq!(row.value, row.key.to_le_bytes());
            keys.push(row.key);
        }
        keys
    }

    /// Returns all keys in order, read from both ends in turns.
    fn keys_from_both_ends(&self) -> Vec<u64> {
        let (mut scan, mut low, mut high) = (self.tree.range(..), Vec::new(), Vec::new());
        while let Some(row) = scan.next().expect("sound") {
            assert_eq!(row.value, row.key.to_le_bytes());
            if low.len() > high.len() {
                high.push(row.key)
            } else {
                low.push(row.key)
            }
            scan.reverse();
        }
        low.extend(high.into_iter().rev());
        low
    }
}

/// Explores all interleavings of `first` and `second` with this many preemptions, then runs
/// `check`.
fn explore<T: Send + 'static>(
    preemptions: usize,
    (keys, removed): (&'static [u64], &'static [u64]),
    first: impl Fn(&World) -> T + Copy + Send + Sync + 'static,
    second: impl Fn(&World) -> T + Copy + Send + Sync + 'static,
    check: impl Fn(&World, T, T) + Send + Sync + 'static,
) {
    explore::explore(preemptions, move || World::new(keys, removed), first, second, check);
}

#[test]
fn of_two_who_insert_a_key_one_does() {
    explore(
        3,
        (&[], &[]),
        |world| world.insert(7, 1),
        |world| world.insert(7, 2),
        |world, one, other| {
            assert!(one != other, "{one} {other}");
            assert_eq!(world.get(7), Some(if one { 1 } else { 2 }));
        },
    );
}

#[test]
fn two_keys_get_two_entries() {
    explore(
        3,
        (&[5], &[]),
        |world| world.insert(4, 4),
        |world| world.insert(6, 6),
        |world, one, other| {
            assert!(one && other);
            assert_eq!(world.keys(true), [4, 5, 6]);
        },
    );
}

#[test]
fn a_key_can_be_found_while_its_leaf_is_divided() {
    explore(
        3,
        (&[10, 20, 30], &[]),
        |world| world.get(10) == Some(10) && world.get(30) == Some(30),
        |world| world.insert(15, 15),
        |world, found, inserted| {
            assert!(found && inserted);
            assert_eq!(world.keys(true), [10, 15, 20, 30]);
        },
    );
}

/// Leaves of 10 to 30, and of 40 to 60. The second is about to split, which moves 60.
const ABOUT_TO_BE_DIVIDED: (&[u64], &[u64]) = (&[10, 20, 30, 40, 50, 60], &[]);

#[test]
fn a_key_can_be_found_while_it_moves_to_another_leaf() {
    let find = |world: &World| world.get(60) == Some(60);
    let divide = |world: &World| world.insert(45, 45);
    let check = |world: &World, one, other| {
        assert!(one && other);
        assert_eq!(world.keys(true), [10, 20, 30, 40, 45, 50, 60]);
    };
    explore(3, ABOUT_TO_BE_DIVIDED, find, divide, check);
    explore(3, ABOUT_TO_BE_DIVIDED, divide, find, check);
}

#[test]
fn a_key_that_moves_to_another_leaf_is_not_inserted_again() {
    let insert = |world: &World| !world.insert(60, 0);
    let divide = |world: &World| world.insert(45, 45);
    let check = |world: &World, one, other| {
        assert!(one && other);
        assert_eq!(world.keys(true), [10, 20, 30, 40, 45, 50, 60]);
    };
    explore(2, ABOUT_TO_BE_DIVIDED, insert, divide, check);
    explore(2, ABOUT_TO_BE_DIVIDED, divide, insert, check);
}

#[test]
fn two_keys_can_be_inserted_where_there_is_room_for_one() {
    explore(
        2,
        (&[10, 30], &[]),
        |world| world.insert(20, 20),
        |world| world.insert(40, 40),
        |world, one, other| {
            assert!(one && other);
            assert_eq!(world.keys(true), [10, 20, 30, 40]);
            assert_eq!(world.tree.count().expect("sound"), 4);
        },
    );
}

/// A run of keys is inserted into a leaf at once, beside another worker's key within the run.
#[test]
fn a_run_of_keys_and_a_key_get_an_entry_each() {
    explore(
        2,
        (&[10], &[]),
        |world| world.place_all(&[20, 30, 50]),
        |world| world.insert(40, 40),
        |world, placed, inserted| {
            assert!(placed && inserted);
            assert_eq!(world.keys(true), [10, 20, 30, 40, 50]);
        },
    );
}

#[test]
fn a_run_is_told_to_who_found_one_of_its_keys_missing() {
    explore(
        2,
        (&[10], &[]),
        |world| {
            let me = world.store.worker().expect("a worker").holder();
            let found = world.tree.fetch(30, me, &mut Vec::new()).expect("sound");
            let Err(leaf) = found else { return true };
            let seen = world.get(30).is_some();
            !(seen && world.tree.unchanged(&leaf))
        },
        |world| world.place_all(&[20, 30]),
        |_, told_the_truth, placed| assert!(told_the_truth && placed),
    );
}

#[test]
fn two_can_divide_one_leaf() {
    explore(
        2,
        (&[10, 20, 30], &[]),
        |world| world.insert(15, 15),
        |world| world.insert(40, 40),
        |world, one, other| {
            assert!(one && other);
            assert_eq!(world.keys(true), [10, 15, 20, 30, 40]);
            assert_eq!(world.keys(false), [40, 30, 20, 15, 10]);
        },
    );
}

#[test]
fn a_leaf_is_divided_where_somebody_goes_on_to_insert() {
    explore(
        2,
        (&[10, 20], &[]),
        |world| world.insert_all(&[14, 12]),
        |world| world.insert(16, 16),
        |world, one, other| {
            assert!(one && other);
            assert_eq!(world.keys(true), [10, 12, 14, 16, 20]);
        },
    );
}

/// Returns whether the keys are sorted, contain all of `always`, and of the others only `perhaps`.
fn are_all(keys: &[u64], always: &[u64], perhaps: u64) -> bool {
    keys.is_sorted_by(|a, b| a < b)
        && always.iter().all(|key| keys.contains(key))
        && keys.iter().all(|key| always.contains(key) || *key == perhaps)
}

#[test]
fn a_scan_upward_sees_what_is_always_there_while_a_leaf_is_divided() {
    explore(
        2,
        (&[10, 20, 30], &[]),
        |world| are_all(&world.keys(true), &[10, 20, 30], 15),
        |world| world.insert(15, 15),
        |_, scanned, inserted| assert!(scanned && inserted),
    );
}

#[test]
fn a_scan_downward_sees_what_is_always_there_while_a_leaf_is_divided() {
    explore(
        2,
        (&[10, 20, 30], &[]),
        |world| {
            let mut keys = world.keys(false);
            keys.reverse();
            are_all(&keys, &[10, 20, 30], 15)
        },
        |world| world.insert(15, 15),
        |_, scanned, inserted| assert!(scanned && inserted),
    );
}

#[test]
fn a_scan_from_both_ends_sees_what_is_always_there_while_a_leaf_is_divided() {
    explore(
        2,
        (&[10, 20, 30], &[]),
        |world| are_all(&world.keys_from_both_ends(), &[10, 20, 30], 15),
        |world| world.insert(15, 15),
        |_, scanned, inserted| assert!(scanned && inserted),
    );
}

#[test]
#[ignore = "long: scripts/test --all runs it"]
fn a_scan_sees_what_is_always_there_while_a_leaf_leaves() {
    for up in [true, false] {
        explore(
            1,
            // Leaves of 10 to 30, and of 40.
            (&[10, 20, 30, 40], &[]),
            move |world| {
                let mut keys = world.keys(up);
                if !up {
                    keys.reverse();
                }
                are_all(&keys, &[10, 20, 30], 40)
            },
            |world| world.remove(40),
            |world, scanned, removed| {
                assert!(scanned && removed);
                assert_eq!(world.keys(true), [10, 20, 30]);
            },
        );
    }
}

#[test]
fn a_leaf_on_the_left_takes_over_from_its_neighbour_while_keys_are_found() {
    explore(
        2,
        // Leaves of 30, and of 40.
        (&[10, 20, 30, 40], &[10, 20]),
        |world| world.get(40) == Some(40),
        |world| world.remove(30),
        |world, found, removed| {
            assert!(found && removed);
            assert_eq!(world.keys(true), [40]);
        },
    );
}

#[test]
#[ignore = "long: scripts/test --all runs it"]
fn a_scan_sees_what_is_always_there_while_a_leaf_takes_over_from_its_neighbour() {
    explore(
        1,
        (&[10, 20, 30, 40], &[10, 20]),
        |world| are_all(&world.keys(true), &[40], 30),
        |world| world.remove(30),
        |world, scanned, removed| {
            assert!(scanned && removed);
            assert_eq!(world.keys(false), [40]);
        },
    );
}

#[test]
fn a_key_is_inserted_into_a_leaf_that_leaves() {
    explore(
        1,
        (&[10, 20, 30, 40], &[]),
        |world| world.insert(50, 50),
        |world| world.remove(40),
        |world, inserted, removed| {
            assert!(inserted && removed);
            assert_eq!(world.keys(true), [10, 20, 30, 50]);
        },
    );
}

#[test]
fn two_leaves_leave_at_once() {
    explore(
        1,
        // Leaves of 30, and of 40.
        (&[10, 20, 30, 40], &[10, 20]),
        |world| world.remove(40),
        |world| world.remove(30),
        |world, one, other| {
            assert!(one && other);
            let mut scan = world.tree.range(..);
            assert!(scan.next().expect("sound").is_none());
            assert_eq!(scan.passed().len(), 1, "the root is a leaf again");
        },
    );
}

#[test]
#[ignore = "long: scripts/test --all runs it"]
fn a_node_that_is_used_again_is_not_taken_for_what_it_was() {
    explore(
        1,
        (&[10, 20, 30, 40], &[]),
        |world| world.get(40).is_none_or(|value| value == 40),
        |world| {
            // The last leaf is removed, and the root absorbs the first; then the root splits again.
            let mut worker = world.store.worker().expect("a worker");
            let removed = world.tree.remove(&mut worker, 40).expect("sound").is_some();
            removed && world.tree.insert(&mut worker, 35, &35_u64.to_le_bytes()).expect("room").is_some()
        },
        |world, found, done| {
            assert!(found && done);
            assert_eq!(world.keys(true), [10, 20, 30, 35]);
        },
    );
}

#[test]
fn an_unchanged_leaf_means_that_a_key_is_still_not_there() {
    explore(
        3,
        (&[10, 20, 30], &[]),
        |world| {
            let Err(leaf) = world.tree.read(15, Current, &mut NoValue).expect("sound") else { return true };
            // A reader that sees the key and then the old leaf would be wrong.
            let seen = world.get(15).is_some();
            !(seen && world.tree.unchanged(&leaf))
        },
        |world| world.insert(15, 15),
        |_, told_the_truth, inserted| assert!(told_the_truth && inserted),
    );
}

#[test]
fn following_ones_own_division_does_not_hide_a_key_of_another() {
    explore(
        2,
        (&[10, 20, 30], &[]),
        |world| {
            let Err(leaf) = world.tree.read(15, Current, &mut NoValue).expect("sound") else { return true };
            let mut seen = vec![leaf];
            let inserted =
                world.tree.insert_noting(&mut world.store.worker().expect("a worker"), 25, b"", None, |change| {
                    carry(&change, &mut seen)
                });
            assert!(inserted.expect("room").is_some());
            let deceived = world.get(15).is_some() && seen.iter().all(|leaf| world.tree.unchanged(leaf));
            !deceived
        },
        |world| world.insert(15, 15),
        |_, told_the_truth, inserted| assert!(told_the_truth && inserted),
    );
}

#[test]
fn a_value_moves_while_it_is_read() {
    explore(
        3,
        (&[10], &[]),
        |world| matches!(world.get_any_length(10), Some(8 | 16)),
        |world| world.tree.update(&mut world.store.worker().expect("a worker"), 10, &[10; 16]).expect("room").is_some(),
        |world, read, moved| {
            assert!(read && moved);
            assert_eq!(world.get_any_length(10), Some(16));
        },
    );
}

impl World {
    /// Returns the length of a key's value. Eight bytes are the key; sixteen are all ten.
    fn get_any_length(&self, key: u64) -> Option<usize> {
        let mut value = [0; 16];
        let read = self.tree.get(key, &mut value).expect("sound")?;
        match read.length {
            8 => assert_eq!(value[..8], key.to_le_bytes()),
            _ => assert_eq!(value, [10; 16]),
        }
        Some(read.length)
    }

    /// Removes a key. Its memory is reused for the same key of another tree, with a value one
    /// higher.
    fn hand_over(&self, key: u64) {
        let (mut worker, other) = (self.store.worker().expect("a worker"), self.store.tree().expect("a tree"));
        assert!(self.tree.remove(&mut worker, key).expect("sound").is_some());
        assert!(other.insert(&mut worker, key, &(key + 1).to_le_bytes()).expect("room").is_some());
    }
}

#[test]
fn a_removed_key_s_memory_is_never_read_as_the_same_key_of_another_tree() {
    explore(
        2,
        (&[7], &[]),
        |world| {
            world.hand_over(7);
            None
        },
        |world| world.get(7),
        |_, _, read| assert!(matches!(read, Some(7) | None), "another tree's value: {read:?}"),
    );
}

#[test]
#[should_panic(expected = "another tree's value")]
fn mutation_without_another_incarnation_a_stale_link_is_found() {
    mutated(Mutation::RetireWithoutIncarnation, a_removed_key_s_memory_is_never_read_as_the_same_key_of_another_tree);
}

#[test]
#[should_panic(expected = "found && inserted")]
fn mutation_without_looking_at_the_stamp_again_a_lost_key_is_found() {
    mutated(Mutation::NodeWithoutStamp, a_key_can_be_found_while_its_leaf_is_divided);
}

#[test]
#[should_panic(expected = "[4, 5, 6]")]
fn mutation_with_a_lock_on_what_has_changed_a_wrong_place_is_found() {
    mutated(Mutation::LockWithoutStamp, two_keys_get_two_entries);
}

#[test]
#[should_panic(expected = "[10, 20, 30, 50]")]
fn mutation_with_a_leaf_that_leaves_unchanged_a_lost_key_is_found() {
    mutated(Mutation::LeaveWithoutStamp, a_key_is_inserted_into_a_leaf_that_leaves);
}

#[test]
#[should_panic(expected = "[10, 20, 30, 40, 50]")]
fn mutation_with_a_lock_on_what_has_changed_a_run_is_put_over_a_key() {
    mutated(Mutation::LockWithoutStamp, a_run_of_keys_and_a_key_get_an_entry_each);
}
