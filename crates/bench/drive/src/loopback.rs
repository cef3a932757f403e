//! Nodes of this machine that are connected by TCP.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    ops::Range,
    process,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use drtm_rdma::{NodeId, TcpConfig};

use crate::Error;

/// Ports below those that the system chooses for connections: one of those could be taken while a
/// node is started again.
const PORTS: Range<u16> = 10_000..32_000;

/// How many ports were chosen.
static CHOSEN: AtomicU32 = AtomicU32::new(0);

/// How many are tried for a node.
const TRIES: u32 = 1_000;

/// Addresses at which so many nodes can listen: free at the moment, since all are held until all
/// are known.
pub fn loopback(nodes: u16) -> Result<Vec<SocketAddr>, Error> {
    let bind = || {
        // Other processes begin elsewhere.
        let nth = process::id().wrapping_mul(101).wrapping_add(CHOSEN.fetch_add(1, Relaxed));
        let port = PORTS.start + (nth % u32::from(PORTS.end - PORTS.start)) as u16;
        TcpListener::bind((Ipv4Addr::LOCALHOST, port))
    };
    let free = (0..nodes).map(|_| (1..TRIES).find_map(|_| bind().ok()).map_or_else(bind, Ok));
    let free = free.collect::<Result<Vec<_>, _>>().map_err(Error::RawSocket)?;
    free.iter().map(TcpListener::local_addr).collect::<Result<_, _>>().map_err(Error::RawSocket)
}

/// Returns how one of the nodes at these addresses joins the others.
pub fn tcp_config(node: u16, addresses: &[SocketAddr], key: [u8; 32]) -> TcpConfig {
    let config = TcpConfig::new(NodeId(node), addresses[usize::from(node)], key);
    let all = (0..).map(NodeId).zip(addresses);
    // A node is no peer of itself, as the configuration knows.
    all.fold(config, |config, (other, address)| config.peer(other, *address))
}
