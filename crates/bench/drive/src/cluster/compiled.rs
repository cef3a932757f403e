//! What starts a cluster's nodes and serves, compiled here once for each fabric. Crates with
//! workloads use it where generic code is shared, as it is in builds that optimise little:
//! otherwise each of them, and each of their tests, would compile it again, which takes twice as
//! long.

use drtm_htm::NoHtm;
use drtm_rdma::{Executor, Fabric, NodeId};
use drtm_txn::{
    Builder,
    cluster::{Node, Protocol},
};

use crate::{Error, Plain};

fn serve<F: Fabric<Engine = NoHtm>>(fabric: &F) -> Result<(), Error> {
    let builder = Node::<F, Plain>::builder_for(NoHtm, fabric, NodeId(0), Builder::new(), Protocol::default())?;
    let node = builder.owners([NodeId(0)])?.backups(0)?.loads_alone().start()?;
    let endpoint = node.endpoint()?;
    let worker = node.worker(&endpoint)?;
    let executor = Executor::new(&endpoint);
    worker.serve(&executor.spawner());
    executor.run();
    Ok(())
}

macro_rules! compiled {
    ($($(#[$if:meta])? $name:ident: $fabric:ty;)*) => {$(
        $(#[$if])?
        #[doc(hidden)]
        pub fn $name(fabric: &$fabric) -> Result<(), Error> {
            serve(fabric)
        }
    )*};
}

compiled! {
    on_shm: drtm_rdma::ShmFabric<NoHtm>;
    on_tcp: drtm_rdma::TcpFabric<NoHtm>;
    #[cfg(feature = "studies")]
    on_local: drtm_rdma::LocalFabric<NoHtm>;
    #[cfg(feature = "studies")]
    on_sim: drtm_rdma::SimFabric<NoHtm>;
}
