//! The logging phase: what a transaction is going to write goes to the memory of backups before it
//! is decided.
//!
//! Each owner has k backups, the owners that come next. At each of them, each worker that writes
//! has a *ring*, of which it is the only producer. A record of a ring has what a transaction writes
//! to shards of which the node is a copy (`copies`), and the names of all shards that it writes.
//! Records are whole or not there (`record`), and count once they are *settled*: carried out, or
//! void. Space for them is reserved before the first lock (`reserve`, `producer`, `commit`,
//! `tell`).
//!
//! A backup applies what is settled in the background, to replicas that no transaction reads
//! (`ring`, `replica`, `backup`). When the view changes, it says what rings of dead producers have,
//! and may have to serve its replicas.
//!
//! Without backups, transactions may be logged in memory that outlives the process (`cooperative`).
//!
//! The decision pages are `docs/decisions/0052-rings-of-backups.md` and
//! `docs/decisions/0103-transactions-survive-nodes.md`.

mod backup;
mod commit;
mod config;
mod cooperative;
mod copies;
mod outgoing;
mod pending;
mod producer;
mod record;
mod recorded;
mod refuse;
mod replica;
mod reserve;
mod ring;
mod rows;
mod tell;

pub use self::rows::OwnedRow;
pub(super) use self::{
    backup::{Backup, Standing as OfGroup},
    config::LogConfig,
    cooperative::{Cooperative, Slots, hash_of},
    copies::Copies,
    outgoing::Rings,
    pending::Logging,
    recorded::Recorded,
    refuse::OnlyLogged,
    replica::{NotApplied, Replica, ReplicaTable},
    ring::Standing,
    rows::rows_of,
    tell::AGAIN_AFTER,
};

#[cfg(test)]
pub(super) mod tests {
    use super::record::{Head, Participant, encode};
    use crate::{
        cluster::shard::ShardId,
        durability::format::{RecordKind, RecordWriter},
    };

    /// Returns a record of a transaction without rows, of these shards.
    pub(in crate::cluster) fn record_of(holder: u64, sequence: u64, view: u32, shards: &[ShardId]) -> Vec<u8> {
        let (mut bytes, mut redo) = (Vec::new(), Vec::new());
        RecordWriter::begin(&mut redo, 1, RecordKind::Rows).finish().expect("short");
        let participants: Vec<_> =
            shards.iter().zip(0..).map(|(shard, at)| Participant::new(*shard, at == 0)).collect();
        let head = Head { position: 1 << 12, settled: 0, holder, sequence, view };
        encode(&mut bytes, head, &participants, [&redo[..]].into_iter());
        bytes
    }
}
