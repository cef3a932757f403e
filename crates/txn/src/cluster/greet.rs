//! How a node meets another one.

use std::rc::Rc;

use drtm_rdma::{Fabric, Incarnation, NodeId, Phase, rpc::RpcError};

use super::{
    ClusterError,
    coordinator::Coordinator,
    peers::Peer,
    remembered::{Life, Met},
    requests::node::{Hello, Introduce},
    shared::{Shared, VERSION},
    state::{Owner, State},
    view::View,
};
use crate::{Config, Conflict, Error, memory::storage::KeyRef, mutation::Mutation};

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Meets a node in the view that this one is in, unless that has happened. Returns which
    /// incarnation is there.
    ///
    /// The nodes tell each other their views. If the other one's is newer, this node is in it from
    /// then on.
    ///
    /// # Errors
    ///
    /// When the node cannot be asked, believes the cluster to be another, or is an incarnation that
    /// the view does not name.
    pub(super) async fn greet(&self, node: NodeId) -> Result<Incarnation, Error> {
        if let Some(incarnation) = self.at_present(node) {
            return Ok(incarnation);
        }
        let (here, moment) = (self.endpoint().presence(node).here(), self.node.view.moment());
        let index = usize::from(node.0);
        let known = self.met.borrow().get(index).and_then(|met| Some((met.as_ref()?.life, met.as_ref()?.moment)));
        let has_ended = self.endpoint().needs_reconnect(node);
        if let Some((Life { incarnation, .. }, then)) = known
            && here == Some(incarnation)
            && then as u32 == moment as u32
            && !has_ended
        {
            // Only that a node closes is new. If it is this one, it is looked at each time.
            if !self.node.closings.closes(node, incarnation)
                && let Some(Some(met)) = self.met.borrow_mut().get_mut(index)
            {
                met.moment = moment;
            }
            return Ok(incarnation);
        }
        let known = known.map(|(life, _)| life);
        if here.is_some() && (known.is_some_and(|known| here != Some(known.incarnation)) || has_ended) {
            // It has come back with another memory, or the connection to it has broken. It may also
            // have been suspected, and be the same as before.
            let unreachable = |source: RpcError| Error::from(ClusterError::Unreachable { node, source });
            self.endpoint().reconnect(node).map_err(|error| unreachable(error.into()))?;
        }
        let Shared { described, protocol, home, caches, by_loopback, .. } = &*self.node;
        let hello = Hello {
            version: VERSION,
            engine: self.node.engine_name(),
            protocol: protocol.name,
            tables: described,
            lease: self.node.lease_in_nanos(),
            view: (*self.view()).clone(),
        };
        let welcome = self.call::<Introduce, _>(node, hello, |welcome| welcome).await?;
        let incarnation = welcome.incarnation;
        self.node.closings.meet(node, incarnation);
        self.node.install(welcome.view.clone())?;
        let view = self.view();
        // The node's own view may have changed once more meanwhile.
        let moment = moment & !u64::from(u32::MAX) | u64::from(view.number());
        if view.incarnation(node).is_some_and(|named| named != incarnation) {
            return Err(ClusterError::NotAMember { node, is: incarnation }.into());
        }
        let life = Life { view: view.number(), incarnation };
        let cache = caches.as_ref().map(|caches| caches.of(node, life)).transpose()?;
        let of_a_table = usize::from(view.groups()) + 1;
        let are_words = |store: usize| {
            home.tables.get(store / of_a_table).is_some_and(|table| table.storage.takes(KeyRef::Word(0)))
        };
        let verbs = self.endpoint().during(Phase::Other);
        let peer = Peer::open(verbs, node, &welcome, are_words, (cache.as_ref(), *by_loopback)).await?;
        let mut met = self.met.borrow_mut();
        let length = met.len().max(index + 1);
        met.resize(length, None);
        met[index] = Some(Met { life, moment, peer: Rc::new(peer) });
        Ok(incarnation)
    }

    /// Returns which incarnation of a node was met, if that is here, all is as it was then, and the
    /// node does not close.
    fn at_present(&self, node: NodeId) -> Option<Incarnation> {
        let (here, all) = (self.endpoint().presence(node).here(), self.met.borrow());
        let Met { life, moment, .. } = all.get(usize::from(node.0))?.as_ref()?;
        let is_so = here == Some(life.incarnation) && *moment == self.node.view.moment();
        (is_so && !self.endpoint().needs_reconnect(node)).then_some(life.incarnation)
    }

    /// Makes a worker meet a node again before it asks anything else: one of them does not know the
    /// other's view.
    pub(super) fn meet_anew(&self, node: NodeId) {
        if let Some(Some(met)) = self.met.borrow_mut().get_mut(usize::from(node.0)) {
            met.moment = 0;
            self.is_behind.set(true);
        }
    }

    /// Returns the view for a run of a transaction, once the nodes are met again that were found to
    /// be in another one.
    pub(super) async fn latest_view(&self) -> Rc<View> {
        if self.is_behind.take() {
            let is_behind = |(node, met): (u16, &Option<Met>)| {
                met.as_ref().is_some_and(|met| met.moment == 0).then_some(NodeId(node))
            };
            let behind: Vec<NodeId> = (0..).zip(&*self.met.borrow()).filter_map(is_behind).collect();
            for node in behind {
                // What is wrong with it is said where something is asked of it.
                let _ = self.greet(node).await;
            }
        }
        self.view()
    }

    /// Meets a node for a transaction, which goes on only with the incarnation that it has met
    /// before, and begins nothing at a node that closes.
    ///
    /// # Errors
    ///
    /// As for [`greet`](Self::greet) and [`check_open`](Self::check_open), and [`Conflict::View`].
    /// What they mean depends on whether the transaction is decided.
    pub(super) async fn meet(&self, state: &mut State<'e, F::Port>, node: NodeId) -> Result<(), Error> {
        let met = match self.at_present(node) {
            Some(met) => met,
            None => {
                self.check_open(state, node)?;
                self.greet(node).await.map_err(|error| state.not_greeted(node, error))?
            }
        };
        match S::has(Mutation::IncarnationsMixed) {
            true => {
                state.owner(node).met = Some(met);
                Ok(())
            }
            false => state.meet(node, met),
        }
    }

    /// Returns whether this node has a lease on the view, if it needs one: what a transaction has
    /// read may be returned.
    #[inline]
    pub(super) fn may_serve(&self) -> bool {
        match &self.node.tenure {
            Some(tenure) => tenure.holds(self.endpoint().now()) || S::has(Mutation::LeaseIgnored),
            None => true,
        }
    }

    /// Checks, before a transaction is decided or its first record is sent, that all nodes which it
    /// has met are the same incarnations still, and that its view is the node's.
    ///
    /// # Errors
    ///
    /// [`Conflict::View`].
    pub(super) fn check_view(&self, state: &State<'e, F::Port>) -> Result<(), Error> {
        let is_same = |owner: &Owner| match self.endpoint().presence(owner.node).last() {
            Some(last) => owner.met.is_none_or(|met| met == last),
            None => true,
        };
        let is_current = self.node.view.is_open(state.view.number()) || S::has(Mutation::DecidedAfterPrepare);
        if !self.may_serve() {
            return Err(Conflict::View.into());
        }
        match is_current && (state.owners.iter().all(is_same) || S::has(Mutation::IncarnationsMixed)) {
            true => Ok(()),
            false => Err(Conflict::View.into()),
        }
    }
}
