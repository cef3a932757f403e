//! The logging phase: what a transaction is going to write goes to the memory of backups before it
//! is decided.
//!
//! Each owner has k backups, the owners that come next. At each of them, each worker that writes
//! has a *ring*, of which it is the only producer. A record of a ring has what a transaction writes
//! to the owners that the backup backs up, and the names of all that take part. Records are whole
//! or not there (`record`), and count once they are *settled*: decided, or void. Space for them is
//! reserved before the first lock (`reserve`, `producer`, `commit`, `tell`).
//!
//! A backup applies what is settled in the background, to replicas that no transaction reads
//! (`ring`, `replica`, `backup`). Nothing takes a dead owner's place yet.
//!
//! The decision page is `docs/decisions/0052-rings-of-backups.md`.

mod backup;
mod commit;
mod config;
mod outgoing;
mod pending;
mod producer;
mod record;
mod refuse;
mod replica;
mod reserve;
mod ring;
mod rows;
mod tell;

pub use self::rows::OwnedRow;
pub(super) use self::{
    backup::Backup,
    config::LogConfig,
    outgoing::Rings,
    pending::Logging,
    refuse::OnlyLogged,
    replica::{Replica, ReplicaTable},
    rows::rows_of,
};
