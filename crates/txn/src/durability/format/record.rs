//! Records: one for each transaction, or each change of the catalog. The backups of a cluster get
//! the same bytes.

use super::{
    ALIGN, Damage, checksum,
    layout::layout,
    take,
    varint::{self, LONGEST, put, signed, take_varint, unsigned},
};
use crate::commit::epoch::{COUNT_BITS, epoch_of};
use drtm_kv::Version;

const HEADER: usize = 24;
const MARK: usize = 8;

/// The version of a record's own layout.
const FORMAT: u16 = 2;

/// The mark that ends a record, combined with its length: no record ends with zeros.
const COMMITTED: u64 = u64::from_le_bytes(*b"commited");

layout! {
    struct RawHeader {
        length: u32,
        checksum: u32,
        epoch: u64,
        entries: u32,
        format: u16,
        kind: u16,
    }
}

/// The most bytes that an entry of a put or a removal has beside its key and its value: its tag,
/// the size of its key, its version and the size of its value.
pub const MOST_BESIDE: usize =
    varint::length(!0 >> (64 - TAG_BITS)) + varint::length(!0 >> 48) + LONGEST + varint::length(MOST_VALUE as u64);

/// The longest value.
pub const MOST_VALUE: usize = (1 << LENGTH_BITS) - 1;

/// Returns the length of a record whose entries have this many bytes in total.
#[must_use]
pub const fn record_length(entries: usize) -> usize {
    (HEADER + entries).next_multiple_of(ALIGN) + MARK
}

const _: () = assert!(RawHeader::BYTES == HEADER);

/// The bytes that the checksum does not cover: itself and the length, which the mark has too.
const UNCHECKED: usize = 8;

// The kinds of entries. None is zero, so that padding is no entry.
const PUT: u64 = 1;
const PATCH: u64 = 2;
const REMOVE: u64 = 3;

/// The lower bits of an entry's tag, which are its kind. The others are the table's identity.
const KIND_BITS: u32 = 2;
const TAG_BITS: u32 = KIND_BITS + u16::BITS;

const LENGTH_BITS: u32 = 24;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum RecordKind {
    /// Rows that a transaction wrote.
    Rows = 1,
    /// A table that was created.
    Table = 2,
    /// An index that was created.
    Index = 3,
    /// The end of a checkpoint.
    End = 4,
    /// A table that was dropped.
    TableDropped = 5,
    /// A table that was renamed.
    TableRenamed = 6,
    /// An index that was dropped.
    IndexDropped = 7,
    /// A table of which all rows were removed.
    TableCleared = 8,
    /// A note of the log's user.
    Note = 9,
}

impl RecordKind {
    /// Returns whether it is a change of the catalog.
    #[must_use]
    pub const fn is_of_catalog(self) -> bool {
        match self {
            Self::Rows | Self::End => false,
            Self::Table
            | Self::Index
            | Self::TableDropped
            | Self::TableRenamed
            | Self::IndexDropped
            | Self::TableCleared
            | Self::Note => true,
        }
    }
}

/// What an entry does to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'b> {
    /// Sets its value.
    Put(&'b [u8]),
    /// Replaces the bytes from `offset` on of the previous version's value.
    Patch {
        /// The previous version.
        previous: u64,
        /// The offset at which the bytes begin.
        offset: u32,
        /// The bytes.
        bytes: &'b [u8],
    },
    /// Removes the row.
    Remove,
}

/// A row that a transaction wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'b> {
    /// The table's identity.
    pub table: u16,
    /// The key's encoding.
    pub key: &'b [u8],
    /// The row's version, without the mark of a removed one.
    pub version: u64,
    /// The change of the row.
    pub change: Change<'b>,
}

impl Entry<'_> {
    /// Returns the epoch in which the row was written.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        epoch_of(Version::new(self.version))
    }
}

/// Returns the version to which those of a record's entries are relative: the first that a row can
/// get in its epoch.
const fn first_version(epoch: u64) -> u64 {
    epoch.wrapping_shl(COUNT_BITS)
}

/// Appends one record to a buffer.
#[derive(Debug)]
pub struct RecordWriter<'b> {
    bytes: &'b mut Vec<u8>,
    start: usize,
    header: RecordHeader,
}

#[derive(Debug)]
struct RecordHeader {
    epoch: u64,
    kind: RecordKind,
    entries: u32,
}

impl<'b> RecordWriter<'b> {
    /// Begins a record.
    #[must_use]
    pub fn begin(bytes: &'b mut Vec<u8>, epoch: u64, kind: RecordKind) -> Self {
        let start = bytes.len();
        bytes.resize(start + HEADER, 0);
        Self { bytes, start, header: RecordHeader { epoch, kind, entries: 0 } }
    }

    /// Appends an entry.
    ///
    /// # Errors
    ///
    /// When the key or the value is longer than an entry can have. The record must then be
    /// [undone](Self::undo).
    pub fn entry(&mut self, entry: &Entry<'_>) -> Result<(), Damage> {
        let Entry { table, key, version, change } = *entry;
        let (kind, value) = match change {
            Change::Put(value) => (PUT, value),
            Change::Patch { bytes, .. } => (PATCH, bytes),
            Change::Remove => (REMOVE, &[][..]),
        };
        if key.len() > usize::from(u16::MAX) || value.len() > MOST_VALUE {
            return Err(Damage::at(self.bytes.len(), "a key or a value is longer than an entry can have"));
        }
        let bytes = &mut *self.bytes;
        put(bytes, u64::from(table) << KIND_BITS | kind);
        put(bytes, key.len() as u64);
        put(bytes, signed(version.wrapping_sub(first_version(self.header.epoch))));
        if let Change::Patch { previous, offset, .. } = change {
            put(bytes, version.wrapping_sub(previous));
            put(bytes, offset.into());
        }
        if kind != REMOVE {
            put(bytes, value.len() as u64);
        }
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        self.header.entries += 1;
        Ok(())
    }

    /// Returns whether the record has no entries yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.header.entries == 0
    }

    /// Returns the record's length so far, in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Appends content of a record without entries.
    pub(super) fn content(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Finishes the record.
    ///
    /// # Errors
    ///
    /// When it is too long for a record. It is then undone.
    pub fn finish(self) -> Result<(), Damage> {
        let Self { bytes, start, header } = self;
        bytes.resize((bytes.len() - start).next_multiple_of(ALIGN) + start + MARK, 0);
        let Ok(length) = u32::try_from(bytes.len() - start) else {
            bytes.truncate(start);
            return Err(Damage::at(start, "a record is longer than four gigabytes"));
        };
        let record = &mut bytes[start..];
        let mark = record.len() - MARK;
        record[mark..].copy_from_slice(&(COMMITTED ^ u64::from(length)).to_le_bytes());
        let RecordHeader { epoch, kind, entries } = header;
        let mut raw = RawHeader { length, checksum: 0, epoch, entries, format: FORMAT, kind: kind as u16 };
        record[..HEADER].copy_from_slice(&raw.encode());
        raw.checksum = checksum(&record[UNCHECKED..]);
        record[..HEADER].copy_from_slice(&raw.encode());
        Ok(())
    }

    /// Undoes the record.
    pub fn undo(self) {
        self.bytes.truncate(self.start);
    }
}

/// A record that was read. Its entries are checked as they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'b> {
    /// The epoch of the transaction.
    pub epoch: u64,
    /// The record's kind.
    pub kind: RecordKind,
    entries: u32,
    pub(super) content: &'b [u8],
}

/// Returns the records in some bytes, each with its offset, up to the first that is damaged.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Result<(usize, Record<'_>), Damage>> {
    let mut offset = 0;
    std::iter::from_fn(move || {
        let rest = bytes.get(offset..).filter(|rest| !rest.is_empty())?;
        let start = offset;
        Some(match Record::decode(rest) {
            Ok((length, record)) => {
                offset += length;
                Ok((start, record))
            }
            Err(why) => {
                offset = bytes.len();
                Err(Damage::at(start, why))
            }
        })
    })
}

impl<'b> Record<'b> {
    fn decode(bytes: &'b [u8]) -> Result<(usize, Self), &'static str> {
        let Some((raw, _)) = RawHeader::decode(bytes) else { return Err("a record's header is cut off") };
        let length = raw.length as usize;
        let record = bytes.get(..length).filter(|record| record.len() >= HEADER + MARK && length.is_multiple_of(ALIGN));
        let Some(record) = record else { return Err("a record's length is wrong") };
        let (content, mark) = record.split_at(length - MARK);
        if *mark != (COMMITTED ^ length as u64).to_le_bytes() {
            return Err("a record lacks its commit mark");
        }
        if checksum(&record[UNCHECKED..]) != raw.checksum {
            return Err("a record does not have its checksum");
        }
        if raw.format != FORMAT {
            return Err("a record has another format");
        }
        let kind = match raw.kind {
            1 => RecordKind::Rows,
            2 => RecordKind::Table,
            3 => RecordKind::Index,
            4 => RecordKind::End,
            5 => RecordKind::TableDropped,
            6 => RecordKind::TableRenamed,
            7 => RecordKind::IndexDropped,
            8 => RecordKind::TableCleared,
            9 => RecordKind::Note,
            _ => return Err("a record is of another kind"),
        };
        let record = Self { epoch: raw.epoch, kind, entries: raw.entries, content: &content[HEADER..] };
        Ok((length, record))
    }

    /// Returns the entries, up to the first that is damaged. A record may claim any number of
    /// entries, but only those in its bytes are read. Bytes that belong to no entry are damage too.
    pub fn entries(&self) -> impl Iterator<Item = Result<Entry<'b>, Damage>> + use<'b> {
        self.encoded_entries().map(|entry| entry.map(|(entry, _)| entry))
    }

    /// Like [`entries`](Self::entries), each with its bytes.
    pub fn encoded_entries(&self) -> impl Iterator<Item = Result<(Entry<'b>, &'b [u8]), Damage>> + use<'b> {
        let (epoch, mut rest, length, mut left) = (self.epoch, self.content, self.content.len(), self.entries);
        // The count is not trusted, and reserves no memory.
        std::iter::from_fn(move || {
            let offset = HEADER + length - rest.len();
            let damage = if left > 0 {
                left -= 1;
                let from = rest;
                if let Some(entry) = Entry::take(epoch, &mut rest) {
                    return Some(Ok((entry, &from[..from.len() - rest.len()])));
                }
                left = 0;
                Damage::at(offset, "an entry is damaged")
            } else if rest.len() >= ALIGN || rest.iter().any(|byte| *byte != 0) {
                Damage::at(offset, "there is more in a record than its entries")
            } else {
                return None;
            };
            rest = &[];
            Some(Err(damage))
        })
    }
}

impl<'b> Entry<'b> {
    /// Decodes an entry of a record of this epoch from its [bytes](Record::encoded_entries).
    #[must_use]
    pub fn decode(epoch: u64, mut bytes: &'b [u8]) -> Option<Self> {
        Self::take(epoch, &mut bytes)
    }

    fn take(epoch: u64, rest: &mut &'b [u8]) -> Option<Self> {
        let tag = take_varint(rest)?;
        let (kind, table) = (tag & ((1 << KIND_BITS) - 1), u16::try_from(tag >> KIND_BITS).ok()?);
        let key = u16::try_from(take_varint(rest)?).ok()?;
        let version = first_version(epoch).wrapping_add(unsigned(take_varint(rest)?));
        let based = match kind {
            PATCH => Some((version.wrapping_sub(take_varint(rest)?), u32::try_from(take_varint(rest)?).ok()?)),
            PUT | REMOVE => None,
            _ => return None,
        };
        let length = if kind == REMOVE { 0 } else { take_varint(rest)? };
        let length = usize::try_from(length).ok().filter(|length| *length <= MOST_VALUE)?;
        let key = take(rest, key.into())?;
        let bytes = take(rest, length)?;
        let change = match (kind, based) {
            (_, Some((previous, offset))) => Change::Patch { previous, offset, bytes },
            (PUT, None) => Change::Put(bytes),
            (_, None) => Change::Remove,
        };
        Some(Self { table, key, version, change })
    }
}
