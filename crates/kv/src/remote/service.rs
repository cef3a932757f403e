//! The owner's side: carrying out what peers ask for.
//!
//! A service never waits for a record. Whoever holds it may be the one whose next message is behind this one, so what is locked is answered with
//! "busy" and asked for again. Requests come from anyone: each is decoded, checked and executed, or refused, and never believed.

use std::{convert::Infallible, fmt};

use drtm_htm::Engine;
use drtm_rdma::{Cost, NodeId, Port, Verbs};

use super::{
    execute::{Failure, Job, Said},
    refusal::Refusal,
    wire::{Answer, HEAD, Request, TableId},
};
use crate::{
    Bytes, HashTable, Holder, Inline, KvError, KvTable, Store, Tree, Version, Worker, layout::Place, record::Record,
};

/// A table that a [`Service`] answers for.
///
/// # Example
///
/// See [`Service`].
pub struct ServedTable<E: Engine>(Kind<E>);

enum Kind<E: Engine> {
    Hash(HashTable<E, Inline>),
    BytesHash(HashTable<E, Bytes>),
    Tree(Tree<E>),
    BytesTree(Tree<E, Bytes>),
}

impl<E: Engine> From<&HashTable<E, Inline>> for ServedTable<E> {
    fn from(table: &HashTable<E, Inline>) -> Self {
        Self(Kind::Hash(table.impatient()))
    }
}

impl<E: Engine> From<&HashTable<E, Bytes>> for ServedTable<E> {
    fn from(table: &HashTable<E, Bytes>) -> Self {
        Self(Kind::BytesHash(table.impatient()))
    }
}

impl<E: Engine> From<&Tree<E>> for ServedTable<E> {
    fn from(tree: &Tree<E>) -> Self {
        Self(Kind::Tree(tree.impatient()))
    }
}

impl<E: Engine> From<&Tree<E, Bytes>> for ServedTable<E> {
    fn from(tree: &Tree<E, Bytes>) -> Self {
        Self(Kind::BytesTree(tree.impatient()))
    }
}

impl<E: Engine> ServedTable<E> {
    fn store(&self) -> &Store<E> {
        match &self.0 {
            Kind::Hash(table) => table.store(),
            Kind::BytesHash(table) => table.store(),
            Kind::Tree(tree) => tree.store(),
            Kind::BytesTree(tree) => tree.store(),
        }
    }
}

impl<E: Engine> fmt::Debug for ServedTable<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Hash(_) => "a hash table",
            Kind::BytesHash(_) => "a hash table of byte strings",
            Kind::Tree(_) => "a tree",
            Kind::BytesTree(_) => "a tree of byte strings",
        })
    }
}

/// What an owner does for its peers, table by table. One for each thread that serves.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::{HashConfig, Inline, KvTable, Service, Store, TableId, TablePeer};
/// use drtm_rdma::{Executor, Fabric, LocalConfig, LocalFabric, NodeId, Phase};
///
/// let store = Store::in_memory(NoHtm, 16 << 20)?;
/// let accounts = store.hash_table(HashConfig::default())?;
/// let mut service = Service::new(&store)?.with(TableId(1), &accounts)?;
///
/// let fabric = LocalFabric::<NoHtm>::new(1, LocalConfig::perfect());
/// let endpoint = fabric.endpoint(NodeId(0))?;
/// let verbs = endpoint.during(Phase::Execute);
/// let mut executor = Executor::new(&endpoint);
/// executor.serve(service.serve(verbs));
/// executor.spawn(async {
///     let peer = TablePeer::<Inline>::new(NodeId(0), TableId(1));
///     peer.insert(verbs, 7, b"seven").await.expect("there is room");
/// });
/// executor.run();
/// assert!(accounts.contains(7)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Service<E: Engine> {
    worker: Worker<E>,
    store: Store<E>,
    tables: Vec<(TableId, ServedTable<E>)>,
}

impl<E: Engine> Service<E> {
    /// A service without tables.
    ///
    /// # Errors
    ///
    /// When the store has no [worker](Store::worker) left.
    pub fn new(store: &Store<E>) -> Result<Self, KvError> {
        Ok(Self { worker: store.worker()?, store: store.clone(), tables: Vec::new() })
    }

    /// The same with a table, under a number that has been none's.
    ///
    /// # Errors
    ///
    /// When the number is another table's, or the table is another store's.
    pub fn with(mut self, number: TableId, table: impl Into<ServedTable<E>>) -> Result<Self, KvError> {
        let table = table.into();
        if self.tables.iter().any(|(taken, _)| *taken == number) {
            return Err(KvError::Config {
                what: "the number of a table that is served",
                must_be: "a number of its own",
                is: number.to_string(),
            });
        }
        if !table.store().is(&self.store) {
            return Err(KvError::Config {
                what: "a table that is served",
                must_be: "of the store that the service was made for",
                is: format!("{table:?} of another store"),
            });
        }
        self.tables.push((number, table));
        Ok(self)
    }

    /// Answers requests for ever. To be [served](drtm_rdma::Executor::serve) beside the coroutines of a worker.
    pub async fn serve<P: Port>(&mut self, verbs: Verbs<'_, P>) -> Infallible {
        let most = verbs.endpoint().capabilities().max_message_bytes;
        let answer = |from, request: &[u8], reply: &mut Vec<u8>| {
            self.answer(from, request, most, reply);
            verbs.endpoint().charge(Cost::Lookup);
            verbs.endpoint().charge(Cost::Copy(request.len() + reply.len()));
        };
        verbs.serve(answer).await
    }

    /// Answers one request: makes `reply` the answer, of at most `most` bytes. For who receives messages otherwise than by
    /// [`serve`](Self::serve).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{KvTable, Service, Store};
    /// use drtm_rdma::NodeId;
    ///
    /// let mut service = Service::new(&Store::in_memory(NoHtm, 1 << 20)?)?;
    /// let mut reply = Vec::new();
    /// service.answer(NodeId(1), b"nonsense", 1024, &mut reply);
    /// assert!(!reply.is_empty(), "a refusal that says why");
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    pub fn answer(&mut self, from: NodeId, request: &[u8], most: usize, reply: &mut Vec<u8>) {
        reply.clear();
        match self.execute(from, request, most, reply) {
            Ok(Said::Put) => {}
            Ok(Said::Answer(answer)) => answer.put(reply),
            Err(Failure::Busy) => Answer::Busy.put(reply),
            Err(Failure::Refused(refusal)) => Answer::Refused(refusal).put(reply),
        }
        // Texts of errors are all that can be too long here, and the head says enough.
        reply.truncate(most.max(HEAD));
    }

    fn execute(&mut self, from: NodeId, request: &[u8], most: usize, reply: &mut Vec<u8>) -> Result<Said, Failure> {
        let (number, request) = Request::from_bytes(request)?;
        let table = self.tables.iter().find(|(taken, _)| *taken == number);
        let Some((_, table)) = table else { return Err(Refusal::NoTable { table: number.0 }.into()) };
        if let Request::Lock { holder, .. } | Request::Unlock { holder, .. } = request
            && u16::from(holder.node()) != from.0
        {
            return Err(Refusal::NotItsName { owner: holder.node() }.into());
        }
        if let Request::Unlock { place, holder } = request {
            return Ok(Said::Answer(unlock(&self.store, place, holder)?));
        }
        let job = Job { worker: &mut self.worker, request, most, reply };
        match &table.0 {
            Kind::Hash(table) => job.on::<Inline, _>(table),
            Kind::BytesHash(table) => job.on::<Bytes, _>(table),
            Kind::Tree(tree) => job.on::<Inline, _>(tree),
            Kind::BytesTree(tree) => job.on::<Bytes, _>(tree),
        }
    }
}

fn unlock<E: Engine>(store: &Store<E>, place: Place, holder: Holder) -> Result<Answer<'static>, KvError> {
    let version = Version::default();
    Ok(Record::at(store.region(), place)?.release(holder).map_or_else(Answer::Held, |()| Answer::Done(version)))
}
