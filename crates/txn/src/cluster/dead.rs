//! Frees what nodes had locked when they died, once the view is without them (see
//! [`change`](super::change)).
//!
//! A remote transaction that meets such a row frees it
//! ([`Participant`](super::participant::Participant)). The owner's own transactions and snapshots
//! know nothing of other nodes. For them, a worker goes through all rows when the view is without a
//! node that has died.

use std::{convert::Infallible, time::Duration};

use drtm_kv::Holder;
use drtm_rdma::Fabric;

use super::coordinator::Coordinator;
use crate::{Config, Error};

/// How often a worker looks whether a view is without nodes that have died. What they have locked
/// is in the way of verbs until then.
const LOOK_AFTER: Duration = Duration::from_millis(1);

/// The pause before rows are gone through again, where that has failed.
const AGAIN_AFTER: Duration = Duration::from_millis(10);

impl<F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'_, F, S> {
    /// Frees what nodes had locked when they died, for ever.
    pub(super) async fn free_the_dead(&self) -> Infallible {
        loop {
            while let Some((node, incarnation)) = self.node.home.changing.next_to_sweep() {
                // The store is busy, for example. What is free already stays so.
                while self.free_rows_of(node, incarnation).await.is_err() {
                    self.endpoint().sleep(AGAIN_AFTER).await;
                }
            }
            self.endpoint().sleep(LOOK_AFTER).await;
        }
    }

    /// Goes through all rows, and frees what a node's incarnations up to this one have locked.
    pub(super) async fn free_rows_of(&self, node: u16, incarnation: u32) -> Result<(), Error> {
        let home = &self.node.home;
        for stored in home.all_stores() {
            let mut tour = stored.storage.tour()?;
            let is_its = |holder: &Holder| u16::from(holder.node()) == node && holder.incarnation() <= incarnation;
            loop {
                let mut locked = Vec::new();
                let has_more = stored.storage.visit_some(&mut tour, |key| {
                    let lock = home.lock_of(stored, key).ok().flatten();
                    locked.extend(lock.filter(|(_, holder)| is_its(holder)));
                })?;
                locked.into_iter().for_each(|(at, holder)| self.participant().unlock(at, holder));
                if !has_more {
                    break;
                }
                self.endpoint().yield_now().await;
            }
        }
        Ok(())
    }
}
