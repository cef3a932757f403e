//! The fabric of the nodes.

use drtm_htm::NoHtm;
use drtm_rdma::{TcpConfig, TcpFabric};

pub(crate) type FabricOf = TcpFabric<NoHtm>;

pub(crate) fn join(config: TcpConfig) -> FabricOf {
    TcpFabric::join(NoHtm, config).expect("a cluster")
}
