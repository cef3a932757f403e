//! Explores all that can happen to the leases of three nodes within some time: which messages
//! arrive when, in every order, with the fastest and the slowest clocks.

use std::{
    collections::{BTreeSet, HashSet},
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
};

use super::*;

/// By how much clocks drift here: a tenth.
const DRIFT: u32 = 100_000;

/// How far a clock gets in a moment of true time: the slowest and the fastest that terms allow.
const SPEEDS: [u64; 2] = [9, 11];

/// Moments of true time that are explored, from the first at which nothing is promised any more.
const MOMENTS: std::ops::RangeInclusive<u64> = 3..=6;

/// Heartbeats of the leader in that time, to both.
const BEATS: u64 = 3;

/// The leader is node 0.
const OTHERS: [u32; 2] = [1, 2];

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    moment: u64,
    speeds: [u64; 3],
    leader: LeaderLeases,
    members: [MemberLease; 2],
    beats: BTreeSet<(u32, Heartbeat)>,
    pongs: BTreeSet<(u32, u64)>,
    /// Which nodes have acknowledged another view.
    acknowledged: BTreeSet<u32>,
}

fn terms(fault: Option<Mutation>) -> LeaseTerms {
    LeaseTerms { lease: Duration::from_nanos(16), promise: Duration::from_nanos(22), drift: DRIFT, fault }
}

impl World {
    fn new(terms: LeaseTerms, speeds: [u64; 3]) -> Self {
        Self {
            moment: *MOMENTS.start(),
            speeds,
            leader: LeaderLeases::new(terms, OTHERS),
            // They have been here for long.
            members: OTHERS.map(|_| MemberLease::new(terms, Duration::ZERO)),
            beats: BTreeSet::new(),
            pongs: BTreeSet::new(),
            acknowledged: BTreeSet::new(),
        }
    }

    fn now(&self, node: u32) -> Duration {
        Duration::from_nanos(self.moment * self.speeds[node as usize])
    }

    fn member(&self, node: u32) -> &MemberLease {
        &self.members[node as usize - 1]
    }

    /// What goes wrong: a node that serves although its shards may be open elsewhere.
    fn wrong(&self) -> Option<&'static str> {
        let serves = |node: u32| !self.acknowledged.contains(&node) && self.member(node).holds(self.now(node));
        if may_open(3, self.acknowledged.len()) {
            if !self.acknowledged.contains(&0) && self.leader.holds(self.now(0)) {
                return Some("the former leader serves");
            }
            if OTHERS.into_iter().any(serves) {
                return Some("a member of the former view serves");
            }
        }
        let has_ended = |node: u32| self.leader.has_ended(self.now(0), node);
        if OTHERS.into_iter().any(|node| has_ended(node) && serves(node)) {
            return Some("an evicted member serves");
        }
        None
    }

    /// Returns all that can happen next.
    fn next(&self) -> Vec<Self> {
        let mut next = Vec::new();
        let mut then = |change: &dyn Fn(&mut Self)| {
            let mut world = self.clone();
            change(&mut world);
            next.push(world);
        };
        if self.moment < *MOMENTS.end() {
            then(&|world| world.moment += 1);
        }
        if self.leader.may_acknowledge(self.now(0)) && !self.acknowledged.contains(&0) {
            then(&|world| {
                world.acknowledged.insert(0);
            });
        }
        for node in OTHERS {
            let has_beat = self.beats.iter().any(|(to, _)| *to == node);
            // One heartbeat is under way to a node. Those that are lost stay so for ever.
            if !has_beat && self.leader.beats < BEATS && !self.acknowledged.contains(&0) {
                then(&|world| {
                    let beat = world.leader.beat(world.now(0), node);
                    world.beats.insert((node, beat));
                });
            }
            let may_acknowledge = self.member(node).may_acknowledge(self.now(node));
            if may_acknowledge && !self.acknowledged.contains(&node) {
                then(&|world| {
                    world.acknowledged.insert(node);
                });
            }
            // One is evicted: the other is like it, with the other's clock.
            if node == 1 && !self.leader.members[&node].is_evicted {
                then(&|world| world.leader.evict(node));
            }
        }
        for (to, beat) in &self.beats {
            then(&|world| {
                world.beats.remove(&(*to, *beat));
                if !world.acknowledged.contains(to) {
                    let now = world.now(*to);
                    let pong = world.members[*to as usize - 1].hear(now, *beat);
                    world.pongs.insert((*to, pong));
                }
            });
        }
        for (from, number) in &self.pongs {
            then(&|world| {
                world.pongs.remove(&(*from, *number));
                if !world.acknowledged.contains(&0) {
                    world.leader.hear(world.now(0), *from, *number);
                }
            });
        }
        next
    }
}

/// What an exploration has seen.
#[derive(Debug, Default)]
struct Seen {
    /// Worlds, by their hashes.
    worlds: HashSet<u64>,
    wrong: Option<&'static str>,
    /// Whether a member had a lease, another view was in force, and an eviction had ended.
    served: bool,
    opened: bool,
    evicted: bool,
}

impl Seen {
    /// Explores every world that can come of one, up to the first that is wrong.
    fn explore(&mut self, world: &World) {
        if self.wrong.is_some() || !self.worlds.insert(BuildHasherDefault::<DefaultHasher>::default().hash_one(world)) {
            return;
        }
        self.served |= OTHERS.into_iter().any(|node| world.member(node).holds(world.now(node)));
        self.opened |= may_open(3, world.acknowledged.len());
        self.evicted |= world.leader.has_ended(world.now(0), 1) && !world.leader.members[&1].lease_until.is_zero();
        self.wrong = world.wrong();
        world.next().iter().for_each(|next| self.explore(next));
    }
}

fn explore(fault: Option<Mutation>, speeds: [u64; 3]) -> Seen {
    let mut seen = Seen::default();
    seen.explore(&World::new(terms(fault), speeds));
    seen
}

/// Returns clocks of every kind. First those in which a member's clock is not the leader's.
fn all_speeds() -> impl Iterator<Item = [u64; 3]> {
    [4, 1, 2, 3, 5, 6, 0, 7].into_iter().map(speeds)
}

fn speeds(kind: usize) -> [u64; 3] {
    [0, 1, 2].map(|node| SPEEDS[kind >> node & 1])
}

#[test]
fn nothing_opens_while_anything_of_the_former_view_serves() {
    for speeds in all_speeds().take(drtm_testing::long(8, 2)) {
        let seen = explore(None, speeds);
        assert_eq!(seen.wrong, None, "{speeds:?}");
        assert!(seen.served && seen.opened && seen.evicted, "{speeds:?}: {seen:?}");
        println!("{speeds:?}: {} worlds", seen.worlds.len());
    }
}

#[test]
fn faults_are_found() {
    for fault in [Mutation::DriftIgnored, Mutation::AuthorityIgnored, Mutation::PromiseFromPong] {
        assert!(all_speeds().any(|speeds| explore(Some(fault), speeds).wrong.is_some()), "{fault:?}");
    }
}

#[test]
fn a_majority_and_what_may_open_have_a_node_in_common() {
    for members in 1..100 {
        let majority = members / 2 + 1;
        let least = (0..=members).find(|count| may_open(members, *count)).expect("all are enough");
        assert_eq!(majority + least, members + 1);
        let mut leader = LeaderLeases::new(terms(None), 1..members as u32);
        for node in 1..majority as u32 {
            assert_eq!(leader.authority(), None);
            let beat = leader.beat(Duration::ZERO, node);
            leader.hear(Duration::ZERO, node, beat.number);
        }
        assert!(leader.authority().is_some());
    }
}

#[test]
fn times_are_rounded_to_the_safe_side() {
    let terms = LeaseTerms { drift: 200, ..terms(None) };
    for nanoseconds in (0..10_000).chain([u64::MAX / 2, u64::MAX]) {
        let time = Duration::from_nanos(nanoseconds);
        assert!(terms.longest(terms.shortest(time)) <= time);
        assert!(terms.shortest(time) <= time && time <= terms.longest(time));
    }
}
