//! What a piece does to a small database, in values that remember everything that led to them.
//!
//! A value is a hash of what was read to compute it. So two executions that differ in anything that
//! a transaction could see, or leave behind, differ in a value. Additions add hashes, and commute.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use crate::{
    describe::Kind,
    program::{KnownAccess, Program},
};

/// A row's key. Zero is the row that is always there. Others are their inserters' numbers.
type Key = u64;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Rows {
    rows: BTreeMap<Key, Vec<u64>>,
    /// Keys of insertions, the oldest first.
    inserted: Vec<Key>,
    /// Keys of appended rows, sorted: nothing shows which came first.
    appended: Vec<Key>,
}

/// An addition that waits for its publication.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Pending {
    table: usize,
    columns: u64,
    key: Option<Key>,
    amount: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Store {
    tables: Vec<Rows>,
    pending: Vec<Pending>,
}

/// What one instance of a transaction has seen so far, by piece.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Seen {
    pub(super) transaction: usize,
    /// The instance's number, from 1.
    pub(super) number: u64,
    results: Vec<u64>,
    claimed: Vec<Option<Key>>,
}

pub(super) fn hash(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

impl Seen {
    pub(super) fn new(program: &Program, transaction: usize, number: u64) -> Self {
        let pieces = program.transactions[transaction].pieces.len();
        Self { transaction, number, results: vec![0; pieces], claimed: vec![None; pieces] }
    }
}

impl Store {
    pub(super) fn new(program: &Program) -> Self {
        let rows = |(place, table): (usize, &crate::program::KnownTable)| {
            let columns = (0..table.columns.len().max(1)).map(|column| hash((place, column))).collect();
            Rows { rows: BTreeMap::from([(0, columns)]), ..Rows::default() }
        };
        Self { tables: program.tables.iter().enumerate().map(rows).collect(), pending: Vec::new() }
    }

    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Makes deferred additions.
    pub(super) fn publish(&mut self) {
        for Pending { table, columns, key, amount } in std::mem::take(&mut self.pending) {
            self.tables[table].add(columns, key, amount);
        }
    }

    /// Runs a piece. `defers` tells which additions are deferred.
    pub(super) fn run(
        &mut self,
        program: &Program,
        seen: &mut Seen,
        piece: usize,
        defers: impl Fn(&KnownAccess) -> bool,
    ) {
        let known = &program.transactions[seen.transaction].pieces;
        // What it may use: the results of those that it depends on.
        let mut uses = vec![false; known.len()];
        for before in (0..=piece).rev() {
            if before == piece || uses[before] {
                known[before].after.iter().for_each(|&needed| uses[needed] = true);
            }
        }
        let inputs: Vec<u64> = (0..piece).filter(|&before| uses[before]).map(|before| seen.results[before]).collect();
        let mut result = hash((seen.number, piece, inputs));
        for (place, access) in known[piece].accesses.iter().enumerate() {
            let claimed = access.claimed_by.map(|claim| seen.claimed[claim]);
            // Nothing was there to be claimed.
            if claimed == Some(None) {
                result = hash((result, "nothing"));
                continue;
            }
            let key = claimed.flatten();
            let rows = &mut self.tables[access.table];
            match access.kind {
                Kind::Add if defers(access) => {
                    let amount = hash((result, place));
                    self.pending.push(Pending { table: access.table, columns: access.columns, key, amount });
                    self.pending.sort();
                }
                Kind::Add => rows.add(access.columns, key, hash((result, place))),
                Kind::Read => result = hash((result, rows.read(access.columns, key))),
                Kind::Update => {
                    result = hash((result, rows.read(access.columns, key)));
                    rows.write(access.columns, key, result);
                }
                Kind::Insert => {
                    rows.insert(seen.number, access.columns);
                    rows.write(access.columns, Some(seen.number), hash((result, place)));
                    rows.inserted.push(seen.number);
                }
                // Two rows that one instance appends are one row here. It has the sum of both.
                Kind::Append => {
                    rows.insert(seen.number, access.columns);
                    rows.add(access.columns, Some(seen.number), hash((result, place)));
                    rows.appended.push(seen.number);
                    rows.appended.sort_unstable();
                }
                Kind::Remove => {
                    let oldest = rows.inserted.first().or(rows.appended.first()).copied();
                    let removed = key.or(oldest).filter(|key| rows.rows.contains_key(key) && *key != 0);
                    if let Some(key) = removed {
                        rows.rows.remove(&key);
                        rows.inserted.retain(|other| *other != key);
                        rows.appended.retain(|other| *other != key);
                    }
                    seen.claimed[piece] = removed;
                    result = hash((result, removed));
                }
                Kind::Search => {
                    let found = key.map_or_else(
                        || hash((&rows.inserted, &rows.appended)),
                        |key| hash(rows.rows.contains_key(&key)),
                    );
                    result = hash((result, found));
                }
            }
        }
        seen.results[piece] = result;
    }
}

impl Rows {
    /// Returns the rows of a key, or all.
    fn of(&mut self, key: Option<Key>) -> impl Iterator<Item = (&Key, &mut Vec<u64>)> {
        self.rows.iter_mut().filter(move |(other, _)| key.is_none_or(|key| key == **other))
    }

    fn read(&mut self, columns: u64, key: Option<Key>) -> Vec<(Key, usize, u64)> {
        let cells =
            self.of(key).flat_map(|(key, row)| row.iter().enumerate().map(|(column, cell)| (*key, column, *cell)));
        cells.filter(|(_, column, _)| columns & (1 << column) != 0).collect()
    }

    fn write(&mut self, columns: u64, key: Option<Key>, value: u64) {
        for (key, row) in self.of(key) {
            let cells = row.iter_mut().enumerate().filter(|(column, _)| columns & (1 << column) != 0);
            cells.for_each(|(column, cell)| *cell = hash((value, key, column, *cell)));
        }
    }

    fn add(&mut self, columns: u64, key: Option<Key>, amount: u64) {
        for (key, row) in self.of(key) {
            let cells = row.iter_mut().enumerate().filter(|(column, _)| columns & (1 << column) != 0);
            cells.for_each(|(column, cell)| *cell = cell.wrapping_add(hash((amount, key, column))));
        }
    }

    /// Inserts a row, unless it is there.
    fn insert(&mut self, key: Key, columns: u64) {
        self.rows.entry(key).or_insert_with(|| vec![0; columns.count_ones() as usize]);
    }
}
