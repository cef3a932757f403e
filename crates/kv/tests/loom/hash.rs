//! Model checking of the hash table: every interleaving, and every value that weak memory lets a
//! load return, of small cases.
//!
//! The code is the production code; only the words are loom's, in a small box, and a table begins
//! with one bucket. *Mutations*, deliberate faults, must make the same checks fail; those tests
//! expect a panic.

use drtm_htm::NoHtm;
use drtm_kv::{HashConfig, HashTable, KvTable, Mutation, Store, mutated};

use crate::explore;

type Table = HashTable<NoHtm>;

#[derive(Clone)]
struct World {
    store: Store<NoHtm>,
    table: Table,
}

impl World {
    /// Creates a table with these keys, each with itself as its value.
    fn new(config: HashConfig, keys: &[u64]) -> Self {
        let store = Store::in_memory(NoHtm, 2048).expect("a store");
        let table = store.hash_table(config).expect("a table");
        let world = Self { store, table };
        for key in keys {
            world.insert(*key, *key);
        }
        world
    }

    fn insert(&self, key: u64, value: u64) -> bool {
        let value = [value.to_le_bytes(), value.to_le_bytes()].concat();
        self.table.insert(&mut self.store.worker().expect("a worker"), key, &value).expect("room").is_some()
    }

    fn update(&self, key: u64, value: u64) -> bool {
        let value = [value.to_le_bytes(), value.to_le_bytes()].concat();
        self.table.update(&mut self.store.worker().expect("a worker"), key, &value).expect("room").is_some()
    }

    fn remove(&self, key: u64) -> bool {
        self.table.remove(&mut self.store.worker().expect("a worker"), key).expect("sound").is_some()
    }

    /// Returns the key's value. Asserts that it is not torn.
    fn get(&self, key: u64) -> Option<u64> {
        let mut value = [0; 16];
        let read = self.table.get(key, &mut value).expect("sound")?;
        assert_eq!(read.length, 16);
        let [low, high] = [0, 8].map(|at| u64::from_le_bytes(value[at..at + 8].try_into().expect("eight bytes")));
        assert_eq!(low, high, "a torn value");
        Some(low)
    }
}

/// Explores all interleavings of `first` and `second`, then runs `check`.
///
/// Each is once on the model's first thread: loom's exploration depends on it, and a reader there
/// hides interleavings.
fn explore<T: Send + 'static>(
    world: impl Fn() -> World + Copy + Send + Sync + 'static,
    first: impl Fn(&World) -> T + Copy + Send + Sync + 'static,
    second: impl Fn(&World) -> T + Copy + Send + Sync + 'static,
    check: impl Fn(&World, T, T) + Copy + Send + Sync + 'static,
) {
    explore_with(2, world, first, second, check);
}

/// Like [`explore`], with this many preemptions.
fn explore_with<T: Send + 'static>(
    preemptions: usize,
    world: impl Fn() -> World + Copy + Send + Sync + 'static,
    first: impl Fn(&World) -> T + Copy + Send + Sync + 'static,
    second: impl Fn(&World) -> T + Copy + Send + Sync + 'static,
    check: impl Fn(&World, T, T) + Copy + Send + Sync + 'static,
) {
    explore::explore(preemptions, world, first, second, check);
    explore::explore(preemptions, world, second, first, move |world, two, one| check(world, one, two));
}

/// Like [`explore`], for two that differ only in the names of keys or values, so that their order
/// does not matter.
fn mirrored<T: Send + 'static>(
    world: impl Fn() -> World + Copy + Send + Sync + 'static,
    first: impl Fn(&World) -> T + Copy + Send + Sync + 'static,
    second: impl Fn(&World) -> T + Copy + Send + Sync + 'static,
    check: impl Fn(&World, T, T) + Copy + Send + Sync + 'static,
) {
    explore::explore(2, world, first, second, check);
}

fn small(keys: &'static [u64]) -> impl Fn() -> World + Copy {
    move || World::new(HashConfig::default().fixed(), keys)
}

/// A table that one more key makes grow. Both of these keys move then: their hashes end with a one.
fn about_to_grow() -> World {
    World::new(HashConfig::for_keys(2).with_occupancy(0.25), &[3, 4])
}

#[test]
fn of_two_who_insert_a_key_one_does() {
    mirrored(
        small(&[]),
        |world| world.insert(7, 1),
        |world| world.insert(7, 2),
        |world, one, other| {
            assert!(one != other, "{one} {other}");
            assert_eq!(world.get(7), Some(if one { 1 } else { 2 }));
        },
    );
}

#[test]
fn two_keys_get_two_slots() {
    mirrored(
        small(&[]),
        |world| world.insert(7, 1),
        |world| world.insert(8, 2),
        |world, one, other| {
            assert!(one && other);
            assert_eq!((world.get(7), world.get(8)), (Some(1), Some(2)));
        },
    );
}

#[test]
fn a_reader_sees_an_update_whole_or_not_at_all() {
    explore(
        small(&[7]),
        |world| world.get(7),
        |world| world.update(7, 9).then_some(9),
        |world, read, updated| {
            assert!(matches!(read, Some(7 | 9)) && updated.is_some());
            assert_eq!(world.get(7), Some(9));
        },
    );
}

#[test]
fn of_two_who_update_none_is_lost() {
    mirrored(
        small(&[7]),
        |world| world.update(7, 1),
        |world| world.update(7, 2),
        |world, one, other| {
            assert!(one && other && matches!(world.get(7), Some(1 | 2)));
            let version = world.table.version(7).expect("sound").expect("there");
            // From the floor, 1, in two steps.
            assert_eq!(version.number(), 3);
        },
    );
}

#[test]
#[ignore = "long: scripts/test --all runs it"]
fn a_removed_key_s_memory_is_never_read_as_the_key() {
    // With two preemptions, by `LOOM_MAX_PREEMPTIONS=2`, it takes minutes.
    explore_with(
        1,
        small(&[7]),
        |world| world.get(7),
        |world| {
            // The record's memory is reused at once for another key.
            let mut worker = world.store.worker().expect("a worker");
            assert!(world.table.remove(&mut worker, 7).expect("sound").is_some());
            let value = [8_u64.to_le_bytes(), 8_u64.to_le_bytes()].concat();
            assert!(world.table.insert(&mut worker, 8, &value).expect("room").is_some());
            None
        },
        |world, read, _| {
            assert!(matches!(read, Some(7) | None), "{read:?}");
            assert_eq!((world.get(7), world.get(8)), (None, Some(8)));
        },
    );
}

/// Removes a key. Its record's memory is reused for another table's record of the same key.
fn hand_over(world: &World) {
    let other = world.store.hash_table(HashConfig::default().fixed()).expect("room");
    let mut worker = world.store.worker().expect("a worker");
    assert!(world.table.remove(&mut worker, 7).expect("sound").is_some());
    let value = [8_u64.to_le_bytes(), 8_u64.to_le_bytes()].concat();
    assert!(other.insert(&mut worker, 7, &value).expect("room").is_some());
    let read = other.get(7, &mut [0; 16]).expect("sound").expect("just inserted");
    assert_eq!(read.version.number(), 1, "another table's update has come here");
}

#[test]
#[ignore = "long: scripts/test --all runs it"]
fn another_table_s_record_of_the_key_is_never_read() {
    explore(
        small(&[7]),
        |world| world.get(7),
        |world| {
            hand_over(world);
            None
        },
        |world, read, _| {
            assert!(matches!(read, Some(7) | None), "{read:?}");
            assert_eq!(world.get(7), None);
        },
    );
}

#[test]
fn another_table_s_record_of_the_key_is_never_written() {
    explore(
        small(&[7]),
        |world| world.update(7, 9),
        |world| {
            hand_over(world);
            true
        },
        |world, _, _| assert_eq!(world.get(7), None),
    );
}

#[test]
fn a_key_is_updated_or_removed() {
    explore(
        small(&[7]),
        |world| world.update(7, 9),
        |world| world.remove(7),
        |world, _updated, removed| {
            assert!(removed);
            assert_eq!(world.get(7), None);
        },
    );
}

#[test]
#[ignore = "long: scripts/test --all runs it"]
fn a_key_can_be_found_while_its_bucket_is_split() {
    explore(
        about_to_grow,
        |world| {
            assert_eq!((world.get(3), world.get(4)), (Some(3), Some(4)), "lost while it moved");
            true
        },
        |world| world.insert(1, 1),
        |world, _, inserted| {
            assert!(inserted);
            assert_eq!(world.table.buckets().expect("sound"), 2, "it has grown");
            assert_eq!((world.get(1), world.get(3), world.get(4)), (Some(1), Some(3), Some(4)));
        },
    );
}

#[test]
#[ignore = "long: scripts/test --all runs it"]
fn a_key_can_be_inserted_while_its_bucket_is_split() {
    // With two preemptions, by `LOOM_MAX_PREEMPTIONS=2`, it takes minutes.
    explore_with(
        1,
        about_to_grow,
        |world| world.insert(7, 7),
        |world| world.insert(1, 1),
        |world, one, other| {
            assert!(one && other);
            assert!([1, 3, 4, 7].into_iter().all(|key| world.get(key) == Some(key)));
            assert_eq!(world.table.count().expect("sound"), 4);
        },
    );
}

#[test]
fn a_key_whose_record_moves_is_visited_once() {
    explore(
        small(&[7]),
        |world| {
            let (mut sweep, mut visited) = (world.table.sweep().expect("sound"), Vec::new());
            while world.table.advance(&mut sweep, |key| visited.push(key)).expect("sound") {}
            assert_eq!(visited, [7]);
            true
        },
        |world| world.table.update(&mut world.store.worker().expect("a worker"), 7, &[7; 40]).expect("room").is_some(),
        |_, visited, moved| assert!(visited && moved),
    );
}

#[test]
#[should_panic(expected = "a torn value")]
fn mutation_without_looking_at_the_version_again_a_torn_value_is_found() {
    mutated(Mutation::ReadWithoutVersion, a_reader_sees_an_update_whole_or_not_at_all);
}

#[test]
#[should_panic(expected = "a torn value")]
fn mutation_without_looking_at_the_slot_again_another_table_s_value_is_found() {
    mutated(Mutation::FollowWithoutSight, another_table_s_record_of_the_key_is_never_read);
}

#[test]
#[should_panic(expected = "another table's update has come here")]
fn mutation_without_looking_at_the_slot_again_another_table_s_update_is_found() {
    mutated(Mutation::FollowWithoutSight, another_table_s_record_of_the_key_is_never_written);
}

#[test]
#[should_panic(expected = "a torn value")]
fn mutation_without_a_fence_before_the_value_a_torn_value_is_found() {
    mutated(Mutation::WriteWithoutFence, a_reader_sees_an_update_whole_or_not_at_all);
}

#[test]
#[should_panic(expected = "lost while it moved")]
fn mutation_without_looking_at_the_depth_a_lost_key_is_found() {
    mutated(Mutation::AbsenceWithoutDepth, a_key_can_be_found_while_its_bucket_is_split);
}

#[test]
#[should_panic(expected = "lost while it moved")]
fn mutation_with_keys_dropped_first_a_lost_key_is_found() {
    mutated(Mutation::SplitDropsKeysFirst, a_key_can_be_found_while_its_bucket_is_split);
}
