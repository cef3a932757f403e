//! Serializable transactions over the memory store.
//!
//! - [`Db`]: a database; [`Tx`]: a transaction. [`TableDef`], [`Table`]: typed tables.
//!   [`TableOf`]: a table's handle, by its definition.
//! - [`IndexDef`], [`Index`], [`IndexOf`]: secondary indexes.
//! - [`Key`]: types whose values can be keys, and their order-preserving encoding as words and
//!   bytes.
//! - [`Codec`]: how values become bytes: [`Raw`], [`Pod`], [`PodRef`], [`Bincode`], [`Postcard`].
//! - [`Durability`]: databases in directories; [`CommitToken`], [`Checkpoint`].
//! - [`Config`]: the parts that a database is built on. [`Sink`]: an observer of commits, which can
//!   refuse them.
//!
//! # Features
//!
//! All are off by default. `tracing` and `metrics` add no cost to a transaction that succeeds.
//!
//! - `bincode` and `postcard`: the serde codecs [`Bincode`] (also [`Serde`]) and [`Postcard`].
//! - `chopping`: transactions that run [in pieces](chopped), as an analysis allows.
//! - `cluster`: transactions over several nodes. `tcp`: nodes on machines.
//! - `serde`: a cluster's status can be serialized.
//! - `tracing`: events and spans of the target `drtm`. A database is opened (`info`) or closed
//!   (`info`, a span `close`). A table is created (`debug`). An index is created (`info`, a span
//!   `index`) or its creation fails (`warn`). A hash table takes memory (`debug`). A transaction
//!   fails repeatedly (`debug`) or takes the ticket (`warn`). Snapshots open and close (`trace`).
//!   No memory is left for older versions (`warn`).
//! - `metrics`: adds `Db::publish_metrics`, which passes all figures to the application's recorder
//!   when the application calls it.
//!
//! ```
//! use drtm::{Db, Error, Ordered, Pod, Serde, TableDef};
//!
//! const STOCK: TableDef<u32, Pod<u64>> = TableDef::hash("stock");
//! const ORDERS: TableDef<u64, Serde<Vec<(u32, u64)>>, Ordered> = TableDef::ordered("orders");
//!
//! let db = Db::new()?;
//! let (stock, orders) = (db.table(STOCK)?, db.table(ORDERS)?);
//! db.transact(|tx| tx.put(stock, &7, &10))?;
//!
//! let number = db.transact(|tx| {
//!     let left = tx.update(stock, &7, |left| *left = left.saturating_sub(3))?;
//!     left.ok_or_else(|| Error::aborted("no such item"))?;
//!     let number = tx.range(orders, ..)?.last()?.map_or(1, |(last, _)| last + 1);
//!     tx.insert(orders, &number, &vec![(7, 3)])?;
//!     Ok(number)
//! })?;
//! assert_eq!(number, 1);
//! # Ok::<(), Error>(())
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(
    any(feature = "model", not(feature = "cluster")),
    allow(
        dead_code,
        unreachable_pub,
        unused_imports,
        reason = "some of it only serves transactions over several nodes"
    )
)]

#[cfg(all(feature = "chopping", not(feature = "model")))]
pub mod chopped;
#[cfg(all(feature = "cluster", not(feature = "model")))]
pub mod cluster;
mod commit;
mod db;
#[doc(hidden)]
pub mod durability;
mod error;
mod index;
mod memory;
mod model;
mod mutation;
mod schema;
mod snapshot;
mod trace;
mod tx;

pub use commit::sink::{Commit, Row, RowChange, Sink};
pub use db::config::{Config, DefaultConfig};
pub use db::stats::{MemoryUse, Stats, TableStats};
pub use db::{Builder, Compacted, Db, Options};
/// See the trait [`Key`](trait@Key).
pub use drtm_derive::Key;
pub use drtm_kv::{PrefetchMask, Shortage};
pub use durability::{Checkpoint, CommitToken, Durability, LogError, Progress, RecoveryStep};
pub use error::{ChoppedError, Conflict, Error, SinkError};
pub use index::{Index, IndexDef, IndexKeys, IndexOf, Multi, Pairs, Unique, Uniqueness};
#[doc(hidden)]
pub use mutation::Mutation;
#[cfg(feature = "postcard")]
pub use schema::codec::Postcard;
#[cfg(feature = "bincode")]
pub use schema::codec::{Bincode, Serde};
pub use schema::codec::{Codec, CodecError, PlainData, PlainRow, Pod, PodRef, Raw};
pub use schema::column::{Column, Columns};
pub use schema::key::{AsKey, Key, KeyRange, KeyReader, Prefix, Within, prefix, within};
#[doc(hidden)]
pub use schema::key::{PairEnd, PrefixEnd};
pub use schema::part::{Flat, Part};
pub use schema::table::{Definition, Hash, Kind, Ordered, Table, TableDef, TableOf};
pub use tx::flow::Flow;
pub use tx::rows::{KeyedRow, Point, Prefetched, Rows, Sorted, Stored};
pub use tx::{
    Entry, EntryIn, Lend, Mode, OccupiedEntry, OccupiedIn, OneNode, Range, ReadOnly, Savepoint, Snapshot, Transaction,
    Tx, Update, VacantEntry, VacantIn, ready,
};
