//! Durability: committed transactions survive the process.
//!
//! # The protocol
//!
//! A committing transaction appends a record to a buffer of its own, after its validation and
//! before it becomes visible. Its *epoch* is the snapshot number, which it reads while it holds its
//! locks. Before its first lock it publishes the epoch in which it may commit, and clears that word
//! after it has unlocked. So epoch E is *closed* once the snapshot number exceeds E and, after a
//! fence, no published word is in 1..=E: no transaction will commit in E any more.
//!
//! There is one stream of writes. A thread that waits for an epoch *leads*, unless another thread
//! does. The leader advances the number, waits until the epoch is closed, and takes all buffers. It
//! writes them as one frame that names the epoch, syncs, and wakes the other threads. The last
//! epoch whose frame was synced is *durable*.
//!
//! A buffer may hold records of epochs that the frame does not close. Recovery ignores them unless
//! a later frame closes their epochs, so it restores exactly the transactions of durable epochs. A
//! transaction depends only on transactions of its own and of earlier epochs, so that is a prefix
//! of the serialization order.
//!
//! Checkpoints bound the log (see `checkpoint`). Tables are created, renamed and dropped in the
//! same stream (see `tables`).
//!
//! The decision pages are `docs/decisions/0040-durability-by-epochs.md` and
//! `0041-fuzzy-checkpoints.md`; the bytes are in `docs/format.md`.

mod backup;
mod checkpoint;
mod error;
pub mod format;
mod log;
mod open;
mod progress;
mod recovery;
mod replay;
pub mod storage;
mod tables;

#[cfg(test)]
pub(crate) use self::log::MOST_PENDING;
pub(crate) use self::log::Open;
pub use self::{
    checkpoint::Checkpoint,
    error::LogError,
    log::CommitToken,
    progress::{Progress, RecoveryStep},
};
pub(crate) use self::{
    log::{Choice, Log, LogConfig, Participant},
    open::{Creation, open},
    progress::Observer,
};

/// When a committing transaction is safe from a crash.
///
/// # Example
///
/// ```
/// use drtm::{Db, Durability, Error, Pod, TableDef};
///
/// const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");
/// let directory = std::env::temp_dir().join(format!("drtm-durability-{}", std::process::id()));
/// let open = || Db::builder().path(&directory).create(true).durability(Durability::Async).build();
///
/// let db = open()?;
/// let counters = db.table(COUNTERS)?;
/// db.transact(|tx| tx.put(counters, &1, &7))?;
/// db.close()?;
/// drop(db);
///
/// let db = open()?;
/// let counters = db.table(COUNTERS)?;
/// assert_eq!(db.read(|tx| tx.get(counters, &1))?, Some(7));
/// # drop(db);
/// # std::fs::remove_dir_all(&directory).expect("it is there");
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Never: the database is in memory only.
    None,
    /// Within a [delay](crate::Builder::flush_within) after its commit. A crash leaves a prefix: a
    /// transaction survives only if every transaction that it depends on does.
    Async,
    /// When its commit returns.
    Sync,
}
