//! How a node gets the rows of a group whose backup it is going to be: it takes what is written
//! from then on out of its rings, as a backup does, and copies what is there already from the
//! primary. Of a row, the newest version wins, so that the order does not matter.

use drtm_htm::Engine;
use drtm_kv::Version;
use drtm_rdma::NodeId;
use std::sync::atomic::Ordering::{Acquire, Release};

use super::{Applied, Applier, Backup, NotApplied};
use crate::{
    cluster::{
        log::replica::{Emptied, Replica, ReplicaTable},
        view::{Lost, Placement, View},
    },
    commit::epoch::epoch_of,
    durability::format::Entry,
    memory::storage::Tour,
};

/// What a node has of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::cluster) enum Standing {
    /// It has no tables for it.
    None,
    /// Rows that are worth nothing: they are being taken out.
    Old,
    /// Tables without rows.
    Empty,
    /// A part of the rows: others are being copied.
    Learns,
    /// All rows, though it is no replica yet.
    HasLearnt,
    /// All rows: it is a replica.
    Replica,
    /// Rows of a group that is lost, from the node's directory. They may be all that is left of it.
    Kept,
    /// No rows in memory. The log has rows that are worth nothing, until its next checkpoint.
    TakenOut,
}

impl Standing {
    const ALL: [Self; 8] =
        [Self::None, Self::Old, Self::Empty, Self::Learns, Self::HasLearnt, Self::Replica, Self::Kept, Self::TakenOut];

    pub(in crate::cluster) fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Returns what a node has of a group that is in another view from then on: `has_rows` says
    /// whether its directory has any.
    fn in_view(self, placed: Option<&Placement>, node: NodeId, has_rows: bool) -> Self {
        let is = |nodes: &[NodeId]| nodes.contains(&node);
        match (self, placed) {
            (Self::None, _) => Self::None,
            (_, Some(at)) if at.server() == Some(node) || is(&at.backups) => Self::Replica,
            (Self::Replica | Self::Kept, Some(at)) if is_held(at) && has_rows => Self::Kept,
            (Self::Empty, Some(at)) if is(&at.learners) => Self::Learns,
            (Self::Learns | Self::HasLearnt, Some(at)) if is(&at.learners) => self,
            (Self::Empty | Self::TakenOut, _) => self,
            _ => Self::Old,
        }
    }
}

/// Returns whether a group's rows are awaited, of which no replica is left.
fn is_held(at: &Placement) -> bool {
    matches!(at.lost, Some(Lost::Held(_)))
}

impl<E: Engine> Backup<E> {
    /// Returns what the node has of a group.
    pub(in crate::cluster) fn standing(&self, group: u16) -> Standing {
        let number = self.standings.get(usize::from(group)).map_or(0, |standing| standing.load(Acquire));
        Standing::of(number).unwrap_or(Standing::None)
    }

    fn set_standing(&self, group: u16, standing: Standing) {
        if let Some(of_group) = self.standings.get(usize::from(group)) {
            of_group.store(standing as u8, Release);
        }
    }

    /// Adds tables for a group, unless the node has such. Its directory may have rows of them, from
    /// another life: what they are worth, the view that the node is in says.
    pub(in crate::cluster) fn hold<X>(
        &self,
        group: u16,
        (view, node): (&View, NodeId),
        make: impl FnOnce() -> Result<Vec<Option<ReplicaTable<E>>>, X>,
    ) -> Result<(), X> {
        let mut applier = self.applier.lock();
        if self.standing(group) == Standing::None {
            let replica = Replica::new(group, make()?);
            let has_rows = replica.records().is_ok_and(|records| records > 0);
            applier.replicas.push(replica);
            self.set_standing(group, if has_rows { Standing::Replica } else { Standing::Empty });
            if has_rows {
                self.note_standings(view, node, &mut applier);
            }
        }
        Ok(())
    }

    /// Notes what the node has of each group in a view.
    pub(super) fn note_standings(&self, view: &View, node: NodeId, applier: &mut Applier<E>) {
        for replica in &mut applier.replicas {
            let before = match self.standing(replica.group) {
                // Its tables are new, and are those of the first view.
                Standing::None => Standing::Empty,
                standing => standing,
            };
            let placed = view.placement(replica.group);
            let mut has_rows = before == Standing::Kept;
            if self.log.is_some() && before == Standing::Replica && placed.is_some_and(is_held) {
                // A store that cannot be read has nothing to bring back.
                let newest = replica.newest_epoch().ok().flatten();
                has_rows = newest.is_some();
                replica.last_epoch = replica.last_epoch.max(newest.unwrap_or(0));
            }
            self.set_standing(replica.group, before.in_view(placed, node, has_rows));
        }
    }

    /// Returns the groups of which the log has rows that are worth nothing.
    pub(in crate::cluster) fn taken_out(&self) -> Vec<u16> {
        let groups = (0..).zip(&self.standings);
        groups.filter(|(_, it)| it.load(Acquire) == Standing::TakenOut as u8).map(|(group, _)| group).collect()
    }

    /// Notes that a checkpoint has none of what was taken out of groups.
    pub(in crate::cluster) fn is_without(&self, groups: &[u16]) {
        let mut applier = self.applier.lock();
        for replica in applier.replicas.iter_mut().filter(|replica| groups.contains(&replica.group)) {
            if self.standing(replica.group) == Standing::TakenOut {
                replica.is_cut = false;
                self.set_standing(replica.group, Standing::Empty);
            }
        }
    }

    /// Returns a group whose rows are to be copied.
    pub(in crate::cluster) fn to_learn(&self) -> Option<u16> {
        (0..).zip(&self.standings).find(|(_, it)| it.load(Acquire) == Standing::Learns as u8).map(|(group, _)| group)
    }

    /// Applies rows that were copied. Returns whether there was room for all.
    ///
    /// # Errors
    ///
    /// [`NotApplied::Wrong`] if they are of no table.
    pub(in crate::cluster) fn learn<'r>(
        &self,
        group: u16,
        rows: impl Iterator<Item = Entry<'r>>,
        logged: bool,
    ) -> Result<bool, NotApplied> {
        let mut applier = self.applier.lock();
        let Applier { worker, replicas, .. } = &mut *applier;
        let log = self.log.as_ref().filter(|_| logged);
        if let Some((log, participant)) = log
            && participant.is_full()
        {
            // The disk is slower than memory. A log that has failed never becomes full.
            let _ = log.request_flush();
            return Ok(false);
        }
        let Some(replica) = replicas.iter_mut().find(|replica| replica.group == group) else {
            return Err(NotApplied::Wrong);
        };
        // A log that has failed is told of by the node as an owner.
        let open = log.and_then(|(log, participant)| log.enter_at_once(participant).ok());
        let mut applied = Vec::new();
        for entry in rows {
            match replica.apply((&self.store, worker), &entry) {
                Ok(Applied::Put) => {}
                // A part of them is here, and they are copied again.
                Err(NotApplied::Full) => return Ok(false),
                Err(NotApplied::Wrong) => return Err(NotApplied::Wrong),
                Ok(_) => continue,
            }
            replica.last_epoch = replica.last_epoch.max(epoch_of(Version::new(entry.version)));
            let table = replica.table(entry.table).and_then(|table| table.id);
            applied.extend(table.map(|table| Entry { table, ..entry }));
        }
        if let (Some((log, participant)), Some(_open), false) = (log, open, applied.is_empty()) {
            log.append_rows(participant, &applied).map_err(|_| NotApplied::Wrong)?;
        }
        Ok(true)
    }

    /// Notes that all rows of a group were copied, and in which epoch its primary was then. Returns
    /// whether the node still learns them.
    pub(in crate::cluster) fn has_learnt(&self, group: u16, epoch: u64) -> bool {
        let mut applier = self.applier.lock();
        let is_so = self.standing(group) == Standing::Learns;
        if let Some(replica) = applier.replicas.iter_mut().find(|replica| replica.group == group).filter(|_| is_so) {
            // What was removed before had a version, too.
            replica.last_epoch = replica.last_epoch.max(epoch);
            self.set_standing(group, Standing::HasLearnt);
        }
        is_so
    }

    /// Takes some rows out that are worth nothing. Returns whether there may be more.
    pub(in crate::cluster) fn empty_some(&self, at: &mut Option<(u16, usize, Tour)>) -> bool {
        let mut applier = self.applier.lock();
        let Applier { worker, replicas, graves, .. } = &mut *applier;
        let is_old = |replica: &&mut Replica<E>| self.standing(replica.group) == Standing::Old;
        let Some((number, replica)) = replicas.iter_mut().enumerate().find(|(_, replica)| is_old(replica)) else {
            *at = None;
            return false;
        };
        for graves in [&mut graves.dug, &mut graves.waiting] {
            graves.retain(|(other, _)| *other != number);
        }
        replica.is_cut |= replica.records().is_ok_and(|records| records > 0);
        match replica.empty_some((&self.store, worker), at) {
            Ok(Emptied::More) => true,
            Ok(Emptied::All) => {
                *at = None;
                let is_logged = replica.is_cut && self.log.is_some();
                self.set_standing(replica.group, if is_logged { Standing::TakenOut } else { Standing::Empty });
                true
            }
            Err(_) => {
                *at = None;
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use drtm_rdma::Incarnation;

    use super::*;

    #[test]
    fn a_standing_follows_the_view() {
        let node = NodeId(2);
        let at = |primary, backups: &[u16], learners: &[u16]| {
            let nodes = |all: &[u16]| all.iter().copied().map(NodeId).collect();
            Placement { primary: NodeId(primary), backups: nodes(backups), learners: nodes(learners), lost: None }
        };
        let (serves, backs, learns, other) = (at(2, &[], &[]), at(1, &[2], &[]), at(1, &[], &[2]), at(1, &[3], &[]));
        let after = |standing: Standing, placed: &Placement| standing.in_view(Some(placed), node, false);
        assert_eq!(after(Standing::Empty, &learns), Standing::Learns);
        assert_eq!(after(Standing::Learns, &learns), Standing::Learns);
        assert_eq!(after(Standing::HasLearnt, &learns), Standing::HasLearnt);
        assert_eq!(after(Standing::HasLearnt, &backs), Standing::Replica);
        assert_eq!(after(Standing::Replica, &serves), Standing::Replica);
        for standing in [Standing::Learns, Standing::HasLearnt, Standing::Replica, Standing::Old] {
            assert_eq!(after(standing, &other), Standing::Old);
        }
        assert_eq!(after(Standing::Old, &learns), Standing::Old, "it has rows that are worth nothing");
        assert_eq!(after(Standing::Empty, &other), Standing::Empty);
        assert_eq!(after(Standing::None, &learns), Standing::None);
        // What a directory has of a lost group stays, until the group is served or given up.
        let kept = |standing: Standing, placed: &Placement| standing.in_view(Some(placed), node, true);
        let lost = serves.lost_by(Lost::Held(Incarnation(3)));
        assert_eq!(kept(Standing::Replica, &lost), Standing::Kept);
        assert_eq!(kept(Standing::Kept, &lost), Standing::Kept);
        assert_eq!(kept(Standing::Kept, &serves), Standing::Replica);
        assert_eq!(kept(Standing::Kept, &learns), Standing::Old, "another node serves it");
        assert_eq!(kept(Standing::Kept, &serves.lost_by(Lost::GivenUp)), Standing::Old);
        assert_eq!(kept(Standing::Learns, &lost), Standing::Old, "a part is worth nothing");
        assert_eq!(after(Standing::Replica, &lost), Standing::Old, "it has nothing to bring back");
        assert_eq!(after(Standing::TakenOut, &learns), Standing::TakenOut);
        assert!(Standing::ALL.iter().all(|it| Standing::of(*it as u8) == Some(*it)));
    }
}
