//! Running a transaction piece by piece.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};

use serde::{Serialize, de::DeserializeOwned};

use super::{
    access::PieceTx,
    plan::Plan,
    procedure::{Code, Procedure},
    remainder::{self, Remainder},
    room::{Room, Shared, name_of},
};
use crate::{ChoppedError, Codec, Config, Error, Postcard, Tx, mutation::Mutation};

/// A transaction of a program, to be run. Clones are the same transaction, and any thread may use
/// them.
///
/// # Example
///
/// See [`chopped`](super).
pub struct Call<S: Config, St, L> {
    room: Arc<Room<S>>,
    procedure: Arc<Procedure<S, St, L>>,
    number: usize,
}

impl<S: Config, St, L> Clone for Call<S, St, L> {
    fn clone(&self) -> Self {
        Self { room: Arc::clone(&self.room), procedure: Arc::clone(&self.procedure), number: self.number }
    }
}

impl<S: Config, St, L: Code<S, St>> fmt::Debug for Call<S, St, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("procedure", &self.procedure).finish_non_exhaustive()
    }
}

/// What each piece of a transaction runs within, for studies: an htm transaction that has all of
/// the piece, say.
#[doc(hidden)]
pub trait Around {
    /// Runs a piece, by its place among those that were merged, and returns its result. A run that
    /// has left no trace may be repeated.
    fn piece(&mut self, place: usize, run: impl FnMut() -> Result<(), Error>) -> Result<(), Error>;
}

/// Nothing around a piece.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Bare;

impl Around for Bare {
    #[inline(always)]
    fn piece(&mut self, _: usize, mut run: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
        run()
    }
}

/// What pieces can hand over.
pub(super) trait State: Clone + Serialize + DeserializeOwned + 'static {}

impl<T: Clone + Serialize + DeserializeOwned + 'static> State for T {}

/// Finishes transactions of one kind, whose types the program does not know.
pub(super) trait Resume<S: Config>: Send + Sync + fmt::Debug {
    /// Runs what is left of a transaction.
    fn resume(&self, shared: &Shared<S>, number: usize, row: Option<u64>, rest: &Remainder) -> Result<(), Error>;
}

impl<S: Config, St: State, L: Code<S, St>> Resume<S> for Procedure<S, St, L> {
    fn resume(&self, shared: &Shared<S>, number: usize, row: Option<u64>, rest: &Remainder) -> Result<(), Error> {
        let state = Postcard::<St>::decode(&rest.state).map_err(|source| of_state(shared, source))?;
        Run { shared, plan: &shared.plans[number], code: &self.code, number, row, has_begun: true }
            .from(rest.next.into(), state, &mut Bare)
            .map(drop)
    }
}

impl<S: Config, St, L> Call<S, St, L> {
    pub(super) fn of(room: Arc<Room<S>>, procedure: Arc<Procedure<S, St, L>>, number: usize) -> Self {
        Self { room, procedure, number }
    }
}

impl<S, St, L> Call<S, St, L>
where
    S: Config,
    St: Clone + Serialize + DeserializeOwned + 'static,
    L: Code<S, St>,
{
    /// Runs the transaction, and returns the state as its last piece leaves it. In a database with
    /// a log, the last commit waits until it is durable, as the database's
    /// [durability](crate::Builder::durability) says, and with it all earlier ones.
    ///
    /// # Errors
    ///
    /// [`Error::Aborted`] if a piece has aborted it, and any other error of a piece before the
    /// first with an effect: then nothing has happened. [`ChoppedError::Halted`] if a later piece
    /// has failed. [`ChoppedError::HaltedOthers`] if the transaction runs alone, or takes part in
    /// publications, and another one has halted. [`Error::NotYetDurable`] and
    /// [`Error::OutcomeUnknown`] if all pieces have committed, but may not be durable.
    /// [`Error::Nested`] within the closure of a transaction.
    ///
    /// # Panics
    ///
    /// Panics if a piece panics. If others have had an effect by then, the transaction has halted.
    ///
    /// # Example
    ///
    /// See [`chopped`](super).
    pub fn run(&self, input: St) -> Result<St, Error> {
        self.run_within(input, &mut Bare)
    }

    /// Like [`run`](Self::run), but runs each piece within `around`.
    #[doc(hidden)]
    pub fn run_within(&self, input: St, around: &mut impl Around) -> Result<St, Error> {
        let shared = self.room.shared()?;
        // A transaction that this thread is running would be waited for in vain.
        if shared.db.is_in_closure() {
            return Err(Error::Nested);
        }
        let (number, plan) = (self.number, &shared.plans[self.number]);
        if plan.is_party {
            shared.publish_if_due()?;
        }
        let alone = plan.alone.as_ref().map(|alone| alone.lock());
        if alone.is_some() {
            // One that has halted is under way.
            shared.check_halted()?;
        }
        let _under_way = plan.is_counted.then(|| shared.moments.begin(number));
        let code = &self.procedure.code;
        let row = (shared.is_logged && plan.effects > 1).then(|| shared.moments.next_id());
        Run { shared, plan, code, number, row, has_begun: false }.from(0, input, around)
    }
}

/// A transaction that runs.
struct Run<'r, S: Config, L> {
    shared: &'r Shared<S>,
    plan: &'r Plan,
    code: &'r L,
    number: usize,
    /// The row that has what is left. `None` if nothing is logged.
    row: Option<u64>,
    /// Whether a piece with an effect has run.
    has_begun: bool,
}

/// What a transaction keeps from one piece to the next, so that nothing is allocated for each.
#[derive(Default)]
struct Buffers {
    rest: Vec<u8>,
    additions: Vec<u8>,
}

impl<S: Config, L> Run<'_, S, L> {
    /// Runs the pieces from a place on.
    fn from<St: State>(mut self, first: usize, mut state: St, around: &mut impl Around) -> Result<St, Error>
    where
        L: Code<S, St>,
    {
        let (mut next, mut buffers) = (state.clone(), Buffers::default());
        for place in first..self.plan.pieces.len() {
            let has_effect = self.plan.pieces[place].has_effect;
            let times = if S::has(Mutation::PieceRepeated) && has_effect { 2 } else { 1 };
            for _ in 0..times {
                let ran = catch_unwind(AssertUnwindSafe(|| {
                    around.piece(place, || self.piece(place, &state, &mut next, &mut buffers))
                }));
                match ran {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) if !self.has_begun => return Err(error),
                    Err(panic) if !self.has_begun => resume_unwind(panic),
                    // Only the last piece with an effect waits, so nothing is left.
                    Ok(Err(error @ (Error::NotYetDurable { .. } | Error::OutcomeUnknown { .. }))) => return Err(error),
                    failed => return self.halt(place, &state, failed),
                }
            }
            self.has_begun |= has_effect;
            std::mem::swap(&mut state, &mut next);
        }
        Ok(state)
    }

    /// Runs a piece as a transaction of its own.
    fn piece<St: State>(&self, place: usize, state: &St, next: &mut St, buffers: &mut Buffers) -> Result<(), Error>
    where
        L: Code<S, St>,
    {
        let (shared, plan) = (self.shared, self.plan);
        let piece = &plan.pieces[place];
        next.clone_from(state);
        shared.db.transact(|tx| {
            if !S::has(Mutation::FailedRunHandedOver) {
                next.clone_from(state);
            }
            if place < plan.last_effect {
                // That one waits for all: its epoch is not before theirs.
                tx.be_submitted();
            }
            buffers.additions.clear();
            for &member in &piece.members {
                let permits = &shared.permits[self.number][member];
                self.code.run(member, &mut PieceTx::new(tx, permits, &mut buffers.additions), next)?;
            }
            if !buffers.additions.is_empty() {
                tx.insert(shared.additions, shared.moments.next_id(), &*buffers.additions)?;
            }
            match self.row.filter(|_| piece.has_effect) {
                Some(row) => self.leave(tx, row, (place, next), &mut buffers.rest),
                None => Ok(()),
            }
        })
    }

    /// Writes what is left to do after a piece, or removes it after the last one.
    fn leave<St: State>(
        &self,
        tx: &mut Tx<'_, S>,
        row: u64,
        (place, state): (usize, &St),
        bytes: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let (shared, plan) = (self.shared, self.plan);
        if place == plan.last_effect {
            if !shared.has(Mutation::RemainderNotRemoved) {
                tx.remove(shared.remainders, row)?;
            }
            return Ok(());
        }
        self.encode(bytes, place + 1, state)?;
        tx.put(shared.remainders, row, bytes)
    }

    fn encode<St: State>(&self, bytes: &mut Vec<u8>, next: usize, state: &St) -> Result<(), Error> {
        let (shared, plan) = (self.shared, self.plan);
        remainder::begin(bytes, self.name(), plan.fingerprint, next);
        Postcard::<St>::encode(state, bytes).map_err(|source| of_state(shared, source))
    }

    fn name(&self) -> &str {
        self.shared.chopping.transactions()[self.number].name()
    }

    /// Keeps what is left, as a piece has failed, or panicked, after another had an effect.
    #[cold]
    fn halt<St: State>(
        &self,
        place: usize,
        state: &St,
        failed: std::thread::Result<Result<(), Error>>,
    ) -> Result<St, Error> {
        let mut bytes = Vec::new();
        if let Err(error) = self.encode(&mut bytes, place, state) {
            self.shared.halt_for_good();
            return Err(error);
        }
        let rest = Remainder::decode(&bytes).ok_or_else(|| damaged(self.shared))?;
        self.shared.halt(self.row, rest);
        match failed {
            Err(panic) => resume_unwind(panic),
            Ok(ended) => {
                let source = Box::new(ended.err().unwrap_or(Error::Closed));
                Err(ChoppedError::Halted { transaction: self.name().to_owned(), piece: place + 1, source }.into())
            }
        }
    }
}

fn of_state<S: Config>(shared: &Shared<S>, source: crate::CodecError) -> Error {
    Error::Codec { table: name_of_remainders(shared), source }
}

pub(super) fn damaged<S: Config>(shared: &Shared<S>) -> Error {
    ChoppedError::Damaged { table: name_of_remainders(shared) }.into()
}

fn name_of_remainders<S: Config>(shared: &Shared<S>) -> &'static str {
    name_of(&shared.db, shared.remainders.number)
}
