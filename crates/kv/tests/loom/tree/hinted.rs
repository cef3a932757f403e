//! Lookups by hints, while the hinted leaf changes concurrently.

use drtm_kv::{KvTable, Mutation, mutated};

use super::{ABOUT_TO_BE_DIVIDED, World};
use crate::explore;

/// Like [`explore`], after these keys have been looked up, so that there are hints for them.
fn explore_hinted<T: Send + 'static>(
    preemptions: usize,
    (keys, removed, hinted): (&'static [u64], &'static [u64], &'static [u64]),
    first: impl Fn(&World) -> T + Copy + Send + Sync + 'static,
    second: impl Fn(&World) -> T + Copy + Send + Sync + 'static,
    check: impl Fn(&World, T, T) + Send + Sync + 'static,
) {
    let world = move || {
        let world = World::new(keys, removed);
        assert!(hinted.iter().all(|key| world.get(*key) == Some(*key)));
        world
    };
    explore::explore(preemptions, world, first, second, check);
}

#[test]
fn a_key_is_found_by_a_hint_while_its_leaf_is_divided() {
    let divide = |world: &World| world.insert(45, 45);
    let check = |world: &World, one, other| {
        assert!(one && other);
        assert_eq!(world.keys(true), [10, 20, 30, 40, 45, 50, 60]);
    };
    let (keys, removed) = ABOUT_TO_BE_DIVIDED;
    for moves in [40, 60] {
        let find = move |world: &World| world.get(moves) == Some(moves) && world.get(moves) == Some(moves);
        explore_hinted(3, (keys, removed, &[40, 60]), divide, find, check);
        explore_hinted(2, (keys, removed, &[40, 60]), find, divide, check);
    }
}

#[test]
fn a_key_is_found_by_a_hint_while_its_leaf_leaves() {
    explore_hinted(
        2,
        // Leaves of 30, and of 40; the left one absorbs the other.
        (&[10, 20, 30, 40], &[10, 20], &[30, 40]),
        |world| world.remove(30),
        |world| world.get(40) == Some(40) && world.get(30).is_none_or(|value| value == 30),
        |world, removed, found| {
            assert!(found && removed);
            assert_eq!((world.get(30), world.get(40)), (None, Some(40)));
        },
    );
}

#[test]
#[ignore = "long: scripts/test --all runs it"]
fn a_hint_of_a_leaf_whose_memory_is_used_again_leads_nowhere() {
    explore_hinted(
        2,
        (&[10, 20, 30, 40], &[], &[40]),
        |world| {
            // The last leaf is removed, and the root absorbs the first; then the root splits again.
            let mut worker = world.store.worker().expect("a worker");
            let removed = world.tree.remove(&mut worker, 40).expect("sound").is_some();
            removed && world.tree.insert(&mut worker, 35, &35_u64.to_le_bytes()).expect("room").is_some()
        },
        |world| world.get(40).is_none_or(|value| value == 40) && world.get(35).is_none_or(|value| value == 35),
        |world, done, found| {
            assert!(found && done);
            assert_eq!((world.keys(true), world.get(40)), (vec![10, 20, 30, 35], None));
        },
    );
}

#[test]
fn what_was_seen_to_have_moved_is_not_found_by_a_hint_where_it_was() {
    explore_hinted(
        3,
        (&[10], &[], &[10]),
        |world| world.tree.update(&mut world.store.worker().expect("a worker"), 10, &[10; 16]).expect("room").is_some(),
        |world| {
            // Scans use no hints.
            let length = |world: &World| world.tree.range(..).next().expect("sound").map(|row| row.value.len());
            !(length(world) == Some(16) && world.get_any_length(10) == Some(8))
        },
        |world, moved, in_order| {
            assert!(moved && in_order);
            assert_eq!(world.get_any_length(10), Some(16));
        },
    );
}

#[test]
fn a_removed_key_s_memory_is_never_read_by_a_hint_as_the_same_key_of_another_tree() {
    explore_hinted(
        2,
        (&[7], &[], &[7]),
        |world| {
            world.hand_over(7);
            None
        },
        |world| world.get(7),
        |_, _, read| assert!(matches!(read, Some(7) | None), "another tree's value: {read:?}"),
    );
}

/// A record's memory becomes another tree's record of the same key, and even its incarnation has
/// wrapped around.
fn a_key_whose_memory_has_gone_full_circle_is_not_found_by_a_hint() {
    loom::model(|| {
        let world = World::new(&[7], &[]);
        assert_eq!(world.get(7), Some(7));
        world.hand_over(7);
        assert_eq!(world.get(7), None);
    });
}

#[test]
fn a_hint_is_not_believed_for_its_incarnation() {
    mutated(Mutation::RetireWithoutIncarnation, a_key_whose_memory_has_gone_full_circle_is_not_found_by_a_hint);
}

#[test]
#[should_panic(expected = "Some(8)")]
fn mutation_without_a_look_at_a_hint_s_leaf_another_tree_s_value_is_found() {
    mutated(Mutation::HintWithoutLeaf, a_key_whose_memory_has_gone_full_circle_is_not_found_by_a_hint);
}
