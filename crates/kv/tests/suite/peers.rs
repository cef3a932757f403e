//! What the tests of peers share: a fabric of two nodes, records as a peer reads them, and caches of several sizes.

use std::sync::Arc;

use drtm_htm::NoHtm;
use drtm_kv::{Cache, Location, Store};
use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, Offset, Port, Remote, Verbs};

pub(crate) const PEER: NodeId = NodeId(0);
pub(crate) const OWNER: NodeId = NodeId(1);

/// A fabric of two nodes, of which the second has this store; and its region's beginning.
pub(crate) fn fabric(store: &Store<NoHtm>, config: LocalConfig) -> (LocalFabric<NoHtm>, Remote) {
    let fabric = LocalFabric::new(2, config);
    let region = fabric.register(OWNER, Arc::clone(store.region())).expect("room for a region");
    (fabric, Remote { node: OWNER, region, offset: Offset::new(0) })
}

/// What a peer remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Nothing,
    /// Three sets: entries come and go all the time.
    Little,
    Everything,
}

impl Memory {
    pub(crate) const ALL: [Self; 3] = [Self::Nothing, Self::Little, Self::Everything];

    pub(crate) fn cache<const WORDS: usize>(self) -> Option<Arc<Cache<WORDS>>> {
        let set = 8 * (8 + 7 * WORDS as u64);
        let bytes = match self {
            Self::Nothing => return None,
            Self::Little => 3 * set,
            Self::Everything => 4000 * set,
        };
        Some(Arc::new(Cache::new(bytes).expect("memory")))
    }
}

/// Words of a record's header, as drawn in `docs/layout.md`.
const HEADER: usize = 4;

/// What a location leads to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The key's value, of one moment.
    Value(Vec<u8>),
    /// Another record, or another use of its memory.
    Stale,
}

/// Reads the record at a location, with an inline key and a value of at most 64 bytes, until it is whole or stale.
pub(crate) async fn read<P: Port>(verbs: Verbs<'_, P>, location: Location, key: u64) -> Seen {
    loop {
        let before = header(verbs, location).await;
        let [found, _, version, head] = before;
        // Of another record, if it is stale, and then perhaps of a longer value.
        let length = (head >> 42 & 0xFF).min(64) as usize;
        let body = location.record + 8 * HEADER as u64;
        let mut bytes: Vec<u8> = match length.div_ceil(8) {
            0 => Vec::new(),
            words => {
                let words = verbs.read(body, words).await.expect("in bounds");
                words.iter().flat_map(|word| word.to_le_bytes()).collect()
            }
        };
        let after = header(verbs, location).await;
        if found != key || head >> 50 != u64::from(location.incarnation) {
            return Seen::Stale;
        }
        if before == after && version & 1 == 0 {
            bytes.truncate(length);
            return Seen::Value(bytes);
        }
    }
}

/// A record's header without its state. In one line or two, so fetched word by word.
async fn header<P: Port>(verbs: Verbs<'_, P>, location: Location) -> [u64; HEADER] {
    let mut words = [0; HEADER];
    for word in [0, 2, 3] {
        words[word] = verbs.read_word(location.record + 8 * word as u64).await.expect("in bounds");
    }
    words
}

/// A value that shows whether it is whole, of 16 to 64 bytes: each turn may move it.
pub(crate) fn value(key: u64, turn: u64) -> Vec<u8> {
    let words = [key, turn].into_iter().chain((0..(key ^ turn) % 7).map(|word| key + turn + word));
    words.flat_map(u64::to_le_bytes).collect()
}

/// The turn of a value that must be whole and of this key.
pub(crate) fn turn_of(found: &[u8], key: u64) -> u64 {
    let turn = u64::from_le_bytes(found[8..16].try_into().expect("eight bytes"));
    assert!(found == value(key, turn), "a torn value of key {key}, or another's: {found:?}");
    turn
}
