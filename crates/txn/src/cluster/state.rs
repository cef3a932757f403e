//! What a running transaction knows: its rows, the guards of rows that are not there, and the
//! owners that it has asked.

use std::{
    cell::RefCell,
    cmp::Ordering,
    ops::{Bound, Range, RangeBounds as _},
    rc::Rc,
};

use drtm_kv::{Handle, Holder, Location, ROUND_TURNS, RecordLock, Version};
use drtm_rdma::{NodeId, Pending, Port, Time, rpc::Posted};
use rustc_hash::FxHashMap;

use super::{ask::Asked, log::Logging, protocol::Forms, ranges::FetchedRange, undo::Undo};
use crate::{
    Conflict, Error,
    index::RowEntries,
    memory::{
        arena::{Arena, ArenaKey, ArenaRange},
        storage::{Absence, KeyRef},
    },
    tx::position::{Ends, Way},
};

/// From how many rows on they are looked up by an index.
const INDEX_FROM: usize = if cfg!(test) { 4 } else { 32 };

/// Values of which a state keeps so many bytes for its next transaction, and so many rows.
const KEPT_BYTES: usize = 1 << 20;
const KEPT_ROWS: usize = 1 << 12;

/// What a transaction does to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Nothing,
    /// Gives it this value.
    Put(ArenaRange),
    /// Makes a record visible that was made with this value.
    Publish(ArenaRange),
    Remove,
}

/// What a transaction that fetches its rows before it runs is going to do with one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Intent {
    /// It is not known.
    #[default]
    Unknown,
    Read,
    Write,
}

/// A row that a transaction has come to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) table: u16,
    pub(super) owner: NodeId,
    pub(super) key: ArenaKey,
    /// Its record, if it is known to have one.
    pub(super) at: Option<Handle>,
    /// The same as its peers know it, if it was read one-sidedly.
    pub(super) location: Option<Location>,
    /// Whether it was missed one-sidedly, so that its owner has to be asked.
    pub(super) is_missed: bool,
    /// The version that the record had.
    pub(super) seen: Version,
    /// The value that was read.
    pub(super) value: Option<ArenaRange>,
    pub(super) op: Op,
    /// Whether it was looked up.
    pub(super) is_known: bool,
    /// Whether the transaction relies on what it saw: then the version must not have changed.
    pub(super) is_read: bool,
    /// Whether the transaction has made the record.
    pub(super) is_made: bool,
    /// Whether the transaction has the record locked, or may have.
    pub(super) is_locked: bool,
    /// Whether its change has been sent to its owner.
    pub(super) is_sent: bool,
    /// Whether the transaction has conflicted with another about it.
    pub(super) is_contended: bool,
    pub(super) intent: Intent,
    /// Until when it is leased; zero if it is not.
    pub(super) lease: u64,
    /// Whether its table is replicated: what was read of it stays so.
    pub(super) is_final: bool,
}

impl Row {
    fn new(table: u16, owner: NodeId, key: ArenaKey) -> Self {
        Self {
            table,
            owner,
            key,
            at: None,
            location: None,
            is_missed: false,
            seen: Version::default(),
            value: None,
            op: Op::Nothing,
            is_known: false,
            is_read: false,
            is_made: false,
            is_locked: false,
            is_sent: false,
            is_contended: false,
            intent: Intent::Unknown,
            lease: 0,
            is_final: false,
        }
    }

    /// Whether the row was there when it was looked up.
    pub(super) fn was_there(&self) -> bool {
        self.at.is_some() && !self.seen.is_removed()
    }

    /// Whether the row is there for the transaction itself.
    pub(super) fn is_there(&self) -> bool {
        match self.op {
            Op::Nothing => self.was_there(),
            Op::Put(_) | Op::Publish(_) => true,
            Op::Remove => false,
        }
    }

    pub(super) fn is_written(&self) -> bool {
        self.op != Op::Nothing
    }
}

/// A range of an owner's rows that is being read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScannedRange {
    pub(super) table: u16,
    pub(super) owner: NodeId,
    /// Where the rows begin and end that were not read yet.
    pub(super) low: Bound<ArenaKey>,
    pub(super) high: Bound<ArenaKey>,
    /// From which end it is read.
    pub(super) way: Way,
    /// How many rows are wanted at once, at most.
    pub(super) most: u32,
    /// Whether the table is replicated: what was read of it stays so.
    pub(super) is_final: bool,
    pub(super) is_whole: bool,
}

impl ScannedRange {
    /// Whether a key is of what was not read yet. The keys that it has are in these bytes.
    pub(super) fn has(&self, key: KeyRef<'_>, keys: &[u8]) -> bool {
        let range = (self.low.map(|key| key.in_bytes(keys)), self.high.map(|key| key.in_bytes(keys)));
        range.contains(&key)
    }
}

/// Where a key was missing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing {
    pub(super) owner: NodeId,
    pub(super) absence: Absence,
}

/// An owner, as a transaction knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) node: NodeId,
    /// Its count of changes before the transaction first read something there.
    first: Option<u64>,
    /// The same at the end.
    last: u64,
    /// The epoch in which the transaction commits there: the snapshot number, read after its last
    /// lock, and before it validates.
    pub(super) epoch: u64,
    /// Whether no snapshot is open there that may need what rows were before that epoch.
    pub(super) is_plain: bool,
    /// The epoch of the owner's log that the transaction waits for: zero before the first look, and
    /// when it is durable.
    pub(super) awaits: u64,
}

impl Owner {
    fn new(node: NodeId) -> Self {
        Self { node, first: None, last: 0, epoch: 0, is_plain: false, awaits: 0 }
    }

    /// Notes a count of changes.
    pub(super) fn has_count(&mut self, count: u64) {
        self.first.get_or_insert(count);
        self.last = count;
    }

    /// Notes the snapshot number, read after a lock. Of several locks, the greatest was read after
    /// the last.
    pub(super) fn has_number(&mut self, number: u64, is_plain: bool) {
        match number.cmp(&self.epoch) {
            Ordering::Greater => (self.epoch, self.is_plain) = (number, is_plain),
            Ordering::Equal => self.is_plain &= is_plain,
            Ordering::Less => {}
        }
    }

    /// Whether no name can have come round since the transaction began there.
    fn is_within_round(&self) -> bool {
        self.first.is_none_or(|first| self.last.wrapping_sub(first) < ROUND_TURNS)
    }
}

/// What was in a transaction's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Culprit {
    Row(u32),
    /// A key that came into a range, or a row that only its owner knows.
    Unknown,
}

/// Requests that travel together, and were sent.
#[derive(Debug)]
pub(super) struct Sent<'e, P: Port> {
    pub(super) posted: Posted<'e, P>,
    pub(super) asked: Vec<Asked>,
}

/// Unlocks that were sent while the transaction's state was the body's. The state has them, too, so
/// that they are waited for however the body ends.
pub(super) type GivenUp<'e, P> = Rc<RefCell<Vec<Posted<'e, P>>>>;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct State<'e, P: Port> {
    /// The name under which it locks.
    pub(super) holder: Holder,
    pub(super) rows: Vec<Row>,
    pub(super) missing: Vec<Missing>,
    pub(super) spans: Vec<ScannedRange>,
    /// Ranges that it fetches before it runs.
    pub(super) ranges: Vec<FetchedRange>,
    pub(super) owners: Vec<Owner>,
    pub(super) arena: Arena,
    /// What is under way. It is kept here, and not in the future that waits, so that it is known
    /// however the waiting ends.
    pub(super) sent: Vec<Sent<'e, P>>,
    /// Locks that were taken one-sidedly.
    pub(super) locks: Vec<(u32, RecordLock)>,
    /// Rows that are being written one-sidedly.
    pub(super) written: Vec<(NodeId, Pending<'e, P, ()>)>,
    /// What it has in the rings of backups.
    pub(super) log: Logging,
    /// Whether the transaction has committed, and only has to be carried out.
    pub(super) is_decided: bool,
    /// Whether nothing of the transaction is under way, nor locked.
    pub(super) is_over: bool,
    /// Whether it has ended but for locks whose owner could not be asked to free them, and may be
    /// met again.
    pub(super) owes: bool,
    /// Whether its rows are to be locked before they are used, or are.
    pub(super) claims: bool,
    /// Until when its body may hold these locks. `None` before the body runs.
    pub(super) claims_until: Option<Time>,
    /// Unlocks of rows whose time is over. They were sent while the body was running.
    pub(super) given_up: GivenUp<'e, P>,
    /// The forms of its phases.
    pub(super) forms: Forms,
    /// Until when it leases rows.
    pub(super) leases_until: u64,
    /// Whether this run only finds out which rows there are.
    pub(super) is_scout: bool,
    /// Whether this run has come to a row that was not fetched.
    pub(super) is_outside: bool,
    /// What was in the way first, if something was.
    pub(super) culprit: Option<Culprit>,
    /// The entries of the row that is being written.
    pub(super) entries: RowEntries,
    /// What its writes were, since its first savepoint.
    pub(super) undo: Undo<Op>,
    /// The numbers of the first `indexed` rows, by hashes of their tables and keys.
    index: FxHashMap<u64, u32>,
    indexed: usize,
}

impl<P: Port> State<'_, P> {
    pub(super) fn new(holder: Holder, forms: Forms) -> Self {
        Self {
            holder,
            forms,
            rows: Vec::new(),
            missing: Vec::new(),
            spans: Vec::new(),
            ranges: Vec::new(),
            owners: Vec::new(),
            arena: Arena::default(),
            sent: Vec::new(),
            locks: Vec::new(),
            written: Vec::new(),
            log: Logging::default(),
            is_decided: false,
            is_over: false,
            owes: false,
            claims: false,
            claims_until: None,
            given_up: GivenUp::default(),
            leases_until: 0,
            is_scout: false,
            is_outside: false,
            culprit: None,
            entries: RowEntries::default(),
            undo: Undo::default(),
            index: FxHashMap::default(),
            indexed: 0,
        }
    }

    /// Forgets everything, for the next transaction.
    pub(super) fn clear(&mut self) {
        self.undo.clear();
        if self.arena.values.len() > KEPT_BYTES || self.rows.len() > KEPT_ROWS {
            *self = Self { undo: std::mem::take(&mut self.undo), ..Self::new(self.holder, self.forms) };
            return;
        }
        self.rows.clear();
        self.missing.clear();
        self.spans.clear();
        self.ranges.clear();
        self.owners.clear();
        self.arena.clear();
        self.sent.clear();
        self.locks.clear();
        self.written.clear();
        self.log.clear();
        (self.is_decided, self.is_over, self.claims, self.culprit) = (false, false, false, None);
        (self.is_scout, self.is_outside, self.owes, self.claims_until) = (false, false, false, None);
        self.forget_index();
    }

    /// Forgets the numbers of rows, which are going to change.
    fn forget_index(&mut self) {
        if self.indexed > 0 {
            self.index.clear();
            self.indexed = 0;
        }
    }

    /// Forgets the rows and ranges that the last run of a body has not used, when the transaction
    /// is over.
    pub(super) fn forget_unused(&mut self) {
        self.rows.retain(|row| row.intent != Intent::Unknown);
        self.ranges.retain(|range| range.is_used);
        self.forget_index();
    }

    /// Forgets everything but which rows there were, for the next run of a transaction that locks
    /// them first.
    pub(super) fn clear_for_claims(&mut self) {
        for row in &mut self.rows {
            // Records that were made for this transaction have been taken out.
            let at = if row.is_made { None } else { row.at };
            let Row { seen, intent, is_contended, is_final, .. } = *row;
            *row = Row { at, seen, intent, is_contended, is_final, ..Row::new(row.table, row.owner, row.key) };
        }
        self.missing.clear();
        self.spans.clear();
        self.ranges.iter_mut().for_each(|range| range.spans = 0..0);
        self.owners.iter_mut().for_each(|owner| *owner = Owner::new(owner.node));
        self.arena.values.truncate(0);
        self.sent.clear();
        self.locks.clear();
        self.written.clear();
        self.log.clear_for_claims();
        self.undo.clear();
        self.claims_until = None;
        (self.is_decided, self.is_over, self.claims, self.culprit) = (false, false, true, None);
    }

    /// Keeps the ends of a range until the transaction ends.
    pub(super) fn keep_ends(&mut self, ends: &Ends) -> Result<[Bound<ArenaKey>; 2], Error> {
        let mut keep = |bound: Bound<KeyRef<'_>>| {
            Ok::<_, Error>(match bound {
                Bound::Included(key) => Bound::Included(self.arena.keep_key(key)?),
                Bound::Excluded(key) => Bound::Excluded(self.arena.keep_key(key)?),
                Bound::Unbounded => Bound::Unbounded,
            })
        };
        let [low, high] = ends.bounds();
        Ok([keep(low)?, keep(high)?])
    }

    /// Adds the parts of a range that these nodes have, of which so many rows are wanted at once.
    /// Returns their numbers.
    pub(super) fn add_spans(
        &mut self,
        table: u16,
        [low, high]: [Bound<ArenaKey>; 2],
        way: Way,
        nodes: &[NodeId],
        (most, is_final): (usize, bool),
    ) -> Range<usize> {
        let (first, most) = (self.spans.len(), u32::try_from(most).unwrap_or(u32::MAX));
        for owner in nodes.iter().copied() {
            self.owner(owner);
            self.spans.push(ScannedRange { table, owner, low, high, way, most, is_final, is_whole: false });
        }
        first..self.spans.len()
    }

    /// The number of a row, which is added if the transaction has not come to it yet.
    pub(super) fn row(&mut self, table: u16, key: KeyRef<'_>, owner: NodeId) -> Result<u32, Error> {
        if let Some(row) = self.find(table, key) {
            return Ok(row);
        }
        let key = self.arena.keep_key(key)?;
        self.rows.push(Row::new(table, owner, key));
        self.owner(owner);
        Ok(self.rows.len() as u32 - 1)
    }

    fn find(&mut self, table: u16, key: KeyRef<'_>) -> Option<u32> {
        let keys = &self.arena.keys;
        let is_it = |row: &Row| row.table == table && row.key.in_bytes(keys) == key;
        if self.rows.len() < INDEX_FROM {
            return self.rows.iter().position(is_it).map(|row| row as u32);
        }
        for (row, number) in self.rows[self.indexed..].iter().zip(self.indexed as u32..) {
            // Of rows with the same hash, the first is in the index.
            self.index.entry(hash(row.table, row.key.in_bytes(keys))).or_insert(number);
        }
        self.indexed = self.rows.len();
        let first = *self.index.get(&hash(table, key))?;
        let others = self.rows[first as usize..].iter().position(is_it);
        others.map(|behind| first + behind as u32)
    }

    /// What is known of an owner.
    pub(super) fn owner(&mut self, node: NodeId) -> &mut Owner {
        let known = self.owners.iter().position(|owner| owner.node == node);
        let at = known.unwrap_or_else(|| {
            self.owners.push(Owner::new(node));
            self.owners.len() - 1
        });
        &mut self.owners[at]
    }

    /// What is known of a row's owner.
    pub(super) fn owner_of(&self, row: u32) -> Option<&Owner> {
        let node = self.rows[row as usize].owner;
        self.owners.iter().find(|owner| owner.node == node)
    }

    /// The epoch in which the transaction commits at an owner.
    pub(super) fn epoch_at(&self, node: NodeId) -> u64 {
        self.owners.iter().find(|owner| owner.node == node).map_or(0, |owner| owner.epoch)
    }

    /// A row's lock, if it was taken one-sidedly.
    pub(super) fn lock_of(&self, row: u32) -> Option<&RecordLock> {
        self.locks.iter().find(|(locked, _)| *locked == row).map(|(_, lock)| lock)
    }

    /// Whether nothing that was validated can have come round meanwhile.
    pub(super) fn check_turns(&self) -> Result<(), Conflict> {
        if self.owners.iter().all(Owner::is_within_round) { Ok(()) } else { Err(Conflict::Validation) }
    }

    /// Whether everything was read at one moment, so that nothing has to be validated. What was
    /// read one-sidedly may have been locked then, by a transaction that is decided and has shown
    /// other rows already: that does not count, unless it `is_believed`.
    pub(super) fn is_of_one_moment(&self, is_believed: bool) -> bool {
        let mut read = self.rows.iter().filter(|row| row.at.is_some() && !row.is_final);
        let first = read.next();
        let is_seen = first.is_none_or(|row| row.location.is_none() || is_believed);
        is_seen && read.next().is_none() && usize::from(first.is_some()) + self.missing.len() <= 1
    }

    /// The value that a row has for the transaction.
    pub(super) fn value(&self, row: u32) -> Option<&[u8]> {
        Some(self.range_of(row)?.of(self.arena.values.bytes()))
    }

    /// Where that is.
    pub(super) fn range_of(&self, row: u32) -> Option<ArenaRange> {
        let row = &self.rows[row as usize];
        match row.op {
            Op::Put(value) | Op::Publish(value) => Some(value),
            Op::Remove => None,
            Op::Nothing if row.was_there() => row.value,
            Op::Nothing => None,
        }
    }
}

fn hash(table: u16, key: KeyRef<'_>) -> u64 {
    use std::hash::{Hash, Hasher};
    let mut hasher = rustc_hash::FxHasher::default();
    table.hash(&mut hasher);
    match key {
        KeyRef::Word(word) => word.hash(&mut hasher),
        KeyRef::Bytes(bytes) => bytes.hash(&mut hasher),
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use drtm_htm::NoHtm;
    use drtm_rdma::LocalPort;
    use proptest::prelude::*;

    use super::*;
    use crate::cluster::adapt::WAYS;

    proptest! {
        #[test]
        fn a_row_is_found_by_its_table_and_key(keys in prop::collection::vec((0..3_u16, 0..40_u64, any::<bool>()), 0..100)) {
            let mut state = State::<'_, LocalPort<NoHtm>>::new(Holder::new(0, 0, 0, 0), WAYS[0]);
            let mut model = Vec::new();
            for (table, key, is_word) in keys {
                let bytes = key.to_be_bytes();
                let key = if is_word { KeyRef::Word(key) } else { KeyRef::Bytes(&bytes) };
                let kept = (table, is_word, bytes);
                let expected = model.iter().position(|row| *row == kept).unwrap_or_else(|| {
                    model.push(kept);
                    model.len() - 1
                });
                prop_assert_eq!(state.row(table, key, NodeId(0)).expect("few bytes"), expected as u32);
            }
        }
    }

    #[test]
    fn what_may_have_come_round_is_not_valid() {
        let mut state = State::<'_, LocalPort<NoHtm>>::new(Holder::new(0, 0, 0, 0), WAYS[0]);
        state.owner(NodeId(1)).has_count(5);
        state.owner(NodeId(2)).has_count(7);
        assert_eq!(state.check_turns(), Ok(()));
        state.owner(NodeId(1)).has_count(5 + ROUND_TURNS - 1);
        assert_eq!(state.check_turns(), Ok(()));
        state.owner(NodeId(2)).has_count(7 + ROUND_TURNS);
        assert_eq!(state.check_turns(), Err(Conflict::Validation));
    }
}
