//! Nodes of this machine that are connected by TCP.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use drtm_rdma::{NodeId, TcpConfig};

use crate::Error;

/// Addresses at which so many nodes can listen: free at the moment, since all are held until all
/// are known.
pub fn loopback(nodes: u16) -> Result<Vec<SocketAddr>, Error> {
    let free = (0..nodes).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
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
