//! Running a transaction piece by piece, each as a distributed transaction of its own.
//!
//! The transaction of each piece compares the row of progress, and changes it: it commits only if
//! the piece is the next one. So it does not matter how many run a transaction at once, or whether
//! one that was given up is carried out all the same.

use drtm_rdma::Fabric;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    super::{ClusterError, ClusterTx, Worker},
    access::PieceTx,
    id::Id,
    procedure::Code,
    room::Room,
};
use crate::{
    ChoppedError, Codec, Config, Error, Postcard, Transaction,
    chopped::{draft::Analysed, plan::Plan, remainder},
    mutation::Mutation,
};

/// Notes a transaction of this node that may have to be finished, unless it is disarmed.
pub(super) struct MayBeLeft<'r, 'e, F: Fabric, S: Config<Engine = F::Engine>> {
    worker: &'r Worker<'e, F, S>,
    table: u16,
    id: Option<Id>,
}

impl<'r, 'e, F: Fabric, S: Config<Engine = F::Engine>> MayBeLeft<'r, 'e, F, S> {
    pub(super) fn new(worker: &'r Worker<'e, F, S>, table: u16) -> Self {
        Self { worker, table, id: None }
    }

    /// Notes the transaction when this is dropped. Those of other lives need not be noted: they
    /// are found.
    pub(super) fn arm(&mut self, id: Id) {
        self.id = Some(id).filter(|id| id.life == self.worker.inner.node.left.life());
    }

    pub(super) fn disarm(&mut self) {
        self.id = None;
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Drop for MayBeLeft<'_, '_, F, S> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.worker.inner.node.left.note(self.table, id);
        }
    }
}

/// A transaction that runs.
pub(super) struct Run<'r, 'e, F: Fabric, S: Config<Engine = F::Engine>, L> {
    pub(super) worker: &'r Worker<'e, F, S>,
    pub(super) room: &'r Room<F, S>,
    pub(super) analysed: &'r Analysed,
    pub(super) plan: &'r Plan,
    pub(super) code: &'r L,
    pub(super) number: usize,
    /// What its row of progress is known by. `None` if it is not needed, since one piece has all
    /// effects.
    pub(super) id: Option<Id>,
    /// Whether a piece with an effect has run.
    pub(super) has_begun: bool,
    /// Whether what is left is the concern of whatever resumes the transaction.
    pub(super) is_resumed: bool,
}

impl<F: Fabric, S: Config<Engine = F::Engine>, L> Run<'_, '_, F, S, L> {
    /// Runs the pieces from a place on.
    pub(super) async fn from<St>(mut self, first: usize, mut state: St) -> Result<St, Error>
    where
        St: Clone + Serialize + DeserializeOwned + 'static,
        L: Code<F, S, St>,
    {
        let (mut next, mut bytes) = (state.clone(), Vec::new());
        let mut left = MayBeLeft::new(self.worker, self.room.progress.number());
        for place in first..self.plan.pieces.len() {
            let has_effect = self.plan.pieces[place].has_effect;
            if has_effect
                && !self.is_resumed
                && let Some(id) = self.id
            {
                // Its future may be dropped while it is carried out.
                left.arm(id);
            }
            let times = if S::has(Mutation::PieceRepeated) && has_effect { 2 } else { 1 };
            for _ in 0..times {
                if let Err(error) = self.piece(place, &state, &mut next, &mut bytes).await {
                    return Err(self.failed(place, error, &mut left));
                }
            }
            if place == self.plan.last_effect {
                left.disarm();
            }
            self.has_begun |= has_effect;
            std::mem::swap(&mut state, &mut next);
        }
        Ok(state)
    }

    /// Runs a piece as a transaction of its own.
    async fn piece<St>(&self, place: usize, state: &St, next: &mut St, bytes: &mut Vec<u8>) -> Result<(), Error>
    where
        St: Clone + Serialize + DeserializeOwned + 'static,
        L: Code<F, S, St>,
    {
        let piece = &self.plan.pieces[place];
        let noted = self.id.filter(|_| piece.has_effect);
        let is_apart = S::has(Mutation::ProgressApart);
        next.clone_from(state);
        let ran = self.worker.transact(async |tx| {
            if !S::has(Mutation::FailedRunHandedOver) {
                next.clone_from(state);
            }
            for &member in &piece.members {
                let permits = &self.analysed.permits[self.number][member];
                self.code.run(member, &mut PieceTx::new(tx, permits, None), next).await?;
            }
            match noted.filter(|_| !is_apart) {
                Some(id) => self.note(tx, id, (place, next), bytes).await,
                None => Ok(()),
            }
        });
        ran.await?;
        match noted.filter(|_| is_apart) {
            Some(id) => self.worker.transact(async |tx| self.note(tx, id, (place, next), bytes).await).await,
            None => Ok(()),
        }
    }

    /// Notes that a piece is done: writes what is left to do, or removes it after the last one.
    ///
    /// # Errors
    ///
    /// [`ChoppedError::TakenOver`] if the piece was not the next one.
    async fn note<St>(
        &self,
        tx: &mut ClusterTx<'_, F, S>,
        id: Id,
        (place, state): (usize, &St),
        bytes: &mut Vec<u8>,
    ) -> Result<(), Error>
    where
        St: Clone + Serialize + DeserializeOwned + 'static,
    {
        let (rows, plan) = (self.room.progress.rows, self.plan);
        // No other transaction has its first row.
        if self.has_begun && !S::has(Mutation::ProgressNotCompared) {
            let next = tx.view(rows, id.key(), remainder::next_of).await?.flatten();
            // Pieces without an effect are not noted.
            let is_next = |next: u16| {
                usize::from(next) <= place
                    && self.plan.pieces[usize::from(next)..place].iter().all(|piece| !piece.has_effect)
            };
            if !next.is_some_and(is_next) {
                return Err(ChoppedError::TakenOver { transaction: self.name().to_owned() }.into());
            }
        }
        if place == plan.last_effect {
            if !S::has(Mutation::RemainderNotRemoved) {
                tx.remove(rows, id.key()).await?;
            }
            return Ok(());
        }
        remainder::begin(bytes, self.name(), plan.fingerprint, place + 1);
        let encoded = Postcard::<St>::encode(state, bytes);
        let table = || self.worker.inner.table_name(self.room.progress.number());
        encoded.map_err(|source| Error::Codec { table: table(), source })?;
        tx.put(rows, id.key(), &bytes[..]).await
    }

    fn name(&self) -> &str {
        self.analysed.chopping.transactions()[self.number].name()
    }

    /// Returns the error of a transaction whose piece has failed. What is left of it stays armed if
    /// there may be something.
    #[cold]
    fn failed(&self, place: usize, error: Error, left: &mut MayBeLeft<'_, '_, F, S>) -> Error {
        let is_taken_over = matches!(&error, Error::Chopped(why) if matches!(**why, ChoppedError::TakenOver { .. }));
        if is_taken_over || !self.has_begun && !may_have_happened(&error) {
            left.disarm();
            return error;
        }
        // All pieces have committed, or this is to be found out.
        if !self.has_begun || place == self.plan.last_effect && is_in_doubt(&error) {
            return error;
        }
        let (transaction, source) = (self.name().to_owned(), Box::new(error));
        ChoppedError::Halted { transaction, piece: place + 1, source }.into()
    }
}

/// Returns whether an error leaves open whether the transaction has happened: not all of these do,
/// but it does no harm to look.
fn may_have_happened(error: &Error) -> bool {
    matches!(error, Error::Cluster(_)) || is_in_doubt(error)
}

/// Returns whether an error says that the transaction was decided, or may have been.
fn is_in_doubt(error: &Error) -> bool {
    use ClusterError::{CutOff, Interrupted, OutcomeUnknown};
    matches!(
        error,
        Error::Cluster(OutcomeUnknown { .. } | CutOff | Interrupted { may_have_happened: true, .. })
            | Error::NotYetDurable { .. }
            | Error::OutcomeUnknown { .. }
    )
}
