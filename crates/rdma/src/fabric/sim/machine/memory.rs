//! A node's memory: what moves between it and the caches, and how long that takes.

use super::profile::{Line, MachineProfile};

/// A movement of a line between the caches and memory.
///
/// # Example
///
/// ```
/// use drtm_rdma::{NodeId, machine::{Kind, Line, MachineProfile, Move, Node}};
///
/// let mut node = Node::new(NodeId(0), &MachineProfile::HADES);
/// let tx = node.begin(0).expect("a pair of filters is free");
/// node.access(0, tx, Line(7), Kind::Read);
/// assert_eq!(node.moves(), [Move::Fetched(Line(7))]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// From memory to the last-level cache.
    Fetched(Line),
    /// A copy of the committed value, from the last-level cache to memory.
    WrittenBack(Line),
    /// The line has left all caches, without being written back.
    Dropped(Line),
    /// Memory's value was read although the caches may have another one.
    Bypassed(Line),
}

#[derive(Clone, Debug)]
pub(super) struct Memory {
    /// When each channel is free.
    channels: Vec<u64>,
    /// What moved during the last operation.
    pub(super) moves: Vec<Move>,
    access: u64,
    line: u64,
}

impl Memory {
    pub(super) fn new(profile: &MachineProfile) -> Self {
        let (access, line) = (profile.memory, profile.channel_line);
        Self { channels: vec![0; profile.channels], moves: Vec::new(), access, line }
    }

    /// Reads a line. Returns the cycles until it is there.
    pub(super) fn read(&mut self, now: u64, movement: Move, line: Line) -> u64 {
        self.moves.push(movement);
        self.occupy(now, line) - now + self.access
    }

    /// Writes a line back, for which nothing waits.
    pub(super) fn write_back(&mut self, now: u64, line: Line) {
        self.moves.push(Move::WrittenBack(line));
        self.occupy(now, line);
    }

    /// Occupies the line's channel. Returns when that begins.
    fn occupy(&mut self, now: u64, line: Line) -> u64 {
        let count = self.channels.len() as u64;
        let free = &mut self.channels[(line.0 % count) as usize];
        let begins = now.max(*free);
        *free = begins + self.line;
        begins
    }
}
