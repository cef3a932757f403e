//! How a worker measures the cluster's time, and tells its node.

use std::{convert::Infallible, time::Duration};

use drtm_htm::Engine;
use drtm_kv::Leases;
use drtm_rdma::{Fabric, NodeId, Time};

use super::{
    ClusterError,
    clock::{ClusterTime, Reading},
    coordinator::Coordinator,
    requests::node::Clock,
};
use crate::{Config, Error, mutation::Mutation};

/// How often a node measures at once, if it does not know the time well enough.
const TRIES: u32 = 16;

/// The least time between two publications by one worker, in nanoseconds.
const PUBLISHED_FOR: u64 = 20_000;

impl<F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'_, F, S> {
    fn reference(&self) -> NodeId {
        // A view has members.
        self.view().members().first().map_or(self.id(), |member| member.node)
    }

    /// Returns the time, as exact as it was measured. `None` before the first measurement.
    ///
    /// # Errors
    ///
    /// [`ClusterError::ClockWrong`].
    pub(super) fn known_time(&self) -> Result<Option<ClusterTime>, Error> {
        let (now, drift) = (self.endpoint().now(), self.node.timing.drift);
        if self.reference() == self.id() || S::has(Mutation::ClockNotMeasured) {
            return Ok(Some(ClusterTime::exactly(now)));
        }
        if !self.clock.is_of(self.reference()) {
            return Ok(None);
        }
        if self.clock.is_wrong.get() {
            return Err(ClusterError::ClockWrong { reference: self.reference(), drift }.into());
        }
        Ok(self.clock.reading.get().map(|reading| reading.at(now, drift)))
    }

    /// Returns the time, as exact as it was measured. `None` if it is not known.
    fn time_now(&self) -> Option<ClusterTime> {
        self.known_time().ok().flatten()
    }

    /// Returns what is known of leases without waiting.
    pub(super) fn leases(&self) -> Leases {
        let time = if self.protocol().leases { self.time_now() } else { None };
        time.map_or(Leases::None, |time| Leases::At(time.least()))
    }

    /// Returns the time, measured until it is as exact as it must be.
    ///
    /// # Errors
    ///
    /// See [`Worker::time`](super::Worker::time).
    pub(super) async fn time(&self) -> Result<ClusterTime, Error> {
        let most = self.node.timing.most;
        for _ in 0..TRIES {
            match self.known_time()? {
                Some(time) if time.uncertainty() <= most => return Ok(time),
                _ => self.measure().await?,
            }
        }
        let uncertainty = self.known_time()?.map_or(Duration::MAX, |time| time.uncertainty());
        if uncertainty <= most {
            return self.known_time()?.ok_or_else(|| ClusterError::ClockUncertain { uncertainty, most }.into());
        }
        Err(ClusterError::ClockUncertain { uncertainty, most }.into())
    }

    /// Asks the reference for its clock.
    async fn measure(&self) -> Result<(), Error> {
        let (node, drift) = (self.reference(), self.node.timing.drift);
        if node == self.id() {
            return Ok(());
        }
        let met = self.greet(node).await?;
        self.clock.set_reference(node, met);
        let sent = self.endpoint().now();
        let told = self.call::<Clock, _>(node, (), Time::from_nanos).await?;
        let received = self.endpoint().now();
        if self.clock.add_reading(Reading::of_trip(sent, told, received, drift), drift) {
            Ok(())
        } else {
            Err(ClusterError::ClockWrong { reference: node, drift }.into())
        }
    }

    /// Publishes the time to threads that have no clock, unless it was published just now.
    pub(super) fn publish_time(&self) {
        if !self.protocol().leases {
            return;
        }
        let now = self.endpoint().now();
        if now.nanos() < self.clock.published_at.get().nanos() + PUBLISHED_FOR {
            return;
        }
        let Some(time) = self.time_now() else { return };
        self.clock.published_at.set(now);
        let region = self.node.home.db.store.region();
        // Of several workers, each publishes what is true: the last one counts.
        region.engine().store(region.time(), time.least());
    }

    /// Measures and publishes the time, for ever.
    pub(super) async fn keep_time(&self) -> Infallible {
        let (timing, mut measured) = (self.node.timing, None::<Time>);
        loop {
            let now = self.endpoint().now();
            if measured.is_none_or(|at| now.since(at) >= timing.measure) {
                measured = Some(now);
                // What is not measured becomes uncertain, and that is told where it is needed.
                let _ = self.measure().await;
            }
            self.publish_time();
            self.endpoint().sleep(timing.publish).await;
        }
    }
}
