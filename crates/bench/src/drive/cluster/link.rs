//! What the processes of a cluster say to each other, a line of JSON each: a parent by a child's
//! standard input, a child by its standard output.

use std::{
    io::{self, Write},
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
    pub(super) directory: PathBuf,
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
