//! What all handles of a node share.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::AcqRel},
    },
    time::Duration,
};

use drtm_htm::Engine;
use drtm_membership::Membership;
#[cfg(feature = "raft")]
use drtm_membership::Raft;
use drtm_rdma::{Fabric, Incarnation, NodeId, Offset, RegionId};
use parking_lot::Mutex;

#[cfg(feature = "chopping")]
use super::chopped::Left;
#[cfg(feature = "hades")]
use super::smart_nic::SmartNic;
use super::{
    ClusterError, Protocol, Timing,
    adapt::Board,
    closings::Closings,
    events::{Announcer, ClusterEvent},
    gathered::Gathered,
    log::{Cooperative, LogConfig, OnlyLogged},
    orders::Orders,
    participant::{Home, Stored},
    remembered::Caches,
    tenure::Tenure,
    view::{BETWEEN, Current, FIRST, View},
    wire::parts::Welcome,
};
use crate::{Config, Db, Error, mutation::Mutation};

/// The version of what nodes say to each other.
pub(super) const VERSION: u32 = 12;

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
    /// Its logs in memory that outlives the process, if it has any.
    pub(super) cooperative: Option<Cooperative<S::Engine>>,
    pub(super) only_logged: Arc<OnlyLogged>,
    /// Whether owners' processors swap state words by their NICs.
    pub(super) by_loopback: bool,
    /// Where rows of other nodes were, if that is remembered.
    pub(super) caches: Option<Caches>,
    pub(super) described: String,
    pub(super) home: Arc<Home<S>>,
    pub(super) db: Db<S>,
    /// Where events go, of this life of the node and the next ones.
    pub(super) announcer: Arc<Announcer>,
    /// Whether it was evicted in an earlier life, and has not been a member since.
    pub(super) returns: AtomicBool,
    /// Who agrees on the view. `None`: it is changed by hand.
    pub(super) membership: Option<Arc<dyn Membership>>,
    /// Its voter, if that is what agrees.
    #[cfg(feature = "raft")]
    pub(super) voter: Option<Arc<Raft>>,
    /// Whether a worker keeps the view.
    pub(super) is_kept: AtomicBool,
    /// Whether a worker learns what the node is to have.
    pub(super) learns: AtomicBool,
    /// Nodes that have not answered when it last changed the view.
    pub(super) unanswered: Mutex<Vec<NodeId>>,
    /// Until when it may serve. `None`: in the view that it is in.
    pub(super) tenure: Option<Tenure>,
    /// Which nodes it has met, and which of them close.
    pub(super) closings: Closings,
    /// What an operator has ordered.
    pub(super) orders: Orders,
    /// What visitors have asked for.
    pub(super) gathered: Mutex<Gathered>,
    /// What its chopped transactions have left.
    #[cfg(feature = "chopping")]
    pub(super) left: Left,
    /// What finds conflicts by cache lines, if the protocol does.
    #[cfg(feature = "hades")]
    pub(super) nic: Option<Arc<SmartNic>>,
}

impl<F: Fabric, S: Config> Shared<F, S> {
    /// Returns what peers are told.
    pub(super) fn welcome(&self) -> Welcome {
        let view = match S::has(Mutation::ViewWithheld) {
            true => self.first_view.clone(),
            false => (*self.view.view()).clone(),
        };
        // Those that it serves in this view.
        let groups = usize::from(view.groups());
        let is_served = |store: usize| match (store % (groups + 1)).checked_sub(1) {
            Some(group) => view.serves(self.node, group as u16),
            None => false,
        };
        let stores = self.home.stores.iter().enumerate().filter(|_| self.protocol.is_one_sided());
        let place = |(number, stored): (usize, &OnceLock<Stored<S::Engine>>)| {
            let stored = stored.get().filter(|_| is_served(number))?;
            stored.storage.place_for_peers().map(Offset::bytes)
        };
        let tables = stores.map(place).collect();
        Welcome {
            incarnation: self.incarnation,
            view,
            region: self.region.0,
            line: self.home.db.snapshots.line().bytes(),
            durability: self.home.durability(),
            tables,
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
        let (now, number) = (self.view.view(), next.number());
        if next.has_other_life(self.node, self.incarnation) {
            // Another life of this node has a part in it, which has ended: another view comes.
            return Ok(false);
        }
        let is_newer = self.view.install(next, |next, open| {
            let db = &self.home.db;
            let serves = |view: &View, group| view.serves(self.node, group);
            let taken = (0..next.groups()).filter(|group| serves(next, *group) && !serves(&now, *group));
            if let Some(backup) = &self.home.backup {
                // What is written from now on is newer than what this node has of these groups. A
                // row does that by itself once it is locked by its owner, and not by verbs.
                let last = taken.map(|group| backup.last_epoch(group)).max().unwrap_or(0);
                db.snapshots.raise(&db.store, last + 1).map_err(ClusterError::Store)?;
                backup.serve(next, self.node);
            }
            let word = db.snapshots.view(&db.store).map_err(ClusterError::Store)?;
            db.engine().store(word, self.view.shown(open).into());
            if open != BETWEEN {
                self.home.changing.open();
            }
            Ok(())
        })?;
        if is_newer {
            let view = self.view.view();
            for (node, address) in view.replaced() {
                // One that this node does not know has nothing to do with it.
                let _ = self.fabric.relocate(self.node, *node, *address);
            }
            if let Some(tenure) = &self.tenure {
                tenure.enter(&view);
            }
            // One that has not taken part in any view yet joins.
            let has_joined = now.number() > FIRST || self.membership.is_none();
            if has_joined && now.has(self.node) && !view.has(self.node) {
                self.note_out(number);
            }
            self.announcer.announce(ClusterEvent::View { number });
            // A client is no member of any view, and begins in the first that it is told of.
            let is_in = view.has_life(self.node, self.incarnation) || !self.first_view.has(self.node);
            if is_in && self.returns.swap(false, AcqRel) {
                self.announcer.announce(ClusterEvent::Returned { incarnation: self.incarnation });
            }
        }
        Ok(is_newer)
    }

    /// Notes that a view is without this node, which was a member.
    pub(super) fn note_out(&self, number: u32) {
        if self.tenure.as_ref().is_some_and(Tenure::leave) {
            self.announcer.announce(ClusterEvent::Evicted { number });
        }
    }

    /// Returns how long a lease lasts: zero where there are none.
    pub(super) fn lease_in_nanos(&self) -> u64 {
        self.tenure.as_ref().map_or(0, |tenure| u64::try_from(tenure.terms.lease.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Leaves the present view, before another one of this number. Returns the number of the one
    /// that is installed.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    pub(super) fn suspend_view(&self, next: u32) -> Result<u32, ClusterError> {
        let db = &self.home.db;
        self.view.suspend(next, || {
            let word = db.snapshots.view(&db.store).map_err(ClusterError::Store)?;
            db.engine().store(word, self.view.shown(BETWEEN).into());
            Ok(())
        })
    }

    /// Returns whether the view is without this node, which was a member.
    pub(super) fn is_out(&self) -> bool {
        self.tenure.as_ref().is_some_and(Tenure::is_out)
    }

    /// Ends this life of a node that was evicted, before its next one: leaves the other nodes, ends
    /// its voter, closes its database for all handles, and returns its memory to the system. Its
    /// workers have ended. It can be called again if it fails.
    ///
    /// # Errors
    ///
    /// When the program holds a transaction or a snapshot of the node's own database, or the disk
    /// is full.
    pub(super) fn end_life(&self, patience: Duration) -> Result<(), Error> {
        let _ = self.fabric.leave(self.node);
        #[cfg(feature = "raft")]
        if let Some(voter) = &self.voter {
            voter.stop();
        }
        // Otherwise, what the log lacks is what others have, or are asked for.
        if let Err(error @ (Error::StillRunning { .. } | Error::InTransaction | Error::NotYetDurable { .. })) =
            self.db.close_within(Some(patience))
        {
            return Err(error);
        }
        // If the system keeps it, it does until the last handle is dropped.
        let _ = self.home.db.store.region().discard_all();
        Ok(())
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
