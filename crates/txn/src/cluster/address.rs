//! A node that others reach over TCP: its address, theirs, and the cluster's key.

use std::{
    fmt, fs,
    net::{SocketAddr, ToSocketAddrs},
    path::PathBuf,
};

use drtm_htm::Native;
use drtm_rdma::{Incarnation, NodeId, TcpConfig, TcpFabric};

use super::{
    Cluster, ClusterError,
    place::{Here, Place, check_number, only, sealed::Sealed},
};
use crate::Error;

/// A node at one of several addresses: see [`ClusterBuilder::addresses`].
///
/// [`ClusterBuilder::addresses`]: super::ClusterBuilder::addresses
///
/// # Example
///
/// See [`ClusterBuilder::addresses`].
#[derive(Clone, Debug)]
pub struct OnTcp {
    pub(super) me: u16,
    pub(super) addresses: Vec<String>,
    pub(super) key: Secret,
}

/// Where the cluster's key is.
#[derive(Clone)]
pub(super) enum Secret {
    Missing,
    File(PathBuf),
    Bytes([u8; 32]),
}

impl Secret {
    pub(super) fn read(&self) -> Result<[u8; 32], ClusterError> {
        let path = match self {
            Self::Missing => return Err(ClusterError::NoKey),
            Self::Bytes(key) => return Ok(*key),
            Self::File(path) => path.clone(),
        };
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(source) => return Err(ClusterError::KeyFile { path, source }),
        };
        bytes.try_into().map_err(|bytes: Vec<u8>| ClusterError::KeyLength { path, bytes: bytes.len() })
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "Missing",
            Self::File(_) => "File",
            Self::Bytes(_) => "Bytes",
        })
    }
}

/// Returns the address that a string names.
pub(super) fn resolve(address: &str) -> Result<SocketAddr, ClusterError> {
    let of = |source| ClusterError::Address { address: address.to_owned(), source };
    let mut found = address.to_socket_addrs().map_err(of)?;
    found.next().ok_or_else(|| of(std::io::ErrorKind::NotFound.into()))
}

impl Sealed for OnTcp {}

impl Place for OnTcp {
    type Fabric = TcpFabric<Native>;
    type Started = Cluster<Self::Fabric>;

    fn takes_back(&self) -> bool {
        true
    }

    fn join(&self, engine: Native, later_than: Option<Incarnation>) -> Result<Here<Self::Fabric>, Error> {
        let Self { me, addresses, key } = self;
        let me = *me;
        check_number(me, addresses.len())?;
        let resolved = addresses.iter().map(|address| resolve(address)).collect::<Result<Vec<_>, _>>()?;
        for (place, address) in resolved.iter().enumerate() {
            if resolved[..place].contains(address) {
                return Err(ClusterError::AddressTwice { address: *address }.into());
            }
        }
        let mut config = TcpConfig::new(NodeId(me), resolved[usize::from(me)], key.read()?);
        for (node, address) in (0..).zip(&resolved).filter(|(node, _)| *node != me) {
            config = config.peer(NodeId(node), *address);
        }
        if let Some(last) = later_than {
            config = config.later_than(last);
        }
        let fabric = TcpFabric::join(engine, config).map_err(ClusterError::Tcp)?;
        Ok(Here { fabric, nodes: vec![NodeId(me)], of: resolved.len() as u16 })
    }

    fn started(nodes: Vec<Cluster<Self::Fabric>>) -> Self::Started {
        only(nodes)
    }
}
