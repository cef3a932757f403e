//! Model checking of spans: two records are removed, their memory is cut anew for a larger one, all
//! zeros, and a late operation writes where one of them was.
//!
//! ```text
//! cargo test --package drtm-kv --features loom --test loom spans
//! ```

use std::sync::{Arc, Weak};

use drtm_htm::NoHtm;
use drtm_kv::{
    Current, ForHolder, HashConfig, HashTable, Holder, KvTable, Locking, Mutation, NoValue, Store, Version, Watch,
    mutated,
};

use crate::explore::explore;

const LATE: Holder = Holder::new(9, 9, 9, 9);

/// Knows no operations but [visits](Store::visit), which the store knows itself.
#[derive(Debug)]
struct Visits;

impl Watch for Visits {
    fn turned(&self) -> u64 {
        1
    }

    fn has_passed(&self, _turn: u64) -> bool {
        true
    }

    fn is_certain(&self) -> bool {
        true
    }

    fn have_all_ended(&self, _turn: u64) -> bool {
        true
    }
}

#[derive(Clone)]
struct World {
    store: Store<NoHtm>,
    table: HashTable<NoHtm>,
    _watch: Arc<Visits>,
}

impl World {
    fn new() -> Self {
        let store = Store::in_memory(NoHtm, 2048).expect("a store");
        let watch = Arc::new(Visits);
        let weak: Weak<dyn Watch> = Arc::downgrade(&watch) as _;
        store.watched_by(weak);
        let table = store.hash_table(HashConfig::default().fixed()).expect("a table");
        let mut worker = store.worker().expect("a worker");
        for key in [1, 2] {
            table.insert(&mut worker, key, &[7; 8]).expect("room").expect("it is new");
        }
        Self { store, table, _watch: watch }
    }

    /// Removes both records, and makes a larger one where they were. Whether that was possible.
    fn cut_anew(&self) -> bool {
        let mut worker = self.store.worker().expect("a worker");
        for key in [1, 2] {
            self.table.remove(&mut worker, key).expect("sound").expect("it is there");
        }
        let is_cut = self.store.find_memory();
        if is_cut {
            self.table.insert(&mut worker, 3, &[0; 64]).expect("room").expect("it is new");
            self.check();
        }
        is_cut
    }

    /// Looks a record up and writes it, without a look at its version: as a transaction does, which
    /// validates later.
    fn write_late(&self) {
        let _visit = self.store.visit();
        let Ok(found) = self.table.read(2, ForHolder(LATE), &mut NoValue).expect("sound") else { return };
        let records = self.store.records();
        if let Locking::Taken { .. } = records.lock(found.at, LATE).expect("in the region") {
            // It may have been taken out meanwhile, but not more.
            let written = records.write_part(found.at, Version::new(1 << 20), 0, &[9; 8]);
            written.expect("wrong: it is no such record any more");
        }
    }

    fn check(&self) {
        let mut value = [1; 64];
        if self.table.read(3, Current, &mut NoValue).expect("sound").is_ok() {
            self.table.get(3, &mut value).expect("sound").expect("it is there");
            assert_eq!(value, [0; 64], "wrong: another record was written");
        }
    }
}

fn a_late_writer_meets_memory_that_is_cut_anew() {
    let cut = |world: &World| {
        world.cut_anew();
    };
    explore(2, World::new, cut, |world| world.write_late(), |world, (), ()| world.check());
}

#[test]
fn memory_is_not_cut_anew_while_it_is_known() {
    a_late_writer_meets_memory_that_is_cut_anew();
}

#[test]
#[should_panic(expected = "wrong")]
fn without_quiescence_a_late_writer_hits_another_record() {
    mutated(Mutation::CutWithoutQuiescence, a_late_writer_meets_memory_that_is_cut_anew);
}
