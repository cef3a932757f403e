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
#![cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "some of it only serves peers"))]

mod error;
mod hash;
mod mutation;
mod record;
#[cfg(feature = "cluster")]
mod remote;
mod store;
mod table;
mod tree;

pub use error::KvError;
#[cfg(feature = "cluster")]
pub use hash::HashPeer;
pub use hash::{BucketHint, BucketVersion, HashConfig, HashTable, Sweep, Whereabouts};
#[cfg(any(feature = "model", feature = "narrow"))]
#[doc(hidden)]
pub use mutation::{Mutation, mutated};
pub use record::{
    AsOf, Current, ForHolder, InAnyState, Look, MAX_VALUE, Past, Placing, PrefetchMask, Reserved, Visibility,
    acquire::{Acquire, Leases, Lend, acquire, lend},
    handle::{GuardChange, Handle, Locking, PhantomGuard, Placed, ReadEntry, Reaped, Relocated, RetainOutcome},
    keys::{Bytes, Inline, Keys, MAX_KEY},
    record_bytes,
    records::Records,
    value_sink::{Memory, NoValue, Read, ValueSink},
};
#[cfg(feature = "cluster")]
pub use remote::{
    Leased, RecordLock, RecordPeer, RemoteError, Standing,
    cache::{BucketCache, Cache},
    peer::{Location, PeerError},
};
pub use store::{
    Compaction, Emptied, MOST_MEMORY, MOST_WORKERS, Store, Visit, Worker,
    layout::{Head, Holder, State, Version},
    shortage::Shortage,
    turns::{ROUND_TURNS, Turn, Watch},
};
#[doc(hidden)]
pub use store::{forget_lack, has_lacked_memory};
pub use table::KvTable;
pub use tree::{Cursor, NodeVersion, Passed, Row, Scan, Tree, TreeKeys};
