//! Asking a running cluster from outside of it, over TCP: as a visitor, which has the cluster's key
//! and is no node.

use std::{
    net::SocketAddr,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use drtm_rdma::{
    TcpVisitor, VisitError,
    rpc::{Decode as _, Reader, RpcError},
};

use super::ClusterStatus;
use crate::{
    Error,
    cluster::{
        ClusterError, Refusal,
        address::{Secret, resolve},
        requests::{
            Call,
            status::{AskStatus, Status},
        },
        shared::VERSION,
    },
};

/// How long a node may take to answer, beside the time that rows are counted for.
const PATIENCE: Duration = Duration::from_secs(5);

/// How soon it is asked again whether a status is ready.
const AGAIN_AFTER: Duration = Duration::from_millis(10);

impl ClusterStatus {
    /// Asks the node that listens at an address, such as `10.0.0.1:7000`, with its cluster's key.
    /// The caller joins nothing, and takes no node's number. Primaries count their rows for so long
    /// at the most, and a minute at the most. Blocks this thread.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Visit`] says what is wrong with the address or the key;
    /// [`ClusterError::VisitedOut`] that another node is to be asked. [`ClusterError::KeyFile`],
    /// [`ClusterError::KeyLength`], [`ClusterError::Address`].
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use drtm::cluster::{Cluster, ClusterStatus, ShardState};
    ///
    /// let key_file = std::env::temp_dir().join(format!("drtm-visited-{}.key", std::process::id()));
    /// std::fs::write(&key_file, [7; 32]).expect("a disk");
    /// let at = "127.0.0.1:27320";
    /// let node = Cluster::builder().addresses(0, [at]).key_file(&key_file).start()?;
    ///
    /// // Mostly this is another process.
    /// let status = ClusterStatus::ask_at(at, &key_file, Duration::from_secs(1))?;
    /// assert_eq!(status.members[0].address.as_deref(), Some(at));
    /// assert!(status.shards.iter().all(|shard| shard.state == ShardState::Ok));
    /// # std::fs::remove_file(&key_file).expect("it is here");
    /// # Ok::<(), drtm::Error>(())
    /// ```
    pub fn ask_at(address: &str, key_file: impl AsRef<Path>, counted_within: Duration) -> Result<Self, Error> {
        let key = Secret::File(key_file.as_ref().to_owned()).read()?;
        let address = resolve(address)?;
        let mut visitor = TcpVisitor::connect(address, key, PATIENCE).map_err(ClusterError::Visit)?;
        let until = Instant::now() + 2 * counted_within + PATIENCE;
        let within = u32::try_from(counted_within.as_millis()).unwrap_or(u32::MAX);
        let (mut ticket, mut bytes) = (0, Vec::new());
        loop {
            let body = AskStatus { version: VERSION, ticket, from: bytes.len() as u32, within };
            let asked = visitor.call::<Call<Status>, _>(&body, PATIENCE, |part| {
                bytes.extend_from_slice(part.bytes);
                (part.ticket, part.is_ready, part.length as usize)
            });
            match asked {
                Ok((_, true, length)) if bytes.len() >= length => return decoded(address, &bytes),
                Ok((of, true, _)) => ticket = of,
                Ok((of, false, _)) if Instant::now() < until => {
                    ticket = of;
                    thread::sleep(AGAIN_AFTER);
                }
                Ok(_) => return Err(ClusterError::Visit(VisitError::Silent { address, within: counted_within }).into()),
                // Others have asked since: a new one is gathered.
                Err(error) if refusal(&error) == Some(Refusal::Moved) && Instant::now() < until => {
                    ticket = 0;
                    bytes.clear();
                }
                Err(error) => return Err(failed(address, error).into()),
            }
        }
    }
}

/// Returns why a node refuses, if it does.
fn refusal(error: &VisitError) -> Option<Refusal> {
    match error {
        VisitError::Call { source, .. } => Refusal::from_number(source.refused()?),
        _ => None,
    }
}

fn failed(address: SocketAddr, error: VisitError) -> ClusterError {
    match (refusal(&error), error) {
        (Some(Refusal::Revoked), _) => ClusterError::VisitedOut { address },
        (Some(Refusal::Other), _)
        | (_, VisitError::Call { source: RpcError::UnknownProcedure { .. } | RpcError::Malformed, .. }) => {
            ClusterError::VisitedOther { address }
        }
        (_, error) => ClusterError::Visit(error),
    }
}

fn decoded(address: SocketAddr, bytes: &[u8]) -> Result<ClusterStatus, Error> {
    let mut reader = Reader::new(bytes);
    let status = ClusterStatus::decode(&mut reader).and_then(|status| reader.finish().map(|()| status));
    status.map_err(|error| ClusterError::Visit(VisitError::Call { address, source: RpcError::Reply(error) }).into())
}
