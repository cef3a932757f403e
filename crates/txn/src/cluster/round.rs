//! A round: requests to any number of owners, all under way at the same time, and the transaction
//! notes their answers.
//!
//! A request to this node is served at once, and one to another goes by message, or by verbs.
//! Protocol code says what is to be done, and not how.
//! Requests to one owner that do not fit one message go in several, one after the other, so that
//! the last is carried out last.

use drtm_rdma::{Fabric, NodeId, Phase, rpc::RpcError};
use smallvec::SmallVec;

use super::{
    ClusterError, Refusal,
    ask::{Ask, Asks},
    coordinator::Coordinator,
    shard::ShardId,
    state::{Culprit, Hold, Sent, Sight, State},
    wire::stamp::Stamp,
};
use crate::{Config, Conflict, Error, mutation::Mutation};

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Asks, and waits for all answers. They have changed the state, those after a failure too.
    ///
    /// # Errors
    ///
    /// The first that there is.
    pub(super) async fn round(&self, state: &mut State<'e, F::Port>, phase: Phase, asks: &[Ask]) -> Result<(), Error> {
        let is_remote = asks.iter().any(|ask| ask.node(state) != self.id());
        // Most rounds of most bodies: there is nothing to send, and nothing to wait for.
        if !is_remote && state.is_quiet() {
            state.check_asked(asks)?;
            return self.serve_here(state, asks.iter().copied());
        }
        let began = is_remote.then(|| self.endpoint().now());
        let mut outcome = self.post(state, phase, asks).await;
        keep_first(&mut outcome, self.collect(state).await);
        // What was missed in the memory of its owner, that one has to say.
        let missed: Asks = asks.iter().copied().filter(|ask| state.was_missed(*ask)).collect();
        if !missed.is_empty() && outcome.is_ok() {
            outcome = self.post(state, phase, &missed).await;
            keep_first(&mut outcome, self.collect(state).await);
        }
        if let Some(began) = began {
            self.count_round(phase, self.endpoint().now().since(began));
        }
        outcome
    }

    /// Asks, and waits for what verbs find, but not for messages, nor for rows to be written.
    ///
    /// # Errors
    ///
    /// The first that there is.
    pub(super) async fn post(&self, state: &mut State<'e, F::Port>, phase: Phase, asks: &[Ask]) -> Result<(), Error> {
        state.check_asked(asks)?;
        let (mut outcome, mut by_verbs) = (Ok(()), Asks::new());
        let nodes: SmallVec<[NodeId; 16]> = asks.iter().map(|ask| ask.node(state)).collect();
        for owner in 0..state.owners.len() {
            let node = state.owners[owner].node;
            if node != self.id() && nodes.contains(&node) {
                // Nothing is asked of a node that does not know this one. The others are asked all
                // the same: they may have to carry out what is decided, or give up locks.
                if let Err(error) = self.meet(state, node).await {
                    if !self.has_done(state, node) {
                        keep_first(&mut outcome, self.forgive(state, Err(error)));
                    }
                    continue;
                }
                let mut by_message = Asks::new();
                for (ask, _) in asks.iter().zip(&nodes).filter(|(_, at)| **at == node) {
                    if self.is_by_verbs(state, *ask) { by_verbs.push(*ask) } else { by_message.push(*ask) }
                }
                if !by_message.is_empty() {
                    let sent = self.send(state, node, phase, &by_message).await;
                    keep_first(&mut outcome, self.forgive(state, sent));
                }
            }
        }
        // What is here is done while the messages are on their way.
        let here = asks.iter().zip(&nodes).filter(|(_, at)| **at == self.id());
        keep_first(&mut outcome, self.serve_here(state, here.map(|(ask, _)| *ask)));
        if !by_verbs.is_empty() {
            keep_first(&mut outcome, self.reach(state, phase, &by_verbs).await);
        }
        outcome
    }

    /// Carries requests out that are this node's.
    fn serve_here(&self, state: &mut State<'e, F::Port>, asks: impl Iterator<Item = Ask>) -> Result<(), Error> {
        let mut outcome = Ok(());
        for ask in asks {
            let settled = ask.here(self, state);
            state.blame(ask.row(), &settled);
            keep_first(&mut outcome, settled);
        }
        outcome
    }

    /// Sends requests to one other node.
    async fn send(
        &self,
        state: &mut State<'e, F::Port>,
        node: NodeId,
        phase: Phase,
        mut asks: &[Ask],
    ) -> Result<(), Error> {
        let (mut outcome, rpc) = (Ok(()), self.rpc(phase).tagged(state.stamp(node).tag()));
        #[cfg(feature = "hades")]
        let rpc = rpc.sent_by(super::ask::sender(asks));
        while !asks.is_empty() {
            let mut calls = rpc.to(node);
            let mut asked = Asks::new();
            while let Some((ask, others)) = asks.split_first() {
                match ask.add(state, &mut calls) {
                    Ok(()) => asked.push(*ask),
                    Err(RpcError::Full) if !asked.is_empty() => break,
                    Err(RpcError::Full) => return Err(self.too_long(state, *ask)),
                    Err(error) => return Err(ClusterError::Unreachable { node, source: error }.into()),
                }
                asks = others;
            }
            match calls.post(None).await {
                Ok(posted) => {
                    asked.iter().for_each(|ask: &Ask| ask.sent(state));
                    state.sent.push(Sent { posted, asked });
                }
                Err(source) => {
                    asked.iter().for_each(|ask: &Ask| ask.sent(state));
                    return self.unanswered(state, node, source);
                }
            }
            if !asks.is_empty() {
                keep_first(&mut outcome, self.collect(state).await);
            }
        }
        outcome
    }

    /// Waits for everything that is under way.
    ///
    /// # Errors
    ///
    /// The first that there is.
    pub(super) async fn collect(&self, state: &mut State<'e, F::Port>) -> Result<(), Error> {
        let mut outcome = Ok(());
        let given_up = state.given_up.take().into_iter().filter(|_| !S::has(Mutation::ClaimsNotAwaited));
        state.sent.extend(given_up.map(|posted| Sent { posted, asked: Asks::new() }));
        while let Some(sent) = state.sent.last_mut() {
            let node = sent.posted.node();
            let results = sent.posted.results().await;
            let Some(sent) = state.sent.pop() else { break };
            match results {
                Ok(results) => {
                    let mut results = results.in_order();
                    let is_of_view = results.tag() == Ok(state.view.number().into());
                    for ask in &sent.asked {
                        let settled = ask.settle(state, node, (&mut results, is_of_view));
                        if let Err(Error::Conflict(Conflict::View)) = settled {
                            self.meet_anew(node);
                        }
                        state.blame(ask.row(), &settled);
                        keep_first(&mut outcome, settled);
                    }
                }
                Err(error) => {
                    if S::has(Mutation::UnknownLocksForgotten) {
                        for asked in &sent.asked {
                            if let Ask::Lock(row) = asked {
                                state.rows[*row as usize].hold = Hold::None;
                            }
                        }
                    }
                    keep_first(&mut outcome, self.unanswered(state, node, error));
                }
            }
        }
        while let Some((node, written)) = state.written.last_mut() {
            let (node, written) = (*node, written.await);
            state.written.pop();
            if let Err(source) = written {
                keep_first(&mut outcome, self.unanswered(state, node, source.into()));
            }
        }
        outcome
    }

    /// Returns what it means for a transaction that a node has not answered: nothing, if that has
    /// closed and carried it out, or if its copies carry it out.
    fn unanswered(&self, state: &mut State<'e, F::Port>, node: NodeId, source: RpcError) -> Result<(), Error> {
        match self.has_done(state, node) {
            true => Ok(()),
            false => {
                let failed = Err(state.failed(node, source));
                self.forgive(state, failed)
            }
        }
    }

    fn too_long(&self, state: &State<'e, F::Port>, ask: Ask) -> Error {
        let most = self.endpoint().capabilities().max_message_bytes;
        let table = ask.row().map_or("", |row| self.table_name(state.rows[row as usize].table));
        ClusterError::RowTooLong { table, most }.into()
    }
}

/// Keeps the first of several failures. A conflict counts less than what is worse, and a lock less
/// than other conflicts: it may be waited for, and what has succeeded is not asked again then.
pub(super) fn keep_first(outcome: &mut Result<(), Error>, other: Result<(), Error>) {
    let Err(error) = other else { return };
    let weight = |error: &Error| match error {
        Error::Conflict(Conflict::Locked) => 0,
        Error::Cluster(_) => 2,
        _ => 1,
    };
    if outcome.as_ref().err().is_none_or(|first| weight(&error) > weight(first)) {
        *outcome = Err(error);
    }
}

impl<P: drtm_rdma::Port> State<'_, P> {
    /// Notes what was in the way, if this outcome is a conflict, and the first.
    pub(super) fn blame(&mut self, row: Option<u32>, outcome: &Result<(), Error>) {
        if let Err(Error::Conflict(_)) = outcome {
            // A squash does not say which line it is about.
            #[cfg(feature = "hades")]
            let row = row
                .filter(|_| self.in_nics.is_none() || !matches!(outcome, Err(Error::Conflict(Conflict::Validation))));
            if let Some(row) = row {
                self.rows[row as usize].is_contended = true;
            }
            self.culprit.get_or_insert(row.map_or(Culprit::Unknown, Culprit::Row));
        }
    }

    /// Returns whether a row was looked up by verbs, and missed.
    fn was_missed(&self, ask: Ask) -> bool {
        matches!(ask, Ask::Read(row) | Ask::Lease(row) if self.rows[row as usize].sight == Sight::Missed)
    }

    /// Checks that nodes serve these shards. What this refuses, no node has heard of.
    ///
    /// # Errors
    ///
    /// [`ClusterError::ShardLost`] names the first that none serves.
    pub(super) fn check_served(&self, mut shards: impl Iterator<Item = ShardId>) -> Result<(), ClusterError> {
        if !self.view.has_lost() {
            return Ok(());
        }
        match shards.find(|shard| self.view.is_lost(*shard)) {
            Some(shard) => Err(ClusterError::ShardLost { shard }),
            None => Ok(()),
        }
    }

    /// Checks that the shards are served which these requests are about: by other nodes, or by this
    /// one, which may have had a lost shard before it was started again.
    fn check_asked(&self, asks: &[Ask]) -> Result<(), ClusterError> {
        self.check_served(asks.iter().filter_map(|ask| ask.shard(self)))
    }

    pub(super) fn epoch_of(&self, row: u32) -> u64 {
        self.owner_of(row).map_or(0, |owner| owner.epoch)
    }

    /// Returns what a refusal by a node means for the transaction.
    #[cfg(feature = "hades")]
    pub(super) fn refused(&self, node: NodeId, refusal: Refusal) -> Error {
        self.failed(node, RpcError::Refused { reason: refusal as u32 })
    }

    /// Returns what a failure to ask means for the transaction.
    pub(super) fn failed(&self, node: NodeId, source: RpcError) -> Error {
        // A row that is locked cannot be refused, and what is decided happens.
        if self.is_decided {
            return ClusterError::OutcomeUnknown { node, source }.into();
        }
        match (source.refused().map(Refusal::from_number), source) {
            (Some(Some(reason)), _) => refused(node, reason),
            (Some(None), _) => ClusterError::Nonsense { node, what: "a refusal for a reason that is not known" }.into(),
            (None, RpcError::Reply(_)) => ClusterError::Nonsense { node, what: "a reply that is none" }.into(),
            (None, source) => ClusterError::Unreachable { node, source }.into(),
        }
    }

    /// Returns what it means for the transaction that a node is in another view, or is another
    /// incarnation.
    pub(super) fn failed_in_view(&self, node: NodeId) -> Error {
        self.failed(node, RpcError::Refused { reason: Refusal::OtherView as u32 })
    }

    /// Returns what a stamp on requests to a node says.
    pub(super) fn stamp(&self, node: NodeId) -> Stamp {
        Stamp::new(self.view.number(), self.met(node))
    }

    /// Returns what a failure to meet an owner means for the transaction.
    pub(super) fn not_greeted(&self, node: NodeId, error: Error) -> Error {
        match error {
            Error::Cluster(ClusterError::Unreachable { source, .. }) => self.failed(node, source),
            Error::Cluster(ClusterError::Refused { reason, .. }) if !self.is_decided => refused(node, reason),
            error => error,
        }
    }
}

/// Returns what a refusal means for a transaction that has not been decided.
fn refused(node: NodeId, reason: Refusal) -> Error {
    match reason {
        Refusal::Locked => Conflict::Locked.into(),
        Refusal::Moved => Conflict::Moved.into(),
        Refusal::Squashed => Conflict::Validation.into(),
        Refusal::OtherView => Conflict::View.into(),
        reason => ClusterError::Refused { node, reason }.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row was inserted by another transaction, which only the first answer says, and another row
    /// is locked: if that were waited for, nothing would tell of the first one any more.
    #[test]
    fn a_lock_hides_no_other_conflict() {
        let locked = || Err(Conflict::Locked.into());
        let phantom = || Err(Conflict::Phantom.into());
        for order in [[locked(), phantom()], [phantom(), locked()]] {
            let mut outcome = Ok(());
            order.into_iter().for_each(|failed| keep_first(&mut outcome, failed));
            assert!(matches!(outcome, Err(Error::Conflict(Conflict::Phantom))), "{outcome:?}");
        }
    }
}
