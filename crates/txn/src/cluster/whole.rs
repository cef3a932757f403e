//! Commits that their owner carries out whole: all that a transaction changes there is one call.
//! See [`access`](super::access), and `docs/decisions/0060` for owners with a log.

use std::marker::PhantomData;

use drtm_rdma::{
    Fabric, NodeId, Phase, Port,
    rpc::{Calls, Encode as _, RpcError, Slot},
};

use super::{
    ClusterError,
    ask::{Ask, Asked, Asks, cost},
    coordinator::Coordinator,
    round::outcome_unknown,
    state::{Sent, State},
    wire::{ApplyAll, ApplyRows, Change, ChangedRow},
};
use crate::{Config, Durability, Error, mutation::Mutation};

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Whether commits at a node are carried out whole there, and rows locked by message: where it
    /// frees what dead clients have locked, and where it has a log, which gets one record of each
    /// transaction.
    pub(super) fn commits_whole(&self, node: NodeId) -> bool {
        let is_freed = self.node.frees_the_dead && node != self.id();
        is_freed || self.durability_of(node).is_some() && !S::has(Mutation::LogsBypassed)
    }

    fn has_log(&self, node: NodeId) -> bool {
        self.durability_of(node).is_some()
    }

    /// When a node's log has what is written to it. `None` without a log, or if it was not met.
    pub(super) fn durability_of(&self, node: NodeId) -> Option<Durability> {
        if node == self.id() {
            return self.node.home.durability();
        }
        self.peer(node).and_then(|peer| peer.durability)
    }

    /// Sends all that a transaction changes at an owner, which carries it out whole.
    pub(super) async fn send_whole(
        &self,
        state: &mut State<'e, F::Port>,
        node: NodeId,
        phase: Phase,
        applies: Asks,
    ) -> Result<(), Error> {
        let mut calls = self.rpc(phase).to(node);
        let slot = match state.encode_whole(node, (&applies, self.has_log(node)), &mut calls) {
            Ok(slot) => slot,
            Err(error) => return Err(state.failed(node, error)),
        };
        let posted = calls.post(None).await;
        let asked = vec![Asked::ApplyAll(applies, slot)];
        state.note_sent(&asked);
        match posted {
            Ok(posted) => {
                state.sent.push(Sent { posted, asked });
                Ok(())
            }
            Err(source) => Err(state.failed(node, source)),
        }
    }

    /// Carries out here all that a transaction changes at this node, of what is asked.
    pub(super) fn apply_whole(&self, state: &mut State<'e, F::Port>, asks: &[Ask]) -> Result<(), Error> {
        let node = self.id();
        let is_here = |ask: &Ask| matches!(ask, Ask::Apply(_)) && state.node_of(*ask) == node;
        let applies: Asks = asks.iter().copied().filter(is_here).collect();
        if applies.is_empty() {
            return Ok(());
        }
        applies.iter().for_each(|ask| self.endpoint().charge(cost(*ask)));
        applies.iter().filter_map(|ask| ask.row()).for_each(|row| state.rows[row as usize].is_sent = true);
        let rows = state.changed_rows(&applies, true);
        let all = ApplyRows { holder: state.holder, epoch: state.epoch_at(node), rows: &rows };
        self.participant().apply_all(&all).map_err(|refusal| outcome_unknown(node, refusal))
    }

    /// Checks that what a transaction writes fits one message, if it is to go in one. Meets the
    /// owners that it has not met.
    ///
    /// # Errors
    ///
    /// [`ClusterError::TooLargeForOne`]; or when an owner cannot be asked.
    pub(super) async fn fits_one_message(&self, state: &State<'e, F::Port>) -> Result<(), Error> {
        for node in state.rows.iter().filter(|row| row.is_written() && row.owner != self.id()).map(|row| row.owner) {
            self.greet(node).await.map_err(|error| state.not_greeted(node, error))?;
        }
        let is_remote = |node: NodeId| node != self.id() && self.commits_whole(node);
        for owner in state.owners.iter().filter(|owner| is_remote(owner.node)) {
            let written = state.rows.iter().zip(0..).filter(|(row, _)| row.is_written() && row.owner == owner.node);
            let applies: Asks = written.map(|(_, number)| Ask::Apply(number)).collect();
            let mut calls = self.rpc(Phase::Commit).to(owner.node);
            if let Err(RpcError::Full) =
                state.encode_whole(owner.node, (&applies, self.has_log(owner.node)), &mut calls)
            {
                let most = self.endpoint().capabilities().max_message_bytes;
                return Err(ClusterError::TooLargeForOne { most }.into());
            }
        }
        Ok(())
    }
}

impl<P: Port> State<'_, P> {
    /// Adds all that the transaction changes at an owner to a message, as one request.
    fn encode_whole(
        &self,
        node: NodeId,
        (applies, is_logged): (&Asks, bool),
        calls: &mut Calls<'_, P>,
    ) -> Result<Slot<ApplyAll>, RpcError> {
        let rows = self.changed_rows(applies, is_logged);
        calls.add::<ApplyAll>(&ApplyRows { holder: self.holder, epoch: self.epoch_at(node), rows: &rows })
    }

    /// What a transaction makes of rows, encoded one behind the other: with the values of inserted
    /// rows, if the owner logs them.
    fn changed_rows(&self, applies: &Asks, is_logged: bool) -> Vec<u8> {
        let mut rows = Vec::new();
        for number in applies.iter().filter_map(|ask| ask.row()) {
            let row = &self.rows[number as usize];
            let (table, key, at) = (row.table, row.key.in_bytes(&self.arena.keys), row.at.unwrap_or_default());
            let change = match self.change(number) {
                Change::Publish(_) if is_logged => Change::Publish(self.value(number)),
                change => change,
            };
            ChangedRow { table, key, at, change, borrows: PhantomData }.encode(&mut rows);
        }
        rows
    }
}
