//! Tables of another node by messages: compared with a model for any request in any mood of the
//! fabric, and robust against arbitrary bytes.

use std::{
    collections::BTreeMap,
    ops::Bound::{self, Excluded, Included, Unbounded},
};

use drtm_htm::NoHtm;
use drtm_kv::{
    Bytes, HashConfig, HashTable, Inline, Keys, KvError, KvTable, Leases, Look, MAX_KEY, MAX_VALUE, Refusal,
    RemoteError, Service, Store, TableId, TablePeer, Tree, Version,
};
use drtm_rdma::{LocalConfig, NodeId, Phase, Verbs};
use proptest::prelude::*;

use crate::{
    cluster::{Cluster, PortOf, moods},
    peers::{OWNER, PEERS, Peer, alone, holder},
    support::{MIB, store},
};

const HASH: TableId = TableId(1);
const NAMED: TableId = TableId(2);
const TREE: TableId = TableId(3);
const ORDERED_NAMES: TableId = TableId(4);

struct Tables {
    hash: HashTable<NoHtm>,
    named: HashTable<NoHtm, Bytes>,
    tree: Tree<NoHtm>,
    ordered_names: Tree<NoHtm, Bytes>,
}

impl Tables {
    fn new(store: &Store<NoHtm>) -> Self {
        Self {
            hash: store.hash_table(HashConfig::default().for_peers()).expect("a table"),
            named: store.hash_table_of(HashConfig::default()).expect("a table"),
            tree: store.tree_for_peers().expect("a tree"),
            ordered_names: store.tree_of().expect("a tree"),
        }
    }

    fn service(&self, store: &Store<NoHtm>) -> Service<NoHtm> {
        let service = Service::new(store).expect("a worker").with(HASH, &self.hash).expect("free");
        let service = service.with(NAMED, &self.named).expect("free").with(TREE, &self.tree).expect("free");
        service.with(ORDERED_NAMES, &self.ordered_names).expect("free")
    }
}

#[derive(Clone, Debug)]
enum Op {
    Get(u64),
    Insert(u64, usize),
    Put(u64, usize),
    Update(u64, usize),
    Remove(u64),
    Range(Bound<u64>, Bound<u64>, u64),
}

fn any_op() -> impl Strategy<Value = Op> {
    let key = 0..30_u64;
    let length = prop_oneof![0..20_usize, 240..270_usize, 1_000..9_000_usize];
    let bound = prop_oneof![key.clone().prop_map(Included), key.clone().prop_map(Excluded), Just(Unbounded)];
    prop_oneof![
        key.clone().prop_map(Op::Get),
        (key.clone(), length.clone()).prop_map(|(key, length)| Op::Insert(key, length)),
        (key.clone(), length.clone()).prop_map(|(key, length)| Op::Put(key, length)),
        (key.clone(), length).prop_map(|(key, length)| Op::Update(key, length)),
        key.prop_map(Op::Remove),
        (bound.clone(), bound, 1..8_u64).prop_map(|(low, high, rows)| Op::Range(low, high, rows)),
    ]
}

/// The expected contents of a table.
#[derive(Default)]
struct Model {
    values: BTreeMap<u64, (Version, Vec<u8>)>,
    highest: BTreeMap<u64, Version>,
}

impl Model {
    fn write(&mut self, key: u64, version: Version, value: Vec<u8>) {
        let before = self.highest.insert(key, version);
        assert!(before.is_none_or(|before| before < version), "key {key}: {version:?} after {before:?}");
        self.values.insert(key, (version, value));
    }
}

fn value(key: u64, length: usize, turn: usize) -> Vec<u8> {
    (0..length).map(|at| (key as usize + turn + at) as u8).collect()
}

/// Applies requests to one table and its model. `name` maps a number to a key of the table.
async fn agrees<K: Keys>(
    verbs: Verbs<'_, PortOf>,
    table: TablePeer<K>,
    name: impl for<'n> Fn(&'n [u8; 8]) -> K::Key<'n>,
    model: &mut Model,
    op: &Op,
    turn: usize,
) {
    match *op {
        Op::Get(key) => {
            let mut found = Vec::new();
            let version = table.get(verbs, name(&key.to_le_bytes()), &mut found).await.expect("sound");
            assert_eq!(version.map(|version| (version, found)).as_ref(), model.values.get(&key));
        }
        Op::Insert(key, length) => {
            let value = value(key, length, turn);
            let version = table.insert(verbs, name(&key.to_le_bytes()), &value).await.expect("room");
            assert_eq!(version.is_none(), model.values.contains_key(&key));
            if let Some(version) = version {
                model.write(key, version, value);
            }
        }
        Op::Put(key, length) => {
            let value = value(key, length, turn);
            let version = table.put(verbs, name(&key.to_le_bytes()), &value).await.expect("room");
            model.write(key, version, value);
        }
        Op::Update(key, length) => {
            let value = value(key, length, turn);
            let version = table.update(verbs, name(&key.to_le_bytes()), &value).await.expect("room");
            assert_eq!(version.is_some(), model.values.contains_key(&key));
            if let Some(version) = version {
                model.write(key, version, value);
            }
        }
        Op::Remove(key) => {
            let version = table.remove(verbs, name(&key.to_le_bytes())).await.expect("sound");
            assert_eq!(version, model.values.remove(&key).map(|(version, _)| version));
        }
        Op::Range(..) => {}
    }
}

fn expected(model: &Model, range: (Bound<u64>, Bound<u64>)) -> Vec<(u64, Version, Vec<u8>)> {
    let rows = model.values.iter().filter(|(key, _)| std::ops::RangeBounds::contains(&range, *key));
    rows.map(|(key, (version, value))| (*key, *version, value.clone())).collect()
}

/// Returns all rows of a range, page by page.
async fn all_rows(
    verbs: Verbs<'_, PortOf>,
    tree: TablePeer<Inline>,
    (mut low, high): (Bound<u64>, Bound<u64>),
    rows: u64,
) -> Vec<(u64, Version, Vec<u8>)> {
    let mut all = Vec::new();
    loop {
        let page = tree.range(verbs, (low, high), rows).await.expect("sound");
        assert!(page.rows().count() as u64 <= rows);
        all.extend(page.rows().map(|row| (row.key, row.version, row.value.to_vec())));
        match page.rest() {
            Some(rest) => low = rest,
            None => return all,
        }
    }
}

fn does_what_a_model_does(config: LocalConfig, ops: &[Op]) {
    let cluster = Cluster::with_capacity(config, 64 * MIB);
    let tables = Tables::new(&cluster.store);
    cluster.serving(tables.service(&cluster.store), || {
        let endpoint = cluster.endpoint(PEERS[0]);
        let verbs = endpoint.during(Phase::Execute);
        alone(&endpoint, async {
            let mut models: [Model; 4] = Default::default();
            let (hash, named) = (TablePeer::<Inline>::new(OWNER, HASH), TablePeer::<Bytes>::new(OWNER, NAMED));
            let tree = TablePeer::<Inline>::new(OWNER, TREE);
            let names = TablePeer::<Bytes>::new(OWNER, ORDERED_NAMES);
            for (turn, op) in ops.iter().enumerate() {
                let [of_hash, of_named, of_tree, of_names] = &mut models;
                agrees(verbs, hash, |key| u64::from_le_bytes(*key), of_hash, op, turn).await;
                agrees(verbs, named, |key| &key[..], of_named, op, turn).await;
                agrees(verbs, tree, |key| u64::from_le_bytes(*key), of_tree, op, turn).await;
                agrees(verbs, names, |key| &key[..], of_names, op, turn).await;
                if let Op::Range(low, high, rows) = *op {
                    assert_eq!(all_rows(verbs, tree, (low, high), rows).await, expected(of_tree, (low, high)));
                }
            }
            let all = all_rows(verbs, tree, (Unbounded, Unbounded), 1_000).await;
            assert_eq!(all, expected(&models[2], (Unbounded, Unbounded)));
            // Numbers below 256 have the order of their bytes in either byte order.
            let page = names.range(verbs, (Unbounded, Unbounded), 5).await.expect("sound");
            let first: Vec<_> = page.rows().map(|row| (row.key.to_vec(), row.version, row.value.to_vec())).collect();
            let as_expected = expected(&models[3], (Unbounded, Unbounded)).into_iter().take(first.len());
            assert!(first.into_iter().eq(as_expected.map(|(key, version, value)| (
                key.to_le_bytes().to_vec(),
                version,
                value
            ))));
            assert_eq!(page.rest().is_none(), page.rows().count() == models[3].values.len());
        });
        for (table, count) in [(&tables.hash, tables.hash.count()), (&tables.hash, tables.tree.count())] {
            assert_eq!(table.count().expect("sound"), count.expect("sound"));
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn tables_do_what_a_model_does(seed in 0..3_u64, ops in prop::collection::vec(any_op(), 1..60)) {
        does_what_a_model_does(LocalConfig::harsh(seed), &ops);
        does_what_a_model_does(LocalConfig::perfect(), &ops);
    }
}

/// Creates a service with a row in each table, and the means to check it.
fn on_its_own() -> (Store<NoHtm>, Tables, Service<NoHtm>) {
    let store = store(NoHtm, 16 * MIB);
    let tables = Tables::new(&store);
    let mut worker = store.worker().expect("a worker");
    tables.hash.insert(&mut worker, 7, b"seven").expect("room").expect("new");
    tables.named.insert(&mut worker, b"seven", b"7").expect("room").expect("new");
    tables.tree.insert(&mut worker, 7, b"seven").expect("room").expect("new");
    let service = tables.service(&store);
    (store, tables, service)
}

/// Encodes a request by hand.
fn request(operation: u8, table: TableId, key: &[u8], a: u64, b: u64, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![operation, 0];
    bytes.extend(table.0.to_le_bytes());
    bytes.extend((key.len() as u32).to_le_bytes());
    bytes.extend(a.to_le_bytes());
    bytes.extend(b.to_le_bytes());
    bytes.extend(key);
    bytes.extend(rest);
    bytes
}

const REFUSED: u8 = 8;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Any bytes get a reply of bounded length, and the service continues.
    #[test]
    fn no_bytes_break_a_service(
        requests in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..100),
                // More similar to requests, so that more of them pass the first checks.
                (
                    0..10_u8,
                    0..5_u16,
                    prop::collection::vec(any::<u8>(), 0..12),
                    prop_oneof![any::<u64>(), 0..20_u64],
                    prop_oneof![any::<u64>(), 0..20_u64],
                    prop::collection::vec(any::<u8>(), 0..40),
                    (any::<prop::sample::Index>(), any::<u8>(), any::<bool>()),
                )
                    .prop_map(|(operation, table, key, a, b, rest, (at, byte, damaged))| {
                        let mut bytes = request(operation, TableId(table), &key, a, b, &rest);
                        if damaged {
                            let at = at.index(bytes.len());
                            bytes[at] = byte;
                        }
                        bytes
                    }),
            ],
            1..20,
        ),
        most in prop_oneof![Just(0_usize), 24..200_usize, Just(64 << 10)],
    ) {
        let (store, tables, mut service) = on_its_own();
        let mut reply = Vec::new();
        for bytes in &requests {
            service.answer(NodeId(3), bytes, most, &mut reply);
            prop_assert!((24..=most.max(24)).contains(&reply.len()));
        }
        // Everything is still usable.
        let mut worker = store.worker().expect("a worker");
        tables.hash.impatient().put(&mut worker, 8, b"eight").expect("a table that works");
        tables.named.impatient().put(&mut worker, b"eight", b"8").expect("a table that works");
        tables.tree.impatient().put(&mut worker, 8, b"eight").expect("a table that works");
        service.answer(NodeId(3), &request(1, HASH, &8_u64.to_le_bytes(), 0, 0, b""), 1_000, &mut reply);
        prop_assert_eq!(&reply[24..], b"eight");
    }
}

#[test]
fn requests_that_are_none_are_refused() {
    let (_store, _tables, mut service) = on_its_own();
    let mut reply = Vec::new();
    let key = 7_u64.to_le_bytes();
    let place_in_words = 1 << 30;
    let mut flagged = request(1, HASH, &key, 0, 0, b"");
    flagged[1] = 1;
    for (bytes, code) in [
        (vec![], 1),
        (vec![0; 23], 1),
        (request(0, HASH, &key, 0, 0, b""), 1),
        (request(9, HASH, &key, 0, 0, b""), 1),
        (request(1, HASH, &key, 0, 0, b"more"), 1),
        (request(1, HASH, &key, 1, 0, b""), 1),
        (flagged, 1),
        (request(6, TREE, &key, 5, 9, &key), 1),
        (request(1, TableId(9), &key, 0, 0, b""), 2),
        (request(1, HASH, &key[..7], 0, 0, b""), 3),
        (request(1, NAMED, &[0; MAX_KEY + 1], 0, 0, b""), 3),
        (request(6, HASH, &key, 8, 9, &key), 4),
        (request(3, HASH, &key, 0, 0, &[0; MAX_VALUE + 1]), 5),
        // Locks: without a holder, with half a time, in another node's name, and of something that
        // is no record.
        (request(7, HASH, &key, 0, 1 | 3 << 1, b"half"), 1),
        (request(7, HASH, &key, 0, 0, b""), 1),
        (request(7, HASH, &key, 0, 1 | 5 << 1, b""), 9),
        (request(8, HASH, b"", 0, 1 | 5 << 1, b""), 9),
        (request(8, HASH, b"", place_in_words, 1 | 3 << 1, b""), 10),
    ] {
        service.answer(NodeId(3), &bytes, 1_000, &mut reply);
        assert_eq!((reply[0], reply[1]), (REFUSED, code), "{bytes:?}: {:?}", reply);
    }
}

#[test]
fn owners_errors_reach_the_peer_as_what_they_are() {
    for config in moods() {
        let cluster = Cluster::with_capacity(config, 2 * MIB);
        let tables = Tables::new(&cluster.store);
        cluster.serving(tables.service(&cluster.store), || {
            let endpoint = cluster.endpoint(PEERS[0]);
            let verbs = endpoint.during(Phase::Execute);
            alone(&endpoint, async {
                let hash = TablePeer::<Inline>::new(OWNER, HASH);
                let named = TablePeer::<Bytes>::new(OWNER, NAMED);
                let tree = TablePeer::<Inline>::new(OWNER, TREE);
                let most = endpoint.capabilities().max_message_bytes;

                let bytes = most + 1;
                let too_long = hash.put(verbs, 1, &vec![0; most - 31]).await.unwrap_err();
                assert_eq!(too_long, RemoteError::RequestTooLong { bytes, most });
                let no_key = named.remove(verbs, &[0; MAX_KEY + 1]).await.unwrap_err();
                assert_eq!(no_key, RemoteError::Refused(Refusal::NotItsKey { length: MAX_KEY + 1 }));
                let other_keys = TablePeer::<Bytes>::new(OWNER, HASH).remove(verbs, b"seven").await.unwrap_err();
                assert_eq!(other_keys, RemoteError::Refused(Refusal::NotItsKey { length: 5 }));
                let no_order = hash.range(verbs, (Unbounded, Unbounded), 5).await.unwrap_err();
                assert_eq!(no_order, RemoteError::Refused(Refusal::NotOrdered));

                // Inserted by the owner: longer than any reply.
                let mut worker = cluster.store.worker().expect("a worker");
                tables.hash.insert(&mut worker, 5, &[5; MAX_VALUE]).expect("room").expect("new");
                tables.tree.insert(&mut worker, 5, &[5; MAX_VALUE]).expect("room").expect("new");
                let mut value = Vec::new();
                let unread = hash.get(verbs, 5, &mut value).await.unwrap_err();
                let refusal = Refusal::ReplyTooLong { length: MAX_VALUE, most: most - 24 };
                assert_eq!(unread, RemoteError::Refused(refusal));
                tree.insert(verbs, 4, b"four").await.expect("room").expect("new");
                let page = tree.range(verbs, (Unbounded, Unbounded), 5).await.expect("the first row fits");
                assert_eq!(page.rows().map(|row| row.key).collect::<Vec<_>>(), [4]);
                let stuck = tree.range(verbs, (page.rest().expect("one more"), Unbounded), 5).await.unwrap_err();
                assert!(matches!(stuck, RemoteError::Refused(Refusal::ReplyTooLong { .. })));
                drop(page);
                // It can be read one-sidedly, as the error says.
                let peer = Peer::<Inline>::open(&cluster, verbs, &tables.hash).await;
                let location = peer.find(verbs, 5).await;
                let read = peer.records.read(verbs, location, 5, &mut value).await.expect("sound");
                assert!(matches!(read, Look::Found(_)) && value == [5; MAX_VALUE]);

                let full = loop {
                    let key = value.len() as u64;
                    value.push(0);
                    if let Err(error) = hash.insert(verbs, key, &[1; 9_000]).await {
                        break error;
                    }
                };
                assert!(matches!(full, RemoteError::Refused(Refusal::RegionFull { .. })), "{full}");
                assert!(
                    hash.get(verbs, MAX_VALUE as u64, &mut value).await.expect("sound").is_some(),
                    "the rest is there"
                );
            });
        });
    }
}

#[test]
fn a_service_waits_for_nobody() {
    for config in moods() {
        let cluster = Cluster::new(config);
        let tables = Tables::new(&cluster.store);
        let mut worker = cluster.store.worker().expect("a worker");
        tables.hash.insert(&mut worker, 7, b"seven").expect("room").expect("new");
        cluster.serving(tables.service(&cluster.store), || {
            let endpoint = cluster.endpoint(PEERS[0]);
            let verbs = endpoint.during(Phase::Execute);
            alone(&endpoint, async {
                let at = cluster.at(tables.hash.location());
                let records = drtm_kv::RecordPeer::<Inline>::open(verbs, at, HASH).await.expect("a table for peers");
                let location = Peer::<Inline>::open(&cluster, verbs, &tables.hash).await.find(verbs, 7).await;
                let hash = TablePeer::<Inline>::new(OWNER, HASH);
                let mut value = Vec::new();
                let locked = records
                    .lock(verbs, location, 7, (holder(PEERS[0], 0), Leases::None), &mut value)
                    .await
                    .expect("sound");
                let Look::Found(lock) = locked else { panic!("{locked:?}") };
                // If the owner waited for the lock here, it could not receive the message that
                // releases it.
                for length in [5, 500] {
                    assert_eq!(hash.update(verbs, 7, &vec![1; length]).await, Err(RemoteError::Busy));
                }
                assert_eq!(hash.remove(verbs, 7).await, Err(RemoteError::Busy));
                assert_eq!(hash.put(verbs, 7, b"never").await, Err(RemoteError::Busy));
                assert_eq!(hash.insert(verbs, 7, b"never").await, Ok(None), "it is there, locked or not");
                assert!(hash.insert(verbs, 8, b"eight").await.expect("room").is_some(), "others are served");
                assert!(hash.get(verbs, 7, &mut value).await.expect("sound").is_some() && value == b"seven");
                records.unlock(verbs, lock).await.expect("it is ours");
                assert!(hash.update(verbs, 7, &[2; 500]).await.expect("room").is_some());
            });
        });
    }
}

#[test]
fn tables_are_served_under_numbers_of_their_own() {
    let (store, tables, service) = on_its_own();
    assert!(matches!(service.with(HASH, &tables.tree), Err(KvError::Config { .. })));
    let (_other, tables_of_another, _) = on_its_own();
    assert!(matches!(
        Service::new(&store).expect("a worker").with(HASH, &tables_of_another.hash),
        Err(KvError::Config { .. })
    ));
}
