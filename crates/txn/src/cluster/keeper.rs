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
    change::is_among,
    coordinator::Coordinator,
    requests::tenure::{Probe, ProbeFor},
    tenure::Tenure,
    view::{FIRST, Member, View},
};
use crate::{Config, Error};

/// How often a node looks whether others have died.
const LOOK_AFTER: Duration = Duration::from_millis(1);

/// How often it is looked whether the membership has answered.
const ASK_AFTER: Duration = Duration::from_micros(50);

/// How often in succession, a lease apart, the members of a view that is without this node take
/// nothing of it before it knows that it is out. They may only have suspected it for a while.
const REFUSED: u32 = 3;

/// How long a driver waits after a change that came to nothing.
const AGAIN_AFTER: Duration = Duration::from_millis(2);

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Keeps the view, for ever. One worker of a node does so at a time.
    pub(super) async fn keep_view(&self) -> Infallible {
        let (Some(membership), Some(tenure)) = (self.node.membership.clone(), &self.node.tenure) else {
            return std::future::pending().await;
        };
        let _kept = self.turn(&self.node.is_kept).await;
        let (mut told, mut looked, mut refused) = (0, self.endpoint().now(), 0);
        loop {
            self.endpoint().sleep(LOOK_AFTER).await;
            if tenure.is_out() {
                return std::future::pending().await;
            }
            let now = self.endpoint().now();
            if !tenure.holds(now) && now.since(looked) > tenure.terms.lease {
                looked = now;
                let is_refused = match self.look_whether_out(&*membership).await {
                    Looked::At(view) => view.is_some_and(|view| self.is_refused(&view)),
                    Looked::InVain => self.is_refused_by_most().await,
                };
                refused = if is_refused { refused + 1 } else { 0 };
                if refused >= REFUSED {
                    // Before it was a member; or it was replaced, and its voter with it.
                    self.node.note_out(membership.known().number());
                }
            }
            let failed = self.keep(&*membership, tenure).await.err();
            let Some(error) = failed else { continue };
            if let Error::Cluster(ClusterError::ViewChanged { node, .. }) = error {
                if node != self.id() {
                    // It tells its view. If it cannot be asked, it is looked again.
                    self.meet_anew(node);
                    let _ = self.in_time(node, self.patience(), self.greet(node)).await;
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

    /// Looks, where this node has no lease, whether there is a view without it, and asks to join
    /// it. If the membership cannot be asked, it is looked again.
    async fn look_whether_out(&self, membership: &dyn Membership) -> Looked {
        let Ok(current) = self.answer_of(membership.read()).await else { return Looked::InVain };
        let next = view_of(&current).ok().filter(|next| self.is_without_this(next));
        if let Some(next) = &next {
            self.ask_to_join(next).await;
        }
        Looked::At(next)
    }

    /// Returns whether most members of this node's view take nothing of it. They do not before a
    /// view without it is configured.
    async fn is_refused_by_most(&self) -> bool {
        let view = self.node.view.view();
        self.ask_to_join(&view).await;
        let refuse = view.members().iter().filter(|member| self.endpoint().is_refused_by(member.node));
        2 * refuse.count() > view.members().len()
    }

    /// Returns whether no member of a view that is here takes anything of this node, and one is.
    fn is_refused(&self, view: &View) -> bool {
        let members = || view.members().iter().map(|member| member.node).filter(|node| *node != self.id());
        let refuses = |node: NodeId| self.endpoint().is_refused_by(node);
        members().any(refuses) && members().all(|node| refuses(node) || self.endpoint().presence(node).here().is_none())
    }

    /// Returns whether this node has no part in a view, or no part any more. It notes that then.
    fn is_without_this(&self, next: &View) -> bool {
        let (view, life) = (self.node.view.view(), self.node.incarnation);
        let is_without = next.number() > view.number() && next.number() > FIRST && !next.has_life(self.id(), life);
        if is_without && view.number() > FIRST && view.has_life(self.id(), life) {
            self.node.note_out(next.number());
        }
        is_without
    }

    /// Meets the members of a view that is without this node, which they take in as it comes. A
    /// view is not entered because it is configured: it may not be open yet.
    async fn ask_to_join(&self, next: &View) {
        for member in next.members().iter().map(|member| member.node).filter(|node| *node != self.id()) {
            // One that does not answer is asked again.
            let _ = self.in_time(member, self.patience(), self.greet(member)).await;
        }
    }

    /// Changes the view if it is this node's to, and nodes are gone or a change was not completed.
    async fn keep(&self, membership: &dyn Membership, tenure: &Tenure) -> Result<(), Error> {
        let view = self.node.view.view();
        let orders = self.orders(&view).await;
        if !view.has_life(self.id(), self.node.incarnation) || !self.may_drive(&view, tenure) {
            return Ok(());
        }
        let mut dead = self.dead(&view);
        let is_formed = view.number() > FIRST;
        for node in tenure.silent(self.endpoint().now()).into_iter().chain(self.node.unanswered.lock().clone()) {
            // None is silent before all have met.
            if is_formed {
                self.add_silent(&view, node, &mut dead);
            }
        }
        let is_behind = membership.known().number() > view.number() || self.node.view.is_between();
        let mut improved = None;
        if view.leader() == self.id() && dead.is_empty() && !is_behind {
            if !tenure.holds(self.endpoint().now()) {
                return Ok(());
            }
            improved = self.improved(&view, &orders).await?;
            if improved.is_none() {
                return Ok(());
            }
        }
        if !self.has_leave((&view, &view), &mut dead, tenure).await? {
            return Ok(());
        }
        if dead.is_empty() && !is_behind && improved.is_none() {
            return Ok(());
        }
        let current = self.configuration(membership, &view).await?;
        let mut next = view_of(&current)?;
        if self.is_without_this(&next) {
            let Some(anew) = self.begun_anew(&view, &next).await? else {
                self.ask_to_join(&next).await;
                return Ok(());
            };
            return match self.replace(membership, &current, &anew).await? {
                // One that is started again by now is another life, and joins.
                true => self.change(anew, &dead).await,
                false => Ok(()),
            };
        }
        // An earlier driver may have led in a view that this node has not entered.
        if next.number() > view.number() && !self.has_leave((&view, &next), &mut dead, tenure).await? {
            return Ok(());
        }
        // One that was to join in the next view may have left again before.
        let ended = next.members().iter().filter_map(|member| Some((member.node, self.gone(member)?)));
        dead.extend(ended.filter(|(node, _)| !view.has(*node)));
        let is_dead = |member: &Member| is_among(&dead, member.node, member.incarnation);
        // It can have been replaced before others died, or where this node has heard of no view.
        let needs_next = next.number() <= view.number() || next.members().iter().any(is_dead);
        if needs_next {
            let members = next.members().to_vec();
            let is_gone = |node: NodeId| members.iter().any(|member| member.node == node && is_dead(member));
            let has_ended =
                |node: NodeId| members.iter().any(|member| member.node == node && self.gone(member).is_some());
            let last_whole = self.node.home.changing.last_whole(&view);
            let left = || next.without(&last_whole, is_gone, has_ended);
            next = match improved {
                Some(improved) if dead.is_empty() && next.number() == view.number() => improved,
                _ if next.number() == FIRST => match self.formed(left()?) {
                    Some(formed) => formed,
                    None => return Ok(()),
                },
                _ => left()?,
            };
            if !self.replace(membership, &current, &next).await? {
                return Ok(());
            }
        }
        self.change(next, &dead).await?;
        self.node.unanswered.lock().clear();
        Ok(())
    }

    /// Replaces the configuration by a view. Returns whether that is done: another node may have
    /// driven, or this one without an answer, and it is looked again.
    async fn replace(
        &self,
        membership: &dyn Membership,
        current: &Configuration,
        next: &View,
    ) -> Result<bool, ClusterError> {
        match self.answer_of(membership.replace(current.number(), &content_of(next))).await {
            Ok(_) => Ok(true),
            Err(NoAnswer::Outdated { .. } | NoAnswer::Unknown { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the first view that nodes agree on, which names the lives of its members. `None` if
    /// one of them is not here yet.
    fn formed(&self, view: View) -> Option<View> {
        let named = |member: &Member| {
            let life = self.life_here(member.node)?;
            Some(Member { incarnation: Some(life), ..member.clone() })
        };
        let members = view.members().iter().map(named).collect::<Option<Vec<_>>>()?;
        Some(view.of_lives(members))
    }

    /// Returns the life of a node that is here, and that this one has met.
    pub(super) fn life_here(&self, node: NodeId) -> Option<Incarnation> {
        match node == self.id() {
            true => Some(self.node.incarnation),
            false => self.endpoint().presence(node).here().filter(|life| self.node.closings.has_met(node, *life)),
        }
    }

    /// Returns whether it is this node's turn to drive: all members before it are gone, or have had
    /// the time to.
    fn may_drive(&self, view: &View, tenure: &Tenure) -> bool {
        let Some(place) = view.members().iter().position(|member| member.node == self.id()) else { return false };
        let before = view.members()[..place].iter();
        let left: Vec<&Member> = before.filter(|member| !self.has_certainly_ended(member)).collect();
        if left.is_empty() {
            return true;
        }
        let is_here = |member: &&&Member| member.node != view.leader() && self.gone(member).is_none();
        let here = left.iter().filter(is_here).count();
        tenure.is_free(self.endpoint().now(), tenure.terms.lease * here as u32, self.id())
    }

    /// Returns whether enough members of a view let this node change the one that it is in. If it
    /// does not lead, it adds those that do not answer to the dead.
    async fn has_leave(
        &self,
        (view, of): (&View, &View),
        dead: &mut Vec<(NodeId, Incarnation)>,
        tenure: &Tenure,
    ) -> Result<bool, Error> {
        let (mut given, mut silent) = (0, Vec::new());
        for named in of.members() {
            let member = named.node;
            if member == self.id() || self.has_certainly_ended(named) {
                given += 1;
            } else if !is_among(dead, member, named.incarnation) {
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
            silent.into_iter().for_each(|node| self.add_silent(of, node, dead));
        }
        Ok(may_open(of.members().len(), given))
    }

    /// Asks a member for its leave. Returns whether it gives it, and in which view it is.
    async fn probe(&self, member: NodeId, view: u32) -> Result<(bool, u32), Error> {
        self.greet(member).await?;
        let body = ProbeFor { view, incarnation: self.node.incarnation.0 };
        Ok(self.call::<Probe, _>(member, body, |probed| (probed.is_free, probed.view)).await?)
    }

    /// Adds a node that is silent to the dead: the life of it that is a member, if one is. One that
    /// was never here has not started yet.
    fn add_silent(&self, view: &View, node: NodeId, dead: &mut Vec<(NodeId, Incarnation)>) {
        let last = match self.endpoint().presence(node) {
            Presence::Left(_) => None,
            presence => presence.last(),
        };
        if let Some(incarnation) = view.incarnation(node).or(last)
            && !dead.iter().any(|(other, _)| *other == node)
            && !self.node.home.changing.is_out(node, incarnation)
        {
            dead.push((node, incarnation));
        }
    }

    /// Returns which life of a member is gone: it has ended, or another one has begun.
    pub(super) fn gone(&self, member: &Member) -> Option<Incarnation> {
        match (self.endpoint().presence(member.node), member.incarnation) {
            (Presence::Died(last) | Presence::Left(last), named) if named.is_none_or(|named| last >= named) => {
                Some(last)
            }
            (Presence::Here(now) | Presence::Suspected(now), Some(named)) if now > named => Some(named),
            _ => None,
        }
    }

    /// Returns whether nothing of a member goes on anywhere.
    pub(super) fn has_certainly_ended(&self, member: &Member) -> bool {
        let is_certain = self.endpoint().capabilities().certain_deaths;
        self.gone(member).is_some() && (is_certain || self.is_certainly_gone(member.node))
    }

    /// Returns the members that are gone, and other nodes that have died since the view began.
    fn dead(&self, view: &View) -> Vec<(NodeId, Incarnation)> {
        let changing = &self.node.home.changing;
        let members = view.members().iter().filter_map(|member| Some((member.node, self.gone(member)?)));
        let others = self.node.closings.nodes().into_iter().filter(|node| !view.has(*node));
        let others = others.filter_map(|node| match self.endpoint().presence(node) {
            Presence::Died(incarnation) => Some((node, incarnation)),
            // It may be back before its death was seen.
            Presence::Here(now) | Presence::Suspected(now) => Some((node, self.node.closings.ended(node, now)?)),
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

/// What a node has found that has no lease.
enum Looked {
    /// The configured view, if it is without this node.
    At(Option<View>),
    /// The membership cannot be asked.
    InVain,
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
