//! Why a node cannot use its NIC.

use std::{fs, io};

use crate::{NodeId, TcpError};

/// A NIC that cannot be used, or a cluster that cannot be joined.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_rdma::{NodeId, TcpConfig, VerbsConfig, VerbsError, VerbsFabric};
///
/// let tcp = TcpConfig::new(NodeId(0), "127.0.0.1:0".parse()?, [7; 32]);
/// let error = VerbsFabric::join(NoHtm, VerbsConfig::new(tcp).device("no such device")).unwrap_err();
/// assert!(matches!(error, VerbsError::NoDevice { .. }));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// There is no such device.
    #[error(
        "no RDMA device {}; there are {found:?}: see `ibv_devices`, or make a software one with `rdma link add`",
        .named.as_deref().unwrap_or("at all")
    )]
    NoDevice {
        /// The device that was wanted, if it was named.
        named: Option<String>,
        /// Those that there are.
        found: Vec<String>,
    },
    /// The user may not open the device.
    #[error("no permission to open the RDMA device; give this user access to /dev/infiniband/uverbs*: {source}")]
    Permission {
        /// What the system said.
        source: io::Error,
    },
    /// The NIC needs memory that stays in place, and this process may have no more of it.
    #[error(
        "the NIC cannot have {bytes} bytes of memory locked; this process may lock {limit} in all: raise `ulimit -l`"
    )]
    LockedMemory {
        /// What was to be locked.
        bytes: u64,
        /// What the process may lock.
        limit: u64,
    },
    /// The system has not set so many huge pages aside.
    #[error(
        "no {pages} huge pages of 2 MiB for {bytes} bytes of buffers: {source}; set more aside with `sysctl \
         vm.nr_hugepages`, or leave `VerbsConfig::huge_pages` out"
    )]
    HugePages {
        /// How much.
        bytes: u64,
        /// How many pages that takes.
        pages: usize,
        /// What the system said.
        source: io::Error,
    },
    /// The port is not connected, or does not exist.
    #[error("port {port} is not active; see `ibv_devinfo`")]
    Port {
        /// The port.
        port: u8,
    },
    /// The port has no address by which peers reach it.
    #[error("port {port} has no address {index:?}; give its network interface an IP address, or name another")]
    Address {
        /// The port.
        port: u8,
        /// The address that was wanted, if it was named.
        index: Option<u8>,
    },
    /// The engine keeps books of accesses, in which those of a NIC would be missing.
    #[error("this engine cannot protect memory that a NIC writes to: {0}")]
    Engine(drtm_htm::EngineError),
    /// A peer does not let this node connect.
    #[error("a peer refuses the connection: {why}")]
    Refused {
        /// What the peer says.
        why: String,
    },
    /// A node that is here answers no datagrams.
    #[error(
        "{node} is here, and answers no datagrams; the network must carry them (RoCE: UDP port 4791) in packets of \
         the port's MTU"
    )]
    Silent {
        /// The node.
        node: NodeId,
    },
    /// A request failed on its way, by the library's code.
    #[error("a request to a peer failed with status {status}; the connection is reset")]
    Failed {
        /// The code: `enum ibv_wc_status`.
        status: u32,
    },
    /// The cluster cannot be joined.
    #[error(transparent)]
    Cluster(#[from] TcpError),
    /// The library or the system refused something.
    #[error("cannot {what}: {source}")]
    System {
        /// What was to be done.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl VerbsError {
    /// Returns the error of a device that could not be opened.
    pub(super) fn opening(source: io::Error) -> Self {
        // The library looks in several places, and says what the last one was like.
        match (source.kind(), denied()) {
            (_, Some(source)) => Self::Permission { source },
            (io::ErrorKind::PermissionDenied, None) => Self::Permission { source },
            (_, None) => Self::System { what: "open the RDMA device", source },
        }
    }

    /// Returns the error of memory that could not be registered.
    pub(super) fn registering(source: io::Error, bytes: u64) -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
        match limit {
            Some(limit) if source.raw_os_error() == Some(rustix::io::Errno::NOMEM.raw_os_error()) => {
                Self::LockedMemory { bytes, limit }
            }
            _ => Self::System { what: "register memory with the NIC", source },
        }
    }
}

/// Returns the error of the system if this user may not open a device's file.
fn denied() -> Option<io::Error> {
    let files = fs::read_dir("/dev/infiniband").ok()?.filter_map(Result::ok);
    files.filter(|file| file.file_name().to_string_lossy().starts_with("uverbs")).find_map(|file| {
        let opened = fs::File::options().read(true).write(true).open(file.path());
        opened.err().filter(|error| error.kind() == io::ErrorKind::PermissionDenied)
    })
}
