//! The memory store: records in registered words, and the tables that find them.
//!
//! - [`Store`]: a region with memory for records; [`Worker`]: one thread's way to change what is in
//!   it.
//! - [`HashTable`]: finds a record by its key. Reads take no locks and wait for nobody; it grows a
//!   bucket at a time.
//! - [`HashPeer`]: the same table from another node, by one-sided READs; with a [`Cache`], seldom
//!   by any.
//! - [`Tree`]: keeps keys, integers or byte strings, in their order. Reads take no locks; a
//!   [`Scan`] tells which leaves it has passed, so that keys that come or go later are noticed.
//! - [`TreePeer`]: the same tree from another node; with a [`Cache`], by one READ.
//! - [`RecordPeer`]: records of another node, read, locked and written by one-sided verbs.
//!   [`TablePeer`], [`Service`]: tables of another node, by messages.
//! - [`Turn`]: a moment of the store, after which what was read and is still the same has not come
//!   round to that.
//! - [`State`], [`Version`], [`Head`]: the words of a record's header, which protocols build on.
//!   [`acquire`] decides when a record's lock can be taken.
//!
//! A table is only words in a region: another handle, in this process or another that maps the same
//! region, [opens](Store::open_hash_table) it and uses it at the same time.
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
mod store;
mod table;
mod tree;
mod turns;
mod value_sink;

pub use acquire::{Acquire, Leases, Lend, acquire, lend};
pub use cache::{BucketCache, Cache, NodeCache};
pub use error::KvError;
pub use handle::{GuardChange, Handle, Locking, PhantomGuard, Placed, ReadEntry, Reaped, RetainOutcome};
pub use hash::{BucketHint, BucketVersion, HashConfig, HashPeer, HashTable, Sweep, Whereabouts};
pub use keys::{Bytes, Inline, Keys, MAX_KEY};
pub use layout::{BUCKET_BYTES, BUCKET_WORDS, Head, Holder, SLOTS, State, Version};
#[cfg(any(feature = "model", feature = "narrow"))]
#[doc(hidden)]
pub use mutation::{Mutation, mutated};
pub use peer::{Location, PeerError};
pub use record::{AsOf, Current, ForHolder, Look, MAX_VALUE, Past, PrefetchMask, Reserved, Visibility, record_bytes};
pub use records::Records;
pub use remote::{
    Leased, Page, PeerRow, RecordLock, RecordPeer, Refusal, RemoteError, Service, Standing, TableId, TablePeer,
    Unwritten,
};
pub use store::{MOST_MEMORY, MOST_WORKERS, Store, Worker};
pub use table::KvTable;
pub use tree::{AsKey, Cursor, NodeVersion, Passed, Row, Scan, Tree, TreeKeys, TreePeer};
pub use turns::{ROUND_TURNS, Turn, Watch};
pub use value_sink::{Memory, NoValue, Read, ValueSink};
