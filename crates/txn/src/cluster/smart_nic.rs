//! The smart NIC of a node, for protocols that find conflicts by cache lines: the hardware of HADES
//! in software, behind a lock.
//!
//! What a request does to rows of the node, and to the filters and locks of the machine, is one
//! step: it holds the lock meanwhile. So a read of several lines sees one moment, as the hardware
//! sees to by its locking buffers. See `docs/hades.md`.

use drtm_htm::Engine;
use drtm_kv::{Handle, Records};
use drtm_rdma::{
    Cost, Incarnation, NodeId, Offset, Time,
    machine::{Counts, Fetch, Kind, Line, MachineProfile, Message, Node, Progress, Served, Step, Stop, Stopped, TxId},
};
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::{Refusal, protocol::Detection};
use crate::memory::keeper::Keeper;

/// The lines of a record.
pub(super) type Lines = SmallVec<[Line; 8]>;

/// A squash for a transaction of another node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Squashed {
    pub(super) tx: TxId,
    pub(super) why: Stopped,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct SmartNic {
    node: NodeId,
    machine: Mutex<Machine>,
    /// Whether its own transactions are tracked by software on their own node (HADES-H).
    is_hybrid: bool,
}

#[derive(Debug)]
struct Machine {
    node: Node,
    cores: usize,
    /// The latest time, in cycles.
    now: u64,
    cycles_per_us: u64,
}

/// A NIC that carries out a request of a transaction.
#[derive(Debug)]
pub(super) struct Acting<'n> {
    machine: MutexGuard<'n, Machine>,
    tx: TxId,
    is_own: bool,
    is_hybrid: bool,
    /// What it has taken so far, in cycles.
    cycles: u64,
}

impl SmartNic {
    /// The machine of nodes for which no other one is chosen. It has filters for the transactions
    /// of 15 other nodes. With more, a transaction that finds none free is squashed, and run again.
    pub(super) const USUAL: MachineProfile = MachineProfile::cluster(16, 5, 15);

    /// Creates the NIC of an incarnation of a node. `None` if the protocol needs none.
    pub(super) fn new(
        node: NodeId,
        incarnation: Incarnation,
        detection: Detection,
        profile: &MachineProfile,
    ) -> Option<Self> {
        let (cycles_per_us, cores) = (profile.cycles_per_us, profile.cores);
        let machine = || {
            let mut node = Node::new(node, profile);
            // What other nodes still have of an earlier incarnation is not taken for this one's.
            node.number_attempts_from(incarnation.0.wrapping_mul(0x9E37_79B9));
            Mutex::new(Machine { node, cores, now: 0, cycles_per_us })
        };
        match detection {
            Detection::Versions => None,
            Detection::Lines => Some(Self { node, machine: machine(), is_hybrid: false }),
            Detection::RemoteLines => Some(Self { node, machine: machine(), is_hybrid: true }),
        }
    }

    /// Returns whether transactions of the node are tracked by software on their own node.
    pub(super) fn is_hybrid(&self) -> bool {
        self.is_hybrid
    }

    /// Begins a transaction of a worker. `None` if no pair of filters is free.
    pub(super) fn begin(&self, worker: u16) -> Option<TxId> {
        let mut machine = self.machine.lock();
        let core = usize::from(worker) % machine.cores;
        machine.node.begin(core)
    }

    /// Records that a transaction of this node accesses another one.
    pub(super) fn record(&self, tx: TxId, node: NodeId) {
        // What it writes there, the request for its commit says.
        self.machine.lock().node.record(tx, node, &[]);
    }

    /// Handles a message about a transaction of this node.
    pub(super) fn receive(&self, message: &Message) {
        let mut machine = self.machine.lock();
        let now = machine.now;
        let _ = machine.node.receive(now, message);
    }

    /// Decides a transaction of this node whose nodes have all acknowledged. Returns whether it is.
    pub(super) fn decide(&self, tx: TxId) -> bool {
        self.machine.lock().node.commit_step(tx).progress == Progress::Decided
    }

    /// Gives a transaction of this node up, as far as this node is concerned. Does nothing if it
    /// has ended.
    pub(super) fn abort(&self, tx: TxId) {
        // The messages are requests of the transaction.
        let _ = self.machine.lock().node.abort(tx);
    }

    /// Returns what the machine has counted.
    pub(super) fn counts(&self) -> Counts {
        self.machine.lock().node.counts()
    }

    /// Returns whether no transaction has anything here.
    pub(super) fn is_idle(&self) -> bool {
        self.machine.lock().node.is_idle()
    }

    /// Returns how many transactions of other nodes that are here have locked lines.
    pub(super) fn locked_by_others(&self, is_gone: impl Fn(NodeId) -> bool) -> u64 {
        let machine = self.machine.lock();
        machine.node.locking().filter(|tx| tx.node != self.node && !is_gone(tx.node)).count() as u64
    }

    /// Returns whether lines are locked, so that software may not write them.
    pub(super) fn has_locked(&self, lines: &[Line]) -> bool {
        self.machine.lock().node.denies(None, lines, Kind::Write)
    }

    /// Calls `act` while no transaction accesses the node, unless another one has these lines
    /// locked. Returns `None` then.
    pub(super) fn unless_locked<T>(&self, lines: &[Line], act: impl FnOnce() -> T) -> Option<T> {
        let machine = self.machine.lock();
        (!machine.node.denies(None, lines, Kind::Write)).then(act)
    }

    /// Begins to carry out a request of a transaction.
    ///
    /// # Errors
    ///
    /// [`Refusal::Other`] if it is not the caller's.
    pub(super) fn act(&self, tx: TxId, caller: NodeId, now: Time) -> Result<Acting<'_>, Refusal> {
        if tx.node != caller {
            return Err(Refusal::Other);
        }
        let mut machine = self.machine.lock();
        let now = (u128::from(now.nanos()) * u128::from(machine.cycles_per_us) / 1_000) as u64;
        machine.now = machine.now.max(now);
        Ok(Acting { machine, tx, is_own: tx.node == self.node, is_hybrid: self.is_hybrid, cycles: 0 })
    }
}

/// A record whose lines a transaction has locked is about to be written, perhaps.
impl Keeper for SmartNic {
    fn unless_kept(&self, extent: (Offset, usize), act: &mut dyn FnMut()) {
        self.unless_locked(&lines_in(extent), act);
    }
}

impl Acting<'_> {
    /// Returns what it has cost: a processor's time at the transaction's own node, and elsewhere
    /// the NIC's.
    pub(super) fn cost(&self) -> Cost {
        if self.is_own { Cost::Cycles(self.cycles) } else { Cost::Nic(self.cycles) }
    }

    /// Accesses lines of the transaction's own node by software, as caches see it.
    pub(super) fn touch(&mut self, lines: &[Line], kind: Kind) {
        let Machine { node, now, .. } = &mut *self.machine;
        let Some(core) = node.core_of(self.tx) else { return };
        self.cycles += lines.iter().map(|&line| node.touch(*now, core, line, kind)).sum::<u64>();
    }

    /// Returns whether software tracks what the transaction does here.
    pub(super) fn is_by_software(&self) -> bool {
        self.is_own && self.is_hybrid
    }

    /// Checks that the transaction was not squashed here.
    ///
    /// # Errors
    ///
    /// [`Refusal::Squashed`].
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let node = &self.machine.node;
        let squashed = if self.is_own { node.squashed(self.tx) } else { node.squashed_guest(self.tx) };
        if squashed.is_none() { Ok(()) } else { Err(Refusal::Squashed) }
    }

    /// Returns whether an access of these lines is denied by what others have locked.
    pub(super) fn is_denied(&self, lines: &[Line], kind: Kind) -> bool {
        self.machine.node.denies(Some(self.tx), lines, kind)
    }

    /// Accesses lines for the transaction, which are in its filters then. Where filters or lines
    /// are those of a transaction of another node, `is_gone` says whether that is gone.
    ///
    /// # Errors
    ///
    /// [`Refusal::Locked`] and [`Refusal::Squashed`]; [`Refusal::HolderDead`] if a node that is
    /// gone has a line locked.
    pub(super) fn access(
        &mut self,
        lines: &[Line],
        kind: Kind,
        is_gone: impl Fn(NodeId) -> bool,
    ) -> Result<(), Refusal> {
        match self.try_access(lines, kind) {
            Err(Refusal::Locked)
                if self.machine.node.denying(Some(self.tx), lines, kind).any(|tx| is_gone(tx.node)) =>
            {
                Err(Refusal::HolderDead)
            }
            // All filters of the NIC may have been taken.
            Err(Refusal::Squashed) if self.machine.node.forget_guests(|tx| is_gone(tx.node)) => {
                self.try_access(lines, kind)
            }
            accessed => accessed,
        }
    }

    fn try_access(&mut self, lines: &[Line], kind: Kind) -> Result<(), Refusal> {
        let Machine { node, now, .. } = &mut *self.machine;
        if self.is_own && self.is_hybrid {
            if node.denies(Some(self.tx), lines, kind) {
                return Err(Refusal::Locked);
            }
            self.touch(lines, Kind::Read);
            return Ok(());
        }
        let cycles = &mut self.cycles;
        let mut served = |served: Served| {
            *cycles += served.cycles;
            served.stop.map_or(Ok(()), |stop| Err(refusal(stop)))
        };
        if self.is_own {
            return lines.iter().try_for_each(|&line| served(node.access(*now, self.tx, line, kind)));
        }
        let fetch = if kind == Kind::Read { Fetch::Read } else { Fetch::Write };
        served(node.fetch(*now, self.tx, fetch, lines))
    }

    /// Locks what the transaction has accessed here, and squashes others that have accessed what it
    /// has written. Returns the squashes of transactions of other nodes.
    ///
    /// # Errors
    ///
    /// [`Refusal::Locked`] and [`Refusal::Squashed`].
    pub(super) fn lock(&mut self, reads: &[Line], writes: &[Line]) -> Result<SmallVec<[Squashed; 2]>, Refusal> {
        if !self.is_own {
            let Machine { node, now, .. } = &mut *self.machine;
            let step = node.receive(*now, &Message::Intend { tx: self.tx, lines: writes.to_vec() });
            self.cycles += step.cycles;
            return squashes(self.tx, step);
        }
        if !self.is_hybrid {
            self.try_access(writes, Kind::Write)?;
        }
        let node = &mut self.machine.node;
        let step =
            if self.is_hybrid { node.commit_of_software(self.tx, reads, writes) } else { node.commit_step(self.tx) };
        self.cycles += step.cycles;
        squashes(self.tx, step)
    }

    /// Ends a decided transaction here, whose updates have taken effect: unlocks the directory.
    pub(super) fn commit(&mut self) {
        let Machine { node, now, .. } = &mut *self.machine;
        // The hardware makes what was written at its own node visible without the processor.
        if self.is_own {
            let _ = node.commit_step(self.tx);
        } else {
            self.cycles += node.receive(*now, &Message::Validate { tx: self.tx }).cycles;
        }
    }

    /// Gives up what the transaction of another node has here.
    pub(super) fn leave(&mut self) {
        let Machine { node, now, .. } = &mut *self.machine;
        let _ = node.receive(*now, &Message::Abort { tx: self.tx });
    }
}

/// Returns the lines of a record. `None` if it is no longer at its place.
pub(super) fn lines_of<E: Engine>(records: &Records<'_, E>, at: Handle) -> Option<Lines> {
    records.extent(at).map(lines_in)
}

/// Returns the lines of so many bytes.
fn lines_in((begin, bytes): (Offset, usize)) -> Lines {
    let last = begin.bytes() + (bytes as u64).max(1) - 1;
    (Line::of(begin.bytes()).0..=Line::of(last).0).map(Line).collect()
}

fn refusal(stop: Stop) -> Refusal {
    match stop {
        Stop::Denied => Refusal::Locked,
        Stop::Squashed(_) => Refusal::Squashed,
    }
}

/// Returns the squashes of other transactions that a step sends.
fn squashes(tx: TxId, step: Step) -> Result<SmallVec<[Squashed; 2]>, Refusal> {
    if let Progress::Stopped(stop) = step.progress {
        return Err(refusal(stop));
    }
    let others = step.messages.into_iter().filter_map(|(_, message)| match message {
        Message::Squash { tx: other, why } if other != tx => Some(Squashed { tx: other, why }),
        _ => None,
    });
    Ok(others.collect())
}
