//! Writes rows as a new log, which a database can open.

use std::{io, path::Path};

use drtm_txn::durability::{
    format::{
        CatalogChange, Change, Entry, FRAME_HEADER, Position, RecordKind, RecordWriter, SEGMENT_HEADER, SegmentHeader,
        begin_frame, finish_frame, segment_name,
    },
    storage::{Files, Storage, StoredFile},
};

use super::fold::{Folded, Row};

/// The sizes in bytes at which a new record, frame and segment begin.
const RECORD: usize = 1 << 20;
const FRAME: usize = 4 << 20;
const SEGMENT: u64 = 64 << 20;

/// Writes tables and rows to an empty directory, durably.
///
/// # Errors
///
/// Returns the system's error.
pub(super) fn write(directory: &Path, folded: &Folded<'_>) -> io::Result<()> {
    // All rows have one epoch, that of the newest record: frames before the last close earlier
    // ones.
    let epoch = folded.next_epoch.saturating_sub(1).max(1);
    let mut out = Out::begin(directory)?;
    for (table, (shape, indexes)) in &folded.tables {
        let created = [CatalogChange::Table(*table, shape.clone())];
        let indexed = indexes.iter().map(|name| CatalogChange::Index(*table, name.clone()));
        for created in created.into_iter().chain(indexed) {
            created.encode(&mut out.frame, epoch).map_err(io::Error::other)?;
        }
    }
    if let Some(note) = &folded.note {
        CatalogChange::Noted(note.clone()).encode(&mut out.frame, epoch).map_err(io::Error::other)?;
    }
    let mut rows = folded.rows.iter().filter(|row| folded.tables.contains_key(&row.table)).peekable();
    while rows.peek().is_some() {
        if out.frame.len() >= FRAME {
            out.write_frame(out.closed + 1)?;
        }
        let mut record = RecordWriter::begin(&mut out.frame, epoch, RecordKind::Rows);
        let mut bytes = 0;
        while let Some(Row { table, key, value, version }) = rows.next_if(|_| bytes < RECORD) {
            let entry = Entry { table: *table, key, version: *version, change: Change::Put(value) };
            record.entry(&entry).map_err(io::Error::other)?;
            bytes += key.len() + value.len();
        }
        record.finish().map_err(io::Error::other)?;
    }
    out.write_frame(epoch.max(out.closed + 1))?;
    out.file.sync()?;
    out.files.sync_directory()
}

/// The log being written.
struct Out {
    files: Files,
    file: Box<dyn StoredFile>,
    log: u128,
    sequence: u64,
    /// The offset of the next frame.
    offset: u64,
    closed: u64,
    frame: Vec<u8>,
}

impl Out {
    fn begin(directory: &Path) -> io::Result<Self> {
        let files = Files::create(directory.to_owned())?;
        let (log, mut frame) = (fastrand::u128(..), Vec::new());
        begin_frame(&mut frame);
        let file = segment(&files, SegmentHeader { log, sequence: 1, after: 0, begins: 1 })?;
        Ok(Self { files, file, log, sequence: 1, offset: SEGMENT_HEADER as u64, closed: 0, frame })
    }

    /// Writes the frame, in the next segment if this one is full, and begins another frame.
    fn write_frame(&mut self, closes: u64) -> io::Result<()> {
        if self.offset > SEGMENT {
            self.file.sync()?;
            self.sequence += 1;
            let Self { log, sequence, closed: after, .. } = *self;
            self.file = segment(&self.files, SegmentHeader { log, sequence, after, begins: after + 1 })?;
            self.offset = SEGMENT_HEADER as u64;
        }
        let place = Position { log: self.log, sequence: self.sequence, offset: self.offset };
        finish_frame(&mut self.frame, place, closes, self.closed);
        write_all(&*self.file, self.offset, &self.frame)?;
        self.offset += self.frame.len() as u64;
        self.closed = closes;
        begin_frame(&mut self.frame);
        debug_assert_eq!(self.frame.len(), FRAME_HEADER);
        Ok(())
    }
}

fn segment(files: &Files, header: SegmentHeader) -> io::Result<Box<dyn StoredFile>> {
    let file = files.create(&segment_name(header.sequence))?;
    write_all(&*file, 0, &header.encode())?;
    Ok(file)
}

fn write_all(file: &dyn StoredFile, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(offset, bytes)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => {
                bytes = bytes.get(written..).unwrap_or(&[]);
                offset += written as u64;
            }
        }
    }
    Ok(())
}
