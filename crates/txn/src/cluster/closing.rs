//! How a node closes: what others have begun there is carried out or given up before its memory is
//! left.
//!
//! 1. The node serves in no view any more: the number of its view is zero in its line, which verbs
//!    read, and in what it answers. So no transaction is decided that locks a row of it, or reads
//!    one, later. What ends a transaction is served as before.
//! 2. It tells the nodes that it has met. Their transactions that have not come to it are refused
//!    with [`Refusal::Closed`] before they send anything.
//! 3. It goes through all rows, and waits for each that another node has locked. A lock that it
//!    does not find was taken after step 1, and its transaction is not decided. Then it waits until
//!    records in its rings are applied, and for its log.
//! 4. It tells the others that all is done. A request of a decided transaction that is not answered
//!    from then on was carried out.
//!
//! See `docs/decisions/0097`.

use std::time::Duration;

use drtm_htm::{Engine, fence_locked};
use drtm_kv::Holder;
use drtm_rdma::{Fabric, Incarnation, NodeId, Presence, Time};

use super::{
    ClusterError, ClusterEvent, Refusal,
    coordinator::Coordinator,
    participant::{Home, Stored},
    peers::all,
    requests::node::{Close, Closes},
    shared::Shared,
    state::State,
    view::NO_VIEW,
};
use crate::{
    Config, Error,
    memory::storage::{KeyRef, OwnedKey},
    mutation::Mutation,
};

/// How long a node waits for another one to hear that it closes.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

/// How soon it looks again whether a row is free, and the longest pause between: two to this power
/// of microseconds.
const LONGEST: u32 = 10;

/// What others have begun at a node and not ended.
#[derive(Clone, Copy, Debug, Default)]
struct Left {
    /// Rows that they have locked.
    rows: u64,
    /// Rings with records that are not applied.
    rings: u64,
}

impl<F: Fabric, S: Config> Shared<F, S> {
    /// Notes that another node closes, or that all is done there.
    pub(super) fn note_closing(&self, node: NodeId, incarnation: Incarnation, is_done: bool) {
        if self.closings.note(node, incarnation, is_done) {
            // In this order: workers that see the change find the node among those that close.
            self.view.another_closes();
            self.announcer.announce(ClusterEvent::Closing { node });
        }
    }

    /// Serves others in no view any more.
    fn serve_no_more(&self) -> Result<(), ClusterError> {
        self.view.serve_no_more(|| {
            let (db, engine) = (&self.home.db, self.home.db.engine());
            let word = db.snapshots.view(&db.store).map_err(ClusterError::Store)?;
            while engine.compare_exchange(word, engine.load(word), NO_VIEW.into()).is_err() {}
            // Locks are looked for after this.
            fence_locked();
            Ok(())
        })
    }
}

impl<S: Config> Home<S> {
    /// Returns whether a row is locked, and by which transaction: `None` where that is not known,
    /// since the row is being written.
    fn is_locked(&self, table: &Stored<S::Engine>, key: KeyRef<'_>) -> Option<Option<Holder>> {
        match self.lock_of(table, key) {
            Ok(locked) => locked.map(|(_, holder)| Some(holder)),
            Err(_) => Some(None),
        }
    }
}

impl<'e, F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'e, F, S> {
    /// Returns whether a node closes, so that no transaction begins anything there that has not
    /// done so before.
    ///
    /// # Errors
    ///
    /// [`Refusal::Closed`].
    pub(super) fn check_open(&self, state: &State<'e, F::Port>, node: NodeId) -> Result<(), Error> {
        let here = self.endpoint().presence(node).here();
        match here.is_some_and(|here| self.node.closings.closes(node, here)) && state.met(node).is_none() {
            true => Err(ClusterError::Refused { node, reason: Refusal::Closed }.into()),
            false => Ok(()),
        }
    }

    /// Returns whether a node has closed, and has carried out before what this decided transaction
    /// has asked of it.
    pub(super) fn has_done(&self, state: &State<'e, F::Port>, node: NodeId) -> bool {
        state.is_decided && state.met(node).is_some_and(|met| self.node.closings.is_done(node, met))
    }

    /// Closes the node for others: see the [module](self). It is still here afterwards.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Unfinished`] if something is left after this time; when the log fails.
    pub(super) async fn close(&self, until: Time) -> Result<(), Error> {
        if S::has(Mutation::ClosedAtOnce) {
            return Ok(());
        }
        self.node.serve_no_more()?;
        self.tell_closing(false, until).await;
        let left = Left { rows: self.wait_for_locks(until).await?, rings: self.wait_for_rings(until).await };
        self.flush(until).await?;
        if left.rows + left.rings > 0 {
            return Err(ClusterError::Unfinished { rows: left.rows, rings: left.rings }.into());
        }
        self.tell_closing(true, until).await;
        Ok(())
    }

    /// Tells all nodes that this one has met, and waits for their answers.
    async fn tell_closing(&self, is_done: bool, until: Time) {
        let incarnation = self.node.incarnation.0;
        let until = until.min(self.endpoint().now() + TOLD_WITHIN);
        let tell = |node: NodeId| async move {
            if self.endpoint().needs_reconnect(node) {
                // It is not told, if that fails.
                let _ = self.endpoint().reconnect(node);
            }
            let told = self.call::<Close, _>(node, Closes { incarnation, is_done }, |()| ());
            // One that does not hear it finds it out when it asks something.
            let _ = self.endpoint().before(until, told).await;
        };
        let others = self.node.closings.nodes().into_iter();
        let here: Vec<_> = others.filter(|node| self.endpoint().presence(*node).here().is_some()).collect();
        all(self.endpoint(), here.into_iter().map(tell)).await;
    }

    /// Goes through all rows, and waits for those that another node has locked. Returns how many
    /// are locked at the end.
    async fn wait_for_locks(&self, until: Time) -> Result<u64, Error> {
        let is_here = |node| matches!(self.endpoint().presence(node), Presence::Here(_) | Presence::Suspected(_));
        if !self.node.closings.nodes().into_iter().any(is_here) {
            return Ok(0);
        }
        #[cfg(feature = "hades")]
        let lines = self.wait_for_lines(until).await;
        #[cfg(not(feature = "hades"))]
        let lines = 0;
        let (home, mut left) = (&self.node.home, lines);
        for table in home.all_stores().filter(|table| !table.is_replicated) {
            let mut tour = table.storage.tour()?;
            loop {
                let mut locked = Vec::new();
                let has_more = table.storage.visit_some(&mut tour, |key| {
                    if self.is_waited_for(home.is_locked(table, key)) {
                        locked.push(OwnedKey::from(key));
                    }
                })?;
                for key in locked {
                    left += u64::from(!self.wait_for_row(table, key.as_ref(), until).await);
                }
                if !has_more {
                    break;
                }
                self.endpoint().yield_now().await;
            }
        }
        Ok(left)
    }

    /// Waits until no transaction of another node has locked lines here. Returns how many have, at
    /// the end.
    #[cfg(feature = "hades")]
    async fn wait_for_lines(&self, until: Time) -> u64 {
        let Some(nic) = &self.node.nic else { return 0 };
        let mut pause = 0;
        loop {
            let left = nic.locked_by_others(|node| self.has_left(node));
            if left == 0 || self.endpoint().now() >= until {
                return left;
            }
            self.endpoint().sleep(Duration::from_micros(1 << pause)).await;
            pause = LONGEST.min(pause + 1);
        }
    }

    /// Returns whether a lock is that of another node's transaction, which may still end.
    fn is_waited_for(&self, lock: Option<Option<Holder>>) -> bool {
        let is_here = |holder: Holder| NodeId(holder.node().into()) == self.id();
        lock.is_some_and(|holder| holder.is_none_or(|holder| !is_here(holder) && !self.is_dead(holder)))
    }

    /// Waits until a row is not locked by the transaction that has it locked. Returns whether it
    /// is so in time.
    async fn wait_for_row(&self, table: &Stored<S::Engine>, key: KeyRef<'_>, until: Time) -> bool {
        let (home, mut pause, mut first) = (&self.node.home, 0, None);
        loop {
            let lock = home.is_locked(table, key);
            // Another one has it only for a moment: it sees that the node closes.
            if !self.is_waited_for(lock) || first.is_some_and(|first| lock.flatten().is_some_and(|now| now != first)) {
                return true;
            }
            first = first.or(lock.flatten());
            if self.endpoint().now() >= until {
                return false;
            }
            self.endpoint().sleep(Duration::from_micros(1 << pause)).await;
            pause = LONGEST.min(pause + 1);
        }
    }

    /// Waits until this node has applied the records in its rings. Returns how many rings have some
    /// at the end.
    async fn wait_for_rings(&self, until: Time) -> u64 {
        let Some(backup) = &self.node.home.backup else { return 0 };
        let mut pause = 0;
        loop {
            let left = backup.undrained(|producer| !self.is_dead(producer));
            if left == 0 || self.endpoint().now() >= until {
                return left;
            }
            self.endpoint().sleep(Duration::from_micros(1 << pause)).await;
            pause = LONGEST.min(pause + 1);
        }
    }

    /// Waits until the node's log has all that was written.
    async fn flush(&self, until: Time) -> Result<(), Error> {
        let Some(log) = &self.node.home.db.log else { return Ok(()) };
        let (mut epoch, mut pause) = (0, 0);
        loop {
            epoch = log.look(epoch)?;
            if epoch == 0 || self.endpoint().now() >= until {
                return Ok(());
            }
            self.endpoint().sleep(Duration::from_micros(1 << pause)).await;
            pause = LONGEST.min(pause + 1);
        }
    }
}
