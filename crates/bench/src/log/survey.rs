//! A tolerant reader of logs: it goes on behind what is damaged.
//!
//! Recovery stops at the first damage, since it must not lose what was acknowledged. A survey instead finds every frame
//! that is whole, wherever it is, and in the holes between them every record that is whole: frames and records have
//! checksums of their own.

use std::{fs, io, path::Path};

use drtm_txn::{
    LogError,
    durability::{
        format::{
            Created, Frame, Position, Record, RecordKind, SEGMENT_HEADER, SegmentHeader, find_frame, read_frame,
            records, segment_name, sequence_of,
        },
        storage::{DirectoryLock, Files, Storage},
    },
};
use serde::Serialize;

use crate::Error;

/// What a file ends with whose creation a crash has interrupted.
const UNFINISHED: &str = ".new";

/// A damage, as recovery tells of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Damage {
    pub(super) file: String,
    pub(super) offset: u64,
    pub(super) why: String,
}

/// The files of a directory, with the directory locked.
#[derive(Debug)]
pub(super) struct Contents {
    segments: Vec<(u64, Vec<u8>)>,
    /// Files that a crash has left unfinished, which recovery removes.
    pub(super) unfinished: Vec<String>,
    _lock: Option<Box<dyn DirectoryLock>>,
}

impl Contents {
    /// Reads all segments.
    ///
    /// # Errors
    ///
    /// When there is no log, when it is in use, or when a file cannot be read.
    pub(super) fn read(directory: &Path) -> Result<Self, Error> {
        let unreadable = |source| Error::Unreadable { path: directory.to_owned(), source };
        if !directory.is_dir() {
            return Err(Error::NoLog { path: directory.to_owned() });
        }
        let files = Files::open(directory.to_owned()).map_err(unreadable)?;
        let lock = match files.lock() {
            Ok(Ok(lock)) => Some(lock),
            Ok(Err(holder)) => {
                let directory = directory.display().to_string();
                return Err(drtm_txn::Error::from(LogError::InUse { directory, holder }).into());
            }
            // A copy that cannot be written is nobody's to open.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) =>
            {
                None
            }
            Err(error) => return Err(unreadable(error)),
        };
        let names = files.list().map_err(unreadable)?;
        let mut sequences: Vec<u64> = names.iter().filter_map(|name| sequence_of(name)).collect();
        sequences.sort_unstable();
        let read = |sequence| {
            let path = directory.join(segment_name(sequence));
            Ok((sequence, fs::read(&path).map_err(|source| Error::Unreadable { path, source })?))
        };
        let segments: Vec<_> = sequences.into_iter().map(read).collect::<Result<_, Error>>()?;
        if segments.is_empty() {
            return Err(Error::NoLog { path: directory.to_owned() });
        }
        let mut unfinished: Vec<_> = names.into_iter().filter(|name| name.ends_with(UNFINISHED)).collect();
        unfinished.sort_unstable();
        Ok(Self { segments, unfinished, _lock: lock })
    }

    /// Of segments that are given.
    #[cfg(test)]
    pub(super) fn of(segments: Vec<(u64, Vec<u8>)>) -> Self {
        Self { segments, unfinished: Vec::new(), _lock: None }
    }

    /// Finds what is whole.
    pub(super) fn survey(&self) -> Survey<'_> {
        let headers: Vec<_> = self.segments.iter().map(|(_, bytes)| SegmentHeader::decode(bytes)).collect();
        // Frames are only found with the log's identity, which any header tells.
        let log = headers.iter().flatten().map(|header| header.log).next().or_else(|| {
            self.segments.iter().find_map(|(sequence, bytes)| {
                let log = unchecked_log(bytes)?;
                find_frame(bytes, SEGMENT_HEADER, log, *sequence).map(|_| log)
            })
        });
        let (mut segments, mut damages, mut expected) = (Vec::new(), Vec::new(), 1);
        for ((sequence, bytes), header) in self.segments.iter().zip(headers) {
            let file = segment_name(*sequence);
            let mut damage = |offset: usize, why: &str| {
                damages.push(Damage { file: file.clone(), offset: offset as u64, why: why.to_owned() });
            };
            if *sequence != expected {
                damage(0, "the segment before this one is missing");
            }
            expected = sequence + 1;
            let header = match header {
                Ok(header) if header.sequence == *sequence && Some(header.log) == log => Some(header),
                Ok(_) => {
                    damage(0, "the segment is another log's, or has another's name");
                    None
                }
                Err(error) => {
                    damage(0, &error.to_string());
                    None
                }
            };
            let mut segment = Segment { sequence: *sequence, bytes, header, ..Segment::default() };
            if let Some(log) = log {
                segment.walk(log);
            }
            for hole in segment.holes.iter().filter(|hole| !hole.is_last) {
                damage(hole.offset, hole.why);
            }
            for frame in &segment.frames {
                let begin = frame.begin();
                for found in records(frame.frame.records) {
                    match found {
                        Ok((offset, record)) => {
                            if let Some(why) = flaw(&record) {
                                damage(begin + offset, why);
                            }
                        }
                        Err(found) => damage(begin + found.offset, found.why),
                    }
                }
            }
            segments.push(segment);
        }
        damages.extend(missing_frames(&segments));
        damages.sort_by(|one, other| (&one.file, one.offset).cmp(&(&other.file, other.offset)));
        Survey { segments, damages }
    }
}

/// Returns where segments end before the epoch that the next one counts on.
fn missing_frames(segments: &[Segment<'_>]) -> Vec<Damage> {
    let (mut closed, mut missing) = (0, Vec::new());
    let mut before: Option<&Segment<'_>> = None;
    for segment in segments {
        if let Some(header) = segment.header {
            let frames = before.iter().flat_map(|segment| &segment.frames).map(|at| at.frame.closes);
            closed = frames.chain([closed]).filter(|closes| *closes <= header.after).max().unwrap_or(0);
            if let Some(before) = before.filter(|_| closed != header.after) {
                let why = "a frame is missing, which the next segment counts on".to_owned();
                missing.push(Damage { file: before.name(), offset: before.end as u64, why });
                closed = header.after;
            }
        }
        before = Some(segment);
    }
    missing
}

/// The log's identity from a header that is damaged, which may be right.
fn unchecked_log(bytes: &[u8]) -> Option<u128> {
    Some(u128::from_le_bytes(bytes.get(16..32)?.try_into().ok()?))
}

/// Returns what is wrong in a record that has its checksum: nothing, unless it was written so.
fn flaw(record: &Record<'_>) -> Option<&'static str> {
    match record.kind {
        RecordKind::Rows => record.entries().find_map(|entry| entry.err().map(|damage| damage.why)),
        _ => Created::decode(record).err().map(|damage| damage.why),
    }
}

/// What is whole in a log.
#[derive(Debug)]
pub(super) struct Survey<'c> {
    pub(super) segments: Vec<Segment<'c>>,
    /// In the order of files and offsets.
    pub(super) damages: Vec<Damage>,
}

/// What is whole in a segment.
#[derive(Debug, Default)]
pub(super) struct Segment<'c> {
    pub(super) sequence: u64,
    pub(super) bytes: &'c [u8],
    /// `None` if it is damaged.
    pub(super) header: Option<SegmentHeader>,
    pub(super) frames: Vec<FrameAt<'c>>,
    pub(super) holes: Vec<Hole>,
    /// Where the last frame ends.
    pub(super) end: usize,
}

/// A frame, and where it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameAt<'c> {
    pub(super) offset: usize,
    pub(super) frame: Frame<'c>,
}

impl FrameAt<'_> {
    /// Where its records begin.
    pub(super) fn begin(&self) -> usize {
        self.offset + self.frame.length() - self.frame.records.len()
    }
}

/// Bytes that are no frame: zeros behind the last one are none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hole {
    pub(super) offset: usize,
    pub(super) end: usize,
    pub(super) why: &'static str,
    /// Whether no frame follows in the segment, so that it may be a write that a crash has torn.
    pub(super) is_last: bool,
}

impl<'c> Segment<'c> {
    pub(super) fn name(&self) -> String {
        segment_name(self.sequence)
    }

    fn walk(&mut self, log: u128) {
        let (bytes, sequence) = (self.bytes, self.sequence);
        let mut offset = SEGMENT_HEADER;
        self.end = offset.min(bytes.len());
        while let Some(rest) = bytes.get(offset..).filter(|rest| !rest.is_empty()) {
            match read_frame(rest, Position { log, sequence, offset: offset as u64 }) {
                Ok(frame) => {
                    self.frames.push(FrameAt { offset, frame });
                    offset += frame.length();
                    self.end = offset;
                }
                Err(damage) => {
                    let next = find_frame(bytes, offset + 1, log, sequence);
                    let written = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                    let end = next.unwrap_or(offset + written);
                    if end > offset {
                        self.holes.push(Hole { offset, end, why: damage.why, is_last: next.is_none() });
                    }
                    match next {
                        Some(next) => offset = next,
                        None => break,
                    }
                }
            }
        }
    }

    /// Returns the records of valid frames, with their offsets.
    pub(super) fn records(&self) -> impl Iterator<Item = (usize, Record<'c>)> {
        self.frames.iter().flat_map(|frame| {
            let begin = frame.begin();
            records(frame.frame.records).filter_map(move |found| found.ok().map(|(at, record)| (begin + at, record)))
        })
    }

    /// Returns the records that are whole in holes, with their offsets.
    pub(super) fn loose_records(&self) -> Vec<(usize, Record<'c>)> {
        let mut found = Vec::new();
        for hole in &self.holes {
            let Some(bytes) = self.bytes.get(..hole.end) else { continue };
            let mut from = hole.offset;
            while from < bytes.len() {
                let mut next = bytes.len();
                for record in records(&bytes[from..]) {
                    match record {
                        Ok((at, record)) => found.push((from + at, record)),
                        Err(damage) => next = from + damage.offset + drtm_txn::durability::format::ALIGN,
                    }
                }
                from = next;
            }
        }
        found
    }
}

impl Survey<'_> {
    /// Returns the last epoch that is closed, as far as can be read.
    pub(super) fn closed(&self) -> u64 {
        let of_segment = |segment: &Segment<'_>| {
            let after = segment.header.map_or(0, |header| header.after);
            segment.frames.last().map_or(after, |frame| frame.frame.closes.max(after))
        };
        let last = self.segments.last();
        // What the last header does not count on has not happened.
        match last.and_then(|segment| segment.header) {
            Some(_) => last.map_or(0, of_segment),
            None => self.segments.iter().map(of_segment).max().unwrap_or(0),
        }
    }

    /// Returns whether a later segment says that an epoch of a segment has not happened.
    pub(super) fn is_void(&self, segment: usize, epoch: u64) -> bool {
        let later = self.segments.iter().skip(segment + 1).filter_map(|segment| segment.header);
        later.into_iter().any(|header| (header.after + 1..header.begins).contains(&epoch))
    }

    /// Returns the first hole that may be a write that a crash has torn: in the last segment, behind all frames.
    pub(super) fn torn(&self) -> Option<(&Segment<'_>, &Hole)> {
        let last = self.segments.last()?;
        last.holes.iter().find(|hole| hole.is_last).map(|hole| (last, hole))
    }
}
