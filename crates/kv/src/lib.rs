//! The memory store: records in registered words, and the tables that find them.
//!
//! - [`Store`]: a region with memory for records; [`Worker`]: one thread's way to change what is in it.
//! - [`HashTable`]: finds a record by its key. Reads take no locks and wait for nobody; it grows a bucket at a time.
//! - [`HashPeer`]: the same table from another node, by one-sided READs.
//! - [`Tree`]: keeps keys in their order. Reads take no locks; a [`Scan`] tells which leaves it has passed, so that keys that come or go later are noticed.
//! - [`State`], [`Version`], [`Head`]: the words of a record's header, which protocols build on.
//!
//! A table is only words in a region: another handle, in this process or another that maps the same region, [opens](Store::open_hash_table)
//! it and uses it at the same time. Caches of locations, byte strings as a tree's keys, and reading and writing records from other nodes are not written yet.
//!
//! ```
//! use drtm_htm::NoHtm;
//! use drtm_kv::{HashConfig, Store};
//!
//! let store = Store::in_memory(NoHtm, 64 << 20)?;
//! let table = store.hash_table(HashConfig::default())?;
//! let mut worker = store.worker();
//! table.insert(&mut worker, 7, b"seven")?;
//!
//! let mut value = [0; 16];
//! let read = table.get(7, &mut value)?.expect("inserted above");
//! assert_eq!(&value[..read.length], b"seven");
//! # Ok::<(), drtm_kv::KvError>(())
//! ```

#![forbid(unsafe_code)]

mod counter;
mod error;
mod floor;
mod hash;
mod heap;
mod keys;
mod layout;
mod put;
mod record;
mod store;
mod tree;

pub use error::KvError;
pub use hash::{HashConfig, HashPeer, HashTable, Location, PeerError};
pub use keys::{Bytes, Inline, Keys, MAX_KEY};
pub use layout::{BUCKET_BYTES, BUCKET_WORDS, Head, SLOTS, State, Version};
pub use record::{MAX_VALUE, Read};
pub use store::{Store, Worker};
pub use tree::{Existing, LeafChange, Lookup, NodeVersion, Row, Scan, Tree};
