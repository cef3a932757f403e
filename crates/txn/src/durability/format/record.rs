//! Records: one for each transaction, or each change of the catalog. The backups of a cluster get
//! the same bytes.

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout,
    little_endian::{U16, U32, U64},
};

use super::{ALIGN, Damage, take};

const HEADER: usize = 24;
const ENTRY: usize = 24;
const MARK: usize = 8;

/// The version of a record's own layout.
const FORMAT: u16 = 1;

/// The mark that ends a record, combined with its length: no record ends with zeros.
const COMMITTED: u64 = u64::from_le_bytes(*b"commited");

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawHeader {
    length: U32,
    checksum: U32,
    epoch: U64,
    entries: U32,
    format: U16,
    kind: U16,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawEntry {
    version: U64,
    previous: U64,
    table: U16,
    key: U16,
    /// The lower 24 bits are the length of the value, the upper eight the kind of the entry.
    value: U32,
}

/// The bytes of an entry beside its key and its value.
pub const ENTRY_HEAD: usize = ENTRY;

/// The longest value.
pub const MOST_VALUE: usize = (1 << LENGTH_BITS) - 1;

/// Returns the length of a record whose entries have this many bytes in total.
#[must_use]
pub const fn record_length(entries: usize) -> usize {
    (HEADER + entries).next_multiple_of(ALIGN) + MARK
}

const _: () = assert!(size_of::<RawHeader>() == HEADER && size_of::<RawEntry>() == ENTRY);

/// The bytes that the checksum does not cover: itself and the length, which the mark has too.
const UNCHECKED: usize = 8;

const PUT: u32 = 1;
const PATCH: u32 = 2;
const REMOVE: u32 = 3;

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
}

impl RecordKind {
    /// Returns whether it is a change of the catalog.
    #[must_use]
    pub const fn is_of_catalog(self) -> bool {
        match self {
            Self::Rows | Self::End => false,
            Self::Table | Self::Index | Self::TableDropped | Self::TableRenamed | Self::IndexDropped => true,
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
    /// The row's previous version.
    pub previous: u64,
    /// The change of the row.
    pub change: Change<'b>,
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
        let (kind, offset, value) = match entry.change {
            Change::Put(value) => (PUT, None, value),
            Change::Patch { offset, bytes } => (PATCH, Some(offset), bytes),
            Change::Remove => (REMOVE, None, &[][..]),
        };
        let (Ok(key), true) = (u16::try_from(entry.key.len()), value.len() < 1 << LENGTH_BITS) else {
            return Err(Damage::at(self.bytes.len(), "a key or a value is longer than an entry can have"));
        };
        let raw = RawEntry {
            version: entry.version.into(),
            previous: entry.previous.into(),
            table: entry.table.into(),
            key: key.into(),
            value: (kind << LENGTH_BITS | value.len() as u32).into(),
        };
        self.bytes.extend_from_slice(raw.as_bytes());
        self.bytes.extend_from_slice(entry.key);
        if let Some(offset) = offset {
            self.bytes.extend_from_slice(&offset.to_le_bytes());
        }
        self.bytes.extend_from_slice(value);
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
        let mut raw = RawHeader {
            length: length.into(),
            checksum: 0.into(),
            epoch: header.epoch.into(),
            entries: header.entries.into(),
            format: FORMAT.into(),
            kind: (header.kind as u16).into(),
        };
        record[..HEADER].copy_from_slice(raw.as_bytes());
        raw.checksum = crc32c::crc32c(&record[UNCHECKED..]).into();
        record[..HEADER].copy_from_slice(raw.as_bytes());
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
        let Ok((raw, _)) = RawHeader::read_from_prefix(bytes) else { return Err("a record's header is cut off") };
        let length = raw.length.get() as usize;
        let record = bytes.get(..length).filter(|record| record.len() >= HEADER + MARK && length.is_multiple_of(ALIGN));
        let Some(record) = record else { return Err("a record's length is wrong") };
        let (content, mark) = record.split_at(length - MARK);
        if *mark != (COMMITTED ^ length as u64).to_le_bytes() {
            return Err("a record lacks its commit mark");
        }
        if crc32c::crc32c(&record[UNCHECKED..]) != raw.checksum.get() {
            return Err("a record does not have its checksum");
        }
        if raw.format.get() != FORMAT {
            return Err("a record has another format");
        }
        let kind = match raw.kind.get() {
            1 => RecordKind::Rows,
            2 => RecordKind::Table,
            3 => RecordKind::Index,
            4 => RecordKind::End,
            5 => RecordKind::TableDropped,
            6 => RecordKind::TableRenamed,
            7 => RecordKind::IndexDropped,
            _ => return Err("a record is of another kind"),
        };
        let record = Self { epoch: raw.epoch.get(), kind, entries: raw.entries.get(), content: &content[HEADER..] };
        Ok((length, record))
    }

    /// Returns the entries, up to the first that is damaged. A record may claim any number of
    /// entries, but only those in its bytes are read. Bytes that belong to no entry are damage too.
    pub fn entries(&self) -> impl Iterator<Item = Result<Entry<'b>, Damage>> + use<'b> {
        let (mut rest, length, mut left) = (self.content, self.content.len(), self.entries);
        // The count is not trusted, and reserves no memory.
        std::iter::from_fn(move || {
            let offset = HEADER + length - rest.len();
            let damage = if left > 0 {
                left -= 1;
                if let Some(entry) = Entry::decode(&mut rest) {
                    return Some(Ok(entry));
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
    fn decode(rest: &mut &'b [u8]) -> Option<Self> {
        let raw = RawEntry::read_from_bytes(take(rest, ENTRY)?).ok()?;
        let key = take(rest, raw.key.get().into())?;
        let (kind, length) = (raw.value.get() >> LENGTH_BITS, raw.value.get() & ((1 << LENGTH_BITS) - 1));
        let change = match kind {
            PUT => Change::Put(take(rest, length as usize)?),
            PATCH => {
                let offset = u32::from_le_bytes(take(rest, 4)?.try_into().ok()?);
                Change::Patch { offset, bytes: take(rest, length as usize)? }
            }
            REMOVE if length == 0 => Change::Remove,
            _ => return None,
        };
        Some(Self { table: raw.table.get(), key, version: raw.version.get(), previous: raw.previous.get(), change })
    }
}
