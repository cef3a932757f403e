//! Serializable transactions over many nodes.
//!
//! A [`Node`] keeps its part of each table in a database of its own. A [`Cluster`] is a node with
//! threads, to which any thread or async runtime gives transactions. Programs with executors of
//! their own use [`Worker`]s, which run the transactions of an executor's coroutines. A
//! [`ClusterTx`] reads and writes rows of any node. The table's [`Partition`] says in which shard a
//! row is, and the [`View`] which node serves that.
//!
//! # The protocol
//!
//! Optimistic concurrency control, as in the database of one node, by the same steps at each owner:
//!
//! 1. *Execute*: rows are read as the body asks for them, several in one round trip where it says
//!    so.
//! 2. *Lock* what is written, in one round to all owners. Each says what version it has locked, and
//!    then its line: the snapshot number in which the transaction commits there, and a count that
//!    shows whether the owner's counters may have wrapped around.
//! 3. *Validate* what was only read, guards of missing keys included, in one round after *every*
//!    reply of the one before.
//! 4. *Log*, where owners have backups: what is going to be written goes to rings in their memory,
//!    in one round to all of them.
//! 5. *Apply*: the transaction is decided. Each owner writes its rows, in versions of its epoch,
//!    and unlocks them.
//!
//! Transactions that [fetch their rows](Worker::transact_on) before they run lock what they write
//! and lease what they read before step 1, and validate nothing of other nodes.
//!
//! An owner carries out a request at once, or refuses it. It waits for no lock, since the lock's
//! holder may wait for this owner.
//!
//! # Shards and the view
//!
//! A key maps to a [shard](ShardId), a number. Their count is chosen when a cluster is made. The
//! [`View`] is one immutable value: its number, its members, and for each shard its primary and its
//! backups. Transactions know shards; messages and verbs go to nodes, which only the view names.
//! Shards of one node share its tables, its log and its workers, and requests to them travel
//! together.
//!
//! All that is remembered of another node belongs to a view and to an incarnation of that node.
//! Requests carry both, and are refused in another view or by another incarnation. Verbs read the
//! number of the owner's view with each lock, each lease and each validation. The transaction ends
//! with [`Conflict::View`](crate::Conflict::View) then, its node gets the newer view, and it runs
//! again.
//!
//! # When a transaction is dropped
//!
//! Whatever is under way belongs to the transaction's state, and not to a future. A transaction
//! that is dropped at any moment passes to its worker, which waits for the answers, and then
//! carries it out if it was decided, and gives its locks up otherwise. Only then is the name under
//! which it has locked used again.
//!
//! Which phases are messages to the owner, and which are one-sided, is said by the [`Protocol`].
//!
//! # What it does not do yet
//!
//! Where nodes do not agree on the view, by Raft or another [membership](NodeBuilder::membership),
//! no node takes the place of one that dies unless it is told to: its
//! [backups](NodeBuilder::backups) serve its shards once one of the nodes that are left has
//! [changed](Worker::change_view) the view. Without backups, its rows are in its directory, if its
//! database has a path. What it had begun at other nodes is completed or undone where the view
//! goes on without it, or where transactions are logged [in memory](NodeBuilder::logs_in_memory)
//! that outlives the process. Otherwise, what it had locked stays locked, and transactions that
//! meet such a lock fail with [`Refusal::HolderDead`].

mod acquire;
mod adapt;
#[cfg(feature = "tcp")]
mod address;
mod agreement;
mod anew;
mod ask;
mod builder;
mod carry;
mod change;
mod changing;
#[cfg(feature = "chopping")]
pub mod chopped;
mod claims;
mod clock;
mod closing;
mod closings;
mod coordinator;
#[cfg(feature = "hades")]
mod costs;
mod dead;
mod deadline;
mod error;
mod events;
mod fetched;
mod gather;
mod gathered;
mod greet;
mod handle;
mod index_info;
mod keeper;
mod learn;
mod lease;
mod lives;
mod log;
#[cfg(feature = "metrics")]
mod metrics;
mod next_view;
mod node;
mod ordering;
mod orders;
mod participant;
mod partition;
mod peers;
mod place;
mod places;
mod placing;
mod protocol;
mod queue;
mod ranges;
mod reach;
mod remembered;
mod renew;
mod replicas;
mod requests;
mod round;
mod sets;
mod shard;
mod shared;
#[cfg(feature = "hades")]
mod smart_nic;
#[cfg(feature = "hades")]
mod squashes;
mod start;
mod state;
mod stats;
mod status;
mod tenure;
mod thread;
mod time;
mod tx;
pub(crate) mod undo;
mod view;
#[cfg(feature = "raft")]
mod voters;
mod wire;
mod worker;

#[cfg(feature = "tcp")]
pub use address::OnTcp;
pub use builder::NodeBuilder;
pub use clock::{ClusterTime, Timing};
pub use error::ClusterError;
pub use events::{ClusterEvent, Events};
pub use handle::Cluster;
pub use log::OwnedRow;
pub use node::Node;
pub use partition::Partition;
#[doc(hidden)]
pub use place::Here;
pub use place::Place;
pub use protocol::{Detection, Form, Protocol};
pub use queue::Submitted;
pub use sets::Sets;
pub use shard::ShardId;
pub use start::{ClusterBuilder, InGroup, InProcess, On};
pub use stats::{ClusterStats, Rounds};
#[cfg(feature = "tcp")]
pub use status::Operator;
pub use status::{ClusterStatus, MemberState, MemberStatus, ShardState, ShardStatus};
pub use tx::ClusterTx;
pub use view::{Lost, Member, Placement, View};
pub use wire::Refusal;
pub use worker::Worker;
