//! Registered memory and verbs: one-sided access to the words of other nodes, and messages to them.
//!
//! # The parts
//!
//! - [`Region`]: memory that is reserved once, committed as needed, seen as words, and addressed by
//!   offsets that are valid wherever it is mapped. [`Offset`], [`Remote`]: typed addresses.
//! - [`Fabric`]: connects nodes; its documentation says what verbs guarantee. [`LocalFabric`]
//!   connects nodes of one process, [`ShmFabric`] processes of one machine. `TcpFabric` connects
//!   machines, by the feature `tcp`, and `VerbsFabric` machines with RDMA NICs, by `verbs`.
//!   [`Sim`] is a cluster in virtual time. [`Capabilities`]: what a fabric can do.
//! - [`Endpoint`]: one worker thread's access to a fabric. [`Verbs`]: its operations, one at a
//!   time; [`Batch`]: several in one round trip; [`Pending`], [`Words`], [`Reply`], [`Message`]:
//!   their results.
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
mod alarm;
mod backend;
mod batch;
mod buffers;
mod bytes;
mod capabilities;
mod counters;
#[cfg(all(any(feature = "verbs", test), not(feature = "model")))]
#[cfg_attr(not(feature = "verbs"), allow(dead_code, reason = "the default build only tests it"))]
mod datagrams;
#[doc(hidden)]
pub mod die;
mod endpoint;
mod error;
mod executor;
mod fabric;
#[cfg(all(feature = "verbs", not(feature = "model")))]
mod ibv;
mod intent;
#[cfg(any(all(feature = "tcp", not(feature = "model")), all(test, feature = "loom")))]
#[cfg_attr(feature = "model", allow(dead_code, reason = "the model uses some of it"))]
mod lead;
mod local;
mod loopback;
mod mailbox;
mod membership;
mod memory;
mod message;
mod pending;
mod places;
mod port;
mod queues;
mod region;
mod registry;
#[cfg_attr(feature = "model", allow(dead_code, reason = "models use it in tests only"))]
mod ring;
pub mod rpc;
#[cfg(not(feature = "model"))]
mod shm;
mod sim;
mod sync;
mod tasks;
#[cfg(all(feature = "tcp", not(feature = "model")))]
mod tcp;
mod tickets;
mod time;
mod timers;
#[cfg(all(feature = "tcp", not(feature = "model")))]
#[doc(hidden)]
pub mod untrusted;
mod verbs;

pub use address::{NodeId, Offset, RegionId, Remote};
pub use backend::Port;
pub use batch::Batch;
pub use buffers::Buffers;
pub use bytes::{read_bytes, words_for, write_bytes};
pub use capabilities::{Atomicity, Capabilities, Delivery, Order};
pub use counters::{Counters, Phase, Tally};
pub use endpoint::{Endpoint, Sleep};
pub use error::{FabricError, VerbError};
pub use executor::{Ended, Executor, Injector, Round, Spawner, block_on, run};
pub use fabric::Fabric;
#[cfg(all(feature = "verbs", not(feature = "model")))]
#[doc(hidden)]
pub use ibv::{FloorVerb, VerbsFloor};
#[cfg(all(feature = "verbs", not(feature = "model")))]
pub use ibv::{Posted, VerbsConfig, VerbsError, VerbsFabric, VerbsPort};
pub use local::{LocalConfig, LocalFabric, LocalPort, Tearing};
pub use loopback::Loopback;
pub use membership::{Incarnation, NodeEvent, Presence};
pub use message::Message;
pub use pending::{Pending, Reply, Words};
pub use region::{OutOfBounds, ROOTS, Region, RegionError, TURNS_AT, capacity_within_limits};
#[cfg(not(feature = "model"))]
pub use shm::{JoinError, ShmConfig, ShmFabric, ShmPort};
pub use sim::{
    Chances, Cost, Fault, NicProfile, Primitive, Published, Remains, RunEnd, Sim, SimConfig, SimFabric, SimPort, Trace,
    Transport,
};
#[cfg(all(feature = "tcp", not(feature = "model")))]
#[doc(hidden)]
pub use tcp::WorkUnits;
#[cfg(all(feature = "tcp", not(feature = "model")))]
pub use tcp::{Refusal, Refusals, TcpConfig, TcpError, TcpFabric, TcpLimits, TcpPort};
pub use time::{Elapsed, Time};
pub use verbs::Verbs;
