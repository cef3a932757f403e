//! What a running transaction knows: its rows, the guards of rows that are not there, and the
//! owners that it has asked.

mod finder;
mod guards;
#[cfg(feature = "hades")]
mod lines;
mod parts;
mod ranges;
mod row;

use std::{cell::RefCell, cmp::Ordering, rc::Rc};

use drtm_kv::{Holder, ROUND_TURNS, RecordLock};
use drtm_rdma::{Incarnation, NodeId, Pending, Port, Time, rpc::Posted};
use smallvec::SmallVec;

use self::finder::{Finder, INDEX_FROM};
#[cfg(feature = "hades")]
pub(super) use self::lines::{InNics, NicPart};
pub(super) use self::{
    guards::Guards,
    parts::{Part, Parts},
    ranges::{Puts, Span},
    row::{Hold, Intent, Op, Place, Row, Sight},
};

use super::{
    ask::{Ask, Asks},
    log::Logging,
    protocol::Forms,
    ranges::FetchedRange,
    shard::{Reach, ShardId},
    undo::Undo,
    view::View,
};
use crate::{
    Conflict, Error,
    index::RowEntries,
    memory::{
        arena::{Arena, ArenaRange},
        storage::KeyRef,
    },
};

/// Values of which a state keeps so many bytes for its next transaction, and so many rows.
const KEPT_BYTES: usize = 1 << 20;
const KEPT_ROWS: usize = 1 << 12;

/// An owner, as a transaction knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) node: NodeId,
    /// The incarnation that the transaction has met first: what it knows of the node is of that.
    pub(super) met: Option<Incarnation>,
    /// Its count of changes before the transaction first read something there.
    first: Option<u64>,
    /// The same at the end.
    last: u64,
    /// Its turns, as verbs have read them in this round.
    turns: Option<u64>,
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
        Self { node, met: None, first: None, last: 0, turns: None, epoch: 0, is_plain: false, awaits: 0 }
    }

    /// Notes a count of changes.
    pub(super) fn note_count(&mut self, count: u64) {
        self.first.get_or_insert(count);
        self.last = count;
    }

    /// Returns whether verbs have read its turns in this round.
    pub(super) fn knows_turns(&self) -> bool {
        self.turns.is_some()
    }

    /// Notes the turns that verbs have read. They only grow.
    pub(super) fn note_turns(&mut self, turns: u64) {
        self.turns = self.turns.max(Some(turns));
    }

    /// Notes the snapshot number, read after a lock. Of several locks, the greatest was read after
    /// the last.
    pub(super) fn note_number(&mut self, number: u64, is_plain: bool) {
        match number.cmp(&self.epoch) {
            Ordering::Greater => (self.epoch, self.is_plain) = (number, is_plain),
            Ordering::Equal => self.is_plain &= is_plain,
            Ordering::Less => {}
        }
    }

    /// Returns whether no counter can have wrapped around since the transaction began there.
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
    pub(super) asked: Asks,
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
    /// The guards of what it has found missing.
    pub(super) guards: Guards,
    /// The parts of the ranges that it reads.
    pub(super) spans: Vec<Span>,
    puts: Puts,
    /// Ranges that it fetches before it runs.
    pub(super) ranges: Vec<FetchedRange>,
    pub(super) owners: Vec<Owner>,
    /// The view that it runs in.
    pub(super) view: Rc<View>,
    pub(super) arena: Arena,
    /// What is under way. It is kept here, and not in the future that waits, so that it is known
    /// however the waiting ends.
    pub(super) sent: Vec<Sent<'e, P>>,
    /// Locks that were taken by verbs.
    pub(super) locks: Vec<RecordLock>,
    /// What it writes, by the nodes that carry it out.
    pub(super) parts: Parts,
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
    /// What it has in the NICs of nodes, where conflicts are found by cache lines.
    #[cfg(feature = "hades")]
    pub(super) in_nics: Option<InNics>,
    /// The numbers of the first `indexed` rows, by their tables and keys.
    finder: Finder,
    indexed: usize,
}

impl<P: Port> State<'_, P> {
    pub(super) fn new(holder: Holder, forms: Forms, view: Rc<View>) -> Self {
        Self {
            holder,
            forms,
            rows: Vec::new(),
            guards: Guards::default(),
            spans: Vec::new(),
            puts: Puts::default(),
            ranges: Vec::new(),
            owners: Vec::new(),
            view,
            arena: Arena::default(),
            sent: Vec::new(),
            locks: Vec::new(),
            parts: Parts::default(),
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
            #[cfg(feature = "hades")]
            in_nics: None,
            finder: Finder::default(),
            indexed: 0,
        }
    }

    /// Forgets everything, for the next transaction.
    pub(super) fn clear(&mut self) {
        self.undo.clear();
        if self.arena.values.len() > KEPT_BYTES || self.rows.len() > KEPT_ROWS {
            *self = Self {
                undo: std::mem::take(&mut self.undo),
                ..Self::new(self.holder, self.forms, Rc::clone(&self.view))
            };
            return;
        }
        self.rows.clear();
        self.guards.clear();
        self.spans.clear();
        self.puts.clear();
        self.ranges.clear();
        self.owners.clear();
        self.arena.clear();
        self.sent.clear();
        self.locks.clear();
        self.parts.clear();
        self.written.clear();
        self.log.clear();
        (self.is_decided, self.is_over, self.claims, self.culprit) = (false, false, false, None);
        (self.is_scout, self.is_outside, self.owes, self.claims_until) = (false, false, false, None);
        self.forget_index();
    }

    /// Forgets the numbers of rows, which are going to change.
    fn forget_index(&mut self) {
        self.finder.clear();
        self.indexed = 0;
    }

    /// Forgets what becomes of rows.
    pub(super) fn forget_writes(&mut self) {
        self.rows.iter_mut().for_each(|row| row.op = Op::Nothing);
        self.puts.clear();
    }

    /// Forgets the rows and ranges that the last run of a body has not used, when the transaction
    /// is over.
    pub(super) fn forget_unused(&mut self) {
        self.rows.retain(|row| row.intent != Intent::Unknown);
        self.ranges.retain(|range| range.is_used);
        self.forget_index();
    }

    /// Forgets what the last run has read and written. Keeps the list of rows and ranges for the
    /// next run, which locks them first.
    pub(super) fn clear_for_claims(&mut self) {
        self.rows.iter_mut().for_each(|row| *row = row.again());
        self.guards.clear();
        self.spans.clear();
        self.puts.clear();
        self.ranges.iter_mut().for_each(|range| range.spans = 0..0);
        self.owners.iter_mut().for_each(|owner| *owner = Owner { met: owner.met, ..Owner::new(owner.node) });
        self.arena.values.truncate(0);
        self.sent.clear();
        self.locks.clear();
        self.parts.clear();
        self.written.clear();
        self.log.clear_for_claims();
        self.undo.clear();
        self.claims_until = None;
        (self.is_decided, self.is_over, self.claims, self.culprit) = (false, false, true, None);
    }

    /// Enters a view, in which nothing is known of rows and ranges but their names.
    pub(super) fn enter(&mut self, view: Rc<View>) {
        self.view = view;
        self.owners.clear();
        self.log.forget_needs();
        for row in 0..self.rows.len() {
            self.rows[row].place = Place::Nowhere;
            self.owner(self.node_at(self.rows[row].shard));
        }
        for range in 0..self.ranges.len() {
            self.add_owners(self.ranges[range].reach);
        }
    }

    /// Adds the nodes that serve shards to those that the transaction knows.
    pub(super) fn add_owners(&mut self, reach: Reach) {
        let view = Rc::clone(&self.view);
        for shard in view.heads_of(reach) {
            self.owner(self.node_at(shard));
        }
    }

    /// Returns the number of a row, which is added if the transaction has not come to it yet.
    pub(super) fn row(&mut self, table: u16, key: KeyRef<'_>, shard: ShardId) -> Result<u32, Error> {
        let row = self.row_of_range(table, key, shard)?;
        self.rows[row as usize].shard = shard;
        Ok(row)
    }

    /// Returns the number of a row, like [`row`](Self::row), of which only some shard of its node
    /// is known.
    pub(super) fn row_of_range(&mut self, table: u16, key: KeyRef<'_>, shard: ShardId) -> Result<u32, Error> {
        if let Some(row) = self.find(table, key) {
            return Ok(row);
        }
        let key = self.arena.keep_key(key)?;
        self.rows.push(Row::new(table, shard, key));
        self.owner(self.node_at(shard));
        Ok(self.rows.len() as u32 - 1)
    }

    fn find(&mut self, table: u16, key: KeyRef<'_>) -> Option<u32> {
        let keys = &self.arena.keys;
        let is_it = |row: &Row| row.table == table && row.key.in_bytes(keys) == key;
        if self.rows.len() < INDEX_FROM {
            return self.rows.iter().position(is_it).map(|row| row as u32);
        }
        let hash_of = |number: u32| {
            let row = &self.rows[number as usize];
            hash(row.table, row.key.in_bytes(keys))
        };
        (self.indexed..self.rows.len()).for_each(|number| self.finder.add(number as u32, hash_of));
        self.indexed = self.rows.len();
        self.finder.find(hash(table, key), |number| is_it(&self.rows[number as usize]))
    }

    /// Returns the number under which a row's node has the rows of its table.
    pub(super) fn store_of(&self, row: &Row) -> u16 {
        self.view.store_of(row.table, row.shard)
    }

    /// Returns whether nothing is under way.
    pub(super) fn is_quiet(&self) -> bool {
        self.sent.is_empty() && self.written.is_empty() && self.given_up.borrow().is_empty()
    }

    /// Returns the node that serves a shard.
    pub(super) fn node_at(&self, shard: ShardId) -> NodeId {
        self.view.primary(shard).unwrap_or(NodeId(self.holder.node().into()))
    }

    /// Returns the node that serves a row.
    pub(super) fn node_of(&self, row: u32) -> NodeId {
        self.node_at(self.rows[row as usize].shard)
    }

    /// Returns the incarnation of a node that the transaction knows something of.
    pub(super) fn met(&self, node: NodeId) -> Option<Incarnation> {
        self.owners.iter().find(|owner| owner.node == node)?.met
    }

    /// Notes which incarnation of a node was met.
    ///
    /// # Errors
    ///
    /// When it is another one than before: what the transaction knows of the node is worth nothing.
    pub(super) fn meet(&mut self, node: NodeId, now: Incarnation) -> Result<(), Error> {
        let owner = self.owner(node);
        if *owner.met.get_or_insert(now) == now { Ok(()) } else { Err(self.failed_in_view(node)) }
    }

    /// Returns what is known of an owner.
    pub(super) fn owner(&mut self, node: NodeId) -> &mut Owner {
        let known = self.owners.iter().position(|owner| owner.node == node);
        let at = known.unwrap_or_else(|| {
            self.owners.push(Owner::new(node));
            self.owners.len() - 1
        });
        &mut self.owners[at]
    }

    /// Returns what is known of a row's owner.
    pub(super) fn owner_of(&self, row: u32) -> Option<&Owner> {
        let node = self.node_of(row);
        self.owners.iter().find(|owner| owner.node == node)
    }

    /// Forgets the turns of all owners, before a round that reads them.
    pub(super) fn forget_turns(&mut self) {
        self.owners.iter_mut().for_each(|owner| owner.turns = None);
    }

    /// Returns the turns of a row's owner, as verbs have read them in this round.
    pub(super) fn turns_of(&self, row: u32) -> Option<u64> {
        self.owner_of(row)?.turns
    }

    /// Adds requests for the lines of some owners.
    pub(super) fn ask_lines(&self, asks: &mut Asks, ask: impl Fn(u32) -> Ask, of: impl Fn(NodeId) -> bool) {
        let owners = self.owners.iter().zip(0..).filter(|(owner, _)| of(owner.node));
        asks.extend(owners.map(|(_, number)| ask(number)));
    }

    /// Returns the nodes that have told their count of changes when one of these rows was read
    /// there, or a key was missing.
    pub(super) fn counted(&self, of: impl Fn(&Row) -> bool) -> SmallVec<[NodeId; 8]> {
        let mut counted = SmallVec::new();
        let read = self.rows.iter().filter(|row| row.is_read() && row.location().is_none() && of(row));
        for shard in read.map(|row| row.shard).chain(self.guards.needed().map(|guard| self.guards.get(guard).head)) {
            let node = self.node_at(shard);
            if !counted.contains(&node) {
                counted.push(node);
            }
        }
        counted
    }

    /// Returns the epoch in which the transaction commits at an owner.
    pub(super) fn epoch_at(&self, node: NodeId) -> u64 {
        self.owners.iter().find(|owner| owner.node == node).map_or(0, |owner| owner.epoch)
    }

    /// Returns a row's lock, if it was taken by verbs.
    pub(super) fn lock_of(&self, row: u32) -> Option<&RecordLock> {
        let Hold::Swapped(lock) = self.rows[row as usize].hold else { return None };
        self.locks.get(lock as usize)
    }

    /// Notes what becomes of a row.
    pub(super) fn note(&mut self, number: u32, op: Op) {
        let row = &mut self.rows[number as usize];
        self.undo.note(number, row.op);
        let op = match op {
            // What was never there is as it was.
            Op::Remove if row.is_known() && !row.was_there() => Op::Nothing,
            op => op,
        };
        self.set(number, op);
    }

    /// Sets what becomes of a row.
    pub(super) fn set(&mut self, number: u32, op: Op) {
        self.rows[number as usize].op = op;
        match op {
            Op::Put(_) | Op::Publish(_) => self.note_put(number),
            Op::Nothing | Op::Remove => self.forget_put(number),
        }
    }

    /// Checks that no counter can have wrapped around since the transaction began.
    pub(super) fn check_turns(&self) -> Result<(), Conflict> {
        if self.owners.iter().all(Owner::is_within_round) { Ok(()) } else { Err(Conflict::Validation) }
    }

    /// Returns whether everything was read at one moment, so that nothing has to be validated. What
    /// was read one-sidedly may have been locked then, by a transaction that is decided and has
    /// shown other rows already: that does not count, unless it `is_believed`.
    pub(super) fn is_of_one_moment(&self, is_believed: bool) -> bool {
        let mut read = self.rows.iter().filter(|row| row.place != Place::Nowhere && !row.is_final);
        let first = read.next();
        let is_seen = first.is_none_or(|row| row.location().is_none() || is_believed);
        is_seen && read.next().is_none() && usize::from(first.is_some()) + self.guards.noted() <= 1
    }

    /// Returns the value that a row has for the transaction.
    pub(super) fn value(&self, row: u32) -> Option<&[u8]> {
        Some(self.range_of(row)?.of(self.arena.values.bytes()))
    }

    /// Returns where the value is that a row has for the transaction.
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
mod tests;
