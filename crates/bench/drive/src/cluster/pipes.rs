//! Messages between the processes of a cluster, each a line of JSON. The parent writes to a child's
//! standard input, and reads from its standard output.

use std::{
    fmt,
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{plan::Plan, tally::Tally};
use crate::Error;

const COMMAND: &str = "a node of the cluster";

/// The first message to a child.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Job<W> {
    pub(super) workload: W,
    pub(super) plan: Plan,
    pub(super) node: u16,
    pub(super) way: Way,
}

/// How the processes reach each other. It is sent through a pipe, so that no other process sees the
/// key.
#[derive(Clone, Serialize, Deserialize)]
pub(super) enum Way {
    Shm { directory: PathBuf },
    Tcp { addresses: Vec<SocketAddr>, key: [u8; 32], sealed: bool },
}

/// Without the key.
impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shm { directory } => f.debug_struct("Shm").field("directory", directory).finish(),
            Self::Tcp { addresses, sealed, .. } => {
                f.debug_struct("Tcp").field("addresses", addresses).field("sealed", sealed).finish_non_exhaustive()
            }
        }
    }
}

/// A later message to a child: the next stage begins.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToChild<C> {
    /// Every node is loaded.
    Run,
    /// All transactions have ended, and this was counted.
    Check(C),
    /// All conditions were checked.
    End,
}

/// A message from a child.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromChild<C> {
    Loaded,
    Ran(Box<Tally>, C),
    /// Violated conditions. The child that checks the whole cluster also sends its sum.
    Checked(Vec<String>, Option<C>),
    Failed(String),
}

pub(super) fn failed(why: impl ToString) -> Error {
    Error::Child { command: COMMAND, why: why.to_string() }
}

pub(super) fn line(value: &impl Serialize) -> Result<Vec<u8>, Error> {
    let mut line = serde_json::to_vec(value).map_err(failed)?;
    line.push(b'\n');
    Ok(line)
}

/// Sends a message to the parent.
pub(super) fn send_to_parent<C: Serialize>(said: &FromChild<C>) -> Result<(), Error> {
    let line = line(said)?;
    let mut out = io::stdout().lock();
    out.write_all(&line).and_then(|()| out.flush()).map_err(failed)
}

/// Parses a child's message. A child's failure is an error.
pub(super) fn read<C: DeserializeOwned>(said: &str) -> Result<FromChild<C>, Error> {
    match serde_json::from_str(said).map_err(failed)? {
        FromChild::Failed(why) => Err(failed(why)),
        said => Ok(said),
    }
}
