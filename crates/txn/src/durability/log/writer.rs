//! The stream of frames: consecutive segments, each written sequentially.

use std::{collections::VecDeque, sync::Arc};

use super::buffer::Buffer;
use crate::{
    durability::{
        LogError,
        format::{FRAME_HEADER, Position, SEGMENT_HEADER, SegmentHeader, begin_frame, finish_frame, segment_name},
        storage::{Storage, StoredFile, write_all_at},
    },
    mutation::Mutation,
};

/// The space that is reserved at a time.
const RESERVED: u64 = 4 << 20;

/// The suffix of a file's name until the file is durable.
pub(crate) const UNFINISHED: &str = ".new";

/// A segment that is no longer written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished {
    pub(crate) sequence: u64,
    /// The newest epoch of a record in it.
    pub(crate) newest: u64,
}

/// How a stream is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriterConfig {
    /// The size at which another segment is begun.
    pub(crate) limit: u64,
    pub(crate) fault: Option<Mutation>,
}

#[derive(Debug)]
pub(crate) struct Writer {
    storage: Arc<dyn Storage>,
    file: Box<dyn StoredFile>,
    header: SegmentHeader,
    config: WriterConfig,
    /// The offset of the next frame, and the reserved space.
    end: u64,
    reserved: u64,
    /// The epoch that the last frame closes, and the newest epoch of any record.
    closed: u64,
    newest: u64,
    /// The newest epoch of a record in this segment, and of one in the frame.
    newest_here: u64,
    newest_in_frame: u64,
    /// The segments before this one, oldest first.
    finished: VecDeque<Finished>,
    frame: Vec<u8>,
}

impl Writer {
    /// Creates a segment after others, durably, to be written from then on.
    pub(crate) fn create(
        storage: Arc<dyn Storage>,
        header: SegmentHeader,
        config: WriterConfig,
        finished: VecDeque<Finished>,
    ) -> Result<Self, LogError> {
        let name = segment_name(header.sequence);
        let unfinished = format!("{name}{UNFINISHED}");
        let file = storage.create(&unfinished).map_err(LogError::io("create", &unfinished))?;
        let reserved = RESERVED.min(config.limit);
        file.reserve(reserved).map_err(LogError::io("reserve space for", &unfinished))?;
        write_all_at(&*file, 0, &header.encode()).map_err(LogError::io("write", &unfinished))?;
        file.sync().map_err(LogError::io("sync", &unfinished))?;
        storage.rename(&unfinished, &name).map_err(LogError::io("rename", &unfinished))?;
        if config.fault != Some(Mutation::DirectoryNotSynced) {
            storage.sync_directory().map_err(LogError::io("sync the directory of", &name))?;
        }
        let (end, closed) = (SEGMENT_HEADER as u64, header.after);
        Ok(Self {
            storage,
            file,
            header,
            config,
            end,
            reserved,
            closed,
            newest: closed,
            newest_here: 0,
            newest_in_frame: 0,
            finished,
            frame: Vec::new(),
        })
    }

    /// Returns the last durable epoch.
    pub(super) fn closed(&self) -> u64 {
        // The epochs between are void.
        self.header.begins.max(self.closed + 1) - 1
    }

    /// Returns the last epoch that a frame closes.
    pub(super) fn closed_by_frame(&self) -> u64 {
        self.closed
    }

    /// Returns the log's identity.
    pub(crate) fn log(&self) -> u128 {
        self.header.log
    }

    /// Begins a frame.
    pub(super) fn begin(&mut self) {
        begin_frame(&mut self.frame);
        self.newest_in_frame = 0;
    }

    /// Adds a buffer's records to the frame, and empties it.
    pub(super) fn add(&mut self, buffer: &mut Buffer) {
        self.frame.append(&mut buffer.bytes);
        self.newest_in_frame = self.newest_in_frame.max(buffer.newest);
    }

    /// Writes the frame, which closes an epoch, and syncs. Returns how many bytes were written.
    ///
    /// Writes nothing if nothing was added, and all earlier records are of epochs that are closed
    /// already. It still writes if a frame must close epoch `must_close`, and none has.
    pub(super) fn write(&mut self, epoch: u64, must_close: u64) -> Result<u64, LogError> {
        let is_empty = self.frame.len() == FRAME_HEADER;
        if is_empty && self.newest <= self.closed && must_close <= self.closed {
            return Ok(0);
        }
        let length = self.frame.len() as u64;
        if self.has_frames() && self.end + length > self.config.limit {
            self.rotate()?;
        }
        let SegmentHeader { log, sequence, .. } = self.header;
        let name = || segment_name(sequence);
        let place = Position { log, sequence, offset: self.end };
        finish_frame(&mut self.frame, believed(place, self.config.fault), epoch, self.closed);
        let end = self.end + length;
        if end > self.reserved {
            self.reserved = end.next_multiple_of(RESERVED.min(self.config.limit));
            self.file.reserve(self.reserved).map_err(LogError::io("reserve space for", name()))?;
        }
        write_all_at(&*self.file, self.end, &self.frame).map_err(LogError::io("write", name()))?;
        self.file.sync().map_err(LogError::io("sync", name()))?;
        self.end = end;
        self.closed = epoch;
        self.newest = self.newest.max(self.newest_in_frame);
        self.newest_here = self.newest_here.max(self.newest_in_frame);
        Ok(length)
    }

    /// Returns whether the segment has frames.
    pub(crate) fn has_frames(&self) -> bool {
        self.end > SEGMENT_HEADER as u64
    }

    /// Begins another segment.
    pub(crate) fn rotate(&mut self) -> Result<(), LogError> {
        self.trim()?;
        let SegmentHeader { log, sequence, .. } = self.header;
        // No epoch is void: the next frame closes the later epochs of the old segment.
        let header = SegmentHeader { log, sequence: sequence + 1, after: self.closed, begins: self.closed + 1 };
        let next = Self::create(Arc::clone(&self.storage), header, self.config, VecDeque::new())?;
        let Self { newest, newest_in_frame, .. } = *self;
        let (frame, mut finished) = (std::mem::take(&mut self.frame), std::mem::take(&mut self.finished));
        finished.push_back(Finished { sequence, newest: self.newest_here });
        *self = Self { newest, newest_in_frame, frame, finished, ..next };
        Ok(())
    }

    /// Returns the first segment with a record of an epoch after this, or the current segment if
    /// there is none.
    pub(crate) fn first_after(&self, epoch: u64) -> u64 {
        let first = self.finished.iter().find(|finished| finished.newest > epoch);
        first.map_or(self.header.sequence, |finished| finished.sequence)
    }

    /// Forgets the segments before one, and returns their numbers, oldest first.
    pub(crate) fn forget_before(&mut self, first: u64) -> Vec<u64> {
        let count = self.finished.partition_point(|finished| finished.sequence < first);
        self.finished.drain(..count).map(|finished| finished.sequence).collect()
    }

    /// Returns the segments from one on, each with its written length. `None` means all of it.
    pub(crate) fn segments_from(&self, first: u64) -> Vec<(u64, Option<u64>)> {
        let finished = self.finished.iter().map(|finished| (finished.sequence, None));
        finished.chain([(self.header.sequence, Some(self.end))]).filter(|(sequence, _)| *sequence >= first).collect()
    }

    /// Frees reserved space behind the last frame.
    pub(super) fn trim(&mut self) -> Result<(), LogError> {
        self.reserved = self.end;
        self.file.truncate(self.end).map_err(LogError::io("truncate", segment_name(self.header.sequence)))
    }
}

/// Returns the place that a frame's checksum covers. The deliberate fault omits what tells segments
/// apart.
pub(crate) fn believed(place: Position, fault: Option<Mutation>) -> Position {
    if fault == Some(Mutation::RecycledBelieved) { Position { log: 0, sequence: 0, ..place } } else { place }
}
