//! What a backup does when the view changes: it closes the rings of producers that are dead, says
//! what is in them, and is told which of their transactions to complete.

use super::{Backup, Graves};
use crate::{
    cluster::{
        Refusal,
        log::{
            record,
            ring::{Corrupt, Kept, Standing},
        },
        view::View,
        wire::{Wire as _, parts::InRing},
    },
    mutation::Mutation,
};

use drtm_htm::Engine;
use drtm_kv::Holder;
use drtm_rdma::NodeId;
use std::sync::atomic::Ordering::{Acquire, Release};

impl<E: Engine> Backup<E> {
    /// Closes the rings of producers that are dead, once what is settled in them is applied.
    ///
    /// # Errors
    ///
    /// [`Refusal::Locked`] if something is settled that there is no room for yet.
    pub(in crate::cluster) fn close(&self, is_dead: impl Fn(Holder) -> bool, logged: bool) -> Result<(), Refusal> {
        let mut applier = self.applier.lock();
        let super::Applier { readers, worker, replicas, graves } = &mut *applier;
        for reader in readers.iter_mut().filter(|reader| reader.closed.is_none() && is_dead(reader.ring.producer)) {
            while self.apply_next(reader, worker, (replicas, graves), (false, logged))? {}
            if reader.has_settled() {
                return Err(Refusal::Locked);
            }
            reader.close(self.store.region())?;
        }
        Ok(())
    }

    /// Writes what is in rings that are closed, and up to which of their producers' transactions
    /// everything was freed before.
    pub(in crate::cluster) fn report(&self, into: &mut Vec<u8>) {
        let applier = self.applier.lock();
        for reader in &applier.readers {
            let Some(kept) = &reader.closed else { continue };
            let producer = reader.ring.producer;
            InRing { producer, holder: producer.to_word(), sequence: reader.last, standing: 0, bytes: &[] }.put(into);
            for Kept { holder, sequence, standing, bytes } in kept {
                let standing = *standing as u8;
                InRing { producer, holder: *holder, sequence: *sequence, standing, bytes }.put(into);
            }
        }
    }

    /// Completes these transactions of dead producers, and undoes their other ones. Applies all
    /// that the others have written: it is settled. Returns whether there was room for all.
    ///
    /// # Errors
    ///
    /// [`Refusal::Corrupt`].
    pub(in crate::cluster) fn decide(
        &self,
        complete: &[(Holder, u64)],
        (logged, has): (bool, fn(Mutation) -> bool),
    ) -> Result<bool, Refusal> {
        let mut applier = self.applier.lock();
        let super::Applier { readers, worker, replicas, graves } = &mut *applier;
        for reader in readers.iter_mut() {
            let Some(kept) = &mut reader.closed else {
                if has(Mutation::SettledNotTold) {
                    continue;
                }
                reader.settle_all(self.store.region())?;
                while self.apply_next(reader, worker, (replicas, graves), (false, logged))? {}
                if reader.has_settled() {
                    return Ok(false);
                }
                continue;
            };
            for record in kept.iter_mut().filter(|record| record.standing == Standing::Recorded) {
                let name = (record.holder, record.sequence);
                let is_complete = complete.iter().any(|(holder, sequence)| (holder.to_word(), *sequence) == name);
                if is_complete {
                    let mut buffer = Vec::new();
                    let rows = record::read_copy(&record.bytes, &mut buffer).and_then(|record| record.rows);
                    let rows = rows.ok_or(Corrupt)?;
                    if !self.apply_record(&rows, worker, (replicas, graves), logged)? {
                        return Ok(false);
                    }
                }
                record.standing = if is_complete { Standing::Completed } else { Standing::Undone };
                record.bytes = Vec::new();
            }
        }
        Ok(true)
    }

    /// Notes which groups this node serves in a view, all of whose older records were applied.
    pub(in crate::cluster) fn serve(&self, view: &View, node: NodeId) {
        let mut applier = self.applier.lock();
        let super::Applier { readers, worker, replicas, graves } = &mut *applier;
        // All nodes know what has become of what is decided.
        let decided = readers.iter_mut().filter(|reader| reader.is_decided());
        decided.filter_map(|reader| reader.closed.as_mut()).for_each(Vec::clear);
        let Graves { dug, waiting, .. } = graves;
        for (served, group) in self.served.iter().zip(0..) {
            let serves = view.serves(node, group);
            if serves && !served.load(Acquire) {
                // Nothing older can come. A grave that is left is in no transaction's way.
                for graves in [&mut *dug, &mut *waiting] {
                    graves.retain(|(replica, grave)| {
                        let replica = &replicas[*replica];
                        let is_of_group = replica.group == group;
                        if is_of_group {
                            let _ = replica.fill(worker, grave);
                        }
                        !is_of_group
                    });
                }
            }
            served.store(serves, Release);
        }
        self.note_standings(view, node, &mut applier);
    }
}
