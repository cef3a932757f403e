//! Shards of which no replica is left. They are served by no node, until the one that had their
//! rows last comes back with its directory, or an operator gives them up: then they are served
//! again, without rows. See `docs/decisions/0119` and `0120`.

use drtm_rdma::{Incarnation, NodeId};

use super::{ClusterError, FIRST, Member, Placement, View};
use crate::cluster::shard::ShardId;

/// Why a shard is served by no node of a view.
///
/// # Example
///
/// ```
/// use drtm_rdma::{Incarnation, NodeId};
/// use drtm_txn::cluster::{Lost, ShardId, View};
///
/// // One shard of two was at node 1 alone, which is gone.
/// let view = View::fixed(&[NodeId(0), NodeId(1)], 2, 0)?;
/// let mut placements = view.placements().to_vec();
/// placements[1].lost = Some(Lost::Held(Incarnation(1)));
/// let next = view.next(view.members()[..1].to_vec(), placements)?;
/// assert!(next.is_lost(ShardId(1)) && !next.is_lost(ShardId(0)));
/// # Ok::<(), drtm_txn::cluster::ClusterError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lost {
    /// No replica is left. This life of its primary had all rows last.
    Held(Incarnation),
    /// An operator has given its rows up. It is served again once a node is ready for that.
    GivenUp,
}

impl View {
    /// Returns whether no node serves a shard, since no replica of it is left.
    ///
    /// # Example
    ///
    /// See [`Lost`].
    #[must_use]
    pub fn is_lost(&self, shard: ShardId) -> bool {
        self.placements.get(shard.index()).is_some_and(|placed| placed.lost.is_some())
    }

    /// Returns whether any shard is lost.
    pub(in crate::cluster) fn has_lost(&self) -> bool {
        self.has_lost
    }

    /// Makes the view that comes after this one, without nodes that are gone. What they have
    /// served, the first backup serves that is left. If none is, the shard is lost. Its rows are
    /// where they were in the last view of which it is known that its primaries have all: this one
    /// may have been configured, and never have begun.
    ///
    /// # Errors
    ///
    /// [`ClusterError::ShardLost`] if no replica of a shard is left, and one of them has not
    /// certainly `ended`: it may come back with all that it has, and is waited for.
    pub(in crate::cluster) fn without(
        &self,
        last_whole: &Self,
        is_gone: impl Fn(NodeId) -> bool,
        has_ended: impl Fn(NodeId) -> bool,
    ) -> Result<Self, ClusterError> {
        // The first view names no lives, and nothing was served in it.
        let last_whole = if last_whole.number > FIRST { last_whole } else { self };
        let members = self.members.iter().filter(|member| !is_gone(member.node)).cloned().collect();
        let placement = |(number, at): (usize, &Placement)| {
            if at.lost.is_some() {
                return Ok(at.clone());
            }
            let mut left = at.replicas().filter(|node| !is_gone(*node));
            let Some(primary) = left.next() else {
                // A view that names no lives has no rows yet: its owners have not met.
                let shard = ShardId(number as u16);
                let held = last_whole.held_by(shard).filter(|_| at.replicas().all(&has_ended));
                return held.ok_or(ClusterError::ShardLost { shard });
            };
            let learners = at.learners.iter().copied().filter(|node| !is_gone(*node)).collect();
            Ok(Placement { primary, backups: left.collect(), learners, lost: None })
        };
        let placements = self.placements.iter().enumerate().map(placement).collect::<Result<_, ClusterError>>()?;
        self.next(members, placements)
    }
}

impl View {
    /// Returns where a shard is that is lost, if it was lost before or its primary had all rows
    /// last. `None` if no life of that is named.
    fn held_by(&self, shard: ShardId) -> Option<Placement> {
        let at = self.placements.get(shard.index())?;
        match at.lost {
            Some(_) => Some(at.clone()),
            None => Some(at.lost_by(Lost::Held(self.incarnation(at.primary)?))),
        }
    }

    /// Makes the view that comes after this one when all its members have ended: of other lives of
    /// nodes. All shards are lost, until the nodes that had them in the `last_whole` view bring
    /// them back.
    ///
    /// # Errors
    ///
    /// [`ClusterError::BadView`].
    pub(in crate::cluster) fn begun_anew(&self, last_whole: &Self, members: Vec<Member>) -> Result<Self, ClusterError> {
        let placement = |(shard, at): (u16, &Placement)| match at.lost {
            // It was so before.
            Some(_) => at.clone(),
            None => last_whole.held_by(ShardId(shard)).unwrap_or_else(|| at.clone()),
        };
        self.next(members, (0..).zip(&self.placements).map(placement).collect())
    }

    /// Returns the nodes that have shards.
    pub(in crate::cluster) fn holders(&self) -> impl Iterator<Item = NodeId> {
        let has_shards = |node: &NodeId| self.placements.iter().any(|at| at.nodes().any(|other| other == *node));
        self.members.iter().map(|member| member.node).filter(has_shards)
    }

    /// Returns whether another view has as many shards and groups as this one.
    pub(in crate::cluster) fn is_of_shape(&self, other: &Self) -> bool {
        (self.placements.len(), self.groups) == (other.placements.len(), other.groups)
    }

    /// Returns whether this view can be the last whole one where another one is `configured`, or is
    /// a view of another time, or of another cluster. Each node that has shards was a member of all
    /// whole views since the last that has begun, in the same life.
    pub(in crate::cluster) fn may_be_last_before(&self, configured: &Self) -> bool {
        let was_member = |node: NodeId| {
            let life = configured.incarnation(node);
            life.is_some() && self.has(node) && self.incarnation(node) == life
        };
        (FIRST + 1..=configured.number).contains(&self.number)
            && self.is_of_shape(configured)
            && configured.holders().all(was_member)
    }
}

impl Placement {
    /// Returns where a shard is that no node serves.
    pub(in crate::cluster) fn lost_by(&self, why: Lost) -> Self {
        Self { primary: self.primary, backups: Vec::new(), learners: Vec::new(), lost: Some(why) }
    }
}
