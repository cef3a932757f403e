//! No bytes that a node sends make another one panic, and each value has one encoding.

use drtm_kv::{BucketVersion, Handle, Version};
use drtm_rdma::{
    Incarnation, NodeId,
    rpc::{Decode, Encode, Reader},
};
use proptest::prelude::*;

use super::{Request, decode_as_all};
use crate::{
    Durability,
    cluster::{
        view::View,
        wire::{Wire, parts::Welcome},
    },
    memory::storage::{Absence, KeyRef},
};

/// Decodes bytes as a request, and as its reply. What is decoded of any bytes is encoded in one
/// way, which is read as the same again.
pub(super) fn decodes<R: Request>(bytes: &[u8]) {
    fn body<R: Request>(bytes: &[u8]) -> Option<Vec<u8>> {
        Some(encoded(R::Body::decode(&mut Reader::new(bytes)).ok()?))
    }
    fn reply<R: Request>(bytes: &[u8]) -> Option<Vec<u8>> {
        Some(encoded(R::Reply::decode(&mut Reader::new(bytes)).ok()?))
    }
    for again in [body::<R>, reply::<R>] {
        if let Some(once) = again(bytes) {
            assert_eq!(again(&once).as_ref(), Some(&once));
        }
    }
}

fn encoded(value: impl Encode) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    bytes
}

/// Puts a value.
type Part<'p> = &'p dyn Fn(&mut Vec<u8>);

/// Puts values one behind the other.
fn put(parts: &[Part<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    parts.iter().for_each(|part| part(&mut bytes));
    bytes
}

/// Returns messages of each kind, made of a few words.
fn messages([count, at, version, other]: [u64; 4], value: &[u8]) -> Vec<Vec<u8>> {
    let (at, version) = (Handle::from_word(at), Version::from_word(version));
    let absence = Absence::Bucket(BucketVersion::from_words(count, other));
    let durability = [None, Some(Durability::Async), Some(Durability::Sync)][other as usize % 3];
    let view = View::fixed(&[NodeId(1), NodeId(other as u16 | 2)], 3, 1).expect("a view");
    let welcome = Welcome {
        incarnation: Incarnation(7),
        view,
        region: other as u16,
        line: count,
        durability,
        tables: vec![None, Some(other)],
    };
    let row = |key: KeyRef<'_>| {
        put(&[&|into| key.put(into), &|into| at.put(into), &|into| version.put(into), &|into| value.encode(into)])
    };
    let rows = [row(KeyRef::Word(other)), row(KeyRef::Bytes(value))].concat();
    let changed = |change: u8| {
        put(&[&|into| 3_u16.encode(into), &|into| KeyRef::Bytes(value).put(into), &|into| at.put(into), &|into| {
            (change, value).encode(into)
        }])
    };
    let changes = [changed(0), changed(3)].concat();
    vec![
        encoded(welcome),
        // What was found: a record, nothing, and a locked one.
        put(&[&|into| (count, 0_u8).encode(into), &|into| at.put(into), &|into| version.put(into), &|into| {
            value.encode(into)
        }]),
        put(&[&|into| (count, 1_u8).encode(into), &|into| absence.put(into)]),
        put(&[&|into| (count, 2_u8).encode(into), &|into| at.put(into)]),
        // A page of a range.
        put(&[&|into| (count, true, 1_u32).encode(into), &|into| absence.put(into), &|into| (&rows[..]).encode(into)]),
        // A record that was made.
        put(&[
            &|into| count.encode(into),
            &|into| at.put(into),
            &|into| version.put(into),
            &|into| (true, 1_u32).encode(into),
            &|into| absence.put(into),
            &|into| absence.put(into),
            &|into| Some(absence).put(into),
        ]),
        // What is changed.
        put(&[&|into| (count | 1, other).encode(into), &|into| (&changes[..]).encode(into)]),
        encoded((1_u32, count, 64_u64, 64_u64)),
    ]
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        decode_as_all(&bytes);
    }

    #[test]
    fn no_message_that_was_tampered_with_makes_it_panic(
        words: [u64; 4],
        value in prop::collection::vec(any::<u8>(), 0..20),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end: prop::sample::Index,
    ) {
        for mut bytes in messages(words, &value) {
            decode_as_all(&bytes);
            for (at, byte) in &flips {
                *at.get_mut(&mut bytes) = *byte;
            }
            decode_as_all(&bytes);
            decode_as_all(&bytes[..end.index(bytes.len() + 1)]);
        }
    }
}
