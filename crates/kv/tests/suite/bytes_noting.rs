//! Guards of layers' leaves follow the worker's own changes, while layers are created and removed.

use drtm_htm::{Engine, NoHtm};
use drtm_kv::{Bytes, Current, KvTable, NoValue};
use proptest::{collection::vec, prelude::*};

use crate::{
    support::{Key, MIB, is_backward, key, key_bound, store},
    tree_noting::World,
};

/// A program's operation on a key.
#[derive(Clone, Copy, Debug)]
enum Step {
    Insert,
    ReadOrInsert,
}

type Steps = Vec<(Step, Key)>;

fn steps() -> impl Strategy<Value = Steps> {
    let step = prop_oneof![2 => Just(Step::Insert), 1 => Just(Step::ReadOrInsert)];
    vec((step, key()), 0..100)
}

impl<E: Engine> World<E, Bytes> {
    fn run(&mut self, step: Step, key: &[u8]) {
        _ = match step {
            Step::Insert => self.insert(key),
            Step::ReadOrInsert => self.read_or_insert(key),
        };
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn what_was_seen_follows_ones_own_changes_and_nobody_elses(
        keys in vec(key(), 0..150),
        bounds in (key_bound(), key_bound()),
        up: bool,
        before in steps(),
        disturbing in key(),
        after in steps(),
    ) {
        let store = store(NoHtm, 16 * MIB);
        let mut world = World::<_, Bytes>::filled(&store, keys);
        let range = (bounds.0.as_ref().map(Vec::as_slice), bounds.1.as_ref().map(Vec::as_slice));
        let mut scan = if up { world.tree.range(range) } else { world.tree.range_back(range) };
        while scan.next().expect("sound").is_some() {}
        world.seen = scan.passed().to_vec();
        for (step, key) in &before {
            world.run(*step, key);
            prop_assert!(world.holds(), "{step:?} of {key:?}");
        }
        let is_in_range = std::ops::RangeBounds::contains(&(bounds.0.as_ref(), bounds.1.as_ref()), &disturbing);
        if is_backward(&bounds) || !is_in_range {
            return Ok(());
        }
        world.disturb(&disturbing);
        prop_assert!(!world.holds());
        for (step, key) in &after {
            world.run(*step, key);
            prop_assert!(!world.holds(), "{step:?} of {key:?} hides what another thread did");
        }
    }

    #[test]
    fn a_key_that_is_absent_stays_so_through_ones_own_changes(
        keys in vec(key(), 0..150), absent in key(), steps in steps(),
    ) {
        let store = store(NoHtm, 16 * MIB);
        let mut world = World::<_, Bytes>::filled(&store, keys);
        world.remove(&absent);
        let Err(leaf) = world.tree.read(&absent, Current, &mut NoValue).expect("sound") else { panic!("it was removed") };
        world.seen = vec![leaf];
        for (step, key) in &steps {
            world.run(*step, key);
            prop_assert!(world.holds(), "{step:?} of {key:?}");
        }
        world.disturb(&absent);
        prop_assert!(!world.holds());
    }
}

#[test]
fn layers_that_come_are_followed_and_leave_with_the_last_key() {
    let store = store(NoHtm, 16 * MIB);
    let mut world = World::<_, Bytes>::filled(&store, ["common prefix, one"]);
    let missed = |world: &World<_, Bytes>| {
        let read = world.tree.read(b"common prefix, two", Current, &mut NoValue).expect("sound");
        read.expect_err("it was not inserted")
    };
    world.seen = vec![missed(&world)];
    let names: Vec<_> = (0..500).map(|number: u32| format!("common prefix, number {number:05}")).collect();
    names.iter().for_each(|name| assert!(world.insert(name.as_bytes())));
    assert!(world.holds() && world.seen.len() > 10, "{:?}", world.seen);
    names.iter().rev().for_each(|name| assert!(world.remove(name.as_bytes())));
    assert!(world.remove(b"common prefix, one") && !world.holds());
    world.seen = vec![missed(&world)];
    assert_eq!(world.seen[0].at.bytes() % 64, 0, "the root is all there is");
    world.disturb(b"common prefix, two");
    assert!(!world.holds());
}
