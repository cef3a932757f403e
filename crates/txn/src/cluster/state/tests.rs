//! What a running transaction knows is found, however much it is.

use std::{collections::BTreeSet, ops::Bound};

use drtm_htm::NoHtm;
use drtm_kv::{BucketVersion, Handle, Version};
use drtm_rdma::LocalPort;
use proptest::prelude::*;

use super::{finder::STEPS, *};
use crate::{
    cluster::{adapt::WAYS, ask::Ask, wire::parts::Shifted},
    memory::{arena::ArenaKey, storage::Absence},
    tx::position::Way,
};

type Local<'e> = State<'e, LocalPort<NoHtm>>;

fn state<'e>() -> Local<'e> {
    let owners: Vec<NodeId> = (0..4).map(NodeId).collect();
    let view = View::fixed(&owners, owners.len(), 0).expect("a view");
    State::new(Holder::new(0, 0, 0, 0), WAYS[0], Rc::new(view))
}

const ALL: [Bound<ArenaKey>; 2] = [Bound::Unbounded, Bound::Unbounded];

fn put(state: &mut Local<'_>, row: u32) {
    let value = state.arena.keep_value(|bytes| {
        bytes.push(1);
        Ok(())
    });
    let value = value.expect("few bytes");
    state.note(row, Op::Put(value));
}

/// Notes that a row was read from its owner, as the next one of a span.
fn read(state: &mut Local<'_>, span: usize, row: u32) {
    let known = &mut state.rows[row as usize];
    (known.place, known.seen, known.sight) = (Place::At(Handle::from_word(64)), Version::new(4), Sight::Read);
    let key = known.key;
    state.spans[span].note_read(row, key);
}

proptest! {
    #[test]
    fn a_row_is_found_by_its_table_and_key(keys in prop::collection::vec((0..3_u16, 0..40_u64, any::<bool>()), 0..100)) {
        let mut state = state();
        let mut model = Vec::new();
        for (table, key, is_word) in keys {
            let bytes = key.to_be_bytes();
            let key = if is_word { KeyRef::Word(key) } else { KeyRef::Bytes(&bytes) };
            let kept = (table, is_word, bytes);
            let expected = model.iter().position(|row| *row == kept).unwrap_or_else(|| {
                model.push(kept);
                model.len() - 1
            });
            prop_assert_eq!(state.row(table, key, ShardId(0)).expect("few bytes"), expected as u32);
        }
    }
}

#[test]
fn what_may_have_come_round_is_not_valid() {
    let mut state = state();
    state.owner(NodeId(1)).note_count(5);
    state.owner(NodeId(2)).note_count(7);
    assert_eq!(state.check_turns(), Ok(()));
    state.owner(NodeId(1)).note_count(5 + ROUND_TURNS - 1);
    assert_eq!(state.check_turns(), Ok(()));
    state.owner(NodeId(2)).note_count(7 + ROUND_TURNS);
    assert_eq!(state.check_turns(), Err(Conflict::Validation));
}

/// Returns the steps that a transaction of so many rows takes for each of them.
fn steps_of_each(rows: u64) -> u64 {
    let (mut state, before) = (state(), STEPS.get());
    let guard = |version| Absence::Bucket(BucketVersion::from_words(64, version));
    let span = state.add_spans(0, ALL, Way::Up, Reach::One(ShardId(0)), (usize::MAX, false)).start;
    for key in 0..rows {
        for _ in 0..2 {
            state.row(0, KeyRef::Word(key), ShardId(0)).expect("few bytes");
        }
        // Each insertion changes one guard, and divides another.
        state.guards.note(ShardId(0), guard(2 * key), Some(key as u32));
        let split_off = Some(guard(u64::from(u32::MAX) - key));
        state.guards.shift(ShardId(0), &[Shifted { before: guard(2 * key), after: guard(2 * key + 1), split_off }]);
        match key % 2 {
            0 => put(&mut state, key as u32),
            _ => read(&mut state, span, key as u32),
        }
        // The first row, as often as there are rows.
        let first = state.first_rows(0, ALL, Way::Up, span..span, 1).0;
        assert_eq!(first, [0]);
    }
    state.spans[span].is_whole = true;
    let (found, asks) = state.first_rows(0, ALL, Way::Up, span..span + 1, usize::MAX);
    assert!(asks.is_empty() && found.len() as u64 == rows);
    (STEPS.get() - before) / rows
}

#[test]
fn a_row_takes_as_many_steps_among_many() {
    let few = steps_of_each(1_000);
    for rows in [10_000, 100_000] {
        let many = steps_of_each(rows);
        assert!(many <= 2 * few, "{many} of {rows} rows, and {few} of 1,000");
    }
}

proptest! {
    /// Compares with a set that is walked: rows of several owners, of which some pages were read,
    /// and rows that the transaction has put or removed.
    #[test]
    fn ranges_are_merged_in_order(
        owners in prop::collection::vec((prop::collection::btree_set(0..60_u64, 0..20), 0..25_usize), 1..4),
        written in prop::collection::vec((0..60_u64, any::<bool>()), 0..20),
        (low, high) in (0..60_u64, 0..60_u64),
        limit in 0..30_usize,
        is_back: bool,
    ) {
        let way = if is_back { Way::Down } else { Way::Up };
        let mut state = state();
        let mut all = BTreeSet::new();
        let bounds = [Bound::Included(ArenaKey::Word(low)), Bound::Excluded(ArenaKey::Word(high))];
        let mut open = Vec::new();
        let mut taken = BTreeSet::new();
        for (owner, (keys, page)) in (0..).zip(&owners) {
            let span = state.add_spans(0, bounds, way, Reach::One(ShardId(owner)), (limit, false)).start;
            let mut keys: Vec<u64> = keys.iter().copied().filter(|key| (low..high).contains(key) && taken.insert(*key)).collect();
            if is_back {
                keys.reverse();
            }
            for key in keys.iter().take(*page) {
                let row = state.row(0, KeyRef::Word(*key), ShardId(owner)).expect("few bytes");
                read(&mut state, span, row);
            }
            state.spans[span].is_whole = *page >= keys.len();
            all.extend(keys.iter().copied());
            if *page < keys.len() {
                open.push(span as u32);
            }
        }
        for (key, is_put) in &written {
            let row = state.row(0, KeyRef::Word(*key), ShardId(0)).expect("few bytes");
            if *is_put {
                put(&mut state, row);
                if (low..high).contains(key) {
                    all.insert(*key);
                }
            } else if state.rows[row as usize].is_known() || state.rows[row as usize].is_written() {
                state.note(row, Op::Remove);
                all.remove(key);
            }
        }
        let mut expected: Vec<u64> = all.into_iter().collect();
        if is_back {
            expected.reverse();
        }
        expected.truncate(limit);
        let spans = 0..state.spans.len();
        let (found, asks) = state.first_rows(0, bounds, way, spans, limit);
        let keys = &state.arena.keys;
        let found: Vec<u64> = found.iter().map(|row| match state.rows[*row as usize].key.in_bytes(keys) {
            KeyRef::Word(key) => key,
            KeyRef::Bytes(_) => unreachable!("all are words"),
        }).collect();
        if asks.is_empty() {
            prop_assert_eq!(found, expected);
        } else {
            // It asks spans that are open, and says nothing that is not so.
            prop_assert!(asks.iter().all(|ask| matches!(ask, Ask::Scan(span) if open.contains(span))));
            prop_assert!(expected.starts_with(&found));
        }
    }
}
