//! What a node has of a group's rows, as the group's backup: tables which no transaction reads
//! until the node serves them.
//!
//! Records of different rings come in any order. Of a row, the newest version wins, so that the
//! order does not matter. A row that is removed leaves a record behind that says so, until no older
//! version of it can come any more (`backup`).

use drtm_htm::Engine;
use drtm_kv::{Current, InAnyState, KvError, Locking, NoValue, Placed, ReadEntry, Reaped, Store, Version, Worker};
use drtm_rdma::RegionError;

use crate::{
    commit::epoch::epoch_of,
    durability::format::{Change, Entry},
    memory::storage::{Expected, KeyRef, OwnedKey, Storage, Tour},
    schema::table::Any,
};

/// A table with a group's rows, and how long its keys are if they are words.
#[derive(Debug)]
pub(in crate::cluster) struct ReplicaTable<E: Engine> {
    pub(super) storage: Storage<E>,
    pub(super) key_size: usize,
    /// What identifies it in the backup's log, if it is logged.
    pub(super) id: Option<u16>,
}

/// See the [module](self).
#[derive(Debug)]
pub(in crate::cluster) struct Replica<E: Engine> {
    pub(in crate::cluster) group: u16,
    /// By the numbers of the cluster's tables. Those that every node has are not among them.
    pub(in crate::cluster) tables: Vec<Option<ReplicaTable<E>>>,
    /// The last epoch in which something was written that is here.
    pub(in crate::cluster) last_epoch: u64,
    /// Whether rows were taken out of memory that a log may have.
    pub(super) is_cut: bool,
}

/// What has become of an entry.
#[derive(Debug)]
pub(super) enum Applied {
    /// Nothing: something newer was there.
    Nothing,
    Put,
    Removed(Grave),
}

/// How far taking out all rows has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Emptied {
    More,
    All,
}

/// A record that says that a row is not there.
#[derive(Debug)]
pub(super) struct Grave {
    table: u16,
    key: OwnedKey,
    version: u64,
}

/// Why an entry was not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cluster) enum NotApplied {
    /// There is no memory, or the row is locked. It can be applied later.
    Full,
    /// It cannot be: it is of no table of the owner's, or the store is corrupt.
    Wrong,
}

impl From<KvError> for NotApplied {
    fn from(error: KvError) -> Self {
        match error {
            KvError::Full(_) | KvError::Busy | KvError::Region(RegionError::Allocate { .. }) => Self::Full,
            _ => Self::Wrong,
        }
    }
}

impl<E: Engine> ReplicaTable<E> {
    /// Wraps a table of the backup's database. A backup does not wait for locked records.
    pub(in crate::cluster) fn new(storage: Storage<E>, key_size: usize, id: Option<u16>) -> Self {
        Self { storage: storage.impatient(), key_size, id }
    }

    /// Returns a key as the storage takes it. `None` if it is not one of the table's.
    fn key<'k>(&self, key: &'k [u8]) -> Option<KeyRef<'k>> {
        KeyRef::of_encoding(key, self.storage.takes(KeyRef::Word(0)).then_some(self.key_size))
    }
}

impl<E: Engine> Replica<E> {
    pub(in crate::cluster) fn new(group: u16, tables: Vec<Option<ReplicaTable<E>>>) -> Self {
        Self { group, tables, last_epoch: 0, is_cut: false }
    }

    /// Returns the newest epoch of a row that is here. `None` if there are no rows.
    pub(super) fn newest_epoch(&self) -> Result<Option<u64>, KvError> {
        let mut newest = None;
        for storage in self.tables.iter().flatten().map(|table| &table.storage) {
            let mut tour = storage.tour()?;
            while storage.rows(&mut tour, |_, _, version| newest = newest.max(Some(epoch_of(version))))? {}
        }
        Ok(newest)
    }

    /// Returns how many rows there are, graves included.
    pub(super) fn records(&self) -> Result<u64, KvError> {
        self.tables.iter().flatten().map(|table| table.storage.records()).sum()
    }

    /// Returns a table by its number in the cluster.
    pub(super) fn table(&self, number: u16) -> Option<&ReplicaTable<E>> {
        self.tables.get(usize::from(number))?.as_ref()
    }

    /// Applies what happened to a row, unless something newer has.
    pub(super) fn apply(
        &self,
        (store, worker): (&Store<E>, &mut Worker<E>),
        entry: &Entry<'_>,
    ) -> Result<Applied, NotApplied> {
        let Some(table) = self.table(entry.table) else { return Err(NotApplied::Wrong) };
        let Some(key) = table.key(entry.key) else { return Err(NotApplied::Wrong) };
        let value: &[u8] = match entry.change {
            Change::Put(value) => value,
            Change::Remove => &[],
            // A ring has whole values only.
            Change::Patch { .. } => return Err(NotApplied::Wrong),
        };
        let (storage, records) = (&table.storage, store.records());
        let placed = storage.place::<Any>(worker, key, value, &Expected::Nothing, |_| ())?;
        let (at, is_made) = match placed {
            Placed::Made(seen) => (seen.at, true),
            Placed::Found(seen) => (seen.at, false),
        };
        let Locking::Taken { version: before, .. } = records.lock(at, worker.holder())? else {
            // A transaction of a view in which this node has served it is about to unlock it.
            return Err(NotApplied::Full);
        };
        let version = Version::new(entry.version);
        if !is_made && before.number() >= entry.version {
            records.unlock(at);
            return Ok(Applied::Nothing);
        }
        match entry.change {
            Change::Remove => {
                records.publish(at, version.as_removed())?;
                let grave = Grave { table: entry.table, key: key.into(), version: entry.version };
                return Ok(Applied::Removed(grave));
            }
            _ if is_made => records.publish(at, version)?,
            _ => match storage.reserve(worker, key, at, value.len()) {
                Ok(memory) => storage.write(worker, key, at, memory, version, value).map(drop)?,
                Err(error) => {
                    records.unlock(at);
                    return Err(error.into());
                }
            },
        }
        Ok(Applied::Put)
    }

    /// Takes some rows out, from where it was `at` on: a group, a table, and how far it has come
    /// there. No transaction needs them.
    pub(super) fn empty_some(
        &self,
        (store, worker): (&Store<E>, &mut Worker<E>),
        at: &mut Option<(u16, usize, Tour)>,
    ) -> Result<Emptied, KvError> {
        let tables = || self.tables.iter().flatten().map(|table| &table.storage);
        let (number, mut tour) = match at.take() {
            Some((group, number, tour)) if group == self.group => (number, tour),
            _ => match tables().next() {
                Some(first) => (0, first.tour()?),
                None => return Ok(Emptied::All),
            },
        };
        let Some(storage) = tables().nth(number) else { return Ok(Emptied::All) };
        let mut keys: Vec<OwnedKey> = Vec::new();
        let has_more = storage.visit_some(&mut tour, |key| keys.push(key.into()))?;
        for key in &keys {
            self.take_out((store, worker), storage, key.as_ref())?;
        }
        if has_more {
            *at = Some((self.group, number, tour));
            return Ok(Emptied::More);
        }
        // A row that was locked is met once more.
        match (storage.records()? > 0, tables().nth(number + 1)) {
            (true, _) => *at = Some((self.group, number, storage.tour()?)),
            (false, Some(next)) => *at = Some((self.group, number + 1, next.tour()?)),
            (false, None) => return Ok(Emptied::All),
        }
        Ok(Emptied::More)
    }

    /// Takes a row out, unless another transaction has it locked.
    fn take_out(
        &self,
        (store, worker): (&Store<E>, &mut Worker<E>),
        storage: &Storage<E>,
        key: KeyRef<'_>,
    ) -> Result<(), KvError> {
        let records = store.records();
        let Ok(found) = storage.read::<Any, _>(key, InAnyState, &mut NoValue)? else { return Ok(()) };
        let Locking::Taken { version, .. } = records.lock(found.at, worker.holder())? else { return Ok(()) };
        records.publish(found.at, version.as_removed())?;
        if let Ok(seen) = storage.read::<Any, _>(key, Current, &mut NoValue)? {
            storage.reap(worker, key, seen, || ())?;
        }
        Ok(())
    }

    /// Takes a grave out, unless the row has come back. Returns whether that is done.
    pub(super) fn fill(&self, worker: &mut Worker<E>, grave: &Grave) -> Result<bool, KvError> {
        let Some(table) = self.table(grave.table) else { return Ok(true) };
        let (storage, key) = (&table.storage, grave.key.as_ref());
        let found = storage.read::<Any, _>(key, Current, &mut NoValue)?;
        let removed = Version::new(grave.version).as_removed();
        let Ok(seen @ ReadEntry { version, .. }) = found else { return Ok(true) };
        if version != removed {
            return Ok(true);
        }
        Ok(storage.reap(worker, key, seen, || ())? != Reaped::Busy)
    }
}

#[cfg(test)]
mod tests {
    use drtm_htm::NoHtm;
    use proptest::prelude::*;

    use super::*;
    use crate::cluster::log::{OwnedRow, rows_of};

    /// Replicas of a table of each shape.
    fn replica(store: &Store<NoHtm>) -> Replica<NoHtm> {
        let shapes = [(false, true, 2), (false, false, 0), (true, true, 8), (true, false, 0)];
        let tables = shapes.map(|(is_ordered, fits, key_size)| {
            let storage = Storage::create(store, is_ordered, fits, 0, false).expect("memory");
            Some(ReplicaTable::new(storage, key_size, None))
        });
        Replica::new(0, tables.into())
    }

    fn key(table: u16, number: u64) -> Vec<u8> {
        match table {
            0 => (number as u16).to_be_bytes().to_vec(),
            2 => number.to_be_bytes().to_vec(),
            _ => format!("a key that is longer than a word {number}").into_bytes(),
        }
    }

    /// The key as rows are compared by.
    fn shown(table: u16, number: u64) -> Vec<u8> {
        if table.is_multiple_of(2) { number.to_be_bytes().to_vec() } else { key(table, number) }
    }

    proptest! {
        /// Against the newest version of each row, whatever the order in which they come.
        #[test]
        fn the_newest_version_wins(
            steps in prop::collection::vec((0..4_u16, 0..3_u64, prop::option::of(0..70_usize)), 0..60),
            order in any::<prop::sample::Index>(),
            seed in any::<u64>(),
        ) {
            let store = Store::in_memory(NoHtm, 16 << 20).expect("memory");
            let (replica, mut worker) = (replica(&store), store.worker().expect("few"));
            // Versions grow from step to step, from row to row.
            let mut steps: Vec<_> = steps.into_iter().zip(10..).collect();
            let mut newest = std::collections::BTreeMap::new();
            for ((table, number, value), version) in &steps {
                newest.insert((*table, *number), (*version, value.map(|length| vec![*version as u8; length])));
            }
            let mut random = seed | 1;
            for at in (1..steps.len()).rev() {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(order.index(1 << 20) as u64);
                steps.swap(at, (random >> 33) as usize % (at + 1));
            }
            let mut graves = Vec::new();
            for ((table, number, value), version) in &steps {
                let (key, value) = (key(*table, *number), value.map(|length| vec![*version as u8; length]));
                let change = value.as_ref().map_or(Change::Remove, |value| Change::Put(value));
                let entry = Entry { table: *table, key: &key, version: *version, change };
                if let Applied::Removed(grave) = replica.apply((&store, &mut worker), &entry).expect("there is memory") {
                    graves.push(grave);
                }
                // Twice is as once.
                let again = replica.apply((&store, &mut worker), &entry).expect("there is memory");
                prop_assert!(matches!(again, Applied::Nothing));
            }
            let expected: Vec<_> = newest.iter().filter_map(|((table, number), (version, value))| {
                let (table, version) = (*table, *version);
                Some(OwnedRow { table, key: shown(table, *number), version, value: value.clone()? })
            }).collect();
            let rows = || rows_of((0..).zip(replica.tables.iter().flatten().map(|table| &table.storage))).expect("a store");
            prop_assert_eq!(rows(), expected.clone());
            for grave in &graves {
                prop_assert!(replica.fill(&mut worker, grave).expect("a store"));
            }
            prop_assert_eq!(rows(), expected.clone());
            let tables = replica.tables.iter().flatten();
            let records = tables.map(|table| table.storage.records().expect("a store")).sum::<u64>();
            prop_assert_eq!(records as usize, expected.len());
        }
    }

    #[test]
    fn what_is_of_no_table_is_refused() {
        let store = Store::in_memory(NoHtm, 16 << 20).expect("memory");
        let (replica, mut worker) = (replica(&store), store.worker().expect("few"));
        let put = |table, key: &[u8], change| {
            let entry = Entry { table, key, version: 9, change };
            replica.apply((&store, &mut store.worker().expect("few")), &entry).map(drop)
        };
        assert_eq!(put(4, b"key", Change::Put(b"value")), Err(NotApplied::Wrong));
        assert_eq!(put(0, b"key", Change::Put(b"value")), Err(NotApplied::Wrong));
        assert_eq!(put(1, b"key", Change::Patch { previous: 8, offset: 0, bytes: b"value" }), Err(NotApplied::Wrong));
        assert_eq!(put(1, b"key", Change::Put(b"value")), Ok(()));
        let grave = Grave { table: 1, key: KeyRef::Bytes(b"key").into(), version: 9 };
        assert!(replica.fill(&mut worker, &grave).expect("a store"), "the row is there, and stays");
        assert_eq!(replica.table(1).expect("it is there").storage.records().expect("a store"), 1);
    }
}
