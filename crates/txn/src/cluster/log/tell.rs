//! Telling backups what is settled, and hearing what they have applied.

use std::{convert::Infallible, future::poll_fn, rc::Rc, task::Poll, time::Duration};

use drtm_kv::RemoteError;
use drtm_rdma::{Fabric, NodeId, Phase, Presence, VerbError};

use super::{
    outgoing::Outgoing,
    ring::{FREED, SETTLED},
};
use crate::{
    Config, Error,
    cluster::{
        ClusterError, Form,
        coordinator::Coordinator,
        requests::log::{Settle, SettleUpTo},
    },
};

/// How long backups may not know what is settled, where no record follows.
const TELL_AFTER: Duration = Duration::from_micros(200);

/// The pause before something is tried again that a backup did not answer.
pub(in crate::cluster) const AGAIN_AFTER: Duration = Duration::from_millis(1);

/// How long a worker that ends waits for a backup to hear of its last transactions.
const LAST_WORD: Duration = Duration::from_millis(100);

/// How often it is looked whether backups have applied everything, without any progress; and the
/// longest pause between: two to this power of microseconds.
const CATCH_UP_PATIENCE: u32 = 10_000;
const LONGEST: u32 = 12;

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Returns whether a node's rings are written by verbs.
    pub(in crate::cluster) fn logs_by_verbs(&self, node: NodeId) -> bool {
        self.protocol().log == Form::OneSided && node != self.id()
    }

    /// Tells a backup what is settled, and asks how much it has freed.
    pub(super) async fn tell(&self, ring: &Outgoing) -> Result<(), Error> {
        let (node, settled) = (ring.node, ring.producer.borrow().settled());
        let freed = if self.logs_by_verbs(node) {
            let failed = |error: VerbError| ClusterError::OneSided { node, source: RemoteError::from(error) };
            let verbs = self.endpoint().during(Phase::Other);
            // In this order: one that is dropped in between has told nothing wrong.
            verbs.write(ring.at(SETTLED), &[settled]).await.map_err(failed)?;
            verbs.read_word(ring.at(FREED)).await.map_err(failed)?
        } else {
            let request = SettleUpTo { ring: ring.place.number, producer: self.holder(), settled };
            self.call::<Settle, _>(node, request, |freed| freed).await?
        };
        let mut producer = ring.producer.borrow_mut();
        producer.note_told(settled);
        producer.note_freed(freed);
        Ok(())
    }

    /// Returns whether the incarnation of the backup that has a ring is gone.
    pub(super) fn is_gone(&self, ring: &Outgoing) -> bool {
        let Some(incarnation) = ring.incarnation else { return false };
        if self.node.home.changing.is_evicted(ring.node, incarnation) {
            return true;
        }
        match self.endpoint().presence(ring.node) {
            Presence::Here(now) => now != incarnation,
            Presence::Left(last) | Presence::Died(last) => last >= incarnation,
            _ => false,
        }
    }

    /// Tells backups what is settled where no record does, for ever.
    pub(in crate::cluster) async fn tell_backups(&self) -> Infallible {
        let has_news = |ring: &Rc<Outgoing>| ring.producer.borrow().has_news();
        loop {
            let news = poll_fn(|context| {
                if self.rings.all().iter().any(has_news) {
                    return Poll::Ready(());
                }
                self.rings.waker.set(Some(context.waker().clone()));
                Poll::Pending
            });
            news.await;
            self.endpoint().sleep(TELL_AFTER).await;
            for ring in self.rings.all().into_iter().filter(has_news) {
                if self.is_gone(&ring) {
                    self.rings.forget(&ring);
                    continue;
                }
                let settled = ring.producer.borrow().settled();
                match self.tell(&ring).await {
                    Ok(()) => {}
                    // A ring that refuses is read no more.
                    Err(Error::Cluster(ClusterError::Refused { .. } | ClusterError::Nonsense { .. })) => {
                        ring.producer.borrow_mut().note_told(settled);
                    }
                    Err(_) => self.endpoint().sleep(AGAIN_AFTER).await,
                }
            }
        }
    }

    /// Tells backups what is settled for the last time. One that does not answer is not waited for:
    /// it may have ended, too.
    pub(in crate::cluster) async fn tell_last(&self) {
        for ring in self.rings.all() {
            if ring.producer.borrow().has_news() && !self.is_gone(&ring) {
                let deadline = self.endpoint().now() + LAST_WORD;
                let _ = self.endpoint().before(deadline, self.tell(&ring)).await;
            }
        }
    }

    /// Waits until all backups have applied what this worker's transactions have logged. Those that
    /// are gone and no members any more are none.
    ///
    /// # Errors
    ///
    /// [`ClusterError::LogFull`] of a backup that makes no progress; or when one cannot be asked.
    pub(in crate::cluster) async fn catch_up(&self) -> Result<(), Error> {
        let is_none = |ring: &Outgoing| {
            self.is_gone(ring) && !ring.incarnation.is_some_and(|life| self.view().has_life(ring.node, life))
        };
        for ring in self.rings.all() {
            let mut tries = 0;
            loop {
                let before = ring.producer.borrow().head();
                // It may be gone before this, or meanwhile.
                let told = if is_none(&ring) { Ok(()) } else { self.tell(&ring).await };
                if is_none(&ring) {
                    self.rings.forget(&ring);
                    break;
                }
                told?;
                if ring.producer.borrow().is_drained() {
                    break;
                }
                tries = if ring.producer.borrow().head() == before { tries + 1 } else { 0 };
                if tries == CATCH_UP_PATIENCE {
                    return Err(ClusterError::LogFull { node: ring.node }.into());
                }
                self.endpoint().sleep(Duration::from_micros(1 << tries.min(LONGEST))).await;
            }
        }
        Ok(())
    }
}
