//! Transactions of a program, as they are called and resumed.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use drtm_rdma::Fabric;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    super::{Cluster, Submitted, Worker, queue::Work},
    id::Id,
    procedure::{Code, Procedure},
    progress::next_id,
    room::Room,
    run::Run,
};
use crate::{Codec, Config, Error, Postcard, chopped::remainder::Remainder};

/// A transaction of a program, to be run on the node that the program was registered at. Clones are
/// the same transaction, and any thread may use them.
///
/// # Example
///
/// See [`chopped`](super).
pub struct Call<F: Fabric, S: Config<Engine = F::Engine>, St, L> {
    room: Arc<Room<F, S>>,
    procedure: Arc<Procedure<F, S, St, L>>,
    number: usize,
}

impl<F: Fabric, S: Config<Engine = F::Engine>, St, L> Clone for Call<F, S, St, L> {
    fn clone(&self) -> Self {
        Self { room: Arc::clone(&self.room), procedure: Arc::clone(&self.procedure), number: self.number }
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>, St, L> fmt::Debug for Call<F, S, St, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("procedure", &self.procedure).finish_non_exhaustive()
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>, St, L> Call<F, S, St, L>
where
    St: Clone + Serialize + DeserializeOwned + 'static,
    L: Code<F, S, St>,
{
    pub(super) fn of(room: Arc<Room<F, S>>, procedure: Arc<Procedure<F, S, St, L>>, number: usize) -> Self {
        Self { room, procedure, number }
    }

    /// Runs the transaction on one of the node's threads, and returns the state as its last piece
    /// leaves it. It begins at once, whether or not the future is polled.
    ///
    /// # Errors
    ///
    /// As for [`run_on`](Self::run_on), and [`Cluster::transact`].
    ///
    /// # Example
    ///
    /// See [`chopped`](super).
    pub fn run(&self, cluster: &Cluster<F, S>, input: St) -> Submitted<St>
    where
        St: Send,
    {
        cluster.submit(Running { call: self.clone(), input })
    }

    /// Runs the transaction on a worker, and returns the state as its last piece leaves it.
    ///
    /// If the future is dropped, the piece under way happens, or does not. What is left after the
    /// first piece with an effect is [finished later](super::Registered::resume).
    ///
    /// # Errors
    ///
    /// [`Error::Aborted`] if a piece has aborted it, and any other error of a piece before the
    /// first with an effect: then nothing has happened, unless the error says otherwise.
    /// [`Halted`](crate::ChoppedError::Halted) if a later piece has failed.
    /// [`TakenOver`](crate::ChoppedError::TakenOver) if it was resumed elsewhere meanwhile, which
    /// finishes it. [`Error::OtherDatabase`] if the worker is of another node.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{
    ///     Builder, Config, Error, Pod, TableDef, Transaction as _,
    ///     chopping::{Piece, Table, Transaction},
    ///     cluster::{Node, Partition, chopped::Procedures},
    ///     htm::NoHtm,
    ///     rdma::{LocalConfig, LocalFabric, NodeId, block_on},
    /// };
    ///
    /// #[derive(Debug)]
    /// struct Plain;
    ///
    /// impl Config for Plain {
    ///     type Engine = NoHtm;
    /// }
    ///
    /// const NOTE: Table = Table::new("note", &[]);
    /// const SUM: Table = Table::new("sum", &[]);
    /// const NOTE_AND_COUNT: Transaction = Transaction::new("note and count", &[
    ///     Piece::new("note", &[NOTE.append()]),
    ///     Piece::new("count", &[SUM.add("*")]),
    /// ]);
    /// const NOTES: TableDef<u64, Pod<u64>> = TableDef::hash("note");
    /// const SUMS: TableDef<u64, Pod<u64>> = TableDef::hash("sum");
    ///
    /// let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
    /// let builder = Builder::new().memory(16 << 20);
    /// let mut node = Node::<_, Plain>::builder(NoHtm, &fabric, NodeId(0), builder)?.owners([NodeId(0)])?;
    /// let notes = node.table(NOTES, Partition::hash())?;
    /// let sums = node.table(SUMS, Partition::hash())?;
    /// let book = node.progress("book")?;
    /// let node = node.start()?;
    ///
    /// let mut book = Procedures::new(&node, book);
    /// let sum = book.sum(SUM.add("*"), sums)?;
    /// let note = book
    ///     .procedure::<u64>(NOTE_AND_COUNT)
    ///     .piece("note", async move |tx, key| tx.insert(notes, *key, &1).await)
    ///     .piece("count", async move |tx, _| tx.add(sum, 1, 1).await);
    /// let note = book.add(note);
    /// let book = book.register()?;
    ///
    /// let endpoint = node.endpoint()?;
    /// let worker = node.worker(&endpoint)?;
    /// block_on(&endpoint, async {
    ///     // There is no sum yet.
    ///     assert!(matches!(note.run_on(&worker, 7).await, Err(Error::Chopped(_))));
    ///     worker.transact(async |tx| tx.put(sums, 1, &0).await).await?;
    ///     assert_eq!(book.resume_on(&worker).await?, 1);
    ///     let seen = worker.transact(async |tx| Ok((tx.get(notes, 7).await?, tx.get(sums, 1).await?)));
    ///     assert_eq!(seen.await?, (Some(1), Some(1)));
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub async fn run_on(&self, worker: &Worker<'_, F, S>, input: St) -> Result<St, Error> {
        let analysed = self.room.analysed()?;
        self.room.check(worker)?;
        let plan = &analysed.plans[self.number];
        let id = (plan.effects > 1).then(|| next_id(worker));
        let (code, number) = (&self.procedure.code, self.number);
        Run { worker, room: &self.room, analysed, plan, code, number, id, has_begun: false, is_resumed: false }
            .from(0, input)
            .await
    }
}

/// A transaction on its way to a worker.
struct Running<F: Fabric, S: Config<Engine = F::Engine>, St, L> {
    call: Call<F, S, St, L>,
    input: St,
}

impl<F, S, St, L> Work<F, S, St> for Running<F, S, St, L>
where
    F: Fabric,
    S: Config<Engine = F::Engine>,
    St: Clone + Serialize + DeserializeOwned + Send + 'static,
    L: Code<F, S, St>,
{
    async fn run(self, worker: Worker<'_, F, S>) -> Result<St, Error> {
        self.call.run_on(&worker, self.input).await
    }
}

/// What is being resumed: what a transaction has left, and where that is written.
#[derive(Clone, Copy)]
pub(super) struct Resumed<'r> {
    pub(super) number: usize,
    pub(super) id: Id,
    pub(super) rest: &'r Remainder,
}

/// Finishes transactions of one kind, whose types the program does not know.
pub(super) trait Resume<F: Fabric, S: Config<Engine = F::Engine>>: Send + Sync + fmt::Debug {
    /// Runs what is left of a transaction.
    fn resume<'r>(
        &'r self,
        worker: &'r Worker<'_, F, S>,
        room: &'r Room<F, S>,
        resumed: Resumed<'r>,
    ) -> Pin<Box<dyn Future<Output = Result<(), Error>> + 'r>>;
}

impl<F, S, St, L> Resume<F, S> for Procedure<F, S, St, L>
where
    F: Fabric,
    S: Config<Engine = F::Engine>,
    St: Clone + Serialize + DeserializeOwned + 'static,
    L: Code<F, S, St>,
{
    fn resume<'r>(
        &'r self,
        worker: &'r Worker<'_, F, S>,
        room: &'r Room<F, S>,
        Resumed { number, id, rest }: Resumed<'r>,
    ) -> Pin<Box<dyn Future<Output = Result<(), Error>> + 'r>> {
        Box::pin(async move {
            let analysed = room.analysed()?;
            let table = worker.inner.table_name(room.progress.number());
            let state = Postcard::<St>::decode(&rest.state).map_err(|source| Error::Codec { table, source })?;
            let plan = &analysed.plans[number];
            let (code, id) = (&self.code, Some(id));
            let run = Run { worker, room, analysed, plan, code, number, id, has_begun: true, is_resumed: true };
            run.from(rest.next.into(), state).await.map(drop)
        })
    }
}
