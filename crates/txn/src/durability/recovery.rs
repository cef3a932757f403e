//! Reading a log: which of its frames are valid, and which of their transactions count.
//!
//! Segments are read in order, from the first that the newest checkpoint needs. A segment ends at
//! its first invalid frame. The header of the next segment names the epoch that the segments before
//! it close, so that damage before the log's end is detected. Damage of the very last frame looks
//! like a write that a crash has torn, and is treated as one. A valid frame behind an invalid one
//! is damage, since no frame is written before the previous one is durable.

use std::{collections::VecDeque, ops::Range};

use super::{
    LogError,
    format::{
        CatalogChange, Damage, Frame, HeaderError, Position, Record, SEGMENT_HEADER, SegmentHeader, VERSION,
        find_frame, read_frame, records, segment_name, sequence_of,
    },
    log::{Finished, believed},
    progress::{Observer, RecoveryStep},
    storage::{Access, Storage},
    tables::Tables,
};
use crate::mutation::Mutation;

/// The segments of a log, in memory.
#[derive(Debug, Default)]
pub(super) struct Segments {
    all: Vec<Segment>,
    /// Only records of later epochs count: a checkpoint has the others.
    since: u64,
}

#[derive(Debug)]
struct Segment {
    name: String,
    bytes: Vec<u8>,
    header: SegmentHeader,
}

/// The contents of a log.
#[derive(Debug)]
pub(super) struct Recovered<'s> {
    frames: Vec<PlacedFrame<'s>>,
    /// The last segment, and the offset at which its frames end.
    pub(super) last: Option<(&'s SegmentHeader, u64)>,
    /// The last durable epoch.
    pub(super) durable: u64,
    /// Ranges of epochs that are void in the segments before one, with the number of that one.
    void: Vec<(usize, Range<u64>)>,
    segments: &'s Segments,
    fault: Option<Mutation>,
}

/// A valid frame, with the number of its segment, and its offset in it.
type PlacedFrame<'s> = (usize, usize, Frame<'s>);

/// Some consecutive frames of a log.
pub(super) type Piece<'p, 's> = &'p [PlacedFrame<'s>];

/// A transaction's record, and its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'s> {
    pub(super) record: Record<'s>,
    pub(super) place: Place,
}

/// A place in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    segment: usize,
    offset: usize,
}

/// What a checkpoint requires of its log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Base {
    pub(super) log: u128,
    /// The first segment that is needed.
    pub(super) first: u64,
    /// Records of later epochs count.
    pub(super) since: u64,
}

impl Segments {
    /// Reads all segments that are needed, and ignores those before them.
    pub(super) fn read(
        storage: &dyn Storage,
        names: &[String],
        base: Option<Base>,
        observer: &Observer,
    ) -> Result<Self, LogError> {
        let first = base.map_or(1, |base| base.first);
        let mut sequences: Vec<_> = names.iter().filter_map(|name| sequence_of(name)).collect();
        sequences.retain(|sequence| *sequence >= first);
        sequences.sort_unstable();
        let mut all: Vec<Segment> = Vec::new();
        if let (true, Some(Base { first, .. })) = (sequences.is_empty(), base) {
            let why = "a segment is missing that a checkpoint counts on";
            return Err(LogError::Damaged { file: segment_name(first), offset: 0, why });
        }
        let mut files = Vec::new();
        let mut total = 0;
        for (sequence, expected) in sequences.into_iter().zip(first..) {
            let name = segment_name(sequence);
            if sequence != expected {
                let why = "the segment before this one is missing";
                return Err(LogError::Damaged { file: name, offset: 0, why });
            }
            let file = storage.open(&name, Access::Read).map_err(LogError::io("open", &name))?;
            total += file.length().map_err(LogError::io("read the length of", &name))?;
            files.push((sequence, name, file));
        }
        let step = observer.begin(RecoveryStep::Log, total);
        for (sequence, name, file) in files {
            let damaged = |why| LogError::Damaged { file: name.clone(), offset: 0, why };
            let bytes = file.read().map_err(LogError::io("read", &name))?;
            step.advance(bytes.len() as u64);
            let header = SegmentHeader::decode(&bytes).map_err(|error| match error {
                HeaderError::OtherFormat { found } => {
                    LogError::OtherFormat { file: name.clone(), found, reads: VERSION }
                }
                HeaderError::Damaged(damage) => damaged(damage.why),
            })?;
            let log = base.map(|base| base.log).or(all.first().map(|first| first.header.log));
            if header.sequence != sequence || log.is_some_and(|log| log != header.log) {
                return Err(damaged("the segment is another log's, or has another's name"));
            }
            all.push(Segment { name, bytes, header });
        }
        Ok(Self { all, since: base.map_or(0, |base| base.since) })
    }

    fn damaged(&self, place: Place, why: &'static str) -> LogError {
        LogError::Damaged { file: self.all[place.segment].name.clone(), offset: place.offset as u64, why }
    }

    /// Finds the valid frames.
    pub(super) fn recover(&self, fault: Option<Mutation>) -> Result<Recovered<'_>, LogError> {
        let mut frames: Vec<PlacedFrame<'_>> = Vec::new();
        // Segments before the first that is needed are not read.
        let before = self.all.first().filter(|first| first.header.sequence > 1).map_or(0, |first| first.header.after);
        let (mut closed, mut end) = (before, Place { segment: 0, offset: 0 });
        for (number, segment) in self.all.iter().enumerate() {
            let SegmentHeader { log, sequence, after, begins } = segment.header;
            // Frames that a later opening did not see, or did not accept, do not count.
            frames.retain(|(.., frame)| frame.closes <= after);
            if frames.last().map_or(before, |(.., frame)| frame.closes) != after {
                return Err(self.damaged(end, "a frame is missing, which the next segment counts on"));
            }
            if begins <= after {
                return Err(self.damaged(Place { segment: number, offset: 0 }, "a segment's header is contradictory"));
            }
            closed = after;
            let mut offset = SEGMENT_HEADER;
            while offset < segment.bytes.len() {
                let place = believed(Position { log, sequence, offset: offset as u64 }, fault);
                let here = Place { segment: number, offset };
                match read_frame(&segment.bytes[offset..], place) {
                    Ok(frame) if frame.previous == closed && frame.closes > closed => {
                        frames.push((number, offset, frame));
                        closed = frame.closes;
                        offset += frame.length();
                    }
                    Ok(_) => return Err(self.damaged(here, "a frame does not follow the one before")),
                    Err(damage) => {
                        if find_frame(&segment.bytes, offset + 1, log, sequence).is_some() {
                            return Err(self.damaged(here, damage.why));
                        }
                        break;
                    }
                }
            }
            end = Place { segment: number, offset };
        }
        let all = self.all.iter().enumerate();
        let void = all.map(|(number, segment)| (number, segment.header.after + 1..segment.header.begins));
        let void = void.filter(|(_, epochs)| !epochs.is_empty()).collect();
        let last = self.all.last().map(|segment| (&segment.header, end.offset as u64));
        Ok(Recovered { frames, last, durable: closed, void, segments: self, fault })
    }
}

impl<'s> Recovered<'s> {
    /// Returns all records that are physically present in a piece.
    fn records<'p>(&self, piece: Piece<'p, 's>) -> impl Iterator<Item = Result<Found<'s>, LogError>> + use<'p, 's> {
        let segments = self.segments;
        piece.iter().flat_map(move |(segment, offset, frame)| {
            let begin = *offset + frame.length() - frame.records.len();
            records(frame.records).map(move |found| match found {
                Ok((at, record)) => Ok(Found { record, place: Place { segment: *segment, offset: begin + at } }),
                Err(Damage { offset, why }) => {
                    Err(segments.damaged(Place { segment: *segment, offset: begin + offset }, why))
                }
            })
        })
    }

    /// Returns an epoch above all that are present, durable or not, and all segments.
    pub(super) fn survey(&self) -> Result<(u64, VecDeque<Finished>), LogError> {
        let finished = |segment: &Segment| Finished { sequence: segment.header.sequence, newest: 0 };
        let mut segments: VecDeque<_> = self.segments.all.iter().map(finished).collect();
        let begins = self.segments.all.iter().map(|segment| segment.header.begins).max();
        let mut next = begins.unwrap_or(1).max(self.durable + 1);
        for found in self.records(&self.frames) {
            let Found { record, place } = found?;
            next = next.max(record.epoch + 1);
            let newest = &mut segments[place.segment].newest;
            *newest = record.epoch.max(*newest);
        }
        Ok((next, segments))
    }

    fn is_committed(&self, found: &Found<'s>) -> bool {
        let epoch = found.record.epoch;
        let is_void =
            |(segment, epochs): &(usize, Range<u64>)| *segment > found.place.segment && epochs.contains(&epoch);
        epoch > self.segments.since
            && epoch <= self.durable
            && (self.fault == Some(Mutation::VoidRevived) || !self.void.iter().any(is_void))
    }

    /// Returns the bytes of all frames.
    pub(super) fn bytes(&self) -> usize {
        self.frames.iter().map(|(.., frame)| frame.length()).sum()
    }

    /// Divides the log in so many pieces or fewer, of about the same size.
    pub(super) fn pieces(&self, most: usize) -> Vec<Piece<'_, 's>> {
        let (share, mut bytes) = (self.bytes().div_ceil(most.max(1)).max(1), 0);
        let number = |frame: &Frame<'_>, bytes: &mut usize| {
            *bytes += frame.length();
            (*bytes - 1) / share
        };
        let numbers: Vec<_> = self.frames.iter().map(|(.., frame)| number(frame, &mut bytes)).collect();
        let mut begin = 0;
        let pieces = numbers.chunk_by(|one, other| one == other).map(|alike| {
            begin += alike.len();
            &self.frames[begin - alike.len()..begin]
        });
        pieces.collect()
    }

    /// Returns the records of a piece that count.
    pub(super) fn replayed<'p>(&'p self, piece: Piece<'p, 's>) -> impl Iterator<Item = Result<Found<'s>, LogError>> {
        self.records(piece).filter(|found| found.as_ref().map_or(true, |found| self.is_committed(found)))
    }

    /// Applies changes of the catalog to the tables of a checkpoint. One up to epoch `until` may be
    /// in the checkpoint already.
    pub(super) fn apply(&self, mut changes: Vec<Found<'s>>, tables: &mut Tables, until: u64) -> Result<(), LogError> {
        // Each change is the only one of its epoch.
        changes.sort_unstable_by_key(|found| found.record.epoch);
        let last = changes.last().map(|found| found.place);
        for Found { record, place } in changes {
            let change = CatalogChange::decode(&record).map_err(|damage| self.damaged(place, damage.why))?;
            if !tables.apply(change, record.epoch, record.epoch <= until) {
                return Err(self.damaged(place, "the catalog contradicts itself"));
            }
        }
        match last {
            Some(place) if !tables.are_whole() => Err(self.damaged(place, "the catalog lacks a table")),
            _ => Ok(()),
        }
    }

    pub(super) fn damaged(&self, place: Place, why: &'static str) -> LogError {
        self.segments.damaged(place, why)
    }
}
