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
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Acquire, Release, SeqCst},
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
    /// The nodes that do so, too, and are given what was written before: they are going to be
    /// backups.
    pub learners: Vec<NodeId>,
}

impl Placement {
    /// Returns the nodes that have all rows.
    pub(super) fn replicas(&self) -> impl Iterator<Item = NodeId> {
        [self.primary].into_iter().chain(self.backups.iter().copied())
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
            Some(Placement { primary: nodes.next()?, backups: nodes.take(backups).collect(), learners: Vec::new() })
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
        Self::new(number, members, placements, self.groups)
    }

    /// Makes the view that comes after this one, without nodes that are gone. What they have
    /// served, the first backup serves that is left.
    ///
    /// # Errors
    ///
    /// [`ClusterError::ShardLost`] if no replica of a shard is left.
    pub(super) fn without(&self, is_gone: impl Fn(NodeId) -> bool) -> Result<Self, ClusterError> {
        let members = self.members.iter().filter(|member| !is_gone(member.node)).cloned().collect();
        let placement = |(number, at): (usize, &Placement)| {
            let mut left = at.replicas().filter(|node| !is_gone(*node));
            let primary = left.next().ok_or(ClusterError::ShardLost { shard: ShardId(number as u16) })?;
            let learners = at.learners.iter().copied().filter(|node| !is_gone(*node)).collect();
            Ok(Placement { primary, backups: left.collect(), learners })
        };
        let placements = self.placements.iter().enumerate().map(placement).collect::<Result<_, ClusterError>>()?;
        self.next(members, placements)
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
        Ok(Self { number, members, placements, groups, heads, head_of })
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
        self.placement(group).is_some_and(|placed| placed.primary == node)
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

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.members.iter().map(|member| member.node).collect::<Vec<_>>();
        write!(f, "view {} of {nodes:?} with {} shards", self.number, self.placements.len())
    }
}

impl Encode for View {
    fn encode(&self, into: &mut Vec<u8>) {
        (self.number, self.groups, self.members.len() as u16, self.placements.len() as u16).encode(into);
        for Member { node, address, incarnation } in &self.members {
            (node.0, &**address, incarnation.map(|incarnation| u64::from(incarnation.0))).encode(into);
        }
        for Placement { primary, backups, learners } in &self.placements {
            (primary.0, backups.len() as u16, learners.len() as u16).encode(into);
            backups.iter().chain(learners).for_each(|node| node.0.encode(into));
        }
    }
}

impl<'a> Decode<'a> for View {
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let invalid = DecodeError::Invalid { what: "view" };
        let (number, groups, members, shards): (u32, u16, u16, u16) = Decode::decode(from)?;
        let member = |_| {
            let (node, address, incarnation): (u16, &str, Option<u64>) = Decode::decode(from)?;
            let number = |incarnation| u32::try_from(incarnation).map_err(|_| invalid);
            let incarnation = incarnation.map(number).transpose()?.map(Incarnation);
            Ok(Member { node: NodeId(node), address: address.to_owned(), incarnation })
        };
        let members = (0..members).map(member).collect::<Result<_, DecodeError>>()?;
        let placement = |_| {
            let (primary, backups, learners): (u16, u16, u16) = Decode::decode(from)?;
            let mut nodes = |count| (0..count).map(|_| u16::decode(from).map(NodeId)).collect::<Result<_, _>>();
            Ok(Placement { primary: NodeId(primary), backups: nodes(backups)?, learners: nodes(learners)? })
        };
        let placements = (0..shards).map(placement).collect::<Result<_, DecodeError>>()?;
        Self::new(number, members, placements, groups).map_err(|_| invalid)
    }
}

/// The number that a node that closes shows instead of its view's: it serves in no view.
pub(super) const NO_VIEW: u32 = 0;

/// The number that a node shows while it changes to another view.
pub(super) const BETWEEN: u32 = u32::MAX;

/// One more node closes, in [`Current::moment`].
const CLOSES: u64 = 1 << u32::BITS;

/// The view that a node is in. Its workers share it.
#[derive(Debug)]
pub(super) struct Current {
    /// The number of the view, to be looked at without a lock; and above it, how many other nodes
    /// have said that they close.
    moment: AtomicU64,
    /// The number of the view, or [`BETWEEN`] while the node changes to another one: nothing of a
    /// view is served then, and no transaction is decided that has not begun to write records.
    open: AtomicU32,
    /// Whether the node closes, and serves others in no view any more.
    closes: AtomicBool,
    latest: Mutex<Latest>,
}

#[derive(Debug)]
struct Latest {
    view: Arc<View>,
    /// The view that the node has promised to change to: no older one opens.
    promised: u32,
}

impl Current {
    /// Begins in a view. If it `is_closed`, the next one opens first.
    pub(super) fn new(view: View, is_closed: bool) -> Self {
        let number = view.number;
        let latest = Latest { promised: number + u32::from(is_closed), view: Arc::new(view) };
        Self {
            moment: AtomicU64::new(number.into()),
            open: AtomicU32::new(if is_closed { BETWEEN } else { number }),
            closes: AtomicBool::new(false),
            latest: Mutex::new(latest),
        }
    }

    pub(super) fn number(&self) -> u32 {
        self.moment() as u32
    }

    /// Returns a word that changes when the view does, and when another node begins to close. Its
    /// lower half is the number of the view.
    pub(super) fn moment(&self) -> u64 {
        self.moment.load(Acquire)
    }

    /// Returns the number of the view in which the node serves others; [`NO_VIEW`] if it closes;
    /// [`BETWEEN`] if it changes to another view.
    pub(super) fn served(&self) -> u32 {
        self.shown(self.open.load(SeqCst))
    }

    /// Returns the number that others see where this one is open.
    pub(super) fn shown(&self, open: u32) -> u32 {
        if self.closes.load(Acquire) { NO_VIEW } else { open }
    }

    /// Serves others in no view any more, and tells it before.
    ///
    /// # Errors
    ///
    /// When it cannot be told.
    pub(super) fn serve_no_more(&self, tell: impl FnOnce() -> Result<(), ClusterError>) -> Result<(), ClusterError> {
        // No view is installed meanwhile, whose number would be told after this.
        let _latest = self.latest.lock();
        tell()?;
        self.closes.store(true, Release);
        Ok(())
    }

    /// Notes that another node has begun to close: workers look again at the nodes that they know.
    pub(super) fn another_closes(&self) {
        let _latest = self.latest.lock();
        self.moment.store(self.moment() + CLOSES, Release);
    }

    /// Returns whether this node's transactions of a view may be decided.
    pub(super) fn is_open(&self, view: u32) -> bool {
        self.open.load(SeqCst) == view
    }

    /// Returns whether the node changes to another view.
    pub(super) fn is_between(&self) -> bool {
        self.is_open(BETWEEN)
    }

    pub(super) fn view(&self) -> Arc<View> {
        Arc::clone(&self.latest.lock().view)
    }

    /// Leaves the view, before another one of this number, and tells it before. Returns the number
    /// of the view that is installed: nothing happens if that is not older.
    ///
    /// # Errors
    ///
    /// When it cannot be told.
    pub(super) fn suspend(
        &self,
        next: u32,
        tell: impl FnOnce() -> Result<(), ClusterError>,
    ) -> Result<u32, ClusterError> {
        let mut latest = self.latest.lock();
        if next > latest.view.number {
            tell()?;
            latest.promised = latest.promised.max(next);
            // What a worker notes before it looks at this is seen after it.
            self.open.store(BETWEEN, SeqCst);
        }
        Ok(latest.view.number)
    }

    /// Returns a worker's own copy, which it counts the users of.
    pub(super) fn copy(&self) -> Rc<View> {
        Rc::new((*self.view()).clone())
    }

    /// Installs a view if it is newer than the present one, and tells of it before: of the number
    /// that is open then. Returns whether it is newer.
    ///
    /// # Errors
    ///
    /// [`ClusterError::BadView`] if it has another number of shards or groups; or when it cannot be
    /// told of.
    pub(super) fn install(
        &self,
        next: View,
        tell: impl FnOnce(&View, u32) -> Result<(), ClusterError>,
    ) -> Result<bool, ClusterError> {
        let mut latest = self.latest.lock();
        let Latest { view, promised } = &mut *latest;
        if next.placements.len() != view.placements.len() || next.groups != view.groups {
            return Err(bad("the number of shards never changes, nor that of their groups"));
        }
        let is_newer = next.number > view.number;
        if is_newer {
            let number = next.number;
            let open = if number >= *promised { number } else { BETWEEN };
            tell(&next, open)?;
            *view = Arc::new(next);
            self.moment.store(self.moment() & !u64::from(u32::MAX) | u64::from(number), Release);
            self.open.store(open, SeqCst);
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
        assert_eq!(view.placement(1), Some(&view.placements()[4]), "so are groups");
        assert_eq!(view.placement(3), None);
    }

    #[test]
    fn one_request_for_each_head_reaches_all_shards() {
        let view = View::fixed(&owners(), 24, 0).expect("a view");
        assert_eq!(view.heads, [0, 1, 2].map(ShardId));
        assert_eq!([0, 4, 23].map(|shard| view.head(ShardId(shard))), [0, 1, 2].map(ShardId));
        assert_eq!(view.head(ShardId::HERE), ShardId::HERE);
        // An owner without a shard has none.
        assert_eq!(View::fixed(&owners(), 2, 0).expect("a view").heads, [0, 1].map(ShardId));
        // What one node has of several groups is in as many tables.
        let at_last = Placement { primary: NodeId(4), backups: Vec::new(), learners: Vec::new() };
        let next = view.next(view.members().to_vec(), vec![at_last; 24]).expect("a view");
        assert_eq!(next.heads, view.heads);
    }

    #[test]
    fn each_group_has_a_number_for_each_table() {
        let view = View::fixed(&owners(), 7, 0).expect("a view");
        let shards = || (0..3).map(ShardId).chain([ShardId::HERE]);
        let all: Vec<u16> = (0..5)
            .flat_map(|table| shards().map(move |shard| (table, shard)))
            .map(|(t, s)| view.store_of(t, s))
            .collect();
        let mut sorted = all.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<u16>>());
        assert_eq!(view.store_of(2, ShardId(1)), view.store_of(2, ShardId(4)), "of one group");
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
        let mut apart = View::fixed(&owners(), 6, 1).expect("a view").placements;
        apart[4].backups.clear();
        let view = View::fixed(&owners(), 6, 1).expect("a view");
        assert!(is_bad(view.next(view.members().to_vec(), apart)), "a group at different nodes");
    }

    #[test]
    fn only_a_newer_view_is_installed() {
        let view = View::fixed(&owners(), 3, 1).expect("a view");
        let next = view.next(view.members().to_vec(), view.placements().to_vec()).expect("a view");
        let current = Current::new(view.clone(), false);
        let told = |told: &View, open| {
            assert_eq!((told, open), (&next, 2));
            Ok(())
        };
        assert!(!current.install(view.clone(), |_, _| panic!("it is not newer")).expect("as many shards"));
        assert!(current.install(next.clone(), told).expect("as many shards"));
        assert_eq!((current.number(), &*current.view()), (2, &next));
        assert!(!current.install(view, |_, _| panic!("it is not newer")).expect("as many shards"));
        assert_eq!(current.number(), 2);
        let other = View::fixed(&owners(), 4, 1).expect("a view");
        assert!(matches!(current.install(other, |_, _| panic!("it is none")), Err(ClusterError::BadView { .. })));
        let other = View::fixed(&owners()[1..], 3, 1).expect("a view");
        assert!(matches!(current.install(other, |_, _| panic!("it is none")), Err(ClusterError::BadView { .. })));
    }

    #[test]
    fn a_view_that_is_closed_opens_with_the_one_that_was_promised() {
        let view = View::fixed(&owners(), 3, 1).expect("a view");
        let next = |view: &View| view.next(view.members().to_vec(), view.placements().to_vec()).expect("a view");
        let current = Current::new(view.clone(), false);
        assert_eq!((current.suspend(1, || panic!("it is not newer")).ok(), current.served()), (Some(1), 1));
        assert_eq!((current.suspend(3, || Ok(())).ok(), current.number()), (Some(1), 1));
        assert_eq!((current.served(), current.is_between()), (BETWEEN, true));
        let (second, third) = (next(&view), next(&next(&view)));
        let told = |_: &View, open| {
            assert_eq!(open, BETWEEN);
            Ok(())
        };
        assert!(current.install(second, told).expect("as many shards"));
        assert_eq!((current.number(), current.served()), (2, BETWEEN), "another one was promised");
        assert!(current.install(third, |_, _| Ok(())).expect("as many shards"));
        assert_eq!((current.number(), current.served(), current.is_open(3)), (3, 3, true));
    }

    #[test]
    fn a_node_that_closes_serves_in_no_view_for_good() {
        let view = View::fixed(&owners(), 3, 1).expect("a view");
        let next = view.next(view.members().to_vec(), view.placements().to_vec()).expect("a view");
        let current = Current::new(view, false);
        assert_eq!((current.number(), current.served()), (1, 1));
        current.another_closes();
        assert_eq!((current.number(), current.moment() == 1), (1, false));
        current.serve_no_more(|| Ok(())).expect("it is told");
        assert_eq!(current.suspend(2, || Ok(())).ok(), Some(1));
        assert_eq!((current.served(), current.is_between()), (NO_VIEW, true));
        assert!(current.install(next, |_, _| Ok(())).expect("as many shards"));
        assert_eq!((current.number(), current.served()), (2, NO_VIEW));
        assert!(current.is_open(2), "its own transactions go on");
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
