//! What other nodes do here, and commits: the remote accesses and the commit of the paper's
//! Table II.
//!
//! A commit *locks and detects* as one step, at its own node and then at each other one that it has
//! accessed. No other commit can lock in between. So whatever a commit's detection finds has not
//! locked, and what has locked is never squashed by what happens at that node.

use super::{
    buffers::Obstacle,
    directory::Entry,
    filter::{Key, Pair},
    memory::Move,
    message::{Message, Progress, Served, Step, Stop, Stopped, TxId},
    mutation::{self, Mutation, includes},
    nic::Fetch,
    node::{Node, Part, Stage, invalidate},
    private::Kind,
    profile::Line,
};
use crate::NodeId;

/// Messages, and the nodes that get them.
type Messages = Vec<(NodeId, Message)>;

impl Node {
    /// Records that a local transaction accesses another node, and writes these lines of it, wholly
    /// or partly.
    ///
    /// # Example
    ///
    /// See the [module](super).
    pub fn record(&mut self, tx: TxId, node: NodeId, written: &[Line]) {
        debug_assert!(node != self.id && self.slot(tx).is_some());
        let parts = &mut self.slots[usize::from(tx.slot)].parts;
        let at = parts.iter().position(|part| part.node == node).unwrap_or_else(|| {
            parts.push(Part { node, written: Vec::new(), has_acknowledged: false });
            parts.len() - 1
        });
        let lines = &mut parts[at].written;
        for line in written {
            if !lines.contains(line) {
                lines.push(*line);
            }
        }
    }

    /// Fetches lines of this node for another node's transaction, all as they are at one moment.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::{NodeId, machine::{Fetch, Kind, Line, MachineProfile, Node, Stop, Stopped}};
    ///
    /// let profile = &MachineProfile::HADES;
    /// let [mut here, mut there] = [0, 1].map(|id| Node::new(NodeId(id), profile));
    /// let (local, guest) = (here.begin(0).unwrap(), there.begin(0).unwrap());
    /// assert_eq!(here.fetch(0, guest, Fetch::Read, &[Line(1), Line(2)]).stop, None);
    ///
    /// // The local transaction writes one of them and commits first.
    /// assert_eq!(here.access(0, local, Line(2), Kind::Write).stop, None);
    /// let squashes = here.commit_step(local).messages;
    /// assert_eq!(squashes.len(), 1, "a message to the other node");
    /// let stop = Some(Stop::Squashed(Stopped::Committer));
    /// assert_eq!(here.fetch(0, guest, Fetch::Read, &[Line(9)]).stop, stop);
    /// ```
    pub fn fetch(&mut self, now: u64, tx: TxId, fetch: Fetch, lines: &[Line]) -> Served {
        self.memory.moves.clear();
        self.counts.fetched += lines.len() as u64;
        if let Some(why) = self.nic.squashed(tx) {
            return Served::stopped(0, Stop::Squashed(why));
        }
        let holding = if lines.len() > 1 { self.profile.locking() } else { 0 };
        let cycles = self.profile.probing(lines.len()) + holding + self.profile.streaming(lines.len());
        let is_denied = lines.iter().any(|&line| self.buffers.denies(tx, Key::of(line), Kind::Read));
        if is_denied && !includes(Mutation::FetchPassesLock) {
            return Served::stopped(cycles, Stop::Denied);
        }
        let Some(guest) = self.nic.admit(tx) else {
            return Served::stopped(cycles, Stop::Squashed(Stopped::NicFull));
        };
        let filter = if fetch == Fetch::Read { &mut guest.pair.reads } else { &mut guest.pair.writes };
        for &line in lines {
            if fetch == Fetch::Read || !includes(Mutation::PartialNotInserted) {
                filter.add(line);
            }
        }
        let mut fetching = 0;
        for &line in lines {
            let cached = self.directory.touch(line).map(|place| *self.directory.state(place));
            // Of a line that is written and not committed, memory has the committed value.
            let serves = |entry: Entry| entry.writer().is_none() || includes(Mutation::SpeculativeServed);
            if !cached.is_some_and(serves) {
                fetching = fetching.max(self.memory.read(now, Move::Bypassed(line), line));
            }
        }
        Served::done(cycles + fetching)
    }

    /// Carries out the next step of a local transaction's commit.
    ///
    /// # Example
    ///
    /// See the [module](super).
    pub fn commit_step(&mut self, tx: TxId) -> Step {
        self.memory.moves.clear();
        let Some(slot) = self.slot(tx) else { return Step::of(0, Progress::Committed) };
        if let Some(why) = slot.squashed {
            return Step::stopped(0, Stop::Squashed(why));
        }
        match slot.stage {
            Stage::Free => Step::of(0, Progress::Committed),
            Stage::Runs => {
                let lines = self.tagged(tx.slot);
                let finding = self.profile.finding(lines.len());
                let mut locked = self.lock_own(tx, &lines);
                locked.cycles += finding;
                if locked.progress == Progress::Continues {
                    let (cycles, squashes) = self.detect_own(&lines);
                    let mut asked = self.ask(tx);
                    asked.cycles += locked.cycles + cycles;
                    asked.messages.extend(squashes);
                    return asked;
                }
                locked
            }
            Stage::Asks => {
                let has = |part: &Part| part.has_acknowledged;
                let first = includes(Mutation::FirstAckDecides) && slot.parts.iter().any(has);
                if !slot.parts.iter().all(has) && !first {
                    return Step::of(0, Progress::Waits);
                }
                self.slots[usize::from(tx.slot)].stage = Stage::Decided;
                Step::of(0, Progress::Decided)
            }
            Stage::Decided => self.finish(tx),
        }
    }

    /// Handles a message. A step that is [`Stop::Denied`] is not carried out: the message is to be
    /// passed again later.
    ///
    /// # Example
    ///
    /// See the [module](super).
    pub fn receive(&mut self, now: u64, message: &Message) -> Step {
        self.memory.moves.clear();
        match message {
            Message::Intend { tx, lines } => {
                let locked = self.lock_guest(*tx, lines);
                if locked.progress != Progress::Continues {
                    return locked;
                }
                let mut detected = self.detect_guest(*tx, lines);
                detected.cycles += locked.cycles;
                detected
            }
            Message::Ack { tx, from } => {
                if self.slot(*tx).is_some() {
                    let parts = self.slots[usize::from(tx.slot)].parts.iter_mut();
                    parts.filter(|part| part.node == *from).for_each(|part| part.has_acknowledged = true);
                }
                Step::of(0, Progress::Continues)
            }
            Message::Squash { tx, why } => {
                let known = self.slot(*tx).is_some();
                Step::of(if known { self.squash(tx.slot, *why) } else { 0 }, Progress::Continues)
            }
            Message::Validate { tx } => self.update(now, *tx),
            Message::Abort { tx } => {
                self.leave(*tx);
                Step::of(0, Progress::Continues)
            }
        }
    }

    /// Ends a local transaction that was squashed, or that its program gives up, and frees its
    /// filters. The messages are for the nodes that it has accessed.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::{NodeId, machine::{Kind, Line, MachineProfile, Message, Move, Node}};
    ///
    /// let mut node = Node::new(NodeId(0), &MachineProfile::HADES);
    /// let tx = node.begin(0).expect("a pair of filters is free");
    /// assert_eq!(node.access(0, tx, Line(7), Kind::Write).stop, None);
    /// node.record(tx, NodeId(3), &[]);
    /// let aborted = node.abort(tx);
    /// assert_eq!(aborted.messages, [(NodeId(3), Message::Abort { tx })]);
    /// assert_eq!(aborted.cycles, 80 + 8, "to find the line");
    /// assert_eq!(node.moves(), [Move::Dropped(Line(7))]);
    /// ```
    ///
    /// # Panics
    ///
    /// If it is [`Progress::Decided`]: it can only commit.
    pub fn abort(&mut self, tx: TxId) -> Step {
        self.memory.moves.clear();
        let Some(slot) = self.slot(tx) else { return Step::of(0, Progress::Continues) };
        assert!(slot.stage != Stage::Decided, "a decided transaction commits");
        let messages = slot.parts.iter().map(|part| (part.node, Message::Abort { tx })).collect();
        // What a squashed one has written was discarded with its squash.
        let cycles = if slot.squashed.is_some() { 0 } else { self.discard(tx.slot) };
        if !includes(Mutation::LocksOutliveSquash) {
            self.buffers.clear(tx);
        }
        self.free(tx.slot);
        Step { cycles, progress: Progress::Continues, messages }
    }

    /// Local step 1: locks this node's directory for a local transaction that has written these
    /// lines, or squashes it.
    pub(super) fn lock_own(&mut self, tx: TxId, lines: &[Line]) -> Step {
        let cycles = self.profile.locking() + self.profile.probing(lines.len());
        match self.buffers.obstacle(tx, lines) {
            Some(Obstacle::Hold) => Step::stopped(cycles, Stop::Denied),
            Some(Obstacle::Lock) => {
                let squashing = self.squash(tx.slot, Stopped::Locked);
                Step::stopped(cycles + squashing, Stop::Squashed(Stopped::Locked))
            }
            None => {
                let pair = self.slots[usize::from(tx.slot)].pair.clone();
                self.load_lock(tx, pair);
                Step::of(cycles, Progress::Continues)
            }
        }
    }

    /// Local step 2: squashes transactions of other nodes that have accessed what a local one has
    /// written.
    pub(super) fn detect_own(&mut self, lines: &[Line]) -> (u64, Messages) {
        (self.profile.probing(lines.len()), self.squash_guests(None, lines))
    }

    /// Local step 3: asks the other nodes.
    pub(super) fn ask(&mut self, tx: TxId) -> Step {
        let slot = &mut self.slots[usize::from(tx.slot)];
        slot.stage = Stage::Asks;
        let intend = |part: &Part| (part.node, Message::Intend { tx, lines: part.written.clone() });
        let messages: Messages = slot.parts.iter().map(intend).collect();
        let progress = if messages.is_empty() { Progress::Continues } else { Progress::Waits };
        Step { cycles: 0, progress, messages }
    }

    /// Remote step 1: locks this node's directory for a guest, or squashes it.
    pub(super) fn lock_guest(&mut self, tx: TxId, lines: &[Line]) -> Step {
        let cycles = self.profile.locking() + self.profile.probing(lines.len());
        let refusal = |why| {
            let messages = vec![(tx.node, Message::Squash { tx, why })];
            Step { cycles, progress: Progress::Stopped(Stop::Squashed(why)), messages }
        };
        if let Some(why) = self.nic.squashed(tx) {
            return refusal(why);
        }
        let obstacle = self.buffers.obstacle(tx, lines);
        if obstacle == Some(Obstacle::Hold) {
            return Step::stopped(cycles, Stop::Denied);
        }
        let Some(guest) = self.nic.admit(tx) else { return refusal(Stopped::NicFull) };
        if obstacle.is_some() && !includes(Mutation::AckWithoutLock) {
            guest.squashed = Some(Stopped::Locked);
            return refusal(Stopped::Locked);
        }
        guest.intended = lines.to_vec();
        let mut pair = guest.pair.clone();
        // Lines that are written as a whole are in no filter.
        if !includes(Mutation::IntendedNotLocked) {
            lines.iter().for_each(|&line| pair.writes.add(line));
        }
        if obstacle.is_none() {
            self.load_lock(tx, pair);
        }
        Step::of(cycles, Progress::Continues)
    }

    /// Remote steps 2 and 3: squashes transactions that have accessed what a guest has written, and
    /// acknowledges.
    pub(super) fn detect_guest(&mut self, tx: TxId, lines: &[Line]) -> Step {
        let mut cycles = self.profile.probing(lines.len());
        let mut messages = self.squash_guests(Some(tx), lines);
        for at in 0..self.slots.len() {
            let slot = &self.slots[at];
            let is_met = slot.stage != Stage::Free
                && slot.squashed.is_none()
                && meets(&slot.pair, lines, &mut self.counts.checks, &mut self.counts.false_positives);
            if is_met && !includes(Mutation::LocalsNotSquashed) {
                cycles += self.squash(at as u16, Stopped::Committer);
            }
        }
        messages.push((tx.node, Message::Ack { tx, from: self.id }));
        Step { cycles, progress: Progress::Continues, messages }
    }

    fn load_lock(&mut self, tx: TxId, mut pair: Pair) {
        if includes(Mutation::ReadsNotLocked) {
            pair.reads.clear();
        }
        self.buffers.load(tx, false, pair);
    }

    /// Squashes the transactions of other nodes that have accessed these lines, except for one.
    fn squash_guests(&mut self, except: Option<TxId>, lines: &[Line]) -> Messages {
        let mut messages = Vec::new();
        let others = self.nic.guests.iter_mut().filter(|guest| except != Some(guest.tx) && guest.squashed.is_none());
        for guest in others {
            let is_met = meets(&guest.pair, lines, &mut self.counts.checks, &mut self.counts.false_positives);
            if is_met && !includes(Mutation::GuestsNotSquashed) {
                if !includes(Mutation::SquashesNotMarked) {
                    guest.squashed = Some(Stopped::Committer);
                }
                messages.push((guest.tx.node, Message::Squash { tx: guest.tx, why: Stopped::Committer }));
            }
        }
        messages
    }

    /// Local steps 4 to 6: what a decided transaction wrote here is committed, other nodes get
    /// their updates, and the directory is unlocked.
    fn finish(&mut self, tx: TxId) -> Step {
        let lines = self.tagged(tx.slot);
        for &line in &lines {
            if let Some(place) = self.directory.touch(line) {
                self.directory.state(place).set_writer(None);
            }
        }
        let parts = &self.slots[usize::from(tx.slot)].parts;
        let messages = parts.iter().map(|part| (part.node, Message::Validate { tx })).collect();
        self.buffers.clear(tx);
        self.free(tx.slot);
        Step { cycles: self.profile.finding(lines.len()), progress: Progress::Committed, messages }
    }

    /// Remote steps 4 and 5: the updates of a guest go to the last-level cache, and the directory
    /// is unlocked.
    fn update(&mut self, now: u64, tx: TxId) -> Step {
        let Some(guest) = self.leave(tx) else { return Step::of(0, Progress::Continues) };
        for &line in &guest {
            let place = match self.directory.touch(line) {
                Some(place) => place,
                None => self.make_room(now, line),
            };
            let entry = self.directory.state(place);
            debug_assert!(entry.writer().is_none() || mutation::any(), "its writer was squashed");
            entry.is_dirty = true;
            let sharers = std::mem::take(&mut entry.sharers);
            invalidate(&mut self.cores, line, sharers);
        }
        Step::of(self.profile.streaming(guest.len()), Progress::Continues)
    }

    /// Removes a guest and its lock. Returns the lines that it intended to update.
    fn leave(&mut self, tx: TxId) -> Option<Vec<Line>> {
        if !includes(Mutation::LocksOutliveSquash) {
            self.buffers.clear(tx);
        }
        if includes(Mutation::FiltersOutlive) {
            return self.nic.admit(tx).map(|guest| guest.intended.clone());
        }
        self.nic.dismiss(tx).map(|guest| guest.intended)
    }

    fn free(&mut self, slot: u16) {
        let slot = &mut self.slots[usize::from(slot)];
        slot.stage = Stage::Free;
        slot.squashed = None;
        slot.pair.clear();
        slot.parts.clear();
    }
}

/// Returns whether a transaction has accessed one of these lines, as far as its filters say.
fn meets(pair: &Pair, lines: &[Line], checks: &mut u64, false_positives: &mut u64) -> bool {
    let mut found = false;
    for &line in lines {
        let is_met = pair.meets_write(Key::of(line));
        *checks += 1;
        *false_positives += u64::from(is_met && !pair.has(line));
        found |= is_met;
    }
    found
}
