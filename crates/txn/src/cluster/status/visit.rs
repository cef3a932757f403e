//! Asking a running cluster from outside of it, over TCP: as a visitor, which has the cluster's key
//! and is no node.

use std::{
    net::SocketAddr,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use drtm_rdma::{
    NodeId, TcpVisitor, VisitError,
    rpc::{Decode as _, Reader, RpcError},
};

use super::{ClusterStatus, MemberStatus, ShardState};
use crate::{
    Error,
    cluster::{
        ClusterError, Refusal,
        address::{Secret, resolve},
        orders::Order,
        requests::{
            Call,
            orders::{OrderIs, TakeOrder},
            status::{AskStatus, Status},
        },
        shard::ShardId,
        shared::VERSION,
    },
};

/// How long a node may take to answer, beside the time that rows are counted for.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long an order may take until the nodes are in the next view.
const CARRIED_OUT_WITHIN: Duration = Duration::from_secs(30);

/// How soon it is asked again whether a status is ready, or an order carried out.
const AGAIN_AFTER: Duration = Duration::from_millis(10);

/// An operator of a cluster on TCP: asks one of its nodes from outside, with the cluster's key.
/// It joins nothing, and takes no node's number. Its calls block their thread.
///
/// # Example
///
/// ```
/// use std::time::Duration;
///
/// use drtm::{
///     Error,
///     cluster::{Cluster, ClusterError, Operator, Refusal, ShardId},
/// };
///
/// let key_file = std::env::temp_dir().join(format!("drtm-operator-{}.key", std::process::id()));
/// std::fs::write(&key_file, [7; 32]).expect("a disk");
/// let at = "127.0.0.1:27330";
/// let node = Cluster::builder().addresses(0, [at]).key_file(&key_file).start()?;
///
/// // Mostly this is another process.
/// let operator = Operator::new(at, &key_file)?;
/// assert_eq!(operator.status(Duration::from_secs(1))?.view, 1);
/// // A node that agrees with no other on the view takes no orders.
/// let refused = operator.give_up(ShardId(0));
/// assert!(matches!(
///     refused,
///     Err(Error::Cluster(ClusterError::VisitRefused { reason: Refusal::NoMembership, .. }))
/// ));
/// # std::fs::remove_file(&key_file).expect("it is here");
/// # Ok::<(), drtm::Error>(())
/// ```
pub struct Operator {
    address: SocketAddr,
    key: [u8; 32],
}

impl Operator {
    /// Names the node that is asked, by its address, such as `10.0.0.1:7000`, and the file of the
    /// cluster's key. Nothing is asked yet.
    ///
    /// # Errors
    ///
    /// [`ClusterError::KeyFile`], [`ClusterError::KeyLength`], [`ClusterError::Address`].
    pub fn new(address: &str, key_file: impl AsRef<Path>) -> Result<Self, Error> {
        let key = Secret::File(key_file.as_ref().to_owned()).read()?;
        Ok(Self { address: resolve(address)?, key })
    }

    fn visitor(&self) -> Result<TcpVisitor, ClusterError> {
        TcpVisitor::connect(self.address, self.key, PATIENCE).map_err(ClusterError::Visit)
    }

    /// Asks how the cluster is. Primaries count their rows for so long at the most, and a minute at
    /// the most.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Visit`] says what is wrong with the address or the key;
    /// [`ClusterError::VisitedOut`] that another node is to be asked.
    pub fn status(&self, counted_within: Duration) -> Result<ClusterStatus, Error> {
        let (address, mut visitor) = (self.address, self.visitor()?);
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

    /// Gives the rows of a lost shard up, and of all shards that were lost with it: see
    /// [`Cluster::give_up`](crate::cluster::Cluster::give_up). Waits until they are served again,
    /// and returns how the cluster is then.
    ///
    /// # Errors
    ///
    /// [`ClusterError::NotLost`] if the shard is served. [`ClusterError::VisitRefused`] if the
    /// nodes have no membership. [`ClusterError::NotCarriedOut`] if it takes too long. Otherwise as
    /// for [`status`](Self::status).
    pub fn give_up(&self, shard: ShardId) -> Result<ClusterStatus, Error> {
        self.order(Order::GiveUp(shard), |status| {
            let is_served = |state| !matches!(state, ShardState::Lost | ShardState::Recovering);
            status.shards.get(shard.index()).is_some_and(|shard| is_served(shard.state))
        })
    }

    /// Replaces a node that is gone by one at another address, such as `10.0.0.4:7000`: see
    /// [`Worker::replace`](crate::cluster::Worker::replace). Waits until that is agreed on, and
    /// returns how the cluster is then. The new node is started after that.
    ///
    /// # Errors
    ///
    /// [`ClusterError::StillHere`], [`ClusterError::AddressTaken`], [`ClusterError::NoSuchNode`],
    /// [`ClusterError::Address`]; otherwise as for [`give_up`](Self::give_up).
    pub fn replace(&self, node: u16, address: &str) -> Result<ClusterStatus, Error> {
        let (node, address) = (NodeId(node), resolve(address)?);
        let is_its =
            |member: &MemberStatus| member.node == node && member.address.as_deref() == Some(&*address.to_string());
        self.order(Order::Replace(node, address), |status| status.members.iter().any(is_its))
    }

    /// Gives an order, and asks until it is carried out.
    fn order(&self, order: Order, is_done: impl Fn(&ClusterStatus) -> bool) -> Result<ClusterStatus, Error> {
        let address = self.address;
        let until = Instant::now() + CARRIED_OUT_WITHIN;
        let (kind, subject, at) = order.to_parts();
        let taken = self.visitor()?.call::<Call<TakeOrder>, _>(&OrderIs::new(kind, subject, &at), PATIENCE, |()| ());
        taken.map_err(|error| match refusal(&error) {
            Some(reason @ (Refusal::NoMembership | Refusal::Full)) => ClusterError::VisitRefused { address, reason },
            Some(reason) => order.not_taken(reason).unwrap_or_else(|| failed(address, error)),
            None => failed(address, error),
        })?;
        loop {
            let status = self.status(Duration::ZERO)?;
            if is_done(&status) {
                return Ok(status);
            }
            if Instant::now() >= until {
                return Err(ClusterError::NotCarriedOut { address }.into());
            }
            thread::sleep(AGAIN_AFTER);
        }
    }
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator").field("address", &self.address).finish_non_exhaustive()
    }
}

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
        Operator::new(address, key_file)?.status(counted_within)
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
