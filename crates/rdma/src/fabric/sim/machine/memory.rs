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
    channels: Vec<Channel>,
    /// What moved during the last operation.
    pub(super) moves: Vec<Move>,
    access: u64,
    line: u64,
}

/// What a channel still had to do at the latest time that it was told.
///
/// A processor that runs a transaction is ahead of others by what that takes. So an access waits
/// for accesses that came before it, and not until the time of one that is ahead.
#[derive(Clone, Copy, Debug, Default)]
struct Channel {
    at: u64,
    left: u64,
}

impl Channel {
    /// Adds an access. Returns how long it waits.
    fn add(&mut self, now: u64, takes: u64) -> u64 {
        self.left = self.left.saturating_sub(now.saturating_sub(self.at));
        self.at = self.at.max(now);
        let waits = self.left;
        self.left += takes;
        waits
    }
}

impl Memory {
    pub(super) fn new(profile: &MachineProfile) -> Self {
        let (access, line) = (profile.memory, profile.channel_line);
        Self { channels: vec![Channel::default(); profile.channels], moves: Vec::new(), access, line }
    }

    /// Reads a line. Returns the cycles until it is there.
    pub(super) fn read(&mut self, now: u64, movement: Move, line: Line) -> u64 {
        self.moves.push(movement);
        self.occupy(now, line) + self.access
    }

    /// Writes a line back, for which nothing waits.
    pub(super) fn write_back(&mut self, now: u64, line: Line) {
        self.moves.push(Move::WrittenBack(line));
        self.occupy(now, line);
    }

    /// Occupies the line's channel. Returns how long it is until then.
    fn occupy(&mut self, now: u64, line: Line) -> u64 {
        let count = self.channels.len() as u64;
        self.channels[(line.0 % count) as usize].add(now, self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::Channel;

    #[test]
    fn accesses_wait_for_each_other_and_not_for_a_processor_that_is_ahead() {
        let mut channel = Channel::default();
        assert_eq!([channel.add(100, 8), channel.add(100, 8), channel.add(104, 8)], [0, 8, 12]);
        assert_eq!(channel.add(1_000, 8), 0, "all is done");
        assert_eq!(channel.add(200, 8), 8, "and not 808");
    }
}
