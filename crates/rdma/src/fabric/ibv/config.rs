//! Which node, and which NIC of it.

use crate::{TcpConfig, Transport};

/// How a process becomes a node of a cluster with RDMA NICs: as one over TCP, which sets the
/// connections up, and by which device.
///
/// # Example
///
/// ```
/// use drtm_rdma::{NodeId, TcpConfig, VerbsConfig};
///
/// let tcp = TcpConfig::new(NodeId(0), "10.0.0.1:7000".parse()?, [7; 32])
///     .peer(NodeId(1), "10.0.0.2:7000".parse()?);
/// let config = VerbsConfig::new(tcp).device("mlx5_0").port(1);
/// # let _ = config;
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct VerbsConfig {
    pub(super) tcp: TcpConfig,
    pub(super) device: Option<String>,
    pub(super) port: u8,
    pub(super) gid: Option<u8>,
    pub(super) message_bytes: usize,
    pub(super) huge_pages: bool,
    pub(super) messages: Transport,
    pub(super) software_swaps: bool,
}

impl VerbsConfig {
    /// Configures the node that this is over TCP, with the first device that there is and its first
    /// port.
    ///
    /// Queues, mailbox and buffers are as many as there are said to be.
    pub fn new(tcp: TcpConfig) -> Self {
        let (message_bytes, messages) = (16 << 10, Transport::Connection);
        Self {
            tcp,
            device: None,
            port: 1,
            gid: None,
            message_bytes,
            huge_pages: false,
            messages,
            software_swaps: false,
        }
    }

    /// Sets the device, by its name: `ibv_devices` lists them.
    pub fn device(self, name: impl Into<String>) -> Self {
        Self { device: Some(name.into()), ..self }
    }

    /// Sets the device's port, from 1 on.
    pub fn port(self, port: u8) -> Self {
        Self { port, ..self }
    }

    /// Sets which of the port's addresses to use: `ibv_devinfo -v` lists them, from 0 on. The
    /// default is the last one that is made of an IPv4 address, which is that for routed packets,
    /// or else the first.
    pub fn gid(self, index: u8) -> Self {
        Self { gid: Some(index), ..self }
    }

    /// Sets whether the memory by which the NIC sends and receives is in huge pages of 2 MiB, of
    /// which it translates fewer. The administrator sets these aside by `sysctl vm.nr_hugepages`. A
    /// node takes a few, and each of its endpoints. Regions are the application's: see
    /// [`Region::in_huge_pages`](crate::Region::in_huge_pages).
    pub fn huge_pages(self, huge_pages: bool) -> Self {
        Self { huge_pages, ..self }
    }

    /// Sets what carries messages, [`Transport::Connection`] by default. All nodes must agree.
    ///
    /// With [`Transport::Datagrams`], an endpoint has one queue pair for the messages to all nodes,
    /// and connections only to those that it accesses one-sided. So there are fewer queue pairs at
    /// hundreds of nodes. Messages are delivered once, in order, all the same: endpoints send what
    /// is lost again, when they are polled. A message and a one-sided operation of one endpoint to
    /// one node are never under way together: the later one waits. Messages that are longer than a
    /// packet are sent in several.
    pub fn messages(self, by: Transport) -> Self {
        Self { messages: by, ..self }
    }

    /// Sets whether swaps of a software NIC (`rdma_rxe`) are used; they are not by default.
    ///
    /// The `rdma_rxe` of some kernels, Linux 6.1 among them, lets a swap that finds another value
    /// write that value back. Another processor can have written the word in between: so a lock
    /// that was just released is taken for ever. On a machine of one processor there is no in
    /// between. Without swaps, nodes take their locks by messages. NICs of hardware are not
    /// concerned.
    pub fn software_swaps(self, are_used: bool) -> Self {
        Self { software_swaps: are_used, ..self }
    }

    /// Sets the longest message, 16 KiB by default: at least 1 KiB, and at most what a buffer has.
    ///
    /// A node locks memory for as many as its mailbox has, and each of its endpoints for as many as
    /// it may have calls.
    pub fn message_bytes(self, bytes: usize) -> Self {
        Self { message_bytes: bytes.clamp(1 << 10, crate::Buffers::LARGE), ..self }
    }
}
