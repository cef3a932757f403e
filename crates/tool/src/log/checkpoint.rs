//! Reads a checkpoint. Unlike a log, a checkpoint is valid only as a whole: it is renamed after it
//! was synced.

use drtm_txn::durability::format::{
    CHECKPOINT_HEADER, Change, CheckpointEnd, CheckpointHeader, RecordKind, checkpoint_name,
};

use super::frames::{Damage, FrameFile};

/// A checkpoint, as far as it is readable.
#[derive(Debug)]
pub(super) struct Checkpoint<'c> {
    pub(super) file: FrameFile<'c, CheckpointHeader>,
    /// `None` if it is unreadable.
    pub(super) end: Option<CheckpointEnd>,
    /// The number of readable rows.
    pub(super) rows: u64,
    /// The damages, in the order of offsets.
    pub(super) damages: Vec<Damage>,
}

impl<'c> Checkpoint<'c> {
    /// Reads a checkpoint. If its header is damaged, `log` identifies its frames.
    pub(super) fn read(number: u64, bytes: &'c [u8], log: Option<u128>) -> Self {
        let mut flaws = Vec::new();
        let header = match CheckpointHeader::decode(bytes) {
            Ok(header) if header.number == number => Some(header),
            Ok(_) => {
                flaws.push((0, "the checkpoint has another's name".to_owned()));
                None
            }
            Err(error) => {
                flaws.push((0, error.to_string()));
                None
            }
        };
        let of_log = |log| CheckpointHeader { log, number, since: 0, first: 0 };
        let place = header.or(log.map(of_log)).map(|header| header.place(0));
        let file = FrameFile::read((number, bytes), header, CHECKPOINT_HEADER, place);
        flaws.extend(file.holes.iter().map(|hole| (hole.offset, hole.why.to_owned())));
        flaws.extend(file.flaws().map(|(offset, why)| (offset, why.to_owned())));
        let mut checkpoint = Self { file, end: None, rows: 0, damages: Vec::new() };
        flaws.extend(checkpoint.contradictions().into_iter().map(|(offset, why)| (offset, why.to_owned())));
        if let (Some(end), true) = (checkpoint.end, flaws.is_empty() && place.is_some())
            && end.rows != checkpoint.rows
        {
            flaws.push((0, "a row is missing".to_owned()));
        }
        flaws.sort_by_key(|(offset, _)| *offset);
        let damage = |(offset, why)| Damage { file: checkpoint_name(number), offset: offset as u64, why };
        checkpoint.damages = flaws.into_iter().map(damage).collect();
        checkpoint
    }

    /// Counts the rows and finds the end. Returns the format violations in valid frames.
    fn contradictions(&mut self) -> Vec<(usize, &'static str)> {
        let Self { file, end, rows, .. } = self;
        let mut found = Vec::new();
        for (before, frame) in file.frames.iter().enumerate() {
            let is_last = before + 1 == file.frames.len();
            // A missing frame is reported as a hole.
            if file.holes.is_empty() && (frame.frame.previous, frame.frame.closes) != (before as u64, before as u64 + 1)
            {
                found.push((frame.offset, "a frame is another's"));
            }
            for (offset, record) in frame.records().filter_map(Result::ok) {
                match record.kind {
                    RecordKind::Rows => {
                        let mut has_changes = false;
                        for entry in record.entries().map_while(Result::ok) {
                            *rows += 1;
                            has_changes |= !matches!(entry.change, Change::Put(_));
                        }
                        if has_changes {
                            found.push((offset, "there is a change among rows"));
                        }
                    }
                    RecordKind::Table | RecordKind::Index | RecordKind::Note if frame.frame.closes == 1 => {}
                    RecordKind::End if is_last => match CheckpointEnd::decode(&record) {
                        Ok(decoded) => *end = Some(decoded),
                        Err(damage) => found.push((offset, damage.why)),
                    },
                    _ => found.push((offset, "there is a record of another kind among rows")),
                }
            }
        }
        if end.is_none() && file.holes.iter().all(|hole| !hole.is_last) {
            found.push((file.end, "a checkpoint is cut off"));
        } else if end.is_some() && file.end != file.bytes.len() && file.holes.is_empty() {
            found.push((file.end, "there is something behind a checkpoint's end"));
        }
        found
    }

    pub(super) fn name(&self) -> String {
        checkpoint_name(self.file.number)
    }

    /// Returns the header and the end if the whole checkpoint is readable.
    pub(super) fn whole(&self) -> Option<(CheckpointHeader, CheckpointEnd)> {
        self.file.header.zip(self.end).filter(|_| self.damages.is_empty())
    }
}
