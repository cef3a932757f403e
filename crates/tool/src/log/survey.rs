//! A tolerant reader of logs: it continues behind damage.
//!
//! Recovery stops at the first damage, because it must not lose acknowledged transactions. A survey
//! instead finds every valid frame, and every valid record in the holes between frames: frames and
//! records have checksums of their own.

use std::{fs, path::Path};

use drtm_txn::{
    LogError,
    durability::{
        format::{
            CheckpointEnd, CheckpointHeader, INCOMPLETE, Position, SEGMENT_HEADER, SegmentHeader, checkpoint_name,
            find_frame, number_of, segment_name, sequence_of,
        },
        storage::{Access, DirectoryLock, Files, Storage},
    },
};

use super::{
    checkpoint::Checkpoint,
    frames::{Damage, FrameFile, Hole},
};
use crate::Error;

/// The extension of files whose creation a crash interrupted.
const UNFINISHED: &str = ".new";

/// A segment, as far as it is readable.
pub(super) type Segment<'c> = FrameFile<'c, SegmentHeader>;

/// The files of a directory, with the directory locked.
#[derive(Debug)]
pub(super) struct Contents {
    segments: Vec<(u64, Vec<u8>)>,
    pub(super) checkpoints: Vec<(u64, Vec<u8>)>,
    /// Whether it is an unfinished backup.
    is_incomplete: bool,
    /// Unfinished files of a crash, which recovery removes.
    pub(super) unfinished: Vec<String>,
    _lock: Option<Box<dyn DirectoryLock>>,
}

impl Contents {
    /// Reads all segments and checkpoints.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no log, if it is in use, or if a file cannot be read.
    pub(super) fn read(directory: &Path) -> Result<Self, Error> {
        let unreadable = |source| Error::Unreadable { path: directory.to_owned(), source };
        if !directory.is_dir() {
            return Err(Error::NoLog { path: directory.to_owned() });
        }
        let files = Files::open(directory.to_owned()).map_err(unreadable)?;
        let lock = files.lock(Access::Read).map_err(unreadable)?.map_err(|holder| {
            let directory = directory.display().to_string();
            drtm_txn::Error::from(LogError::InUse { directory, holder })
        })?;
        let names = files.list().map_err(unreadable)?;
        let read = |number: fn(&str) -> Option<u64>, name: fn(u64) -> String| {
            let mut numbers: Vec<u64> = names.iter().filter_map(|name| number(name)).collect();
            numbers.sort_unstable();
            let read = |number| {
                let path = directory.join(name(number));
                Ok((number, fs::read(&path).map_err(|source| Error::Unreadable { path, source })?))
            };
            numbers.into_iter().map(read).collect::<Result<Vec<_>, Error>>()
        };
        let (segments, checkpoints) = (read(sequence_of, segment_name)?, read(number_of, checkpoint_name)?);
        let is_incomplete = names.iter().any(|name| name == INCOMPLETE);
        if segments.is_empty() && checkpoints.is_empty() && !is_incomplete {
            return Err(Error::NoLog { path: directory.to_owned() });
        }
        let mut unfinished: Vec<_> = names.into_iter().filter(|name| name.ends_with(UNFINISHED)).collect();
        unfinished.sort_unstable();
        Ok(Self { segments, checkpoints, is_incomplete, unfinished, _lock: Some(lock) })
    }

    /// Creates contents of these segments.
    #[cfg(test)]
    pub(super) fn of(segments: Vec<(u64, Vec<u8>)>) -> Self {
        let (checkpoints, unfinished) = (Vec::new(), Vec::new());
        Self { segments, checkpoints, is_incomplete: false, unfinished, _lock: None }
    }

    /// Finds the valid parts.
    pub(super) fn survey(&self) -> Survey<'_> {
        let headers: Vec<_> = self.segments.iter().map(|(_, bytes)| SegmentHeader::decode(bytes)).collect();
        let of_segments = headers.iter().flatten().map(|header| header.log).next();
        let checkpoints = self.checkpoints.iter();
        let checkpoints: Vec<_> =
            checkpoints.map(|(number, bytes)| Checkpoint::read(*number, bytes, of_segments)).collect();
        let base = checkpoints.iter().rev().find_map(Checkpoint::whole);
        // Finding frames requires the log's identity, which any valid header has.
        let of_checkpoints = checkpoints.iter().rev().find_map(|checkpoint| Some(checkpoint.file.header?.log));
        let log = base.map(|(header, _)| header.log).or(of_segments).or(of_checkpoints).or_else(|| {
            self.segments.iter().find_map(|(sequence, bytes)| {
                let log = unchecked_log(bytes)?;
                find_frame(bytes, SEGMENT_HEADER, log, *sequence).map(|_| log)
            })
        });
        let mut damages: Vec<_> = checkpoints.iter().flat_map(|checkpoint| checkpoint.damages.clone()).collect();
        if self.is_incomplete {
            let why = "the backup was not finished".to_owned();
            damages.push(Damage { file: INCOMPLETE.to_owned(), offset: 0, why });
        }
        let first = base.map_or(1, |(header, _)| header.first);
        let (mut segments, mut expected) = (Vec::new(), first);
        for ((sequence, bytes), header) in self.segments.iter().zip(headers) {
            let file = segment_name(*sequence);
            let is_needed = *sequence >= first;
            let mut damage = |offset: usize, why: &str| {
                // Damage in what the checkpoint replaces does not matter.
                if is_needed {
                    damages.push(Damage { file: file.clone(), offset: offset as u64, why: why.to_owned() });
                }
            };
            if *sequence != expected {
                damage(0, "the segment before this one is missing");
            }
            if is_needed {
                expected = sequence + 1;
            }
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
            let place = log.map(|log| Position { log, sequence: *sequence, offset: 0 });
            let segment = Segment::read((*sequence, bytes), header, SEGMENT_HEADER, place);
            segment.holes.iter().filter(|hole| !hole.is_last).for_each(|hole| damage(hole.offset, hole.why));
            segment.flaws().for_each(|(offset, why)| damage(offset, why));
            segments.push(segment);
        }
        if base.is_some() && expected == first {
            let why = "a segment is missing that a checkpoint counts on".to_owned();
            damages.push(Damage { file: segment_name(first), offset: 0, why });
        }
        let needed = segments.iter().position(|segment| segment.number >= first).unwrap_or(segments.len());
        damages.extend(missing_frames(&segments[needed..]));
        let mut survey = Survey { segments, checkpoints, base, needed, damages };
        if let Some((header, end)) = base
            && end.until > survey.closed()
        {
            let why = "the log ends before the checkpoint does".to_owned();
            survey.damages.push(Damage { file: checkpoint_name(header.number), offset: 0, why });
        }
        survey.damages.sort_by(|one, other| (&one.file, one.offset).cmp(&(&other.file, other.offset)));
        survey
    }
}

/// Returns the segments that end before the epoch that the next one builds on.
fn missing_frames(segments: &[Segment<'_>]) -> Vec<Damage> {
    // Nothing before the first segment is checked: a checkpoint replaces it, or it is reported as
    // missing.
    let before_all = segments.first().and_then(|first| first.header).map_or(0, |header| header.after);
    let (mut closed, mut missing) = (before_all, Vec::new());
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

/// Reads the log's identity from a damaged header. It may be right.
fn unchecked_log(bytes: &[u8]) -> Option<u128> {
    Some(u128::from_le_bytes(bytes.get(16..32)?.try_into().ok()?))
}

/// The valid parts of a log.
#[derive(Debug)]
pub(super) struct Survey<'c> {
    pub(super) segments: Vec<Segment<'c>>,
    /// In the order of their numbers.
    pub(super) checkpoints: Vec<Checkpoint<'c>>,
    /// The newest valid checkpoint: its header and its end.
    pub(super) base: Option<(CheckpointHeader, CheckpointEnd)>,
    /// The index of the first segment that is needed beside it.
    needed: usize,
    /// In the order of files and offsets.
    pub(super) damages: Vec<Damage>,
}

impl Segment<'_> {
    pub(super) fn name(&self) -> String {
        segment_name(self.number)
    }
}

impl<'c> Survey<'c> {
    /// Returns the last closed epoch, as far as it is readable.
    pub(super) fn closed(&self) -> u64 {
        let of_segment = |segment: &Segment<'_>| {
            let after = segment.header.map_or(0, |header| header.after);
            segment.frames.last().map_or(after, |frame| frame.frame.closes.max(after))
        };
        let last = self.segments.last();
        // Epochs that the last header does not build on are void.
        match last.and_then(|segment| segment.header) {
            Some(_) => last.map_or(0, of_segment),
            None => self.segments.iter().map(of_segment).max().unwrap_or(0),
        }
    }

    /// Returns the checkpoints to start from: the newest valid one and the readable parts of newer
    /// ones. If none is valid, returns all.
    pub(super) fn basis(&self) -> impl Iterator<Item = &Checkpoint<'c>> {
        let from = self.base.map_or(0, |(header, _)| header.number);
        self.checkpoints.iter().filter(move |checkpoint| checkpoint.file.number >= from)
    }

    /// Returns the segments needed beside it, each with its index.
    pub(super) fn needed(&self) -> impl Iterator<Item = (usize, &Segment<'c>)> {
        self.segments.iter().enumerate().skip(self.needed)
    }

    /// Returns whether a later segment voids an epoch of a segment.
    pub(super) fn is_void(&self, segment: usize, epoch: u64) -> bool {
        let later = self.segments.iter().skip(segment + 1).filter_map(|segment| segment.header);
        later.into_iter().any(|header| (header.after + 1..header.begins).contains(&epoch))
    }

    /// Returns the first hole that may be a write torn by a crash: in the last segment, behind all
    /// frames.
    pub(super) fn torn(&self) -> Option<(&Segment<'_>, &Hole)> {
        let last = self.segments.last()?;
        last.holes.iter().find(|hole| hole.is_last).map(|hole| (last, hole))
    }
}
