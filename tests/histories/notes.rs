//! A thread's records of its transactions, and how they become a history.
//!
//! Each write has a unique number, which is in its value. The [`Scribe`] reports the version of
//! each written row at commit, so blind writes are checked too. Reads of a transaction's own writes
//! are compared immediately, and are not part of the history.
//!
//! Aborted transactions are recorded too, as read-only: their reads must have been consistent.
//! Their writes are not recorded, so a read of one counts as a read of an unwritten version.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    ops::{Bound, RangeBounds},
};

use drtm_history::{History, Log, Operation, Recording, Seen};

use crate::{
    scribe::{Left, Scribe},
    world::Place,
};

/// Bits of a history's version number that distinguish a transaction's writes of one row. All ones
/// is the last.
const STEPS: u32 = 8;

/// Marks a read of a write that did not commit: no such version exists.
const LOST: u64 = 1 << 62;

/// One thread's records.
#[derive(Debug)]
pub(crate) struct Notes {
    log: Log<u64>,
    next_write: u64,
    /// The history version of each write.
    versions: Vec<((Place, u64), u64)>,
}

impl Notes {
    pub(crate) fn new(log: Log<u64>, thread: u64) -> Self {
        Self { log, next_write: thread << 32, versions: Vec::new() }
    }

    /// Begins to record a transaction.
    pub(crate) fn begin(&mut self) -> Attempt<'_> {
        let Self { log, next_write, versions } = self;
        Attempt { recording: log.begin(), next_write, versions, own: BTreeMap::new(), writes: Vec::new() }
    }

    /// Merges the records of all threads into a history.
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

/// A transaction in progress.
#[derive(Debug)]
pub(crate) struct Attempt<'n> {
    recording: Recording<'n, u64>,
    next_write: &'n mut u64,
    versions: &'n mut Vec<((Place, u64), u64)>,
    /// The rows that it has written.
    pub(crate) own: BTreeMap<Place, Option<u64>>,
    /// All its writes, in order.
    writes: Vec<(Place, u64)>,
}

impl Attempt<'_> {
    /// Records that its closure runs, possibly again.
    pub(crate) fn again(&mut self) {
        self.recording.retry();
        self.own.clear();
        self.writes.clear();
    }

    /// Returns a unique number for the next write.
    pub(crate) fn write(&mut self) -> u64 {
        *self.next_write += 1;
        *self.next_write
    }

    /// Records a write or a removal of a row.
    pub(crate) fn wrote(&mut self, place: Place, write: Option<u64>) {
        self.own.insert(place, write);
        self.writes.extend(write.map(|write| (place, write)));
    }

    /// Records a read of a row.
    pub(crate) fn read(&mut self, place: Place, seen: Option<u64>) {
        match self.own.get(&place) {
            Some(own) => assert_eq!(seen, *own, "a transaction does not see its own write of {place:?}"),
            None => self.recording.read(place.table, place.key, seen),
        }
    }

    /// Records an existence check. The row's write is unknown, so only absence is recorded.
    pub(crate) fn looked(&mut self, place: Place, is_there: bool) {
        match self.own.get(&place) {
            Some(own) => assert_eq!(is_there, own.is_some(), "a transaction does not see its own write of {place:?}"),
            None if is_there => {}
            None => self.recording.read(place.table, place.key, None),
        }
    }

    /// Records a scan of a range of a table that returned exactly these rows.
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

    /// Records that it has just committed.
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

    /// Records an abort by the application. The reads must have been consistent.
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
