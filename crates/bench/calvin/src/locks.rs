//! The lock manager of a node: a queue for each key, in the order of transactions.
//!
//! Locks are requested in that order, all of a transaction's at once. So no cycle of waiting
//! transactions can come about, and which transaction gets a lock next does not depend on time.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::{
    key::{Access, Key},
    mutation::Mutation,
    order::Place,
};

#[derive(Clone, Copy, Debug)]
struct Request {
    of: Place,
    access: Access,
    is_granted: bool,
}

/// A transaction that has requested its locks.
#[derive(Debug)]
struct Holder {
    keys: Vec<Key>,
    /// How many of them are not granted yet.
    missing: usize,
}

/// The locks of a node.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    queues: FxHashMap<Key, VecDeque<Request>>,
    holders: FxHashMap<Place, Holder>,
    fault: Option<Mutation>,
}

impl Locks {
    pub(crate) fn new(fault: Option<Mutation>) -> Self {
        Self { fault, ..Self::default() }
    }

    /// Requests locks for a transaction, which comes after all that have requested locks before.
    /// Returns whether it has all of them now.
    pub(crate) fn request(&mut self, of: Place, accesses: &[(Key, Access)]) -> bool {
        let mut missing = 0;
        for (key, access) in accesses {
            let queue = self.queues.entry(*key).or_default();
            let shares = |held: &Request| held.is_granted && held.access == Access::Read;
            let is_granted = match access {
                Access::Read => queue.iter().all(shares),
                Access::Write if self.fault == Some(Mutation::WritersShare) => queue.iter().all(shares),
                Access::Write => queue.is_empty(),
            };
            missing += usize::from(!is_granted);
            queue.push_back(Request { of, access: *access, is_granted });
        }
        let keys = accesses.iter().map(|(key, _)| *key).collect();
        self.holders.insert(of, Holder { keys, missing });
        missing == 0
    }

    /// Releases a transaction's locks. Adds the transactions that have all of theirs now.
    pub(crate) fn release(&mut self, of: Place, ready: &mut Vec<Place>) {
        let Some(Holder { keys, .. }) = self.holders.remove(&of) else { return };
        for key in keys {
            let Some(queue) = self.queues.get_mut(&key) else { continue };
            // What is granted is in front, so that this does not search a long queue.
            if let Some(own) = queue.iter().position(|request| request.of == of) {
                queue.remove(own);
            }
            if queue.is_empty() {
                self.queues.remove(&key);
                continue;
            }
            if self.fault == Some(Mutation::LastComesFirst)
                && queue.iter().all(|request| !request.is_granted)
                && let Some(last) = queue.pop_back()
            {
                queue.push_front(last);
            }
            for granted in grant(queue) {
                let Some(holder) = self.holders.get_mut(&granted) else { continue };
                holder.missing -= 1;
                if holder.missing == 0 {
                    ready.push(granted);
                }
            }
        }
    }

    /// Returns whether no transaction holds a lock or waits for one.
    pub(crate) fn are_free(&self) -> bool {
        self.queues.is_empty() && self.holders.is_empty()
    }
}

/// Grants what a queue's order allows now: its first request, and all for reading that follow one
/// for reading.
fn grant(queue: &mut VecDeque<Request>) -> Vec<Place> {
    let mut granted = Vec::new();
    let first = queue.front().map(|request| request.access);
    for (place, request) in queue.iter_mut().enumerate() {
        if place > 0 && (request.access == Access::Write || first == Some(Access::Write)) {
            break;
        }
        if !request.is_granted {
            request.is_granted = true;
            granted.push(request.of);
        }
    }
    granted
}

#[cfg(test)]
mod tests {
    use drtm_rdma::NodeId;

    use super::*;

    const A: Key = Key { table: 0, word: 1 };
    const B: Key = Key { table: 0, word: 2 };

    fn place(number: u32) -> Place {
        Place { epoch: 0, node: NodeId(0), number }
    }

    fn released(locks: &mut Locks, number: u32) -> Vec<u32> {
        let mut ready = Vec::new();
        locks.release(place(number), &mut ready);
        ready.iter().map(|place| place.number).collect()
    }

    #[test]
    fn writers_get_a_lock_one_after_the_other_in_order() {
        let mut locks = Locks::default();
        assert!(locks.request(place(0), &[(A, Access::Write)]));
        assert!(!locks.request(place(1), &[(A, Access::Write)]));
        assert!(!locks.request(place(2), &[(A, Access::Write)]));
        assert_eq!(released(&mut locks, 0), [1]);
        assert_eq!(released(&mut locks, 1), [2]);
        assert!(released(&mut locks, 2).is_empty());
        assert!(locks.are_free());
    }

    #[test]
    fn readers_share_a_lock_and_do_not_pass_a_writer() {
        let mut locks = Locks::default();
        assert!(locks.request(place(0), &[(A, Access::Read)]));
        assert!(locks.request(place(1), &[(A, Access::Read)]));
        assert!(!locks.request(place(2), &[(A, Access::Write)]));
        assert!(!locks.request(place(3), &[(A, Access::Read)]), "the writer comes first");
        assert!(!locks.request(place(4), &[(A, Access::Read)]));
        assert!(released(&mut locks, 1).is_empty());
        assert_eq!(released(&mut locks, 0), [2]);
        assert_eq!(released(&mut locks, 2), [3, 4]);
    }

    #[test]
    fn a_transaction_waits_for_all_of_its_locks() {
        let mut locks = Locks::default();
        assert!(locks.request(place(0), &[(A, Access::Write)]));
        assert!(locks.request(place(1), &[(B, Access::Write)]));
        assert!(!locks.request(place(2), &[(A, Access::Read), (B, Access::Write)]));
        assert!(released(&mut locks, 1).is_empty());
        assert_eq!(released(&mut locks, 0), [2]);
    }

    #[test]
    fn each_fault_grants_another_order() {
        let mut last_first = Locks::new(Some(Mutation::LastComesFirst));
        for number in 0..3 {
            last_first.request(place(number), &[(A, Access::Write)]);
        }
        assert_eq!(released(&mut last_first, 0), [2]);
        let mut sharing = Locks::new(Some(Mutation::WritersShare));
        assert!(sharing.request(place(0), &[(A, Access::Read)]));
        assert!(sharing.request(place(1), &[(A, Access::Write)]));
    }
}
