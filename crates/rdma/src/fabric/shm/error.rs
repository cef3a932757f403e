//! The errors of joining a group.

use std::{io, path::PathBuf};

use crate::{NodeId, RegionError};

/// A group that cannot be joined.
///
/// # Example
///
/// ```
/// use drtm_htm::{Emulated, NoHtm};
/// use drtm_rdma::{JoinError, NodeId, ShmConfig, ShmFabric};
///
/// let name = ShmFabric::join(NoHtm, ShmConfig::new("../elsewhere", NodeId(0))).unwrap_err();
/// assert!(matches!(name, JoinError::Name { .. }));
/// // The emulation sees the accesses of one process only.
/// let engine = ShmFabric::join(Emulated::default(), ShmConfig::new("group", NodeId(0))).unwrap_err();
/// assert!(matches!(engine, JoinError::Region(_)));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The name is invalid for a group.
    #[error("{name:?} cannot name a group; use packets, digits, `-`, `_` and `.`, at most 32, not beginning with `.`")]
    Name {
        /// The name.
        name: String,
    },
    /// The number is out of range for a node.
    #[error("{node} cannot be part of a group; nodes are numbered below {most}")]
    Node {
        /// The node.
        node: NodeId,
        /// The number of possible nodes.
        most: usize,
    },
    /// The node is in the group already, as another process or in this one.
    #[error("{node} is in the group already; take another number, or end the process that has this one")]
    Present {
        /// The node.
        node: NodeId,
    },
    /// The group's directory, or a peer's process, belongs to another user.
    #[error("{what} belongs to user {found}, and this process to user {ours}; a group is one user's")]
    Owner {
        /// The directory or process.
        what: String,
        /// Its owner.
        found: u32,
        /// The user of this process.
        ours: u32,
    },
    /// Other users may enter the group's directory.
    #[error("{path} has mode {mode:o}, and others may enter it; set it to 700")]
    Mode {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The group has another format, or the file that describes it is damaged.
    #[error("the group has format {found:?}, and this library knows {known:?}; use one library in all processes")]
    Format {
        /// The format found.
        found: String,
        /// The format known here.
        known: String,
    },
    /// The group was created by another version of this library.
    #[error("the group was made by version {found} of this library, and this is {ours}; use one in all processes")]
    Version {
        /// The group's version.
        found: String,
        /// The version of this library.
        ours: String,
    },
    /// The group's processes use an engine of another kind.
    #[error("the group's engine is one {found}, and this one is {ours}; accesses would not be atomic with each other")]
    Engine {
        /// The group's engine.
        found: String,
        /// The engine of this process.
        ours: String,
    },
    /// A node of the group does not answer, perhaps because it is stopped.
    #[error("{node} is in the group and does not answer; it may be stopped: let it go on, or end it")]
    NoAnswer {
        /// The node.
        node: NodeId,
    },
    /// A node refused this process.
    #[error("{node} refuses this process; its version, engine or user is another")]
    Refused {
        /// The node.
        node: NodeId,
    },
    /// The process's own memory for the group could not be created, or a peer's could not be
    /// mapped.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation.
        what: String,
        /// The system's error.
        source: io::Error,
    },
}

impl JoinError {
    pub(super) fn system(what: impl Into<String>) -> impl FnOnce(rustix::io::Errno) -> Self {
        let what = what.into();
        move |errno| Self::System { what, source: errno.into() }
    }

    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}
