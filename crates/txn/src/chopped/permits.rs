//! What a piece may do: to each table, by its number, the accesses that its description has.

use drtm_chopping::Kind;

use crate::{ChoppedError, Error};

/// What an access does, a bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access(u8);

impl Access {
    pub(crate) const READ: Self = Self(1);
    pub(crate) const UPDATE: Self = Self(1 << 1);
    pub(crate) const ADD: Self = Self(1 << 2);
    pub(crate) const INSERT: Self = Self(1 << 3);
    pub(crate) const REMOVE: Self = Self(1 << 4);
    pub(crate) const SEARCH: Self = Self(1 << 5);

    /// Returns what a described access allows. A row that is updated or removed is read, too.
    pub(crate) fn allowed_by(kind: Kind) -> Self {
        match kind {
            Kind::Read => Self::READ,
            Kind::Update => Self(Self::READ.0 | Self::UPDATE.0),
            Kind::Add => Self::ADD,
            Kind::Insert | Kind::Append => Self::INSERT,
            Kind::Remove => Self(Self::READ.0 | Self::REMOVE.0 | Self::SEARCH.0),
            Kind::Search => Self::SEARCH,
            _ => Self(0),
        }
    }

    fn word(self) -> &'static str {
        let kinds = [
            (Self::READ, Kind::Read),
            (Self::UPDATE, Kind::Update),
            (Self::ADD, Kind::Add),
            (Self::INSERT, Kind::Insert),
            (Self::REMOVE, Kind::Remove),
        ];
        kinds.iter().find(|(access, _)| *access == self).map_or(Kind::Search, |(_, kind)| *kind).word()
    }
}

/// What a piece may do.
#[derive(Debug, Default)]
pub(crate) struct Permits {
    /// The accesses to each table, up to the last that it may access.
    tables: Vec<u8>,
    /// A bit for each sum whose additions are deferred.
    pub(crate) defers: u64,
    /// The names of the transaction and the piece.
    pub(crate) piece: String,
}

impl Permits {
    pub(crate) fn of(piece: String) -> Self {
        Self { piece, ..Self::default() }
    }

    pub(crate) fn allow(&mut self, table: u16, access: Access) {
        let table = usize::from(table);
        self.tables.resize(self.tables.len().max(table + 1), 0);
        self.tables[table] |= access.0;
    }

    #[inline]
    pub(crate) fn has(&self, table: u16, access: Access) -> bool {
        self.tables.get(usize::from(table)).is_some_and(|allowed| allowed & access.0 != 0)
    }

    /// Returns the error for an access that is not allowed.
    #[cold]
    pub(crate) fn refuse(&self, table: &'static str, access: Access) -> Error {
        ChoppedError::Undeclared { piece: self.piece.clone(), table, access: access.word() }.into()
    }
}
