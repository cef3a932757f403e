//! Changes of the catalog, as records encode them.

use std::fmt;

use super::{Damage, Record, RecordKind, RecordWriter, layout::layout, take};

layout! {
    struct RawTable {
        table: u16,
        is_ordered: u16,
        key_size: u32,
        value_size: u32,
        name: u16,
        key: u16,
        codec: u16,
        types: u16,
    }
}

// The layout of every other change of a table or an index.
layout! {
    struct RawNamed {
        table: u16,
        name: u16,
    }
}

// The layout of a note.
layout! {
    struct RawNote {
        length: u32,
    }
}

const _: () = assert!(RawTable::BYTES == 20 && RawNamed::BYTES == 4 && RawNote::BYTES == 4);

/// The size of keys or values of variable length.
const VARIES: u32 = u32::MAX;

/// What identifies a table across restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableShape {
    /// The table's name.
    pub name: String,
    /// Whether it is ordered.
    pub is_ordered: bool,
    /// The bytes of a key, if all keys have the same number.
    pub key_size: Option<u32>,
    /// The bytes of a value, if all values have the same number.
    pub value_size: Option<u32>,
    /// The name of the encoding of keys.
    pub key: String,
    /// The name of the format of values.
    pub codec: String,
    /// A description of the types of keys and values, or the version that the application has given
    /// them.
    pub types: String,
}

impl TableShape {
    /// Returns whether a table of this shape can be used as one of the other, whatever their names.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        self.is_encoded_as(other) && self.types == other.types
    }

    /// Returns whether keys and values of both are encoded alike, whatever their types are.
    pub(crate) fn is_encoded_as(&self, other: &Self) -> bool {
        let Self { name, types, .. } = self;
        *self == Self { name: name.clone(), types: types.clone(), ..other.clone() }
    }
}

impl fmt::Display for TableShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |size: Option<u32>| size.map_or_else(|| "any number of".to_owned(), |size| size.to_string());
        let Self { name: _, is_ordered, key, codec, key_size, value_size, types } = self;
        let kind = if *is_ordered { "an ordered table" } else { "a hash table" };
        let (key_size, value_size) = (size(*key_size), size(*value_size));
        write!(f, "{kind} of {key} ({key_size} bytes) to {codec} ({value_size} bytes), with types \"{types}\"")
    }
}

/// A change of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogChange {
    /// A table was created, with this identity.
    Table(u16, TableShape),
    /// An index of a table was created, by its name.
    Index(u16, String),
    /// A table was dropped, with its rows and indexes.
    TableDropped(u16),
    /// A table was renamed to this.
    TableRenamed(u16, String),
    /// An index of a table was dropped.
    IndexDropped(u16, String),
    /// All rows of a table were removed, and the entries of its indexes.
    TableCleared(u16),
    /// The log's user has noted something, in place of what it had noted before.
    Noted(Vec<u8>),
}

impl CatalogChange {
    /// Appends a record.
    ///
    /// # Errors
    ///
    /// When a name is longer than 64 KiB, or a note is longer than a record can be.
    pub fn encode(&self, bytes: &mut Vec<u8>, epoch: u64) -> Result<(), Damage> {
        let too_long = Damage::at(bytes.len(), "a name is longer than 64 KiB");
        let size = |text: &str| u16::try_from(text.len()).map_err(|_| too_long);
        let mut named = |kind, table: u16, name: &str| {
            let raw = RawNamed { table, name: size(name)? };
            let mut record = RecordWriter::begin(bytes, epoch, kind);
            record.content(&raw.encode());
            record.content(name.as_bytes());
            record.finish()
        };
        match self {
            Self::Table(table, shape) => {
                let raw = RawTable {
                    table: *table,
                    is_ordered: shape.is_ordered.into(),
                    key_size: shape.key_size.unwrap_or(VARIES),
                    value_size: shape.value_size.unwrap_or(VARIES),
                    name: size(&shape.name)?,
                    key: size(&shape.key)?,
                    codec: size(&shape.codec)?,
                    types: size(&shape.types)?,
                };
                let mut record = RecordWriter::begin(bytes, epoch, RecordKind::Table);
                record.content(&raw.encode());
                let texts = [&shape.name, &shape.key, &shape.codec, &shape.types];
                texts.iter().for_each(|text| record.content(text.as_bytes()));
                record.finish()
            }
            Self::Index(table, name) => named(RecordKind::Index, *table, name),
            Self::TableDropped(table) => named(RecordKind::TableDropped, *table, ""),
            Self::TableRenamed(table, name) => named(RecordKind::TableRenamed, *table, name),
            Self::IndexDropped(table, name) => named(RecordKind::IndexDropped, *table, name),
            Self::TableCleared(table) => named(RecordKind::TableCleared, *table, ""),
            Self::Noted(note) => {
                let too_long = Damage::at(bytes.len(), "a note is longer than four gigabytes");
                let raw = RawNote { length: u32::try_from(note.len()).map_err(|_| too_long)? };
                let mut record = RecordWriter::begin(bytes, epoch, RecordKind::Note);
                record.content(&raw.encode());
                record.content(note);
                record.finish()
            }
        }
    }

    /// Returns the identity of the table. `None` if the change is of no table.
    #[must_use]
    pub fn table(&self) -> Option<u16> {
        match self {
            Self::Table(table, _)
            | Self::Index(table, _)
            | Self::TableDropped(table)
            | Self::TableRenamed(table, _)
            | Self::IndexDropped(table, _)
            | Self::TableCleared(table) => Some(*table),
            Self::Noted(_) => None,
        }
    }

    /// Reads a record of the catalog.
    ///
    /// # Errors
    ///
    /// When it is damaged.
    pub fn decode(record: &Record<'_>) -> Result<Self, Damage> {
        Self::read(record).ok_or(Damage::at(0, "a record of the catalog is damaged"))
    }

    fn read(record: &Record<'_>) -> Option<Self> {
        let content = record.content;
        match record.kind {
            RecordKind::Rows | RecordKind::End => None,
            RecordKind::Note => {
                let (raw, mut rest) = RawNote::decode(content)?;
                Some(Self::Noted(take(&mut rest, raw.length as usize)?.to_vec()))
            }
            RecordKind::Table => {
                let (raw, mut rest) = RawTable::decode(content)?;
                let mut text = |size: u16| String::from_utf8(take(&mut rest, size.into())?.to_vec()).ok();
                let (name, key, codec, types) = (text(raw.name)?, text(raw.key)?, text(raw.codec)?, text(raw.types)?);
                let size = |size: u32| Some(size).filter(|size| *size != VARIES);
                let (key_size, value_size) = (size(raw.key_size), size(raw.value_size));
                let is_ordered = raw.is_ordered != 0;
                let shape = TableShape { name, is_ordered, key_size, value_size, key, codec, types };
                Some(Self::Table(raw.table, shape))
            }
            RecordKind::Index
            | RecordKind::TableDropped
            | RecordKind::TableRenamed
            | RecordKind::IndexDropped
            | RecordKind::TableCleared => {
                let (raw, mut rest) = RawNamed::decode(content)?;
                let name = String::from_utf8(take(&mut rest, raw.name.into())?.to_vec()).ok()?;
                let table = raw.table;
                Some(match record.kind {
                    RecordKind::TableDropped | RecordKind::TableCleared if !name.is_empty() => return None,
                    RecordKind::TableDropped => Self::TableDropped(table),
                    RecordKind::TableCleared => Self::TableCleared(table),
                    RecordKind::TableRenamed => Self::TableRenamed(table, name),
                    RecordKind::IndexDropped => Self::IndexDropped(table, name),
                    _ => Self::Index(table, name),
                })
            }
        }
    }
}
