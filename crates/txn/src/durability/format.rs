//! The bytes of the log, as specified in `docs/format.md`: pure functions without I/O.
//!
//! Numbers are little-endian. A layout is a struct whose size is asserted here, and never what a
//! codec crate makes of a type. All input may be damaged: it is checked before it is used, and
//! refused with a reason.

mod catalog;
mod checkpoint;
mod frame;
mod layout;
mod record;
mod segment;
mod varint;

use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

pub use self::{
    catalog::{CatalogChange, TableShape},
    checkpoint::{CHECKPOINT_END, CHECKPOINT_HEADER, CheckpointEnd, CheckpointHeader, checkpoint_name, number_of},
    frame::{FRAME_HEADER, Frame, Position, begin_frame, find_frame, finish_frame, frame_length, read_frame},
    record::{Change, Entry, MOST_BESIDE, MOST_VALUE, Record, RecordKind, RecordWriter, record_length, records},
    segment::{HeaderError, SEGMENT_HEADER, SegmentHeader, segment_name, sequence_of},
};

/// The version of the format that this code writes, and the only one that it reads.
pub const VERSION: u32 = 5;

/// The name of the file that marks an unfinished backup.
pub const INCOMPLETE: &str = "INCOMPLETE";

/// The name of the lock file. A process that writes the directory locks it exclusively, and writes
/// its own number into it. Readers share the lock.
pub const LOCK: &str = "LOCK";

/// Returns whether a file of this name is a segment or a checkpoint.
pub(crate) fn is_part(name: &str) -> bool {
    sequence_of(name).is_some() || number_of(name).is_some()
}

/// Everything in a log begins at a multiple of this.
pub const ALIGN: usize = 8;

/// Invalid bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The offset from the beginning of the decoded bytes.
    pub offset: usize,
    /// What is wrong.
    pub why: &'static str,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, why } = self;
        write!(f, "{why}, {offset} bytes from its beginning")
    }
}

impl std::error::Error for Damage {}

impl Damage {
    const fn at(offset: usize, why: &'static str) -> Self {
        Self { offset, why }
    }
}

/// Returns the checksum of bytes: the lower half of their XXH3.
fn checksum(bytes: &[u8]) -> u32 {
    xxh3_64(bytes) as u32
}

/// Takes the first `count` bytes. `None` if there are fewer.
fn take<'b>(bytes: &mut &'b [u8], count: usize) -> Option<&'b [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}
