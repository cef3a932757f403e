//! Putting a log's rows into tables.
//!
//! Entries are divided by key over threads, so that each key is one thread's alone. Of a key's entries, the newest
//! value counts, and a patch must find exactly the version before it. A removal counts until the end, so that an older
//! value does not come back.

use std::{borrow::Cow, hash::BuildHasher, num::NonZero, thread};

use drtm_htm::Engine;
use drtm_kv::{KvError, Locking, Placed, Store, Version, Worker};
use rustc_hash::FxBuildHasher;

use super::{
    format::{Change, Entry},
    recovery::{Found, Place, Recovered, Tables},
};
use crate::{
    Error,
    catalog::{Catalog, Opened},
    mutation::Mutation,
    storage::{Expected, KeyRef, Storage},
    table::Any,
};

/// So many entries are worth another thread.
const SHARE: usize = 1 << 14;

struct Item<'s> {
    entry: Entry<'s>,
    place: Place,
}

/// Makes the tables of a log, and their rows.
pub(super) fn replay<E: Engine>(
    recovered: &Recovered<'_>,
    (store, catalog): (&Store<E>, &Catalog<E>),
    fault: Option<Mutation>,
) -> Result<(), Error> {
    let mut items = Vec::new();
    let mut damaged = None;
    let tables = recovered.replay(|Found { record, place }| {
        for entry in record.entries() {
            match entry {
                Ok(entry) if fault == Some(Mutation::RemovalsDropped) && entry.change == Change::Remove => {}
                Ok(entry) => items.push(Item { entry, place }),
                Err(damage) => damaged = Some(recovered.damaged(place, damage.why)),
            }
        }
    })?;
    if let Some(damaged) = damaged {
        return Err(damaged.into());
    }
    restore_tables(store, catalog, tables)?;
    let most = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = (items.len() / SHARE).clamp(1, most);
    let mut shares: Vec<_> = (0..threads).map(|_| Vec::new()).collect();
    for item in items {
        let hash = FxBuildHasher.hash_one((item.entry.table, item.entry.key));
        shares[(hash >> 32) as usize % threads].push(item);
    }
    let replay = |share| Replay { recovered, store, catalog, worker: store.worker()?, fault }.share(share);
    if threads == 1 {
        return shares.into_iter().try_for_each(replay);
    }
    thread::scope(|scope| {
        let threads: Vec<_> = shares.into_iter().map(|share| scope.spawn(move || replay(share))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(replayed) => replayed,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}

fn restore_tables<E: Engine>(store: &Store<E>, catalog: &Catalog<E>, tables: Tables) -> Result<(), Error> {
    tables.into_iter().try_for_each(|(id, (shape, indexes))| catalog.restore(store, id, shape, indexes))
}

struct Replay<'r, 's, E: Engine> {
    recovered: &'r Recovered<'s>,
    store: &'r Store<E>,
    catalog: &'r Catalog<E>,
    worker: Worker<E>,
    fault: Option<Mutation>,
}

impl<E: Engine> Replay<'_, '_, E> {
    fn share(mut self, mut items: Vec<Item<'_>>) -> Result<(), Error> {
        let key = |item: &Item<'_>| (item.entry.table, item.entry.version);
        items.sort_unstable_by(|one, other| one.entry.key.cmp(other.entry.key).then(key(one).cmp(&key(other))));
        let is_same =
            |one: &Item<'_>, other: &Item<'_>| (one.entry.table, one.entry.key) == (other.entry.table, other.entry.key);
        items.chunk_by(is_same).try_for_each(|row| self.row(row))
    }

    /// Replays what happened to one row, in the order of its versions.
    fn row(&mut self, row: &[Item<'_>]) -> Result<(), Error> {
        let Some(first) = row.first() else { return Ok(()) };
        let damaged = |item: &Item<'_>, why| Error::Log(self.recovered.damaged(item.place, why));
        let mut now: Option<(Cow<'_, [u8]>, u64)> = None;
        for item in row {
            let Entry { version, previous, change, .. } = item.entry;
            now = match (change, now) {
                (Change::Put(value), _) => Some((Cow::Borrowed(value), version)),
                (Change::Remove, _) => None,
                (Change::Patch { offset, bytes }, Some((mut value, before)))
                    if before == previous || self.fault == Some(Mutation::PreviousNotChecked) =>
                {
                    let offset = offset as usize;
                    let Some(patched) = value.to_mut().get_mut(offset..offset + bytes.len()) else {
                        return Err(damaged(item, "a patch is beyond its value"));
                    };
                    patched.copy_from_slice(bytes);
                    Some((value, version))
                }
                (Change::Patch { .. }, _) => return Err(damaged(item, "a patch lacks the version before it")),
            };
        }
        let Some((value, version)) = now else { return Ok(()) };
        let Some(table) = self.catalog.with_id(first.entry.table) else {
            return Err(damaged(first, "a row is in no table"));
        };
        let Some(key) = encoded(table, first.entry.key) else {
            return Err(damaged(first, "a key has another size than its table's"));
        };
        Ok(self.put(&table.storage, key, &value, Version::new(version))?)
    }

    fn put(&mut self, storage: &Storage<E>, key: KeyRef<'_>, value: &[u8], version: Version) -> Result<(), KvError> {
        let (Placed::Made(seen) | Placed::Found(seen)) =
            storage.place::<Any>(&mut self.worker, key, value, &Expected::Nothing, |_| ())?;
        let records = self.store.records();
        // No other thread knows the key, nor the table.
        if let Locking::Taken { .. } = records.lock(seen.at, self.worker.holder())? {
            records.publish(seen.at, version)?;
        }
        Ok(())
    }
}

/// Returns a key as its table's storage takes it.
fn encoded<'k, E: Engine>(table: &Opened<E>, key: &'k [u8]) -> Option<KeyRef<'k>> {
    match table.storage {
        Storage::HashOfBytes(_) | Storage::TreeOfBytes(_) => Some(KeyRef::Bytes(key)),
        Storage::HashOfWords(_) | Storage::TreeOfWords(_) => {
            let mut word = [0; 8];
            let unused = word.len().checked_sub(key.len()).filter(|_| key.len() == table.key_size)?;
            word[unused..].copy_from_slice(key);
            Some(KeyRef::Word(u64::from_be_bytes(word)))
        }
    }
}
