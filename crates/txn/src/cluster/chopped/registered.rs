//! A registered program: its chopping, and transactions that somebody has to finish.

use std::{convert::Infallible, fmt, sync::Arc, time::Duration};

use drtm_chopping::Chopping;
use drtm_rdma::{Fabric, Spawner};

use super::{
    super::{
        Cluster, Submitted, Worker,
        queue::{Job, Work},
    },
    call::{Resume, Resumed},
    id::{Id, Key},
    progress::is_orphaned,
    room::Room,
    run::MayBeLeft,
};
use crate::{ChoppedError, Config, DefaultConfig, Error, Transaction, chopped::remainder::Remainder, trace::event};

/// How often a node looks whether its own transactions have left something.
const LOOKS: Duration = Duration::from_millis(20);

/// After how many of these looks it looks for what others have left.
const LOOKS_AROUND: u32 = 50;

/// A program that is registered at a node of a cluster. Clones are the same.
///
/// # Example
///
/// See [`chopped`](super).
pub struct Registered<F: Fabric, S: Config<Engine = F::Engine> = DefaultConfig> {
    room: Arc<Room<F, S>>,
    /// What finishes each transaction.
    code: Arc<[Arc<dyn Resume<F, S>>]>,
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Clone for Registered<F, S> {
    fn clone(&self) -> Self {
        Self { room: Arc::clone(&self.room), code: Arc::clone(&self.code) }
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> fmt::Debug for Registered<F, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered").field("program", &self.room.progress.program).finish_non_exhaustive()
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Registered<F, S> {
    pub(super) fn of(room: Arc<Room<F, S>>, code: Vec<Arc<dyn Resume<F, S>>>) -> Self {
        Self { room, code: code.into() }
    }

    /// Returns how the transactions are chopped, and why.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Error, cluster::{Cluster, chopped::Procedures}};
    ///
    /// let mut builder = Cluster::builder();
    /// let empty = builder.progress("empty");
    /// let empty = Procedures::new(&builder.start()?[0].node(), empty).register()?;
    /// assert!(empty.chopping().transactions().is_empty());
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn chopping(&self) -> &Chopping {
        match self.room.analysed() {
            Ok(analysed) => &analysed.chopping,
            Err(_) => unreachable!("it was registered"),
        }
    }

    /// Finishes transactions on one of the node's threads, as [`resume_on`](Self::resume_on) does.
    ///
    /// # Errors
    ///
    /// As for [`resume_on`](Self::resume_on), and [`Cluster::transact`].
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Error, cluster::{Cluster, chopped::Procedures}};
    ///
    /// let mut builder = Cluster::builder();
    /// let empty = builder.progress("empty");
    /// let nodes = builder.start()?;
    /// let empty = Procedures::new(&nodes[0].node(), empty).register()?;
    /// assert_eq!(empty.resume(&nodes[0]).wait()?, 0);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn resume(&self, cluster: &Cluster<F, S>) -> Submitted<usize> {
        cluster.submit(Resuming(self.clone()))
    }

    /// Runs what is left of this node's transactions that were dropped or have
    /// [halted](ChoppedError::Halted), and of those whose node is not here any more. Returns how
    /// many this has ended.
    ///
    /// Another node may do the same at the same time: each piece is done once.
    ///
    /// # Errors
    ///
    /// The first error. What was not finished can be resumed again. [`ChoppedError::OtherPieces`]
    /// if another version of the program has begun it. [`Error::OtherDatabase`] if the worker is of
    /// another node.
    ///
    /// # Example
    ///
    /// See [`Call::run_on`](super::Call::run_on).
    pub async fn resume_on(&self, worker: &Worker<'_, F, S>) -> Result<usize, Error> {
        Ok(self.resume_own(worker).await? + self.resume_others(worker).await?)
    }

    /// Lets one of the node's threads [resume](Self::resume) what is left, until the node is
    /// closed: what its own transactions have left 20 ms later at most, and what others have left
    /// within a second. What fails is tried again.
    ///
    /// # Example
    ///
    /// See [`chopped`](super).
    pub fn serve(&self, cluster: &Cluster<F, S>) {
        cluster.push(Box::new(Serving(self.clone())));
    }

    /// Like [`serve`](Self::serve), but on a worker, as long as its executor runs.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{
    ///     Builder, Config, Error,
    ///     cluster::{Node, chopped::Procedures},
    ///     htm::NoHtm,
    ///     rdma::{Executor, LocalConfig, LocalFabric, NodeId},
    /// };
    ///
    /// #[derive(Debug)]
    /// struct Plain;
    ///
    /// impl Config for Plain {
    ///     type Engine = NoHtm;
    /// }
    ///
    /// let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
    /// let builder = Builder::new().memory(16 << 20);
    /// let mut node = Node::<_, Plain>::builder(NoHtm, &fabric, NodeId(0), builder)?.owners([NodeId(0)])?;
    /// let empty = node.progress("empty")?;
    /// let node = node.start()?;
    /// let empty = Procedures::new(&node, empty).register()?;
    /// let endpoint = node.endpoint()?;
    /// let worker = node.worker(&endpoint)?;
    /// let mut executor = Executor::new(&endpoint);
    /// worker.serve(&executor.spawner());
    /// empty.serve_on(&worker, &executor.spawner());
    /// executor.run();
    /// # Ok::<(), Error>(())
    /// ```
    pub fn serve_on<'e>(&self, worker: &Worker<'e, F, S>, spawner: &Spawner<'e, F::Port>)
    where
        F: 'e,
        S: 'e,
    {
        let (registered, worker) = (self.clone(), worker.clone());
        // An executor that has ended finishes nothing.
        let _ = spawner.serve(async move { registered.keep_on(&worker).await });
    }

    /// Resumes what is left, for ever.
    async fn keep_on(&self, worker: &Worker<'_, F, S>) -> Infallible {
        let mut look = 0;
        loop {
            let resumed = match look {
                0 => self.resume_on(worker).await,
                _ if worker.inner.node.left.is_empty() => Ok(0),
                _ => self.resume_own(worker).await,
            };
            if let Err(_error) = resumed {
                let _program = self.room.progress.program;
                event!(warn, program = _program, error = %_error, "chopped transactions are not finished");
            }
            look = (look + 1) % LOOKS_AROUND;
            worker.endpoint().sleep(LOOKS).await;
        }
    }

    /// Finishes what this node's transactions have left.
    async fn resume_own(&self, worker: &Worker<'_, F, S>) -> Result<usize, Error> {
        self.room.check(worker)?;
        let (left, progress) = (&worker.inner.node.left, self.room.progress);
        let (mut ended, mut failed) = (0, Ok(()));
        // Those that fail are noted again.
        let mut again = Vec::new();
        while let Some(id) = left.take(progress.number()) {
            let mut may_be_left = MayBeLeft::new(worker, progress.number());
            may_be_left.arm(id);
            let rest = worker.transact(async |tx| tx.get(progress.rows, id.key()).await).await;
            let resumed = match rest {
                // It has not happened, or has ended.
                Ok(None) => Ok(false),
                Ok(Some(bytes)) => self.resume_one(worker, id, &bytes).await,
                Err(error) => Err(error),
            };
            match resumed {
                Ok(has_ended) => {
                    may_be_left.disarm();
                    ended += usize::from(has_ended);
                }
                Err(error) => {
                    failed = failed.and(Err(error));
                    again.push(may_be_left);
                }
            }
        }
        failed.map(|()| ended)
    }

    /// Finishes what nodes have left that are not here any more.
    async fn resume_others(&self, worker: &Worker<'_, F, S>) -> Result<usize, Error> {
        self.room.check(worker)?;
        let (mut ended, mut failed) = (0, Ok(()));
        for (key, bytes) in self.rows(worker).await? {
            let id = Id::of(key);
            if is_orphaned(worker, id) {
                match self.resume_one(worker, id, &bytes).await {
                    Ok(has_ended) => ended += usize::from(has_ended),
                    Err(error) => failed = failed.and(Err(error)),
                }
            }
        }
        failed.map(|()| ended)
    }

    /// Returns the rows of progress. They need not be those of one moment: each piece compares.
    async fn rows(&self, worker: &Worker<'_, F, S>) -> Result<Vec<(Key, Vec<u8>)>, Error> {
        for runs in 1.. {
            let mut tx = worker.begin().await;
            let view = tx.state().view.number();
            let rows = tx.range(self.room.progress.rows, ..).await;
            tx.abort().await;
            match worker.inner.until_next_view((view, false), rows, None).await {
                Err(Error::Conflict(_)) => worker.pause(runs).await,
                rows => return rows,
            }
        }
        Ok(Vec::new())
    }

    /// Finishes a transaction. Returns whether this did, and not another node.
    async fn resume_one(&self, worker: &Worker<'_, F, S>, id: Id, bytes: &[u8]) -> Result<bool, Error> {
        let progress = self.room.progress;
        let damaged = || ChoppedError::Damaged { table: worker.inner.table_name(progress.number()) };
        let rest = Remainder::decode(bytes).ok_or_else(damaged)?;
        let other = || ChoppedError::OtherPieces {
            program: progress.program.to_owned(),
            transaction: rest.transaction.clone(),
        };
        let mut all = self.chopping().transactions().iter();
        let number = all.position(|chopped| chopped.name() == rest.transaction).ok_or_else(other)?;
        if self.room.analysed()?.plans[number].fingerprint != rest.fingerprint {
            return Err(other().into());
        }
        let resumed = Resumed { number, id, rest: &rest };
        match self.code[number].resume(worker, &self.room, resumed).await {
            Ok(()) => Ok(true),
            Err(Error::Chopped(why)) if matches!(*why, ChoppedError::TakenOver { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// What is left is to be finished by a thread of a node.
struct Resuming<F: Fabric, S: Config<Engine = F::Engine>>(Registered<F, S>);

impl<F: Fabric, S: Config<Engine = F::Engine>> Work<F, S, usize> for Resuming<F, S> {
    async fn run(self, worker: Worker<'_, F, S>) -> Result<usize, Error> {
        self.0.resume_on(&worker).await
    }
}

/// The same, again and again.
struct Serving<F: Fabric, S: Config<Engine = F::Engine>>(Registered<F, S>);

impl<F: Fabric, S: Config<Engine = F::Engine>> Job<F, S> for Serving<F, S> {
    fn start<'e>(self: Box<Self>, worker: Worker<'e, F, S>, spawner: &Spawner<'e, F::Port>) {
        self.0.serve_on(&worker, spawner);
    }
}
