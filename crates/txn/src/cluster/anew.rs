//! Where all members of a view have ended, a node that was never in a view begins anew: all nodes
//! have crashed, for example, and are started again.
//!
//! It knows which view is *configured*, and that may never have begun: a primary in it may not have
//! everything. Which view was the last *whole* one, whose primaries have, the nodes say that had
//! shards in the configured view. Each has noted it in its directory, in the step *ready* of a
//! [`change`](super::change), before any node opened it:
//!
//! - Let V be the last view that has begun. All that was acknowledged was so in V, or before. Nodes
//!   join, and get shards, by a change in a view that has begun. So a node that has shards in a
//!   later configured view N was a member of V, in the same life. It has noted V, or a later whole
//!   view, if it has a directory.
//! - So the last of their notes is no older than V. If it is of a later view, all were ready for
//!   that, too: its primaries have everything, and nothing was committed since.
//!
//! Each of them is heard, since a view can name a node that had ended before it began, and has
//! noted an older one. If the configured view itself is noted, nothing is later.
//!
//! A node without a directory, or whose disk was lost, says that it has noted nothing. If all say
//! so, the configured view counts. See `docs/decisions/0120`.

use drtm_rdma::Fabric;

use super::{
    coordinator::Coordinator,
    requests::change::Recall,
    view::{FIRST, Member, View},
};
use crate::{Config, Error, mutation::Mutation};

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Returns the view that follows one all of whose members have ended, if this node knows that
    /// of each. Its members are the nodes that are here. `None` if one may go on, or has not
    /// come back and may have noted what is needed.
    pub(super) async fn begun_anew(&self, view: &View, last: &View) -> Result<Option<View>, Error> {
        let has_ended = |member: &Member| {
            let is_another =
                self.life_here(member.node).is_some_and(|life| member.incarnation.is_some_and(|named| life > named));
            is_another || self.has_certainly_ended(member)
        };
        if view.number() > FIRST || !last.members().iter().all(has_ended) {
            return Ok(None);
        }
        let Some(last_whole) = self.last_noted(last).await? else { return Ok(None) };
        let member = |first: &Member| {
            let (node, incarnation) = (first.node, Some(self.life_here(first.node)?));
            let address = last.address_of(node).map(|address| address.to_string()).unwrap_or_default();
            Some(Member { node, address, incarnation })
        };
        let members = self.node.first_view.members().iter().filter_map(member);
        Ok(Some(last.begun_anew(&last_whole, members.collect())?))
    }

    /// Returns the last view that was noted of those up to a configured one; that itself, if none
    /// was. `None` if a node has not come back that may have noted a later one.
    async fn last_noted(&self, configured: &View) -> Result<Option<View>, Error> {
        let mut last: Option<View> = None;
        let mut are_heard = true;
        // Nothing was served before the first view of nodes that have met.
        let is_needed = configured.number() > FIRST + 1 && !S::has(Mutation::NotesIgnored);
        for node in configured.holders().filter(|_| is_needed) {
            if self.life_here(node).is_none() {
                are_heard = false;
                continue;
            }
            let until = self.patience();
            if node != self.id() {
                self.in_time(node, until, self.greet(node)).await?;
            }
            let noted = self.in_time(node, until, self.call::<Recall, _>(node, (), |noted| noted)).await?;
            let noted = noted.filter(|noted| noted.may_be_last_before(configured));
            last = last.into_iter().chain(noted).max_by_key(View::number);
        }
        let is_last = last.as_ref().is_some_and(|last| last.number() == configured.number());
        Ok((are_heard || is_last).then(|| last.unwrap_or_else(|| configured.clone())))
    }
}
