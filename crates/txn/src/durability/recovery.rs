//! Reading a log: which of its frames are valid, and which of their transactions have happened.
//!
//! Segments are read in order. A segment ends at its first invalid frame. The header of the next one names the epoch
//! that the segments before it close, so that damage before the log's end is noticed; damage of the last frame of all
//! cannot be told from a write that a crash has torn, and is taken for one. A valid frame behind an invalid one is
//! damage, since no frame is written before the one before it is durable.

use std::collections::BTreeMap;

use super::{
    LogError,
    format::{
        Created, Damage, Frame, HeaderError, Position, Record, RecordKind, SEGMENT_HEADER, SegmentHeader, TableShape,
        VERSION, find_frame, read_frame, records, segment_name, sequence_of,
    },
    log::UNFINISHED,
    storage::Storage,
};
use crate::mutation::Mutation;

/// The segments of a log, in memory.
#[derive(Debug, Default)]
pub(super) struct Segments {
    all: Vec<Segment>,
}

#[derive(Debug)]
struct Segment {
    name: String,
    bytes: Vec<u8>,
    header: SegmentHeader,
}

/// What a log holds.
#[derive(Debug)]
pub(super) struct Recovered<'s> {
    /// Valid frames, with the number of their segment, and their offset in it.
    frames: Vec<(usize, usize, Frame<'s>)>,
    /// The last segment, and where its frames end.
    pub(super) last: Option<(&'s SegmentHeader, u64)>,
    /// The last epoch of which everything is there.
    pub(super) durable: u64,
    segments: &'s Segments,
    fault: Option<Mutation>,
}

/// A transaction's record, and where it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'s> {
    pub(super) record: Record<'s>,
    pub(super) place: Place,
}

/// Where in a log something is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    segment: usize,
    offset: usize,
}

/// The tables of a log, and the names of their indexes.
pub(super) type Tables = BTreeMap<u16, (TableShape, Vec<String>)>;

impl Segments {
    /// Reads all segments, and removes what a crash has left of unfinished ones.
    pub(super) fn read(storage: &dyn Storage) -> Result<Self, LogError> {
        let names = storage.list().map_err(LogError::io("list", storage.name()))?;
        for name in names.iter().filter(|name| name.ends_with(UNFINISHED)) {
            storage.remove(name).map_err(LogError::io("remove", name))?;
        }
        let mut sequences: Vec<_> = names.iter().filter_map(|name| sequence_of(name)).collect();
        sequences.sort_unstable();
        let mut all: Vec<Segment> = Vec::new();
        for (sequence, expected) in sequences.into_iter().zip(1..) {
            let name = segment_name(sequence);
            let damaged = |why| LogError::Damaged { file: name.clone(), offset: 0, why };
            if sequence != expected {
                return Err(damaged("the segment before this one is missing"));
            }
            let file = storage.open(&name).map_err(LogError::io("open", &name))?;
            let bytes = file.read().map_err(LogError::io("read", &name))?;
            let header = SegmentHeader::decode(&bytes).map_err(|error| match error {
                HeaderError::OtherFormat { found } => {
                    LogError::OtherFormat { file: name.clone(), found, reads: VERSION }
                }
                HeaderError::Damaged(damage) => damaged(damage.why),
            })?;
            if header.sequence != sequence || all.first().is_some_and(|first| first.header.log != header.log) {
                return Err(damaged("the segment is another log's, or has another's name"));
            }
            all.push(Segment { name, bytes, header });
        }
        Ok(Self { all })
    }

    fn damaged(&self, place: Place, why: &'static str) -> LogError {
        LogError::Damaged { file: self.all[place.segment].name.clone(), offset: place.offset as u64, why }
    }

    /// Finds the valid frames.
    pub(super) fn recover(&self, fault: Option<Mutation>) -> Result<Recovered<'_>, LogError> {
        let mut frames: Vec<(usize, usize, Frame<'_>)> = Vec::new();
        let (mut closed, mut end) = (0, Place { segment: 0, offset: 0 });
        for (number, segment) in self.all.iter().enumerate() {
            let SegmentHeader { log, sequence, after, begins } = segment.header;
            // What a later opening did not see, or did not believe, has not happened.
            frames.retain(|(.., frame)| frame.closes <= after);
            if frames.last().map_or(0, |(.., frame)| frame.closes) != after {
                return Err(self.damaged(end, "a frame is missing, which the next segment counts on"));
            }
            if begins <= after {
                return Err(self.damaged(Place { segment: number, offset: 0 }, "a segment's header is contradictory"));
            }
            closed = after;
            let mut offset = SEGMENT_HEADER;
            while offset < segment.bytes.len() {
                let place = Position { log, sequence, offset: offset as u64 };
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
        let last = self.all.last().map(|segment| (&segment.header, end.offset as u64));
        Ok(Recovered { frames, last, durable: closed, segments: self, fault })
    }
}

impl<'s> Recovered<'s> {
    /// Returns all records that are physically there, with the number of their segment.
    fn records(&self) -> impl Iterator<Item = Result<Found<'s>, LogError>> {
        let segments = self.segments;
        self.frames.iter().flat_map(move |(segment, offset, frame)| {
            let begin = *offset + frame.length() - frame.records.len();
            records(frame.records).map(move |found| match found {
                Ok((at, record)) => Ok(Found { record, place: Place { segment: *segment, offset: begin + at } }),
                Err(Damage { offset, why }) => {
                    Err(segments.damaged(Place { segment: *segment, offset: begin + offset }, why))
                }
            })
        })
    }

    /// Returns an epoch above every one that is there, durable or not.
    pub(super) fn next_epoch(&self) -> Result<u64, LogError> {
        let begins = self.segments.all.iter().map(|segment| segment.header.begins).max();
        let mut next = begins.unwrap_or(1).max(self.durable + 1);
        for found in self.records() {
            next = next.max(found?.record.epoch + 1);
        }
        Ok(next)
    }

    fn has_happened(&self, found: &Found<'s>) -> bool {
        let epoch = found.record.epoch;
        let is_void = |segment: &Segment| (segment.header.after + 1..segment.header.begins).contains(&epoch);
        let later = &self.segments.all[found.place.segment + 1..];
        epoch <= self.durable && (self.fault == Some(Mutation::VoidRevived) || !later.iter().any(is_void))
    }

    /// Returns the tables, and calls `row_record` with every transaction that has happened.
    pub(super) fn replay(&self, mut row_record: impl FnMut(Found<'s>)) -> Result<Tables, LogError> {
        let mut tables = Tables::new();
        for found in self.records() {
            let found = found?;
            if !self.has_happened(&found) {
                continue;
            }
            if found.record.kind == RecordKind::Rows {
                row_record(found);
                continue;
            }
            let created = Created::decode(&found.record).map_err(|damage| self.damaged(found.place, damage.why))?;
            let is_new = match created {
                Created::Table(table, shape) => tables.insert(table, (shape, Vec::new())).is_none(),
                Created::Index(table, name) => tables.get_mut(&table).map(|(_, indexes)| indexes.push(name)).is_some(),
            };
            if !is_new {
                return Err(self.damaged(found.place, "the catalog contradicts itself"));
            }
        }
        Ok(tables)
    }

    pub(super) fn damaged(&self, place: Place, why: &'static str) -> LogError {
        self.segments.damaged(place, why)
    }
}
