//! Keeps the cluster in a view of nodes that are here: finds nodes that have died, replaces the
//! configuration, and changes the view.
//!
//! The first member of the view that is left drives. It replaces the configuration at the
//! [`Membership`] before it tells any node: so there is one view of each number, and a driver that
//! dies leaves the next one what it has begun. A node that can't reach the membership goes on in
//! its view, and changes nothing.

use std::{
    convert::Infallible,
    sync::atomic::{
        AtomicBool,
        Ordering::{AcqRel, Release},
    },
    time::Duration,
};

use drtm_membership::{Answer, Configuration, Error as NoAnswer, Membership};
use drtm_rdma::{
    Fabric, Incarnation, NodeId, Presence,
    rpc::{Decode as _, Encode as _, Reader},
};

use super::{ClusterError, ClusterEvent, coordinator::Coordinator, view::View};
use crate::{Config, Error};

/// How often a node looks whether others have died.
const LOOK_AFTER: Duration = Duration::from_millis(1);

/// How often another worker of the node looks whether it is to do that.
const TURN_AFTER: Duration = Duration::from_millis(10);

/// How often it is looked whether the membership has answered.
const ASK_AFTER: Duration = Duration::from_micros(50);

/// How long a driver waits after a change that came to nothing.
const AGAIN_AFTER: Duration = Duration::from_millis(2);

/// Lets another worker keep the view, also when this one ends.
struct Kept<'a>(&'a AtomicBool);

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Keeps the view, for ever. One worker of a node does so at a time.
    pub(super) async fn keep_view(&self) -> Infallible {
        let Some(membership) = self.node.membership.clone() else { return std::future::pending().await };
        while self.node.is_kept.swap(true, AcqRel) {
            self.endpoint().sleep(TURN_AFTER).await;
        }
        let _kept = Kept(&self.node.is_kept);
        let mut told = 0;
        loop {
            self.endpoint().sleep(LOOK_AFTER).await;
            let failed = self.keep(&*membership).await.err();
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

    /// Changes the view if it is this node's to, and nodes have died or a change was not completed.
    async fn keep(&self, membership: &dyn Membership) -> Result<(), Error> {
        let view = self.node.view.view();
        let is_left = |node: NodeId| node == self.id() || self.gone(node).is_none();
        let driver = view.members().iter().map(|member| member.node).find(|node| is_left(*node));
        let dead = self.dead(&view);
        let is_behind = membership.known().number() > view.number() || self.node.view.is_between();
        if driver != Some(self.id()) || dead.is_empty() && !is_behind {
            return Ok(());
        }
        let current = self.configuration(membership, &view).await?;
        let mut next = view_of(&current)?;
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
        self.change(next, &dead).await
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
