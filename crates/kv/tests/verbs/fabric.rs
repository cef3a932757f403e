//! The fabric of the nodes: all use the first RDMA device.

use drtm_htm::NoHtm;
use drtm_rdma::{TcpConfig, VerbsConfig, VerbsFabric};

pub(crate) type FabricOf = VerbsFabric<NoHtm>;

pub(crate) fn join(config: TcpConfig) -> FabricOf {
    VerbsFabric::join(NoHtm, VerbsConfig::new(config).software_swaps(true)).expect("a cluster, and an RDMA device")
}
