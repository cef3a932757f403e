//! The owner's side: executing the requests of peers.
//!
//! A service never waits for a record lock: the lock's holder may be waiting for the service to
//! handle its next message. So the answer for a locked record is "busy", and the peer retries.
//! Requests are not trusted: each is decoded, checked and executed, or refused.

use std::{convert::Infallible, fmt};

use drtm_htm::Engine;
use drtm_rdma::{Cost, NodeId, Port, Verbs};

use super::{
    execute::Job,
    refusal::Refusal,
    wire::{Answer, HEAD, Request, TableId},
};
use crate::{KvError, KvTable, Store, Worker, keys::Keys};

/// The tables that an owner serves to its peers. Each serving thread has its own `Service`.
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
pub struct Service<E: Engine> {
    worker: Worker<E>,
    store: Store<E>,
    tables: Vec<(TableId, Served<E>)>,
}

/// Executes a request on one table, of whichever kind: one indirect call per message.
type Served<E> = Box<dyn Fn(Job<'_, E>) -> Result<(), Answer<'static>> + Send + Sync>;

impl<E: Engine> fmt::Debug for Service<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables: Vec<_> = self.tables.iter().map(|(number, _)| number).collect();
        f.debug_struct("Service").field("tables", &tables).finish_non_exhaustive()
    }
}

impl<E: Engine> Service<E> {
    /// Makes a service without tables.
    ///
    /// # Errors
    ///
    /// When the store has no [worker](Store::worker) left.
    ///
    /// # Example
    ///
    /// See [`Service`].
    pub fn new(store: &Store<E>) -> Result<Self, KvError> {
        Ok(Self { worker: store.worker()?, store: store.clone(), tables: Vec::new() })
    }

    /// Adds a table under an unused number.
    ///
    /// # Errors
    ///
    /// When the number is used already, or when the table is another store's.
    ///
    /// # Example
    ///
    /// See [`Service`].
    pub fn with<K: Keys, T: KvTable<E, K>>(mut self, number: TableId, table: &T) -> Result<Self, KvError> {
        if self.tables.iter().any(|(taken, _)| *taken == number) {
            return Err(KvError::config("the number of a table that is served", "a number of its own", number));
        }
        if !table.store().is(&self.store) {
            let is = format!("the one at {} of another store", table.location());
            return Err(KvError::config("a table that is served", "of the store that the service was made for", is));
        }
        let table = table.impatient();
        self.tables.push((number, Box::new(move |job: Job<'_, E>| job.on::<K, T>(&table))));
        Ok(self)
    }

    /// Answers requests for ever. [Serve](drtm_rdma::Executor::serve) it beside the coroutines of a
    /// worker.
    ///
    /// # Example
    ///
    /// See [`Service`].
    pub async fn serve<P: Port>(&mut self, verbs: Verbs<'_, P>) -> Infallible {
        let most = verbs.endpoint().capabilities().max_message_bytes;
        let answer = |from, request: &[u8], reply: &mut Vec<u8>| {
            self.answer(from, request, most, reply);
            verbs.endpoint().charge(Cost::Lookup);
            verbs.endpoint().charge(Cost::Copy(request.len() + reply.len()));
        };
        verbs.serve(answer).await
    }

    /// Answers one request: writes the answer to `reply`, in at most `most` bytes. For callers that
    /// receive messages otherwise than by [`serve`](Self::serve).
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
        if let Err(answer) = self.execute(from, request, most, reply) {
            answer.put(reply);
        }
        // Only texts of errors can be too long here, and the head says enough.
        reply.truncate(most.max(HEAD));
    }

    fn execute(
        &mut self,
        from: NodeId,
        request: &[u8],
        most: usize,
        reply: &mut Vec<u8>,
    ) -> Result<(), Answer<'static>> {
        let (number, request) = Request::from_bytes(request)?;
        let table = self.tables.iter().find(|(taken, _)| *taken == number);
        let Some((_, table)) = table else { return Err(Refusal::NoTable { table: number.0 }.into()) };
        if let Request::Lock { holder, .. } | Request::Unlock { holder, .. } = request
            && u16::from(holder.node()) != from.0
        {
            return Err(Refusal::NotItsName { owner: holder.node() }.into());
        }
        table(Job { worker: &mut self.worker, request, most, reply })
    }
}
