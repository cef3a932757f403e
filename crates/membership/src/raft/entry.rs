//! How a voter finds the cluster that it belongs to, or makes one.
//!
//! A cluster is made once, by one voter. One that is told to make it asks all other nodes first,
//! and makes none while one of them belongs to a cluster, or does not answer. So a node that is
//! told so each time that it starts, and has forgotten that the cluster is there, joins it like any
//! other. Of several that are told so, the one with the lowest number makes it.

use openraft::error::Fatal;
use tokio::time;

use super::{
    message::{Ask, Reply},
    server::Server,
    types::Voter,
};
use crate::error::Error;

/// What the other nodes say.
enum Around {
    /// The node at this address belongs to a cluster.
    Cluster(String),
    /// None of them does, and none of a lower number is to make one.
    Nothing,
    /// Not all have answered.
    Unclear,
}

impl Server {
    /// Joins the cluster that another node belongs to, or makes one: tries until it is in.
    pub(super) async fn find_cluster(&self, others: &[(u32, String)], founds: bool) -> Result<(), Error> {
        if self.founds.set(founds).is_err() {
            return Err(Error::Refused { why: "the voter has been told before to enter a cluster".into() });
        }
        loop {
            // It has a majority, with or without others.
            if self.leads() {
                return Ok(());
            }
            let entered = match self.look_around(others).await {
                Around::Cluster(address) => self.join(address).await,
                Around::Nothing if founds => self.bootstrap().await,
                Around::Nothing | Around::Unclear => Err(Error::unavailable("no cluster is found")),
            };
            match entered {
                Ok(()) => return Ok(()),
                // It is tried again: the others may have no leader yet, or may have started late.
                Err(_) => time::sleep(self.options.heartbeat).await,
            }
        }
    }

    async fn look_around(&self, others: &[(u32, String)]) -> Around {
        let (mut answered, mut is_lowest) = (0, true);
        for (node, address) in others {
            let contact = Voter { address: address.clone(), ..Voter::default() };
            match self.calls.ask(&contact, Ask::Stands, self.options.election.start).await {
                Ok(Some(Reply::Stands { group: 0, founds })) => {
                    answered += 1;
                    is_lowest &= !founds || *node > self.calls.own().node;
                }
                Ok(Some(Reply::Stands { .. })) => return Around::Cluster(address.clone()),
                // It is not here, or has not been told yet what to do.
                Ok(_) | Err(_) => {}
            }
        }
        if answered == others.len() && is_lowest { Around::Nothing } else { Around::Unclear }
    }

    /// Says whether this voter belongs to a cluster.
    pub(super) async fn stands(&self) -> Result<Reply, ()> {
        let is_in = self.raft.is_initialized().await.map_err(|_: Fatal<u64>| ())?;
        let group = if is_in { self.calls.group() } else { 0 };
        match self.founds.get() {
            // It may be told to make one.
            None if group == 0 => Ok(Reply::Failed("it has not been told yet what to do".into())),
            founds => Ok(Reply::Stands { group, founds: founds.copied().unwrap_or(false) }),
        }
    }
}
