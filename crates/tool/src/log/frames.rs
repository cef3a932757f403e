//! The valid parts of a file of frames: a segment or a checkpoint.

use drtm_txn::durability::format::{
    ALIGN, CatalogChange, Frame, Position, Record, RecordKind, find_frame, read_frame, records,
};
use serde::Serialize;

/// A damage, in recovery's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Damage {
    pub(super) file: String,
    pub(super) offset: u64,
    pub(super) why: String,
}

/// The valid parts of a file that begins with a header `H`.
#[derive(Debug)]
pub(super) struct FrameFile<'c, H> {
    /// The number in its name.
    pub(super) number: u64,
    pub(super) bytes: &'c [u8],
    /// `None` if the header is damaged.
    pub(super) header: Option<H>,
    pub(super) frames: Vec<FrameAt<'c>>,
    pub(super) holes: Vec<Hole>,
    /// The end of the last frame.
    pub(super) end: usize,
}

/// A frame with its offset.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameAt<'c> {
    pub(super) offset: usize,
    pub(super) frame: Frame<'c>,
}

impl<'c> FrameAt<'c> {
    /// Returns its readable records, with their offsets.
    pub(super) fn records(&self) -> impl Iterator<Item = Result<(usize, Record<'c>), (usize, &'static str)>> {
        let begin = self.offset + self.frame.length() - self.frame.records.len();
        records(self.frame.records).map(move |found| match found {
            Ok((at, record)) => Ok((begin + at, record)),
            Err(damage) => Err((begin + damage.offset, damage.why)),
        })
    }
}

/// Bytes outside of frames, except zeros behind the last frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hole {
    pub(super) offset: usize,
    pub(super) end: usize,
    pub(super) why: &'static str,
    /// Whether it is the last in the file, so that it may be a write torn by a crash.
    pub(super) is_last: bool,
}

impl<'c, H> FrameFile<'c, H> {
    /// Finds the frames behind a header of `H`'s size. `place` is the file's beginning in the log.
    /// Without it no frame can be found.
    pub(super) fn read(
        (number, bytes): (u64, &'c [u8]),
        header: Option<H>,
        length: usize,
        place: Option<Position>,
    ) -> Self {
        let end = length.min(bytes.len());
        let mut file = Self { number, bytes, header, frames: Vec::new(), holes: Vec::new(), end };
        if let Some(place) = place {
            file.walk(place, length);
        }
        file
    }

    fn walk(&mut self, Position { log, sequence, .. }: Position, mut offset: usize) {
        let bytes = self.bytes;
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

    /// Returns the bytes outside of frames.
    pub(super) fn damaged_bytes(&self) -> usize {
        self.holes.iter().map(|hole| hole.end - hole.offset).sum()
    }

    /// Returns the records of valid frames, with their offsets.
    pub(super) fn records(&self) -> impl Iterator<Item = (usize, Record<'c>)> {
        self.frames.iter().flat_map(|frame| frame.records().filter_map(Result::ok))
    }

    /// Returns the valid records in holes, with their offsets.
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
                        Err(damage) => next = from + damage.offset + ALIGN,
                    }
                }
                from = next;
            }
        }
        found
    }

    /// Returns the format violations in frames with valid checksums, with their offsets. Only a
    /// faulty writer causes them.
    pub(super) fn flaws(&self) -> impl Iterator<Item = (usize, &'static str)> {
        self.frames.iter().flat_map(|frame| {
            frame.records().filter_map(|found| match found {
                Ok((offset, record)) => Some((offset, flaw(&record)?)),
                Err(found) => Some(found),
            })
        })
    }
}

fn flaw(record: &Record<'_>) -> Option<&'static str> {
    match record.kind {
        RecordKind::Rows => record.entries().find_map(|entry| entry.err().map(|damage| damage.why)),
        // Only a checkpoint has an end record, and checks it itself.
        RecordKind::End => None,
        kind if kind.is_of_catalog() => CatalogChange::decode(record).err().map(|damage| damage.why),
        _ => None,
    }
}
