//! What errors say, and what caused them.

use std::fmt;

use super::{Conflict, Error};
use crate::LogError;

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Validation => f.write_str("what it has read was changed meanwhile"),
            Self::Phantom => f.write_str("a key came into what it has read"),
            Self::Locked => f.write_str("what it wants to write was locked"),
            Self::Moved => f.write_str("what it wants to write has moved"),
            Self::Indexed => f.write_str("a table that it has written has other indexes now"),
            Self::Expired => f.write_str("a lease under which it has read has ended"),
            Self::Unfetched => f.write_str("it came to a row that it had not fetched"),
            Self::View => f.write_str("the cluster's view has changed, or a node was restarted"),
        }
    }
}

impl std::error::Error for Conflict {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict(why) => write!(f, "the transaction conflicts with others: {why}; run it again"),
            Self::Contended { attempts, conflict, table, key } => write!(
                f,
                "the transaction was given up after {attempts} runs: {conflict}{}; allow more runs or time, or \
                 change that row less often",
                of_row(*table, key)
            ),
            Self::Exists { table } => write!(f, "there is a row with this key in `{table}`: update it, or put it"),
            Self::Missing { table } => write!(f, "there is no row with this key in `{table}`: insert it, or put it"),
            Self::Duplicate { index } => write!(
                f,
                "another row has this key in the unique index `{index}`: change that one first, or choose another \
                 key"
            ),
            Self::Index { index, table } => write!(
                f,
                "index `{index}` does not agree with table `{table}`: its function must give the same for the same \
                 row, always; if it does, memory is corrupt"
            ),
            Self::NotUnique { index, table, key } => write!(
                f,
                "the unique index `{index}` cannot be made: two rows of `{table}` have the key \"{}\"; change one \
                 of them, or make an index that is not unique",
                key.escape_ascii()
            ),
            Self::IndexTooNew { index } => write!(
                f,
                "index `{index}` was made after the snapshot was opened, which does not see all of it: open \
                 another snapshot"
            ),
            Self::Aborted { reason } => write!(f, "the transaction was given up: {reason}"),
            Self::Codec { table, source } => write!(f, "in `{table}`: {source}"),
            Self::Key { table } => {
                write!(f, "a key in `{table}` is none of its type: was the table written with another?")
            }
            Self::Full(why) => write!(f, "{why}; remove rows, or give the database more with `Builder::memory`"),
            Self::TooLong { what, length, longest, remedy } => {
                write!(f, "a {what} of {length} bytes is too long: the longest has {longest}; {remedy}")
            }
            Self::NoMemory { bytes, source } => {
                write!(f, "cannot have {bytes} bytes for the database: {source}; ask for less with `Builder::memory`")
            }
            Self::Store(why) => write!(f, "{why}"),
            Self::OtherTypes { name, is, asked } => write!(
                f,
                "table `{name}` is {is}, and was opened as {asked}: use the same definition everywhere, convert \
                 its rows (`Db::migrate`), or say that the types mean the same (`TableDef::was`)"
            ),
            Self::TooManyTables { most } => write!(
                f,
                "there are {most} tables and indexes, or the log has had as many, which is all there can be: drop \
                 some, or put several kinds of rows into one, under keys with a prefix"
            ),
            Self::Unmigrated { table } => write!(
                f,
                "the rows of `{table}` were being converted when the process ended: call `Db::migrate`, which \
                 continues"
            ),
            Self::Dropped { table } => write!(
                f,
                "`{table}` was dropped: open it again (`Db::table`, `Db::index`), which makes it anew, and use \
                 that handle"
            ),
            Self::NoSuchTable { name } => write!(
                f,
                "there is no table `{name}`: open one to make it (`Db::table`); an index is dropped by \
                 `Db::drop_index`"
            ),
            Self::NoSuchIndex { name } => write!(f, "there is no index `{name}`: open one to make it (`Db::index`)"),
            Self::NameTaken { name } => {
                write!(f, "there is a table or an index `{name}`: choose another name, or drop that one first")
            }
            Self::OtherDatabase => f.write_str("the table was opened in another database: open it in this one"),
            Self::OtherSavepoint => {
                f.write_str("the savepoint is none of this transaction's, or of a part that was undone")
            }
            Self::Nested => f.write_str(
                "a transaction within another: use the closure's, or a savepoint, and collect keys before reading \
                 by them",
            ),
            Self::NotReady => f.write_str(
                "a transaction's body waits for something other than its transaction: wait for it before, or run the \
                 body by `Cluster::transact`",
            ),
            Self::Closed => f.write_str("the database is closed, for all its clones: make another"),
            Self::InTransaction => f.write_str(
                "this thread has a transaction or a snapshot open, for which closing the database would wait: end \
                 it first, or close from another thread",
            ),
            Self::StillRunning { transactions } => write!(
                f,
                "{transactions} transactions or snapshots have not ended yet: wait longer, or find what holds \
                 them; new ones are refused"
            ),
            Self::TooLarge { bytes, most } => write!(
                f,
                "the transaction has written {bytes} bytes, more than the {most} that there can be: divide it"
            ),
            Self::SnapshotTooOld { table } => write!(
                f,
                "the snapshot is too old: what a row in `{table}` was has been forgotten, as there was no memory \
                 left for older versions; allow more (`Builder::older_versions`), or keep snapshots open for less \
                 long"
            ),
            Self::Config { what, must_be, is } => write!(f, "{what} must be {must_be}, and is {is}"),
            Self::Refused { source } => {
                write!(f, "the sink has refused the transaction, which has not happened: {source}")
            }
            Self::OutcomeUnknown { reason } => write!(
                f,
                "whether the transaction has become durable is not known, since the log failed: {reason}; open the \
                 database again"
            ),
            Self::NotYetDurable { waited, thread, full } => write!(
                f,
                "the transaction has committed, and is not durable after {waited:?}{}; it becomes durable unless \
                 the log fails",
                of_wait(thread.as_deref(), full.as_deref())
            ),
            Self::Poisoned { reason } => write!(
                f,
                "the log failed, and nothing is committed any more: {reason}; open the database again (what is in \
                 memory can still be read: `Db::snapshot`)"
            ),
            Self::DiskFull { reason } => write!(
                f,
                "there is no room for the log, and the transaction has not happened: {reason}; free some, and run \
                 it again"
            ),
            Self::ReadOnly { reason } => write!(f, "the database is only read: {reason}; open it again for writing"),
            Self::IndexNotOpened { table, index } => {
                write!(f, "index `{index}` of `{table}` is not open: open it (`Db::index`) before the table is written")
            }
            Self::Replicated { table } => {
                write!(f, "`{table}` is replicated, and is only read: fill it at every node before that is started")
            }
            Self::OfCluster { table } => write!(
                f,
                "`{table}` is a table of a cluster: write rows that have indexes by a transaction of the cluster \
                 (`ClusterTx`), define indexes with `NodeBuilder::index`, and do not drop it"
            ),
            #[cfg(all(feature = "cluster", not(feature = "model")))]
            Self::Cluster(why) => write!(f, "{why}"),
            Self::Chopped(why) => write!(f, "{why}"),
            Self::Log(why) => write!(f, "{why}"),
            Self::Engine(why) => write!(f, "{why}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Conflict(why) => Some(why),
            Self::Codec { source, .. } => Some(source),
            Self::NoMemory { source, .. } => Some(source),
            Self::Store(why) => why.source(),
            Self::Refused { source } => Some(&**source),
            #[cfg(all(feature = "cluster", not(feature = "model")))]
            Self::Cluster(why) => why.source(),
            Self::Chopped(why) => why.source(),
            Self::Log(why) => why.source(),
            Self::Engine(why) => why.source(),
            _ => None,
        }
    }
}

impl From<Conflict> for Error {
    fn from(why: Conflict) -> Self {
        Self::Conflict(why)
    }
}

#[cfg(all(feature = "cluster", not(feature = "model")))]
impl From<crate::cluster::ClusterError> for Error {
    fn from(why: crate::cluster::ClusterError) -> Self {
        Self::Cluster(why)
    }
}

impl From<LogError> for Error {
    fn from(why: LogError) -> Self {
        Self::Log(why)
    }
}

impl From<drtm_htm::EngineError> for Error {
    fn from(why: drtm_htm::EngineError) -> Self {
        Self::Engine(why)
    }
}

/// Formats a row for a conflict's message.
fn of_row(table: Option<&'static str>, key: &[u8]) -> String {
    table.map_or_else(String::new, |table| format!(" (the row of `{table}` with the key \"{}\")", key.escape_ascii()))
}

/// Formats what a commit waits for.
fn of_wait(thread: Option<&str>, full: Option<&str>) -> String {
    match (thread, full) {
        (_, Some(full)) => format!(", since there is no room for the log: {full}"),
        (Some(thread), None) => format!(", since thread `{thread}` is committing another all the while"),
        (None, None) => String::new(),
    }
}
