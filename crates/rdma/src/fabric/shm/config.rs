//! The configuration of a process's membership: the group, the node, and sizes.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{Atomicity, Buffers, Capabilities, NodeId, Order, sync::ring};

/// How a process joins a group.
///
/// # Example
///
/// ```
/// use drtm_rdma::{Atomicity, NodeId, ShmConfig};
///
/// let config = ShmConfig::new("orders", NodeId(3)).queue_depth(64);
/// assert_eq!(config.capabilities().atomicity, Atomicity::Global);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ShmConfig {
    pub(super) group: String,
    pub(super) node: NodeId,
    pub(super) directory: PathBuf,
    pub(super) patience: Duration,
    pub(super) queue_depth: usize,
    pub(super) calls: usize,
    pub(super) ring_words: usize,
    pub(super) buffers: Buffers,
}

impl ShmConfig {
    /// Returns the configuration of node `node`, below 64, of a group with this name, in the user's
    /// own runtime directory.
    ///
    /// # Example
    ///
    /// See [`ShmConfig`].
    pub fn new(group: &str, node: NodeId) -> Self {
        let directory = match std::env::var_os("XDG_RUNTIME_DIR") {
            Some(directory) => Path::new(&directory).join("drtm"),
            None => std::env::temp_dir().join(format!("drtm-{}", rustix::process::getuid().as_raw())),
        };
        Self {
            group: group.to_owned(),
            node,
            directory,
            patience: Duration::from_secs(10),
            queue_depth: 256,
            calls: 256,
            ring_words: (128 << 10) / 8,
            buffers: Buffers::default(),
        }
    }

    /// Sets the directory of groups. All processes of a group must use the same one.
    pub fn directory(self, directory: &Path) -> Self {
        Self { directory: directory.to_owned(), ..self }
    }

    /// Sets how long to wait for the answers of nodes that are there.
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Sets the most operations that may be pending from one endpoint to one node: at least 1.
    ///
    /// # Example
    ///
    /// See [`ShmConfig`].
    pub fn queue_depth(self, queue_depth: usize) -> Self {
        Self { queue_depth: queue_depth.max(1), ..self }
    }

    /// Sets the most unanswered calls of an endpoint: at least 1.
    pub fn calls(self, calls: usize) -> Self {
        Self { calls: calls.max(1), ..self }
    }

    /// Sets the bytes of each ring for messages, rounded up to a power of two of at least 4 KiB. A
    /// message has at most this many bytes, less a line.
    pub fn ring_bytes(self, bytes: usize) -> Self {
        Self { ring_words: (bytes.clamp(4 << 10, 16 << 20) / 8).next_power_of_two(), ..self }
    }

    /// Sets the buffers of each endpoint.
    pub fn buffers(self, buffers: Buffers) -> Self {
        Self { buffers, ..self }
    }

    /// Returns the capabilities of a fabric with this configuration.
    ///
    /// # Example
    ///
    /// See [`ShmConfig`].
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        Capabilities {
            atomicity: Atomicity::Global,
            ordering: Order::Posted,
            atomic_read_bytes: 64,
            inline_bytes: 0,
            max_read_bytes: Buffers::LARGE,
            max_write_bytes: Buffers::LARGE,
            max_message_bytes: Buffers::LARGE.min(8 * (self.ring_words - ring::FRAME_HEAD)),
            queue_depth: self.queue_depth,
            max_calls: self.calls,
            smart_nic: false,
            certain_deaths: true,
            letters: false,
        }
    }
}
