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

use std::{
    fmt,
    rc::Rc,
    sync::{
        Arc,
        atomic::{
            AtomicU32, AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
};

use drtm_rdma::{
    Incarnation, NodeId,
    rpc::{Decode, DecodeError, Encode, Reader},
};
use parking_lot::Mutex;

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
    /// The node that serves the shard.
    pub primary: NodeId,
    /// The nodes that apply what is written to it.
    pub backups: Vec<NodeId>,
}

/// Who is a member of a cluster, and where each shard is.
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
    /// For each node that serves shards, the first of them: one request for each reaches all rows.
    heads: Vec<ShardId>,
    /// For each shard, the first that its node serves.
    head_of: Vec<ShardId>,
}

/// The number of views that are configured by hand.
const FIRST: u32 = 1;

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
            Some(Placement { primary: nodes.next()?, backups: nodes.take(backups).collect() })
        };
        let placements = (0..shards).map_while(placement).collect();
        Self::new(FIRST, owners.iter().map(member).collect(), placements)
    }

    /// Makes the view that comes after this one. It has as many shards.
    ///
    /// # Errors
    ///
    /// [`ClusterError::BadView`].
    pub fn next(&self, members: Vec<Member>, placements: Vec<Placement>) -> Result<Self, ClusterError> {
        if placements.len() != self.placements.len() {
            return Err(ClusterError::BadView { why: "the number of shards never changes" });
        }
        let number = self.number.checked_add(1).ok_or(ClusterError::BadView { why: "no number is left" })?;
        Self::new(number, members, placements)
    }

    fn new(number: u32, members: Vec<Member>, placements: Vec<Placement>) -> Result<Self, ClusterError> {
        let bad = |why| Err(ClusterError::BadView { why });
        if !(1..=MOST_SHARDS).contains(&placements.len()) {
            return bad("a cluster has from 1 to 65,535 shards");
        }
        let is_member = |node: &NodeId| members.iter().any(|member| member.node == *node);
        let (mut heads, mut head_of) = (Vec::<ShardId>::new(), Vec::new());
        for (number, Placement { primary, backups }) in placements.iter().enumerate() {
            if !is_member(primary) || !backups.iter().all(is_member) {
                return bad("a shard is at a node that is not a member");
            }
            let mut others = backups.iter().enumerate();
            if backups.contains(primary) || others.any(|(at, backup)| backups[..at].contains(backup)) {
                return bad("a node has a shard twice");
            }
            let head = heads.iter().find(|head| placements[head.index()].primary == *primary).copied();
            if head.is_none() {
                heads.push(ShardId(number as u16));
            }
            head_of.push(head.unwrap_or(ShardId(number as u16)));
        }
        let mut nodes = members.iter().enumerate();
        if nodes.any(|(at, member)| members[..at].iter().any(|other| other.node == member.node)) {
            return bad("a node is a member twice");
        }
        Ok(Self { number, members, placements, heads, head_of })
    }

    /// Returns the number. Of two views, the one with the higher number is the newer one.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
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

    /// Returns the node that serves a shard. `None` if there is no such shard.
    #[must_use]
    pub fn primary(&self, shard: ShardId) -> Option<NodeId> {
        self.placements.get(shard.index()).map(|placement| placement.primary)
    }

    /// Returns the nodes that back a shard up. None do if there is no such shard.
    #[must_use]
    pub fn backups(&self, shard: ShardId) -> &[NodeId] {
        self.placements.get(shard.index()).map_or(&[], |placement| &placement.backups)
    }

    /// Returns the first of the shards that the node of a shard serves: what is one node's has one
    /// name.
    pub(super) fn head(&self, shard: ShardId) -> ShardId {
        self.head_of.get(shard.index()).copied().unwrap_or(shard)
    }

    /// Returns whether a node serves a shard, or has it [here](ShardId::HERE), since it is the one
    /// that asks.
    pub(super) fn is_here(&self, shard: ShardId, node: NodeId) -> bool {
        self.primary(shard).is_none_or(|primary| primary == node)
    }

    /// Returns whether a node is a member.
    #[must_use]
    pub fn has(&self, node: NodeId) -> bool {
        self.members.iter().any(|member| member.node == node)
    }

    /// Returns a shard of each node that has rows of a range.
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

    /// Returns the shards whose backup a node is, or whose primary, as `of` says.
    pub(super) fn shards_where(&self, of: impl Fn(&Placement) -> bool) -> impl Iterator<Item = ShardId> {
        (0..).map(ShardId).zip(&self.placements).filter(move |(_, placement)| of(placement)).map(|(shard, _)| shard)
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.members.iter().map(|member| member.node).collect::<Vec<_>>();
        write!(f, "view {} of {nodes:?} with {} shards", self.number, self.placements.len())
    }
}

impl Encode for View {
    fn encode(&self, into: &mut Vec<u8>) {
        (self.number, self.members.len() as u16, self.placements.len() as u16).encode(into);
        for Member { node, address, incarnation } in &self.members {
            (node.0, &**address, incarnation.map(|incarnation| u64::from(incarnation.0))).encode(into);
        }
        for Placement { primary, backups } in &self.placements {
            (primary.0, backups.len() as u16).encode(into);
            backups.iter().for_each(|backup| backup.0.encode(into));
        }
    }
}

impl<'a> Decode<'a> for View {
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let invalid = DecodeError::Invalid { what: "view" };
        let (number, members, shards): (u32, u16, u16) = Decode::decode(from)?;
        let member = |_| {
            let (node, address, incarnation): (u16, &str, Option<u64>) = Decode::decode(from)?;
            let number = |incarnation| u32::try_from(incarnation).map_err(|_| invalid);
            let incarnation = incarnation.map(number).transpose()?.map(Incarnation);
            Ok(Member { node: NodeId(node), address: address.to_owned(), incarnation })
        };
        let members = (0..members).map(member).collect::<Result<_, DecodeError>>()?;
        let placement = |_| {
            let (primary, backups): (u16, u16) = Decode::decode(from)?;
            let backups = (0..backups).map(|_| u16::decode(from).map(NodeId)).collect::<Result<_, _>>()?;
            Ok(Placement { primary: NodeId(primary), backups })
        };
        let placements = (0..shards).map(placement).collect::<Result<_, DecodeError>>()?;
        Self::new(number, members, placements).map_err(|_| invalid)
    }
}

/// The number that a node that closes shows instead of its view's: it serves in no view.
pub(super) const NO_VIEW: u32 = 0;

/// One more node closes, in [`Current::moment`].
const CLOSES: u64 = 1 << u32::BITS;

/// The view that a node is in. Its workers share it.
#[derive(Debug)]
pub(super) struct Current {
    /// The number of the view, to be looked at without a lock; and above it, how many other nodes
    /// have said that they close.
    moment: AtomicU64,
    /// The number of the view in which the node serves others, or [`NO_VIEW`].
    served: AtomicU32,
    view: Mutex<Arc<View>>,
}

impl Current {
    pub(super) fn new(view: View) -> Self {
        let number = view.number;
        Self { moment: AtomicU64::new(number.into()), served: AtomicU32::new(number), view: Mutex::new(Arc::new(view)) }
    }

    pub(super) fn number(&self) -> u32 {
        self.moment() as u32
    }

    /// Returns a word that changes when the view does, and when another node begins to close. Its
    /// lower half is the number of the view.
    pub(super) fn moment(&self) -> u64 {
        self.moment.load(Acquire)
    }

    /// Returns the number of the view in which the node serves others. [`NO_VIEW`]: it closes.
    pub(super) fn served(&self) -> u32 {
        self.served.load(Acquire)
    }

    /// Serves others in no view any more, and tells it before.
    ///
    /// # Errors
    ///
    /// When it cannot be told.
    pub(super) fn serve_no_more(&self, tell: impl FnOnce() -> Result<(), ClusterError>) -> Result<(), ClusterError> {
        // No view is installed meanwhile, whose number would be told after this.
        let _view = self.view.lock();
        tell()?;
        self.served.store(NO_VIEW, Release);
        Ok(())
    }

    /// Notes that another node has begun to close: workers look again at the nodes that they know.
    pub(super) fn another_closes(&self) {
        let _view = self.view.lock();
        self.moment.store(self.moment() + CLOSES, Release);
    }

    pub(super) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.lock())
    }

    /// Returns a worker's own copy, which it counts the users of.
    pub(super) fn copy(&self) -> Rc<View> {
        Rc::new((*self.view()).clone())
    }

    /// Installs a view if it is newer than the present one, and tells its number unless the node
    /// closes. Returns whether it is newer.
    ///
    /// # Errors
    ///
    /// [`ClusterError::BadView`] if it has another number of shards; or when its number cannot be
    /// told.
    pub(super) fn install(
        &self,
        next: View,
        tell: impl FnOnce(u32) -> Result<(), ClusterError>,
    ) -> Result<bool, ClusterError> {
        let mut view = self.view.lock();
        if next.placements.len() != view.placements.len() {
            return Err(ClusterError::BadView { why: "the number of shards never changes" });
        }
        let is_newer = next.number > view.number;
        if is_newer {
            let number = next.number;
            let serves = self.served() != NO_VIEW;
            if serves {
                tell(number)?;
                self.served.store(number, Release);
            }
            *view = Arc::new(next);
            self.moment.store(self.moment() & !u64::from(u32::MAX) | u64::from(number), Release);
        }
        Ok(is_newer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners() -> [NodeId; 3] {
        [3, 1, 4].map(NodeId)
    }

    #[test]
    fn the_next_owners_are_backups() {
        let view = View::fixed(&owners(), 7, 2).expect("a view");
        assert_eq!(view.primary(ShardId(0)), Some(NodeId(3)));
        assert_eq!(view.backups(ShardId(0)), [1, 4].map(NodeId));
        assert_eq!(view.backups(ShardId(2)), [3, 1].map(NodeId));
        assert_eq!(view.primary(ShardId(6)), Some(NodeId(3)), "they are dealt in turn");
        assert_eq!(view.primary(ShardId(7)), None);
        assert_eq!(view.primary(ShardId::HERE), None);
        assert!(view.shards_where(|at| at.primary == NodeId(1)).eq([1, 4].map(ShardId)));
        assert!(view.shards_where(|at| at.backups.contains(&NodeId(9))).next().is_none());
    }

    #[test]
    fn one_request_for_each_head_reaches_all_shards() {
        let view = View::fixed(&owners(), 24, 0).expect("a view");
        assert_eq!(view.heads, [0, 1, 2].map(ShardId));
        assert_eq!([0, 4, 23].map(|shard| view.head(ShardId(shard))), [0, 1, 2].map(ShardId));
        assert_eq!(view.head(ShardId::HERE), ShardId::HERE);
        // An owner without a shard has none.
        assert_eq!(View::fixed(&owners(), 2, 0).expect("a view").heads, [0, 1].map(ShardId));
        let at_last = Placement { primary: NodeId(4), backups: Vec::new() };
        let next = view.next(view.members().to_vec(), vec![at_last; 24]).expect("a view");
        assert_eq!(next.heads, [ShardId(0)]);
    }

    #[test]
    fn bad_views_are_refused() {
        let is_bad = |view: Result<View, ClusterError>| matches!(view, Err(ClusterError::BadView { .. }));
        assert!(is_bad(View::fixed(&owners(), 0, 0)));
        assert!(is_bad(View::fixed(&owners(), MOST_SHARDS + 1, 0)));
        assert!(is_bad(View::fixed(&owners(), 3, 3)), "a backup of itself");
        assert!(is_bad(View::fixed(&[], 3, 0)));
        assert!(is_bad(View::fixed(&[NodeId(1), NodeId(1)], 2, 0)));
        let view = View::fixed(&owners(), 3, 1).expect("a view");
        assert!(is_bad(view.next(view.members()[1..].to_vec(), view.placements().to_vec())), "of no member");
        assert!(is_bad(view.next(view.members().to_vec(), view.placements()[1..].to_vec())), "fewer shards");
    }

    #[test]
    fn only_a_newer_view_is_installed() {
        let view = View::fixed(&owners(), 3, 1).expect("a view");
        let next = view.next(view.members().to_vec(), view.placements().to_vec()).expect("a view");
        let current = Current::new(view.clone());
        let told = |number: u32| {
            assert_eq!(number, next.number());
            Ok(())
        };
        assert!(!current.install(view.clone(), |_| panic!("it is not newer")).expect("as many shards"));
        assert!(current.install(next.clone(), told).expect("as many shards"));
        assert_eq!((current.number(), &*current.view()), (2, &next));
        assert!(!current.install(view, |_| panic!("it is not newer")).expect("as many shards"));
        assert_eq!(current.number(), 2);
        let other = View::fixed(&owners(), 4, 1).expect("a view");
        assert!(matches!(current.install(other, |_| panic!("it is none")), Err(ClusterError::BadView { .. })));
    }

    #[test]
    fn a_node_that_closes_serves_in_no_view_for_good() {
        let view = View::fixed(&owners(), 3, 1).expect("a view");
        let next = view.next(view.members().to_vec(), view.placements().to_vec()).expect("a view");
        let current = Current::new(view);
        assert_eq!((current.number(), current.served()), (1, 1));
        current.another_closes();
        assert_eq!((current.number(), current.moment() == 1), (1, false));
        current.serve_no_more(|| Ok(())).expect("it is told");
        assert!(current.install(next, |_| panic!("it serves in none")).expect("as many shards"));
        assert_eq!((current.number(), current.served()), (2, NO_VIEW));
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let mut view = View::fixed(&owners(), 5, 2).expect("a view");
        view.members[1] =
            Member { address: "[::1]:7".into(), incarnation: Some(Incarnation(9)), ..view.members[1].clone() };
        let mut bytes = Vec::new();
        view.encode(&mut bytes);
        let mut reader = Reader::new(&bytes);
        assert_eq!(View::decode(&mut reader), Ok(view));
        assert_eq!(reader.finish(), Ok(()));
        // No part of it is a view, and no bytes make it panic.
        for length in 0..bytes.len() {
            assert!(View::decode(&mut Reader::new(&bytes[..length])).is_err());
        }
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] = !other[at];
            let _ = View::decode(&mut Reader::new(&other));
        }
    }
}
