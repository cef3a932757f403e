//! Operations that a hash table refuses. The table stays usable.

use drtm_htm::NoHtm;
use drtm_kv::{Bytes, HashConfig, Inline, KvError, KvTable, MAX_KEY, MAX_VALUE, Store};
use drtm_rdma::Offset;

use crate::support::{MIB, store};

#[test]
fn values_and_keys_up_to_the_limit_and_no_longer() {
    let store = store(NoHtm, 64 * MIB);
    let table = store.hash_table_of::<Bytes>(HashConfig::default()).expect("a table");
    let mut worker = store.worker().expect("a worker");
    let (key, value) = (vec![1; MAX_KEY], vec![2; MAX_VALUE]);
    assert!(table.insert(&mut worker, &key, &value).expect("just fits").is_some());
    let mut found = vec![0; MAX_VALUE];
    assert_eq!(table.get(&key, &mut found).expect("sound").expect("there").length, MAX_VALUE);
    assert_eq!(found, value);

    let (long_key, long_value) = (vec![1; MAX_KEY + 1], vec![2; MAX_VALUE + 1]);
    let too_long = |error| matches!(error, KvError::ValueTooLong { length, longest } if length == MAX_VALUE + 1 && longest == MAX_VALUE);
    assert!(too_long(table.insert(&mut worker, b"x", &long_value).expect_err("a byte too long")));
    assert!(too_long(table.update(&mut worker, &key, &long_value).expect_err("a byte too long")));
    let key_too_long =
        |error| matches!(error, KvError::KeyTooLong { length, longest } if length == MAX_KEY + 1 && longest == MAX_KEY);
    assert!(key_too_long(table.insert(&mut worker, &long_key, b"").expect_err("a byte too long")));
    assert!(key_too_long(table.remove(&mut worker, &long_key).expect_err("a byte too long")));
    assert!(!table.contains(&long_key).expect("it cannot be there"));
    assert!(table.update(&mut worker, &key, b"short").expect("room").is_some());
    assert_eq!(table.count().expect("sound"), 1);
}

#[test]
fn a_full_region_refuses_insertions_and_keeps_the_rest() {
    let store = store(NoHtm, MIB);
    let table = store.hash_table(HashConfig::default()).expect("a table");
    let mut worker = store.worker().expect("a worker");
    let mut inserted = Vec::new();
    let refused = (0_u64..).find_map(|key| match table.insert(&mut worker, key, &[7; 500]) {
        Ok(Some(_)) => {
            inserted.push(key);
            None
        }
        Ok(None) => panic!("{key} was not there"),
        Err(error) => Some(error),
    });
    assert!(matches!(refused, Some(KvError::Full(_))), "{refused:?}");
    assert!(inserted.len() > 500, "{}", inserted.len());
    let mut value = [0; 500];
    for key in &inserted {
        assert!(table.get(*key, &mut value).expect("sound").is_some() && value == [7; 500]);
    }
    // Removals free memory, which is reused.
    for round in 0..20 {
        for key in &inserted[..100] {
            assert!(table.remove(&mut worker, *key).expect("sound").is_some(), "round {round}");
        }
        for key in &inserted[..100] {
            assert!(table.insert(&mut worker, *key, &[8; 500]).expect("room was made").is_some(), "round {round}");
        }
    }
    assert_eq!(table.count().expect("sound"), inserted.len() as u64);
}

#[test]
fn a_table_that_does_not_grow_fills_its_chains() {
    let store = store(NoHtm, 64 * MIB);
    let table = store.hash_table(HashConfig::for_keys(100).fixed()).expect("a table");
    let mut worker = store.worker().expect("a worker");
    for key in 0..10_000 {
        assert!(table.insert(&mut worker, key, b"").expect("room").is_some());
    }
    assert_eq!(table.buckets().expect("sound"), 17);
    assert!((0..10_000).all(|key| table.contains(key).expect("sound")));
    for key in 0..10_000 {
        assert!(table.remove(&mut worker, key).expect("sound").is_some());
    }
    assert!((0..10_000).all(|key| !table.contains(key).expect("sound")));
}

#[test]
fn only_the_table_that_is_there_can_be_opened() {
    let store = store(NoHtm, 64 * MIB);
    let table = store.hash_table(HashConfig::default()).expect("a table");
    for (at, what) in [(table.location() + 128, "a line of zeros"), (table.location() + 8, "the inside of a table")] {
        let refused = store.open_hash_table::<Inline>(at).expect_err(what);
        assert!(matches!(refused, KvError::NotThisTable { .. } | KvError::Corrupt(_)), "{refused}");
    }
    assert!(matches!(store.open_hash_table::<Bytes>(table.location()), Err(KvError::NotThisTable { .. })));
    assert!(matches!(store.open_hash_table::<Inline>(Offset::new(1 << 60)), Err(KvError::Corrupt(_))));
    assert!(store.open_hash_table::<Inline>(table.location()).is_ok());
}

#[test]
fn configurations_that_describe_no_table_are_refused() {
    let store = store(NoHtm, 64 * MIB);
    for occupancy in [0.0, -1.0, f64::NAN, f64::INFINITY, 5.0] {
        let refused = store.hash_table(HashConfig::default().with_occupancy(occupancy)).expect_err("no occupancy");
        assert!(matches!(refused, KvError::Config { .. }), "{refused}");
    }
    let refused = store.hash_table(HashConfig::for_keys(u64::MAX)).expect_err("more than there is room for");
    assert!(matches!(refused, KvError::Full(_)), "{refused}");
    assert!(matches!(Store::in_memory(NoHtm, 1 << 47), Err(KvError::RegionTooLarge { .. } | KvError::Region(_))));
}
