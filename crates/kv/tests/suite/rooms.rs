//! Buffers that expect values of one length and get others, or request parts of values.

use std::ops::ControlFlow;

use drtm_htm::NoHtm;
use drtm_kv::{
    Cursor, ForHolder, HashConfig, HashTable, Inline, KvTable, PrefetchMask, ReadEntry, Store, Tree, ValueSink,
    Whereabouts, Worker,
};
use proptest::prelude::*;

use crate::support::{MIB, store};

/// A buffer for parts of a value that is expected to have `W` words.
#[derive(Clone, Debug, Default, PartialEq)]
struct Parts<const W: usize> {
    wanted: (usize, usize),
    bytes: Vec<u8>,
}

impl<const W: usize> ValueSink for Parts<W> {
    fn of(&mut self, length: usize) -> &mut [u8] {
        self.bytes.resize(length.min(self.wanted.1), 0);
        &mut self.bytes
    }

    fn skipped(&self) -> usize {
        self.wanted.0
    }

    fn whole(&self) -> Option<usize> {
        Some(W)
    }
}

impl<const W: usize> Parts<W> {
    /// Returns the expected contents for a value.
    fn filled(&self, value: &[u8]) -> Self {
        let cut = |(skipped, length): (usize, usize)| {
            let rest = value.get(8 * skipped..).unwrap_or(&[]);
            rest[..length.min(rest.len())].to_vec()
        };
        Self { bytes: cut(self.wanted), ..self.clone() }
    }

    /// Returns whether the requested part begins within a value.
    fn is_within(&self, value: &[u8]) -> bool {
        8 * self.wanted.0 <= value.len()
    }
}

struct World {
    _store: Store<NoHtm>,
    worker: Worker<NoHtm>,
    hash: HashTable<NoHtm>,
    tree: Tree<NoHtm>,
    values: Vec<Vec<u8>>,
}

impl World {
    fn new(lengths: &[usize]) -> Self {
        let store = store(NoHtm, 64 * MIB);
        let hash = store.hash_table_of::<Inline>(HashConfig::default()).expect("room");
        let (tree, mut worker) = (store.tree().expect("room"), store.worker().expect("a worker"));
        let values: Vec<Vec<u8>> =
            (0..).zip(lengths).map(|(key, length)| (0..*length).map(|at| (at * 7 + key) as u8).collect()).collect();
        for (key, value) in (0..).zip(&values) {
            assert!(hash.insert(&mut worker, key, value).expect("room").is_some());
            assert!(tree.insert(&mut worker, key, value).expect("room").is_some());
        }
        Self { _store: store, worker, hash, tree, values }
    }

    /// Reads each value into buffers of the same size, of a smaller and of a larger one.
    fn check_slices(&self, other: usize) -> Result<(), TestCaseError> {
        for (key, value) in (0..).zip(&self.values) {
            for room in [value.len(), value.len() / 2, value.len() + 1, other] {
                let copied = room.min(value.len());
                let (mut hashed, mut sorted) = (vec![0xA5; room], vec![0xA5; room]);
                let found = [
                    self.hash.get(key, &mut hashed[..]).expect("no error"),
                    self.tree.get(key, &mut sorted[..]).expect("no error"),
                ];
                prop_assert!(found.iter().all(|read| read.is_some_and(|read| read.length == value.len())), "{key}");
                prop_assert!(hashed[..copied] == value[..copied] && hashed[copied..].iter().all(|byte| *byte == 0xA5));
                prop_assert_eq!(hashed, sorted);
            }
        }
        Ok(())
    }

    /// Reads each value in every way.
    fn check<const W: usize>(&self, wanted: &Parts<W>) -> Result<(), TestCaseError> {
        let mut holder = ForHolder(self.worker.holder());
        let is_found = |fetched: Result<ReadEntry, ()>| fetched.is_ok_and(|seen| seen.is_present());
        for (key, value) in (0..).zip(&self.values) {
            let filled = wanted.filled(value);
            let mut room = wanted.clone();
            let fetched = self.hash.read(key, holder, &mut room).expect("no error").map_err(drop);
            prop_assert!(is_found(fetched) && room == filled, "hash {key}: {room:?}");

            let (_, bucket) = self.hash.prefetch([key].into_iter()).next().expect("one");
            if let Whereabouts::Record(at) = self.hash.locate(key, bucket, &PrefetchMask::of(&[])) {
                let mut room = wanted.clone();
                // A value of another length, or without the requested part, is left to the slow
                // path.
                let is_usual = value.len() == W && wanted.is_within(value);
                match self.hash.read_at(at, key, holder, &mut room) {
                    Some(_) => prop_assert!(room == filled, "hash {key}, as located: {room:?}"),
                    None => prop_assert!(!is_usual, "hash {key}, as located"),
                }
            }

            let mut room = wanted.clone();
            let fetched = self.tree.read(key, holder, &mut room).expect("no error").map_err(drop);
            prop_assert!(is_found(fetched) && room == filled, "tree {key}: {room:?}");
        }
        self.check_slices(W)?;
        let (mut cursor, mut leaves) = (Cursor::up(..), Vec::new());
        let (mut room, mut rows) = (wanted.clone(), Vec::new());
        let each = |key, _, room: &mut Parts<W>| {
            rows.push((key, room.clone()));
            ControlFlow::Continue(())
        };
        self.tree.advance_each(&mut cursor, &mut holder, &mut leaves, &mut room, each).expect("no error");
        let expected = (0..).zip(self.values.iter().map(|value| wanted.filled(value)));
        prop_assert!(rows.into_iter().eq(expected));
        Ok(())
    }
}

/// Lengths at which the code's behaviour changes, and those around them.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![0..20_usize, 40..50_usize, 250..260_usize, 300..310_usize, 0..700_usize]
}

fn part() -> impl Strategy<Value = (usize, usize)> {
    (0..12_usize, prop_oneof![0..40_usize, Just(usize::MAX)])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn values_are_copied_whatever_is_expected(
        lengths in prop::collection::vec(length(), 1..40),
        wanted in part(),
    ) {
        let world = World::new(&lengths);
        world.check(&Parts::<0> { wanted, ..Parts::default() })?;
        world.check(&Parts::<7> { wanted, ..Parts::default() })?;
        world.check(&Parts::<48> { wanted, ..Parts::default() })?;
        world.check(&Parts::<254> { wanted, ..Parts::default() })?;
        world.check(&Parts::<255> { wanted, ..Parts::default() })?;
        world.check(&Parts::<306> { wanted, ..Parts::default() })?;
    }
}
