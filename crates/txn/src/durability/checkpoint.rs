//! Checkpoints: files of all rows, which make the log before them unnecessary.
//!
//! A checkpoint is *fuzzy*: writers continue while its rows are read one by one, each atomically
//! with its version. S is an epoch that is closed before the first row is read, and E the snapshot
//! number after the last one. So everything committed up to S is in it, and nothing beyond E. With
//! the log's entries of epochs in (S, D] it yields the state of any D >= E: an entry is applied if
//! its version is newer than the row's.
//!
//! A checkpoint gets its name after it is synced and E is durable. Then older checkpoints are
//! removed, and segments whose records are all of epochs up to S.

mod file;
mod image;

use std::sync::atomic::Ordering::Relaxed;

use drtm_htm::Engine;

use self::file::CheckpointFile;
pub(super) use self::image::CheckpointImage;
use super::{
    Log, LogError,
    format::{CatalogChange, CheckpointEnd, CheckpointHeader, checkpoint_name, number_of, segment_name},
    storage::Storage,
};
use crate::{
    Error,
    mutation::Mutation,
    schema::catalog::Recorded,
    trace::{event, within},
};

/// The least bytes of rows in a frame.
const BLOCK: u64 = 256 << 10;

/// The size of a checkpoint.
///
/// # Example
///
/// See [`Db::checkpoint`](crate::Db::checkpoint).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkpoint {
    /// The number of rows.
    pub rows: u64,
    /// The size of its file.
    pub bytes: u64,
}

impl<E: Engine> Log<E> {
    /// Makes a checkpoint, and removes the part of the log that it replaces.
    ///
    /// # Errors
    ///
    /// [`Error::Poisoned`], [`Error::ReadOnly`] and [`Error::OutcomeUnknown`]. [`Error::Closed`] if
    /// the database is closed meanwhile. [`Error::Log`] when an I/O operation fails, and
    /// [`Error::NotYetDurable`] or [`Error::DiskFull`] on a full disk; the log then stays usable.
    #[inline(never)]
    pub(crate) fn checkpoint(&self) -> Result<Checkpoint, Error> {
        let mut last = self.checkpoints.lock();
        within!("checkpoint", [number = *last + 1], {
            self.unsaved.store(0, Relaxed);
            let (file, made) = self.checkpoint_into(&*self.storage, *last + 1)?;
            let header = file.header();
            file.keep(self.config.fault)?;
            event!(info, rows = made.rows, bytes = made.bytes, "a checkpoint has been made");
            *last = header.number;
            self.remove_before(&header)?;
            Ok(made)
        })
    }

    /// Writes a checkpoint to some storage, durably. The caller then [keeps](CheckpointFile::keep)
    /// it.
    pub(super) fn checkpoint_into<'s>(
        &self,
        storage: &'s dyn Storage,
        number: u64,
    ) -> Result<(CheckpointFile<'s>, Checkpoint), Error> {
        // A thread that ends the log waits for this checkpoint, and lets no other begin.
        if self.is_stopped() {
            return Err(Error::Closed);
        }
        self.check_lasting()?;
        self.wait_until_all_is_durable()?;
        let since = self.durable();
        let header = self.change_stream(|writer| {
            // So the present segment can be removed after another checkpoint.
            writer.rotate()?;
            Ok(CheckpointHeader { log: writer.log(), number, since, first: writer.first_after(since) })
        })?;
        let mut file = CheckpointFile::create(storage, header)?;
        match self.fill(&mut file) {
            Ok(made) => Ok((file, made)),
            Err(error) => {
                file.discard();
                Err(error)
            }
        }
    }

    /// Writes all rows, and waits until every transaction that they may include is durable.
    fn fill(&self, file: &mut CheckpointFile<'_>) -> Result<Checkpoint, Error> {
        let (tables, next_table) = self.catalog.recorded();
        let note = self.noted().filter(|_| self.config.fault != Some(Mutation::NoteLeftOut)).map(CatalogChange::Noted);
        file.catalog(tables.iter().flat_map(Recorded::changes).chain(note))?;
        for Recorded { number, id, .. } in &tables {
            let Some(table) = self.catalog.get(*number) else { continue };
            let mut tour = table.storage.tour()?;
            let mut has_more = true;
            while has_more {
                if self.is_stopped() {
                    return Err(Error::Closed);
                }
                has_more = file.rows(self.block(), |add| {
                    table.storage.rows(&mut tour, |key, value, version| {
                        add((*id, key.encoded(table.key_size(), &mut [0; 8])), value, version)
                    })
                })?;
            }
        }
        let until = self.now()?;
        let bytes = file.end(CheckpointEnd { until, rows: file.count(), next_table })?;
        if self.config.fault != Some(Mutation::CheckpointTooEarly) {
            self.close_by_frame(until)?;
        }
        Ok(Checkpoint { rows: file.count(), bytes })
    }

    /// Returns how many bytes of rows a frame should have.
    fn block(&self) -> usize {
        // Small segments are for tests.
        BLOCK.min(self.config.segment_bytes / 4) as usize
    }

    /// Removes the part of the log that a checkpoint replaces.
    fn remove_before(&self, header: &CheckpointHeader) -> Result<(), Error> {
        let first = match self.config.fault {
            Some(Mutation::SegmentsRemovedTooFar) => u64::MAX,
            _ => header.first,
        };
        let segments = self.writer.lock().forget_before(first);
        let names = self.storage.list().map_err(LogError::io("list", self.storage.name()))?;
        let is_older = |name: &&String| number_of(name).is_some_and(|number| number < header.number);
        let older = names.iter().filter(is_older).cloned();
        let names: Vec<_> = older.chain(segments.into_iter().map(segment_name)).collect();
        Ok(remove(&*self.storage, &names)?)
    }
}

/// Removes files.
pub(super) fn remove(storage: &dyn Storage, names: &[String]) -> Result<(), LogError> {
    names.iter().try_for_each(|name| storage.remove(name).map_err(LogError::io("remove", name)))
}

/// Returns the name and the number of the newest checkpoint among these files. `None` if there is
/// none.
pub(super) fn newest(names: &[String]) -> Option<(String, u64)> {
    let number = names.iter().filter_map(|name| number_of(name)).max()?;
    Some((checkpoint_name(number), number))
}

impl Recorded {
    /// Returns the changes of the catalog that create the table, and name its indexes.
    fn changes(&self) -> impl Iterator<Item = CatalogChange> + '_ {
        let table = CatalogChange::Table(self.id, self.shape.clone());
        std::iter::once(table).chain(self.indexes.iter().map(|name| CatalogChange::Index(self.id, name.clone())))
    }
}
