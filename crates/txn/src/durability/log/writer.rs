//! The stream of frames: consecutive segments, each written sequentially.
//!
//! Space is reserved ahead of the frames, so that a full disk is noticed while what is committed
//! already still fits. A frame that finds no room is kept, and written when there is some. So the
//! stream fails only where it cannot know what has reached the disk.

use std::{collections::VecDeque, io, sync::Arc};

use super::buffer::Buffer;
use crate::{
    durability::{
        LogError,
        format::{FRAME_HEADER, Position, SEGMENT_HEADER, SegmentHeader, begin_frame, finish_frame, segment_name},
        storage::{Storage, StoredFile, is_full, write_all_at},
    },
    mutation::Mutation,
};

/// The space that is reserved at a time, where segments are not smaller.
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

impl WriterConfig {
    /// Returns how much space is reserved at a time.
    fn step(self) -> u64 {
        RESERVED.min(self.limit)
    }

    /// Returns how much reserved space there should be behind the last frame.
    fn ahead(self) -> u64 {
        self.step() / 4
    }
}

/// Why nothing more was written.
#[derive(Debug)]
pub(crate) enum Unwritten {
    /// The disk is full. The stream is as it was, and can be written when there is room.
    NoRoom(LogError),
    /// What is on the disk is not known.
    Failed(LogError),
}

impl From<LogError> for Unwritten {
    fn from(error: LogError) -> Self {
        Self::Failed(error)
    }
}

impl Unwritten {
    /// Returns a function that tells a full disk from other errors.
    fn io(action: &'static str, file: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let file = file.into();
        move |source| {
            let unwritten = if is_full(&source) { Self::NoRoom } else { Self::Failed };
            unwritten(LogError::Io { action, file, source })
        }
    }
}

#[derive(Debug)]
pub(crate) struct Writer {
    storage: Arc<dyn Storage>,
    /// The present segment. `None` until there is room to create it.
    file: Option<Box<dyn StoredFile>>,
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
    /// The next frame. It keeps its records until they are written.
    frame: Vec<u8>,
}

impl Writer {
    /// Returns a stream that continues with this segment, which is yet to be
    /// [created](Self::look_ahead).
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        header: SegmentHeader,
        config: WriterConfig,
        finished: VecDeque<Finished>,
    ) -> Self {
        let mut frame = Vec::new();
        begin_frame(&mut frame);
        Self {
            storage,
            file: None,
            header,
            config,
            end: SEGMENT_HEADER as u64,
            reserved: 0,
            closed: header.after,
            newest: header.after,
            newest_here: 0,
            newest_in_frame: 0,
            finished,
            frame,
        }
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

    /// Adds a buffer's records to the frame, and empties it.
    pub(super) fn add(&mut self, buffer: &mut Buffer) {
        self.frame.append(&mut buffer.bytes);
        self.newest_in_frame = self.newest_in_frame.max(buffer.newest);
    }

    /// Writes the frame, which closes an epoch, and syncs. Returns how many bytes were written.
    ///
    /// Writes nothing if nothing was added, and all earlier records are of epochs that are closed
    /// already. It still writes if a frame must close epoch `must_close`, and none has.
    pub(super) fn write(&mut self, epoch: u64, must_close: u64) -> Result<u64, Unwritten> {
        let length = self.frame.len() as u64;
        let is_empty = self.frame.len() == FRAME_HEADER;
        if is_empty && self.newest <= self.closed && must_close <= self.closed {
            return Ok(0);
        }
        if let Err(unwritten) = self.make_room(length) {
            if self.config.fault == Some(Mutation::FullFrameForgotten) {
                begin_frame(&mut self.frame);
            }
            return Err(unwritten);
        }
        let SegmentHeader { log, sequence, .. } = self.header;
        let name = segment_name(sequence);
        let place = Position { log, sequence, offset: self.end };
        finish_frame(&mut self.frame, believed(place, self.config.fault), epoch, self.closed);
        let file = self.file.as_deref().ok_or_else(|| LogError::io("find", &*name)(io::ErrorKind::NotFound.into()))?;
        // Not all of the frame is there if this fails, so it is not valid, and can be overwritten.
        write_all_at(file, self.end, &self.frame).map_err(Unwritten::io("write", &*name))?;
        file.sync().map_err(LogError::io("sync", name))?;
        begin_frame(&mut self.frame);
        self.end += length;
        self.closed = epoch;
        self.newest = self.newest.max(self.newest_in_frame);
        self.newest_here = self.newest_here.max(self.newest_in_frame);
        self.newest_in_frame = 0;
        Ok(length)
    }

    /// Reserves space behind the last frame, for what will be committed next.
    pub(crate) fn look_ahead(&mut self) -> Result<(), Unwritten> {
        if self.file.is_none() || self.end + self.config.ahead() > self.reserved {
            self.reserve(self.config.ahead())?;
        }
        Ok(())
    }

    /// Makes room for so many bytes, in another segment if this one is long enough.
    fn make_room(&mut self, length: u64) -> Result<(), Unwritten> {
        if self.has_frames() && self.end + length > self.config.limit {
            match self.rotate_for(length) {
                // This segment becomes longer than others.
                Err(Unwritten::NoRoom(_)) if self.end + length <= self.reserved => {}
                rotated => rotated?,
            }
        }
        if self.end + length > self.reserved { self.reserve(length) } else { Ok(()) }
    }

    /// Reserves at least so many bytes behind the last frame, and creates the segment if there is
    /// none.
    fn reserve(&mut self, length: u64) -> Result<(), Unwritten> {
        let least = self.end + length;
        let enough = (least + self.config.ahead()).next_multiple_of(self.config.step());
        match &self.file {
            Some(file) => self.reserved = reserve(&**file, &segment_name(self.header.sequence), least, enough)?,
            None => {
                let (file, reserved) = self.create(&self.header, least, enough)?;
                (self.file, self.reserved) = (Some(file), reserved);
            }
        }
        Ok(())
    }

    /// Creates a segment, durably, and reserves space for it.
    fn create(&self, header: &SegmentHeader, least: u64, enough: u64) -> Result<(Box<dyn StoredFile>, u64), Unwritten> {
        let (storage, name) = (&*self.storage, segment_name(header.sequence));
        let unfinished = format!("{name}{UNFINISHED}");
        let create = || -> Result<_, Unwritten> {
            let file = storage.create(&unfinished).map_err(Unwritten::io("create", &unfinished))?;
            let reserved = reserve(&*file, &unfinished, least, enough)?;
            write_all_at(&*file, 0, &header.encode()).map_err(Unwritten::io("write", &unfinished))?;
            file.sync().map_err(Unwritten::io("sync", &unfinished))?;
            storage.rename(&unfinished, &name).map_err(Unwritten::io("rename", &unfinished))?;
            Ok((file, reserved))
        };
        let created = create().inspect_err(|_| {
            // Without its name it counts for nothing. The next opening removes it if this fails.
            let _ = storage.remove(&unfinished);
        })?;
        if self.config.fault != Some(Mutation::DirectoryNotSynced) {
            // Whether the segment counts is not known if this fails.
            storage.sync_directory().map_err(LogError::io("sync the directory of", name))?;
        }
        Ok(created)
    }

    /// Returns whether the segment has frames.
    fn has_frames(&self) -> bool {
        self.end > SEGMENT_HEADER as u64
    }

    /// Begins another segment if this one has frames, and the disk has room for one.
    pub(crate) fn rotate(&mut self) -> Result<(), Unwritten> {
        let rotated = if self.has_frames() { self.rotate_for(self.config.ahead()) } else { self.look_ahead() };
        match rotated {
            // There is a segment to go on with.
            Err(Unwritten::NoRoom(_)) if self.file.is_some() => Ok(()),
            rotated => rotated,
        }
    }

    /// Begins another segment, with room for so many bytes.
    fn rotate_for(&mut self, length: u64) -> Result<(), Unwritten> {
        let SegmentHeader { log, sequence, .. } = self.header;
        // No epoch is void: the next frame closes the later epochs of the old segment.
        let header = SegmentHeader { log, sequence: sequence + 1, after: self.closed, begins: self.closed + 1 };
        let end = SEGMENT_HEADER as u64;
        let (least, enough) = (end + length, (end + length).next_multiple_of(self.config.step()));
        let (file, reserved) = self.create(&header, least, enough)?;
        let trimmed = self.trim();
        self.finished.push_back(Finished { sequence, newest: self.newest_here });
        (self.file, self.header, self.end, self.reserved, self.newest_here) = (Some(file), header, end, reserved, 0);
        Ok(trimmed?)
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
        let Some(file) = &self.file else { return Ok(()) };
        self.reserved = self.end;
        file.truncate(self.end).map_err(LogError::io("truncate", segment_name(self.header.sequence)))
    }
}

/// Reserves space for a file: up to `enough`, or less on a disk that has less room, but not less
/// than `least`. Returns how much.
fn reserve(file: &dyn StoredFile, name: &str, least: u64, enough: u64) -> Result<u64, Unwritten> {
    let mut length = enough;
    loop {
        match file.reserve(length) {
            Err(error) if is_full(&error) && length > least => length = least.max(length / 2),
            reserved => return reserved.map(|()| length).map_err(Unwritten::io("reserve space for", name)),
        }
    }
}

/// Returns the place that a frame's checksum covers. The deliberate fault omits what tells segments
/// apart.
pub(crate) fn believed(place: Position, fault: Option<Mutation>) -> Position {
    if fault == Some(Mutation::RecycledBelieved) { Position { log: 0, sequence: 0, ..place } } else { place }
}
