//! What a piece touches, and which pieces conflict.

use crate::{
    describe::Kind,
    mutation::{self, Mutation},
    options::Options,
    program::{KnownAccess, Program},
};

/// The bit of a table's keys: which rows there are. It lies above those of the columns.
const KEYS: u64 = 1 << 63;

/// What one access touches: columns of one table, and its keys, a bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touch {
    pub(crate) table: usize,
    reads: u64,
    writes: u64,
    adds: u64,
    appends: u64,
}

impl Touch {
    /// Returns what `access` touches under `options`.
    pub(crate) fn new(program: &Program, access: &KnownAccess, options: Options) -> Self {
        let nothing = Self { table: access.table, reads: 0, writes: 0, adds: 0, appends: 0 };
        let row = program.tables[access.table].all_columns() | KEYS;
        match access.kind {
            Kind::Read => Self { reads: access.columns, ..nothing },
            Kind::Add if options.commutativity => Self { adds: access.columns, ..nothing },
            Kind::Append if options.commutativity => Self { appends: row, ..nothing },
            Kind::Update | Kind::Add => Self { writes: access.columns, ..nothing },
            Kind::Insert | Kind::Append if mutation::includes(Mutation::InsertsWithoutColumns) => {
                Self { writes: KEYS, ..nothing }
            }
            Kind::Insert | Kind::Append | Kind::Remove => Self { writes: row, ..nothing },
            Kind::Search if mutation::includes(Mutation::StationaryAssumed) => nothing,
            Kind::Search if options.split_search => Self { reads: KEYS, ..nothing },
            Kind::Search => Self { reads: row, ..nothing },
        }
    }

    /// Returns whether it adds to any of `columns`.
    pub(crate) fn adds_to(&self, columns: u64) -> bool {
        self.adds & columns != 0
    }

    /// Returns whether it does anything to `columns` but to add.
    pub(crate) fn uses(&self, columns: u64) -> bool {
        (self.reads | self.writes | self.appends) & columns != 0
    }

    /// Forgets additions to `columns`, which a publication makes.
    pub(crate) fn defer(&mut self, columns: u64) {
        self.adds &= !columns;
    }

    fn touches(&self) -> u64 {
        self.reads | self.writes | self.adds | self.appends
    }

    /// Returns whether two accesses to one row can not change places.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        let of = |one: &Self, other: &Self| {
            let reads = if mutation::includes(Mutation::AddsUnseen) { 0 } else { other.reads };
            (one.writes & other.touches()) | (one.adds & (reads | other.appends)) | (one.appends & other.reads)
        };
        self.table == other.table && of(self, other) | of(other, self) != 0
    }
}

/// Returns whether any access of one piece conflicts with any of another.
pub(crate) fn conflict(one: &[Touch], other: &[Touch]) -> bool {
    one.iter().any(|one| other.iter().any(|other| one.conflicts(other)))
}
