//! What the processes of a cluster say to each other, a line of JSON each: a parent by a child's
//! standard input, a child by its standard output.

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

/// What a child is told first.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Job<W> {
    pub(super) workload: W,
    pub(super) plan: Plan,
    pub(super) node: u16,
    pub(super) way: Way,
}

/// How the processes reach each other. A pipe is how they learn of it, so that the key is seen by
/// no other process.
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

/// What a child is told then.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order<C> {
    /// Every node is loaded.
    Run,
    /// All have run, and have counted so much.
    Check(C),
    /// All is checked.
    End,
}

/// What a child tells.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Said<C> {
    Loaded,
    Ran(Box<Tally>, C),
    /// What does not hold. The child that checks the whole cluster tells what it has added, too.
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

/// Tells the parent.
pub(super) fn say<C: Serialize>(said: &Said<C>) -> Result<(), Error> {
    let line = line(said)?;
    let mut out = io::stdout().lock();
    out.write_all(&line).and_then(|()| out.flush()).map_err(failed)
}

/// Reads what a child tells. Its failure is an error.
pub(super) fn read<C: DeserializeOwned>(said: &str) -> Result<Said<C>, Error> {
    match serde_json::from_str(said).map_err(failed)? {
        Said::Failed(why) => Err(failed(why)),
        said => Ok(said),
    }
}
