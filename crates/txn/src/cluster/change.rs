//! The change to the next view, when nodes have died: one node that is left drives it. Transactions
//! of all others go on by themselves.
//!
//! 1. *Prepare.* Each node closes its view: it serves nothing that binds to one, and its
//!    transactions begin no records. It closes the rings of dead producers. It is quiet once those
//!    of its own that have records are carried out, or void everywhere.
//! 2. *Votes.* What is in the rings of dead producers says which of their transactions may have
//!    been decided (`votes`).
//! 3. *Carry.* Those are carried out at the primaries that are left, where they were not.
//! 4. *Decide.* Each node notes which of them are completed, and that the others are undone. It
//!    applies what is complete, and all that living producers have written: that is settled.
//! 5. *Ready.* Each node notes that all have decided, also in its directory. From now on, and not
//!    before, the primary of a shard in the next view has all that there is of it. So if it dies,
//!    it is known whose directory has the rows.
//! 6. *Open.* The next view is installed. From then on, locks of the dead are free.
//!
//! Each step can be repeated, also by another node if the driver dies. Until step 4 is done
//! everywhere, no lock is freed of a transaction that is undone, so nothing depends on that. And
//! one that is completed is so again: fewer copies are left, and what they say does not change.
//!
//! See `docs/decisions/0103`.

mod votes;

use std::{future::Future, time::Duration};

use drtm_membership::may_open;
use drtm_rdma::{Fabric, Incarnation, NodeId, Presence, Time};

use self::votes::{Ballot, Votes};
use super::{
    ClusterError, View, Worker,
    coordinator::Coordinator,
    log::Copies,
    requests::change::{Decide, DecideOn, Known, LifeOf, Named, Prepare, PrepareFor, Report},
    wire::{Many, Wire as _},
};
use crate::{Config, Error, mutation::Mutation};

/// What a message has beside its list.
const BESIDE: usize = 128;

/// For how long a node is waited for to answer, and to let go of the view: without leases, and in
/// leases. One that does not serve would be waited for for ever.
const PATIENCE: Duration = Duration::from_secs(1);
const LEASES: u32 = 4;

/// The first and the longest pause before a node is asked again that is not ready.
const FIRST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(1);

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Worker<'e, F, S> {
    /// Changes to the next view, in which these incarnations of nodes have no part any more, since
    /// they are dead. Their transactions are carried out or undone, everywhere. Which nodes are
    /// dead is the caller's to know, and only one node may change to a view of one number. Nodes
    /// that are no members have a part in it, too, if a member has met them.
    ///
    /// # Errors
    ///
    /// [`ClusterError::ViewChanged`] if a node is in a newer view than this one, or in `next`;
    /// [`ClusterError::NotReady`] if one does not answer within a second, or does not end its
    /// transactions: it does not [serve](Self::serve), for example; or when one cannot be asked.
    /// Then it can be changed once more, also to another view, and without that node.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{
    ///     Builder, Config, Error,
    ///     cluster::Node,
    ///     htm::NoHtm,
    ///     rdma::{LocalConfig, LocalFabric, NodeId, block_on},
    /// };
    ///
    /// #[derive(Debug)]
    /// struct Plain;
    ///
    /// impl Config for Plain {
    ///     type Engine = NoHtm;
    /// }
    ///
    /// let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
    /// let builder = Builder::new().memory(16 << 20);
    /// let node = Node::<_, Plain>::builder(NoHtm, &fabric, NodeId(0), builder)?.owners([NodeId(0)])?.start()?;
    /// let endpoint = node.endpoint()?;
    /// let worker = node.worker(&endpoint)?;
    /// let view = node.view();
    /// let next = view.next(view.members().to_vec(), view.placements().to_vec())?;
    /// block_on(&endpoint, worker.change_view(next, &[]))?;
    /// assert_eq!(node.view().number(), 2);
    /// # Ok::<(), Error>(())
    /// ```
    pub async fn change_view(&self, next: View, dead: &[(NodeId, Incarnation)]) -> Result<(), Error> {
        self.inner.change(next, dead).await
    }
}

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Changes to a later view.
    pub(super) async fn change(&self, next: View, dead: &[(NodeId, Incarnation)]) -> Result<(), Error> {
        let base = self.node.view.view();
        if next.number() <= base.number() {
            return Err(ClusterError::ViewChanged { node: self.id(), view: base.number() }.into());
        }
        let mut dead = dead.to_vec();
        let nodes = self.prepare_all((&base, &next), &mut dead).await?;
        let (nodes, dead) = (&nodes[..], &dead[..]);
        if S::has(Mutation::UnlockedBeforeCarried) {
            // In which they are swept.
            self.endpoint().sleep(Duration::from_millis(2)).await;
        }
        let mut votes = Votes::default();
        for node in nodes {
            let report = self.in_time(*node, self.patience(), self.report_of(*node)).await?;
            votes.add(*node, &report);
        }
        let count = self.node.log.copies;
        let complete = votes.complete((&base, nodes), |coordinator| Copies { coordinator, count }, S::has);
        for ballot in &complete {
            let mut carried = Vec::new();
            for record in ballot.records() {
                let primary = |shard| base.primary(shard).filter(|primary| nodes.contains(primary));
                self.carry(ballot.holder, record, &mut carried, primary).await?;
            }
        }
        for node in nodes {
            self.in_time(*node, self.patience(), self.decide(*node, &complete)).await?;
        }
        self.tell_all_ready(nodes, &next).await?;
        self.await_leases(&base, nodes, dead).await?;
        self.node.install(next)?;
        for node in nodes.iter().filter(|node| **node != self.id()) {
            // It is told the view. One that does not hear of it now does so from whomever it asks.
            let _ = self.in_time(*node, self.patience(), self.greet(*node)).await;
        }
        Ok(())
    }

    /// Waits until no node serves that the next view is without.
    ///
    /// # Errors
    ///
    /// [`ClusterError::NotReady`] if this node can't know: it has not led the view, and too few of
    /// its members let the leader have no authority any more.
    async fn await_leases(
        &self,
        base: &View,
        nodes: &[NodeId],
        dead: &[(NodeId, Incarnation)],
    ) -> Result<(), ClusterError> {
        let Some(tenure) = &self.node.tenure else { return Ok(()) };
        let is_dead = |node: NodeId| dead.iter().any(|(other, _)| *other == node);
        let is_done = |node: NodeId| match nodes.contains(&node) && !is_dead(node) {
            true => true,
            false => self.is_certainly_gone(node),
        };
        for node in dead.iter().map(|(node, _)| *node).filter(|node| !is_done(*node)) {
            while tenure.has_ended(self.endpoint().now(), node) == Some(false) {
                self.endpoint().sleep(LONGEST).await;
            }
            if tenure.has_ended(self.endpoint().now(), node).is_none() {
                let members = base.members().iter().map(|member| member.node);
                let acknowledged = members.filter(|member| is_done(*member)).count();
                return match may_open(base.members().len(), acknowledged) {
                    true => Ok(()),
                    false => Err(ClusterError::NotReady { node }),
                };
            }
        }
        Ok(())
    }

    /// Returns until when a node is waited for from now on.
    pub(super) fn patience(&self) -> Time {
        let patience = self.node.tenure.as_ref().map_or(PATIENCE, |tenure| LEASES * tenure.terms.lease);
        self.endpoint().now() + patience
    }

    /// Returns how many bytes of a list a message has room for.
    pub(super) fn room_for_list(&self) -> usize {
        self.endpoint().capabilities().max_message_bytes.saturating_sub(BESIDE)
    }

    /// Waits before a node is asked again.
    async fn rest(&self, pause: &mut Duration) {
        self.endpoint().sleep(*pause).await;
        *pause = LONGEST.min(*pause * 2);
    }

    /// Waits for a node's answer.
    ///
    /// # Errors
    ///
    /// [`ClusterError::NotReady`] if it does not come in time.
    pub(super) async fn in_time<T, E: Into<Error>>(
        &self,
        node: NodeId,
        until: Time,
        answer: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Error> {
        match self.endpoint().before(until, answer).await {
            Ok(answer) => answer.map_err(Into::into),
            Err(_) => Err(ClusterError::NotReady { node }.into()),
        }
    }

    /// Has all nodes leave their view, and waits until they are quiet. Returns them: the members
    /// that are left, and all that these have met.
    ///
    /// What a node has written counts as settled where it is quiet. So each life that has a part in
    /// the view is asked, or is dead: those are added to the dead that are not here any more, that
    /// the next view is without, and that a driver before has told others to be dead.
    async fn prepare_all(
        &self,
        (base, next): (&View, &View),
        dead: &mut Vec<(NodeId, Incarnation)>,
    ) -> Result<Vec<NodeId>, Error> {
        let mut nodes: Vec<NodeId> = next.members().iter().map(|member| member.node).chain([self.id()]).collect();
        nodes.sort_unstable();
        nodes.dedup();
        // The first view names no lives. Where nodes agree on the view, nothing was served in it:
        // one that is here by now, and was not when the next view was made, joins later.
        let joins = |node| self.node.membership.is_some() && self.endpoint().presence(node).here().is_some();
        for member in base.members().iter().filter(|member| !nodes.contains(&member.node)) {
            if !is_among(dead, member.node, member.incarnation) {
                let last = || self.endpoint().presence(member.node).last().filter(|_| !joins(member.node));
                dead.extend(member.incarnation.or_else(last).map(|life| (member.node, life)));
            }
        }
        let (mut left, mut pause, mut until) = (nodes.clone(), FIRST, self.patience());
        loop {
            if let Some(tenure) = &self.node.tenure {
                tenure.evict(dead.iter().map(|(node, _)| *node));
            }
            let (busy, known) = self.prepare_some(left, (base.number(), next.number()), dead, until).await?;
            let (told, asked) = (dead.len(), nodes.len());
            for (node, life, is_closed) in known {
                if is_among(dead, node, Some(life)) {
                    continue;
                }
                if !is_closed && self.is_here(node, life, until).await {
                    if !nodes.contains(&node) {
                        nodes.push(node);
                    }
                } else if !S::has(Mutation::EndsOverlooked) {
                    dead.push((node, life));
                    // Another one may have told of it as one that is here.
                    if self.endpoint().presence(node).here() == Some(life) {
                        nodes.retain(|other| *other != node);
                    }
                }
            }
            // All are to know who is dead.
            let is_told = dead.len() == told;
            if !is_told || nodes.len() > asked {
                // It may have taken long to find that out. Of such news there is an end.
                until = self.patience();
            }
            left =
                if is_told { busy.into_iter().chain(nodes[asked..].iter().copied()).collect() } else { nodes.clone() };
            let Some(node) = left.first() else { return Ok(nodes) };
            if is_told && nodes.len() == asked {
                if self.endpoint().now() >= until {
                    return Err(ClusterError::NotReady { node: *node }.into());
                }
                self.rest(&mut pause).await;
            }
        }
    }

    /// Has nodes leave their view. Returns those that are not quiet yet, and which lives of others
    /// they know: see [`Known`].
    async fn prepare_some(
        &self,
        nodes: Vec<NodeId>,
        (base, next): (u32, u32),
        dead: &[(NodeId, Incarnation)],
        until: Time,
    ) -> Result<(Vec<NodeId>, Vec<(NodeId, Incarnation, bool)>), Error> {
        let mut bytes = Vec::new();
        for (node, incarnation) in dead {
            LifeOf { node: node.0, incarnation: incarnation.0 }.put(&mut bytes);
        }
        let body = PrepareFor { view: next, dead: Many::new(&bytes, dead.len()) };
        let (mut busy, mut known) = (Vec::new(), Vec::new());
        for node in nodes {
            if node != self.id() {
                self.insist(node, until, async || self.greet(node).await).await?;
            }
            let prepare = async || {
                let prepared = self.call::<Prepare, _>(node, body.clone(), |reply| {
                    let lives = reply.known.iter();
                    known.extend(lives.map(|Known { node, incarnation, is_closed }| {
                        (NodeId(node), Incarnation(incarnation), is_closed)
                    }));
                    (reply.view, reply.is_quiet)
                });
                Ok(prepared.await?)
            };
            let (view, is_quiet) = self.insist(node, until, prepare).await?;
            if view > base {
                return Err(ClusterError::ViewChanged { node, view }.into());
            }
            if !is_quiet {
                busy.push(node);
            }
        }
        known.sort_unstable();
        known.dedup();
        Ok((busy, known))
    }

    /// Returns whether a life of a node is here. One that this node has not met is met for that.
    async fn is_here(&self, node: NodeId, life: Incarnation, until: Time) -> bool {
        if self.endpoint().presence(node) == Presence::Never {
            // If it cannot be, it is not here.
            let _ = self.in_time(node, until, self.greet(node)).await;
        }
        self.endpoint().presence(node).here() == Some(life)
    }

    /// Asks a node until it answers. If it does not in time, that is noted, and the next change is
    /// without it: it is silent, or its connection breaks and the node does not end.
    async fn insist<T>(
        &self,
        node: NodeId,
        until: Time,
        mut ask: impl AsyncFnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut pause = FIRST;
        loop {
            let outcome = self.in_time(node, until, ask()).await;
            let is_away = match &outcome {
                Err(Error::Cluster(ClusterError::NotReady { .. })) => true,
                Err(Error::Cluster(error)) => {
                    error.unreached() == Some(node) && self.endpoint().presence(node).here().is_some()
                }
                _ => false,
            };
            if !is_away {
                return outcome;
            }
            if self.endpoint().now() >= until {
                self.node.unanswered.lock().push(node);
                return Err(ClusterError::NotReady { node }.into());
            }
            self.rest(&mut pause).await;
        }
    }

    /// Returns what a node has of dead producers.
    async fn report_of(&self, node: NodeId) -> Result<Vec<u8>, Error> {
        let mut all = Vec::new();
        loop {
            let from = all.len() as u64;
            let length = self
                .call::<Report, _>(node, from, |reply| {
                    all.extend_from_slice(reply.part);
                    reply.length
                })
                .await?;
            if all.len() as u64 >= length {
                return Ok(all);
            }
            if all.len() as u64 == from {
                return Err(ClusterError::Nonsense { node, what: "a report that does not go on" }.into());
            }
        }
    }

    /// Tells nodes that all have decided, until each has noted that.
    async fn tell_all_ready(&self, nodes: &[NodeId], next: &View) -> Result<(), Error> {
        let (mut left, mut pause, until) = (nodes.to_vec(), FIRST, self.patience());
        loop {
            // Their logs flush side by side.
            let mut busy = Vec::new();
            for node in left {
                let (complete, next) = (Many::new(&[], 0), Some(next.clone()));
                let body = DecideOn { is_first: false, is_last: false, complete, next };
                if !self.in_time(node, until, self.call::<Decide, _>(node, body, |is_done| is_done)).await? {
                    busy.push(node);
                }
            }
            let Some(node) = busy.first() else { return Ok(()) };
            if self.endpoint().now() >= until {
                return Err(ClusterError::NotReady { node: *node }.into());
            }
            self.rest(&mut pause).await;
            left = busy;
        }
    }

    /// Tells a node which transactions are completed. It has applied them then.
    async fn decide(&self, node: NodeId, complete: &[Ballot]) -> Result<(), Error> {
        let at_once = (self.room_for_list() / 16).max(1);
        let mut pause = FIRST;
        loop {
            let mut is_done = false;
            let parts = complete.len().div_ceil(at_once).max(1);
            for part in 0..parts {
                let mut bytes = Vec::new();
                let of_part = complete.iter().skip(part * at_once).take(at_once);
                let count = of_part.clone().count();
                of_part.for_each(|it| Named { holder: it.holder, sequence: it.sequence }.put(&mut bytes));
                let complete = Many::new(&bytes, count);
                let body = DecideOn { is_first: part == 0, is_last: part + 1 == parts, complete, next: None };
                is_done = self.call::<Decide, _>(node, body, |is_done| is_done).await?;
            }
            if is_done {
                return Ok(());
            }
            // It has no room yet.
            self.rest(&mut pause).await;
        }
    }
}

/// Returns whether a life of a node is among those that are dead, or before one of them. If none is
/// named, whether any of its lives is.
pub(super) fn is_among(dead: &[(NodeId, Incarnation)], node: NodeId, named: Option<Incarnation>) -> bool {
    dead.iter().any(|(other, last)| *other == node && named.is_none_or(|named| named <= *last))
}
