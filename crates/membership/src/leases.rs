//! Leases between the members of a view and its leader, by clocks that drift.
//!
//! Two things are lent, and both end by themselves:
//!
//! - A member *promises* not to acknowledge another view for some time. As long as a majority's
//!   promises last, the leader has authority: no other view can be in force.
//! - The leader grants a *lease* to each member, within its authority. A member serves while its
//!   lease lasts.
//!
//! So whoever opens a shard of an evicted node has waited for its lease in one of two ways. The
//! leader of the view knows until when the leases that it has granted can last
//! ([`LeaderLeases::has_ended`]). Another leader needs acknowledgements of as many members as have
//! one in common with every majority ([`may_open`]): a promise of that one has ended, so the former
//! leader's authority has, and with it all leases.
//!
//! Clocks are monotone, and differ in speed by at most a stated share. Each interval is counted
//! from a moment that is certainly early by whoever relies on it, and from one that is certainly
//! late by whoever waits for its end. Nothing here reads a clock: time is an argument.
//!
//! ```text
//! leader   heartbeat 1 ----.              ,-> promise counts from the heartbeat's sending
//!                           \            /
//! member                     `-> pong 1 '     lease counts from the pong's sending <-.
//!                                                                                    |
//! leader   heartbeat 2 with a lease for pong 1 --------------------------------------'
//! ```

use std::{collections::BTreeMap, time::Duration};

use crate::mutation::Mutation;

/// What leases are counted by. All nodes of a cluster have the same.
///
/// # Example
///
/// See [`LeaderLeases`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LeaseTerms {
    /// How long a member serves after its last pong, by its own clock.
    pub lease: Duration,
    /// How long a member acknowledges no other view after its last pong, by its own clock. Longer
    /// than a lease by the slowest clock.
    pub promise: Duration,
    /// By how many millionths a clock is faster or slower than true time, at most.
    pub drift: u32,
    #[doc(hidden)]
    pub fault: Option<Mutation>,
}

const MILLION: u128 = 1_000_000;

impl LeaseTerms {
    /// Makes terms for leases of some time, with promises of twice as long: a leader grants whole
    /// leases while heartbeats take less than a lease. Clocks drift by 200 millionths at most.
    #[must_use]
    pub fn new(lease: Duration) -> Self {
        Self { lease, promise: 2 * lease, drift: 200, fault: None }
    }

    /// Returns how long another clock's time can be by this one, at most.
    fn longest(&self, time: Duration) -> Duration {
        if self.fault == Some(Mutation::DriftIgnored) {
            return time;
        }
        let (slow, fast) = self.speeds();
        nanoseconds((time.as_nanos() * fast).div_ceil(slow))
    }

    /// Returns how long another clock's time can be by this one, at least.
    fn shortest(&self, time: Duration) -> Duration {
        if self.fault == Some(Mutation::DriftIgnored) {
            return time;
        }
        let (slow, fast) = self.speeds();
        nanoseconds(time.as_nanos() * slow / fast)
    }

    /// Returns how far the slowest clock and the fastest one get in the same time.
    fn speeds(&self) -> (u128, u128) {
        let drift = u128::from(self.drift).min(MILLION - 1);
        (MILLION - drift, MILLION + drift)
    }
}

/// Returns a time of so many nanoseconds, or the longest that there is.
fn nanoseconds(count: u128) -> Duration {
    u64::try_from(count).map_or(Duration::MAX, Duration::from_nanos)
}

/// What a leader tells a member again and again.
///
/// # Example
///
/// See [`LeaderLeases`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Heartbeat {
    /// The number of the heartbeat. The member's pong repeats it.
    pub number: u64,
    /// The pong that a lease counts from, and its length. `None`: no lease is granted.
    pub grant: Option<(u64, Duration)>,
}

/// Returns whether a new view is in force: whether enough of the former view's `members` have
/// acknowledged it for every majority to have one of them.
///
/// # Example
///
/// ```
/// use drtm_membership::may_open;
///
/// assert!(may_open(3, 2) && !may_open(3, 1));
/// assert!(may_open(2, 1), "the other one has no majority without it");
/// ```
#[must_use]
pub fn may_open(members: usize, acknowledged: usize) -> bool {
    acknowledged >= members - members / 2
}

/// The leases of a view, as its leader keeps them. The next view has others.
///
/// # Example
///
/// ```
/// use std::time::Duration;
///
/// use drtm_membership::{LeaderLeases, LeaseTerms, MemberLease};
///
/// let at = Duration::from_millis;
/// let terms = LeaseTerms::new(at(100));
/// let mut leader = LeaderLeases::new(terms, [1, 2]);
/// let mut member = MemberLease::new(terms, at(7000));
///
/// // A heartbeat, and the pong with which the member promises something.
/// let pong = member.hear(at(7001), leader.beat(at(50), 1));
/// leader.hear(at(52), 1, pong);
/// assert!(leader.holds(at(53)), "it and one member are a majority of three");
///
/// // The next heartbeat has the lease.
/// member.hear(at(7006), leader.beat(at(55), 1));
/// assert!(member.holds(at(7100)) && !member.holds(at(7101)));
///
/// // The member is evicted, but not before its lease has ended by the slowest clock.
/// leader.evict(1);
/// assert!(!leader.has_ended(at(152), 1) && leader.has_ended(at(153), 1));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaderLeases {
    terms: LeaseTerms,
    members: BTreeMap<u32, Granted>,
    beats: u64,
    /// When heartbeats were sent, of those whose pongs still promise anything.
    sent: BTreeMap<u64, Duration>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Granted {
    /// Until when the member acknowledges no other view, at least.
    promised_until: Option<Duration>,
    /// The last pong, and when it arrived.
    pong: Option<(u64, Duration)>,
    /// Until when the member can have a lease, at most.
    lease_until: Duration,
    /// When the node was heard of last.
    heard: Duration,
    is_evicted: bool,
    /// Whether it is no member: it promises nothing that counts.
    is_guest: bool,
}

impl LeaderLeases {
    /// Makes the leases of a view. `others` are its members but for the leader.
    #[must_use]
    pub fn new(terms: LeaseTerms, others: impl IntoIterator<Item = u32>) -> Self {
        let members = others.into_iter().map(|node| (node, Granted::default())).collect();
        Self { terms, members, beats: 0, sent: BTreeMap::new() }
    }

    /// Makes the heartbeat that is sent to a member now. It has a lease if the member's last pong
    /// and the leader's authority allow one.
    pub fn beat(&mut self, now: Duration, to: u32) -> Heartbeat {
        self.beats += 1;
        let (number, authority) = (self.beats, self.authority());
        self.sent.retain(|_, sent| *sent + self.terms.promise > now);
        self.sent.insert(number, now);
        let member = self.members.get_mut(&to).filter(|member| !member.is_evicted);
        let grant = member.and_then(|member| {
            let (pong, arrived) = member.pong?;
            let lasts = match self.terms.fault {
                Some(Mutation::AuthorityIgnored) => self.terms.lease,
                _ => self.terms.shortest(authority?.checked_sub(arrived)?).min(self.terms.lease),
            };
            // It counts from the pong, which was sent before it arrived.
            member.lease_until = member.lease_until.max(arrived + self.terms.longest(lasts));
            Some((pong, lasts))
        });
        Heartbeat { number, grant }
    }

    /// Takes note of a member's pong, which repeats a heartbeat's number.
    pub fn hear(&mut self, now: Duration, from: u32, number: u64) {
        let (Some(member), Some(sent)) = (self.members.get_mut(&from), self.sent.get(&number)) else { return };
        let begins = if self.terms.fault == Some(Mutation::PromiseFromPong) { now } else { *sent };
        member.promised_until = member.promised_until.max(Some(begins + self.terms.shortest(self.terms.promise)));
        member.heard = now;
        if member.pong.is_none_or(|(before, _)| before < number) {
            member.pong = Some((number, now));
        }
    }

    /// Answers a node that asks for a lease: takes note of its pong, if it has heard a heartbeat
    /// (not zero), and makes the next one. One that is no member gets leases, too, and promises
    /// nothing.
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use drtm_membership::{LeaderLeases, LeaseTerms, MemberLease};
    ///
    /// let at = Duration::from_millis;
    /// let terms = LeaseTerms::new(at(100));
    /// let mut leader = LeaderLeases::new(terms, [1]);
    /// let mut nodes = [1, 7].map(|node| (node, MemberLease::new(terms, at(0)), 0));
    /// for now in [10, 20, 30] {
    ///     for (node, lease, heard) in &mut nodes {
    ///         *heard = lease.hear(at(now), leader.answer(at(now), *node, *heard));
    ///     }
    /// }
    /// assert!(nodes.iter().all(|(_, lease, _)| lease.holds(at(100))));
    /// assert_eq!(leader.silent(at(140), at(0)).collect::<Vec<_>>(), [1, 7]);
    /// ```
    pub fn answer(&mut self, now: Duration, from: u32, heard: u64) -> Heartbeat {
        let guest = || Granted { is_guest: true, ..Granted::default() };
        self.members.entry(from).or_insert_with(guest).heard = now;
        self.hear(now, from, heard);
        self.beat(now, from)
    }

    /// Notes that a node has asked, which is answered nothing now: it is not silent.
    pub fn note_asked(&mut self, now: Duration, from: u32) {
        if let Some(member) = self.members.get_mut(&from) {
            member.heard = now;
        }
    }

    /// Returns the nodes that have not [asked](Self::answer) for longer than a lease, of those that
    /// were not evicted. Members count from when it began, at least.
    pub fn silent(&self, now: Duration, began: Duration) -> impl Iterator<Item = u32> {
        let is_silent = move |member: &Granted| now > member.heard.max(began) + self.terms.lease;
        let silent = self.members.iter().filter(move |(_, member)| !member.is_evicted && is_silent(member));
        silent.map(|(node, _)| *node)
    }

    /// Goes on in the leader's next view, with these members besides. What was granted and promised
    /// stays so.
    pub fn renew(&mut self, others: impl IntoIterator<Item = u32>) {
        self.members.retain(|_, member| {
            member.is_guest = true;
            !member.is_evicted
        });
        for node in others {
            self.members.entry(node).or_default().is_guest = false;
        }
    }

    /// Returns until when the leader has authority: until when a majority, with it, acknowledges
    /// no other view. `None` if it has none.
    #[must_use]
    pub fn authority(&self) -> Option<Duration> {
        let members = self.members.values().filter(|member| !member.is_guest);
        let mut promised: Vec<Option<Duration>> = members.map(|member| member.promised_until).collect();
        promised.sort_unstable_by(|a, b| b.cmp(a));
        match promised.len().div_ceil(2) {
            0 => Some(Duration::MAX),
            others => promised[others - 1],
        }
    }

    /// Returns whether the leader itself may serve now.
    #[must_use]
    pub fn holds(&self, now: Duration) -> bool {
        self.authority().is_some_and(|until| now < until)
    }

    /// Returns whether the leader may acknowledge another view now: its authority has ended, and
    /// with it all leases that it has granted. Then it sends no heartbeat of this view any more.
    #[must_use]
    pub fn may_acknowledge(&self, now: Duration) -> bool {
        !self.holds(now)
    }

    /// Grants a member no lease any more.
    pub fn evict(&mut self, node: u32) {
        if let Some(member) = self.members.get_mut(&node) {
            member.is_evicted = true;
        }
    }

    /// Returns whether a member that is [evicted](Self::evict) certainly has no lease any more.
    #[must_use]
    pub fn has_ended(&self, now: Duration, node: u32) -> bool {
        self.members.get(&node).is_none_or(|member| member.is_evicted && now >= member.lease_until)
    }
}

/// A member's lease, and its promise, as the member keeps them.
///
/// # Example
///
/// See [`LeaderLeases`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MemberLease {
    terms: LeaseTerms,
    /// When pongs were sent, of those that a lease can still count from.
    sent: BTreeMap<u64, Duration>,
    lease_until: Duration,
    promised_until: Duration,
}

impl MemberLease {
    /// Makes the state of a node that has just started. It may have promised something in its
    /// former life, or have granted leases as a leader, and waits as long as these last.
    #[must_use]
    pub fn new(terms: LeaseTerms, now: Duration) -> Self {
        Self { terms, sent: BTreeMap::new(), lease_until: Duration::ZERO, promised_until: now + terms.promise }
    }

    /// Takes a heartbeat of the leader's, and returns the number that the pong repeats.
    ///
    /// It is not called for a view that is no longer the member's: after it has acknowledged
    /// another one, the member promises nothing to this one's leader.
    pub fn hear(&mut self, now: Duration, heartbeat: Heartbeat) -> u64 {
        let granted = heartbeat.grant.and_then(|(pong, lasts)| Some(*self.sent.get(&pong)? + lasts));
        self.lease_until = self.lease_until.max(granted.unwrap_or_default());
        self.promised_until = self.promised_until.max(now + self.terms.promise);
        self.sent.retain(|_, sent| *sent + self.terms.lease > now);
        // A heartbeat that is repeated has two pongs, and either may arrive.
        self.sent.entry(heartbeat.number).or_insert(now);
        heartbeat.number
    }

    /// Returns until when its lease lasts.
    #[must_use]
    pub fn until(&self) -> Duration {
        self.lease_until
    }

    /// Returns whether the member may serve now.
    #[must_use]
    pub fn holds(&self, now: Duration) -> bool {
        now < self.lease_until
    }

    /// Returns whether the member may acknowledge another view now, or propose one.
    #[must_use]
    pub fn may_acknowledge(&self, now: Duration) -> bool {
        now >= self.promised_until
    }
}

#[cfg(test)]
mod tests;
