//! What fuzzing does with bytes: it gives them to a reader as they are, and again with checksums
//! that are right.
//!
//! A checksum stops nearly all noise, so that what is behind it would never be reached. A reader
//! must not panic, and what it accepts must be what its writer writes.

use drtm_txn::durability::format::{
    CHECKPOINT_HEADER, CatalogChange, CheckpointEnd, CheckpointHeader, FRAME_HEADER, Position, Record, RecordKind,
    RecordWriter, SEGMENT_HEADER, SegmentHeader, VERSION, checkpoint_name, find_frame, frame_length, number_of,
    read_frame, records, segment_name, sequence_of,
};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// A segment: its header, frames and records.
pub(crate) fn segment(bytes: &[u8]) {
    read_segment(bytes);
    let mut sealed = bytes.to_vec();
    seal_file(&mut sealed, *b"drtm-log", 0);
    assert!(read_segment(&sealed) > 0, "it is sealed");
}

/// A checkpoint: its header, frames and records.
pub(crate) fn checkpoint(bytes: &[u8]) {
    read_checkpoint(bytes);
    let mut sealed = bytes.to_vec();
    seal_file(&mut sealed, *b"drtm-ckp", OF_CHECKPOINT);
    assert!(read_checkpoint(&sealed) > 0, "it is sealed");
}

/// Records, as frames have them.
pub(crate) fn record(bytes: &[u8]) {
    read_records(bytes);
    let mut sealed = bytes.to_vec();
    seal_record(&mut sealed);
    read_records(&sealed);
}

/// A record of the catalog, whose content the bytes are.
pub(crate) fn catalog(bytes: &[u8]) {
    read_records(bytes);
    let others = [RecordKind::TableDropped, RecordKind::IndexDropped, RecordKind::TableCleared, RecordKind::Note];
    for kind in [RecordKind::Table, RecordKind::Index, RecordKind::TableRenamed].into_iter().chain(others) {
        let mut sealed = vec![0; RECORD_HEADER];
        sealed[KIND..KIND + 2].copy_from_slice(&(kind as u16).to_le_bytes());
        sealed.extend_from_slice(bytes);
        sealed.resize(sealed.len().next_multiple_of(8) + MARK, 0);
        seal_record(&mut sealed);
        read_records(&sealed);
    }
}

const RECORD_HEADER: usize = 24;
const MARK: usize = 8;
/// Where a record has its format and its kind.
const FORMAT: usize = 20;
const KIND: usize = 22;

/// What tells the place of a checkpoint's frame from one of a segment.
const OF_CHECKPOINT: u64 = 1 << 63;

/// Returns how many frames there are.
fn read_segment(bytes: &[u8]) -> usize {
    let Ok(header) = SegmentHeader::decode(bytes) else { return 0 };
    let mut frames = 0;
    assert_eq!(header.encode(), bytes[..SEGMENT_HEADER], "a header is what is written");
    assert_eq!(sequence_of(&segment_name(header.sequence)), Some(header.sequence));
    let SegmentHeader { log, sequence, .. } = header;
    let mut offset = SEGMENT_HEADER;
    while offset < bytes.len() {
        let place = Position { log, sequence, offset: offset as u64 };
        match read_frame(&bytes[offset..], place) {
            Ok(frame) => {
                assert!(frame.length() >= FRAME_HEADER && frame.length() <= bytes.len() - offset);
                // A frame is valid in one place only.
                let elsewhere = Position { offset: place.offset + 8, ..place };
                assert!(read_frame(&bytes[offset..], elsewhere).is_err());
                read_records(frame.records);
                frames += 1;
                offset += frame.length();
            }
            Err(_) => match find_frame(bytes, offset + 1, log, sequence) {
                Some(next) => {
                    assert!(next > offset);
                    offset = next;
                }
                None => return frames,
            },
        }
    }
    frames
}

/// Returns how many frames there are, up to one that is damaged.
fn read_checkpoint(bytes: &[u8]) -> usize {
    let Ok(header) = CheckpointHeader::decode(bytes) else { return 0 };
    assert_eq!(CheckpointHeader::decode(&header.encode()), Ok(header), "a header comes back");
    assert_eq!(number_of(&checkpoint_name(header.number)), Some(header.number));
    let (mut frames, mut offset) = (0, CHECKPOINT_HEADER);
    while offset < bytes.len() {
        let rest = &bytes[offset..];
        let Ok(frame) = read_frame(rest, header.place(offset as u64)) else { return frames };
        assert_eq!(frame_length(rest), Some(frame.length() as u64), "its header says how long it is");
        assert!(read_frame(rest, header.place(offset as u64 + 8)).is_err(), "it is valid in one place only");
        read_records(frame.records);
        for (_, record) in records(frame.records).map_while(Result::ok) {
            let Ok(end) = CheckpointEnd::decode(&record) else { continue };
            let mut again = Vec::new();
            end.encode(&mut again, record.epoch).expect("what was read fits");
            let (_, again) = records(&again).next().expect("a record").expect("it was written");
            assert_eq!(CheckpointEnd::decode(&again), Ok(end), "an end comes back");
        }
        frames += 1;
        offset += frame.length();
    }
    frames
}

fn read_records(bytes: &[u8]) {
    let mut end = 0;
    for found in records(bytes) {
        match found {
            Ok((offset, record)) => {
                assert!(offset >= end && offset.is_multiple_of(8));
                end = offset + 1;
                read_record(&record);
            }
            Err(damage) => assert!(damage.offset <= bytes.len()),
        }
    }
}

fn read_record(record: &Record<'_>) {
    if record.kind == RecordKind::Rows {
        // A record can claim any number of entries: the first that is damaged is the last.
        let (mut entries, mut is_damaged) = (Vec::new(), false);
        for entry in record.entries() {
            assert!(!is_damaged, "there is an entry behind damage");
            match entry {
                Ok(entry) => entries.push(entry),
                Err(_) => is_damaged = true,
            }
        }
        let mut bytes = Vec::new();
        let mut writer = RecordWriter::begin(&mut bytes, record.epoch, RecordKind::Rows);
        for entry in &entries {
            writer.entry(entry).expect("what was read fits");
        }
        writer.finish().expect("what was read fits");
        let (_, again) = records(&bytes).next().expect("a record").expect("it was written");
        let again: Vec<_> = again.entries().map(|entry| entry.expect("it was written")).collect();
        assert_eq!(again, entries, "entries come back");
    } else if let Ok(change) = CatalogChange::decode(record) {
        let mut bytes = Vec::new();
        change.encode(&mut bytes, record.epoch).expect("what was read fits");
        let (_, again) = records(&bytes).next().expect("a record").expect("it was written");
        assert_eq!(CatalogChange::decode(&again), Ok(change), "a change comes back");
    }
}

/// Makes bytes a record that is believed, whatever it says.
fn seal_record(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().max(RECORD_HEADER + MARK).next_multiple_of(8), 0);
    let (length, mark) = (bytes.len(), bytes.len() - MARK);
    bytes[..4].copy_from_slice(&(length as u32).to_le_bytes());
    bytes[FORMAT..FORMAT + 2].copy_from_slice(&2_u16.to_le_bytes());
    bytes[mark..].copy_from_slice(&(u64::from_le_bytes(*b"commited") ^ length as u64).to_le_bytes());
    let checksum = xxh3_64(&bytes[8..]) as u32;
    bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
}

/// Makes bytes a segment or a checkpoint, which begins so, with one frame, of one record.
fn seal_file(bytes: &mut Vec<u8>, magic: [u8; 8], of_kind: u64) {
    const LEAST: usize = SEGMENT_HEADER + FRAME_HEADER;
    const { assert!(SEGMENT_HEADER == CHECKPOINT_HEADER, "both headers have their fields in the same places") };
    bytes.resize(bytes.len().max(LEAST), 0);
    let mut record = bytes.split_off(LEAST);
    seal_record(&mut record);
    bytes[..8].copy_from_slice(&magic);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&(SEGMENT_HEADER as u32).to_le_bytes());
    bytes[56..60].fill(0);
    let checksum = xxh3_64(&bytes[..60]) as u32;
    bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
    // The frame's checksum covers where it is: the log, the file's number, the offset.
    let mut place = bytes[16..40].to_vec();
    let number = u64::from_le_bytes(bytes[32..40].try_into().expect("eight bytes")) | of_kind;
    place[16..].copy_from_slice(&number.to_le_bytes());
    place.extend_from_slice(&(SEGMENT_HEADER as u64).to_le_bytes());
    bytes.extend_from_slice(&record);
    let frame = &mut bytes[SEGMENT_HEADER..];
    frame[..4].copy_from_slice(b"dfrm");
    frame[8..16].copy_from_slice(&(record.len() as u64).to_le_bytes());
    let checksum = xxh3_64_with_seed(&frame[8..], xxh3_64(&place)) as u32;
    frame[4..8].copy_from_slice(&checksum.to_le_bytes());
}
