//! What a thread notes of its transactions, and how notes become a history.
//!
//! Each write has a number of its own, which is in its value. In which version of its row it has
//! ended, the database [tells](Scribe) when the transaction commits; so writes that nobody reads
//! first are judged too. What a transaction has read of its own writes is compared with what it
//! wrote at once, and is no part of the history.
//!
//! Transactions that are given up are noted as well, as such that only read: what they have read
//! must have been true all at once. What they have written is noted nowhere, so that whoever sees
//! it has read what nobody wrote.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    ops::{Bound, RangeBounds},
};

use drtm_bench::history::{History, Log, Operation, Recording, Seen};

use crate::{
    scribe::{Left, Scribe},
    world::Place,
};

/// Bits of a version's number in a history that tell a transaction's writes of one row from each
/// other. All ones is the last.
const STEPS: u32 = 8;

/// Marks what was read of a write that has not come about: there is no such version.
const LOST: u64 = 1 << 62;

/// One thread's notes.
#[derive(Debug)]
pub(crate) struct Notes {
    log: Log<u64>,
    next_write: u64,
    /// What version in the history a write is.
    versions: Vec<((Place, u64), u64)>,
}

impl Notes {
    pub(crate) fn new(log: Log<u64>, thread: u64) -> Self {
        Self { log, next_write: thread << 32, versions: Vec::new() }
    }

    /// A transaction is about to begin.
    pub(crate) fn begin(&mut self) -> Attempt<'_> {
        let Self { log, next_write, versions } = self;
        Attempt { recording: log.begin(), next_write, versions, own: BTreeMap::new(), writes: Vec::new() }
    }

    /// The history of what all threads noted.
    pub(crate) fn history(all: impl IntoIterator<Item = Self>) -> History<u64> {
        let (mut logs, mut versions) = (Vec::new(), HashMap::new());
        for notes in all {
            logs.push(notes.log);
            versions.extend(notes.versions);
        }
        let version_of = |place, write| versions.get(&(place, write)).copied().unwrap_or(LOST | write);
        let mut history = History::of(logs);
        for operation in history.transactions.iter_mut().flat_map(|transaction| &mut transaction.operations) {
            match operation {
                Operation::Read { row, seen: Seen::Version(write) } => {
                    *write = version_of(Place { table: row.table, key: row.key }, *write);
                }
                Operation::Scan { table, matched, .. } => {
                    for (key, write) in matched {
                        *write = version_of(Place { table: *table, key: *key }, *write);
                    }
                }
                Operation::Read { .. } | Operation::Write { .. } => {}
            }
        }
        history
    }
}

/// A transaction that is under way.
#[derive(Debug)]
pub(crate) struct Attempt<'n> {
    recording: Recording<'n, u64>,
    next_write: &'n mut u64,
    versions: &'n mut Vec<((Place, u64), u64)>,
    /// What it has made of rows.
    pub(crate) own: BTreeMap<Place, Option<u64>>,
    /// All that it has written, in order.
    writes: Vec<(Place, u64)>,
}

impl Attempt<'_> {
    /// Its closure is run: perhaps not for the first time.
    pub(crate) fn again(&mut self) {
        self.recording.retry();
        self.own.clear();
        self.writes.clear();
    }

    /// A number for something that is about to be written.
    pub(crate) fn write(&mut self) -> u64 {
        *self.next_write += 1;
        *self.next_write
    }

    /// It has written a row, or removed it.
    pub(crate) fn wrote(&mut self, place: Place, write: Option<u64>) {
        self.own.insert(place, write);
        self.writes.extend(write.map(|write| (place, write)));
    }

    /// It has read a row.
    pub(crate) fn read(&mut self, place: Place, seen: Option<u64>) {
        match self.own.get(&place) {
            Some(own) => assert_eq!(seen, *own, "a transaction does not see its own write of {place:?}"),
            None => self.recording.read(place.table, place.key, seen),
        }
    }

    /// It has looked whether a row is there. What is there, it does not know: so only absence is
    /// noted.
    pub(crate) fn looked(&mut self, place: Place, is_there: bool) {
        match self.own.get(&place) {
            Some(own) => assert_eq!(is_there, own.is_some(), "a transaction does not see its own write of {place:?}"),
            None if is_there => {}
            None => self.recording.read(place.table, place.key, None),
        }
    }

    /// It has read this range of a table, and found these rows, and no others.
    pub(crate) fn scanned(&mut self, table: u32, range: (Bound<u64>, Bound<u64>), rows: &[(u64, u64)]) {
        let shown = |key| rows.iter().find(|(shown, _)| *shown == key).map(|(_, write)| *write);
        let own: Vec<u64> = self.own_in(table, range);
        let (mut start, end) = range;
        for key in own {
            let place = Place { table, key };
            assert_eq!(shown(key), self.own[&place], "a range does not show a transaction's own write of {place:?}");
            self.scanned_of_others(table, (start, Bound::Excluded(key)), rows);
            start = Bound::Excluded(key);
        }
        self.scanned_of_others(table, (start, end), rows);
    }

    fn own_in(&self, table: u32, range: (Bound<u64>, Bound<u64>)) -> Vec<u64> {
        let own = self.own.keys().filter(|place| place.table == table && range.contains(&place.key));
        own.map(|place| place.key).collect()
    }

    fn scanned_of_others(&mut self, table: u32, range: (Bound<u64>, Bound<u64>), rows: &[(u64, u64)]) {
        let rows = rows.iter().copied().filter(|(key, _)| range.contains(key));
        self.recording.scan(table, range, rows.collect::<Vec<_>>());
    }

    /// It has committed, just now.
    pub(crate) fn committed(mut self) {
        let told = Scribe::told();
        let left: BTreeMap<Place, Option<u64>> = told.iter().map(|left| (left.place, left.write)).collect();
        assert_eq!(left, self.own, "what is told of a commit is not what was written");
        let writes = mem::take(&mut self.writes);
        for Left { place, version, write } in told {
            let overwritten = writes.iter().filter(|(at, other)| *at == place && Some(*other) != write);
            for (step, (_, write)) in (0..).zip(overwritten) {
                self.note(place, version << STEPS | step, Some(*write));
            }
            self.note(place, ((version + 1) << STEPS) - 1, write);
        }
        self.recording.commit();
    }

    /// It is given up, for reasons that it had to believe in: what it has read must have been true.
    pub(crate) fn given_up(self) {
        assert!(Scribe::told().is_empty(), "a commit is told of that has not come about");
        self.recording.commit();
    }

    fn note(&mut self, place: Place, version: u64, write: Option<u64>) {
        match write {
            Some(write) => {
                self.recording.write(place.table, place.key, version);
                self.versions.push(((place, write), version));
            }
            None => self.recording.remove(place.table, place.key, version),
        }
    }
}
