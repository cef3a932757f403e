//! Votes: which transactions of dead coordinators may have been decided.
//!
//! A transaction is decided when all copies of all shards that it writes have its record. A record
//! is freed only when its transaction is settled: carried out, or void at all copies. Records of
//! one producer come into a ring in the order of their numbers. So a copy has the record; or it has
//! it void; or it has freed a later one or this one, and it is settled; or the record never came.
//!
//! It is completed if no copy that is left says void or never, and each shard has one that is left,
//! unless the coordinator alone has that shard. A transaction that was acknowledged is among these.
//! Nodes that learn a shard vote as well: one that never got the record would become a replica
//! without these rows.
//! What was completed or undone before, when an earlier driver died, stays so.

use std::collections::BTreeMap;

use drtm_kv::Holder;
use drtm_rdma::NodeId;

use crate::{
    cluster::{
        View,
        log::{Copies, Recorded, Standing},
        wire::{Many, parts::InRing},
    },
    mutation::Mutation,
};

/// What the copies that are left say of a transaction.
#[derive(Debug)]
pub(super) struct Ballot {
    pub(super) holder: Holder,
    pub(super) sequence: u64,
    /// Of each node that has something: what, and its record.
    said: Vec<(NodeId, u8, Vec<u8>)>,
}

impl Ballot {
    /// Returns its records, each of which has rows of some shards.
    pub(super) fn records(&self) -> impl Iterator<Item = &[u8]> {
        self.said.iter().filter(|(_, _, bytes)| !bytes.is_empty()).map(|(_, _, bytes)| &**bytes)
    }

    fn says(&self, standing: Standing) -> bool {
        self.said.iter().any(|(_, said, _)| *said == standing as u8)
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Votes {
    /// By name and number.
    ballots: BTreeMap<(u64, u64), Ballot>,
    /// Of each node and producer, the last transaction whose record was freed.
    freed: BTreeMap<(NodeId, u64), u64>,
}

impl Votes {
    /// Adds what a node has.
    pub(super) fn add(&mut self, node: NodeId, report: &[u8]) {
        for InRing { producer, holder, sequence, standing, bytes } in Many::<InRing<'_>>::new(report, 0).iter() {
            if standing == 0 {
                let freed = self.freed.entry((node, producer.to_word())).or_default();
                *freed = sequence.max(*freed);
                continue;
            }
            let Some(name) = Holder::from_word(holder) else { continue };
            let new = || Ballot { holder: name, sequence, said: Vec::new() };
            let ballot = self.ballots.entry((holder, sequence)).or_insert_with(new);
            ballot.said.push((node, standing, bytes.to_vec()));
        }
    }

    /// Returns the transactions that are completed, when these nodes are left of a view.
    pub(super) fn complete(
        self,
        (view, nodes): (&View, &[NodeId]),
        copies: impl Fn(NodeId) -> Copies,
        has: fn(Mutation) -> bool,
    ) -> Vec<Ballot> {
        let Self { ballots, freed } = self;
        let is_complete = |ballot: &Ballot| {
            if has(Mutation::AllCompleted) || has(Mutation::AllUndone) {
                return has(Mutation::AllCompleted) && ballot.says(Standing::Recorded);
            }
            if ballot.says(Standing::Completed) || ballot.says(Standing::Undone) || ballot.says(Standing::Void) {
                return ballot.says(Standing::Completed);
            }
            let mut buffer = Vec::new();
            let record = ballot.records().next();
            let Some(record) = record.and_then(|bytes| Recorded::read(bytes, &mut buffer)) else { return false };
            let (copies, producer) = (copies(NodeId(ballot.holder.node().into())), ballot.holder.in_slot(0).to_word());
            let has_voted = |node: NodeId| {
                let is_settled = freed.get(&(node, producer)).is_some_and(|freed| *freed >= ballot.sequence);
                is_settled || ballot.said.iter().any(|(other, ..)| *other == node)
            };
            record.view() == view.number()
                && record.shards().all(|shard| {
                    let mut left = copies.of(view, shard).filter(|node| nodes.contains(node)).peekable();
                    // Of a shard that the coordinator alone has, no copy could have said anything.
                    let has_copies = copies.of(view, shard).next().is_some();
                    let mut learn = view.learners(shard).iter().copied().filter(|node| nodes.contains(node));
                    (left.peek().is_some() || !has_copies)
                        && left.all(has_voted)
                        && (learn.all(has_voted) || has(Mutation::LearnersNotAsked))
                })
        };
        ballots.into_values().filter(is_complete).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{log::tests::record_of, shard::ShardId, wire::Wire as _};

    const SHARDS: [ShardId; 2] = [ShardId(0), ShardId(1)];

    fn name() -> Holder {
        Holder::new(9, 1, 2, 3)
    }

    fn entry(sequence: u64, standing: u8, bytes: &[u8]) -> Vec<u8> {
        let (mut put, producer) = (Vec::new(), name().in_slot(0));
        let holder = if standing == 0 { producer } else { name() };
        InRing { producer, holder: holder.to_word(), sequence, standing, bytes }.put(&mut put);
        put
    }

    /// Whether transaction 7 of a dead client is completed, which has written a shard of each of
    /// the first two of three owners with a backup each: by what the backups say, of which some are
    /// left.
    fn is_completed(said: &[(u16, Vec<u8>)], left: &[u16]) -> bool {
        let view = View::fixed(&[0, 1, 2].map(NodeId), 3, 1).expect("a view");
        let mut votes = Votes::default();
        said.iter().filter(|(node, _)| left.contains(node)).for_each(|(node, report)| votes.add(NodeId(*node), report));
        let left: Vec<NodeId> = left.iter().copied().map(NodeId).collect();
        let complete = votes.complete((&view, &left), |coordinator| Copies { coordinator, count: 1 }, |_| false);
        complete.iter().any(|ballot| ballot.sequence == 7)
    }

    #[test]
    fn a_transaction_is_completed_if_all_copies_that_are_left_have_it() {
        let record = record_of(name().to_word(), 7, 1, &SHARDS);
        let recorded = || entry(7, Standing::Recorded as u8, &record);
        let other = |standing: Standing| entry(7, standing as u8, &[]);
        let (freed, before) = (|| entry(7, 0, &[]), || entry(6, 0, &[]));
        let all = [0, 1, 2];
        assert!(is_completed(&[(1, recorded()), (2, recorded())], &all));
        assert!(!is_completed(&[(1, recorded())], &all), "it never came to the other");
        assert!(!is_completed(&[(1, recorded()), (2, before())], &all), "only an earlier one did");
        assert!(is_completed(&[(1, recorded()), (2, freed())], &all), "it is settled there");
        assert!(!is_completed(&[(1, recorded()), (2, other(Standing::Void))], &all));
        assert!(is_completed(&[(1, recorded()), (2, other(Standing::Completed))], &all));
        assert!(!is_completed(&[(1, recorded()), (2, other(Standing::Undone))], &all));
        assert!(!is_completed(&[(1, recorded()), (2, recorded())], &[0, 1]), "a shard is lost");
    }

    #[test]
    fn without_backups_the_primaries_decide() {
        // An owner coordinates, and writes rows of its own and of another owner.
        let view = View::fixed(&[0, 1, 2].map(NodeId), 3, 0).expect("a view");
        let name = Holder::new(0, 1, 2, 3);
        let record = record_of(name.to_word(), 7, 1, &SHARDS);
        let (mut report, producer, standing) = (Vec::new(), name.in_slot(0), Standing::Recorded as u8);
        InRing { producer, holder: name.to_word(), sequence: 7, standing, bytes: &record }.put(&mut report);
        let completed = |left: &[NodeId]| {
            let mut votes = Votes::default();
            votes.add(NodeId(1), &report);
            votes.complete((&view, left), |coordinator| Copies { coordinator, count: 1 }, |_| false).len()
        };
        assert_eq!(completed(&[NodeId(1), NodeId(2)]), 1, "all copies that there were have it");
        assert_eq!(completed(&[NodeId(2)]), 0, "the other shard is lost, too");
    }

    #[test]
    fn nodes_that_learn_a_shard_vote() {
        let view = View::fixed(&[0, 1, 2].map(NodeId), 3, 1).expect("a view");
        let mut placements = view.placements().to_vec();
        placements[0].learners = vec![NodeId(2)];
        let view = view.next(view.members().to_vec(), placements).expect("a view");
        let record = record_of(name().to_word(), 7, view.number(), &SHARDS[..1]);
        let recorded = || entry(7, Standing::Recorded as u8, &record);
        let completed = |said: &[(u16, Vec<u8>)], left: &[u16]| {
            let mut votes = Votes::default();
            said.iter().for_each(|(node, report)| votes.add(NodeId(*node), report));
            let left: Vec<NodeId> = left.iter().copied().map(NodeId).collect();
            votes.complete((&view, &left), |coordinator| Copies { coordinator, count: 1 }, |_| false).len()
        };
        assert_eq!(completed(&[(1, recorded()), (2, recorded())], &[0, 1, 2]), 1);
        assert_eq!(completed(&[(1, recorded()), (2, entry(8, 0, &[]))], &[0, 1, 2]), 1, "it is settled there");
        assert_eq!(completed(&[(1, recorded())], &[0, 1, 2]), 0, "it never came to the node that learns");
        assert_eq!(completed(&[(1, recorded())], &[0, 1]), 1, "that node is gone, too");
        assert_eq!(completed(&[(2, recorded())], &[2]), 0, "it has a part of the rows");
    }

    #[test]
    fn a_record_of_another_view_decides_nothing() {
        let record = record_of(name().to_word(), 7, 2, &SHARDS);
        let recorded = || entry(7, Standing::Recorded as u8, &record);
        assert!(!is_completed(&[(1, recorded()), (2, recorded())], &[0, 1, 2]));
    }
}
