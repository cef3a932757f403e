//! What a workload provides to be run on a cluster.

use std::{fmt::Debug, ops::AddAssign};

use drtm_htm::NoHtm;
use drtm_rdma::Fabric;
use drtm_txn::{
    Config,
    cluster::{Node, NodeBuilder, Worker},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{Error, drive::Done};

/// A database without hardware transactions, as nodes of a cluster have it.
#[derive(Debug)]
pub(crate) struct NodeConfig;

impl Config for NodeConfig {
    type Engine = NoHtm;
}

/// A node's place among all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) node: u16,
    pub(crate) nodes: u16,
    /// Of each node.
    pub(crate) clients: usize,
}

impl Place {
    /// Clients of all nodes.
    pub(crate) fn all_clients(self) -> usize {
        usize::from(self.nodes) * self.clients
    }

    /// Whether this node owns what a partition function gives this number.
    pub(crate) fn owns(self, number: u64) -> bool {
        number % u64::from(self.nodes) == u64::from(self.node)
    }
}

/// A workload over several nodes, with its size. Processes send it to each other.
pub(crate) trait ClusterWorkload: Clone + Debug + Send + Sync + Serialize + DeserializeOwned + 'static {
    /// As the command line names it.
    const NAME: &'static str;

    /// Names it to a process that is to be one of its nodes: each type has another name.
    const MEMBER: &'static str = Self::NAME;

    /// Names of its transactions.
    const KINDS: &'static [&'static str];

    /// What it needs of a node.
    type Tables: Copy + Send + 'static;

    /// A coroutine's side of it.
    type Client: 'static;

    /// What clients have counted for the check.
    type Count: Clone + Debug + Default + AddAssign + Send + Serialize + DeserializeOwned + 'static;

    /// Its size, for the report: names and numbers.
    fn size(&self) -> Vec<(&'static str, serde_json::Value)>;

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

    /// The client with this number among those of all nodes, on a node.
    fn client(&self, place: Place, number: usize) -> Result<Self::Client, Error>;

    /// Runs a client's next transaction to its end.
    async fn run_next<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: Self::Tables,
        client: &mut Self::Client,
    ) -> Result<Done, Error>;

    /// What a client has counted.
    fn count(client: Self::Client) -> Self::Count;

    /// What does not hold over the whole cluster when all transactions have ended, in words. Called
    /// on one node, which may add to what clients have counted.
    async fn check<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: Self::Tables,
        count: &mut Self::Count,
    ) -> Result<Vec<String>, Error>;

    /// What does not hold of the rows of one node, given what all clients have counted. Called on
    /// each node.
    async fn check_node<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: Self::Tables,
        node: &Node<F, S>,
        place: Place,
        count: &Self::Count,
    ) -> Result<Vec<String>, Error>;
}
