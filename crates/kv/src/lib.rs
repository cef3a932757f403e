//! The memory store: records in registered memory, and the tables that find them.
//!
//! - [`Store`]: a region with memory for records. [`Worker`]: the handle by which one thread
//!   changes it.
//! - [`HashTable`]: finds a record by its key. Readers take no locks and never wait. The table
//!   grows by one bucket at a time.
//! - [`HashPeer`]: reads a hash table of another node by one-sided READs. With a [`Cache`], a
//!   lookup seldom needs one.
//! - [`Tree`]: an ordered table of integers or byte strings. Readers take no locks. A [`Scan`]
//!   reports the leaves that it has passed, so that a transaction detects phantoms.
//! - [`RecordPeer`]: reads, locks and writes records of another node by one-sided verbs.
//! - [`Turn`]: the store's epoch for narrow counters. It detects that a version or an incarnation
//!   may have wrapped around (ABA).
//! - [`State`], [`Version`], [`Head`]: the words of a record's header, on which protocols build.
//!   [`acquire`] decides whether a record's lock can be taken.
//!
//! A table consists only of words in a region. Another handle, in this process or in another that
//! maps the same region, can [open](Store::open_hash_table) it and use it concurrently.
//!
//! ```
//! use drtm_htm::NoHtm;
//! use drtm_kv::{HashConfig, KvTable, Store};
//!
//! let store = Store::in_memory(NoHtm, 64 << 20)?;
//! let table = store.hash_table(HashConfig::default())?;
//! let mut worker = store.worker()?;
//! table.insert(&mut worker, 7, b"seven")?;
//!
//! let mut value = [0; 16];
//! let read = table.get(7, &mut value)?.expect("inserted above");
//! assert_eq!(&value[..read.length], b"seven");
//! # Ok::<(), drtm_kv::KvError>(())
//! ```

#![forbid(unsafe_code)]

mod acquire;
mod base;
mod beside;
mod bounds;
mod cache;
mod checksum;
mod error;
mod handle;
mod hash;
mod heap;
mod keys;
mod lasts;
mod layout;
mod mutation;
mod patience;
mod peer;
mod quarantine;
mod record;
mod records;
mod remote;
mod shortage;
mod spans;
mod store;
mod table;
mod tree;
mod turns;
mod units;
mod value_sink;

pub use acquire::{Acquire, Leases, Lend, acquire, lend};
pub use cache::{BucketCache, Cache};
pub use error::KvError;
pub use handle::{GuardChange, Handle, Locking, PhantomGuard, Placed, ReadEntry, Reaped, Relocated, RetainOutcome};
pub use hash::{BucketHint, BucketVersion, HashConfig, HashPeer, HashTable, Sweep, Whereabouts};
pub use keys::{Bytes, Inline, Keys, MAX_KEY};
pub use layout::{Head, Holder, State, Version};
#[cfg(any(feature = "model", feature = "narrow"))]
#[doc(hidden)]
pub use mutation::{Mutation, mutated};
pub use peer::{Location, PeerError};
pub use record::{AsOf, Current, ForHolder, Look, MAX_VALUE, Past, PrefetchMask, Reserved, Visibility, record_bytes};
pub use records::Records;
pub use remote::{Leased, RecordLock, RecordPeer, RemoteError, Standing};
pub use shortage::Shortage;
pub use store::{Compaction, Emptied, MOST_MEMORY, MOST_WORKERS, Store, Visit, Worker};
#[doc(hidden)]
pub use store::{forget_lack, has_lacked_memory};
pub use table::KvTable;
pub use tree::{Cursor, NodeVersion, Passed, Row, Scan, Tree, TreeKeys};
pub use turns::{ROUND_TURNS, Turn, Watch};
pub use value_sink::{Memory, NoValue, Read, ValueSink};
