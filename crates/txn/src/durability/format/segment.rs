//! The header of a segment: its log, and which part of earlier segments is valid.

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout,
    little_endian::{U32, U64, U128},
};

use super::{Damage, VERSION};

/// Bytes of a segment's header.
pub const SEGMENT_HEADER: usize = 64;

const MAGIC: [u8; 8] = *b"drtm-log";

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    length: U32,
    log: U128,
    sequence: U64,
    after: U64,
    begins: U64,
    reserved: U32,
    checksum: U32,
}

const _: () = assert!(size_of::<Raw>() == SEGMENT_HEADER);

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// It has another format.
    #[error("it has format {found}, and this program reads {VERSION}")]
    OtherFormat {
        /// The format's version.
        found: u32,
    },
    /// It is damaged, or no header.
    #[error(transparent)]
    Damaged(#[from] Damage),
}

impl SegmentHeader {
    /// Returns the header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; SEGMENT_HEADER] {
        let mut raw = Raw {
            magic: MAGIC,
            version: VERSION.into(),
            length: (SEGMENT_HEADER as u32).into(),
            log: self.log.into(),
            sequence: self.sequence.into(),
            after: self.after.into(),
            begins: self.begins.into(),
            reserved: 0.into(),
            checksum: 0.into(),
        };
        raw.checksum = Self::checksum(&raw).into();
        zerocopy::transmute!(raw)
    }

    /// Reads a header from a segment's first bytes.
    ///
    /// # Errors
    ///
    /// When they are no header of this format.
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        let Ok((raw, _)) = Raw::read_from_prefix(bytes) else {
            return Err(Damage::at(bytes.len(), "a segment's header is cut off").into());
        };
        if raw.magic != MAGIC {
            return Err(Damage::at(0, "a segment does not begin as one").into());
        }
        if raw.checksum.get() != Self::checksum(&raw) {
            return Err(Damage::at(0, "a segment's header does not have its checksum").into());
        }
        if raw.version.get() != VERSION {
            return Err(HeaderError::OtherFormat { found: raw.version.get() });
        }
        if raw.length.get() as usize != SEGMENT_HEADER || raw.reserved.get() != 0 {
            return Err(Damage::at(12, "a segment's header has another length, or more in it").into());
        }
        Ok(Self { log: raw.log.get(), sequence: raw.sequence.get(), after: raw.after.get(), begins: raw.begins.get() })
    }

    fn checksum(raw: &Raw) -> u32 {
        crc32c::crc32c(&raw.as_bytes()[..SEGMENT_HEADER - size_of::<U32>()])
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
