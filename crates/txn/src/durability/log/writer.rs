//! The stream of frames: one segment after the other, each written from its beginning to its end.

use std::sync::Arc;

use super::participant::Buffer;
use crate::durability::{
    LogError,
    format::{FRAME_HEADER, Position, SEGMENT_HEADER, SegmentHeader, begin_frame, finish_frame, segment_name},
    storage::{Storage, StoredFile, write_all_at},
};

/// Space that is reserved at a time.
const RESERVED: u64 = 4 << 20;

/// What a segment's file ends with until its header is durable.
pub(crate) const UNFINISHED: &str = ".new";

#[derive(Debug)]
pub(crate) struct Writer {
    storage: Arc<dyn Storage>,
    file: Box<dyn StoredFile>,
    header: SegmentHeader,
    /// Where the next frame begins, and how much space there is.
    end: u64,
    reserved: u64,
    /// The size from which on another segment is begun.
    limit: u64,
    /// The epoch that the last frame closes, and the newest of which there is a record.
    closed: u64,
    newest: u64,
    frame: Vec<u8>,
}

impl Writer {
    /// Creates a segment, durably, and writes to it from then on.
    pub(crate) fn create(
        storage: Arc<dyn Storage>,
        header: SegmentHeader,
        limit: u64,
        syncs_directory: bool,
    ) -> Result<Self, LogError> {
        let name = segment_name(header.sequence);
        let unfinished = format!("{name}{UNFINISHED}");
        let file = storage.create(&unfinished).map_err(LogError::io("create", &unfinished))?;
        let reserved = RESERVED.min(limit);
        file.reserve(reserved).map_err(LogError::io("reserve space for", &unfinished))?;
        write_all_at(&*file, 0, &header.encode()).map_err(LogError::io("write", &unfinished))?;
        file.sync().map_err(LogError::io("sync", &unfinished))?;
        storage.rename(&unfinished, &name).map_err(LogError::io("rename", &unfinished))?;
        if syncs_directory {
            storage.sync_directory().map_err(LogError::io("sync the directory of", &name))?;
        }
        let (end, closed) = (SEGMENT_HEADER as u64, header.after);
        Ok(Self { storage, file, header, end, reserved, limit, closed, newest: closed, frame: Vec::new() })
    }

    pub(super) fn closed(&self) -> u64 {
        // Epochs between are void.
        self.header.begins.max(self.closed + 1) - 1
    }

    /// Begins a frame.
    pub(super) fn begin(&mut self) {
        begin_frame(&mut self.frame);
    }

    /// Adds a buffer's records to the frame, and empties it.
    pub(super) fn add(&mut self, buffer: &mut Buffer) {
        self.frame.append(&mut buffer.bytes);
        self.newest = self.newest.max(buffer.newest);
    }

    /// Writes the frame, which closes an epoch, and syncs. Nothing is written if nothing was added, and everything that
    /// was written is of epochs that are closed already.
    pub(super) fn write(&mut self, epoch: u64) -> Result<(), LogError> {
        if self.frame.len() == FRAME_HEADER && self.newest <= self.closed {
            return Ok(());
        }
        if self.end > SEGMENT_HEADER as u64 && self.end + self.frame.len() as u64 > self.limit {
            self.rotate()?;
        }
        let SegmentHeader { log, sequence, .. } = self.header;
        let name = || segment_name(sequence);
        finish_frame(&mut self.frame, Position { log, sequence, offset: self.end }, epoch, self.closed);
        let end = self.end + self.frame.len() as u64;
        if end > self.reserved {
            self.reserved = end.next_multiple_of(RESERVED.min(self.limit));
            self.file.reserve(self.reserved).map_err(LogError::io("reserve space for", name()))?;
        }
        write_all_at(&*self.file, self.end, &self.frame).map_err(LogError::io("write", name()))?;
        self.file.sync().map_err(LogError::io("sync", name()))?;
        self.end = end;
        self.closed = epoch;
        Ok(())
    }

    fn rotate(&mut self) -> Result<(), LogError> {
        self.trim()?;
        let SegmentHeader { log, sequence, .. } = self.header;
        // No epoch is void: what the old segment has of later ones, the next frame closes.
        let header = SegmentHeader { log, sequence: sequence + 1, after: self.closed, begins: self.closed + 1 };
        let next = Self::create(Arc::clone(&self.storage), header, self.limit, true)?;
        let (newest, frame) = (self.newest, std::mem::take(&mut self.frame));
        *self = Self { newest, frame, ..next };
        Ok(())
    }

    /// Gives space back that no frame takes.
    pub(super) fn trim(&mut self) -> Result<(), LogError> {
        self.reserved = self.end;
        self.file.truncate(self.end).map_err(LogError::io("truncate", segment_name(self.header.sequence)))
    }
}
