//! Checkpoints: all rows, so that the log before them is not needed any more.
//!
//! A checkpoint is *fuzzy*: writers go on while its rows are read one after the other, each with
//! its version at one moment. S is an epoch that is closed before the first row is read, and E the
//! snapshot number after the last one. So whatever was committed up to S is in it, and nothing
//! beyond E. With the log's entries of epochs in (S, D] it yields the state of any D >= E: an entry
//! counts if its version is newer than the row's.
//!
//! A checkpoint gets its name when it is synced and E is durable. Then segments are removed whose
//! records are all of epochs up to S, and so are older checkpoints.

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
    catalog::Recorded,
    mutation::Mutation,
    trace::{event, within},
};

/// Bytes of rows in a frame, at least.
const BLOCK: u64 = 256 << 10;

/// What a checkpoint holds.
///
/// # Example
///
/// See [`Db::checkpoint`](crate::Db::checkpoint).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkpoint {
    /// How many rows there are.
    pub rows: u64,
    /// The size of its file.
    pub bytes: u64,
}

impl<E: Engine> Log<E> {
    /// Makes a checkpoint, and removes what of the log it takes the place of.
    ///
    /// # Errors
    ///
    /// [`Error::Poisoned`], [`Error::OutcomeUnknown`]; [`Error::Closed`] if the database is closed
    /// meanwhile; [`Error::Log`] when the system refuses: the log goes on then.
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

    /// Writes a checkpoint to some storage, durably. It is yet to be [kept](CheckpointFile::keep).
    pub(super) fn checkpoint_into<'s>(
        &self,
        storage: &'s dyn Storage,
        number: u64,
    ) -> Result<(CheckpointFile<'s>, Checkpoint), Error> {
        // Whatever ends the log waits for this one, and lets no other begin.
        if self.is_stopped() {
            return Err(Error::Closed);
        }
        self.wait_until_all_is_durable()?;
        let since = self.durable();
        let header = self.change_stream(|writer| {
            // Then this one need not be kept, once another checkpoint is made.
            if writer.has_frames() {
                writer.rotate()?;
            }
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

    /// Writes all rows, and waits until all that they can have seen is durable.
    fn fill(&self, file: &mut CheckpointFile<'_>) -> Result<Checkpoint, Error> {
        let (tables, next_table) = self.catalog.recorded();
        file.catalog(tables.iter().flat_map(Recorded::changes))?;
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
                        add((*id, key.encoded(table.key_size, &mut [0; 8])), value, version)
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

    /// Returns how many bytes of rows a frame is to have.
    fn block(&self) -> usize {
        // Small segments are tests'.
        BLOCK.min(self.config.segment_bytes / 4) as usize
    }

    /// Removes what of the log a checkpoint takes the place of.
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

/// Returns the name that the newest checkpoint has among others, if there is one, and its number.
pub(super) fn newest(names: &[String]) -> Option<(String, u64)> {
    let number = names.iter().filter_map(|name| number_of(name)).max()?;
    Some((checkpoint_name(number), number))
}

impl Recorded {
    /// Returns the changes of the catalog that make the table, and name its indexes.
    fn changes(&self) -> impl Iterator<Item = CatalogChange> + '_ {
        let table = CatalogChange::Table(self.id, self.shape.clone());
        std::iter::once(table).chain(self.indexes.iter().map(|name| CatalogChange::Index(self.id, name.clone())))
    }
}
