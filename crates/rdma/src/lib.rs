//! Registered memory and verbs: one-sided access to the words of other nodes, and messages to them.
//!
//! # The parts
//!
//! - [`Region`]: memory that is reserved once, committed as needed, seen as words, and addressed by
//!   offsets that are valid wherever it is mapped. [`Offset`], [`Remote`]: typed addresses.
//!   `NvRegion`: one in memory that outlives the process, where words are committed as a whole.
//! - [`Fabric`]: connects nodes; its documentation says what verbs guarantee. [`LocalFabric`]
//!   connects nodes of one process, [`ShmFabric`] processes of one machine. `TcpFabric` connects
//!   machines, by the feature `tcp`, and `VerbsFabric` machines with RDMA NICs, by `verbs`.
//!   [`Sim`] is a cluster in virtual time. [`Capabilities`]: what a fabric can do.
//! - `machine`, by the feature `studies`: a simulated machine with the hardware of HADES.
//! - [`Endpoint`]: one worker thread's access to a fabric. [`Verbs`]: its operations, one at a
//!   time; [`Batch`]: several in one round trip; [`Pending`], [`Words`], [`Reply`], [`Message`]:
//!   their results.
//! - [`Letters`]: bytes from node to node for what agrees on who is a member, over TCP.
//! - [`rpc`]: typed calls, several to a message.
//! - [`Counters`]: counts of operations, by [`Phase`].
//! - [`Executor`], [`run`], [`block_on`]: many coroutines on one thread, woken by completions.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use drtm_htm::NoHtm;
//! use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, Phase, Region, Remote, run};
//!
//! // Two nodes; the second one registers memory.
//! let fabric = LocalFabric::new(2, LocalConfig::perfect());
//! let memory = Arc::new(Region::anonymous(NoHtm, 1 << 20)?);
//! let offset = memory.extend(64, 64)?;
//! let counter = Remote { node: NodeId(1), region: fabric.register(NodeId(1), memory)?, offset };
//!
//! // A worker of the first, whose coroutines count on the second.
//! let endpoint = fabric.endpoint(NodeId(0))?;
//! let verbs = endpoint.during(Phase::Execute);
//! run(&endpoint, 8, |_| async move { verbs.fetch_add(counter, 1).await.expect("the word is there") });
//! assert_eq!(endpoint.counters().total().fetch_adds, 8);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
#[cfg(feature = "cluster")]
mod endpoint;
#[cfg(feature = "cluster")]
mod error;
#[cfg(feature = "cluster")]
mod executor;
#[cfg(feature = "cluster")]
mod fabric;
mod region;
#[cfg(feature = "cluster")]
pub mod rpc;
#[cfg(feature = "cluster")]
mod sync;
pub mod system;

pub use address::{NodeId, Offset, RegionId, Remote};
#[cfg(feature = "cluster")]
pub use endpoint::{
    Endpoint, Sleep,
    backend::Port,
    batch::Batch,
    buffers::Buffers,
    counters::{Counters, Phase, Tally},
    message::Message,
    pending::{Pending, Reply, Words},
    port::Sender,
    verbs::Verbs,
};
#[cfg(feature = "cluster")]
pub use error::{FabricError, VerbError};
#[cfg(feature = "cluster")]
pub use executor::{Ended, Executor, Injector, Round, Spawner, block_on, run};
#[cfg(feature = "cluster")]
#[doc(hidden)]
pub use fabric::die;
#[cfg(all(feature = "verbs", not(feature = "model")))]
#[doc(hidden)]
pub use fabric::ibv::{FloorVerb, VerbsFloor};
#[cfg(all(feature = "verbs", not(feature = "model")))]
pub use fabric::ibv::{Posted, VerbsConfig, VerbsError, VerbsFabric, VerbsPort};
#[cfg(all(feature = "cluster", not(feature = "model")))]
pub use fabric::shm::{JoinError, ShmConfig, ShmFabric, ShmPort};
#[cfg(feature = "studies")]
pub use fabric::sim::machine;
#[cfg(all(feature = "tcp", not(feature = "model")))]
#[doc(hidden)]
pub use fabric::tcp::WorkUnits;
#[cfg(all(feature = "tcp", not(feature = "model")))]
pub use fabric::tcp::{Refusal, Refusals, TcpConfig, TcpError, TcpFabric, TcpLimits, TcpPort, TcpVisitor, VisitError};
#[cfg(all(feature = "tcp", not(feature = "model")))]
#[doc(hidden)]
pub use fabric::untrusted;
#[cfg(feature = "cluster")]
pub use fabric::{
    Fabric,
    capabilities::{Atomicity, Capabilities, Order},
    letters::{LONGEST_LETTER, Letters, TakeLetter},
    local::{LocalConfig, LocalFabric, LocalPort, Tearing},
    membership::{Incarnation, NodeEvent, Presence},
    sim::{
        Chances, Cost, Fault, NicProfile, Overhead, Primitive, Published, Remains, RunEnd, Sim, SimConfig, SimFabric,
        SimPort, Trace, Transport,
    },
};
#[cfg(all(feature = "cluster", not(feature = "model")))]
pub use region::nv::{NvError, NvRegion, NvWriter};
pub use region::{
    OutOfBounds, ROOTS, Region, RegionError, TURNS_AT,
    bytes::{read_bytes, words_for, write_bytes},
    capacity_within_limits,
    loopback::Loopback,
};
#[cfg(feature = "cluster")]
pub use sync::time::{Elapsed, Time};
