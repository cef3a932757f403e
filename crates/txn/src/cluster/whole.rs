//! Commits that their owner carries out whole: all that a transaction changes there is one call.
//! See [`access`](super::access).

use std::marker::PhantomData;

use drtm_rdma::{
    Fabric, NodeId, Phase, Port,
    rpc::{Calls, Encode as _, RpcError, Slot},
};

use super::{
    ClusterError,
    ask::{Ask, Asked, Asks},
    coordinator::Coordinator,
    state::{Sent, State},
    wire::{ApplyAll, ApplyRows, ChangedRow},
};
use crate::{Config, Error};

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Whether commits at another node are carried out whole there.
    pub(super) fn commits_whole(&self, node: NodeId) -> bool {
        self.node.frees_the_dead && node != self.id()
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
        let slot = match state.encode_whole(node, &applies, &mut calls) {
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

    /// Checks that what a transaction writes fits one message, if it is to go in one.
    ///
    /// # Errors
    ///
    /// [`ClusterError::TooLargeForOne`].
    pub(super) fn fits_one_message(&self, state: &State<'e, F::Port>) -> Result<(), Error> {
        for owner in state.owners.iter().filter(|owner| self.commits_whole(owner.node)) {
            let written = state.rows.iter().zip(0..).filter(|(row, _)| row.is_written() && row.owner == owner.node);
            let applies: Asks = written.map(|(_, number)| Ask::Apply(number)).collect();
            let mut calls = self.rpc(Phase::Commit).to(owner.node);
            if let Err(RpcError::Full) = state.encode_whole(owner.node, &applies, &mut calls) {
                let most = self.endpoint().capabilities().max_message_bytes;
                return Err(ClusterError::TooLargeForOne { most }.into());
            }
        }
        Ok(())
    }
}

impl<P: Port> State<'_, P> {
    /// Adds all that the transaction changes at an owner to a message, as one request.
    fn encode_whole(&self, node: NodeId, applies: &Asks, calls: &mut Calls<'_, P>) -> Result<Slot<ApplyAll>, RpcError> {
        let mut rows = Vec::new();
        for number in applies.iter().filter_map(|ask| ask.row()) {
            let row = &self.rows[number as usize];
            let (table, key, at) = (row.table, row.key.in_bytes(&self.arena.keys), row.at.unwrap_or_default());
            let change = self.change(number);
            ChangedRow { table, key, at, change, borrows: PhantomData }.encode(&mut rows);
        }
        calls.add::<ApplyAll>(&ApplyRows { holder: self.holder, epoch: self.epoch_at(node), rows: &rows })
    }
}
