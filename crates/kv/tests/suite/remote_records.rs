//! Another node's records. A one-sided read is not torn and is current, or fails. A one-sided write
//! is visible completely to all readers.

use crate::transacted::Transacted;
use drtm_htm::{Engine, NoHtm};
use drtm_kv::{
    Bytes, HashConfig, HashTable, Head, Inline, KvError, KvTable, Leases, Location, Locking, Look, MAX_VALUE,
    RecordPeer, RemoteError, Standing, Version,
};
use drtm_rdma::{LocalConfig, NodeId, Offset, Phase};

use crate::{
    cluster::{Cluster, moods},
    peers::{OWNER, PEERS, Peer, alone, atomic_moods, holder, lock_record, state_word, unlock_record, write_record},
};

/// Creates a cluster whose owner has a hash table for peers.
fn with_table(config: LocalConfig) -> (Cluster, HashTable<NoHtm>) {
    let cluster = Cluster::new(config);
    let table = cluster.store.hash_table(HashConfig::default().for_peers()).expect("a table");
    (cluster, table)
}

fn bytes(length: usize, first: u8) -> Vec<u8> {
    (0..length).map(|at| first.wrapping_add((at % 251) as u8)).collect()
}

const LENGTHS: [usize; 14] = [0, 1, 7, 8, 9, 100, 254, 255, 256, 4_000, 5_000, 32_768, MAX_VALUE - 1, MAX_VALUE];

#[test]
fn a_part_that_the_owner_writes_is_read_with_the_rest() {
    for config in moods() {
        let (cluster, table) = with_table(config);
        let mut worker = cluster.store.worker().expect("a worker");
        table.insert(&mut worker, 7, &bytes(300, 1)).expect("room").expect("new");
        let me = worker.holder();
        let Ok(Ok(seen)) = table.fetch(7, me, &mut Vec::new()) else { panic!("it is there") };
        let records = cluster.store.records();
        assert!(matches!(records.lock(seen.at, me), Ok(Locking::Taken { .. })), "no other thread runs");
        cluster.store.records().write_part(seen.at, seen.version.next(), 5, &[9; 16]).expect("within the value");
        let mut expected = bytes(300, 1);
        expected[40..56].fill(9);
        let endpoint = cluster.endpoint(PEERS[0]);
        let verbs = endpoint.during(Phase::Execute);
        alone(&endpoint, async {
            let peer = Peer::<Inline>::open(&cluster, verbs, &table).await;
            let location = peer.find(verbs, 7).await;
            let mut value = Vec::new();
            let read = peer.records.read(verbs, location, 7, &mut value).await.expect("sound");
            assert!(matches!(read, Look::Found(_)) && value == expected, "{read:?}: its checksum is of all of it");
        });
    }
}

#[test]
fn values_of_every_length_are_read_and_written() {
    for config in atomic_moods() {
        let (cluster, table) = with_table(config);
        let named = cluster.store.hash_table_of::<Bytes>(HashConfig::default().for_peers()).expect("a table");
        let mut worker = cluster.store.worker().expect("a worker");
        // Keys from one byte to the longest.
        let key_of = |length: usize| [bytes(length % 4_091, 7), (length as u32).to_le_bytes().to_vec()].concat();
        for length in LENGTHS {
            table.insert(&mut worker, length as u64, &bytes(length, 1)).expect("room").expect("new");
            named.insert(&mut worker, &key_of(length), &bytes(length, 2)).expect("room").expect("new");
        }
        let endpoint = cluster.endpoint(PEERS[0]);
        let verbs = endpoint.during(Phase::Execute);
        alone(&endpoint, async {
            let peer = Peer::<Inline>::open(&cluster, verbs, &table).await;
            let Peer { lookup, records } = Peer::<Bytes>::open(&cluster, verbs, &named).await;
            let mut value = Vec::new();
            // Long after short and short after long, so that the expected length is wrong both
            // ways.
            for length in LENGTHS.into_iter().chain(LENGTHS.into_iter().rev()) {
                let key = length as u64;
                let location = peer.find(verbs, key).await;
                let read = peer.records.read(verbs, location, key, &mut value).await.expect("sound");
                assert!(matches!(read, Look::Found(_)) && value.len() == length, "{length}: {read:?}");
                let key = key_of(length);
                let location = lookup.find(verbs, &key).await.expect("sound").expect("it is there");
                let read = records.read(verbs, location, &key, &mut value).await.expect("sound");
                assert!(matches!(read, Look::Found(_)) && value.len() == length, "{length}: {read:?}");
            }
            for length in LENGTHS {
                let key = length as u64;
                let location = peer.find(verbs, key).await;
                let me = holder(PEERS[0], 0);
                let locked = lock_record(&peer.records, verbs, location, key, (me, Leases::None), &mut value)
                    .await
                    .expect("sound");
                let Look::Found(lock) = locked else { panic!("{length}: {locked:?}") };
                assert_eq!(value, bytes(length, 1));
                let unwritten =
                    write_record(&peer.records, verbs, &lock, key, &bytes(length + 1, 3)).await.unwrap_err();
                assert_eq!(unwritten, RemoteError::OtherLength { is: length, given: length + 1 });
                let before = lock.version();
                let written = write_record(&peer.records, verbs, &lock, key, &bytes(length, 3)).await.expect("room");
                assert_eq!(written, before.next());

                let key = key_of(length);
                let location = lookup.find(verbs, &key).await.expect("sound").expect("it is there");
                let locked =
                    lock_record(&records, verbs, location, &key, (me, Leases::None), &mut value).await.expect("sound");
                let Look::Found(lock) = locked else { panic!("{length}: {locked:?}") };
                assert_eq!(value, bytes(length, 2));
                write_record(&records, verbs, &lock, &key, &bytes(length, 4)).await.expect("room");
                let read = records.read(verbs, location, &key, &mut value).await.expect("sound");
                assert!(matches!(read, Look::Found(_)) && value == bytes(length, 4), "{length}: {read:?}");
            }
        });
        let mut found = vec![0; MAX_VALUE];
        for length in LENGTHS {
            let read = table.get(length as u64, &mut found).expect("sound").expect("it is there");
            assert!(found[..read.length] == bytes(length, 3), "{length}");
            let read = named.get(&key_of(length), &mut found).expect("sound").expect("it is there");
            assert!(found[..read.length] == bytes(length, 4), "{length}");
            // Nothing is left locked.
            table.update(&mut worker, length as u64, b"moved").expect("room").expect("it is there");
        }
    }
}

/// Asserts that a peer detects that a known location is stale after `change`, and that it does no
/// harm there.
fn stale_after(change: impl Fn(&HashTable<NoHtm>, &mut drtm_kv::Worker<NoHtm>)) {
    for config in atomic_moods() {
        let (cluster, table) = with_table(config);
        let mut worker = cluster.store.worker().expect("a worker");
        table.insert(&mut worker, 7, b"seven").expect("room").expect("new");
        let endpoint = cluster.endpoint(PEERS[0]);
        let verbs = endpoint.during(Phase::Execute);
        alone(&endpoint, async {
            let Peer { lookup, records } = Peer::<Inline>::open(&cluster, verbs, &table).await;
            let location = lookup.find(verbs, 7).await.expect("sound").expect("inserted above");
            let mut value = Vec::new();
            let read = records.read(verbs, location, 7, &mut value).await.expect("sound");
            assert!(matches!(read, Look::Found(_)) && value == b"seven");
            change(&table, &mut worker);
            let read = records.read(verbs, location, 7, &mut value).await.expect("sound");
            assert_eq!(read, Look::Stale);
            assert_eq!(records.check(verbs, location).await.expect("sound"), Look::Stale);
            let me = holder(PEERS[0], 0);
            let locked =
                lock_record(&records, verbs, location, 7, (me, Leases::None), &mut value).await.expect("sound");
            assert!(matches!(locked, Look::Stale), "{locked:?}");
            // The present record can be used.
            for key in [7, 8] {
                if table.contains(key).expect("sound") {
                    let free = table.impatient().update(&mut worker, key, b"after");
                    free.expect("it is not held").expect("it is there");
                    let location = lookup.find(verbs, key).await.expect("sound").expect("it is there");
                    let read = records.read(verbs, location, key, &mut value).await.expect("sound");
                    assert!(matches!(read, Look::Found(_)) && value == b"after", "{read:?}");
                }
            }
        });
    }
}

#[test]
fn a_removed_record_is_stale() {
    stale_after(|table, worker| {
        table.remove(worker, 7).expect("sound").expect("it is there");
    });
}

#[test]
fn a_moved_record_is_stale() {
    stale_after(|table, worker| {
        table.update(worker, 7, &[1; 1_000]).expect("room").expect("it is there");
    });
}

#[test]
fn memory_that_the_same_key_uses_again_is_stale() {
    stale_after(|table, worker| {
        table.remove(worker, 7).expect("sound").expect("it is there");
        table.insert(worker, 7, b"again").expect("room").expect("new");
    });
}

#[test]
fn memory_that_another_key_uses_is_stale() {
    stale_after(|table, worker| {
        table.remove(worker, 7).expect("sound").expect("it is there");
        table.insert(worker, 8, b"other").expect("room").expect("new");
    });
}

/// Returns a word of a record in the owner's memory.
fn word(cluster: &Cluster, location: Location, word: u64) -> &drtm_htm::Word {
    &cluster.store.region().words(location.record.offset + 8 * word, 1).expect("a record is there")[0]
}

#[test]
fn a_lock_of_the_version_that_was_seen_reads_the_header_alone() {
    for config in atomic_moods() {
        let (cluster, table) = with_table(config);
        let mut worker = cluster.store.worker().expect("a worker");
        let inserted = table.insert(&mut worker, 7, &[7; 400]).expect("room").expect("new");
        let endpoint = cluster.endpoint(PEERS[0]);
        let verbs = endpoint.during(Phase::Lock);
        alone(&endpoint, async {
            let Peer { lookup, records } = Peer::<Inline>::open(&cluster, verbs, &table).await;
            let location = lookup.find(verbs, 7).await.expect("sound").expect("inserted above");
            let me = (holder(PEERS[0], 1), Leases::None);
            let mut value = Vec::new();
            let read = records.read(verbs, location, 7, &mut value).await.expect("sound");
            assert_eq!(read.map(|read| read.version), Look::Found(inserted));
            // Of the version that is there, and of one that is not.
            for (seen, is_there) in [(inserted, true), (inserted.next(), false)] {
                value.clear();
                let before = endpoint.counters();
                let locked = records.lock(verbs, location, 7, me, &mut value, (None, Some(seen))).await;
                let Look::Found(lock) = locked.expect("sound") else { panic!("it is free") };
                let fetched = (endpoint.counters() - before)[Phase::Lock].bytes_in;
                assert_eq!((lock.version(), lock.value_length()), (inserted, 400));
                assert_eq!(fetched < 400, is_there, "{fetched} bytes");
                assert!(fetched < 400 || value == [7; 400]);
                if is_there {
                    unlock_record(verbs, location, me.0).await;
                } else {
                    write_record(&records, verbs, &lock, 7, &[8; 400]).await.expect("as long");
                }
            }
            // What was locked without its value is written like any other.
            let Look::Found(read) = records.read(verbs, location, 7, &mut value).await.expect("sound") else {
                panic!("it was written")
            };
            assert_eq!((value.as_slice(), read.version > inserted), (&[8; 400][..], true));
            let locked = records.lock(verbs, location, 7, me, &mut value, (None, Some(read.version))).await;
            let Look::Found(lock) = locked.expect("sound") else { panic!("it is free") };
            write_record(&records, verbs, &lock, 7, &[9; 400]).await.expect("as long");
            assert!(matches!(records.read(verbs, location, 7, &mut value).await, Ok(Look::Found(_))));
            assert_eq!(value, [9; 400]);
        });
    }
}

#[test]
fn a_lock_keeps_others_out_and_only_its_holder_frees_it() {
    for config in atomic_moods() {
        let (cluster, table) = with_table(config);
        let mut worker = cluster.store.worker().expect("a worker");
        let inserted = table.insert(&mut worker, 7, b"seven").expect("room").expect("new");
        let endpoint = cluster.endpoint(PEERS[0]);
        let verbs = endpoint.during(Phase::Lock);
        alone(&endpoint, async {
            let Peer { lookup, records } = Peer::<Inline>::open(&cluster, verbs, &table).await;
            let location = lookup.find(verbs, 7).await.expect("sound").expect("inserted above");
            let mut value = Vec::new();
            let (me, other) = (holder(PEERS[0], 1), holder(PEERS[0], 2));
            let locked =
                lock_record(&records, verbs, location, 7, (me, Leases::None), &mut value).await.expect("sound");
            let Look::Found(lock) = locked else { panic!("{locked:?}") };
            assert_eq!((lock.version(), &value[..]), (inserted, &b"seven"[..]));

            let refused =
                lock_record(&records, verbs, location, 7, (other, Leases::None), &mut value).await.expect("sound");
            assert!(matches!(refused, Look::Busy), "{refused:?}");
            let impatient = table.impatient();
            let mut local = cluster.store.worker().expect("a worker");
            assert!(matches!(impatient.update(&mut local, 7, b"SEVEN"), Err(KvError::Busy)));
            assert!(matches!(impatient.update(&mut local, 7, &[0; 900]), Err(KvError::Busy)));
            assert!(matches!(impatient.remove(&mut local, 7), Err(KvError::Busy)));
            // A reader of the owner that passes locks is not kept waiting.
            let mut found = [0; 5];
            assert_eq!(impatient.get(7, &mut found).expect("sound").map(|read| read.version), Some(inserted));
            assert_eq!(&found, b"seven");
            // No write has begun, so the value is unchanged.
            let read = records.read(verbs, location, 7, &mut value).await.expect("sound");
            assert_eq!(read, Look::Found(Standing { version: inserted, state: me.into() }));
            let standing = records.check(verbs, location).await.expect("sound");
            assert_eq!(standing, Look::Found(Standing { version: inserted, state: me.into() }));
            let Look::Found(standing) = standing else { unreachable!() };
            assert!(standing.is_still(inserted, me) && !standing.is_still(inserted, other));

            // After a release, the other holder can take it.
            assert_eq!(NoHtm.load(word(&cluster, location, 2)), state_word(me));
            unlock_record(verbs, location, me).await;
            let locked =
                lock_record(&records, verbs, location, 7, (other, Leases::None), &mut value).await.expect("sound");
            let Look::Found(lock) = locked else { panic!("{locked:?}") };
            let written = write_record(&records, verbs, &lock, 7, b"SEVEN").await.expect("of the same length");
            assert_eq!(table.version(7).expect("sound"), Some(written));
            assert!(table.update(&mut local, 7, b"seven").expect("room").is_some(), "it is not held");

            // A peer waits for a lease's end, by its own clock.
            NoHtm.store(word(&cluster, location, 2), 1_000 << 9);
            for leases in [Leases::None, Leases::At(1_000)] {
                let locked = lock_record(&records, verbs, location, 7, (me, leases), &mut value).await.expect("sound");
                assert!(matches!(locked, Look::Busy), "{locked:?}");
            }
            let locked = lock_record(&records, verbs, location, 7, (me, Leases::At(1_001)), &mut value).await;
            assert!(matches!(locked, Ok(Look::Found(_))), "the lease has expired: {locked:?}");
        });
    }
}

#[test]
fn a_value_is_written_if_its_version_is_the_expected_one() {
    for config in atomic_moods() {
        let (cluster, table) = with_table(config);
        let mut worker = cluster.store.worker().expect("a worker");
        let first = table.insert(&mut worker, 7, b"first").expect("room").expect("new");
        let endpoint = cluster.endpoint(PEERS[1]);
        let verbs = endpoint.during(Phase::Commit);
        alone(&endpoint, async {
            let Peer { lookup, records } = Peer::<Inline>::open(&cluster, verbs, &table).await;
            let location = lookup.find(verbs, 7).await.expect("sound").expect("inserted above");
            let me = (holder(PEERS[1], 0), Leases::None);
            let lock = async || {
                let locked = lock_record(&records, verbs, location, 7, me, &mut Vec::new()).await.expect("sound");
                let Look::Found(lock) = locked else { panic!("{locked:?}") };
                lock
            };
            let lock_before = lock().await;
            assert_eq!(lock_before.version(), first);
            let second = write_record(&records, verbs, &lock_before, 7, b"later").await.expect("of the same length");
            assert_eq!(second, first.next());
            let lock_after = lock().await;
            assert_eq!(lock_after.version(), second, "a writer that expects the first finds out");
            let refused = write_record(&records, verbs, &lock_after, 8, b"later").await.unwrap_err();
            assert_eq!(refused, RemoteError::OtherKey { at: location.record });
            let refused = write_record(&records, verbs, &lock_after, 7, b"too long").await.unwrap_err();
            assert_eq!(refused, RemoteError::OtherLength { is: 5, given: 8 });
            unlock_record(verbs, location, me.0).await;
            let mut found = [0; 5];
            assert_eq!(table.get(7, &mut found).expect("sound").map(|read| read.version), Some(second));
            assert_eq!(&found, b"later");
            assert!(table.update(&mut worker, 7, b"local").expect("room").is_some(), "it is not held");
        });
    }
}

#[test]
fn records_at_the_very_end_of_memory_are_read() {
    for config in [LocalConfig::perfect(), LocalConfig::harsh(1)] {
        let cluster = Cluster::new(config);
        // Nothing is allocated behind the records.
        let table = cluster
            .store
            .hash_table(HashConfig::for_keys(1_400).with_occupancy(0.3).fixed().for_peers())
            .expect("a table");
        let mut worker = cluster.store.worker().expect("a worker");
        let endpoint = cluster.endpoint(PEERS[0]);
        let verbs = endpoint.during(Phase::Execute);
        alone(&endpoint, async {
            let lookup = Peer::<Inline>::open(&cluster, verbs, &table).await.lookup;
            let mut near_the_end = 0;
            for key in 0..1_400_u64 {
                table.insert(&mut worker, key, &[key as u8]).expect("room").expect("new");
                let location = lookup.find(verbs, key).await.expect("sound").expect("it is there");
                let left = cluster.store.region().allocated() - location.record.offset.bytes();
                if left < 128 {
                    near_the_end += 1;
                    // A peer that does not know yet how short records are.
                    let records = Peer::<Inline>::open(&cluster, verbs, &table).await.records;
                    let mut value = Vec::new();
                    let read = records.read(verbs, location, key, &mut value).await.expect("sound");
                    assert!(matches!(read, Look::Found(_)) && value == [key as u8]);
                }
            }
            assert!(near_the_end > 0, "this has not tested what it says");
        });
    }
}

#[test]
fn a_record_that_contradicts_its_checksum_is_corrupt_and_what_has_none_is_refused() {
    for config in atomic_moods() {
        let (cluster, table) = with_table(config);
        let mut worker = cluster.store.worker().expect("a worker");
        table.insert(&mut worker, 7, &[1; 104]).expect("room").expect("new");
        let plain = cluster.store.hash_table(HashConfig::default()).expect("a table");
        plain.insert(&mut worker, 7, b"seven").expect("room").expect("new");
        let tree = cluster.store.tree().expect("a tree");
        let endpoint = cluster.endpoint(PEERS[0]);
        let verbs = endpoint.during(Phase::Execute);
        alone(&endpoint, async {
            let Peer { lookup, records } = Peer::<Inline>::open(&cluster, verbs, &table).await;
            let location = lookup.find(verbs, 7).await.expect("sound").expect("inserted above");
            let corrupt = RemoteError::Corrupt { at: location.record };
            let mut value = Vec::new();
            for damaged in 4..=17 {
                let word = word(&cluster, location, damaged);
                let sound = NoHtm.load(word);
                NoHtm.store(word, sound ^ 1 << 40);
                let read = records.read(verbs, location, 7, &mut value).await;
                assert_eq!(read, Err(corrupt.clone()), "word {damaged}");
                let locked =
                    lock_record(&records, verbs, location, 7, (holder(PEERS[0], 0), Leases::None), &mut value).await;
                assert_eq!(locked.unwrap_err(), corrupt);
                NoHtm.store(word, sound);
                let read = records.read(verbs, location, 7, &mut value).await.expect("mended");
                assert!(matches!(read, Look::Found(_)));
            }
            // A length that exceeds memory, or an invalid one.
            for length in [None, Some(254)] {
                let word = word(&cluster, location, 1);
                let sound = NoHtm.load(word);
                let head = Head::new(location.incarnation, length).checked();
                NoHtm.store(word, sound & !(0xFF << 42) | u64::from(head.short_length().unwrap_or(0xFF)) << 42);
                assert_eq!(records.read(verbs, location, 7, &mut value).await, Err(corrupt.clone()));
                NoHtm.store(word, sound);
            }
            assert!(
                table.update(&mut cluster.store.worker().expect("a worker"), 7, b"x").expect("room").is_some(),
                "it is not held"
            );

            let open = |offset| RecordPeer::<Inline>::open(verbs, cluster.at(offset));
            let at = cluster.at(plain.location());
            assert_eq!(open(plain.location()).await.unwrap_err(), RemoteError::NotForPeers { at });
            for other in [tree.location(), table.location() + 64] {
                assert!(matches!(open(other).await.unwrap_err(), RemoteError::NotThisTable { .. }));
            }
            let other_keys = RecordPeer::<Bytes>::open(verbs, cluster.at(table.location())).await;
            assert!(matches!(other_keys.unwrap_err(), RemoteError::NotThisTable { .. }));
            assert!(matches!(open(Offset::new(1 << 40)).await.unwrap_err(), RemoteError::Verb(_)));

            // A location of another table, which is not made for peers: a stale one.
            let at = cluster.at(plain.location());
            let foreign = drtm_kv::HashPeer::<Inline>::open(verbs, at).await.expect("the table");
            let foreign = foreign.find(verbs, 7).await.expect("sound").expect("it is there");
            let read = records.read(verbs, foreign, 7, &mut value).await;
            assert_eq!(read, Ok(Look::Stale));
        });
    }
}

#[test]
fn a_read_is_one_round_trip_and_a_write_two() {
    let (cluster, table) = with_table(LocalConfig::perfect());
    let mut worker = cluster.store.worker().expect("a worker");
    for key in 0..10 {
        table.insert(&mut worker, key, &bytes(200, key as u8)).expect("room").expect("new");
    }
    let endpoint = cluster.endpoint(PEERS[0]);
    let verbs = endpoint.during(Phase::Execute);
    alone(&endpoint, async {
        let Peer { lookup, records } = Peer::<Inline>::open(&cluster, verbs, &table).await;
        let (mut value, mut spent) = (Vec::new(), Vec::new());
        for key in 0..10 {
            let location = lookup.find(verbs, key).await.expect("sound").expect("inserted above");
            let before = endpoint.counters().total();
            let read = records.read(verbs, location, key, &mut value).await.expect("sound");
            assert!(matches!(read, Look::Found(_)));
            let between = endpoint.counters().total();
            let locked = lock_record(&records, verbs, location, key, (holder(PEERS[0], 0), Leases::None), &mut value)
                .await
                .expect("sound");
            let Look::Found(lock) = locked else { panic!("{locked:?}") };
            write_record(&records, verbs, &lock, key, &value).await.expect("of the same length");
            let after = endpoint.counters().total();
            let read = (between.reads - before.reads, between.round_trips - before.round_trips);
            spent.push((read, after.round_trips - between.round_trips));
        }
        // The first read learns the length of records.
        assert_eq!(spent[0], ((2, 2), 2));
        assert!(spent[1..].iter().all(|spent| *spent == ((1, 1), 2)), "{spent:?}");
    });
}

#[test]
fn locks_name_their_holders_node() {
    let cluster = Cluster::new(LocalConfig::perfect());
    assert_eq!(u16::from(cluster.store.worker().expect("a worker").holder().node()), OWNER.0);
    let region = std::sync::Arc::clone(cluster.store.region());
    for (node, incarnation) in [(256, 0), (0, 1 << 31)] {
        let refused = drtm_kv::Store::in_region_of(NodeId(node), incarnation, std::sync::Arc::clone(&region));
        assert!(matches!(refused, Err(KvError::Config { .. })));
    }
    let store = drtm_kv::Store::in_region_of(NodeId(255), (1 << 31) - 1, region).expect("room");
    let worker = store.worker().expect("a worker");
    assert_eq!((worker.holder().node(), worker.holder().incarnation()), (255, (1 << 31) - 1));
    assert_ne!(holder(PEERS[0], 0), holder(PEERS[1], 0));
    assert!(Version::new(1) < Version::new(2));
}
