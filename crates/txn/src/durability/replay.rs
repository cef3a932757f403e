//! Restoring rows: inserting those of a checkpoint, and replaying the log's later changes.
//!
//! The log's entries are partitioned by key over threads, so that each key belongs to one thread,
//! which sorts its entries by table, key and version. The newest value of a key wins, and a patch
//! must find exactly the version before it. A removal is kept until the end, so that an older value
//! does not come back. An entry stays encoded until its row is replayed: there may be many more of
//! them than rows.
//!
//! Rows of a checkpoint are inserted directly, a frame at a time, unless the log has entries for
//! them. Those rows become the start of their entries.

mod base;
mod gather;
mod item;
mod parallel;

use std::{
    borrow::Cow,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use drtm_htm::Engine;
use drtm_kv::{KvError, Locking, Placed, Store, Version, Worker};

use self::{
    base::{Changed, rows_of},
    gather::{Gathered, Origins, gather},
    item::{Item, OF_CHECKPOINT, hash_of, share_number, share_of},
    parallel::{in_parallel, threads},
};
use super::{
    LogError,
    checkpoint::CheckpointImage,
    format::{Change, Entry},
    progress::{Observer, RecoveryStep, Step},
    recovery::Recovered,
    tables::Tables,
};
use crate::{
    Error,
    memory::storage::{Expected, KeyRef, Storage},
    mutation::Mutation,
    schema::{
        catalog::{Catalog, Opened},
        table::Any,
    },
};

/// The approximate bytes of a row beside its key and its value.
const ROW: usize = 48;

/// The number of entries that is worth another thread.
const SHARE: usize = 1 << 14;

/// The sources of a replay.
#[derive(Clone, Copy)]
pub(super) struct Sources<'r, 's> {
    pub(super) recovered: &'r Recovered<'s>,
    pub(super) checkpoint: Option<&'r CheckpointImage>,
}

impl Sources<'_, '_> {
    /// Returns the last epoch that the checkpoint may contain.
    fn until(&self) -> u64 {
        self.checkpoint.map_or(0, |checkpoint| checkpoint.end.until)
    }

    fn damaged(&self, origins: &Origins, item: &Item<'_>, why: &'static str) -> Error {
        match (origins.get(item.record), self.checkpoint) {
            (Some((place, _)), _) => self.recovered.damaged(*place, why).into(),
            (None, Some(checkpoint)) => checkpoint.damaged(0, why).into(),
            (None, None) => LogError::Damaged { file: "the log".to_owned(), offset: 0, why }.into(),
        }
    }
}

/// The database that a replay fills.
struct Target<'r, E: Engine> {
    store: &'r Store<E>,
    catalog: &'r Catalog<E>,
    /// The bytes of rows in memory, and of those that did not fit.
    filled: AtomicU64,
    missed: AtomicU64,
}

/// Creates the tables of a log, and their rows. Returns its last note. `None` if it has none.
pub(super) fn replay<E: Engine>(
    sources: Sources<'_, '_>,
    (store, catalog): (&Store<E>, &Catalog<E>),
    observer: &Observer,
    fault: Option<Mutation>,
) -> Result<Option<Vec<u8>>, Error> {
    let Sources { recovered, checkpoint } = sources;
    let mut tables = Tables::default();
    if let Some(checkpoint) = checkpoint {
        base::tables_of(checkpoint, &mut tables)?;
        catalog.begin_identities_at(checkpoint.end.next_table);
    }
    let Gathered { origins, mut shares } = gather(recovered, (&mut tables, sources.until()), fault)?;
    // Rows of a dropped table are ignored, and those that were removed with all others. None of a
    // dropped table can be of a later epoch.
    let is_late = |item: &&Item<'_>| tables.dropped_in(item.table).is_some_and(|epoch| item.epoch() >= epoch);
    if let Some(late) = shares.iter().flatten().find(is_late) {
        return Err(sources.damaged(&origins, late, "a row was written to a table after it was dropped"));
    }
    if fault != Some(Mutation::ClearNotReplayed) {
        shares.iter_mut().for_each(|share| share.retain(|item| !tables.lack(item.table, item.epoch())));
    }
    if fault != Some(Mutation::IdsReused) {
        catalog.begin_identities_at(tables.next());
    }
    let target = &Target { store, catalog, filled: AtomicU64::new(0), missed: AtomicU64::new(0) };
    for (id, (shape, indexes)) in tables.standing() {
        catalog.restore(store, id, shape.clone(), indexes.clone())?;
    }
    let changed = match checkpoint {
        None => Vec::new(),
        Some(checkpoint) => restore((checkpoint, &tables), target, (&shares, &origins), observer)?,
    };
    let since = checkpoint.map_or(0, |checkpoint| checkpoint.header.since);
    for encoded in &changed {
        if let Some(entry) = Entry::decode(since, encoded) {
            share_of(&mut shares, &entry).push(Item::new(&entry, encoded, OF_CHECKPOINT));
        }
    }
    if shares.iter().map(Vec::len).sum::<usize>() < SHARE {
        shares = vec![shares.concat()];
    }
    let step = &observer.begin(RecoveryStep::Replay, shares.iter().map(|share| share.len() as u64).sum());
    in_parallel(shares, |share| {
        let replay = Replay { sources, origins: &origins, since, filler: target.filler()?, step, fault };
        replay.share(share)
    })?;
    target.fits()?;
    Ok(tables.note().cloned())
}

/// Inserts the rows of a checkpoint, and returns those that the items may change, encoded.
fn restore<E: Engine>(
    (checkpoint, tables): (&CheckpointImage, &Tables),
    target: &Target<'_, E>,
    (shares, origins): (&[Vec<Item<'_>>], &Origins),
    observer: &Observer,
) -> Result<Vec<Box<[u8]>>, Error> {
    let step = observer.begin(RecoveryStep::Checkpoint, checkpoint.end.rows);
    let changed = &in_parallel(shares.iter().collect(), |share: &Vec<Item<'_>>| {
        let mut changed = Changed::of(share.len());
        for item in share {
            let epoch = origins.get(item.record).map_or(0, |(_, epoch)| *epoch);
            if let Some(entry) = Entry::decode(epoch, item.encoded) {
                changed.add(hash_of(entry.table, entry.key));
            }
        }
        Ok(changed)
    })?;
    let count = AtomicU64::new(0);
    let threads = threads((checkpoint.end.rows / SHARE as u64) as usize);
    let rows = in_parallel(vec![(); threads], |()| {
        let (mut filler, mut rows, mut bytes) = (target.filler()?, Vec::new(), Vec::new());
        while let Some((offset, frame)) = checkpoint.next(&mut bytes)? {
            let mut found = 0;
            rows_of(checkpoint, (offset, frame), |entry, value, encoded| {
                found += 1;
                if tables.lack(entry.table, entry.epoch()) {
                    return Ok(());
                }
                let hash = hash_of(entry.table, entry.key);
                if changed[share_number(hash, changed.len())].may_have(hash) {
                    rows.push(encoded.into());
                    return Ok(());
                }
                match filler.put(entry.table, entry.key, value, entry.version)? {
                    None => Ok(()),
                    Some(why) => Err(checkpoint.damaged(offset, why).into()),
                }
            })?;
            count.fetch_add(found, Relaxed);
            step.advance(found);
        }
        Ok(rows)
    })?;
    if count.into_inner() != checkpoint.end.rows {
        return Err(checkpoint.damaged(0, "a row is missing").into());
    }
    Ok(rows.into_iter().flatten().collect())
}

impl<E: Engine> Target<'_, E> {
    fn filler(&self) -> Result<Filler<'_, E>, KvError> {
        Ok(Filler { target: self, worker: self.store.worker()? })
    }

    /// Checks that there was memory for all rows.
    ///
    /// # Errors
    ///
    /// [`LogError::TooLittleMemory`].
    fn fits(&self) -> Result<(), Error> {
        let (filled, missed) = (self.filled.load(Relaxed), self.missed.load(Relaxed));
        if missed == 0 {
            return Ok(());
        }
        let given = self.store.region().capacity();
        let share = u128::from(missed) * u128::from(given) / u128::from(filled.max(1));
        // A larger table takes proportionally more memory, but not much; and some should be left.
        let needed = (u128::from(given) + share) * 5 / 4;
        let needed = u64::try_from(needed).unwrap_or(u64::MAX).checked_next_multiple_of(1 << 20).unwrap_or(u64::MAX);
        Err(LogError::TooLittleMemory { given, needed }.into())
    }
}

/// Puts rows into tables, for one thread.
struct Filler<'r, E: Engine> {
    target: &'r Target<'r, E>,
    worker: Worker<E>,
}

impl<E: Engine> Filler<'_, E> {
    /// Inserts a row into its table. Returns what is wrong with it, if anything is.
    fn put(&mut self, table: u16, key: &[u8], value: &[u8], version: u64) -> Result<Option<&'static str>, KvError> {
        let Target { store, catalog, filled, missed } = self.target;
        let Some(table) = catalog.with_id(table) else { return Ok(Some("a row is in no table")) };
        let Some(key) = encoded(table, key) else { return Ok(Some("a key has another size than its table's")) };
        let bytes = (ROW + key.length() + value.len()) as u64;
        let is_full = missed.load(Relaxed) > 0;
        let placed =
            (!is_full).then(|| table.storage.place::<Any>(&mut self.worker, key, value, &Expected::Nothing, |_| ()));
        let seen = match placed {
            Some(Ok(Placed::Made(seen) | Placed::Found(seen))) => seen,
            Some(Err(error)) if !matches!(error, KvError::Full(_)) => return Err(error),
            // Rows that do not fit are counted, to report how much memory is missing.
            None | Some(Err(_)) => {
                missed.fetch_add(bytes, Relaxed);
                return Ok(None);
            }
        };
        filled.fetch_add(bytes, Relaxed);
        let records = store.records();
        // No other thread accesses the key or the table.
        if let Locking::Taken { .. } = records.lock(seen.at, self.worker.holder())? {
            records.publish(seen.at, Version::new(version))?;
        }
        Ok(None)
    }
}

struct Replay<'r, 's, E: Engine> {
    sources: Sources<'r, 's>,
    origins: &'r Origins,
    /// The epoch of the checkpoint's records.
    since: u64,
    filler: Filler<'r, E>,
    step: &'r Step<'r>,
    fault: Option<Mutation>,
}

/// The number of replayed entries between reports of progress.
const TOLD: u64 = 1 << 12;

impl<E: Engine> Replay<'_, '_, E> {
    fn share(mut self, mut items: Vec<Item<'_>>) -> Result<(), Error> {
        items.sort_unstable_by_key(|item| (item.table, item.prefix, item.order()));
        let (mut untold, mut entries) = (0, Vec::new());
        for alike in items.chunk_by(|one, other| (one.table, one.prefix) == (other.table, other.prefix)) {
            entries.clear();
            for item in alike {
                let epoch = self.origins.get(item.record).map_or(self.since, |(_, epoch)| *epoch);
                let Some(entry) = Entry::decode(epoch, item.encoded) else {
                    return Err(self.damaged(item, "an entry is damaged"));
                };
                entries.push((*item, entry));
            }
            // Most keys differ in their first bytes, or have no others.
            if entries.iter().any(|(_, entry)| entry.key != entries[0].1.key) {
                entries.sort_by(|(_, one), (_, other)| one.key.cmp(other.key));
            }
            for row in entries.chunk_by(|(_, one), (_, other)| one.key == other.key) {
                self.row(row)?;
            }
            untold += alike.len() as u64;
            if untold >= TOLD {
                self.step.advance(std::mem::take(&mut untold));
            }
        }
        self.step.advance(untold);
        Ok(())
    }

    fn damaged(&self, item: &Item<'_>, why: &'static str) -> Error {
        self.sources.damaged(self.origins, item, why)
    }

    /// Replays the entries of one row, in the order of its versions.
    fn row(&mut self, row: &[(Item<'_>, Entry<'_>)]) -> Result<(), Error> {
        // A checkpoint's row includes all older entries, whenever it was read.
        let begin = row.iter().position(|(item, _)| item.is_of_checkpoint()).unwrap_or(0);
        let Some(row) = row.get(begin..) else { return Ok(()) };
        let Some((first, Entry { table, key, .. })) = row.first() else { return Ok(()) };
        let mut now: Option<(Cow<'_, [u8]>, u64)> = None;
        // A patch whose base value is missing. The row was removed while the checkpoint was made,
        // after the patch.
        let mut gap: Option<&Item<'_>> = None;
        for (item, Entry { version, change, .. }) in row {
            let is_late = self.fault == Some(Mutation::LastEpochExcluded);
            let may_be_missing = item.epoch() + u64::from(is_late) <= self.sources.until();
            now = match (*change, now) {
                (Change::Put(value), _) => Some((Cow::Borrowed(value), *version)),
                (Change::Remove, _) => {
                    gap = gap.filter(|_| !may_be_missing);
                    None
                }
                (Change::Patch { previous, offset, bytes }, Some((mut value, before)))
                    if before == previous || self.fault == Some(Mutation::PreviousNotChecked) =>
                {
                    let offset = offset as usize;
                    let Some(patched) = value.to_mut().get_mut(offset..offset + bytes.len()) else {
                        return Err(self.damaged(item, "a patch is beyond its value"));
                    };
                    patched.copy_from_slice(bytes);
                    Some((value, *version))
                }
                (Change::Patch { .. }, None) if may_be_missing => {
                    gap = gap.or(Some(item));
                    None
                }
                (Change::Patch { .. }, _) => {
                    return Err(self.damaged(item, "a patch lacks the version before it"));
                }
            };
        }
        if let Some(item) = gap {
            return Err(self.damaged(item, "a patch lacks the version before it"));
        }
        let Some((value, version)) = now else { return Ok(()) };
        match self.filler.put(*table, key, &value, version)? {
            None => Ok(()),
            Some(why) => Err(self.damaged(first, why)),
        }
    }
}

/// Returns a key in the form that the table's storage takes.
fn encoded<'k, E: Engine>(table: &Opened<E>, key: &'k [u8]) -> Option<KeyRef<'k>> {
    let is_of_words = matches!(table.storage, Storage::HashOfWords(_) | Storage::TreeOfWords(_));
    KeyRef::of_encoding(key, is_of_words.then_some(table.key_size()))
}
