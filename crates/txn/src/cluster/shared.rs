//! What all handles of a node share.

use std::sync::Arc;

use drtm_htm::Engine;
use drtm_rdma::{Fabric, Incarnation, NodeId, Offset, RegionId};

use super::{
    ClusterError, Protocol, Timing,
    adapt::Board,
    closings::Closings,
    events::{Announcer, ClusterEvent},
    log::{LogConfig, OnlyLogged},
    participant::Home,
    remembered::Caches,
    view::{Current, View},
    wire::parts::Welcome,
};
use crate::{Config, Db, mutation::Mutation};

/// The version of what nodes say to each other.
pub(super) const VERSION: u32 = 7;

/// What all handles of a node share.
pub(super) struct Shared<F: Fabric, S: Config> {
    pub(super) fabric: F,
    pub(super) node: NodeId,
    /// Which of its lives this is.
    pub(super) incarnation: Incarnation,
    /// The view that the node is in.
    pub(super) view: Current,
    /// How many shards the cluster has, in any view.
    pub(super) shards: usize,
    /// The view that it was started with.
    pub(super) first_view: View,
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
    pub(super) caches: Option<Caches>,
    pub(super) described: String,
    pub(super) home: Arc<Home<S>>,
    pub(super) db: Db<S>,
    pub(super) announcer: Announcer,
    /// Which nodes it has met, and which of them close.
    pub(super) closings: Closings,
}

impl<F: Fabric, S: Config> Shared<F, S> {
    /// Returns what peers are told.
    pub(super) fn welcome(&self) -> Welcome {
        let tables = self.home.tables.iter().map(|table| match self.protocol.is_one_sided() {
            true => table.storage.place_for_peers().map(Offset::bytes),
            false => None,
        });
        let view = match S::has(Mutation::ViewWithheld) {
            true => self.first_view.clone(),
            false => (*self.view.view()).clone(),
        };
        Welcome {
            incarnation: self.incarnation,
            view,
            region: self.region.0,
            line: self.home.db.snapshots.line().bytes(),
            durability: self.home.durability(),
            tables: tables.collect(),
        }
    }

    /// Installs a view if it is newer than the present one. Returns whether it is.
    ///
    /// Peers that read the number of the view with their verbs find it before requests do.
    ///
    /// # Errors
    ///
    /// [`ClusterError::BadView`] if it has another number of shards.
    pub(super) fn install(&self, next: View) -> Result<bool, ClusterError> {
        let number = next.number();
        let is_newer = self.view.install(next, |number| {
            let (db, engine) = (&self.home.db, self.home.db.engine());
            let word = db.snapshots.view(&db.store).map_err(ClusterError::Store)?;
            engine.store(word, number.into());
            Ok(())
        })?;
        if is_newer {
            self.announcer.announce(ClusterEvent::View { number });
        }
        Ok(is_newer)
    }

    /// Leaves the other nodes.
    pub(super) fn leave(&self) {
        // It may have left before, or be of a fabric that has ended.
        let _ = self.fabric.leave(self.node);
        self.announcer.end();
    }

    pub(super) fn engine_name(&self) -> &'static str {
        std::any::type_name::<S::Engine>()
    }
}
