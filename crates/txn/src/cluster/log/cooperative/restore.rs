//! What an owner with a directory does before it serves, when it is started again: cases (c) to (e)
//! of Fig. 11. Its disk may lack what was decided, and its locks are gone.
//!
//! It looks into the logs of all nodes. What is decided, and was not carried out as far as its disk
//! knows, is applied. What is not decided, and names its rows, is refused: its coordinator may go
//! on, and has no locks here any more. A transaction that begins later meets this life.

use drtm_rdma::{NodeId, NvRegion};
use rustc_hash::FxHashSet;

use super::{
    Cooperative, Kind, Life, Logged, logged,
    notes::{forget, hash_of, notes},
    recover::refuse,
};
use crate::{
    Config, Error,
    cluster::{
        ClusterError,
        log::{Recorded, replica::Applied, replica::Replica},
        participant::Home,
        view::View,
    },
    durability::format::{Change, Entry},
    memory::storage::KeyRef,
    mutation::Mutation,
};

/// A row that is to be restored.
struct Lost {
    table: u16,
    key: Vec<u8>,
    version: u64,
    /// `None` if it is removed.
    value: Option<Vec<u8>>,
}

impl<E: drtm_htm::Engine> Cooperative<E> {
    /// Restores rows of a node with a log, whose replica of its own rows this is. `is_over` says
    /// which lives have ended.
    pub(in crate::cluster) fn restore<S: Config<Engine = E>>(
        &self,
        home: &Home<S>,
        (view, own): (&View, &Replica<E>),
        is_over: impl Fn(Life) -> bool,
    ) -> Result<(), Error> {
        let Some(log) = home.db.log.as_ref().filter(|_| !S::has(Mutation::RestoreLeftOut)) else { return Ok(()) };
        let carried = self.carried_out(log.recovered())?;
        let mut lost = Vec::new();
        for life in self.others().map_err(ClusterError::Logs)? {
            let (engine, path) = (self.region.region().engine().clone(), self.path_of(life));
            let region = match is_over(life) {
                true => NvRegion::open(engine, &path),
                false => NvRegion::look(engine, &path),
            };
            let region = region.map_err(ClusterError::Logs)?;
            for slot in self.decided::<S>(&region, view)? {
                let rows = lost_rows(home, (view, self.life.0), &slot);
                let is_carried = |row: &(u64, Lost)| carried.contains(&(slot.holder.to_word(), row.0));
                if !rows.iter().any(is_carried) {
                    lost.extend(rows.into_iter().map(|(_, row)| row));
                }
            }
        }
        lost.sort_by_key(|row| row.version);
        let mut worker = home.db.store.worker()?;
        let participant = log.participant();
        let (mut applied, mut last) = (Vec::new(), 0);
        let open = log.enter_at_once(&participant)?;
        for row in &lost {
            let change = row.value.as_deref().map_or(Change::Remove, Change::Put);
            let entry = Entry { table: row.table, key: &row.key, version: row.version, change };
            last = last.max(entry.epoch());
            let done = own.apply((&home.db.store, &mut worker), &entry);
            match done.map_err(|_| ClusterError::NotRestored { node: self.life.0 })? {
                Applied::Nothing => continue,
                Applied::Put => {}
                Applied::Removed(grave) => {
                    let _is_done = own.fill(&mut worker, &grave)?;
                }
            }
            let table = own.table(row.table).and_then(|table| table.id);
            applied.extend(table.map(|table| Entry { table, ..entry }));
        }
        if !applied.is_empty() {
            home.db.snapshots.raise(&home.db.store, last + 1)?;
            log.append_rows(&participant, &applied)?;
        }
        drop(open);
        log.wait_until_all_is_durable()
    }

    /// Returns transactions that this node's disk has, of those that it has noted, each with a row.
    fn carried_out(&self, recovered: u64) -> Result<FxHashSet<(u64, u64)>, Error> {
        let mut carried = FxHashSet::default();
        let own = self.others().map_err(ClusterError::Logs)?.into_iter().filter(|life| life.0 == self.life.0);
        for life in own {
            let region = NvRegion::open(self.region.region().engine().clone(), &self.path_of(life));
            let region = region.map_err(ClusterError::Logs)?;
            for note in notes(&region).map_err(ClusterError::Logs)? {
                match note.epoch <= recovered {
                    true if note.epoch > 0 => {
                        carried.insert((note.name, note.row));
                    }
                    true => {}
                    // Its epoch's number may be reached once more.
                    false => forget(&region, note).map_err(ClusterError::Logs)?,
                }
            }
        }
        Ok(carried)
    }

    /// Returns the slots of a node that are decided, and refuses those that are not and name rows
    /// of this node.
    fn decided<S: Config<Engine = E>>(&self, region: &NvRegion<E>, view: &View) -> Result<Vec<Logged>, Error> {
        let id = self.life.0;
        let names_some = |slot: &Logged| {
            let mut buffer = Vec::new();
            Recorded::read(&slot.ahead, &mut buffer)
                .is_some_and(|ahead| ahead.shards().any(|shard| view.is_here(shard, id)))
        };
        loop {
            let slots = logged(region).map_err(ClusterError::Logs)?;
            let mut is_refused = true;
            for slot in slots.iter().filter(|slot| slot.state.kind == Kind::Ahead && names_some(slot)) {
                if !S::has(Mutation::LostLocksDecided) {
                    is_refused &= refuse(region, slot).map_err(ClusterError::Logs)?;
                }
            }
            // One that is decided by now is looked at once more.
            if is_refused {
                return Ok(slots.into_iter().filter(|slot| slot.state.kind == Kind::Decided).collect());
            }
        }
    }
}

/// Returns what a decided transaction writes to rows of this node, each with its hash.
fn lost_rows<S: Config>(home: &Home<S>, (view, id): (&View, NodeId), slot: &Logged) -> Vec<(u64, Lost)> {
    let (mut buffer, mut rows) = (Vec::new(), Vec::new());
    let Some(decided) = Recorded::read(&slot.decided, &mut buffer) else { return rows };
    for (shard, redo) in decided.redo().filter(|(shard, _)| view.is_here(*shard, id)) {
        for entry in redo.entries().map_while(Result::ok) {
            let Ok(stored) = home.store(view.store_of(entry.table, shard)) else { continue };
            let key_size = home.tables.get(usize::from(entry.table)).map_or(0, |table| table.key_size);
            let word_size = stored.storage.takes(KeyRef::Word(0)).then_some(key_size);
            let Some(key) = KeyRef::of_encoding(entry.key, word_size) else { continue };
            let value = if let Change::Put(value) = entry.change { Some(value.to_vec()) } else { None };
            let hash = hash_of(stored.number, key, entry.version);
            rows.push((hash, Lost { table: entry.table, key: entry.key.to_vec(), version: entry.version, value }));
        }
    }
    rows
}
