//! The first and the last bytes of a checkpoint. The frames between are as in a segment.

use super::{
    Damage, FRAME_HEADER, HeaderError, Position, Record, RecordKind, RecordWriter, VERSION, checksum, layout::layout,
};

/// Bytes of a checkpoint's header.
pub const CHECKPOINT_HEADER: usize = 64;

/// Bytes of the frame that ends a checkpoint.
pub const CHECKPOINT_END: usize = FRAME_HEADER + 24 + RawEnd::BYTES + 8;

const MAGIC: u64 = u64::from_le_bytes(*b"drtm-ckp");

/// Set in the number of a checkpoint's frames, to tell them from those of the segment of that
/// number.
const OF_CHECKPOINT: u64 = 1 << 63;

layout! {
    struct Raw {
        magic: u64,
        version: u32,
        length: u32,
        log: u128,
        number: u64,
        since: u64,
        first: u64,
        reserved: u32,
        checksum: u32,
    }
}

layout! {
    struct RawEnd {
        until: u64,
        rows: u64,
        next_table: u16,
        reserved: u16,
        zeros: u32,
    }
}

const _: () = assert!(Raw::BYTES == CHECKPOINT_HEADER && RawEnd::BYTES == 24 && CHECKPOINT_END == 88);

/// The header of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointHeader {
    /// The identity of the log that it belongs to.
    pub log: u128,
    /// The checkpoint's number in the log, from 1 on.
    pub number: u64,
    /// An epoch that was closed when the first row was read: of the log, only later ones count.
    pub since: u64,
    /// The first segment that is needed beside it.
    pub first: u64,
}

/// The last record of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointEnd {
    /// The last epoch in which a row that is in it can have been written.
    pub until: u64,
    /// How many rows are in it.
    pub rows: u64,
    /// The identity of the next table.
    pub next_table: u16,
}

impl CheckpointHeader {
    /// Returns the header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; CHECKPOINT_HEADER] {
        let mut raw = Raw {
            magic: MAGIC,
            version: VERSION,
            length: CHECKPOINT_HEADER as u32,
            log: self.log,
            number: self.number,
            since: self.since,
            first: self.first,
            reserved: 0,
            checksum: 0,
        };
        raw.checksum = Self::checksum(raw);
        raw.encode()
    }

    /// Reads a header from a checkpoint's first bytes.
    ///
    /// # Errors
    ///
    /// When they are no header of this format.
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        let Some((raw, _)) = Raw::decode(bytes) else {
            return Err(Damage::at(bytes.len(), "a checkpoint's header is cut off").into());
        };
        if raw.magic != MAGIC {
            return Err(Damage::at(0, "a checkpoint does not begin as one").into());
        }
        if raw.checksum != Self::checksum(raw) {
            return Err(Damage::at(0, "a checkpoint's header does not have its checksum").into());
        }
        if raw.version != VERSION {
            return Err(HeaderError::OtherFormat { found: raw.version });
        }
        if raw.length as usize != CHECKPOINT_HEADER || raw.reserved != 0 {
            return Err(Damage::at(12, "a checkpoint's header has another length, or more in it").into());
        }
        Ok(Self { log: raw.log, number: raw.number, since: raw.since, first: raw.first })
    }

    fn checksum(raw: Raw) -> u32 {
        checksum(&raw.encode()[..CHECKPOINT_HEADER - size_of::<u32>()])
    }

    /// Returns the place of a frame at this offset of the checkpoint.
    #[must_use]
    pub fn place(&self, offset: u64) -> Position {
        Position { log: self.log, sequence: self.number | OF_CHECKPOINT, offset }
    }
}

impl CheckpointEnd {
    /// Appends the record.
    ///
    /// # Errors
    ///
    /// None: the record is short.
    pub fn encode(&self, bytes: &mut Vec<u8>, epoch: u64) -> Result<(), Damage> {
        let raw = RawEnd { until: self.until, rows: self.rows, next_table: self.next_table, reserved: 0, zeros: 0 };
        let mut record = RecordWriter::begin(bytes, epoch, RecordKind::End);
        record.content(&raw.encode());
        record.finish()
    }

    /// Reads the record.
    ///
    /// # Errors
    ///
    /// When it is a record of another kind.
    pub fn decode(record: &Record<'_>) -> Result<Self, Damage> {
        match RawEnd::decode(record.content) {
            Some((raw, [])) if record.kind == RecordKind::End => {
                Ok(Self { until: raw.until, rows: raw.rows, next_table: raw.next_table })
            }
            _ => Err(Damage::at(0, "a checkpoint does not end as one")),
        }
    }
}

/// Returns the name of a checkpoint's file.
#[must_use]
pub fn checkpoint_name(number: u64) -> String {
    format!("{number:016x}.checkpoint")
}

/// Returns the number of the checkpoint with this file name. `None` if it is not one.
#[must_use]
pub fn number_of(name: &str) -> Option<u64> {
    let number = u64::from_str_radix(name.strip_suffix(".checkpoint")?, 16).ok()?;
    (checkpoint_name(number) == name).then_some(number)
}
