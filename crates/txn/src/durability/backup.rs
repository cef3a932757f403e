//! Backups: a checkpoint in another directory, and the segments that are needed beside it.

use std::sync::Arc;

use drtm_htm::Engine;

use super::{
    Checkpoint, Log, LogError,
    format::{INCOMPLETE, is_part, segment_name},
    log::UNFINISHED,
    storage::{Access, Storage, read_all_at, write_all_at},
};
use crate::{
    Error,
    trace::{event, within},
};

/// The number of bytes that are copied at a time.
const CHUNK: usize = 1 << 20;

impl<E: Engine> Log<E> {
    /// Copies the database to other storage, which must not hold one.
    ///
    /// # Errors
    ///
    /// As for a checkpoint. [`LogError::InUse`] if another database has the other storage open.
    /// [`Error::Config`] if it holds a database.
    pub(crate) fn back_up(&self, target: &Arc<dyn Storage>) -> Result<Checkpoint, Error> {
        // The lock keeps segments from being removed meanwhile.
        let last = self.checkpoints.lock();
        within!("backup", [to = target.name().as_str()], {
            let directory = target.name();
            let _lock = match target.lock(Access::Write).map_err(LogError::io("lock", &directory))? {
                Ok(lock) => lock,
                Err(holder) => return Err(LogError::InUse { directory, holder }.into()),
            };
            let names = target.list().map_err(LogError::io("list", &directory))?;
            let is_ours = |name: &&String| {
                let is_unfinished = name.ends_with(UNFINISHED) || *name == INCOMPLETE;
                is_part(name) || is_unfinished
            };
            if let Some(name) = names.iter().find(is_ours) {
                let is = format!("in use: it has {name}");
                return Err(Error::Config { what: "the directory of a backup", must_be: "empty", is });
            }
            // Until it is complete, it must not be taken for a database.
            let mark = || LogError::io("create", INCOMPLETE);
            target.create(INCOMPLETE).and_then(|mark| mark.sync()).map_err(mark())?;
            target.sync_directory().map_err(mark())?;
            let (file, made) = self.checkpoint_into(&**target, *last + 1)?;
            let segments = self.writer.lock().segments_from(file.header().first);
            for (sequence, length) in &segments {
                self.copy_segment(&**target, *sequence, *length)?;
            }
            file.keep(self.config.fault)?;
            for (sequence, _) in &segments {
                let name = segment_name(*sequence);
                let unfinished = format!("{name}{UNFINISHED}");
                target.rename(&unfinished, &name).map_err(LogError::io("rename", unfinished))?;
            }
            target.sync_directory().map_err(LogError::io("sync", &directory))?;
            target.remove(INCOMPLETE).map_err(LogError::io("remove", INCOMPLETE))?;
            target.sync_directory().map_err(LogError::io("sync", directory))?;
            event!(info, rows = made.rows, bytes = made.bytes, "a backup has been made");
            Ok(made)
        })
    }

    /// Copies a segment under its unfinished name, durably: the first `length` bytes, or all.
    fn copy_segment(&self, target: &dyn Storage, sequence: u64, length: Option<u64>) -> Result<(), LogError> {
        let name = segment_name(sequence);
        let unfinished = format!("{name}{UNFINISHED}");
        let from = self.storage.open(&name, Access::Read).map_err(LogError::io("open", &name))?;
        let length = match length {
            Some(length) => length,
            None => from.length().map_err(LogError::io("read the length of", &name))?,
        };
        let to = target.create(&unfinished).map_err(LogError::io("create", &unfinished))?;
        let (mut offset, mut bytes) = (0, Vec::new());
        while offset < length {
            bytes.resize(CHUNK.min((length - offset) as usize), 0);
            read_all_at(&*from, offset, &mut bytes).map_err(LogError::io("read", &name))?;
            write_all_at(&*to, offset, &bytes).map_err(LogError::io("write", &unfinished))?;
            offset += bytes.len() as u64;
        }
        to.sync().map_err(LogError::io("sync", unfinished))
    }
}
