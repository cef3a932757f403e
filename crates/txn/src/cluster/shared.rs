//! What all handles of a node share.

use std::sync::Arc;

use drtm_kv::BucketCache;
use drtm_rdma::{Fabric, NodeId, Offset, RegionId};

use super::{
    Protocol, Timing,
    adapt::Board,
    events::Announcer,
    log::{LogConfig, OnlyLogged},
    participant::Home,
    wire::parts::Welcome,
};
use crate::{Config, Db};

/// The version of what nodes say to each other.
pub(super) const VERSION: u32 = 3;

/// What all handles of a node share.
pub(super) struct Shared<F: Fabric, S: Config> {
    pub(super) fabric: F,
    pub(super) node: NodeId,
    pub(super) owners: Vec<NodeId>,
    /// The node's memory, as the fabric knows it.
    pub(super) region: RegionId,
    pub(super) protocol: Protocol,
    /// What is found of the forms of phases, if the protocol lets them be chosen.
    pub(super) board: Option<Board>,
    pub(super) timing: Timing,
    pub(super) log: LogConfig,
    pub(super) only_logged: Arc<OnlyLogged>,
    /// Whether the one owner frees what dead clients have locked.
    pub(super) frees_the_dead: bool,
    /// Whether owners' processors swap state words by their NICs.
    pub(super) by_loopback: bool,
    /// Where rows of other nodes were, if that is remembered.
    pub(super) cache: Option<Arc<BucketCache>>,
    pub(super) described: String,
    pub(super) home: Arc<Home<S>>,
    pub(super) db: Db<S>,
    pub(super) announcer: Announcer,
}

impl<F: Fabric, S: Config> Shared<F, S> {
    /// What peers are told.
    pub(super) fn welcome(&self) -> Welcome {
        let tables = self.home.tables.iter().map(|table| match self.protocol.is_one_sided() {
            true => table.storage.place_for_peers().map(Offset::bytes),
            false => None,
        });
        Welcome {
            region: self.region.0,
            line: self.home.db.snapshots.line().bytes(),
            durability: self.home.durability(),
            tables: tables.collect(),
        }
    }

    pub(super) fn engine_name(&self) -> &'static str {
        std::any::type_name::<S::Engine>()
    }
}
