//! Restoring rows: inserting those of a checkpoint, and replaying the log's later changes.
//!
//! The log's entries are partitioned by key over threads, so that each key belongs to one thread.
//! The newest value of a key wins, and a patch must find exactly the version before it. A removal
//! is kept until the end, so that an older value does not come back.
//!
//! Rows of a checkpoint are inserted directly, a frame at a time, unless the log has entries for
//! them. Those rows become the start of their entries.

mod base;

use std::{
    borrow::Cow,
    hash::BuildHasher,
    num::NonZero,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use drtm_htm::Engine;
use drtm_kv::{KvError, Locking, Placed, Store, Version, Worker};
use drtm_rdma::RegionError;
use rustc_hash::FxBuildHasher;

use self::base::{BaseRow, rows_of};
use super::{
    LogError,
    checkpoint::CheckpointImage,
    format::{Change, Entry},
    progress::{Observer, RecoveryStep, Step},
    recovery::{Found, Place, Recovered},
    tables::Tables,
};
use crate::{
    Error,
    catalog::{Catalog, Opened},
    epoch::epoch_of,
    mutation::Mutation,
    storage::{Expected, KeyRef, Storage},
    table::Any,
};

/// The approximate bytes of a row beside its key and its value.
const ROW: usize = 48;

/// The number of entries that is worth another thread.
const SHARE: usize = 1 << 14;

/// An entry of the log, or a row of a checkpoint.
struct Item<'s> {
    entry: Entry<'s>,
    /// Its place in the log. `None` for a row of a checkpoint.
    place: Option<Place>,
}

impl Item<'_> {
    fn epoch(&self) -> u64 {
        epoch_of(Version::new(self.entry.version))
    }
}

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

    fn damaged(&self, item: &Item<'_>, why: &'static str) -> Error {
        match (item.place, self.checkpoint) {
            (Some(place), _) => self.recovered.damaged(place, why).into(),
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

/// Creates the tables of a log, and their rows.
pub(super) fn replay<E: Engine>(
    sources: Sources<'_, '_>,
    (store, catalog): (&Store<E>, &Catalog<E>),
    observer: &Observer,
    fault: Option<Mutation>,
) -> Result<(), Error> {
    let Sources { recovered, checkpoint } = sources;
    let mut tables = Tables::default();
    if let Some(checkpoint) = checkpoint {
        base::tables_of(checkpoint, &mut tables)?;
        catalog.begin_identities_at(checkpoint.end.next_table);
    }
    let mut items = Vec::new();
    let mut damaged = None;
    recovered.replay(&mut tables, sources.until(), |Found { record, place }| {
        for entry in record.entries() {
            match entry {
                Ok(entry) if fault == Some(Mutation::RemovalsDropped) && entry.change == Change::Remove => {}
                Ok(entry) => items.push(Item { entry, place: Some(place) }),
                Err(damage) => damaged = Some(recovered.damaged(place, damage.why)),
            }
        }
    })?;
    if let Some(damaged) = damaged {
        return Err(damaged.into());
    }
    // Rows of a dropped table are ignored. None can be of a later epoch.
    let is_late = |item: &&Item<'_>| tables.dropped_in(item.entry.table).is_some_and(|epoch| item.epoch() >= epoch);
    if let Some(late) = items.iter().find(is_late) {
        return Err(sources.damaged(late, "a row was written to a table after it was dropped"));
    }
    items.retain(|item| tables.dropped_in(item.entry.table).is_none());
    if fault != Some(Mutation::IdsReused) {
        catalog.begin_identities_at(tables.next());
    }
    let target = &Target { store, catalog, filled: AtomicU64::new(0), missed: AtomicU64::new(0) };
    for (id, (shape, indexes)) in tables.standing() {
        catalog.restore(store, *id, shape.clone(), indexes.clone())?;
    }
    let changed = match checkpoint {
        None => Vec::new(),
        Some(checkpoint) => restore((checkpoint, &tables), target, &items, observer)?,
    };
    items.extend(changed.iter().map(|row| Item { entry: row.entry(), place: None }));
    let threads = threads(items.len() / SHARE);
    let mut shares: Vec<_> = (0..threads).map(|_| Vec::new()).collect();
    for item in items {
        let hash = FxBuildHasher.hash_one((item.entry.table, item.entry.key));
        shares[(hash >> 32) as usize % threads].push(item);
    }
    let step = &observer.begin(RecoveryStep::Replay, shares.iter().map(|share| share.len() as u64).sum());
    in_parallel(shares, |share| Replay { sources, filler: target.filler()?, step, fault }.share(share))?;
    target.fits()
}

/// Returns how many threads some work is worth.
fn threads(worth: usize) -> usize {
    worth.clamp(1, thread::available_parallelism().map_or(1, NonZero::get))
}

/// Runs `work` for each share, in threads of their own if there are several.
fn in_parallel<T: Send, R: Send>(shares: Vec<T>, work: impl Fn(T) -> Result<R, Error> + Sync) -> Result<Vec<R>, Error> {
    if shares.len() == 1 {
        return shares.into_iter().map(work).collect();
    }
    thread::scope(|scope| {
        let threads: Vec<_> = shares.into_iter().map(|share| scope.spawn(|| work(share))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect()
    })
}

/// Inserts the rows of a checkpoint, and returns those that the items change.
fn restore<E: Engine>(
    (checkpoint, tables): (&CheckpointImage, &Tables),
    target: &Target<'_, E>,
    items: &[Item<'_>],
    observer: &Observer,
) -> Result<Vec<BaseRow>, Error> {
    let step = observer.begin(RecoveryStep::Checkpoint, checkpoint.end.rows);
    let changed: base::Changed<'_> = items.iter().map(|item| (item.entry.table, item.entry.key)).collect();
    let count = AtomicU64::new(0);
    let threads = threads((checkpoint.end.rows / SHARE as u64) as usize);
    let rows = in_parallel(vec![(); threads], |()| {
        let (mut filler, mut rows, mut bytes) = (target.filler()?, Vec::new(), Vec::new());
        while let Some((offset, frame)) = checkpoint.next(&mut bytes)? {
            let mut found = 0;
            rows_of(checkpoint, (offset, frame), |entry, value| {
                found += 1;
                if tables.dropped_in(entry.table).is_some() {
                    return Ok(());
                }
                if changed.contains(&(entry.table, entry.key)) {
                    rows.push(BaseRow::new(entry, value));
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
            Some(Err(error)) if !matches!(error, KvError::Region(RegionError::Full { .. })) => return Err(error),
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
    filler: Filler<'r, E>,
    step: &'r Step<'r>,
    fault: Option<Mutation>,
}

/// The number of replayed entries between reports of progress.
const TOLD: u64 = 1 << 12;

impl<E: Engine> Replay<'_, '_, E> {
    fn share(mut self, mut items: Vec<Item<'_>>) -> Result<(), Error> {
        // A row of a checkpoint is sorted behind the entry that wrote it.
        let key = |item: &Item<'_>| (item.entry.table, item.entry.version, item.place.is_none());
        items.sort_unstable_by(|one, other| one.entry.key.cmp(other.entry.key).then(key(one).cmp(&key(other))));
        let is_same =
            |one: &Item<'_>, other: &Item<'_>| (one.entry.table, one.entry.key) == (other.entry.table, other.entry.key);
        let mut untold = 0;
        for row in items.chunk_by(is_same) {
            self.row(row)?;
            untold += row.len() as u64;
            if untold >= TOLD {
                self.step.advance(std::mem::take(&mut untold));
            }
        }
        self.step.advance(untold);
        Ok(())
    }

    /// Replays the entries of one row, in the order of its versions.
    fn row(&mut self, row: &[Item<'_>]) -> Result<(), Error> {
        // A checkpoint's row includes all older entries, whenever it was read.
        let begin = row.iter().position(|item| item.place.is_none()).unwrap_or(0);
        let Some(row) = row.get(begin..) else { return Ok(()) };
        let Some(first) = row.first() else { return Ok(()) };
        let mut now: Option<(Cow<'_, [u8]>, u64)> = None;
        // A patch whose base value is missing. The row was removed while the checkpoint was made,
        // after the patch.
        let mut gap: Option<&Item<'_>> = None;
        for item in row {
            let Entry { version, previous, change, .. } = item.entry;
            let may_be_missing = item.epoch() <= self.sources.until();
            now = match (change, now) {
                (Change::Put(value), _) => Some((Cow::Borrowed(value), version)),
                (Change::Remove, _) => {
                    gap = gap.filter(|_| !may_be_missing);
                    None
                }
                (Change::Patch { offset, bytes }, Some((mut value, before)))
                    if before == previous || self.fault == Some(Mutation::PreviousNotChecked) =>
                {
                    let offset = offset as usize;
                    let Some(patched) = value.to_mut().get_mut(offset..offset + bytes.len()) else {
                        return Err(self.sources.damaged(item, "a patch is beyond its value"));
                    };
                    patched.copy_from_slice(bytes);
                    Some((value, version))
                }
                (Change::Patch { .. }, None) if may_be_missing => {
                    gap = gap.or(Some(item));
                    None
                }
                (Change::Patch { .. }, _) => {
                    return Err(self.sources.damaged(item, "a patch lacks the version before it"));
                }
            };
        }
        if let Some(item) = gap {
            return Err(self.sources.damaged(item, "a patch lacks the version before it"));
        }
        let Some((value, version)) = now else { return Ok(()) };
        match self.filler.put(first.entry.table, first.entry.key, &value, version)? {
            None => Ok(()),
            Some(why) => Err(self.sources.damaged(first, why)),
        }
    }
}

/// Returns a key in the form that the table's storage takes.
fn encoded<'k, E: Engine>(table: &Opened<E>, key: &'k [u8]) -> Option<KeyRef<'k>> {
    let is_of_words = matches!(table.storage, Storage::HashOfWords(_) | Storage::TreeOfWords(_));
    KeyRef::of_encoding(key, is_of_words.then_some(table.key_size))
}
