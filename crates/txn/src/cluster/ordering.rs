//! How an order comes from any node to the leader, and how a program gives one: see
//! [`orders`](super::orders).

use std::{net::SocketAddr, time::Duration};

use drtm_rdma::{Fabric, NodeId};

use super::{
    Cluster, ClusterError, Refusal, Submitted, View, Worker,
    coordinator::Coordinator,
    orders::Order,
    queue::Work,
    requests::orders::{OrderIs, TakeOrder},
    shard::ShardId,
};
use crate::{Config, Error};

/// How soon it is looked again whether an order is carried out.
const LOOK_AFTER: Duration = Duration::from_millis(1);

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Checks whether an order makes sense in a view, or is carried out in it.
    ///
    /// # Errors
    ///
    /// [`Refusal::NotLost`], [`Refusal::StillHere`], [`Refusal::AddressTaken`],
    /// [`Refusal::NoSuchNode`].
    pub(super) fn check_order(&self, order: Order, view: &View) -> Result<(), Refusal> {
        match order {
            Order::GiveUp(shard) if view.is_lost(shard) => Ok(()),
            Order::GiveUp(_) => Err(Refusal::NotLost),
            order if order.is_done(view) => Ok(()),
            Order::Replace(node, address) => {
                let is_at = |other| view.address_of(other).or(self.node.fabric.address_of(other)) == Some(address);
                let mut owners = self.node.first_view.members().iter().map(|member| member.node);
                match () {
                    () if !owners.clone().any(|owner| owner == node) => Err(Refusal::NoSuchNode),
                    () if owners.any(|owner| owner != node && is_at(owner)) => Err(Refusal::AddressTaken),
                    () if node == self.id() || self.endpoint().presence(node).here().is_some() => {
                        Err(Refusal::StillHere)
                    }
                    () => Ok(()),
                }
            }
        }
    }

    /// Returns the view in which a node is replaced that an operator has ordered to be, if there is
    /// one. While its last life is a member, it is waited for until that is out.
    pub(super) fn replaced_by(&self, view: &View, orders: &[Order]) -> Result<Option<View>, ClusterError> {
        let order = orders.iter().find_map(|order| match order {
            Order::Replace(node, address) if !view.has(*node) => Some((*node, *address)),
            _ => None,
        });
        order.map(|(node, address)| view.with_replaced(node, address)).transpose()
    }

    /// Passes orders to the view's leader. Returns those that are this node's to carry out.
    pub(super) async fn orders(&self, view: &View) -> Vec<Order> {
        let orders = &self.node.orders;
        let mut own = Vec::new();
        for order in orders.all() {
            if order.is_done(view) || self.check_order(order, view).is_err() {
                orders.forget(order);
            } else if view.leader() == self.id() {
                own.push(order);
            } else {
                let (leader, until) = (view.leader(), self.patience());
                let (kind, subject, at) = order.to_parts();
                let passed = async {
                    self.greet(leader).await?;
                    Ok::<_, Error>(self.call::<TakeOrder, _>(leader, OrderIs::new(kind, subject, &at), |()| ()).await?)
                };
                // A leader that does not answer is asked again, or another one is.
                if self.in_time(leader, until, passed).await.is_ok() {
                    orders.forget(order);
                }
            }
        }
        own
    }

    /// Orders something, and waits until it is carried out.
    async fn order(&self, order: Order) -> Result<(), Error> {
        if self.node.membership.is_none() {
            return Err(order.refused(self.id(), Refusal::NoMembership).into());
        }
        let refused = |reason| order.refused(self.id(), reason);
        self.check_order(order, &self.node.view.view()).map_err(refused)?;
        let until = self.endpoint().now() + self.patience_for_view();
        loop {
            let view = self.node.view.view();
            if order.is_done(&view) {
                return Ok(());
            }
            if self.is_out() {
                return Err(ClusterError::Evicted { may_have_happened: true }.into());
            }
            if self.endpoint().now() >= until {
                return Err(ClusterError::NotReady { node: view.leader() }.into());
            }
            self.node.orders.take(order).map_err(refused)?;
            self.endpoint().sleep(LOOK_AFTER).await;
        }
    }
}

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Worker<'e, F, S> {
    /// Gives the rows of a lost shard up, and of all shards that were lost with it, since they were
    /// at the same nodes: they are served again, without rows. What the nodes that had them bring
    /// back later is taken out. Entries of indexes that were in these shards are lost, too; their
    /// rows in other shards stay.
    ///
    /// # Errors
    ///
    /// [`ClusterError::NotLost`] if the shard is served: it keeps its rows.
    /// [`ClusterError::NotReady`] if it takes longer than ten leases: it may be carried out later.
    ///
    /// # Example
    ///
    /// See [`Cluster::give_up`].
    pub async fn give_up(&self, shard: ShardId) -> Result<(), Error> {
        self.inner.order(Order::GiveUp(shard)).await
    }

    /// Replaces a node that is gone by one at another address. From then on all nodes reach it
    /// there, and refuse whatever claims its number and is somewhere else: also the process or the
    /// machine that it was, should that come back. Start the new node then, with the number and all
    /// addresses; it joins with nothing, and gets replicas of the shards. Where nodes have no
    /// addresses, the node is only started again.
    ///
    /// # Errors
    ///
    /// [`ClusterError::StillHere`] if the node runs: stop it first. [`ClusterError::AddressTaken`]
    /// if another node has the address. [`ClusterError::NoSuchNode`].
    /// [`ClusterError::NotReady`] if it takes longer than ten leases: it may be carried out later.
    ///
    /// # Example
    ///
    /// See [`Cluster::replace`].
    pub async fn replace(&self, node: NodeId, address: SocketAddr) -> Result<(), Error> {
        self.inner.order(Order::Replace(node, address)).await
    }
}

/// An order of a program.
struct Ordering(Order);

impl<F: Fabric, S: Config<Engine = F::Engine>> Work<F, S, ()> for Ordering {
    async fn run(self, worker: Worker<'_, F, S>) -> Result<(), Error> {
        worker.inner.order(self.0).await
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Cluster<F, S> {
    /// Gives the rows of a lost shard up, and of all shards that were lost with it: they are served
    /// again, without rows. See [`Worker::give_up`].
    ///
    /// # Errors
    ///
    /// As for [`Worker::give_up`].
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Error, cluster::{Cluster, ClusterError, Refusal, ShardId}};
    ///
    /// let nodes = Cluster::builder().nodes(2).start()?;
    /// // These nodes agree on no view: a node that is gone may come back as it was.
    /// let refused = nodes[0].give_up(ShardId(1)).wait();
    /// assert!(matches!(
    ///     refused,
    ///     Err(Error::Cluster(ClusterError::Refused { reason: Refusal::NoMembership, .. }))
    /// ));
    /// # Ok::<(), drtm::Error>(())
    /// ```
    pub fn give_up(&self, shard: ShardId) -> Submitted<()> {
        self.submit(Ordering(Order::GiveUp(shard)))
    }

    /// Replaces a node that is gone by one at another address: see [`Worker::replace`].
    ///
    /// # Errors
    ///
    /// As for [`Worker::replace`].
    ///
    /// # Example
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use drtm::{
    ///     Error,
    ///     cluster::{Cluster, ClusterError},
    ///     membership::Directory,
    ///     rdma::NodeId,
    /// };
    ///
    /// let path = std::env::temp_dir().join(format!("drtm-replaced-{}", std::process::id()));
    /// let membership = Arc::new(Directory::open(&path).expect("a directory"));
    /// let nodes = Cluster::builder().nodes(3).membership(membership).start()?;
    /// nodes[0].wait_for_nodes(std::time::Duration::from_secs(10))?;
    /// let refused = nodes[0].replace(NodeId(2), "10.0.0.9:7000".parse().expect("an address")).wait();
    /// assert!(matches!(refused, Err(Error::Cluster(ClusterError::StillHere { node: NodeId(2) }))));
    /// # std::fs::remove_dir_all(&path).expect("it is here");
    /// # Ok::<(), drtm::Error>(())
    /// ```
    pub fn replace(&self, node: NodeId, address: SocketAddr) -> Submitted<()> {
        self.submit(Ordering(Order::Replace(node, address)))
    }
}
