//! Small clusters, for tests of workloads.

use drtm_htm::NoHtm;
use drtm_rdma::{Fabric, NicProfile};
use drtm_txn::{
    Config,
    cluster::{Node, NodeBuilder, Worker},
};
use serde::{Deserialize, Serialize};

use super::{ClusterWorkload, Gathered, Length, Place, Plan, ProtocolOf, run};
use crate::{Done, Error, FabricName, Runner};

/// Fabrics within a test's process.
pub const FABRICS: [FabricName; 2] = [FabricName::Local, FabricName::Sim(&NicProfile::CONNECTX_4)];

/// Nodes of a trial.
pub const NODES: u16 = 3;

/// Returns each fabric with each protocol that has a name.
pub fn everywhere() -> impl Iterator<Item = (FabricName, ProtocolOf)> {
    ProtocolOf::with_names().flat_map(|protocol| FABRICS.into_iter().map(move |fabric| (fabric, protocol)))
}

/// Coroutines of each node.
pub const COROUTINES: u16 = 8;

/// Runs this many transactions of each worker of a small cluster.
pub fn run_on<S: Config<Engine = NoHtm>, W: ClusterWorkload>(
    workload: &W,
    fabric: FabricName,
    transactions: u64,
    seed: u64,
    protocol: impl Into<ProtocolOf>,
) -> Gathered<W::Count> {
    let length = Length::Transactions(transactions);
    let plan = Plan {
        nodes: NODES,
        threads: 1,
        coroutines: COROUTINES,
        protocol: protocol.into(),
        backups: 0,
        length,
        seed,
        memory: 128 << 20,
        warms: false,
    };
    run::<S, W>(workload, fabric, &plan).expect("all nodes are here")
}

/// A workload with a faulty variant, which its check must find.
pub trait Carelessly: ClusterWorkload {
    /// Runs a client's next transaction in several transactions.
    async fn run_carelessly<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Runner<'_, '_, F, S>,
        tables: Self::Tables,
        client: &mut Self::Client,
    ) -> Result<Done, Error>;
}

/// The faulty variant of a workload.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Careless<W: ClusterWorkload>(pub W);

impl<W: Carelessly> ClusterWorkload for Careless<W> {
    const NAME: &'static str = "careless";
    const KINDS: &'static [&'static str] = W::KINDS;
    type Tables = W::Tables;
    type Client = W::Client;
    type Count = W::Count;

    fn size(&self) -> Vec<(&'static str, serde_json::Value)> {
        Vec::new()
    }

    fn open<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        node: &mut NodeBuilder<F, S>,
    ) -> Result<W::Tables, Error> {
        self.0.open(node)
    }

    fn load<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        node: &Node<F, S>,
        place: Place,
    ) -> Result<(), Error> {
        self.0.load(node, place)
    }

    fn client(&self, place: Place, number: usize) -> Result<W::Client, Error> {
        self.0.client(place, number)
    }

    async fn run_next<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Runner<'_, '_, F, S>,
        tables: W::Tables,
        client: &mut W::Client,
    ) -> Result<Done, Error> {
        self.0.run_carelessly(worker, tables, client).await
    }

    fn count(client: W::Client) -> W::Count {
        W::count(client)
    }

    async fn check<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: W::Tables,
        count: &mut W::Count,
    ) -> Result<Vec<String>, Error> {
        self.0.check(worker, tables, count).await
    }

    async fn check_node<F: Fabric<Engine = NoHtm>, S: Config<Engine = NoHtm>>(
        &self,
        worker: &Worker<'_, F, S>,
        tables: W::Tables,
        node: &Node<F, S>,
        place: Place,
        count: &W::Count,
    ) -> Result<Vec<String>, Error> {
        self.0.check_node(worker, tables, node, place, count).await
    }
}
