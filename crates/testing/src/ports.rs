//! Addresses of nodes that are started again.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// Returns addresses of this machine at which nodes can listen, also once more after they have
/// ended. The system chooses higher ports for connections: one of those could be taken meanwhile,
/// even by whoever tries to reach the node.
///
/// # Example
///
/// ```
/// let addresses = drtm_testing::ports::free_addresses(3);
/// assert!(addresses.len() == 3 && addresses.iter().all(|address| address.port() < 32_768));
/// ```
///
/// # Panics
///
/// Panics where there are too few.
#[must_use]
pub fn free_addresses(count: usize) -> Vec<SocketAddr> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, fastrand::u16(10_000..32_000))).ok();
    // All are held until all are known.
    let free: Vec<TcpListener> = (0..10_000).filter_map(|_| bind()).take(count).collect();
    assert_eq!(free.len(), count, "few ports are free");
    free.iter().map(|listener| listener.local_addr().expect("it listens")).collect()
}
