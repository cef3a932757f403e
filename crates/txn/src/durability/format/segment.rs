//! The header of a segment: its log, and which part of earlier segments is valid.

use std::fmt;

use super::{Damage, VERSION, checksum, layout::layout};

/// Bytes of a segment's header.
pub const SEGMENT_HEADER: usize = 64;

const MAGIC: u64 = u64::from_le_bytes(*b"drtm-log");

layout! {
    struct Raw {
        magic: u64,
        version: u32,
        length: u32,
        log: u128,
        sequence: u64,
        after: u64,
        begins: u64,
        reserved: u32,
        checksum: u32,
    }
}

const _: () = assert!(Raw::BYTES == SEGMENT_HEADER);

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The log's identity: a random number.
    pub log: u128,
    /// The segment's number in the log, from 1 on.
    pub sequence: u64,
    /// The last epoch that earlier segments close.
    pub after: u64,
    /// Epochs between `after` and this one are void: records that earlier segments have of them do
    /// not count.
    pub begins: u64,
}

/// Why a segment's header is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// It has another format.
    OtherFormat {
        /// The format's version.
        found: u32,
    },
    /// It is damaged, or no header.
    Damaged(Damage),
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherFormat { found } => write!(f, "it has format {found}, and this program reads {VERSION}"),
            Self::Damaged(why) => write!(f, "{why}"),
        }
    }
}

impl std::error::Error for HeaderError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Damaged(why) => why.source(),
            _ => None,
        }
    }
}

impl From<Damage> for HeaderError {
    fn from(why: Damage) -> Self {
        Self::Damaged(why)
    }
}

impl SegmentHeader {
    /// Returns the header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; SEGMENT_HEADER] {
        let mut raw = Raw {
            magic: MAGIC,
            version: VERSION,
            length: SEGMENT_HEADER as u32,
            log: self.log,
            sequence: self.sequence,
            after: self.after,
            begins: self.begins,
            reserved: 0,
            checksum: 0,
        };
        raw.checksum = Self::checksum(raw);
        raw.encode()
    }

    /// Reads a header from a segment's first bytes.
    ///
    /// # Errors
    ///
    /// When they are no header of this format.
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        let Some((raw, _)) = Raw::decode(bytes) else {
            return Err(Damage::at(bytes.len(), "a segment's header is cut off").into());
        };
        if raw.magic != MAGIC {
            return Err(Damage::at(0, "a segment does not begin as one").into());
        }
        if raw.checksum != Self::checksum(raw) {
            return Err(Damage::at(0, "a segment's header does not have its checksum").into());
        }
        if raw.version != VERSION {
            return Err(HeaderError::OtherFormat { found: raw.version });
        }
        if raw.length as usize != SEGMENT_HEADER || raw.reserved != 0 {
            return Err(Damage::at(12, "a segment's header has another length, or more in it").into());
        }
        Ok(Self { log: raw.log, sequence: raw.sequence, after: raw.after, begins: raw.begins })
    }

    fn checksum(raw: Raw) -> u32 {
        checksum(&raw.encode()[..SEGMENT_HEADER - size_of::<u32>()])
    }
}

/// Returns the name of a segment's file.
#[must_use]
pub fn segment_name(sequence: u64) -> String {
    format!("{sequence:016x}.log")
}

/// Returns the number of the segment with this file name. `None` if it is not one.
#[must_use]
pub fn sequence_of(name: &str) -> Option<u64> {
    let sequence = u64::from_str_radix(name.strip_suffix(".log")?, 16).ok()?;
    (segment_name(sequence) == name).then_some(sequence)
}
