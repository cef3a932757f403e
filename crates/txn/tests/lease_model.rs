//! Locks, leases and commits of two transactions on two nodes, explored exhaustively: every order
//! of their steps, of the passing of time, and of clocks within their known error. Of three
//! transactions, some of what they may do is explored: all takes hours.
//!
//! The decisions are the real ones ([`acquire`] and [`lend`]); the steps are those of
//! `Worker::transact_on`. Committed transactions must be serializable in an order that respects
//! real time. Every fault that is put into the steps must be found, which shows that the
//! exploration works.

use drtm_kv::{Acquire, Holder, Leases, Lend, State, acquire, lend};
use drtm_testing::rounds;
use rustc_hash::FxHashSet;

/// The length of leases, and the largest error of a clock.
const LEASE: u64 = 1;
const UNCERTAIN: i64 = 1;

/// When time begins, and when it ends: after every lease has expired.
const FIRST: u64 = 4;
const LAST: u64 = FIRST + 7;

/// A transaction's access to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Does {
    Nothing,
    Reads,
    /// Reads and writes.
    Writes,
}

const ALL: [Does; 3] = [Does::Nothing, Does::Reads, Does::Writes];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Leases are not confirmed.
    NotConfirmed,
    /// Clocks have a larger error than the known one.
    Skewed,
    /// Rows are unlocked before they are written.
    UnlockedEarly,
    /// Writes do not change versions.
    VersionKept,
    /// Reads of the own node are not validated.
    NotValidated,
}

/// A run: the nodes and accesses of `N` transactions, and the nodes' clock errors.
#[derive(Clone, Copy, Debug)]
struct Setup<const N: usize> {
    /// The node of each transaction.
    nodes: [usize; N],
    /// The accesses of each transaction to each record. Record `n` is on node `n`.
    does: [[Does; 2]; N],
    skew: [i64; 2],
    fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Begin,
    /// Locks or leases the record of the other node.
    Seize,
    ReadRemote,
    ReadLocal,
    LockLocal,
    ValidateLocal,
    Confirm,
    /// It has committed. The records that it has written, and those that it has unlocked.
    Apply {
        written: [bool; 2],
        freed: [bool; 2],
    },
    /// It releases its locks.
    GiveUp,
    Committed,
    Aborted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Tx {
    at: At,
    /// The values that it has read, with their versions.
    saw: [(u8, u8); 2],
    holds: [bool; 2],
    /// The requested end of its leases, and the end of the lease it got.
    until: u8,
    lease: u8,
    /// Which transactions had committed before it began, a bit for each.
    after: u8,
}

/// A record's state word, its value, which is its writer, and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Record {
    state: State,
    value: u8,
    version: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct World<const N: usize> {
    now: u64,
    records: [Record; 2],
    txs: [Tx; N],
}

impl<const N: usize> Setup<N> {
    fn begin(&self) -> World<N> {
        let record = Record { state: State::FREE, value: 0, version: 0 };
        let tx = Tx { at: At::Begin, saw: [(0, 0); 2], holds: [false; 2], until: 0, lease: 0, after: 0 };
        World { now: FIRST, records: [record; 2], txs: [tx; N] }
    }

    /// Returns the bounds of the time by a node's clock.
    fn clock(&self, node: usize, now: u64) -> (u64, u64) {
        let shows = now as i64 + self.skew[node];
        ((shows - UNCERTAIN) as u64, (shows + UNCERTAIN) as u64)
    }

    /// Returns whether a transaction reads a record of the other node.
    fn leases(&self, tx: usize) -> bool {
        self.does[tx][1 - self.nodes[tx]] == Does::Reads
    }

    /// Returns whether the setup is needed: no mirror image, and no irrelevant clock error.
    fn counts(&self) -> bool {
        let rank = |tx: usize| {
            let does = self.does[tx].map(|does| does as u8);
            // As its node sees the records, where two transactions are alike but for their nodes.
            if N == 2 { [does[self.nodes[tx]], does[1 - self.nodes[tx]]] } else { does }
        };
        let are_alike = |tx: &usize| N == 2 || self.nodes[*tx] == self.nodes[tx + 1];
        let is_sorted = (0..N - 1).filter(are_alike).all(|tx| rank(tx) <= rank(tx + 1));
        let is_timed = (0..N).any(|tx| self.leases(tx));
        let is_unused = self.nodes == [0; N] && self.skew[1] != 0;
        is_sorted && !is_unused && (is_timed || self.skew == [0, 0])
    }

    fn holder(&self, tx: usize) -> Holder {
        Holder::new(self.nodes[tx] as u8, 0, tx as u16, 0)
    }

    /// Takes a record's lock if possible. Returns whether it did.
    fn lock(&self, world: &mut World<N>, tx: usize, record: usize) -> bool {
        let (least, _) = self.clock(self.nodes[tx], world.now);
        let word = &mut world.records[record].state;
        match acquire(*word, self.holder(tx), Leases::At(least)) {
            Acquire::Swap(from) => {
                assert_eq!(from, *word);
                *word = self.holder(tx).into();
                world.txs[tx].holds[record] = true;
                true
            }
            Acquire::Mine => unreachable!("each record is locked once"),
            Acquire::Locked(_) | Acquire::Leased(_) => false,
        }
    }

    /// Returns whether a record is unchanged since its read, and not locked by the other.
    fn is_valid(&self, world: &World<N>, tx: usize, record: usize) -> bool {
        let is = world.records[record];
        is.version == world.txs[tx].saw[record].1 && is.state.may_be_read_by(self.holder(tx))
    }

    /// Adds the possible next states of a transaction's step.
    fn step(&self, world: &World<N>, tx: usize, into: &mut Vec<World<N>>) {
        let mut next = *world;
        let (local, remote) = (self.nodes[tx], 1 - self.nodes[tx]);
        let (does_local, does_remote) = (self.does[tx][local], self.does[tx][remote]);
        let (least, most) = self.clock(local, world.now);
        let is_lax = self.fault == Fault::NotValidated;
        let at = match world.txs[tx].at {
            At::Begin => {
                next.txs[tx].until = (most + LEASE) as u8;
                let committed = (0..N).filter(|other| world.txs[*other].at == At::Committed);
                next.txs[tx].after = committed.map(|other| 1 << other).sum();
                At::Seize
            }
            At::Seize => match does_remote {
                Does::Nothing => At::ReadLocal,
                Does::Reads => {
                    let (word, until) = (&mut next.records[remote].state, u64::from(world.txs[tx].until));
                    let lease = match lend(*word, Leases::At(least)) {
                        Lend::Swap(_) => {
                            *word = State::leased_until(until);
                            Some(until)
                        }
                        Lend::Shared(end) => Some(end),
                        Lend::Locked(_) => None,
                    };
                    next.txs[tx].lease = lease.unwrap_or(0) as u8;
                    if lease.is_some() { At::ReadRemote } else { At::GiveUp }
                }
                Does::Writes if self.lock(&mut next, tx, remote) => At::ReadRemote,
                Does::Writes => At::GiveUp,
            },
            At::ReadRemote => {
                next.txs[tx].saw[remote] = (world.records[remote].value, world.records[remote].version);
                At::ReadLocal
            }
            At::ReadLocal if does_local == Does::Nothing => At::Confirm,
            At::ReadLocal if !world.records[local].state.may_be_read_by(self.holder(tx)) => At::GiveUp,
            At::ReadLocal => {
                next.txs[tx].saw[local] = (world.records[local].value, world.records[local].version);
                if does_local == Does::Writes { At::LockLocal } else { At::ValidateLocal }
            }
            At::LockLocal if self.lock(&mut next, tx, local) => {
                if is_lax || self.is_valid(&next, tx, local) {
                    At::Confirm
                } else {
                    At::GiveUp
                }
            }
            At::LockLocal => At::GiveUp,
            At::ValidateLocal if is_lax || self.is_valid(world, tx, local) => At::Confirm,
            At::ValidateLocal => At::GiveUp,
            At::Confirm => {
                let lease = u64::from(world.txs[tx].lease);
                let holds = lease == 0 || most < lease || self.fault == Fault::NotConfirmed;
                let done = self.does[tx].map(|does| does != Does::Writes);
                if holds { At::Apply { written: done, freed: done } } else { At::GiveUp }
            }
            At::Apply { written, freed } => {
                self.apply(world, tx, (written, freed), into);
                return;
            }
            At::GiveUp => {
                for record in 0..2 {
                    if world.txs[tx].holds[record] {
                        assert_eq!(next.records[record].state, self.holder(tx).into(), "a lock was taken from it");
                        next.records[record].state = State::FREE;
                        next.txs[tx].holds[record] = false;
                    }
                }
                At::Aborted
            }
            At::Committed | At::Aborted => return,
        };
        next.txs[tx].at = at;
        into.push(next);
    }

    /// Writes and unlocks the records of a committed transaction, in any order of records.
    fn apply(&self, world: &World<N>, tx: usize, (written, freed): ([bool; 2], [bool; 2]), into: &mut Vec<World<N>>) {
        if written == [true; 2] && freed == [true; 2] {
            let mut next = *world;
            next.txs[tx].at = At::Committed;
            into.push(next);
        }
        let frees_first = self.fault == Fault::UnlockedEarly;
        for record in 0..2 {
            let mut next = *world;
            let (mut written, mut freed) = (written, freed);
            let writes = if frees_first { freed[record] && !written[record] } else { !written[record] };
            if writes {
                next.records[record].value = tx as u8 + 1;
                next.records[record].version += u8::from(self.fault != Fault::VersionKept);
                written[record] = true;
            } else if !freed[record] {
                next.records[record].state = State::FREE;
                next.txs[tx].holds[record] = false;
                freed[record] = true;
            } else {
                continue;
            }
            next.txs[tx].at = At::Apply { written, freed };
            into.push(next);
        }
    }

    /// Returns whether the committed transactions are serializable.
    fn is_serial(&self, end: &World<N>) -> bool {
        let committed = (0..N).filter(|tx| end.txs[*tx].at == At::Committed).collect();
        orders(committed).iter().any(|order| {
            // A transaction that began after another's end comes after it.
            let comes_too_early =
                |place: usize| order[place + 1..].iter().any(|later| end.txs[order[place]].after & 1 << later != 0);
            if (0..order.len()).any(comes_too_early) {
                return false;
            }
            let mut values = [0; 2];
            for tx in order.iter().copied() {
                for (record, value) in values.iter_mut().enumerate() {
                    if self.does[tx][record] != Does::Nothing && end.txs[tx].saw[record].0 != *value {
                        return false;
                    }
                    if self.does[tx][record] == Does::Writes {
                        *value = tx as u8 + 1;
                    }
                }
            }
            end.records.map(|record| record.value) == values
        })
    }

    /// Explores all states. Returns their number, or the faulty state.
    fn explore(&self) -> Result<usize, World<N>> {
        let begin = self.begin();
        let (mut known, mut left, mut next) = (FxHashSet::default(), vec![begin], Vec::new());
        known.insert(begin);
        while let Some(world) = left.pop() {
            next.clear();
            (0..N).for_each(|tx| self.step(&world, tx, &mut next));
            if next.is_empty() {
                let is_free = world.records.iter().all(|record| !record.state.is_locked());
                if !is_free || !self.is_serial(&world) {
                    return Err(world);
                }
                continue;
            }
            // Time passes only once a transaction may take a lease.
            let has_begun = |tx: usize| world.txs[tx].at != At::Begin && self.leases(tx);
            if world.now < LAST && (0..N).any(has_begun) {
                next.push(World { now: world.now + 1, ..world });
            }
            left.extend(next.drain(..).filter(|world| known.insert(*world)));
        }
        Ok(known.len())
    }
}

/// Returns all orders of some transactions.
fn orders(of: Vec<usize>) -> Vec<Vec<usize>> {
    if of.is_empty() {
        return vec![of];
    }
    let first = |first: usize| {
        let rest = of.iter().copied().filter(|tx| *tx != first).collect();
        orders(rest).into_iter().map(move |mut order| {
            order.insert(0, first);
            order
        })
    };
    of.iter().copied().flat_map(first).collect()
}

/// Returns every setup of a fault, or of none, for transactions on these nodes.
fn setups<const N: usize>(fault: Fault, nodes: &[[usize; N]]) -> impl Iterator<Item = Setup<N>> {
    let most = if fault == Fault::Skewed { 3 } else { UNCERTAIN };
    let skews = [-most, 0, most];
    let pairs =
        ALL.iter().flat_map(|one| ALL.iter().map(|other| [*one, *other])).filter(|does| *does != [Does::Nothing; 2]);
    let pairs: Vec<_> = pairs.collect();
    nodes
        .iter()
        .copied()
        .flat_map(move |nodes| {
            let pairs = pairs.clone();
            (0..pairs.len().pow(N as u32)).flat_map(move |number| {
                let does = std::array::from_fn(|tx| pairs[number / pairs.len().pow(tx as u32) % pairs.len()]);
                skews.into_iter().flat_map(move |one| {
                    skews.into_iter().map(move |other| Setup { nodes, does, skew: [one, other], fault })
                })
            })
        })
        .filter(Setup::counts)
}

/// Two transactions on one node, or on two.
const TWO: [[usize; 2]; 2] = [[0, 0], [0, 1]];

/// Explores setups, each of which must be sound. Returns the number of states.
fn explore_all<const N: usize>(setups: impl Iterator<Item = Setup<N>>) -> usize {
    let mut states = 0;
    for (setup, number) in setups.zip(1..) {
        match setup.explore() {
            Ok(explored) => states += explored,
            Err(end) => panic!("{setup:?} ends in {end:?}"),
        }
        if number % 100 == 0 {
            println!("{number} setups, {states} states");
        }
    }
    println!("{states} states in all");
    states
}

#[test]
fn two_transactions_are_strictly_serializable_in_every_order() {
    let states = explore_all(setups(Fault::None, &TWO));
    assert!(states > 100_000, "{states}: it has explored less than there is");
}

/// Of clock errors only the difference counts, so that one clock is as slow as it can be. What
/// three transactions do is taken from all that they may do at equal distances: with
/// `DRTM_STRESS=100` all of it.
#[test]
fn three_transactions_are_strictly_serializable_in_every_order() {
    let is_needed = |setup: &Setup<3>| match setup.skew {
        [one, other] if one == other => one == 0,
        skew => skew.contains(&-UNCERTAIN),
    };
    let setups: Vec<_> = setups(Fault::None, &[[0, 0, 0], [0, 0, 1]]).filter(is_needed).collect();
    println!("{} setups of three", setups.len());
    let distance = setups.len().div_ceil(rounds(20) as usize);
    let states = explore_all(setups.into_iter().skip(distance / 2).step_by(distance));
    assert!(states > 100_000, "{states}: it has explored less than there is");
}

#[test]
fn every_fault_is_found() {
    for fault in [Fault::NotConfirmed, Fault::Skewed, Fault::UnlockedEarly, Fault::VersionKept, Fault::NotValidated] {
        assert!(setups(fault, &TWO).any(|setup| setup.explore().is_err()), "{fault:?}");
    }
}
