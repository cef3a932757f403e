//! The interface of workloads that run on a cluster.

use std::{fmt::Debug, ops::AddAssign};

use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{
    Config,
    cluster::{Node, NodeBuilder, Worker},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{Done, Error, Runner};

/// A node's place among all nodes.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The number of the node.
    pub node: u16,
    /// The number of nodes.
    pub nodes: u16,
    /// Clients of each node.
    pub clients: usize,
}

impl Place {
    /// Returns the number of clients of all nodes.
    pub fn all_clients(self) -> usize {
        usize::from(self.nodes) * self.clients
    }

    /// Returns whether this node owns rows to which a partition function gives this number.
    pub fn owns(self, number: u64) -> bool {
        number % u64::from(self.nodes) == u64::from(self.node)
    }
}

/// A workload over several nodes, with its size. It is sent to other processes.
pub trait ClusterWorkload: Clone + Debug + Send + Sync + Serialize + DeserializeOwned + 'static {
    /// Its name on the command line.
    const NAME: &'static str;

    /// Its name for child processes: each type has another one.
    const MEMBER: &'static str = Self::NAME;

    /// The names of its transactions.
    const KINDS: &'static [&'static str];

    /// The handles of its tables.
    type Tables: Copy + Send + 'static;

    /// A client, which one coroutine runs.
    type Client: 'static;

    /// The clients' counters for the check.
    type Count: Clone + Debug + Default + AddAssign + Send + Serialize + DeserializeOwned + 'static;

    /// Returns its size for the report, as names and numbers.
    fn size(&self) -> Vec<(&'static str, serde_json::Value)>;

    /// Opens the workload's tables.
    fn open<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        node: &mut NodeBuilder<F, S>,
    ) -> Result<Self::Tables, Error>;

    /// Inserts the rows that a node owns.
    fn load<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        node: &Node<F, S>,
        place: Place,
    ) -> Result<(), Error>;

    /// Creates the client with this number among those of all nodes.
    fn client(&self, place: Place, number: usize) -> Result<Self::Client, Error>;

    /// Looks up rows of other nodes, so that a cache of places is as full as after a long run. This
    /// worker is one of so many of its node. Does nothing if a short run fills the cache.
    async fn warm<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        _worker: &Worker<'_, F, S>,
        _tables: Self::Tables,
        _place: Place,
        (_worker_number, _workers): (usize, usize),
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Runs a client's next transaction, retrying on conflict.
    async fn run_next<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Runner<'_, '_, F, S>,
        tables: Self::Tables,
        client: &mut Self::Client,
    ) -> Result<Done, Error>;

    /// Returns a client's counters.
    fn count(client: Self::Client) -> Self::Count;

    /// Returns the violated conditions of the whole cluster, after all transactions have ended.
    /// Called on one node, which may add to the counters.
    async fn check<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: Self::Tables,
        count: &mut Self::Count,
    ) -> Result<Vec<String>, Error>;

    /// Returns the violated conditions of one node's rows, given the counters of all clients.
    /// Called on each node.
    async fn check_node<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: Self::Tables,
        node: &Node<F, S>,
        place: Place,
        count: &Self::Count,
    ) -> Result<Vec<String>, Error>;
}
