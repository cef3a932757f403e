//! A node: its cores, directory, memory and NIC; local transactions and their accesses.
//!
//! A *local* transaction runs on the node's cores and has a slot, which is its pair of filters
//! (module 3 of the paper) and its entry in the NIC (module 4b). A *guest* runs on another node.
//!
//! Invariants:
//!
//! - A line is tagged by at most one local transaction, which is under way and not squashed. Its
//!   write filter has the line, and memory has the line's committed value.
//! - Each first access of a line by a local transaction is in its filters before the value is used.
//! - A squash marks the filters at once. What is marked cannot lock.

use super::{
    buffers::Buffers,
    directory::{Directory, Entry},
    filter::{Key, Pair, Shape},
    link::Link,
    memory::{Memory, Move},
    message::{Served, Stop, Stopped, TxId},
    mutation::{Mutation, includes},
    nic::Nic,
    private::{Core, Kind},
    profile::{Line, MachineProfile},
};
use crate::NodeId;

/// How far a local transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// No transaction has these filters.
    Free,
    /// It accesses lines.
    Runs,
    /// It has locked its own node, and waits for others.
    Asks,
    /// It cannot be squashed any more.
    Decided,
}

/// A local transaction's part at another node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Part {
    pub(super) node: NodeId,
    /// The lines that it has written there.
    pub(super) written: Vec<Line>,
    pub(super) has_acknowledged: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) attempt: u32,
    pub(super) core: u16,
    pub(super) stage: Stage,
    pub(super) squashed: Option<Stopped>,
    pub(super) pair: Pair,
    pub(super) parts: Vec<Part>,
}

/// Counts of a node, for studies.
///
/// # Example
///
/// See [`Node::counts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Transactions that began, each run of them once.
    pub begun: u64,
    /// Accesses by the node's cores.
    pub accesses: u64,
    /// Those that reached the directory.
    pub directory: u64,
    /// Lines that other nodes fetched.
    pub fetched: u64,
    /// Checks of a written address against the filters of another transaction, by a local write or
    /// a commit's detection. Checks against locking buffers are not counted.
    pub checks: u64,
    /// Those that met a filter without the line.
    pub false_positives: u64,
    /// Squashes of local transactions by the eviction of a line that they had written.
    pub evictions: u64,
    /// Squashes of local transactions for other reasons.
    pub squashes: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.begun += other.begun;
        self.accesses += other.accesses;
        self.directory += other.directory;
        self.fetched += other.fetched;
        self.checks += other.checks;
        self.false_positives += other.false_positives;
        self.evictions += other.evictions;
        self.squashes += other.squashes;
    }
}

/// A simulated node.
///
/// Times are in cycles. A processor may be ahead of the others: accesses wait for what memory has
/// to do, and not for its time.
///
/// # Example
///
/// See the [module](super).
#[derive(Clone, Debug)]
pub struct Node {
    pub(super) id: NodeId,
    pub(super) profile: MachineProfile,
    pub(super) cores: Vec<Core>,
    pub(super) directory: Directory,
    pub(super) buffers: Buffers,
    pub(super) memory: Memory,
    pub(super) nic: Nic,
    link: Link,
    pub(super) slots: Vec<Slot>,
    pub(super) counts: Counts,
}

impl Node {
    /// Creates a node with empty caches.
    ///
    /// # Example
    ///
    /// See the [module](super).
    ///
    /// # Panics
    ///
    /// If the numbers of sets or of a filter's bits are not powers of two, a node has more than 32
    /// cores, or its NIC too few queue pairs.
    #[must_use]
    pub fn new(id: NodeId, profile: &MachineProfile) -> Self {
        assert!(profile.cores <= 32, "a node has {} cores, and the model at most 32", profile.cores);
        let queue_pairs = profile.transactions() * profile.nodes.saturating_sub(1);
        assert!(queue_pairs <= profile.queue_pairs, "a NIC has {} queue pairs of {queue_pairs}", profile.queue_pairs);
        let (hashed, indexed) = profile.write_bits;
        let shapes = (Shape::Hashed { bits: profile.read_bits }, Shape::Split { hashed, indexed });
        let slot = || Slot {
            attempt: 0,
            core: 0,
            stage: Stage::Free,
            squashed: None,
            pair: Pair::new(shapes.0, shapes.1),
            parts: Vec::new(),
        };
        Self {
            id,
            cores: (0..profile.cores).map(|_| Core::new(profile)).collect(),
            directory: Directory::new(profile),
            buffers: Buffers::new(profile.locking_buffers),
            memory: Memory::new(profile),
            nic: Nic::new(profile),
            link: Link::new(),
            slots: (0..profile.transactions()).map(|_| slot()).collect(),
            counts: Counts::default(),
            profile: profile.clone(),
        }
    }

    /// Begins a transaction on a core. `None` if no pair of filters is free.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::{NodeId, machine::{MachineProfile, Node}};
    ///
    /// let mut node = Node::new(NodeId(0), &MachineProfile::HADES);
    /// let begun = (0..10).filter_map(|tx| node.begin(tx % 5)).count();
    /// assert_eq!((begun, node.begin(0)), (10, None));
    /// ```
    ///
    /// # Panics
    ///
    /// If there is no such core.
    pub fn begin(&mut self, core: usize) -> Option<TxId> {
        assert!(core < self.cores.len(), "core {core} of {}", self.cores.len());
        let at = self.slots.iter().position(|slot| slot.stage == Stage::Free)?;
        let slot = &mut self.slots[at];
        slot.attempt = slot.attempt.wrapping_add(1);
        slot.core = core as u16;
        slot.stage = Stage::Runs;
        self.counts.begun += 1;
        Some(TxId { node: self.id, slot: at as u16, attempt: slot.attempt })
    }

    /// Accesses a line of this node's memory by a local transaction. Conflicts with other local
    /// transactions are detected at once, and squash this one.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::{NodeId, machine::{Kind, Line, MachineProfile, Node, Stop, Stopped}};
    ///
    /// let mut node = Node::new(NodeId(0), &MachineProfile::HADES);
    /// let (reader, writer) = (node.begin(0).unwrap(), node.begin(1).unwrap());
    /// assert_eq!(node.access(0, reader, Line(1), Kind::Read).stop, None);
    /// assert_eq!(node.access(0, reader, Line(1), Kind::Read).cycles, 2, "the directory knows");
    /// let stop = Some(Stop::Squashed(Stopped::Local));
    /// assert_eq!(node.access(0, writer, Line(1), Kind::Write).stop, stop);
    /// ```
    pub fn access(&mut self, now: u64, tx: TxId, line: Line, kind: Kind) -> Served {
        self.memory.moves.clear();
        self.counts.accesses += 1;
        if let Some(why) = self.squashed(tx) {
            return Served::stopped(0, Stop::Squashed(why));
        }
        debug_assert!(self.slot(tx).is_some_and(|slot| slot.stage == Stage::Runs), "{tx:?} does not run");
        let core = usize::from(self.slots[usize::from(tx.slot)].core);
        self.cores[core].run(tx.slot, tx.attempt);
        if let Some(cycles) = self.cores[core].find(line, kind) {
            return Served::done(cycles);
        }
        self.counts.directory += 1;
        let cycles = self.profile.directory();
        let key = Key::of(line);
        if self.buffers.denies(tx, key, kind) && !includes(Mutation::AccessPassesLock) {
            return Served::stopped(cycles, Stop::Denied);
        }
        let found = self.directory.touch(line);
        let writer = found.and_then(|place| self.directory.state(place).writer());
        if self.meets_local(tx, key, kind, writer) {
            let squashing = self.squash(tx.slot, Stopped::Local);
            return Served::stopped(cycles + squashing, Stop::Squashed(Stopped::Local));
        }
        let (place, fetching) = match found {
            Some(place) => (place, 0),
            None => {
                let fetching = self.memory.read(now, Move::Fetched(line), line);
                (self.make_room(now, line), fetching)
            }
        };
        // To make room, a line that the transaction itself has written may have been evicted.
        if let Some(why) = self.squashed(tx) {
            return Served::stopped(cycles + fetching, Stop::Squashed(why));
        }
        let pair = &mut self.slots[usize::from(tx.slot)].pair;
        let entry = self.directory.state(place);
        if kind == Kind::Read {
            pair.reads.insert(key);
        } else {
            pair.writes.insert(key);
            if entry.writer().is_none() && entry.is_dirty && !includes(Mutation::CommittedNotSaved) {
                self.memory.write_back(now, line);
            }
            entry.set_writer(Some(tx.slot));
            entry.is_dirty = true;
            let others = entry.sharers & !(1 << core);
            entry.sharers = 0;
            invalidate(&mut self.cores, line, others);
        }
        self.directory.state(place).sharers |= 1 << core;
        self.cores[core].fill(line, kind);
        Served::done(cycles + fetching)
    }

    /// Locks lines of this node against writes until [`Node::release`], so that a local transaction
    /// reads all of them as they are at one moment.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::{NodeId, machine::{Kind, Line, MachineProfile, Node, Stop}};
    ///
    /// let mut node = Node::new(NodeId(0), &MachineProfile::HADES);
    /// let (reader, writer) = (node.begin(0).unwrap(), node.begin(1).unwrap());
    /// let record = [Line(1), Line(2)];
    /// assert_eq!(node.hold(reader, &record).stop, None);
    /// assert_eq!(node.access(0, writer, Line(2), Kind::Write).stop, Some(Stop::Denied));
    /// assert!(record.iter().all(|&line| node.access(0, reader, line, Kind::Read).stop.is_none()));
    /// node.release(reader);
    /// ```
    pub fn hold(&mut self, tx: TxId, lines: &[Line]) -> Served {
        self.memory.moves.clear();
        let cycles = self.profile.locking() + self.profile.probing(lines.len());
        if let Some(why) = self.squashed(tx) {
            return Served::stopped(0, Stop::Squashed(why));
        }
        let is_locked = lines.iter().any(|&line| self.buffers.denies(tx, Key::of(line), Kind::Read));
        if is_locked || self.buffers.is_full() {
            return Served::stopped(cycles, Stop::Denied);
        }
        let mut pair = self.slots[usize::from(tx.slot)].pair.clone();
        pair.clear();
        lines.iter().for_each(|&line| pair.reads.add(line));
        self.buffers.load(tx, true, pair);
        Served::done(cycles)
    }

    /// Ends a [`Node::hold`].
    ///
    /// # Example
    ///
    /// See [`Node::hold`].
    pub fn release(&mut self, tx: TxId) {
        self.buffers.release(tx);
    }

    /// Sends a message of this size to another node. Returns when it arrives: half a round trip
    /// after its last byte has left, which the link sends after those of earlier messages.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::{NodeId, machine::{MachineProfile, Node}};
    ///
    /// let mut node = Node::new(NodeId(0), &MachineProfile::HADES);
    /// assert_eq!([node.send(0, 64), node.send(0, 64), node.send(9_000, 64)], [2_006, 2_012, 11_006]);
    /// ```
    pub fn send(&mut self, now: u64, bytes: u64) -> u64 {
        self.link.send(now, bytes, &self.profile)
    }

    /// Returns why a local transaction was squashed. `None` if it was not.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::{NodeId, machine::{MachineProfile, Message, Node, Stopped}};
    ///
    /// let mut node = Node::new(NodeId(0), &MachineProfile::HADES);
    /// let tx = node.begin(0).expect("a pair of filters is free");
    /// node.receive(0, &Message::Squash { tx, why: Stopped::Committer });
    /// assert_eq!(node.squashed(tx), Some(Stopped::Committer));
    /// ```
    #[must_use]
    pub fn squashed(&self, tx: TxId) -> Option<Stopped> {
        self.slot(tx).and_then(|slot| slot.squashed)
    }

    /// Returns what moved between caches and memory during the last operation, in order.
    ///
    /// # Example
    ///
    /// See [`Move`].
    #[must_use]
    pub fn moves(&self) -> &[Move] {
        &self.memory.moves
    }

    /// Returns the counts since the beginning.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::{NodeId, machine::{Counts, Kind, Line, MachineProfile, Node}};
    ///
    /// let mut node = Node::new(NodeId(0), &MachineProfile::HADES);
    /// let tx = node.begin(0).expect("a pair of filters is free");
    /// for _ in 0..3 {
    ///     assert_eq!(node.access(0, tx, Line(1), Kind::Read).stop, None);
    /// }
    /// assert_eq!(node.counts(), Counts { begun: 1, accesses: 3, directory: 1, ..Counts::default() });
    /// ```
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn slot(&self, tx: TxId) -> Option<&Slot> {
        debug_assert_eq!(tx.node, self.id);
        let slot = self.slots.get(usize::from(tx.slot))?;
        let this = TxId { node: self.id, slot: tx.slot, attempt: slot.attempt };
        (slot.stage != Stage::Free && this.is(tx)).then_some(slot)
    }

    /// Returns the lines that a local transaction has tagged.
    pub(super) fn tagged(&self, slot: u16) -> Vec<Line> {
        self.directory.written(slot, &self.slots[usize::from(slot)].pair.writes)
    }

    /// Squashes a local transaction, unless it is decided. Returns the cycles that this takes.
    pub(super) fn squash(&mut self, slot: u16, why: Stopped) -> u64 {
        let at = usize::from(slot);
        let it = &mut self.slots[at];
        if it.squashed.is_some() || matches!(it.stage, Stage::Free | Stage::Decided) {
            return 0;
        }
        it.squashed = Some(why);
        if why == Stopped::Evicted {
            self.counts.evictions += 1;
        } else {
            self.counts.squashes += 1;
        }
        self.discard(slot)
    }

    /// Discards what a local transaction has written. Returns the cycles that this takes.
    pub(super) fn discard(&mut self, slot: u16) -> u64 {
        let core = usize::from(self.slots[usize::from(slot)].core);
        let lines = self.tagged(slot);
        for &line in &lines {
            if includes(Mutation::SquashedLinesStay) {
                continue;
            }
            if let Some(entry) = self.directory.remove(line) {
                self.memory.moves.push(Move::Dropped(line));
                invalidate(&mut self.cores, line, entry.sharers);
            }
        }
        self.cores[core].forget();
        self.profile.finding(lines.len())
    }

    /// Adds a line to the last-level cache. Returns its place.
    pub(super) fn make_room(&mut self, now: u64, line: Line) -> usize {
        let (place, evicted) = self.directory.fill(line);
        if let Some((line, entry)) = evicted {
            self.evicted(now, line, entry);
        }
        place
    }

    /// Handles the eviction of a line from the last-level cache.
    pub(super) fn evicted(&mut self, now: u64, line: Line, entry: Entry) {
        invalidate(&mut self.cores, line, entry.sharers);
        // What a decided transaction has written is committed.
        let writer = entry.writer().filter(|&slot| {
            self.slots[usize::from(slot)].stage != Stage::Decided || includes(Mutation::DecidedEvicted)
        });
        if writer.is_none() && entry.is_dirty {
            self.memory.write_back(now, line);
        }
        self.memory.moves.push(Move::Dropped(line));
        if let Some(slot) = writer {
            self.squash(slot, Stopped::Evicted);
        }
    }

    /// Returns whether an access conflicts with another local transaction, of which `writer` has
    /// written the line.
    fn meets_local(&mut self, tx: TxId, key: Key, kind: Kind, writer: Option<u16>) -> bool {
        if writer.is_some_and(|writer| writer != tx.slot) && !includes(Mutation::TagsNotChecked) {
            return true;
        }
        if kind == Kind::Read || includes(Mutation::ReadersNotChecked) {
            return false;
        }
        let mut others =
            self.slots.iter().enumerate().filter(|(at, slot)| {
                *at != usize::from(tx.slot) && slot.stage != Stage::Free && slot.squashed.is_none()
            });
        others.any(|(_, slot)| {
            let meets = slot.pair.reads.contains(key);
            self.counts.checks += 1;
            self.counts.false_positives += u64::from(meets && !slot.pair.reads.has(key.line));
            meets
        })
    }
}

/// Removes a line from the private caches of cores, a bit for each.
pub(super) fn invalidate(cores: &mut [Core], line: Line, sharers: u32) {
    let mut left = sharers;
    while left != 0 {
        cores[left.trailing_zeros() as usize].invalidate(line);
        left &= left - 1;
    }
}
