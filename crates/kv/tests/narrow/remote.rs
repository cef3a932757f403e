//! Locations of another node's records, which peers keep without limit.

use std::sync::Arc;

use drtm_htm::NoHtm;
use drtm_kv::{
    BucketCache, HashConfig, HashPeer, HashTable, Holder, Inline, KvTable, Leases, Location, Look, RecordPeer, Store,
    Turn, Worker,
};
use drtm_rdma::{
    Endpoint, Fabric, LocalConfig, LocalFabric, LocalPort, NodeId, Offset, Phase, Region, RegionId, Remote, TURNS_AT,
    Verbs, block_on,
};

use crate::{ROUND, case};

const OWNER: NodeId = NodeId(1);

/// A node with two tables, and another node that accesses them.
struct Nodes {
    store: Store<NoHtm>,
    tables: [HashTable<NoHtm>; 2],
    fabric: LocalFabric<NoHtm>,
    region: RegionId,
}

impl Nodes {
    fn new() -> Self {
        let memory = Arc::new(Region::anonymous(NoHtm, 16 << 20).expect("memory"));
        let store = Store::in_region_of(OWNER, 0, Arc::clone(&memory)).expect("a store");
        let tables = [(); 2].map(|()| store.hash_table(HashConfig::default().for_peers()).expect("memory"));
        let fabric = LocalFabric::new(2, LocalConfig::perfect());
        let region = fabric.register(OWNER, memory).expect("room");
        Self { store, tables, fabric, region }
    }

    fn at(&self, offset: Offset) -> Remote {
        Remote { node: OWNER, region: self.region, offset }
    }

    fn endpoint(&self) -> Endpoint<LocalPort<NoHtm>> {
        self.fabric.endpoint(NodeId(0)).expect("room")
    }

    /// Moves the memory of the first table's key to the second one's record of the same key, after
    /// a wraparound.
    fn turn_round(&self, worker: &mut Worker<NoHtm>) {
        let [first, second] = &self.tables;
        first.remove(worker, 7).expect("sound").expect("it is there");
        for _ in 0..ROUND - 1 {
            second.insert(worker, 9, &[9; 8]).expect("room").expect("it is new");
            second.remove(worker, 9).expect("sound").expect("it is there");
        }
        second.insert(worker, 7, &[2; 8]).expect("room").expect("it is new");
    }
}

/// Asserts that a peer that finds another table's record at a stale location is told so by the turn
/// that it reads afterwards.
async fn is_told(verbs: Verbs<'_, LocalPort<NoHtm>>, records: &RecordPeer<Inline>, location: Location, at: Remote) {
    let turn = async || Turn::from_word(verbs.read_word(at).await.expect("in bounds"));
    let mut value = Vec::new();
    let read = records.read(verbs, location, 7, &mut value).await.expect("sound");
    assert!(matches!(read, Look::Found(_)) && value == [2; 8], "this tests nothing: {read:?}");
    let checked = records.check(verbs, location).await.expect("sound");
    assert!(matches!(checked, Look::Found(_)), "this tests nothing: {checked:?}");
    assert!(!location.is_within(turn().await), "wrong: another table's record is taken for it");
    let me = Holder::new(0, 0, 1, 0);
    let locked = records.lock(verbs, location, 7, (me, Leases::None), &mut value, (None, None)).await.expect("sound");
    assert!(matches!(locked, Look::Found(_)), "this tests nothing: {locked:?}");
    assert!(!location.is_within(turn().await), "wrong: another table's record is taken for it");
    location.unlock(verbs, me).await.expect("in bounds");
}

case! {
    a_kept_location_of_a_hash_table_is_stale {
        let nodes = Nodes::new();
        let mut worker = nodes.store.worker().expect("a worker");
        nodes.tables[0].insert(&mut worker, 7, &[1; 8]).expect("room");
        let endpoint = nodes.endpoint();
        let verbs = endpoint.during(Phase::Execute);
        let at = nodes.at(nodes.tables[0].location());
        block_on(&endpoint, async {
            let cache = Arc::new(BucketCache::new(1 << 20).expect("memory"));
            let lookup = HashPeer::<Inline>::open(verbs, at).await.expect("the table").with_cache(cache);
            let records = RecordPeer::<Inline>::open(verbs, at).await.expect("the table");
            let location = lookup.find(verbs, 7).await.expect("sound").expect("it is there");
            nodes.turn_round(&mut worker);
            let turns = nodes.at(TURNS_AT);
            is_told(verbs, &records, location, turns).await;
            // The cached bucket is as old. Once the turn is known, it is not used.
            let remembered = lookup.find(verbs, 7).await.expect("sound").expect("it is remembered");
            is_told(verbs, &records, remembered, turns).await;
            lookup.note_turns(nodes.store.turn());
            assert_eq!(lookup.find(verbs, 7).await.expect("sound"), None, "wrong: it was found in the cache");
            assert_eq!(lookup.find_again(verbs, 7).await.expect("sound"), None);
            // Nothing is left locked, and the present record is found.
            nodes.tables[1].impatient().update(&mut worker, 7, &[3; 8]).expect("free").expect("it is there");
            nodes.tables[0].insert(&mut worker, 7, &[4; 8]).expect("room");
            let location = lookup.find_again(verbs, 7).await.expect("sound").expect("it is there");
            let mut value = Vec::new();
            let read = records.read(verbs, location, 7, &mut value).await.expect("sound");
            assert!(matches!(read, Look::Found(_)) && value == [4; 8], "{read:?}");
        });
    }
}
