//! What the processes of a soak tell each other, a line each.

use std::net::SocketAddr;

use drtm_drive::cluster::ProtocolOf;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::lasting::bank::Shape;

/// How the processes of a cluster reach each other. Their directory has the configuration, and on
/// shared memory all else.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Place {
    Shm,
    Tcp { addresses: Vec<SocketAddr>, key: [u8; 32] },
}

/// The first line that a process is sent: what it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) place: Place,
    pub(super) directory: String,
    pub(super) node: u16,
    pub(super) owners: u16,
    pub(super) clients: u16,
    pub(super) backups: u16,
    pub(super) protocol: ProtocolOf,
    pub(super) lease_ms: u64,
    pub(super) accounts: u64,
    pub(super) seed: u64,
    /// The first of its clients.
    pub(super) first: u64,
    /// Whether it opens the accounts.
    pub(super) opens: bool,
}

impl Job {
    /// Returns the shape of its cluster.
    pub(super) fn shape(&self) -> Shape {
        let Self { owners, clients, backups, accounts, .. } = *self;
        let (protocol, lease) = (self.protocol.protocol, std::time::Duration::from_millis(self.lease_ms));
        Shape { owners, clients, backups, protocol, lease, accounts }
    }
}

/// Later lines to a process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Its clients begin no other transaction.
    Stop,
    /// It reads what is left: accounts, and the marks of so many clients.
    Check { clients: u64 },
}

/// What is left at the end: the sum of all accounts, marks, and rows that are locked. Or why that
/// cannot be read.
pub(super) type Left = Result<(u64, Vec<u64>, Vec<String>), String>;

/// Lines of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Said {
    /// It has joined.
    Begun,
    /// The accounts are open.
    Open,
    /// A client was told that a transfer has happened, and when.
    Acknowledged { client: u64, count: u64, began: u64, ended: u64, homes: [u16; 2] },
    /// A client was told that one has failed.
    Failed { client: u64, count: u64, why: String },
    /// It is in another view: its number, its members and their lives, and whether each shard has
    /// as many replicas as there can be.
    View { number: u32, members: Vec<(u16, u64)>, is_whole: bool },
    /// It has seen what must not be.
    Odd(String),
    /// It has found itself out by a transfer, and ends.
    Out { client: u64, count: u64 },
    /// All its clients have ended.
    Ended,
    /// What it has found to be left.
    Left(Left),
}

/// Returns nanoseconds on the clock that all processes of the machine share.
pub(super) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
