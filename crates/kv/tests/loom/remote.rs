//! Model checking of one-sided access to records while their owner accesses them: every
//! interleaving, and every value that weak memory lets a load return, of small cases.
//!
//! The peer's own thread executes its verbs word by word, READs and WRITEs in address order or in
//! another.

use std::sync::Arc;

use drtm_htm::NoHtm;
use drtm_kv::{
    HashConfig, HashPeer, HashTable, Holder, Inline, KvTable, Leases, Location, Look, Mutation, RecordPeer, Store,
    mutated,
};
use drtm_rdma::{
    Buffers, Endpoint, Fabric, LocalConfig, LocalFabric, LocalPort, NodeId, Phase, Region, Remote, Tearing, block_on,
};
use loom::thread;

use crate::explore::model;

const OWNER: NodeId = NodeId(1);
const KEY: u64 = 7;

fn value(number: u64) -> Vec<u8> {
    [number.to_le_bytes(), number.to_le_bytes()].concat()
}

/// Returns the number of a value. Asserts that it is not torn.
fn number_of(value: &[u8]) -> u64 {
    let (words, rest) = value.as_chunks::<8>();
    assert!(rest.is_empty() && words.len() == 2 && words[0] == words[1], "a torn value: {value:?}");
    u64::from_le_bytes(words[0])
}

struct World {
    store: Store<NoHtm>,
    table: HashTable<NoHtm>,
    endpoint: Endpoint<LocalPort<NoHtm>>,
    records: RecordPeer<Inline>,
    location: Location,
}

/// The state of an owner's thread.
#[derive(Clone)]
struct Local {
    store: Store<NoHtm>,
    table: HashTable<NoHtm>,
}

impl Local {
    fn update(&self, number: u64) {
        self.table
            .update(&mut self.store.worker().expect("a worker"), KEY, &value(number))
            .expect("room")
            .expect("it is there");
    }

    fn get(&self) -> u64 {
        let mut found = [0; 16];
        self.table.get(KEY, &mut found).expect("sound").expect("it is there");
        number_of(&found)
    }
}

impl World {
    /// Creates a record with the number 1, and a peer that knows its location.
    fn new(scattered: Option<u64>) -> Self {
        let memory = Arc::new(Region::anonymous(NoHtm, 4096).expect("a region"));
        let store = Store::in_region_of(OWNER, 0, Arc::clone(&memory)).expect("a store");
        let table = store.hash_table(HashConfig::default().for_peers()).expect("a table");
        table.insert(&mut store.worker().expect("a worker"), KEY, &value(1)).expect("room").expect("new");
        let config = LocalConfig::perfect().tearing(Tearing::Words).mailbox(1);
        let config = config.buffers(Buffers { small: 8, medium: 1, large: 1 });
        let config = scattered.map_or(config.clone(), |seed| config.seed(seed).scattered(true));
        let fabric = LocalFabric::new(2, config);
        let at =
            Remote { node: OWNER, region: fabric.register(OWNER, memory).expect("room"), offset: table.location() };
        let endpoint = fabric.endpoint(NodeId(0)).expect("an endpoint");
        let (records, location) = block_on(&endpoint, async {
            let verbs = endpoint.during(Phase::Lookup);
            let lookup = HashPeer::<Inline>::open(verbs, at).await.expect("the table");
            let location = lookup.find(verbs, KEY).await.expect("sound").expect("inserted above");
            (RecordPeer::open(verbs, at).await.expect("a table for peers"), location)
        });
        Self { store, table, endpoint, records, location }
    }

    fn local(&self) -> Local {
        Local { store: self.store.clone(), table: self.table.clone() }
    }

    /// Returns the number and the version; `None` if the record could not be read.
    fn read(&self) -> Option<(u64, u64)> {
        let (verbs, mut found) = (self.endpoint.during(Phase::Execute), Vec::new());
        match block_on(&self.endpoint, self.records.read(verbs, self.location, KEY, &mut found)).expect("sound") {
            Look::Found(read) => Some((number_of(&found), read.version.number())),
            Look::Busy => None,
            other => panic!("{other:?}: it never moves"),
        }
    }

    /// Adds ten if it gets the lock. Returns whether it did.
    fn add_ten(&self) -> bool {
        let (verbs, mut found) = (self.endpoint.during(Phase::Commit), Vec::new());
        let me = Holder::new(0, 0, 1, 0);
        block_on(&self.endpoint, async {
            let name = (me, Leases::None);
            let locked = self.records.lock(verbs, self.location, KEY, name, &mut found, (None, None)).await;
            let Look::Found(lock) = locked.expect("sound") else { return false };
            let added = value(number_of(&found) + 10);
            let written =
                lock.post_write::<Inline, _>(verbs, KEY, (lock.version().next(), &added)).expect("of the same length");
            written.await.expect("the owner is there");
            true
        })
    }
}

/// Explores all interleavings of the peer and a thread of the owner, with either thread first.
fn explore<P: 'static, L: 'static>(
    peer: impl Fn(&World) -> P + Copy + Send + Sync + 'static,
    local: impl Fn(&Local) -> L + Copy + Send + Sync + 'static,
    check: impl Fn(&World, P, L) + Copy + Send + Sync + 'static,
) {
    for scattered in [None, Some(1)] {
        for peer_leads in [false, true] {
            model(2).check(move || {
                let world = World::new(scattered);
                let owner = world.local();
                if peer_leads {
                    let thread = thread::spawn(move || local(&owner));
                    let done = peer(&world);
                    check(&world, done, thread.join().expect("no panic"));
                } else {
                    let thread = thread::spawn(move || {
                        let done = peer(&world);
                        (world, done)
                    });
                    let by_owner = local(&owner);
                    let (world, done) = thread.join().expect("no panic");
                    check(&world, done, by_owner);
                }
            });
        }
    }
}

#[test]
fn a_peer_reads_what_the_owner_has_written_or_says_that_it_cannot() {
    explore(
        World::read,
        |owner| owner.update(2),
        |world, read, ()| {
            // The first version is 1, and each has its number as its value.
            assert!(read.is_none_or(|(number, version)| number == version), "{read:?}");
            assert_eq!(world.read(), Some((2, 2)));
        },
    );
}

#[test]
fn the_owner_reads_what_a_peer_has_written() {
    explore(World::add_ten, Local::get, |world, added, read| {
        assert!(added, "no other locks");
        assert!([1, 11].contains(&read), "{read}");
        assert_eq!(world.read(), Some((11, 2)));
        assert_eq!(world.local().get(), 11);
    });
}

#[test]
#[should_panic(expected = "a torn value")]
fn mutation_without_looking_at_the_lock_before_a_torn_value_is_found() {
    mutated(Mutation::CopyWithoutLockBefore, the_owner_reads_what_a_peer_has_written);
}

#[test]
#[should_panic(expected = "a torn value")]
fn mutation_without_looking_at_the_lock_after_a_torn_value_is_found() {
    mutated(Mutation::CopyWithoutLockAfter, the_owner_reads_what_a_peer_has_written);
}

#[test]
fn of_two_writers_each_has_the_lock_for_itself() {
    explore(
        World::add_ten,
        |owner| owner.update(2),
        |world, added, ()| {
            let left = world.read().expect("no thread writes any more");
            // Added before the update, which overwrites it; or after; or not at all.
            let possible = if added { [(2, 3), (12, 3)] } else { [(2, 2); 2] };
            assert!(possible.contains(&left), "{left:?}");
        },
    );
}
