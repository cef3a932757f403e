//! A small cluster of the machine's own nodes, with values, transactions and a network, one action
//! at a time.
//!
//! A value is the number of the attempt that wrote it. At the end, the committed attempts must be
//! strictly serializable, and nothing of any transaction may be left at a node.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::super::{
    Fetch, Kind, Level, Line, MachineProfile, Message, Move, Node, Progress, Served, Step, Stop, Stopped, TxId,
    mutation::{Mutation, includes},
    nic::Guest,
    node::Stage,
};
use crate::NodeId;

/// A line of a node. There are two of each.
pub(super) type At = (usize, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Op {
    Read(At),
    /// Writes a part of the line, so that the other part is as it was read.
    Write(At),
    /// Writes the whole line.
    Fill(At),
    /// Reads both lines of the own node under a locking buffer.
    Record,
}

#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) home: usize,
    pub(super) core: usize,
    pub(super) ops: Vec<Op>,
}

#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) name: &'static str,
    pub(super) programs: Vec<Program>,
    /// How often each transaction is tried.
    pub(super) attempts: u8,
    pub(super) evictions: u8,
    pub(super) hardware: Hardware,
}

/// How much hardware a node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hardware {
    /// Enough, and filters without false positives.
    Ample,
    /// Filters so small that every line meets every other.
    Blurred,
    /// One locking buffer, and one pair of filters in the NIC.
    Scarce,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Action {
    /// The next step of a transaction.
    Step(usize),
    /// The delivery of a message.
    Deliver(usize),
    Evict(At),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Waits,
    Runs,
    /// Has held its record, and read this many lines of it.
    Holds(u64),
    /// Has locked its own node, and not yet detected conflicts: a fault.
    Locked,
    Asks,
    Decided,
    Committed,
    GaveUp,
}

#[derive(Clone, Debug, Hash)]
struct Tx {
    id: Option<TxId>,
    phase: Phase,
    at: usize,
    attempt: u8,
    reads: Vec<(At, u8)>,
    writes: Vec<At>,
    /// The transactions that had ended when it began, a bit each.
    after: u8,
}

#[derive(Clone)]
pub(super) struct World {
    nodes: Vec<Node>,
    memory: Vec<[u8; 2]>,
    cached: Vec<[Option<u8>; 2]>,
    txs: Vec<Tx>,
    flights: Vec<(NodeId, NodeId, Message)>,
    /// What each attempt writes.
    values: Vec<(TxId, u8)>,
    evictions: u8,
    /// Squashes by other transactions' commits, by the squashed one.
    pub(super) squashed: u8,
}

const TWO_LINES: Level = Level { bytes: 4 * Line::BYTES, ways: 2, cycles: 2 };

fn profile(hardware: Hardware) -> MachineProfile {
    let bits = |bits| if hardware == Hardware::Blurred { 1 } else { bits };
    let count = |count| if hardware == Hardware::Scarce { 1 } else { count };
    MachineProfile {
        cores: 2,
        multiplexed: 1,
        l1: TWO_LINES,
        l2: TWO_LINES,
        llc: TWO_LINES,
        read_bits: bits(64),
        write_bits: (bits(64), bits(2)),
        nic_bits: bits(64),
        nic_pairs: count(6),
        locking_buffers: count(6),
        ..MachineProfile::HADES
    }
}

impl World {
    pub(super) fn new(config: &Config) -> Self {
        let homes = config.programs.iter().map(|program| program.home);
        let touched = config.programs.iter().flat_map(|program| &program.ops).filter_map(|op| match op {
            Op::Read(at) | Op::Write(at) | Op::Fill(at) => Some(at.0),
            Op::Record => None,
        });
        let count = homes.chain(touched).max().expect("a program") + 1;
        let profile = profile(config.hardware);
        let tx =
            Tx { id: None, phase: Phase::Waits, at: 0, attempt: 0, reads: Vec::new(), writes: Vec::new(), after: 0 };
        Self {
            nodes: (0..count).map(|id| Node::new(NodeId(id as u16), &profile)).collect(),
            memory: vec![[0; 2]; count],
            cached: vec![[None; 2]; count],
            txs: vec![tx; config.programs.len()],
            flights: Vec::new(),
            values: Vec::new(),
            evictions: config.evictions,
            squashed: 0,
        }
    }

    pub(super) fn actions(&self) -> Vec<Action> {
        let mut actions: Vec<_> = (0..self.txs.len()).map(Action::Step).collect();
        actions.extend((0..self.flights.len()).filter(|&at| self.is_first(at)).map(Action::Deliver));
        if self.evictions > 0 {
            let lines = (0..self.nodes.len()).flat_map(|node| [(node, 0), (node, 1)]);
            actions.extend(lines.map(Action::Evict));
        }
        actions
    }

    /// Returns whether the network may deliver a message now. Only messages from a transaction's
    /// own node are in order.
    fn is_first(&self, at: usize) -> bool {
        let (from, to, message) = &self.flights[at];
        let before = |it: &(NodeId, NodeId, Message)| (it.0, it.1, it.2.tx()) == (*from, *to, message.tx());
        *from != message.tx().node || includes(Mutation::MessagesUnordered) || !self.flights[..at].iter().any(before)
    }

    /// Carries out an action. Returns false if it is not possible now.
    pub(super) fn act(&mut self, config: &Config, action: Action) -> bool {
        match action {
            Action::Step(tx) => self.step(config, tx),
            Action::Deliver(at) => self.deliver(at),
            Action::Evict((node, line)) => {
                let Some(entry) = self.nodes[node].directory.remove(Line(line)) else { return false };
                self.evictions -= 1;
                self.nodes[node].memory.moves.clear();
                self.nodes[node].evicted(0, Line(line), entry);
                self.follow(node);
                true
            }
        }
    }

    fn step(&mut self, config: &Config, at: usize) -> bool {
        let program = &config.programs[at];
        let (home, tx) = (program.home, &self.txs[at]);
        if matches!(tx.phase, Phase::Committed | Phase::GaveUp) {
            return false;
        }
        let Some(id) = tx.id else {
            let Some(id) = self.nodes[home].begin(program.core) else { return false };
            let ended = self.txs.iter().enumerate().filter(|(_, tx)| tx.phase == Phase::Committed);
            let after = ended.fold(0, |all, (at, _)| all | 1 << at);
            let tx = &mut self.txs[at];
            (tx.id, tx.phase, tx.after) = (Some(id), Phase::Runs, after);
            self.values.push((id, at as u8 * 4 + tx.attempt + 1));
            self.values.sort_by_key(|(_, value)| *value);
            return true;
        };
        if self.nodes[home].squashed(id).is_some() {
            return self.abort(config, at, id);
        }
        match tx.phase {
            Phase::Runs => match program.ops.get(tx.at) {
                Some(&op) => self.operate(at, id, home, op),
                None => self.commit(at, id, home),
            },
            Phase::Holds(read) => self.read_held(at, id, home, read),
            Phase::Locked => {
                let lines = self.nodes[home].tagged(id.slot);
                let (_, squashes) = self.nodes[home].detect_own(&lines);
                let mut asked = self.nodes[home].ask(id);
                asked.messages.extend(squashes);
                self.txs[at].phase = Phase::Asks;
                self.send(home, asked);
                true
            }
            Phase::Asks => {
                let step = self.nodes[home].commit_step(id);
                let is_decided = step.progress == Progress::Decided;
                if is_decided {
                    self.txs[at].phase = Phase::Decided;
                }
                is_decided
            }
            Phase::Decided => {
                let step = self.nodes[home].commit_step(id);
                assert_eq!(step.progress, Progress::Committed);
                self.follow(home);
                self.txs[at].phase = Phase::Committed;
                self.send(home, step);
                true
            }
            Phase::Waits | Phase::Committed | Phase::GaveUp => false,
        }
    }

    fn abort(&mut self, config: &Config, at: usize, id: TxId) -> bool {
        let home = config.programs[at].home;
        let is_by_commit = self.nodes[home].squashed(id) == Some(Stopped::Committer);
        self.squashed |= u8::from(is_by_commit) << at;
        let step = self.nodes[home].abort(id);
        self.follow(home);
        self.send(home, step);
        let tx = &mut self.txs[at];
        (tx.id, tx.at) = (None, 0);
        tx.attempt += 1;
        tx.reads.clear();
        tx.writes.clear();
        tx.phase = if tx.attempt == config.attempts { Phase::GaveUp } else { Phase::Waits };
        true
    }

    fn operate(&mut self, at: usize, id: TxId, home: usize, op: Op) -> bool {
        let (place, kind) = match op {
            Op::Read(place) => (place, Kind::Read),
            Op::Write(place) | Op::Fill(place) => (place, Kind::Write),
            Op::Record => {
                let held = self.nodes[home].hold(id, &[Line(0), Line(1)]);
                if held.stop.is_none() {
                    self.txs[at].phase = Phase::Holds(0);
                }
                return held.stop.is_none();
            }
        };
        let (node, line) = place;
        if node != home {
            let written: &[Line] = if kind == Kind::Write { &[Line(line)] } else { &[] };
            self.nodes[home].record(id, NodeId(node as u16), written);
        }
        let mut found = self.memory[node][line as usize];
        if node == home {
            let served = self.nodes[home].access(0, id, Line(line), kind);
            self.follow(node);
            match served.stop {
                Some(Stop::Denied) => return false,
                Some(Stop::Squashed(_)) => return true,
                None => found = self.cached[node][line as usize].expect("it was fetched"),
            }
        } else if op != Op::Fill(place) {
            let fetch = if kind == Kind::Read { Fetch::Read } else { Fetch::Write };
            let served: Served = self.nodes[node].fetch(0, id, fetch, &[Line(line)]);
            let is_bypassed = self.nodes[node].moves().contains(&Move::Bypassed(Line(line)));
            match served.stop {
                Some(Stop::Denied) => return false,
                Some(Stop::Squashed(why)) => {
                    let _ = self.nodes[home].receive(0, &Message::Squash { tx: id, why });
                    self.follow(home);
                    return true;
                }
                None => {
                    let cached = self.cached[node][line as usize].filter(|_| !is_bypassed);
                    found = cached.unwrap_or(self.memory[node][line as usize]);
                }
            }
        }
        let tx = &mut self.txs[at];
        tx.at += 1;
        if !matches!(op, Op::Fill(_)) && !tx.writes.contains(&place) {
            tx.reads.push((place, found));
        }
        if kind == Kind::Write {
            tx.writes.push(place);
            if node == home {
                self.cached[node][line as usize] = Some(self.value(id));
            }
        }
        true
    }

    fn read_held(&mut self, at: usize, id: TxId, home: usize, read: u64) -> bool {
        if read == 2 {
            self.nodes[home].release(id);
            (self.txs[at].phase, self.txs[at].at) = (Phase::Runs, self.txs[at].at + 1);
            return true;
        }
        let served = self.nodes[home].access(0, id, Line(read), Kind::Read);
        self.follow(home);
        if served.stop.is_none() {
            let found = self.cached[home][read as usize].expect("it was fetched");
            self.txs[at].reads.push(((home, read), found));
            self.txs[at].phase = Phase::Holds(read + 1);
        }
        assert_ne!(served.stop, Some(Stop::Denied), "a held line is not locked");
        true
    }

    fn commit(&mut self, at: usize, id: TxId, home: usize) -> bool {
        let node = &mut self.nodes[home];
        let (step, next) = if includes(Mutation::LockAndDetectApart) {
            let lines = node.tagged(id.slot);
            (node.lock_own(id, &lines), Phase::Locked)
        } else {
            (node.commit_step(id), Phase::Asks)
        };
        self.follow(home);
        match step.progress {
            Progress::Stopped(Stop::Denied) => false,
            Progress::Stopped(Stop::Squashed(_)) => true,
            _ => {
                self.txs[at].phase = next;
                self.send(home, step);
                true
            }
        }
    }

    fn deliver(&mut self, at: usize) -> bool {
        let (_, to, message) = self.flights[at].clone();
        let to = usize::from(to.0);
        let tx = message.tx();
        let node = &mut self.nodes[to];
        let step = match &message {
            Message::Intend { tx, lines } if includes(Mutation::LockAndDetectApart) => {
                if node.buffers.has(*tx) {
                    node.detect_guest(*tx, lines)
                } else {
                    let locked = node.lock_guest(*tx, lines);
                    if locked.progress == Progress::Continues {
                        return true;
                    }
                    locked
                }
            }
            Message::Validate { tx } if includes(Mutation::UnlockBeforeUpdates) && node.buffers.has(*tx) => {
                node.buffers.clear(*tx);
                return true;
            }
            _ => {
                let guest = node.nic.guests.iter().find(|guest| guest.tx.is(tx));
                let updates = guest.map(|guest| guest.intended.clone());
                let step = node.receive(0, &message);
                if let (Message::Validate { .. }, Some(updates)) = (&message, updates) {
                    self.follow(to);
                    let value = self.value(tx);
                    updates.iter().for_each(|line| self.cached[to][line.0 as usize] = Some(value));
                    self.nodes[to].memory.moves.clear();
                }
                step
            }
        };
        self.follow(to);
        if step.progress == Progress::Stopped(Stop::Denied) {
            return false;
        }
        self.flights.remove(at);
        self.send(to, step);
        true
    }

    fn send(&mut self, from: usize, step: Step) {
        let from = NodeId(from as u16);
        self.flights.extend(step.messages.into_iter().map(|(to, message)| (from, to, message)));
        // Only the order of an attempt's messages matters: in one order of the others, fewer states
        // are different.
        self.flights.sort_by_key(|(from, to, message)| {
            let TxId { node, slot, attempt } = message.tx();
            (from.0, to.0, node.0, slot, attempt)
        });
    }

    /// Moves values as the machine has moved lines.
    fn follow(&mut self, node: usize) {
        for moved in self.nodes[node].moves().to_vec() {
            match moved {
                Move::Fetched(Line(line)) => self.cached[node][line as usize] = Some(self.memory[node][line as usize]),
                Move::WrittenBack(Line(line)) => {
                    self.memory[node][line as usize] = self.cached[node][line as usize].expect("it is cached");
                }
                Move::Dropped(Line(line)) => self.cached[node][line as usize] = None,
                Move::Bypassed(_) => {}
            }
        }
        self.nodes[node].memory.moves.clear();
    }

    fn value(&self, id: TxId) -> u8 {
        self.values.iter().find(|(of, _)| *of == id).expect("it began").1
    }

    /// Returns what is wrong when no action is possible any more.
    pub(super) fn judge(&self) -> Result<(), String> {
        if let Some(stuck) = self.txs.iter().position(|tx| !matches!(tx.phase, Phase::Committed | Phase::GaveUp)) {
            return Err(format!("transaction {stuck} is stuck"));
        }
        if !self.flights.is_empty() {
            return Err(format!("messages are stuck: {:?}", self.flights));
        }
        for node in &self.nodes {
            let is_clean = node.nic.guests.is_empty()
                && node.buffers.loaded().is_empty()
                && node.slots.iter().all(|slot| slot.stage == Stage::Free && slot.pair.reads.is_empty())
                && node.directory.contents().iter().all(|(_, entry)| entry.writer().is_none());
            if !is_clean {
                return Err("a node keeps something of a transaction that has ended".to_owned());
            }
        }
        let committed: Vec<usize> = (0..self.txs.len()).filter(|&at| self.txs[at].phase == Phase::Committed).collect();
        if permutations(&committed).iter().any(|order| self.explains(order)) {
            return Ok(());
        }
        Err(format!(
            "not serializable: {:?}",
            committed.iter().map(|&at| (at, &self.txs[at].reads)).collect::<Vec<_>>()
        ))
    }

    /// Returns whether the committed transactions could have run one after the other in this order.
    fn explains(&self, order: &[usize]) -> bool {
        let mut lines = vec![[0; 2]; self.nodes.len()];
        let mut done = 0_u8;
        for &at in order {
            let tx = &self.txs[at];
            done |= 1 << at;
            let committed = order.iter().fold(0, |all, at| all | 1 << at);
            if tx.after & committed & !done != 0 {
                return false;
            }
            if tx.reads.iter().any(|&((node, line), found)| lines[node][line as usize] != found) {
                return false;
            }
            for &(node, line) in &tx.writes {
                lines[node][line as usize] = at as u8 * 4 + tx.attempt + 1;
            }
        }
        let last = |node: usize, line: usize| self.cached[node][line].unwrap_or(self.memory[node][line]);
        (0..self.nodes.len()).all(|node| (0..2).all(|line| last(node, line) == lines[node][line]))
    }

    /// Returns how many transactions have committed.
    pub(super) fn committed(&self) -> usize {
        self.txs.iter().filter(|tx| tx.phase == Phase::Committed).count()
    }

    /// Returns a hash of all that later actions depend on. Two of a million states share one in one
    /// of 30 million runs.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        for node in &self.nodes {
            for slot in &node.slots {
                (slot.attempt, slot.core, slot.stage, slot.squashed, &slot.parts).hash(&mut hash);
                (slot.pair.reads.words(), slot.pair.writes.words()).hash(&mut hash);
            }
            for core in &node.cores {
                (core.contents(), core.running()).hash(&mut hash);
            }
            node.directory.contents().hash(&mut hash);
            for buffer in node.buffers.loaded() {
                let pair = &buffer.pair;
                (buffer.owner, buffer.is_hold, pair.reads.words(), pair.writes.words()).hash(&mut hash);
            }
            // Their order says nothing.
            let mut guests: Vec<u64> = node.nic.guests.iter().map(fingerprint_of).collect();
            guests.sort_unstable();
            guests.hash(&mut hash);
        }
        (&self.memory, &self.cached, &self.txs, &self.flights, &self.values, self.evictions).hash(&mut hash);
        self.squashed.hash(&mut hash);
        hash.finish()
    }
}

fn fingerprint_of(guest: &Guest) -> u64 {
    let mut hash = DefaultHasher::new();
    let pair = &guest.pair;
    (guest.tx, guest.squashed, &guest.intended, pair.reads.words(), pair.writes.words()).hash(&mut hash);
    hash.finish()
}

fn permutations(of: &[usize]) -> Vec<Vec<usize>> {
    if of.is_empty() {
        return vec![Vec::new()];
    }
    let with_first = |at: usize| {
        let rest: Vec<usize> = of.iter().copied().filter(|other| *other != of[at]).collect();
        permutations(&rest).into_iter().map(move |order| [vec![of[at]], order].concat())
    };
    (0..of.len()).flat_map(with_first).collect()
}
