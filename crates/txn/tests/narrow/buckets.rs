//! Versions of buckets that wrap around.

use drtm_txn::{Entry, Error};

use crate::world::{ROUND, World, case, elsewhere};

/// Changes an absent key's bucket as often as there are versions. At the end the key is present.
fn turn_round(world: &World, key: u64, [one, two]: [u64; 2]) {
    for _ in 0..(ROUND - 2) / 2 {
        world.insert(world.a, one, 0);
        world.remove(world.a, one);
    }
    world.insert(world.a, two, 0);
    world.insert(world.a, key, 42);
}

case! {
    /// An absent key was inserted, and its bucket has the same version as before.
    a_phantom_is_noticed {
        let world = World::new();
        let alike = world.alike(0);
        let mut reader = world.db.begin().expect("a transaction");
        assert_eq!(reader.get(world.a, 0).expect("alone"), None);
        reader.put(world.sorted, 2, &2).expect("room");
        turn_round(&world, 0, alike);
        assert!(matches!(reader.commit(), Err(Error::Conflict(_))), "wrong: an absent key is absent still");
    }
}

case! {
    /// A phantom in a closure that only reads one key.
    a_reader_of_an_absent_key_is_run_again {
        let world = World::new();
        let alike = world.alike(0);
        let mut runs = 0;
        let seen = world.db.read(|tx| {
            runs += 1;
            let absent = tx.get(world.a, 0)?;
            if runs == 1 {
                elsewhere(|| {
                    turn_round(&world, 0, alike);
                    world.insert(world.b, 1, 1);
                });
            }
            Ok((absent, tx.get(world.b, 1)?))
        });
        assert_eq!(seen.expect("sound"), (Some(42), Some(1)), "wrong: it was never so");
    }
}

case! {
    /// An insertion of a key that was absent at its lookup.
    a_key_is_not_inserted_twice {
        let world = World::new();
        let alike = world.alike(0);
        let mut writer = world.db.begin().expect("a transaction");
        assert_eq!(writer.get(world.a, 0).expect("alone"), None);
        turn_round(&world, 0, alike);
        let inserted = writer.insert(world.a, 0, &1).and_then(|()| writer.commit());
        assert!(matches!(inserted, Err(Error::Conflict(_))), "wrong: {inserted:?}");
        assert_eq!(world.get(world.a, 0), Some(42), "wrong: it was overwritten");
    }
}

case! {
    /// An insertion by a vacant entry, at the guard of the absent key.
    a_vacant_entry_is_not_filled_twice {
        let world = World::new();
        let alike = world.alike(0);
        let mut writer = world.db.begin().expect("a transaction");
        let Entry::Vacant(entry) = writer.entry(world.a, &0).expect("alone") else { panic!("it is there") };
        turn_round(&world, 0, alike);
        let inserted = entry.insert(&1).and_then(|()| writer.commit());
        assert!(matches!(inserted, Err(Error::Conflict(_))), "wrong: {inserted:?}");
        assert_eq!(world.get(world.a, 0), Some(42), "wrong: it was overwritten");
    }
}
