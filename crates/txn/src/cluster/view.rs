//! The view: which nodes are members, and which of them serve which shards.
//!
//! A view is one immutable value with a number. It is replaced as a whole by one with a higher
//! number, and never changed. It is the one place that turns shards, which transactions know, into
//! nodes, which messages and verbs know.
//!
//! What a node remembers of another one (places, handles, versions, turns, leases, claims) belongs
//! to a view and to that node's incarnation, and is never used with another. A view that was
//! configured by hand names no incarnations: they are learnt when nodes meet, and a new one ends
//! what was remembered of the old.

mod current;
mod encoding;
mod lost;

use std::net::SocketAddr;

use drtm_rdma::{Incarnation, NodeId};

pub(super) use self::current::{BETWEEN, Current, NO_VIEW};
pub use self::lost::Lost;
use super::{
    ClusterError,
    shard::{MOST_SHARDS, Reach, ShardId},
};

/// A node that serves shards.
///
/// # Example
///
/// See [`View`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which node it is.
    pub node: NodeId,
    /// Where it listens, as its fabric writes that. Empty where the fabric was told by hand.
    pub address: String,
    /// Which of its lives is meant. `None` in views that were configured by hand: whichever is met.
    pub incarnation: Option<Incarnation>,
}

/// The nodes that have a shard's rows.
///
/// # Example
///
/// See [`View`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The node that serves the shard; or, if it is lost, the one that did so last.
    pub primary: NodeId,
    /// The nodes that apply what is written to it.
    pub backups: Vec<NodeId>,
    /// The nodes that do so, too, and are given what was written before: they are going to be
    /// backups.
    pub learners: Vec<NodeId>,
    /// Why no node serves the shard. `None`: its primary does.
    pub lost: Option<Lost>,
}

impl Placement {
    /// Returns the nodes that have all rows. A shard that is lost has none.
    pub(super) fn replicas(&self) -> impl Iterator<Item = NodeId> {
        self.server().into_iter().chain(self.backups.iter().copied())
    }

    /// Returns the node that serves the shard. `None` if it is lost.
    pub(super) fn server(&self) -> Option<NodeId> {
        self.lost.is_none().then_some(self.primary)
    }

    /// Returns the nodes to which what is written goes.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.replicas().chain(self.learners.iter().copied())
    }
}

/// Who is a member of a cluster, and where each shard is.
///
/// Shards are placed by groups: each node that has shards of a group has the same ones, as primary
/// of all or as backup of all. A cluster that is configured by hand has a group for each owner.
///
/// # Example
///
/// ```
/// use drtm_rdma::NodeId;
/// use drtm_txn::cluster::{ShardId, View};
///
/// // Four shards of two owners, each of which backs up the other.
/// let view = View::fixed(&[NodeId(0), NodeId(1)], 4, 1)?;
/// assert_eq!(view.number(), 1);
/// assert_eq!(view.primary(ShardId(3)), Some(NodeId(1)));
/// assert_eq!(view.backups(ShardId(3)), [NodeId(0)]);
///
/// // The next one has the same shards, all of which the first node serves.
/// let placements = view.placements().iter().cloned();
/// let placements = placements.map(|mut at| {
///     at.primary = NodeId(0);
///     at.backups.clear();
///     at
/// });
/// let next = view.next(view.members().to_vec(), placements.collect())?;
/// assert_eq!((next.number(), next.primary(ShardId(3))), (2, Some(NodeId(0))));
/// # Ok::<(), drtm_txn::cluster::ClusterError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    number: u32,
    members: Vec<Member>,
    placements: Vec<Placement>,
    /// How many groups the shards are dealt to in turn.
    groups: u16,
    /// The first shard of each group: one request for each reaches all rows.
    heads: Vec<ShardId>,
    /// For each shard, the first of its group.
    head_of: Vec<ShardId>,
    /// Whether any shard is lost.
    has_lost: bool,
    /// Where nodes listen that were replaced.
    replaced: Vec<(NodeId, SocketAddr)>,
}

/// The number of views that are configured by hand, and that name no incarnations. Where nodes
/// agree on the view, it opens for none of them: the next one is of those that have met.
pub(super) const FIRST: u32 = 1;

impl View {
    /// Makes a view for nodes that are configured by hand. Shards are dealt to the owners in turn,
    /// and the owners that come next are a shard's backups.
    ///
    /// # Errors
    ///
    /// [`ClusterError::BadView`].
    pub fn fixed(owners: &[NodeId], shards: usize, backups: usize) -> Result<Self, ClusterError> {
        let member = |node: &NodeId| Member { node: *node, address: String::new(), incarnation: None };
        let placement = |shard: usize| {
            let mut nodes = owners.iter().copied().cycle().skip(shard % owners.len().max(1));
            let (primary, backups) = (nodes.next()?, nodes.take(backups).collect());
            Some(Placement { primary, backups, learners: Vec::new(), lost: None })
        };
        let placements = (0..shards).map_while(placement).collect();
        let groups = u16::try_from(owners.len()).map_err(|_| bad("a node is a member twice"))?;
        Self::new(FIRST, owners.iter().map(member).collect(), placements, groups)
    }

    /// Makes the view that comes after this one. It has as many shards.
    ///
    /// # Errors
    ///
    /// [`ClusterError::BadView`].
    pub fn next(&self, members: Vec<Member>, placements: Vec<Placement>) -> Result<Self, ClusterError> {
        if placements.len() != self.placements.len() {
            return Err(bad("the number of shards never changes"));
        }
        let number =
            self.number.checked_add(1).filter(|number| *number != BETWEEN).ok_or_else(|| bad("no number is left"))?;
        let next = Self::new(number, members, placements, self.groups)?;
        Ok(Self { replaced: self.replaced.clone(), ..next })
    }

    /// Makes the view that comes after this one, in which a node listens at another address.
    ///
    /// # Errors
    ///
    /// [`ClusterError::BadView`].
    pub(super) fn with_replaced(&self, node: NodeId, address: SocketAddr) -> Result<Self, ClusterError> {
        let mut next = self.next(self.members.clone(), self.placements.clone())?;
        next.replaced.retain(|(other, _)| *other != node);
        next.replaced.push((node, address));
        Ok(next)
    }

    /// Makes the view that comes after this one, with other nodes for each group.
    ///
    /// # Errors
    ///
    /// [`ClusterError::BadView`].
    pub(super) fn placed(&self, members: Vec<Member>, of: impl Fn(u16) -> Placement) -> Result<Self, ClusterError> {
        let by_group: Vec<Placement> = (0..self.heads.len() as u16).map(of).collect();
        let placement = |head: &ShardId| by_group.get(head.index()).cloned();
        self.next(members, self.head_of.iter().filter_map(placement).collect())
    }

    /// Names the lives of its members.
    pub(super) fn of_lives(self, members: Vec<Member>) -> Self {
        debug_assert!(members.iter().map(|member| member.node).eq(self.members.iter().map(|member| member.node)));
        Self { members, ..self }
    }

    fn new(number: u32, members: Vec<Member>, placements: Vec<Placement>, groups: u16) -> Result<Self, ClusterError> {
        if !(1..=MOST_SHARDS).contains(&placements.len()) || groups == 0 {
            return Err(bad("a cluster has from 1 to 65,535 shards"));
        }
        let is_member = |node: &NodeId| members.iter().any(|member| member.node == *node);
        let head = |shard: usize| shard % usize::from(groups);
        for (number, placement) in placements.iter().enumerate() {
            if !placement.nodes().all(|node| is_member(&node)) {
                return Err(bad("a shard is at a node that is not a member"));
            }
            if placement.nodes().enumerate().any(|(at, node)| placement.nodes().take(at).any(|other| other == node)) {
                return Err(bad("a node has a shard twice"));
            }
            if placement.lost.is_some() && placement.nodes().next().is_some() {
                return Err(bad("a shard is lost, and at a node"));
            }
            if *placement != placements[head(number)] {
                return Err(bad("shards of one group are at different nodes"));
            }
        }
        let mut nodes = members.iter().enumerate();
        if nodes.any(|(at, member)| members[..at].iter().any(|other| other.node == member.node)) {
            return Err(bad("a node is a member twice"));
        }
        let head_of = (0..placements.len()).map(|shard| ShardId(head(shard) as u16)).collect::<Vec<_>>();
        let heads = head_of.iter().take(groups.into()).copied().collect();
        let has_lost = placements.iter().any(|placed| placed.lost.is_some());
        Ok(Self { number, members, placements, groups, heads, head_of, has_lost, replaced: Vec::new() })
    }

    /// Returns the number. Of two views, the one with the higher number is the newer one.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the node that leads the view: its first member.
    pub(super) fn leader(&self) -> NodeId {
        self.members[0].node
    }

    /// Returns the nodes that serve shards, or back them up. The first one's clock is the
    /// cluster's.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Returns where each shard is, in the order of their numbers.
    #[must_use]
    pub fn placements(&self) -> &[Placement] {
        &self.placements
    }

    /// Returns the node that serves a shard, or did so before it was [lost](Self::is_lost). `None`
    /// if there is no such shard.
    #[must_use]
    pub fn primary(&self, shard: ShardId) -> Option<NodeId> {
        self.placements.get(shard.index()).map(|placement| placement.primary)
    }

    /// Returns the nodes that back a shard up. None do if there is no such shard.
    #[must_use]
    pub fn backups(&self, shard: ShardId) -> &[NodeId] {
        self.placements.get(shard.index()).map_or(&[], |placement| &placement.backups)
    }

    /// Returns the nodes that are going to back a shard up.
    pub(super) fn learners(&self, shard: ShardId) -> &[NodeId] {
        self.placements.get(shard.index()).map_or(&[], |placement| &placement.learners)
    }

    /// Returns how many groups the shards are dealt to.
    pub(super) fn groups(&self) -> u16 {
        self.groups
    }

    /// Returns the number under which nodes have a table's rows of a shard: each group's are in a
    /// table of their own. Those that every node [has](ShardId::HERE) come first.
    pub(super) fn store_of(&self, table: u16, shard: ShardId) -> u16 {
        let group = self.head_of.get(shard.index()).map(|head| head.0);
        store_of(table, group, self.groups)
    }

    /// Returns the first shard of a shard's group: what is in the same tables has one name.
    pub(super) fn head(&self, shard: ShardId) -> ShardId {
        self.head_of.get(shard.index()).copied().unwrap_or(shard)
    }

    /// Returns whether a node serves a shard, or has it [here](ShardId::HERE), since it is the one
    /// that asks.
    pub(super) fn is_here(&self, shard: ShardId, node: NodeId) -> bool {
        self.primary(shard).is_none_or(|primary| primary == node)
    }

    /// Returns the nodes that were replaced, and the address at which each listens since then.
    pub(super) fn replaced(&self) -> &[(NodeId, SocketAddr)] {
        &self.replaced
    }

    /// Returns the address at which a node listens that was replaced. `None` if it never was.
    pub(super) fn address_of(&self, node: NodeId) -> Option<SocketAddr> {
        self.replaced.iter().find(|(other, _)| *other == node).map(|(_, address)| *address)
    }

    /// Returns whether a node is a member.
    #[must_use]
    pub fn has(&self, node: NodeId) -> bool {
        self.members.iter().any(|member| member.node == node)
    }

    /// Returns a shard of each group that has rows of a range.
    pub(super) fn heads_of(&self, reach: Reach) -> impl Iterator<Item = ShardId> {
        let (one, all): (_, &[ShardId]) = match reach {
            Reach::One(shard) => (Some(shard), &[]),
            Reach::All => (None, &self.heads),
        };
        one.into_iter().chain(all.iter().copied())
    }

    /// Returns which incarnation of a node is meant. `None`: whichever is met.
    pub(super) fn incarnation(&self, node: NodeId) -> Option<Incarnation> {
        self.members.iter().find(|member| member.node == node)?.incarnation
    }

    /// Returns whether a life of a node is a member.
    pub(super) fn has_life(&self, node: NodeId, life: Incarnation) -> bool {
        self.has(node) && self.incarnation(node).is_none_or(|named| named == life)
    }

    /// Returns whether another life of a node is a member than this one.
    pub(super) fn has_other_life(&self, node: NodeId, life: Incarnation) -> bool {
        self.has(node) && !self.has_life(node, life)
    }

    /// Returns the number of a shard's group.
    pub(super) fn group_of(&self, shard: ShardId) -> Option<u16> {
        self.head_of.get(shard.index()).map(|head| head.0)
    }

    /// Returns whether a node serves a group.
    pub(super) fn serves(&self, node: NodeId, group: u16) -> bool {
        self.placement(group).is_some_and(|placed| placed.server() == Some(node))
    }

    /// Returns where a group's shards are. `None` if it has none.
    pub(super) fn placement(&self, group: u16) -> Option<&Placement> {
        self.placements.get(usize::from(group)).filter(|_| group < self.groups)
    }
}

/// Returns the number under which nodes have a group's rows of a table, or those that every node
/// has.
pub(super) const fn store_of(table: u16, group: Option<u16>, groups: u16) -> u16 {
    let place = match group {
        Some(group) => group + 1,
        None => 0,
    };
    table * (groups + 1) + place
}

/// Returns the error for a view that cannot be.
fn bad(why: &'static str) -> ClusterError {
    ClusterError::BadView { why }
}

#[cfg(test)]
mod tests;
