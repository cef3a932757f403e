//! What software asks of a node's hardware: whether lines are locked, and the commit of a
//! transaction whose accesses to its own node were tracked by software (HADES-H, section V-D).

use super::{
    filter::{Key, Pair},
    memory::Move,
    message::{Progress, Step, Stop, TxId},
    node::{Node, Stage, invalidate},
    private::Kind,
    profile::Line,
};
use crate::NodeId;

impl Node {
    /// Returns whether an access of these lines by another transaction than those that have locked
    /// them is denied. `tx` is the transaction that accesses them, if it is one.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::{NodeId, machine::{Kind, Line, MachineProfile, Node}};
    ///
    /// let mut node = Node::new(NodeId(0), &MachineProfile::HADES);
    /// let tx = node.begin(0).expect("a pair of filters is free");
    /// assert_eq!(node.access(0, tx, Line(1), Kind::Write).stop, None);
    /// assert!(!node.denies(None, &[Line(1)], Kind::Read));
    /// let _ = node.commit_step(tx);
    /// assert!(node.denies(None, &[Line(1)], Kind::Read) && !node.denies(Some(tx), &[Line(1)], Kind::Read));
    /// ```
    #[must_use]
    pub fn denies(&self, tx: Option<TxId>, lines: &[Line], kind: Kind) -> bool {
        // No transaction has this name.
        let none = TxId { node: NodeId(u16::MAX), slot: u16::MAX, attempt: 0 };
        lines.iter().any(|&line| self.buffers.denies(tx.unwrap_or(none), Key::of(line), kind))
    }

    /// Returns the transactions that deny such an access.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::{NodeId, machine::{Kind, Line, MachineProfile, Node}};
    ///
    /// let mut node = Node::new(NodeId(0), &MachineProfile::HADES);
    /// let tx = node.begin(0).expect("a pair of filters is free");
    /// assert_eq!(node.access(0, tx, Line(1), Kind::Write).stop, None);
    /// let _ = node.commit_step(tx);
    /// assert!(node.denying(None, &[Line(1)], Kind::Read).eq([tx]) && node.locking().eq([tx]));
    /// ```
    pub fn denying(&self, tx: Option<TxId>, lines: &[Line], kind: Kind) -> impl Iterator<Item = TxId> {
        let meets = move |pair: &Pair| {
            lines.iter().map(|&line| Key::of(line)).any(|key| match kind {
                Kind::Read => pair.writes.contains(key),
                Kind::Write => pair.meets_write(key),
            })
        };
        let others = self.buffers.loaded().iter().filter(move |buffer| Some(buffer.owner) != tx);
        others.filter(move |buffer| meets(&buffer.pair)).map(|buffer| buffer.owner)
    }

    /// Returns the transactions that have locked lines here.
    ///
    /// # Example
    ///
    /// See [`denying`](Self::denying).
    pub fn locking(&self) -> impl Iterator<Item = TxId> {
        self.buffers.loaded().iter().map(|buffer| buffer.owner)
    }

    /// Removes transactions of other nodes that are gone, and have locked nothing here. Returns
    /// whether there was one.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::{NodeId, machine::{Fetch, Line, MachineProfile, Node}};
    ///
    /// let profile = &MachineProfile::HADES;
    /// let [mut here, mut there] = [0, 1].map(|id| Node::new(NodeId(id), profile));
    /// let guest = there.begin(0).expect("a pair of filters is free");
    /// assert_eq!(here.fetch(0, guest, Fetch::Read, &[Line(1)]).stop, None);
    /// assert!(!here.is_idle() && here.forget_guests(|tx| tx.node == NodeId(1)));
    /// assert!(here.is_idle() && !here.forget_guests(|_| true));
    /// ```
    pub fn forget_guests(&mut self, are_gone: impl Fn(TxId) -> bool) -> bool {
        let before = self.nic.guests.len();
        let loaded = self.buffers.loaded();
        let has_locked = |tx| loaded.iter().any(|buffer| buffer.owner == tx);
        self.nic.guests.retain(|guest| has_locked(guest.tx) || !are_gone(guest.tx));
        self.nic.guests.len() < before
    }

    /// Returns whether no transaction has filters here, of this node or another one, nor has
    /// anything locked.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::{NodeId, machine::{MachineProfile, Node}};
    ///
    /// let mut node = Node::new(NodeId(0), &MachineProfile::HADES);
    /// let tx = node.begin(0).expect("a pair of filters is free");
    /// assert!(!node.is_idle());
    /// node.abort(tx);
    /// assert!(node.is_idle());
    /// ```
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let is_free = self.slots.iter().all(|slot| slot.stage == Stage::Free);
        is_free && self.nic.guests.is_empty() && self.buffers.loaded().is_empty()
    }

    /// Numbers attempts from this number on, before the first transaction.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::{NodeId, machine::{MachineProfile, Node}};
    ///
    /// let mut node = Node::new(NodeId(0), &MachineProfile::HADES);
    /// node.number_attempts_from(7);
    /// assert_eq!(node.begin(0).map(|tx| tx.attempt), Some(8));
    /// ```
    pub fn number_attempts_from(&mut self, number: u32) {
        self.slots.iter_mut().for_each(|slot| slot.attempt = number);
    }

    /// Returns why a transaction of another node was squashed here. `None` if it was not.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::{NodeId, machine::{Fetch, Kind, Line, MachineProfile, Node, Stopped}};
    ///
    /// let profile = &MachineProfile::HADES;
    /// let [mut here, mut there] = [0, 1].map(|id| Node::new(NodeId(id), profile));
    /// let (local, guest) = (here.begin(0).unwrap(), there.begin(0).unwrap());
    /// assert_eq!(here.fetch(0, guest, Fetch::Read, &[Line(1)]).stop, None);
    /// assert_eq!(here.squashed_guest(guest), None);
    /// assert_eq!(here.access(0, local, Line(1), Kind::Write).stop, None);
    /// let _ = here.commit_step(local);
    /// assert_eq!(here.squashed_guest(guest), Some(Stopped::Committer));
    /// ```
    #[must_use]
    pub fn squashed_guest(&self, tx: TxId) -> Option<super::Stopped> {
        self.nic.squashed(tx)
    }

    /// Returns the core of a transaction of this node.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::{NodeId, machine::{MachineProfile, Node}};
    ///
    /// let mut node = Node::new(NodeId(0), &MachineProfile::HADES);
    /// let tx = node.begin(3).expect("a pair of filters is free");
    /// assert_eq!(node.core_of(tx), Some(3));
    /// ```
    #[must_use]
    pub fn core_of(&self, tx: TxId) -> Option<usize> {
        self.slot(tx).map(|slot| slot.core.into())
    }

    /// Accesses a line by a core for software, which no filter and no tag records. Returns the
    /// cycles. Cores are numbered round.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::{NodeId, machine::{Kind, Line, MachineProfile, Node}};
    ///
    /// let mut node = Node::new(NodeId(0), &MachineProfile::HADES);
    /// let mut touch = |core, kind| node.touch(0, core, Line(1), kind);
    /// assert_eq!([touch(0, Kind::Read), touch(0, Kind::Read)], [240, 2]);
    /// assert_eq!([touch(1, Kind::Read), touch(1, Kind::Write), touch(1, Kind::Write)], [40, 40, 2]);
    /// assert_eq!(touch(0, Kind::Read), 40, "the other core's write took it away");
    /// ```
    pub fn touch(&mut self, now: u64, core: usize, line: Line, kind: Kind) -> u64 {
        self.memory.moves.clear();
        let core = core % self.cores.len();
        let (held, found) = (self.cores[core].level(line), self.directory.touch(line));
        let (place, fetching) = match found {
            Some(place) => (place, 0),
            None => {
                let fetching = self.memory.read(now, Move::Fetched(line), line);
                (self.make_room(now, line), fetching)
            }
        };
        let entry = self.directory.state(place);
        let others = entry.sharers & !(1 << core);
        let cycles = match held {
            Some(cycles) if kind == Kind::Read || others == 0 => cycles,
            _ => self.profile.llc.cycles + fetching,
        };
        if kind == Kind::Write {
            entry.is_dirty = true;
            entry.sharers = 0;
            invalidate(&mut self.cores, line, others);
        }
        self.directory.state(place).sharers |= 1 << core;
        self.cores[core].fill(line, kind);
        cycles
    }

    /// Reads or writes lines by a verb of another node, which no filter records. Returns the cycles
    /// until they are there.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::{NodeId, machine::{Kind, Line, MachineProfile, Node}};
    ///
    /// let mut node = Node::new(NodeId(0), &MachineProfile::HADES);
    /// assert_eq!(node.transfer(0, &[Line(1), Line(2)], Kind::Read), 40 + 2 + 200);
    /// assert_eq!(node.transfer(0, &[Line(1)], Kind::Write), 40);
    /// assert_eq!(node.transfer(0, &[Line(1)], Kind::Read), 40, "it is in the last-level cache");
    /// ```
    pub fn transfer(&mut self, now: u64, lines: &[Line], kind: Kind) -> u64 {
        self.memory.moves.clear();
        let mut fetching = 0;
        for &line in lines {
            let found = self.directory.touch(line);
            if kind == Kind::Read {
                if found.is_none() {
                    fetching = fetching.max(self.memory.read(now, Move::Bypassed(line), line));
                }
                continue;
            }
            let place = found.unwrap_or_else(|| self.make_room(now, line));
            let entry = self.directory.state(place);
            entry.is_dirty = true;
            let sharers = std::mem::take(&mut entry.sharers);
            invalidate(&mut self.cores, line, sharers);
        }
        self.profile.streaming(lines.len()) + fetching
    }

    /// Carries out the first step of the commit of a transaction that has read and written these
    /// lines of its own node by software: the NIC builds its filters, locks the directory, and
    /// squashes transactions of other nodes that have accessed what it is going to write. The
    /// further steps are those of [`commit_step`](Self::commit_step). The software has to look
    /// again at what it has read, after all acknowledgements.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::{NodeId, machine::{Kind, Line, MachineProfile, Node, Progress}};
    ///
    /// let mut node = Node::new(NodeId(0), &MachineProfile::HADES);
    /// let tx = node.begin(0).expect("a pair of filters is free");
    /// let step = node.commit_of_software(tx, &[Line(1)], &[Line(2)]);
    /// assert_eq!(step.progress, Progress::Continues);
    /// assert!(node.denies(None, &[Line(1)], Kind::Write) && !node.denies(None, &[Line(1)], Kind::Read));
    /// assert_eq!(node.commit_step(tx).progress, Progress::Decided);
    /// assert_eq!(node.commit_step(tx).progress, Progress::Committed);
    /// ```
    pub fn commit_of_software(&mut self, tx: TxId, reads: &[Line], writes: &[Line]) -> Step {
        self.memory.moves.clear();
        let Some(slot) = self.slot(tx) else { return Step::of(0, Progress::Committed) };
        if let Some(why) = slot.squashed {
            return Step::stopped(0, Stop::Squashed(why));
        }
        debug_assert!(slot.stage == Stage::Runs, "{tx:?} does not run");
        let pair = &mut self.slots[usize::from(tx.slot)].pair;
        reads.iter().for_each(|&line| pair.reads.add(line));
        writes.iter().for_each(|&line| pair.writes.add(line));
        let building = self.profile.probing(reads.len() + writes.len());
        let mut locked = self.lock_own(tx, writes);
        locked.cycles += building;
        if locked.progress != Progress::Continues {
            return locked;
        }
        let (cycles, squashes) = self.detect_own(writes);
        let mut asked = self.ask(tx);
        asked.cycles += locked.cycles + cycles;
        asked.messages.extend(squashes);
        asked
    }
}
