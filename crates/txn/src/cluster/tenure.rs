//! Until when a node may serve: its lease on the view.
//!
//! The first member of a view leads it. All other nodes, members and clients alike, ask the leader
//! for leases again and again. A member that asks promises, for a while, to acknowledge no view
//! that another node drives: as long as a majority has promised, the leader has authority, and
//! grants leases within it (`drtm_membership::leases` has the rules, and a model of them).
//!
//! A transaction that only reads is over once its reads are validated *and* this node's lease still
//! runs. So no view opens before the leases of all nodes have ended that it is without: see
//! [`Leases::have_ended`].

use std::{
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Acquire, Release},
    },
    time::Duration,
};

use drtm_membership::{Heartbeat, LeaderLeases, LeaseTerms, MemberLease};
use drtm_rdma::{NodeId, Time};
use parking_lot::Mutex;

use super::view::View;

/// A node's lease, and those that it grants.
#[derive(Debug)]
pub(super) struct Tenure {
    node: NodeId,
    pub(super) terms: LeaseTerms,
    /// Until when the node may serve, in nanoseconds of its clock.
    until: AtomicU64,
    /// Whether the view is without the node, which was a member.
    is_out: AtomicBool,
    /// Whether a worker asks for leases.
    pub(super) is_kept: AtomicBool,
    leases: Mutex<Leases>,
}

/// The leases of a view.
#[derive(Debug)]
struct Leases {
    view: u32,
    leader: NodeId,
    role: Role,
}

#[derive(Debug)]
enum Role {
    Leads {
        leases: LeaderLeases,
        /// When it was first asked in this view, or looked for silent nodes.
        began: Option<Duration>,
    },
    Follows {
        lease: Option<MemberLease>,
        /// The leader's last heartbeat.
        heard: u64,
    },
}

impl Role {
    fn of(node: NodeId, terms: LeaseTerms, view: &View) -> Self {
        if view.leader() != node {
            return Self::Follows { lease: None, heard: 0 };
        }
        Self::Leads { leases: LeaderLeases::new(terms, others(view, node)), began: None }
    }
}

fn others(view: &View, node: NodeId) -> impl Iterator<Item = u32> {
    view.members().iter().map(|member| member.node).filter(move |other| *other != node).map(|other| other.0.into())
}

/// Returns a moment as the rules count it.
fn of(time: Time) -> Duration {
    Duration::from_nanos(time.nanos())
}

impl Tenure {
    pub(super) fn new(node: NodeId, terms: LeaseTerms, view: &View) -> Self {
        let leases = Leases { view: view.number(), leader: view.leader(), role: Role::of(node, terms, view) };
        let tenure = Self {
            node,
            terms,
            until: AtomicU64::new(0),
            is_out: AtomicBool::new(false),
            is_kept: AtomicBool::new(false),
            leases: Mutex::new(leases),
        };
        tenure.note_authority(&tenure.leases.lock());
        tenure
    }

    /// Returns whether the node may serve, and return what it has read.
    #[inline]
    pub(super) fn holds(&self, now: Time) -> bool {
        now.nanos() < self.until.load(Acquire)
    }

    /// Returns whether the view is without the node, which was a member.
    pub(super) fn is_out(&self) -> bool {
        self.is_out.load(Acquire)
    }

    /// Notes that the view is without the node. Returns whether that is new.
    pub(super) fn leave(&self) -> bool {
        // It never holds a lease again.
        self.until.store(0, Release);
        !self.is_out.swap(true, Release)
    }

    /// Notes the next view. A lease is the leader's that has granted it.
    pub(super) fn enter(&self, next: &View) {
        let mut leases = self.leases.lock();
        leases.view = next.number();
        let stays = std::mem::replace(&mut leases.leader, next.leader()) == next.leader();
        match &mut leases.role {
            Role::Leads { leases, began } if stays => {
                leases.renew(others(next, self.node));
                // None was heard while the view changed.
                *began = None;
            }
            Role::Follows { .. } if stays => {}
            role => {
                self.until.store(0, Release);
                *role = Role::of(self.node, self.terms, next);
            }
        }
        self.note_authority(&leases);
    }

    /// Serves until when it has authority, if it leads.
    fn note_authority(&self, leases: &Leases) {
        if let Role::Leads { leases, .. } = &leases.role
            && !self.is_out()
        {
            let until = leases.authority().unwrap_or_default();
            self.until.store(u64::try_from(until.as_nanos()).unwrap_or(u64::MAX), Release);
        }
    }

    /// Returns the leader of the view that the node is in, the view's number, and the last
    /// heartbeat that this node has heard of it. `None`: it leads itself.
    pub(super) fn to_ask(&self) -> Option<(NodeId, u32, u64)> {
        let leases = self.leases.lock();
        match leases.role {
            Role::Leads { .. } => None,
            Role::Follows { heard, .. } => Some((leases.leader, leases.view, heard)),
        }
    }

    /// Notes what the leader of a view has answered.
    pub(super) fn hear(&self, now: Time, view: u32, heartbeat: Heartbeat) {
        let mut leases = self.leases.lock();
        if leases.view != view || self.is_out() {
            return;
        }
        if let Role::Follows { lease, heard } = &mut leases.role {
            let lease = lease.get_or_insert_with(|| MemberLease::new(self.terms, of(now)));
            *heard = lease.hear(of(now), heartbeat);
            let until = u64::try_from(lease.until().as_nanos()).unwrap_or(u64::MAX);
            self.until.store(until, Release);
        }
    }

    /// Answers another node that asks for a lease on a view, and has heard a heartbeat last. `None`
    /// if this node does not lead that view.
    pub(super) fn grant(&self, now: Time, view: u32, (to, heard): (NodeId, u64)) -> Option<Heartbeat> {
        let mut leases = self.leases.lock();
        if leases.view != view || self.is_out() {
            return None;
        }
        let Role::Leads { leases: granted, began } = &mut leases.role else { return None };
        began.get_or_insert(of(now));
        let heartbeat = granted.answer(of(now), to.0.into(), heard);
        self.note_authority(&leases);
        Some(heartbeat)
    }

    /// Notes that another node has asked for a lease, which it is not granted now.
    pub(super) fn note_asked(&self, now: Time, by: NodeId) {
        if let Role::Leads { leases, .. } = &mut self.leases.lock().role {
            leases.note_asked(of(now), by.0.into());
        }
    }

    /// Returns whether this node may acknowledge a view that another one drives: it has promised
    /// nothing to anybody else, or that has ended `before` now.
    pub(super) fn is_free(&self, now: Time, before: Duration, driver: NodeId) -> bool {
        let mut leases = self.leases.lock();
        let is_leader = driver == leases.leader;
        let then = of(now).saturating_sub(before);
        match &mut leases.role {
            Role::Leads { leases, .. } => is_leader || leases.may_acknowledge(then),
            Role::Follows { lease, .. } => {
                let lease = lease.get_or_insert_with(|| MemberLease::new(self.terms, of(now)));
                is_leader || lease.may_acknowledge(then)
            }
        }
    }

    /// Returns the nodes, if this one leads, that have not asked for longer than a lease.
    pub(super) fn silent(&self, now: Time) -> Vec<NodeId> {
        let mut leases = self.leases.lock();
        let Role::Leads { leases, began } = &mut leases.role else { return Vec::new() };
        let began = *began.get_or_insert(of(now));
        let silent = leases.silent(of(now), began);
        silent.filter_map(|node| u16::try_from(node).ok().map(NodeId)).collect()
    }

    /// Grants these nodes no lease any more.
    pub(super) fn evict(&self, nodes: impl Iterator<Item = NodeId>) {
        if let Role::Leads { leases, .. } = &mut self.leases.lock().role {
            nodes.for_each(|node| leases.evict(node.0.into()));
        }
    }

    /// Returns whether a node that was evicted has no lease any more. `None` if this node does not
    /// lead, and cannot know.
    pub(super) fn has_ended(&self, now: Time, node: NodeId) -> Option<bool> {
        match &self.leases.lock().role {
            Role::Leads { leases, .. } => Some(leases.has_ended(of(now), node.0.into())),
            Role::Follows { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_millis(10);

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn view() -> View {
        View::fixed(&[0, 1, 2].map(NodeId), 3, 1).expect("a view")
    }

    fn tenure(node: u16) -> Tenure {
        Tenure::new(NodeId(node), LeaseTerms::new(LEASE), &view())
    }

    fn asks(follower: &Tenure, leader: &Tenure, now: Time) {
        let (_, view, heard) = follower.to_ask().expect("it follows");
        let heartbeat = leader.grant(now, view, (follower.node, heard)).expect("it leads");
        follower.hear(now, view, heartbeat);
    }

    #[test]
    fn leases_come_of_promises() {
        let (leader, follower, client) = (tenure(0), tenure(1), tenure(7));
        assert!(leader.to_ask().is_none() && !leader.holds(at(100)));
        asks(&follower, &leader, at(100));
        asks(&client, &leader, at(100));
        assert!(!leader.holds(at(101)), "a client is no member");
        asks(&follower, &leader, at(101));
        assert!(leader.holds(at(102)) && follower.holds(at(102)));
        asks(&client, &leader, at(102));
        assert!(client.holds(at(103)));
        assert!(!follower.holds(at(111)), "it ends by itself");
        assert!(!follower.is_free(at(110), Duration::ZERO, NodeId(2)), "it has promised");
        assert!(follower.is_free(at(110), Duration::ZERO, NodeId(0)), "not against the leader");
        assert!(follower.is_free(at(122), Duration::ZERO, NodeId(2)));
        assert!(!follower.is_free(at(122), LEASE, NodeId(2)));
    }

    #[test]
    fn a_silent_node_is_out_once_its_lease_has_ended() {
        let (leader, [one, two]) = (tenure(0), [1, 2].map(tenure));
        for now in [100, 102, 104] {
            asks(&one, &leader, at(now));
            asks(&two, &leader, at(now));
        }
        for now in [106, 108, 110, 112, 114] {
            asks(&two, &leader, at(now));
        }
        assert_eq!(leader.silent(at(115)), [NodeId(1)]);
        assert!(one.holds(at(111)));
        leader.evict([NodeId(1)].into_iter());
        let (view, next) = (view(), view().without(&view(), |node| node == NodeId(1), |_| true).expect("a view"));
        assert!(leader.grant(at(115), view.number(), (NodeId(1), 1)).is_some_and(|beat| beat.grant.is_none()));
        assert_eq!(leader.has_ended(at(113), NodeId(1)), Some(false));
        assert_eq!(leader.has_ended(at(116), NodeId(1)), Some(true));
        leader.enter(&next);
        two.enter(&next);
        assert_eq!(leader.silent(at(200)), [], "it has just begun");
        assert!(two.holds(at(115)), "the leader is the same");
        asks(&two, &leader, at(116));
        assert!(leader.holds(at(117)));
        assert!(one.leave() && !one.leave());
    }

    #[test]
    fn leases_of_another_leader_are_worth_nothing() {
        let (leader, [one, two]) = (tenure(0), [1, 2].map(tenure));
        for now in [100, 102, 104] {
            asks(&one, &leader, at(now));
            asks(&two, &leader, at(now));
        }
        let next = view().without(&view(), |node| node == NodeId(0), |_| true).expect("a view");
        one.enter(&next);
        two.enter(&next);
        assert!(!two.holds(at(105)) && !one.holds(at(105)) && one.to_ask().is_none());
        assert!(leader.grant(at(105), next.number(), (NodeId(2), 0)).is_none());
        asks(&two, &one, at(106));
        asks(&two, &one, at(107));
        assert!(one.holds(at(108)) && two.holds(at(108)));
    }
}
