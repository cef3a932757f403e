//! What joins the nodes: all of them use the first RDMA device that there is.

use drtm_htm::NoHtm;
use drtm_rdma::{TcpConfig, VerbsConfig, VerbsFabric};

pub(crate) type FabricOf = VerbsFabric<NoHtm>;

pub(crate) fn join(config: TcpConfig) -> FabricOf {
    VerbsFabric::join(NoHtm, VerbsConfig::new(config)).expect("a cluster, and an RDMA device")
}
