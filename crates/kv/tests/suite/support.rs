//! Shared code of several test files.

use std::{
    fs::File,
    ops::{Bound, ControlFlow},
    sync::Arc,
};

use drtm_htm::{Emulated, EmulatedConfig, Engine, NoHtm, Profile, Timer};
use drtm_kv::{Bytes, Inline, Keys, Memory, Scan, Store, TreeKeys, Version};
use drtm_rdma::Region;
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, memfd_create};

pub(crate) use drtm_testing::rounds;

pub(crate) const MIB: u64 = 1 << 20;

/// Creates a store whose trees have hints from their first keys on.
pub(crate) fn store<E: Engine>(engine: E, capacity: u64) -> Store<E> {
    Store::in_memory(engine, capacity).expect("a store").hinting_at_once()
}

/// Returns an emulation with so little capacity, and so many interrupts, that htm transactions and
/// locks alternate.
pub(crate) fn tight(seed: u64) -> Emulated {
    let config = EmulatedConfig::new(Profile::new(8, 2, 64))
        .with_timer(Timer::Virtual { period: 2_000, access: 3 })
        .with_events_one_in(300)
        .with_seed(seed);
    Emulated::new(config).expect("a valid configuration")
}

/// Two stores on two mappings of one region, at different addresses.
pub(crate) fn mapped_twice(capacity: u64) -> [Store<NoHtm>; 2] {
    let file: File = memfd_create("drtm-kv-test", MemfdFlags::empty()).expect("memory files").into();
    let again = file.try_clone().expect("another handle");
    let created = Region::create(NoHtm, file, capacity).expect("a region");
    let opened = Region::open(NoHtm, again).expect("the same region");
    [created, opened].map(|region| Store::in_region(Arc::new(region)).expect("a store").hinting_at_once())
}

/// Calls a closure with the rows of a scan, with values of up to a kilobyte: some by `next`, some
/// by the scan's own loop, from an array or from a slice.
pub(crate) fn each_row<E: Engine, K: TreeKeys>(
    scan: &mut Scan<'_, E, K>,
    mut show: impl FnMut(K::Key<'_>, &[u8], Version),
) {
    let mut into = [0; 1_024];
    while let Some(row) = scan.next().expect("sound") {
        show(row.key, row.value, row.version);
        some_rows(scan, &mut into, &mut show);
        some_rows(scan, &mut into[..], &mut show);
    }
}

fn some_rows<E: Engine, K: TreeKeys, B: Memory + ?Sized>(
    scan: &mut Scan<'_, E, K>,
    into: &mut B,
    show: &mut impl FnMut(K::Key<'_>, &[u8], Version),
) {
    let mut left = 5;
    let shown = scan.each_into(into, |key, read, value| {
        assert_eq!(read.length, value.len());
        show(key, value, read.version);
        left -= 1;
        if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    shown.expect("sound");
}

/// Returns a value that shows whether it is torn: it begins with key and turn, which determine its
/// length and its other bytes.
pub(crate) fn value(key: u64, turn: u64) -> Vec<u8> {
    let mut value = Vec::new();
    value.extend(key.to_le_bytes());
    value.extend(turn.to_le_bytes());
    value.extend((0..(key * 7 + turn * 13) % 300).map(|at| (key + turn + at) as u8));
    value
}

/// Returns the turn of a value. Asserts that it is not torn, and is of this key.
pub(crate) fn turn_of(found: &[u8], key: u64) -> u64 {
    let word = |at: usize| u64::from_le_bytes(found[at..at + 8].try_into().expect("eight bytes"));
    assert_eq!(word(0), key, "another key's value");
    let turn = word(8);
    assert!(found == value(key, turn), "a torn value of key {key}, turn {turn}");
    turn
}

/// A byte string as a key.
pub(crate) type Key = Vec<u8>;

/// Keys that often share prefixes, or are prefixes of others, with the lowest and the highest
/// bytes.
pub(crate) fn key() -> impl Strategy<Value = Key> {
    let long =
        || (0..3usize, prop::sample::select(vec![b'x', 0, 255])).prop_map(|(slices, byte)| vec![byte; 7 * slices]);
    let some = |lengths| prop::collection::vec(prop::sample::select(vec![0, b'a', 255]), lengths);
    prop_oneof![
        4 => some(0..5usize),
        2 => some(5..17usize),
        4 => (long(), some(0..4usize)).prop_map(|(prefix, rest)| [prefix, rest].concat()),
        1 => (0..40usize).prop_map(|length| vec![b'x'; length]),
        1 => (1..4usize, some(0..3usize)).prop_map(|(times, rest)| [vec![b'y'; 100 * times], rest].concat()),
    ]
}

pub(crate) fn key_bound() -> impl Strategy<Value = Bound<Key>> {
    prop_oneof![
        3 => key().prop_map(Bound::Included),
        3 => key().prop_map(Bound::Excluded),
        1 => Just(Bound::Unbounded),
    ]
}

/// Returns whether these bounds contain no key, and a `BTreeMap` would panic at them.
pub(crate) fn is_backward<K: Ord>(bounds: &(Bound<K>, Bound<K>)) -> bool {
    match bounds {
        (Bound::Excluded(from), Bound::Excluded(to)) => from >= to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from > to,
        _ => false,
    }
}

/// Lengths around limits: words, the longest short value, size classes.
pub(crate) fn length() -> impl Strategy<Value = usize> {
    prop_oneof![0..40usize, 250..260usize, prop::sample::select(vec![8, 100, 1_000, 5_000])]
}

/// A value that is a key of some kind: an integer, or a sequence of bytes.
pub(crate) trait AsKey<K: Keys> {
    fn as_key(&self) -> K::Key<'_>;
}

impl AsKey<Inline> for u64 {
    fn as_key(&self) -> u64 {
        *self
    }
}

impl<B: AsRef<[u8]>> AsKey<Bytes> for B {
    fn as_key(&self) -> &[u8] {
        self.as_ref()
    }
}

/// A kind of keys with one for each number.
pub(crate) trait Numbered: Keys {
    fn with<T>(number: u16, then: impl FnOnce(Self::Key<'_>) -> T) -> T;
}

impl Numbered for Inline {
    fn with<T>(number: u16, then: impl FnOnce(u64) -> T) -> T {
        // Spread over the word in a way that a weak hash handles badly.
        then(u64::from(number) << 40)
    }
}

impl Numbered for Bytes {
    fn with<T>(number: u16, then: impl FnOnce(&[u8]) -> T) -> T {
        let mut key = vec![b'k'; usize::from(number % 300)];
        key.extend(number.to_be_bytes());
        then(&key)
    }
}
