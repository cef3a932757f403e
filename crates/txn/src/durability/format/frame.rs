//! Frames: the unit of writing. A frame closes an epoch, and is valid as a whole or not at all.
//!
//! A frame's checksum covers its content *and* its place: the log's identity, the segment's number
//! and the offset in it. So bytes of an older use of the same space are never accepted.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{ALIGN, Damage, layout::layout};

/// Bytes of a frame's header.
pub const FRAME_HEADER: usize = 32;

const MAGIC: u32 = u32::from_le_bytes(*b"dfrm");

layout! {
    struct Raw {
        magic: u32,
        checksum: u32,
        length: u64,
        closes: u64,
        previous: u64,
    }
}

const _: () = assert!(Raw::BYTES == FRAME_HEADER && FRAME_HEADER.is_multiple_of(ALIGN));

/// The bytes before and including the checksum, which it does not cover.
const UNCHECKED: usize = 8;

/// The place of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The log's identity.
    pub log: u128,
    /// The segment's number.
    pub sequence: u64,
    /// The frame's offset in the segment.
    pub offset: u64,
}

impl Position {
    fn checksum(&self, content: &[u8]) -> u32 {
        let mut place = [0; 32];
        place[..16].copy_from_slice(&self.log.to_le_bytes());
        place[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        place[24..].copy_from_slice(&self.offset.to_le_bytes());
        xxh3_64_with_seed(content, xxh3_64(&place)) as u32
    }
}

/// A frame that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'b> {
    /// The epoch that it closes: it and the frames before have every transaction up to that epoch.
    pub closes: u64,
    /// The epoch that the previous frame closes.
    pub previous: u64,
    /// The records, stored contiguously.
    pub records: &'b [u8],
}

impl Frame<'_> {
    /// Returns the frame's length in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        FRAME_HEADER + self.records.len()
    }
}

/// Begins a frame in an empty buffer, to which records are then appended.
pub fn begin_frame(bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.resize(FRAME_HEADER, 0);
}

/// Finishes a frame for one place. Its records are in the buffer.
pub fn finish_frame(bytes: &mut [u8], place: Position, closes: u64, previous: u64) {
    let Some(length) = bytes.len().checked_sub(FRAME_HEADER) else { return };
    let mut raw = Raw { magic: MAGIC, checksum: 0, length: length as u64, closes, previous };
    bytes[..FRAME_HEADER].copy_from_slice(&raw.encode());
    raw.checksum = place.checksum(&bytes[UNCHECKED..]);
    bytes[..FRAME_HEADER].copy_from_slice(&raw.encode());
}

/// Returns the length of the frame with this header. `None` if it is no header. The length is not
/// checked.
#[must_use]
pub fn frame_length(header: &[u8]) -> Option<u64> {
    let (raw, _) = Raw::decode(header)?;
    (raw.magic == MAGIC).then(|| raw.length.checked_add(FRAME_HEADER as u64))?
}

/// Reads the frame at a place, from the bytes of the segment from there on.
///
/// # Errors
///
/// When there is no valid one: the log ends there, or is damaged.
pub fn read_frame(bytes: &[u8], place: Position) -> Result<Frame<'_>, Damage> {
    let Some((raw, rest)) = Raw::decode(bytes) else {
        return Err(Damage::at(bytes.len(), "a frame's header is cut off"));
    };
    if raw.magic != MAGIC {
        return Err(Damage::at(0, "no frame begins here"));
    }
    let length = usize::try_from(raw.length).ok().filter(|length| length.is_multiple_of(ALIGN));
    let Some(records) = length.and_then(|length| rest.get(..length)) else {
        return Err(Damage::at(0, "a frame is longer than its segment"));
    };
    if place.checksum(&bytes[UNCHECKED..FRAME_HEADER + records.len()]) != raw.checksum {
        return Err(Damage::at(0, "a frame does not have its checksum"));
    }
    Ok(Frame { closes: raw.closes, previous: raw.previous, records })
}

/// Returns the offset of the first valid frame in a segment, from an offset on. `None` if there is
/// none: then the damaged frame before it was the last one.
#[must_use]
pub fn find_frame(segment: &[u8], from: usize, log: u128, sequence: u64) -> Option<usize> {
    (from.next_multiple_of(ALIGN)..segment.len()).step_by(ALIGN).find(|offset| {
        segment[*offset..].starts_with(&MAGIC.to_le_bytes())
            && read_frame(&segment[*offset..], Position { log, sequence, offset: *offset as u64 }).is_ok()
    })
}
