//! Where shards are to be, and which view comes next on the way there.
//!
//! Where a shard is to be follows from which owners are members: at the one that has it in the
//! first view, and at those that come next. A node gets there in two steps: it learns the rows, and
//! when it has them, it becomes a replica. So there are as many replicas as before all the time.

use drtm_rdma::{Fabric, Incarnation, NodeId};

use super::{
    coordinator::Coordinator,
    log::OfGroup,
    orders::{Order, gives_up},
    requests::learn::{Hold, HoldGroup},
    view::{Lost, Member, Placement, View},
};
use crate::{Config, Error, mutation::Mutation};

/// Returns the nodes at which a group is to be, as far as they are members: its primary first.
fn wanted(first: &View, now: &View, (group, replicas): (u16, usize)) -> Vec<NodeId> {
    let owners = first.members().iter().map(|member| member.node);
    let in_turn = owners.cycle().skip(group.into()).take(first.members().len());
    in_turn.filter(|node| now.has(*node)).take(replicas).collect()
}

/// Returns where a group is next, on the way to the nodes at which it is to be, by what those have
/// of it.
fn step(now: &Placement, wanted: &[NodeId], standing: impl Fn(NodeId) -> OfGroup) -> Placement {
    let is_replica = |node: NodeId| now.replicas().any(|other| other == node);
    let is_there =
        |node: NodeId| is_replica(node) || now.learners.contains(&node) && standing(node) == OfGroup::HasLearnt;
    if let [primary, backups @ ..] = wanted
        && wanted.iter().all(|node| is_there(*node))
    {
        return Placement { primary: *primary, backups: backups.to_vec(), learners: Vec::new(), lost: None };
    }
    let may_learn = |node: &NodeId| match standing(*node) {
        OfGroup::Learns | OfGroup::HasLearnt => now.learners.contains(node),
        OfGroup::Empty => true,
        OfGroup::None | OfGroup::Old | OfGroup::Replica | OfGroup::Kept | OfGroup::TakenOut => false,
    };
    let learners = wanted.iter().copied().filter(|node| !is_replica(*node)).filter(may_learn).collect();
    Placement { learners, ..now.clone() }
}

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Returns the view that comes next where no node is gone. `None` if all is where it is to be,
    /// or on the way.
    ///
    /// # Errors
    ///
    /// When a member cannot be asked what it has.
    pub(super) async fn improved(&self, view: &View, orders: &[Order]) -> Result<Option<View>, Error> {
        if let Some(next) = self.replaced_by(view, orders)? {
            return Ok(Some(next));
        }
        if let Some(joins) = self.joining(view) {
            // One at a time: a majority without the node, and one with it, have a member in common.
            let members = view.members().iter().cloned().chain([joins]).collect();
            return Ok(Some(view.next(members, view.placements().to_vec())?));
        }
        let mut next = Vec::new();
        for group in 0..view.groups() {
            let Some(now) = view.placement(group) else { break };
            let wanted = wanted(&self.node.first_view, view, (group, self.node.log.backups + 1));
            if let Some(why) = now.lost {
                next.push(self.step_of_lost((view, group, now), why, orders).await?);
                continue;
            }
            let mut standings = Vec::new();
            let is_placed = now.learners.is_empty() && now.replicas().eq(wanted.iter().copied());
            for node in wanted.iter().copied().filter(|node| !is_placed && !now.replicas().any(|other| other == *node))
            {
                standings.push((node, self.standing_at(node, group).await?));
            }
            let standing =
                |node| standings.iter().find(|(other, _)| *other == node).map_or(OfGroup::None, |(_, it)| *it);
            next.push(if is_placed { now.clone() } else { step(now, &wanted, standing) });
        }
        if (0..).zip(&next).all(|(group, placed)| view.placement(group) == Some(placed)) {
            return Ok(None);
        }
        let of = |group: u16| next[usize::from(group)].clone();
        Ok(Some(view.placed(view.members().to_vec(), of)?))
    }

    /// Returns where a lost group is next. If the node that had it last is back with its directory,
    /// that serves it. It is given up by an order only. Then the first member serves it that has
    /// tables without rows, which is one that is to have it if there is such.
    async fn step_of_lost(
        &self,
        (view, group, now): (&View, u16, &Placement),
        why: Lost,
        orders: &[Order],
    ) -> Result<Placement, Error> {
        if why != Lost::GivenUp && !S::has(Mutation::LostServedEmpty) {
            // Its last primary has all that was acknowledged; others may lack the end.
            let may_serve = |node: &NodeId| *node == now.primary || S::has(Mutation::StaleServed);
            let all = view.members().iter().map(|member| member.node);
            for primary in all.filter(may_serve) {
                if self.standing_at(primary, group).await? == OfGroup::Kept {
                    return Ok(Placement { primary, lost: None, ..now.clone() });
                }
            }
            let is_given_up = gives_up(orders, view, group);
            return Ok(if is_given_up { now.lost_by(Lost::GivenUp) } else { now.clone() });
        }
        for node in wanted(&self.node.first_view, view, (group, usize::MAX)) {
            if self.standing_at(node, group).await? == OfGroup::Empty {
                return Ok(Placement { primary: node, backups: Vec::new(), learners: Vec::new(), lost: None });
            }
        }
        // Members still take out what they had of it.
        Ok(now.clone())
    }

    /// Returns an owner that is here, and that the view is without.
    fn joining(&self, view: &View) -> Option<Member> {
        let owners = self.node.first_view.members().iter().map(|member| member.node);
        let here = |node: &NodeId| self.endpoint().presence(*node).here();
        let joins = |node: NodeId, life: Incarnation| {
            let closings = &self.node.closings;
            closings.has_met(node, life)
                && !closings.closes(node, life)
                && !self.node.home.changing.is_evicted(node, life)
        };
        let owners = owners.filter(|node| !view.has(*node) && *node != self.id());
        let mut owners = owners.filter_map(|node| Some((node, here(&node)?)));
        let (node, incarnation) = owners.find(|(node, life)| joins(*node, *life))?;
        let address = view.address_of(node).map(|address| address.to_string()).unwrap_or_default();
        Some(Member { node, address, incarnation: Some(incarnation) })
    }

    /// Asks a member what it has of a group.
    async fn standing_at(&self, node: NodeId, group: u16) -> Result<OfGroup, Error> {
        let until = self.patience();
        if node != self.id() {
            self.in_time(node, until, self.greet(node)).await?;
        }
        let standing = self.in_time(node, until, self.call::<Hold, _>(node, HoldGroup { group }, |it| it)).await?;
        Ok(OfGroup::of(standing).unwrap_or(OfGroup::None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(all: &[u16]) -> Vec<NodeId> {
        all.iter().copied().map(NodeId).collect()
    }

    fn at(primary: u16, backups: &[u16], learners: &[u16]) -> Placement {
        Placement { primary: NodeId(primary), backups: nodes(backups), learners: nodes(learners), lost: None }
    }

    #[test]
    fn a_group_is_wanted_at_its_owner_and_at_those_that_come_next() {
        let first = View::fixed(&[0, 1, 2].map(NodeId), 3, 1).expect("a view");
        let without = first.without(&first, |node| node == NodeId(0), |_| true).expect("a view");
        assert_eq!(wanted(&first, &first, (2, 2)), nodes(&[2, 0]));
        assert_eq!(wanted(&first, &without, (2, 2)), nodes(&[2, 1]));
        assert_eq!(wanted(&first, &without, (0, 2)), nodes(&[1, 2]));
        assert_eq!(wanted(&first, &without, (0, 3)), nodes(&[1, 2]), "there are no more");
    }

    #[test]
    fn a_node_learns_before_it_is_a_replica() {
        let (empty, learns, has) = (|_| OfGroup::Empty, |_| OfGroup::Learns, |_| OfGroup::HasLearnt);
        // Node 0 comes back, whose group node 1 serves.
        assert_eq!(step(&at(1, &[2], &[]), &nodes(&[0, 1]), empty), at(1, &[2], &[0]));
        assert_eq!(step(&at(1, &[2], &[0]), &nodes(&[0, 1]), learns), at(1, &[2], &[0]));
        assert_eq!(step(&at(1, &[2], &[0]), &nodes(&[0, 1]), has), at(0, &[1], &[]));
        // What it has learnt of another life of the group is worth nothing.
        assert_eq!(step(&at(1, &[2], &[]), &nodes(&[0, 1]), has), at(1, &[2], &[]));
        assert_eq!(step(&at(1, &[2], &[]), &nodes(&[0, 1]), |_| OfGroup::Old), at(1, &[2], &[]));
        // One that is to learn no more.
        assert_eq!(step(&at(1, &[], &[0]), &nodes(&[1, 2]), empty), at(1, &[], &[2]));
        assert_eq!(step(&at(1, &[2], &[0]), &nodes(&[1, 2]), empty), at(1, &[2], &[]));
        // Roles are exchanged where both have all rows.
        assert_eq!(step(&at(1, &[0], &[]), &nodes(&[0, 1]), empty), at(0, &[1], &[]));
    }
}
