//! Keeps the cluster in a view of nodes that are here: finds nodes that have died, or are silent,
//! replaces the configuration, and changes the view.
//!
//! The view's leader drives, or if it is gone, the first member that is left. A driver has the
//! leave of so many members that no other one can have it, and that no former leader has authority
//! any more. It replaces the configuration at the [`Membership`] before it tells any node: so there
//! is one view of each number, and a driver that dies leaves the next one what it has begun. A node
//! that can't reach the membership, or too few members, goes on in its view as long as it has a
//! lease, and changes nothing.

use std::{convert::Infallible, time::Duration};

use drtm_membership::{Answer, Configuration, Error as NoAnswer, Membership, may_open};
use drtm_rdma::{
    Fabric, Incarnation, NodeId, Presence,
    rpc::{Decode as _, Encode as _, Reader},
};

use super::{
    ClusterError, ClusterEvent,
    coordinator::Coordinator,
    requests::tenure::{Probe, ProbeFor},
    tenure::Tenure,
    view::View,
};
use crate::{Config, Error};

/// How often a node looks whether others have died.
const LOOK_AFTER: Duration = Duration::from_millis(1);

/// How often it is looked whether the membership has answered.
const ASK_AFTER: Duration = Duration::from_micros(50);

/// How long a driver waits after a change that came to nothing.
const AGAIN_AFTER: Duration = Duration::from_millis(2);

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Keeps the view, for ever. One worker of a node does so at a time.
    pub(super) async fn keep_view(&self) -> Infallible {
        let (Some(membership), Some(tenure)) = (self.node.membership.clone(), &self.node.tenure) else {
            return std::future::pending().await;
        };
        let _kept = self.turn(&self.node.is_kept).await;
        let (mut told, mut looked) = (0, self.endpoint().now());
        loop {
            self.endpoint().sleep(LOOK_AFTER).await;
            if tenure.is_out() {
                return std::future::pending().await;
            }
            let now = self.endpoint().now();
            if !tenure.holds(now) && now.since(looked) > tenure.terms.lease {
                looked = now;
                self.look_whether_out(&*membership).await;
            }
            let failed = self.keep(&*membership, tenure).await.err();
            let Some(error) = failed else { continue };
            if let Error::Cluster(ClusterError::ViewChanged { node, .. }) = error {
                if node != self.id() {
                    // It tells its view. If it cannot be asked, it is looked again.
                    self.meet_anew(node);
                    let _ = self.greet(node).await;
                }
                continue;
            }
            let number = self.node.view.number();
            if told != number {
                told = number;
                let waits_for = match error {
                    Error::Cluster(ClusterError::NotReady { node }) => Some(node),
                    _ => None,
                };
                self.node.announcer.announce(ClusterEvent::ViewKept { number, waits_for });
            }
            self.endpoint().sleep(AGAIN_AFTER).await;
        }
    }

    /// Looks, where this node has no lease, whether there is a view without it. If the membership
    /// cannot be asked, it is looked again.
    async fn look_whether_out(&self, membership: &dyn Membership) {
        if let Ok(current) = self.answer_of(membership.read()).await
            && let Ok(next) = view_of(&current)
        {
            self.note_if_out(&next);
        }
    }

    /// Notes that a view is without this node, if it is. Returns whether that is so.
    fn note_if_out(&self, next: &View) -> bool {
        let view = self.node.view.view();
        let is_out = next.number() > view.number() && view.has(self.id()) && !next.has(self.id());
        if is_out {
            self.node.note_out(next.number());
        }
        is_out
    }

    /// Changes the view if it is this node's to, and nodes are gone or a change was not completed.
    async fn keep(&self, membership: &dyn Membership, tenure: &Tenure) -> Result<(), Error> {
        let view = self.node.view.view();
        if !self.may_drive(&view, tenure) {
            return Ok(());
        }
        let mut dead = self.dead(&view);
        for node in tenure.silent(self.endpoint().now()).into_iter().chain(self.node.unanswered.lock().clone()) {
            self.add_silent(node, &mut dead);
        }
        let is_behind = membership.known().number() > view.number() || self.node.view.is_between();
        if view.leader() == self.id() && dead.is_empty() && !is_behind {
            return Ok(());
        }
        if !self.has_leave(&view, &mut dead, tenure).await? || dead.is_empty() && !is_behind {
            return Ok(());
        }
        let is_left = |node: NodeId| !dead.iter().any(|(other, _)| *other == node);
        let current = self.configuration(membership, &view).await?;
        let mut next = view_of(&current)?;
        if self.note_if_out(&next) {
            return Ok(());
        }
        // It can have been replaced before others died, or where this node has heard of no view.
        let needs_next = next.number() <= view.number() || next.members().iter().any(|member| !is_left(member.node));
        if needs_next {
            next = next.without(|node| !is_left(node))?;
            match self.answer_of(membership.replace(current.number(), &content_of(&next))).await {
                Ok(_) => {}
                // Another one may have driven, or this one without an answer: it is looked again.
                Err(NoAnswer::Outdated { .. } | NoAnswer::Unknown { .. }) => return Ok(()),
                Err(error) => return Err(ClusterError::from(error).into()),
            }
        }
        self.change(next, &dead).await?;
        self.node.unanswered.lock().clear();
        Ok(())
    }

    /// Returns whether it is this node's turn to drive: all members before it are gone, or have had
    /// the time to.
    fn may_drive(&self, view: &View, tenure: &Tenure) -> bool {
        let Some(place) = view.members().iter().position(|member| member.node == self.id()) else { return false };
        let before = view.members()[..place].iter().map(|member| member.node);
        let left: Vec<NodeId> = before.filter(|node| !self.is_certainly_gone(*node)).collect();
        if left.is_empty() {
            return true;
        }
        let here = left.iter().filter(|node| **node != view.leader() && self.gone(**node).is_none()).count();
        tenure.is_free(self.endpoint().now(), tenure.terms.lease * here as u32, self.id())
    }

    /// Returns whether enough members let this node change the view. If it does not lead, it adds
    /// those that do not answer to the dead.
    async fn has_leave(
        &self,
        view: &View,
        dead: &mut Vec<(NodeId, Incarnation)>,
        tenure: &Tenure,
    ) -> Result<bool, Error> {
        let (mut given, mut silent) = (0, Vec::new());
        for member in view.members().iter().map(|member| member.node) {
            if member == self.id() || self.is_certainly_gone(member) {
                given += 1;
            } else if !dead.iter().any(|(node, _)| *node == member) {
                let until = self.endpoint().now() + tenure.terms.lease / 2;
                match self.in_time(member, until, self.probe(member, view.number())).await {
                    Ok((_, newer)) if newer > view.number() => {
                        return Err(ClusterError::ViewChanged { node: member, view: newer }.into());
                    }
                    Ok((is_free, _)) => given += usize::from(is_free),
                    Err(_) => silent.push(member),
                }
            }
        }
        if view.leader() != self.id() {
            silent.into_iter().for_each(|node| self.add_silent(node, dead));
        }
        Ok(may_open(view.members().len(), given))
    }

    /// Asks a member for its leave. Returns whether it gives it, and in which view it is.
    async fn probe(&self, member: NodeId, view: u32) -> Result<(bool, u32), Error> {
        self.greet(member).await?;
        let body = ProbeFor { view, incarnation: self.node.incarnation.0 };
        Ok(self.call::<Probe, _>(member, body, |probed| (probed.is_free, probed.view)).await?)
    }

    /// Adds a node that is silent to the dead. One that was never here has not started yet.
    fn add_silent(&self, node: NodeId, dead: &mut Vec<(NodeId, Incarnation)>) {
        let last = match self.endpoint().presence(node) {
            Presence::Left(_) => None,
            presence => presence.last(),
        };
        if let Some(incarnation) = last
            && !dead.iter().any(|(other, _)| *other == node)
            && !self.node.home.changing.is_out(node, incarnation)
        {
            dead.push((node, incarnation));
        }
    }

    /// Returns which incarnation of a node is gone.
    fn gone(&self, node: NodeId) -> Option<Incarnation> {
        match self.endpoint().presence(node) {
            Presence::Died(incarnation) | Presence::Left(incarnation) => Some(incarnation),
            _ => None,
        }
    }

    /// Returns the members that are gone, and other nodes that have died since the view began.
    fn dead(&self, view: &View) -> Vec<(NodeId, Incarnation)> {
        let changing = &self.node.home.changing;
        let members = view.members().iter().filter_map(|member| Some((member.node, self.gone(member.node)?)));
        let others = self.node.closings.nodes().into_iter().filter(|node| !view.has(*node));
        let others = others.filter_map(|node| match self.endpoint().presence(node) {
            Presence::Died(incarnation) => Some((node, incarnation)),
            _ => None,
        });
        let is_new =
            |(node, incarnation): &(NodeId, Incarnation)| view.has(*node) || !changing.is_out(*node, *incarnation);
        members.chain(others).filter(is_new).collect()
    }

    /// Reads the configuration, and makes this node's view the first if there is none.
    async fn configuration(&self, membership: &dyn Membership, view: &View) -> Result<Configuration, Error> {
        let current = self.answer_of(membership.read()).await.map_err(ClusterError::from)?;
        if current.number() > 0 {
            return Ok(current);
        }
        match self.answer_of(membership.replace(0, &content_of(view))).await {
            Err(NoAnswer::Outdated { current }) => Ok(current),
            made => Ok(made.map_err(ClusterError::from)?),
        }
    }

    /// Waits for an answer, which wakes no coroutine.
    async fn answer_of<T>(&self, mut answer: Answer<T>) -> Result<T, NoAnswer> {
        loop {
            if let Some(outcome) = answer.take() {
                return outcome;
            }
            self.endpoint().sleep(ASK_AFTER).await;
        }
    }
}

/// Returns a view as a configuration has it.
fn content_of(view: &View) -> Vec<u8> {
    let mut bytes = Vec::new();
    view.encode(&mut bytes);
    bytes
}

/// Returns the view that a configuration is. Both have one number.
fn view_of(configuration: &Configuration) -> Result<View, Error> {
    let mut bytes = Reader::new(configuration.content());
    match View::decode(&mut bytes) {
        Ok(view) if view.number() == configuration.number() => Ok(view),
        _ => Err(ClusterError::BadView { why: "the membership's configuration is not a view of this cluster" }.into()),
    }
}
