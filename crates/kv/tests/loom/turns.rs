//! Model checking of turns: a counter of three bits wraps around while a reader records it, or
//! validates it.
//!
//! ```text
//! cargo test --package drtm-kv --features loom,narrow --test loom turns
//! ```

use drtm_htm::NoHtm;
use drtm_kv::{Current, HashConfig, HashTable, Holder, KvTable, Mutation, NoValue, Store, Tree, mutated};

use crate::explore::explore;

const ME: Holder = Holder::new(9, 9, 9, 9);

#[derive(Clone)]
struct World {
    store: Store<NoHtm>,
    /// A table of one bucket.
    table: HashTable<NoHtm>,
    tree: Tree<NoHtm>,
}

impl World {
    fn new() -> Self {
        let store = Store::in_memory(NoHtm, 2048).expect("a store");
        let table = store.hash_table(HashConfig::default().fixed()).expect("a table");
        let tree = store.tree().expect("a tree");
        Self { store, table, tree }
    }

    /// Changes the bucket this many times.
    fn change(&self, times: u32) {
        let mut worker = self.store.worker().expect("a worker");
        for _ in 0..times {
            if self.table.remove(&mut worker, 1).expect("sound").is_none() {
                self.table.insert(&mut worker, 1, &[]).expect("room").expect("it is new");
            }
        }
    }

    fn insert(&self, key: u64) {
        let mut worker = self.store.worker().expect("a worker");
        self.table.insert(&mut worker, key, &[]).expect("room").expect("it is new");
    }

    /// Reuses the memory of the tree's record this many times.
    fn use_memory(&self, times: u32) {
        let mut worker = self.store.worker().expect("a worker");
        for _ in 0..times {
            self.tree.remove(&mut worker, 1).expect("sound").expect("it is there");
            self.tree.insert(&mut worker, 1, &[]).expect("room").expect("it is new");
        }
    }
}

/// A reader records an absent key while its bucket begins a quarter. The turn may be read before
/// the version.
fn a_quarter_begins_while_a_reader_begins() {
    explore(
        3,
        || {
            let world = World::new();
            // The next version begins a quarter.
            world.change(1);
            world
        },
        |world| {
            world.change(1);
            None
        },
        |world| {
            let since = world.store.turn();
            let absent = world.table.read(7, Current, &mut NoValue).expect("sound").expect_err("it is absent");
            Some((absent, since))
        },
        |world, _, read| {
            let (absent, since) = read.expect("by the reader");
            let records = world.store.records();
            world.insert(7);
            while !records.is_unchanged(&absent) {
                world.change(1);
            }
            assert!(!world.store.is_within(since), "wrong: an absent key is absent still");
        },
    );
}

/// A reader validates a bucket's version while it wraps around.
fn a_bucket_comes_round_while_a_reader_validates() {
    explore(
        2,
        || {
            let world = World::new();
            let since = world.store.turn();
            let absent = world.table.read(7, Current, &mut NoValue).expect("sound").expect_err("it is absent");
            world.insert(7);
            world.change(4);
            (world, absent, since)
        },
        |(world, absent, since)| {
            let is_unchanged = world.store.records().is_unchanged(absent);
            assert!(!(is_unchanged && world.store.is_within(*since)), "wrong: an absent key is absent still");
        },
        // On the model's first thread: there a reader's only load would hide that it can be later.
        |(world, ..)| world.change(3),
        |(world, absent, _), (), ()| assert!(world.store.records().is_unchanged(absent), "a round is over"),
    );
}

/// A reader validates a record's incarnation while its memory wraps around.
fn memory_comes_round_while_a_reader_validates() {
    explore(
        2,
        || {
            let world = World::new();
            world.tree.insert(&mut world.store.worker().expect("a worker"), 1, &[]).expect("room").expect("it is new");
            let since = world.store.turn();
            let seen = world.tree.read(1, Current, &mut NoValue).expect("sound").expect("it is there");
            world.use_memory(7);
            (world, seen, since)
        },
        |(world, ..)| world.use_memory(1),
        |(world, seen, since)| {
            let is_there = world.store.records().is_there(seen.at, ME);
            assert!(!(is_there && world.store.is_within(*since)), "wrong: another use of the memory");
        },
        |(world, seen, _), (), ()| assert!(world.store.records().is_there(seen.at, ME), "a round is over"),
    );
}

#[test]
fn a_quarter_that_begins_while_a_reader_begins_is_noticed() {
    a_quarter_begins_while_a_reader_begins();
}

#[test]
fn a_bucket_that_comes_round_while_a_reader_validates_is_noticed() {
    a_bucket_comes_round_while_a_reader_validates();
}

#[test]
fn memory_that_comes_round_while_a_reader_validates_is_noticed() {
    memory_comes_round_while_a_reader_validates();
}

#[test]
#[should_panic(expected = "wrong")]
fn without_turns_a_quarter_is_not_noticed() {
    mutated(Mutation::TurnsNotCounted, a_quarter_begins_while_a_reader_begins);
}

#[test]
#[should_panic(expected = "wrong")]
fn without_turns_a_bucket_is_not_noticed() {
    mutated(Mutation::TurnsNotCounted, a_bucket_comes_round_while_a_reader_validates);
}

#[test]
#[should_panic(expected = "wrong")]
fn without_turns_memory_is_not_noticed() {
    mutated(Mutation::TurnsNotCounted, memory_comes_round_while_a_reader_validates);
}
