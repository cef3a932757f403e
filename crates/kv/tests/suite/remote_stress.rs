//! Local and remote readers and writers on the same records, with invariants that any torn, lost or
//! invented value would break.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_kv::{
    HashConfig, HashTable, Holder, Inline, KvError, KvTable, Leases, Location, Look, RecordLock, Standing, Version,
};
use drtm_rdma::{LocalConfig, NodeId, Phase, Verbs};

use crate::{
    cluster::{Cluster, PortOf, TEARS},
    peers::{
        Job, OWNER, PEERS, Peer, atomic_moods, holder, job, lock_record, stamp_of, stamped, unlock_record, write_record,
    },
    support::rounds,
};

/// Values of five lines and more.
const WORDS: usize = 40;
const COROUTINES: usize = 2;

fn table_of(cluster: &Cluster, keys: u64, stamp: u64) -> HashTable<NoHtm> {
    let table = cluster.store.hash_table(HashConfig::default().for_peers()).expect("a table");
    let mut worker = cluster.store.worker().expect("a worker");
    for key in 0..keys {
        table.insert(&mut worker, key, &stamped(stamp, WORDS)).expect("room").expect("new");
    }
    table
}

/// The observations of readers and writers: key, version, stamp.
struct History {
    written: Mutex<Vec<(u64, Version, u64)>>,
    read: Mutex<Vec<(u64, Version, u64)>>,
    stamps: AtomicU64,
    /// The number of keys. Each begins with version 1 and stamp 0.
    keys: u64,
}

impl History {
    fn new(keys: u64) -> Self {
        Self { written: Mutex::default(), read: Mutex::default(), stamps: AtomicU64::new(0), keys }
    }

    fn new_stamp(&self) -> u64 {
        1 + self.stamps.fetch_add(1, Relaxed)
    }

    fn has_read(&self, key: u64, version: Version, value: &[u8]) {
        let stamp = stamp_of(value).unwrap_or_else(|| panic!("a torn value of key {key}: {value:?}"));
        self.read.lock().expect("no panic").push((key, version, stamp));
    }

    fn has_written(&self, key: u64, version: Version, stamp: u64) {
        self.written.lock().expect("no panic").push((key, version, stamp));
    }

    /// Checks that each version was written by one writer, right after the previous version, and
    /// that every read of it returned the written value.
    fn check(self, table: &HashTable<NoHtm>) {
        let mut values = HashMap::new();
        let written = self.written.into_inner().expect("no panic");
        for (key, version, stamp) in &written {
            let before = values.insert((*key, version.number()), *stamp);
            assert_eq!(before, None, "key {key}, {version:?}: written twice, so one of the two was lost");
        }
        for key in 0..self.keys {
            let last = table.version(key).expect("sound").expect("it is there").number();
            let count = written.iter().filter(|(of, ..)| *of == key).count() as u64;
            assert_eq!(last, 1 + count, "key {key}: a version that no thread says to have written");
            values.insert((key, 1), 0);
        }
        let read = self.read.into_inner().expect("no panic");
        assert!(!read.is_empty());
        for (key, version, stamp) in read {
            assert_eq!(
                values.get(&(key, version.number())),
                Some(&stamp),
                "key {key}, {version:?}: not what was written"
            );
        }
    }
}

/// A peer's coroutine: reads and writes records for a number of turns.
async fn reads_and_writes(
    verbs: Verbs<'_, PortOf>,
    peer: &Peer<Inline>,
    history: &History,
    me: Holder,
    seed: u64,
    turns: u64,
) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut value = Vec::new();
    for _ in 0..turns {
        let key = random.u64(0..history.keys);
        let location = peer.find(verbs, key).await;
        if random.bool() {
            if let Look::Found(read) = peer.records.read(verbs, location, key, &mut value).await.expect("sound") {
                history.has_read(key, read.version, &value);
                if let Look::Found(standing) = peer.records.check(verbs, location).await.expect("sound") {
                    let is_later = standing.version >= read.version;
                    assert!(is_later && standing.state != me.into(), "{standing:?} after {read:?}");
                }
            }
            continue;
        }
        let locked = lock_record(&peer.records, verbs, location, key, (me, Leases::None), &mut value).await;
        let Look::Found(lock) = locked.expect("sound") else { continue };
        history.has_read(key, lock.version(), &value);
        let standing = peer.records.check(verbs, location).await.expect("sound");
        assert_eq!(standing, Look::Found(Standing { version: lock.version(), state: me.into() }));
        if random.u8(0..4) == 0 {
            unlock_record(verbs, location, me).await;
            continue;
        }
        let stamp = history.new_stamp();
        let version =
            write_record(&peer.records, verbs, &lock, key, &stamped(stamp, WORDS)).await.expect("of the same length");
        history.has_written(key, version, stamp);
    }
}

#[test]
fn every_version_has_one_value_whoever_writes_and_reads() {
    for config in atomic_moods() {
        everyone_reads_and_writes(config, 4, rounds(300), 8);
    }
}

/// One record, which its owner writes continuously. An exchange of its state word that is not
/// atomic with the owner's is detected soon.
#[test]
fn peers_and_owner_never_hold_a_lock_together() {
    for seed in 0..2 {
        everyone_reads_and_writes(LocalConfig::harsh(seed), 1, rounds(300), 1);
    }
}

/// A job of several coroutines, and the number of them still running.
#[derive(Clone)]
struct Left(Arc<AtomicUsize>);

impl Left {
    fn of(coroutines: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(coroutines)))
    }

    fn any(&self) -> bool {
        self.0.load(Relaxed) > 0
    }

    fn one_less(&self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Retries the owner's change without blocking its worker while a peer holds the record's lock.
async fn patiently<T>(verbs: Verbs<'_, PortOf>, mut change: impl FnMut() -> Result<T, KvError>) -> T {
    loop {
        match change() {
            Err(KvError::Busy) => verbs.endpoint().sleep(Duration::from_micros(5)).await,
            other => return other.expect("room, and sound"),
        }
    }
}

/// Peers take this many turns. The owner writes once in `owner_writes_one_in` turns.
fn everyone_reads_and_writes(config: LocalConfig, keys: u64, turns: u64, owner_writes_one_in: u8) {
    let cluster = Cluster::new(config);
    let table = table_of(&cluster, keys, 0);
    let (history, left) = (Arc::new(History::new(keys)), Left::of(PEERS.len() * COROUTINES));
    let at = cluster.at(table.location());
    let peer = |node: NodeId| -> (NodeId, Job) {
        let (history, left) = (Arc::clone(&history), left.clone());
        let start = job(move |worker| {
            let verbs = worker.endpoint().during(Phase::Execute);
            let spawner = worker.clone();
            let opens = async move {
                let peer = Arc::new(Peer::<Inline>::at(at, verbs).await);
                for coroutine in 0..COROUTINES {
                    let (peer, history, left) = (Arc::clone(&peer), Arc::clone(&history), left.clone());
                    let seed = u64::from(node.0) * 100 + coroutine as u64;
                    let takes_turns = async move {
                        reads_and_writes(verbs, &peer, &history, holder(node, coroutine), seed, turns).await;
                        left.one_less();
                    };
                    spawner.spawn(takes_turns).expect("it runs");
                }
            };
            worker.spawn(opens).expect("it runs");
        });
        (node, start)
    };
    let (mut worker, served) = (cluster.store.worker().expect("a worker"), table.clone());
    let (owned, table, seen) = (Arc::clone(&history), table.impatient(), left.clone());
    let owner = job(move |node| {
        let verbs = node.endpoint().during(Phase::Other);
        let writes = async move {
            let mut random = fastrand::Rng::with_seed(9);
            let mut found = vec![0; 8 * WORDS];
            while seen.any() {
                let key = random.u64(0..keys);
                if random.u8(0..owner_writes_one_in) == 0 {
                    let stamp = owned.new_stamp();
                    let value = stamped(stamp, WORDS);
                    let written = patiently(verbs, || table.update(&mut worker, key, &value)).await;
                    owned.has_written(key, written.expect("it is there"), stamp);
                }
                let read = patiently(verbs, || table.get(key, &mut found)).await.expect("it is there");
                owned.has_read(key, read.version, &found);
                if owner_writes_one_in > 1 {
                    // There are more threads than processors.
                    verbs.endpoint().sleep(Duration::from_micros(20)).await;
                } else {
                    verbs.endpoint().yield_now().await;
                }
            }
        };
        node.spawn(writes).expect("it runs");
    });
    let mut jobs: Vec<_> = PEERS.into_iter().map(peer).collect();
    jobs.push((OWNER, owner));
    cluster.together(jobs);
    let Some(history) = Arc::into_inner(history) else { unreachable!("all have ended") };
    history.check(&served);
}

const ACCOUNTS: u64 = 6;
const BALANCE: u64 = 1_000;

/// Locks an account's record; `None` if it could not. Returns the lock, and the balance.
async fn lock_account(
    verbs: Verbs<'_, PortOf>,
    peer: &Peer<Inline>,
    (account, location): (u64, Location),
    me: Holder,
) -> Option<(RecordLock, u64)> {
    let mut value = Vec::new();
    let locked = lock_record(&peer.records, verbs, location, account, (me, Leases::None), &mut value).await;
    let Look::Found(lock) = locked.expect("sound") else { return None };
    Some((lock, stamp_of(&value).expect("a whole balance")))
}

async fn pay(verbs: Verbs<'_, PortOf>, peer: &Peer<Inline>, (account, lock): (u64, &RecordLock), balance: u64) {
    write_record(&peer.records, verbs, lock, account, &stamped(balance, WORDS)).await.expect("of the same length");
}

/// Moves money between accounts with both locked. Returns the number of transfers.
async fn transfers(verbs: Verbs<'_, PortOf>, peer: &Peer<Inline>, me: Holder, seed: u64, turns: u64) -> u64 {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut done = 0;
    for _ in 0..turns {
        let from = random.u64(0..ACCOUNTS);
        let to = (from + random.u64(1..ACCOUNTS)) % ACCOUNTS;
        let [payer, payee] = [(from, peer.find(verbs, from).await), (to, peer.find(verbs, to).await)];
        let Some((paying, has)) = lock_account(verbs, peer, payer, me).await else { continue };
        // Locks are taken in no order, so a transfer that cannot get the second releases the first.
        let Some((paid, had)) = lock_account(verbs, peer, payee, me).await else {
            unlock_record(verbs, payer.1, me).await;
            continue;
        };
        let amount = random.u64(0..=has.min(100));
        pay(verbs, peer, (from, &paying), has - amount).await;
        pay(verbs, peer, (to, &paid), had + amount).await;
        done += 1;
    }
    done
}

#[test]
fn money_is_neither_made_nor_lost_between_nodes() {
    for config in atomic_moods() {
        let cluster = Cluster::new(config);
        let table = table_of(&cluster, ACCOUNTS, BALANCE);
        let transferred = Arc::new(AtomicU64::new(0));
        let at = cluster.at(table.location());
        let peer = |node: NodeId| -> (NodeId, Job) {
            let transferred = Arc::clone(&transferred);
            let start = job(move |worker| {
                let verbs = worker.endpoint().during(Phase::Execute);
                let spawner = worker.clone();
                let opens = async move {
                    let peer = Arc::new(Peer::<Inline>::at(at, verbs).await);
                    for coroutine in 0..COROUTINES {
                        let (peer, transferred) = (Arc::clone(&peer), Arc::clone(&transferred));
                        let seed = u64::from(node.0) * 100 + coroutine as u64;
                        let pays = async move {
                            let done = transfers(verbs, &peer, holder(node, coroutine), seed, rounds(150)).await;
                            transferred.fetch_add(done, Relaxed);
                        };
                        spawner.spawn(pays).expect("it runs");
                    }
                };
                worker.spawn(opens).expect("it runs");
            });
            (node, start)
        };
        cluster.together(PEERS.into_iter().map(peer).collect());
        assert!(transferred.load(Relaxed) > 0);
        let mut found = vec![0; 8 * WORDS];
        let balances = (0..ACCOUNTS).map(|account| {
            table.get(account, &mut found).expect("sound").expect("it is there");
            stamp_of(&found).expect("a whole balance")
        });
        assert_eq!(balances.sum::<u64>(), ACCOUNTS * BALANCE);
    }
}

/// Reads key 0 by one READ, and believes the result unless the version says that a write is in
/// progress. This is what reading without checksums would be. Returns the value if it is torn.
async fn read_carelessly(verbs: Verbs<'_, PortOf>, peer: &Peer<Inline>) -> Option<Vec<u64>> {
    let location = peer.find(verbs, 0).await;
    // Header, lengths, value.
    let words = verbs.read(location.record, 5 + WORDS).await.expect("in bounds");
    let is_writing = words[3] & 1 != 0;
    let value = &words[5..];
    (!is_writing && value.iter().any(|word| *word != value[0])).then(|| value.to_vec())
}

/// Reads key 0 in one mood while its owner writes it, until a careless reader accepts a torn value
/// or `longest` has passed. Careful readers never do. Returns whether the careless one did.
fn fooled(config: LocalConfig, longest: Duration) -> bool {
    let cluster = Cluster::new(config);
    let table = table_of(&cluster, 1, 0);
    let (done, was_fooled) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let at = cluster.at(table.location());
    let (mut worker, written, ended) = (cluster.store.worker().expect("a worker"), table.clone(), Arc::clone(&done));
    let owner = job(move |node| {
        let endpoint = node.endpoint();
        let writes = async move {
            let mut stamp = 0;
            while !ended.load(Relaxed) {
                stamp += 1;
                endpoint.sleep(Duration::from_micros(stamp % 200)).await;
                written.update(&mut worker, 0, &stamped(stamp, WORDS)).expect("room").expect("it is there");
            }
        };
        node.spawn(writes).expect("it runs");
    });
    let (ends, fooled) = (Arc::clone(&done), Arc::clone(&was_fooled));
    let reader = job(move |worker| {
        let verbs = worker.endpoint().during(Phase::Execute);
        let reads = async move {
            let peer = Peer::<Inline>::at(at, verbs).await;
            let (begin, mut value, mut careful) = (verbs.endpoint().now(), Vec::new(), 0_u64);
            loop {
                let torn = read_carelessly(verbs, &peer).await;
                let location = peer.find(verbs, 0).await;
                if let Look::Found(_) = peer.records.read(verbs, location, 0, &mut value).await.expect("sound") {
                    assert!(stamp_of(&value).is_some(), "a torn value was believed: {value:?}");
                    careful += 1;
                }
                let enough = torn.is_some() && careful >= 10;
                if enough || verbs.endpoint().now().since(begin) > longest {
                    fooled.store(torn.is_some(), Relaxed);
                    break;
                }
            }
            ends.store(true, Relaxed);
        };
        worker.spawn(reads).expect("it runs");
    });
    cluster.together(vec![(OWNER, owner), (PEERS[0], reader)]);
    was_fooled.load(Relaxed)
}

/// The checksum is needed: without it, the same reads return torn values. (If this fails, the
/// fabric has become too kind to test anything. On a real fabric torn READs happen by chance, so
/// only careful readers are checked.)
#[test]
fn without_checksums_torn_values_would_be_believed() {
    let (moods, longest) = if TEARS { (10, Duration::from_secs(3)) } else { (1, Duration::from_secs(1)) };
    let fooled = (0..moods).any(|seed| fooled(LocalConfig::harsh(seed), longest));
    assert!(fooled || !TEARS, "no READ was torn");
}
