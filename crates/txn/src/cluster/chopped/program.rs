//! Programs of a cluster: transactions with their code, which are put together and analysed.

use std::{borrow::Borrow, fmt, ops::AddAssign, sync::Arc};

use drtm_chopping::{Access as Described, Options, Transaction};
use drtm_rdma::Fabric;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    super::Node,
    call::{Call, Resume},
    procedure::{Code, Procedure},
    progress::Progress,
    registered::Registered,
    room::Room,
};
use crate::{
    ChoppedError, Config, DefaultConfig, Error, Stored,
    chopped::{Addable, Sum, draft::Draft},
};

/// What executions in a cluster do not have: moments at which nothing is under way.
const OPTIONS: Options = Options { two_rounds: false, deferral: false, ..Options::ALL };

/// A program that is being put together: chopped transactions with their code, for one node of a
/// cluster.
///
/// # Example
///
/// See [`chopped`](super).
pub struct Procedures<F: Fabric, S: Config<Engine = F::Engine> = DefaultConfig> {
    room: Arc<Room<F, S>>,
    draft: Draft,
    code: Vec<Arc<dyn Resume<F, S>>>,
}

impl<F: Fabric, S: Config<Engine = F::Engine>> fmt::Debug for Procedures<F, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Procedures").field("program", &self.room.progress.program).finish_non_exhaustive()
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Procedures<F, S> {
    /// Begins a program of a node, whose table for progress says its name.
    ///
    /// # Example
    ///
    /// See [`chopped`](super).
    #[must_use]
    pub fn new(node: &Node<F, S>, progress: Progress) -> Self {
        Self { room: Arc::new(Room::new(node, progress)), draft: Draft::new(OPTIONS), code: Vec::new() }
    }

    /// Sets the optimisations that the analysis uses. By default, these are all but the deferral of
    /// additions and reads by two rounds, which clusters do not have.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{ChoppedError, Error, chopping::Options, cluster::{Cluster, chopped::Procedures}};
    ///
    /// let mut builder = Cluster::builder();
    /// let plain = builder.progress("plain");
    /// let node = &builder.start()?[0];
    /// Procedures::new(&node.node(), plain).options(Options::NONE).register()?;
    /// let refused = Procedures::new(&node.node(), plain).options(Options::ALL).register();
    /// let Err(Error::Chopped(refused)) = refused else { panic!("it is refused") };
    /// assert!(matches!(*refused, ChoppedError::OfOneNode { .. }));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.draft.options = options;
        self
    }

    /// Insists on the pieces of a transaction: the names of those that run together, in order. The
    /// program is refused if they are not serializable.
    ///
    /// # Example
    ///
    /// See [`chopped::Procedures`](crate::chopped::Procedures).
    #[must_use]
    pub fn insist(mut self, transaction: &'static str, pieces: &'static [&'static [&'static str]]) -> Self {
        self.draft.insist(transaction, pieces);
        self
    }

    /// Says which table a name in descriptions stands for, if the table has another one.
    ///
    /// # Example
    ///
    /// See [`chopped::Procedures::table`](crate::chopped::Procedures::table).
    #[must_use]
    pub fn table(mut self, described: &'static str, rows: impl Stored) -> Self {
        self.draft.name(described, rows.table().number);
        self
    }

    /// Begins the code of a transaction, whose pieces hand over a `St`.
    ///
    /// # Example
    ///
    /// See [`chopped`](super).
    #[must_use]
    pub fn procedure<St>(&self, described: Transaction<'static>) -> Procedure<F, S, St> {
        Procedure::of(described)
    }

    /// Adds a transaction with its code. It can run once the program is registered.
    ///
    /// # Example
    ///
    /// See [`chopped`](super).
    pub fn add<St, L>(&mut self, procedure: Procedure<F, S, St, L>) -> Call<F, S, St, L>
    where
        St: Clone + Serialize + DeserializeOwned + 'static,
        L: Code<F, S, St>,
    {
        let number = self.draft.add(procedure.described, &procedure.code);
        let procedure = Arc::new(procedure);
        self.code.push(Arc::clone(&procedure) as _);
        Call::of(Arc::clone(&self.room), procedure, number)
    }

    /// Adds a sum: rows of numbers that pieces [add](super::PieceTx::add) to, by the addition that
    /// their descriptions have.
    ///
    /// # Errors
    ///
    /// [`ChoppedError::TooManySums`].
    ///
    /// # Example
    ///
    /// See [`chopped`](super).
    pub fn sum<R>(&mut self, described: Described<'static>, rows: R) -> Result<Sum<R>, Error>
    where
        R: Addable,
        R::Row: AddAssign + Borrow<R::Given>,
    {
        self.draft.sum(described, rows)
    }

    /// Analyses the program. Then its transactions can run. What others have left is not finished
    /// by this: [`Registered::resume`] does.
    ///
    /// # Errors
    ///
    /// [`ChoppedError::Description`], [`ChoppedError::Refused`], [`ChoppedError::OtherCode`],
    /// [`ChoppedError::NoSuchTable`], [`ChoppedError::OtherRows`] if something is wrong with the
    /// program. [`ChoppedError::OfOneNode`] if it needs what clusters do not have.
    ///
    /// # Example
    ///
    /// See [`chopped`](super).
    pub fn register(self) -> Result<Registered<F, S>, Error> {
        let Self { room, draft, code } = self;
        let refuse = |what| Err(ChoppedError::OfOneNode { program: room.progress.program.to_owned(), what }.into());
        if draft.options.deferral {
            return refuse("deferral of additions");
        }
        if draft.options.two_rounds {
            return refuse("reading by two rounds");
        }
        let analysed = draft.analyse::<S>(room.node.shared())?;
        let program = analysed.chopping.program();
        if (0..code.len()).any(|transaction| program.runs_alone(transaction)) {
            return refuse("running alone");
        }
        room.register(analysed);
        Ok(Registered::of(room, code))
    }
}
