//! Writing a checkpoint: consecutive frames in a file that does not have its final name yet.

use crate::{
    Error,
    durability::{
        LogError,
        format::{
            CHECKPOINT_HEADER, CatalogChange, Change, CheckpointEnd, CheckpointHeader, Damage, Entry, RecordKind,
            RecordWriter, begin_frame, checkpoint_name, finish_frame,
        },
        log::UNFINISHED,
        storage::{Storage, StoredFile, write_all_at},
    },
    mutation::Mutation,
};
use drtm_kv::{KvError, Version};

#[derive(Debug)]
pub(in crate::durability) struct CheckpointFile<'s> {
    storage: &'s dyn Storage,
    file: Box<dyn StoredFile>,
    header: CheckpointHeader,
    unfinished: String,
    /// The offset of the next frame, and the number of frames.
    end: u64,
    frames: u64,
    rows: u64,
    frame: Vec<u8>,
}

/// Adds a row of a table, with its key's encoding.
pub(super) type AddRow<'a> = dyn FnMut((u16, &[u8]), &[u8], Version) + 'a;

impl<'s> CheckpointFile<'s> {
    pub(super) fn create(storage: &'s dyn Storage, header: CheckpointHeader) -> Result<Self, LogError> {
        let unfinished = format!("{}{UNFINISHED}", checkpoint_name(header.number));
        let file = storage.create(&unfinished).map_err(LogError::io("create", &unfinished))?;
        let end = CHECKPOINT_HEADER as u64;
        let created = Self { storage, file, header, unfinished, end, frames: 0, rows: 0, frame: Vec::new() };
        match write_all_at(&*created.file, 0, &header.encode()) {
            Ok(()) => Ok(created),
            Err(error) => {
                let error = LogError::io("write", &created.unfinished)(error);
                created.discard();
                Err(error)
            }
        }
    }

    pub(in crate::durability) fn header(&self) -> CheckpointHeader {
        self.header
    }

    /// Returns the number of rows.
    pub(super) fn count(&self) -> u64 {
        self.rows
    }

    /// Writes the catalog, as the first frame.
    pub(super) fn catalog(&mut self, mut changes: impl Iterator<Item = CatalogChange>) -> Result<(), Error> {
        begin_frame(&mut self.frame);
        let encoded = changes.try_for_each(|change| change.encode(&mut self.frame, self.header.since));
        encoded.map_err(|damage| self.too_large(damage))?;
        self.write()
    }

    /// Writes a frame of rows, which `more` adds until there are none, or the frame has this many
    /// bytes. Returns whether there may be others.
    pub(super) fn rows(
        &mut self,
        bytes: usize,
        mut more: impl FnMut(&mut AddRow<'_>) -> Result<bool, KvError>,
    ) -> Result<bool, Error> {
        begin_frame(&mut self.frame);
        let mut record = RecordWriter::begin(&mut self.frame, self.header.since, RecordKind::Rows);
        let (mut has_more, mut rows, mut failed) = (true, 0, None);
        while has_more && record.length() < bytes && failed.is_none() {
            has_more = more(&mut |(table, key), value, version| {
                let entry = Entry { table, key, version: version.number(), change: Change::Put(value) };
                rows += 1;
                failed = failed.or(record.entry(&entry).err());
            })?;
        }
        if rows == 0 {
            record.undo();
            return Ok(has_more);
        }
        if let Some(damage) = failed.or(record.finish().err()) {
            return Err(self.too_large(damage));
        }
        self.rows += rows;
        self.write()?;
        Ok(has_more)
    }

    #[cold]
    fn too_large(&self, damage: Damage) -> Error {
        Error::TooLarge { bytes: damage.offset, most: u32::MAX as usize }
    }

    /// Writes the last frame, and makes the file durable. Returns its length in bytes.
    pub(super) fn end(&mut self, end: CheckpointEnd) -> Result<u64, Error> {
        begin_frame(&mut self.frame);
        end.encode(&mut self.frame, self.header.since).map_err(|damage| self.too_large(damage))?;
        self.write()?;
        self.file.sync().map_err(LogError::io("sync", &self.unfinished))?;
        Ok(self.end)
    }

    fn write(&mut self) -> Result<(), Error> {
        finish_frame(&mut self.frame, self.header.place(self.end), self.frames + 1, self.frames);
        write_all_at(&*self.file, self.end, &self.frame).map_err(LogError::io("write", &self.unfinished))?;
        self.frames += 1;
        self.end += self.frame.len() as u64;
        Ok(())
    }

    /// Gives the checkpoint its name, durably. It takes effect only now.
    pub(in crate::durability) fn keep(self, fault: Option<Mutation>) -> Result<(), LogError> {
        let name = checkpoint_name(self.header.number);
        self.storage.rename(&self.unfinished, &name).map_err(LogError::io("rename", &self.unfinished))?;
        if fault != Some(Mutation::DirectoryNotSynced) {
            self.storage.sync_directory().map_err(LogError::io("sync the directory of", &name))?;
        }
        Ok(())
    }

    /// Removes the file. If that fails, the next recovery does.
    pub(super) fn discard(self) {
        let _ = self.storage.remove(&self.unfinished);
    }
}
