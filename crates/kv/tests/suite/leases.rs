//! DrTM's Table IV: how a local access and one of another node affect each other, in the three
//! interleavings of Fig. 8, with real records, locks and leases.
//!
//! Local accesses are those of a commit: reads are validated, and writes are locked. With
//! transactional memory both are within one htm transaction; without it each is separate. The other
//! node accesses records by verbs. "Share" is a local access that commits, "conflict" one that does
//! not.
//!
//! - *after*, Fig. 8(b): the remote access begins between the local one and its commit;
//! - *within*, Fig. 8(c): it holds its lock or lease throughout;
//! - *across*, Fig. 8(d): it is in progress at the local access, and over before the commit.

use std::{
    sync::{Arc, Mutex},
    thread,
};

use drtm_htm::{Emulated, Engine, NoHtm, Outcome, Policy};
use drtm_kv::{
    ForHolder, HashConfig, HashPeer, HashTable, Holder, Inline, KvError, KvTable, Leases, Locking, Look, NoValue,
    ReadEntry, RecordLock, RecordPeer, RemoteError, Store,
};
use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, Phase, Region, RegionId, Remote, block_on};

use crate::peers::{unlock_record, write_record};

/// The local transaction runs once.
const ONCE: Policy = Policy::DBX.divided_by(u32::MAX);

const NOW: u64 = 1_000;
const LEASE_END: u64 = NOW + 50;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Read,
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Meeting {
    After,
    Within,
    Across,
}

/// A record of node 1, and node 0's access to it.
struct World<E: Engine> {
    store: Store<E>,
    table: HashTable<E>,
    fabric: LocalFabric<E>,
    region: RegionId,
    me: Holder,
    seen: ReadEntry,
    /// The lock that node 0 holds.
    lock: Mutex<Option<RecordLock>>,
}

impl<E: Engine> World<E> {
    fn new(engine: E) -> Self {
        let memory = Arc::new(Region::anonymous(engine, 16 << 20).expect("memory"));
        let store = Store::in_region_of(NodeId(1), 0, memory).expect("a store");
        let table = store.hash_table(HashConfig::default().for_peers()).expect("a table");
        let mut worker = store.worker().expect("a worker");
        table.insert(&mut worker, 7, b"old").expect("room").expect("new");
        let fabric = LocalFabric::new(2, LocalConfig::perfect());
        let region = fabric.register(NodeId(1), Arc::clone(store.region())).expect("the node is here");
        store.region().engine().store(store.region().time(), NOW);
        let me = Holder::new(1, 0, 9, 0);
        let seen = table.read(7, ForHolder(me), &mut NoValue).expect("sound").expect("it is there");
        Self { store, table, fabric, region, me, seen, lock: Mutex::default() }
    }

    /// Runs a closure on node 0, on a thread of its own: verbs are no part of an htm transaction.
    fn elsewhere(
        &self,
        act: impl AsyncFnOnce(drtm_rdma::Verbs<'_, drtm_rdma::LocalPort<E>>, RecordPeer<Inline>) + Send,
    ) {
        thread::scope(|scope| {
            let thread = scope.spawn(move || {
                let endpoint = self.fabric.endpoint(NodeId(0)).expect("room for an endpoint");
                let verbs = endpoint.during(Phase::Execute);
                let at = Remote { node: NodeId(1), region: self.region, offset: self.table.location() };
                block_on(&endpoint, async {
                    let records = RecordPeer::<Inline>::open(verbs, at).await.expect("for peers");
                    act(verbs, records).await;
                });
            });
            thread.join().expect("no panic");
        });
    }

    /// The first half of REMOTE_READ or REMOTE_WRITE.
    fn begin(&self, kind: Kind) {
        let at = Remote { node: NodeId(1), region: self.region, offset: self.table.location() };
        self.elsewhere(async |verbs, records| {
            let lookup = HashPeer::<Inline>::open(verbs, at).await.expect("the table");
            let location = lookup.find(verbs, 7).await.expect("sound").expect("it is there");
            let mut value = Vec::new();
            match kind {
                Kind::Read => {
                    let until = (LEASE_END, Leases::At(NOW));
                    let leased =
                        records.lease_and_read(verbs, location, 7, until, None, &mut value).await.expect("sound");
                    let Look::Found(leased) = leased else { panic!("it is free: {leased:?}") };
                    assert_eq!(leased.end, LEASE_END);
                }
                Kind::Write => {
                    let name = (Holder::new(0, 0, 3, 0), Leases::At(NOW));
                    let locked = records.lock(verbs, location, 7, name, &mut value, (None, None)).await;
                    let Ok(Look::Found(lock)) = locked else { panic!("it is free: {locked:?}") };
                    *self.lock.lock().expect("no panic") = Some(lock);
                }
            }
            assert_eq!(value, b"old");
        });
    }

    /// The second half: REMOTE_WRITE_BACK. A lease is not released.
    fn finish(&self) {
        let Some(lock) = self.lock.lock().expect("no panic").take() else { return };
        self.elsewhere(async |verbs, records| {
            write_record(&records, verbs, &lock, 7, b"new").await.expect("it is locked");
        });
    }

    /// Without htm transactions: reads the row, and then commits. Returns whether that succeeds.
    fn meet_by_locks(&self, local: Kind, remote: Kind, meeting: Meeting) -> bool {
        if meeting != Meeting::After {
            self.begin(remote);
        }
        let table = self.table.impatient();
        let seen = match table.read(7, ForHolder(self.me), &mut NoValue) {
            Ok(seen) => seen.expect("it is there"),
            Err(KvError::Busy) => return false,
            Err(error) => panic!("{error}"),
        };
        match meeting {
            Meeting::After => self.begin(remote),
            Meeting::Within => {}
            Meeting::Across => self.finish(),
        }
        let records = self.store.records();
        match local {
            Kind::Read => records.is_still(seen, self.me),
            Kind::Write => match records.lock(seen.at, self.me).expect("sound") {
                Locking::Taken { version, .. } => version == seen.version,
                _ => false,
            },
        }
    }
}

impl World<Emulated> {
    /// In an htm transaction: validates or locks the row within it. Returns whether it commits.
    fn meet_in_a_region(&self, local: Kind, remote: Kind, meeting: Meeting) -> bool {
        let records = self.store.records();
        let mut worker = self.store.worker().expect("a worker");
        let outcome = worker.htm().attempt(ONCE, |tx| {
            // The htm transaction begins before either access.
            drtm_htm::Access::spin(tx, 1)?;
            if meeting != Meeting::After {
                self.begin(remote);
            }
            let is_had = match local {
                Kind::Read => records.is_still_in(tx, self.seen, self.me)?,
                Kind::Write => matches!(records.lock_in(tx, self.seen.at, self.me)?, Locking::Taken { .. }),
            };
            match meeting {
                Meeting::After => self.begin(remote),
                Meeting::Within => {}
                Meeting::Across => self.finish(),
            }
            Ok(is_had)
        });
        outcome == Outcome::Committed(true)
    }
}

macro_rules! cells {
    ($($name:ident: $local:ident, $remote:ident, $meeting:ident, $in_a_region:expr, $by_locks:expr;)+) => {$(
        #[test]
        fn $name() {
            let (local, remote, meeting) = (Kind::$local, Kind::$remote, Meeting::$meeting);
            let shares = World::new(Emulated::default()).meet_in_a_region(local, remote, meeting);
            assert_eq!(shares, $in_a_region, "in an htm transaction");
            assert_eq!(World::new(NoHtm).meet_by_locks(local, remote, meeting), $by_locks, "by locks");
        }
    )+};
}

const S: bool = true;
const C: bool = false;

cells! {
    // The one false conflict: the lease is written to the state, which the htm transaction has
    // read. With locks there is none.
    local_read_then_remote_read: Read, Read, After, C, S;
    local_write_then_remote_read: Write, Read, After, C, C;
    local_read_then_remote_write: Read, Write, After, C, C;
    local_write_then_remote_write: Write, Write, After, C, C;

    local_read_within_remote_read: Read, Read, Within, S, S;
    local_write_within_remote_read: Write, Read, Within, C, C;
    local_read_within_remote_write: Read, Write, Within, C, C;
    local_write_within_remote_write: Write, Write, Within, C, C;

    local_read_across_remote_read: Read, Read, Across, S, S;
    local_write_across_remote_read: Write, Read, Across, C, C;
    local_read_across_remote_write: Read, Write, Across, C, C;
    local_write_across_remote_write: Write, Write, Across, C, C;
}

/// Returns whether a local writer gets the row, with either mechanism.
fn local_writer_gets<E: Engine>(world: &World<E>) -> bool {
    let records = world.store.records();
    let got = matches!(records.lock(world.seen.at, world.me).expect("sound"), Locking::Taken { .. });
    if got {
        records.unlock(world.seen.at);
    }
    got
}

#[test]
fn a_lease_keeps_writers_out_until_the_published_time_is_past_its_end() {
    let world = World::new(Emulated::default());
    world.begin(Kind::Read);
    let (region, records) = (world.store.region(), world.store.records());
    let mut worker = world.store.worker().expect("a worker");
    for (time, gets) in [(0, false), (LEASE_END, false), (LEASE_END + 1, true)] {
        region.engine().store(region.time(), time);
        // First by a table's own operation, which waits for its limit.
        let table = world.table.impatient();
        let outcome = worker.htm().attempt(ONCE, |tx| {
            let locking = records.lock_in(tx, world.seen.at, world.me)?;
            // Aborted, so that its stores are undone.
            if matches!(locking, Locking::Taken { .. }) { Err(drtm_htm::Access::abort::<1>(tx)) } else { Ok(()) }
        });
        assert_eq!(outcome.committed().is_none(), gets, "at {time}, in an htm transaction");
        assert_eq!(local_writer_gets(&world), gets, "at {time}, by a lock");
        // The first writer that gets it clears it.
        world.begin_again_if(!gets);
        let put = table.put(&mut world.store.worker().expect("a worker"), 7, b"own");
        assert_eq!(put.is_ok(), gets, "at {time}, by a table: {put:?}");
    }
}

impl<E: Engine> World<E> {
    /// Shares the lease once more, which does not extend it.
    fn begin_again_if(&self, is_so: bool) {
        if is_so {
            self.begin(Kind::Read);
        }
    }
}

#[test]
fn readers_share_a_lease_and_replace_an_expired_one_by_one_swap_more() {
    let world = World::new(NoHtm);
    let at = Remote { node: NodeId(1), region: world.region, offset: world.table.location() };
    world.elsewhere(async |verbs, records| {
        let lookup = HashPeer::<Inline>::open(verbs, at).await.expect("the table");
        let location = lookup.find(verbs, 7).await.expect("sound").expect("it is there");
        let endpoint = verbs.endpoint();
        let cases = [
            // The current time, the requested end of the lease, its actual end, and the round trips
            // it takes.
            (100, 200, 200, 1),
            (150, 250, 200, 1),
            (200, 300, 200, 1),
            (201, 300, 300, 2),
            (250, 400, 300, 1),
        ];
        for (now, until, end, trips) in cases {
            let before = endpoint.counters();
            let mut value = Vec::new();
            let until = (until, Leases::At(now));
            let leased = records.lease_and_read(verbs, location, 7, until, None, &mut value).await.expect("sound");
            let Look::Found(leased) = leased else { panic!("it is not locked: {leased:?}") };
            assert_eq!((leased.end, &value[..]), (end, &b"old"[..]), "at {now}");
            let spent = (endpoint.counters() - before)[Phase::Execute];
            assert_eq!((spent.round_trips, spent.compare_swaps), (trips, trips), "at {now}");
        }
        let name = (Holder::new(0, 0, 3, 0), Leases::At(300));
        let mut value = Vec::new();
        let refused = records.lock(verbs, location, 7, name, &mut value, (None, None)).await.expect("sound");
        assert!(matches!(refused, Look::Busy), "a lease that has not expired: {refused:?}");
        let name = (Holder::new(0, 0, 3, 0), Leases::At(301));
        let locked = records.lock(verbs, location, 7, name, &mut value, (None, None)).await.expect("sound");
        assert!(matches!(locked, Look::Found(_)), "it has expired: {locked:?}");
        let refused = records.lease_and_read(verbs, location, 7, (900, Leases::At(800)), None, &mut value).await;
        assert!(matches!(refused, Ok(Look::Busy)), "it is locked: {refused:?}");
        unlock_record(verbs, location, name.0).await;
    });
}

#[test]
fn locks_and_leases_are_not_taken_by_swaps_that_are_not_atomic() {
    let memory = Arc::new(Region::anonymous(NoHtm, 16 << 20).expect("memory"));
    let store = Store::in_region_of(NodeId(1), 0, memory).expect("a store");
    let table = store.hash_table(HashConfig::default().for_peers()).expect("a table");
    table.insert(&mut store.worker().expect("a worker"), 7, b"old").expect("room").expect("new");
    let fabric = LocalFabric::new(2, LocalConfig::perfect().atomicity(drtm_rdma::Atomicity::Hca));
    let region = fabric.register(NodeId(1), Arc::clone(store.region())).expect("the node is here");
    let endpoint = fabric.endpoint(NodeId(0)).expect("room for an endpoint");
    let verbs = endpoint.during(Phase::Execute);
    let at = Remote { node: NodeId(1), region, offset: table.location() };
    block_on(&endpoint, async {
        let lookup = HashPeer::<Inline>::open(verbs, at).await.expect("the table");
        let records = RecordPeer::<Inline>::open(verbs, at).await.expect("for peers");
        let location = lookup.find(verbs, 7).await.expect("sound").expect("it is there");
        let refused = records.lease_and_read(verbs, location, 7, (900, Leases::None), None, &mut Vec::new()).await;
        assert_eq!(refused, Err(RemoteError::NotAtomic));
        let name = (Holder::new(0, 0, 3, 0), Leases::None);
        let refused = records.lock(verbs, location, 7, name, &mut Vec::new(), (None, None)).await;
        assert_eq!(refused.unwrap_err(), RemoteError::NotAtomic);
    });
}
