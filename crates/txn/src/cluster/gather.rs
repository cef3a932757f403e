//! Gathering what an operator is shown: a node's view, what it sees of the members, and what
//! primaries count. See `docs/decisions/0117`.
//!
//! A request is never kept waiting, so one of a visitor begins a gathering, and gets a ticket. A
//! coroutine of the worker that has served it gathers, and the visitor asks again.

use std::{convert::Infallible, future::poll_fn, task::Poll, time::Duration};

use drtm_rdma::{Fabric, NodeId, Presence, rpc::Encode as _};

use super::{
    ClusterError,
    coordinator::Coordinator,
    peers::all,
    requests::status::{CountFrom, CountRows},
    shard::ShardId,
    status::{ClusterStatus, Life, MemberState, MemberStatus, ShardState, ShardStatus},
    view::{Member, View},
};
use crate::{Config, Error};

/// Rows and bytes, by shard.
type Counts = Vec<(u64, u64)>;

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Has a status gathered, by the coroutine of this worker that does.
    pub(super) fn gather_soon(&self, ticket: u64, within: Duration) {
        let mut to_gather = self.to_gather.borrow_mut();
        to_gather.next = Some((ticket, within));
        if let Some(waker) = to_gather.waker.take() {
            waker.wake();
        }
    }

    /// Gathers what visitors have asked for, for ever.
    pub(super) async fn keep_gathering(&self) -> Infallible {
        loop {
            let next = poll_fn(|context| {
                let mut to_gather = self.to_gather.borrow_mut();
                match to_gather.next.take() {
                    Some(next) => Poll::Ready(next),
                    None => {
                        to_gather.waker = Some(context.waker().clone());
                        Poll::Pending
                    }
                }
            });
            let (ticket, within) = next.await;
            let mut bytes = Vec::new();
            // A node that is out says so when it is asked the next time.
            if let Ok(status) = self.status(within).await {
                status.encode(&mut bytes);
            }
            self.node.gathered.lock().end(ticket, bytes);
        }
    }

    /// Returns what this node sees of the cluster. Primaries count their rows for so long at the
    /// most.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Evicted`].
    pub(super) async fn status(&self, within: Duration) -> Result<ClusterStatus, Error> {
        if self.node.tenure.as_ref().is_some_and(|tenure| tenure.is_out()) {
            return Err(ClusterError::Evicted { may_have_happened: false }.into());
        }
        let view = self.node.view.view();
        let is_open = !self.node.view.is_between() && self.may_serve();
        let life = |node: NodeId| match view.members().iter().find(|member| member.node == node) {
            Some(member) if self.gone(member).is_some() => Life::Gone,
            Some(_) if self.endpoint().presence(node).here().is_some() => Life::Here,
            _ => Life::Silent,
        };
        let replicas = self.node.log.backups + 1;
        let state = |placed| ShardState::of(placed, replicas, is_open, life);
        let states: Vec<ShardState> = view.placements().iter().map(state).collect();
        let members = self.members_of(&view);
        let until = self.endpoint().now() + within;
        let groups = (0..view.groups()).filter_map(|group| Some((group, view.placement(group)?.primary)));
        let groups: Vec<(u16, NodeId)> = groups.collect();
        let count = |(group, primary)| async move {
            match life(primary) {
                _ if !self.view().serves(primary, group) => None,
                Life::Here => self.in_time(primary, until, self.count_group(primary, group)).await.ok(),
                Life::Silent | Life::Gone => None,
            }
        };
        let counts: Vec<Option<Counts>> = all(self.endpoint(), groups.iter().copied().map(count)).await;
        let shard = |(number, (placed, state)): (u16, (&super::Placement, ShardState))| {
            let shard = ShardId(number);
            let group = groups.iter().position(|(group, _)| Some(*group) == view.group_of(shard));
            let counted = group.and_then(|group| counts[group].as_ref()?.get(shard.index()).copied());
            ShardStatus {
                shard,
                state,
                primary: placed.primary,
                backups: placed.backups.clone(),
                learners: placed.learners.clone(),
                rows: counted.map(|(rows, _)| rows),
                bytes: counted.map(|(_, bytes)| bytes),
            }
        };
        let shards = (0..).zip(view.placements().iter().zip(states)).map(shard).collect();
        Ok(ClusterStatus { view: view.number(), members, shards })
    }

    /// Returns what this node sees of a view's members, and of the owners that it is without.
    fn members_of(&self, view: &View) -> Vec<MemberStatus> {
        let owners = self.node.first_view.members().iter();
        let out = owners.filter(|member| !view.has(member.node)).map(|member| (member, true));
        let all = view.members().iter().map(|member| (member, false)).chain(out);
        let status = |(member, is_out): (&Member, bool)| {
            let (node, presence) = (member.node, self.endpoint().presence(member.node));
            let state = match presence {
                _ if is_out => MemberState::Out,
                Presence::Left(_) => MemberState::Left,
                _ if self.gone(member).is_some() => MemberState::Died,
                Presence::Here(_) => MemberState::Here,
                Presence::Suspected(_) => MemberState::Suspected,
                _ => MemberState::Absent,
            };
            let address = self.node.fabric.address_of(node).map(|address| address.to_string());
            let incarnation = member.incarnation.filter(|_| !is_out).or(presence.last());
            MemberStatus { node, address, incarnation, state }
        };
        all.map(status).collect()
    }

    /// Counts the rows of a group at its primary.
    async fn count_group(&self, from: NodeId, group: u16) -> Result<Counts, Error> {
        let mut counts = vec![(0, 0); self.node.shards];
        let divided = (0..).zip(&self.node.home.tables).filter(|(_, table)| !table.is_replicated);
        for (table, _) in divided {
            let (mut at, mut last, mut is_all) = ((0, 0), None::<Vec<u8>>, false);
            while !is_all {
                if from != self.id() {
                    self.greet(from).await?;
                }
                let body = CountFrom { group, table, bucket: at.0, buckets: at.1, behind: last.as_deref() };
                let counted = self.call::<CountRows, _>(from, body, |counted| {
                    for of in counted.shards.iter() {
                        if let Some((rows, bytes)) = counts.get_mut(usize::from(of.shard)) {
                            (*rows, *bytes) = (*rows + of.rows, *bytes + of.bytes);
                        }
                    }
                    ((counted.bucket, counted.buckets), counted.behind.map(<[u8]>::to_vec), counted.is_all)
                });
                (at, last, is_all) = counted.await?;
                self.endpoint().yield_now().await;
            }
        }
        Ok(counts)
    }
}
