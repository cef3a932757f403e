//! Reuse of records' memory.

use drtm_kv::{Mutation, mutated};
use drtm_txn::{Conflict, Error, Tx};

use crate::world::{ROUND, World, case, elsewhere};

case! {
    /// A row that was read is removed, and its memory becomes another table's row of the same
    /// version.
    a_stale_read_does_not_commit {
        let world = World::new();
        world.insert(world.a, 1, 100);
        let mut reader = world.db.begin().expect("a transaction");
        assert_eq!(reader.get(world.a, 1).expect("alone"), Some(100));
        reader.put(world.sorted, 1, &1).expect("room");
        world.remove(world.a, 1);
        world.use_memory(ROUND - 1);
        world.insert(world.b, 7, 7);
        assert!(matches!(reader.commit(), Err(Error::Conflict(_))), "wrong: a stale read commits");
    }
}

/// A transaction writes a row whose memory becomes another table's row before the commit.
fn lands(write: impl FnOnce(&mut Tx<'_>, &World)) {
    let world = World::new();
    world.insert(world.a, 1, 100);
    let mut writer = world.db.begin().expect("a transaction");
    write(&mut writer, &world);
    world.remove(world.a, 1);
    world.use_memory(ROUND - 1);
    world.insert(world.b, 7, 7);
    let committed = writer.commit();
    assert_eq!(world.get(world.b, 7), Some(7), "wrong: another table's row was written");
    assert!(matches!(committed, Err(Error::Conflict(_))), "wrong: it commits");
}

case! {
    /// A row is read and written.
    a_write_does_not_land_in_another_row {
        lands(|writer, world| {
            writer.update(world.a, 1, |value| *value = 999).expect("alone");
        });
    }
}

case! {
    /// A blind write, for which only the record's place is known.
    a_blind_write_does_not_land_in_another_row {
        lands(|writer, world| writer.put(world.a, 1, &999).expect("alone"));
    }
}

case! {
    /// A read-only transaction in a closure.
    a_reader_is_run_again {
        let world = World::new();
        world.insert(world.a, 1, 100);
        world.insert(world.a, 2, 200);
        let mut runs = 0;
        let seen = world.db.read(|tx| {
            runs += 1;
            let one = tx.get(world.a, 1)?;
            if runs == 1 {
                elsewhere(|| {
                    world.remove(world.a, 1);
                    world.use_memory(ROUND - 1);
                    world.insert(world.b, 7, 7);
                    world.db.transact(|tx| tx.update(world.a, 2, |value| *value = 201)).expect("alone");
                });
            }
            Ok((one, tx.get(world.a, 2)?))
        });
        assert_eq!(seen.expect("sound"), (None, Some(201)), "wrong: it was never so");
    }
}

case! {
    /// A row whose place was prefetched.
    a_prefetched_place_does_not_lead_to_another_row {
        let world = World::new();
        (1..=3).for_each(|key| world.insert(world.a, key, 100 + key));
        let tx = world.db.begin().expect("a transaction");
        tx.prefetch(world.a, [1_u64, 2, 3].iter()).expect("its own table");
        // From here on the rows' places are known.
        assert_eq!(tx.get(world.a, 3).expect("alone"), Some(103));
        world.remove(world.a, 1);
        world.use_memory(ROUND - 1);
        world.insert(world.b, 1, 777);
        assert_ne!(tx.get(world.a, 1).ok(), Some(Some(777)), "wrong: another table's row");
    }
}

case! {
    /// A running transaction reads a consistent state.
    a_read_after_a_round_fails {
        let world = World::new();
        world.insert(world.a, 1, 100);
        world.insert(world.a, 2, 200);
        let reader = world.db.begin().expect("a transaction");
        assert_eq!(reader.get(world.a, 1).expect("alone"), Some(100));
        world.remove(world.a, 1);
        world.use_memory(ROUND - 1);
        world.insert(world.b, 7, 7);
        world.db.transact(|tx| tx.update(world.a, 2, |value| *value = 201)).expect("alone");
        let seen = reader.get(world.a, 2);
        assert!(matches!(seen, Err(Error::Conflict(Conflict::Validation))), "wrong: {seen:?}");
    }
}

/// Returns what a run reads at a prefetched place whose memory is another table's row by then. The
/// run will be retried; but not even then may it see that row.
fn read_at_a_stale_place() -> Option<u64> {
    let world = World::new();
    (1..=3).for_each(|key| world.insert(world.a, key, 100 + key));
    let mut seen = Vec::new();
    let read = world.db.read(|tx| {
        if seen.is_empty() {
            tx.prefetch(world.a, [1_u64, 2, 3].iter())?;
            // From here on the rows' places are known.
            assert_eq!(tx.get(world.a, 3)?, Some(103));
            elsewhere(|| {
                world.remove(world.a, 1);
                world.insert(world.b, 1, 777);
            });
            seen.push(tx.get(world.a, 1)?);
        }
        Ok(())
    });
    read.expect("sound");
    seen[0]
}

#[test]
fn a_place_is_of_one_use_of_its_memory() {
    assert_eq!(read_at_a_stale_place(), None);
    mutated(Mutation::PlaceWithoutIncarnation, || {
        assert_eq!(read_at_a_stale_place(), Some(777), "the fault is not noticed");
    });
}

/// Snapshots keep their places, however much memory is reused meanwhile, and do not fail.
#[test]
fn a_snapshot_goes_on_seeing_what_was() {
    let world = World::new();
    let keys = 0..20_u64;
    keys.clone().for_each(|key| world.insert(world.a, key, key));
    world.db.transact(|tx| keys.clone().try_for_each(|key| tx.insert(world.sorted, key, &key))).expect("room");
    let snapshot = world.db.snapshot().expect("a snapshot");
    snapshot.prefetch(world.a, keys.clone()).expect("its own table");
    for round in 0..10 * ROUND {
        for key in keys.clone().step_by(3) {
            world.db.transact(|tx| tx.put(world.a, key, &(1_000 + round))).expect("alone");
            world.db.transact(|tx| tx.remove(world.sorted, key)).expect("alone");
            world.db.transact(|tx| tx.insert(world.sorted, key, &round)).expect("alone");
        }
        world.use_memory(1);
        let sum: u64 =
            keys.clone().map(|key| snapshot.get(world.a, key).expect("it is kept").expect("it was there")).sum();
        assert_eq!(sum, keys.clone().sum::<u64>(), "round {round}");
        let sorted = snapshot.range(world.sorted, ..).expect("its own table").rows();
        assert!(sorted.map(|row| row.expect("it is kept")).eq(keys.clone().map(|key| (key, key))), "round {round}");
    }
    drop(snapshot);
    world.use_memory(100);
    assert_eq!(world.db.read(|tx| tx.range(world.sorted, ..)?.count()).expect("sound"), 20);
}

/// Garbage is removed by its key and version, not by its place alone.
#[test]
fn garbage_does_not_take_out_a_later_row() {
    let world = World::new();
    world.insert(world.a, 1, 100);
    let snapshot = world.db.snapshot().expect("a snapshot");
    // Left behind, because the snapshot may need the old version.
    world.remove(world.a, 1);
    world.insert(world.a, 1, 101);
    drop(snapshot);
    for round in 0..5 * ROUND {
        world.remove(world.a, 1);
        world.use_memory(round % ROUND);
        world.insert(world.a, 1, round);
        // Garbage is retried periodically.
        for _ in 0..40 {
            assert_eq!(world.db.transact(|tx| tx.get(world.a, 1)).expect("sound"), Some(round));
        }
    }
    assert_eq!(world.get(world.b, 1), None);
}

/// An active transaction sees one turn for records, however often memory is reused.
#[test]
fn a_long_transaction_is_not_given_up_for_memory() {
    let world = World::new();
    world.insert(world.a, 1, 100);
    let mut long = world.db.begin().expect("a transaction");
    assert_eq!(long.get(world.a, 1).expect("alone"), Some(100));
    long.put(world.sorted, 1, &1).expect("room");
    world.use_memory(100 * ROUND);
    long.commit().expect("nothing that it has seen has changed");
}
