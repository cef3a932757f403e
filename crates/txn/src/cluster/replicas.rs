//! The tables that a node has of groups: of those that it serves or backs up in the first view, and
//! of others that it is given later.

use std::sync::OnceLock;

use drtm_htm::Engine;
use drtm_rdma::NodeId;

use super::{
    log::{Replica, ReplicaTable},
    participant::{Home, Served, Stored},
    view::{View, store_of},
};
use crate::{
    Config, Error, db::inner::Inner, db::lifecycle::Admission, durability::format::CatalogChange, index::Writers,
};

/// The tables of a cluster that a node has of a group, by their numbers: as it applies what is
/// written, and as it serves them.
type OfGroup<E> = (Vec<Option<ReplicaTable<E>>>, Vec<Option<Stored<E>>>);

/// Returns tables for a group's rows, as a backup has them: those of the database that are there,
/// or new ones.
fn tables_of<S: Config>(
    db: &Inner<S>,
    tables: &[Served<S::Engine>],
    (view, group): (&View, u16),
) -> Result<OfGroup<S::Engine>, Error> {
    if let Some(log) = &db.log {
        // What is applied is flushed in the background.
        log.start_flusher()?;
    }
    let owner = view.placement(group).ok_or(Error::OtherDatabase)?.primary;
    let (mut stores, mut replicas) = (Vec::new(), Vec::new());
    for served in tables {
        if served.is_replicated {
            stores.push(None);
            replicas.push(None);
            continue;
        }
        let of = db.catalog.opened(db.number, served.number, || Admission::LATEST)?;
        let name = format!("replica of {owner}: {}", of.name.get());
        let announce = |id, shape| db.announce(&CatalogChange::Table(id, shape));
        let table = db.catalog.replica(&db.store, (&name, of), announce)?.ok_or(Error::OtherDatabase)?;
        table.indexes.set_writers(Writers::Nothing, || db.lifecycle.advance_count(db.engine()));
        let id = db.log.as_ref().and_then(|_| db.catalog.id(table.number));
        replicas.push(Some(ReplicaTable::new(table.storage.clone(), of.key_size(), id)));
        stores.push(Some(Stored { number: table.number, storage: table.storage.impatient(), is_replicated: false }));
    }
    Ok((replicas, stores))
}

/// Returns the node's own tables, as those of a group that it may come to back up.
pub(super) fn own_tables<S: Config>(
    db: &Inner<S>,
    tables: &[Served<S::Engine>],
) -> Result<Vec<Option<ReplicaTable<S::Engine>>>, Error> {
    let replica = |served: &Served<S::Engine>| {
        if served.is_replicated {
            return Ok(None);
        }
        let opened = db.catalog.opened(db.number, served.number, || Admission::LATEST)?;
        let id = db.log.as_ref().and_then(|_| db.catalog.id(served.number));
        Ok(Some(ReplicaTable::new(opened.storage.clone(), opened.key_size(), id)))
    };
    tables.iter().map(replica).collect()
}

/// Puts tables of a group among those that a node has.
fn put<E: Engine>(stores: &[OnceLock<Stored<E>>], (group, groups): (u16, u16), of_group: Vec<Option<Stored<E>>>) {
    for (stored, table) in of_group.into_iter().zip(0..) {
        let place = stores.get(usize::from(store_of(table, Some(group), groups)));
        if let (Some(stored), Some(place)) = (stored, place) {
            // A group is added once.
            let _ = place.set(stored);
        }
    }
}

/// Returns the replicas of the groups that a node is to have from the beginning, and puts their
/// tables among those that it has. Its `own` group's are its own tables.
pub(super) fn first<S: Config>(
    db: &Inner<S>,
    tables: &[Served<S::Engine>],
    stores: &[OnceLock<Stored<S::Engine>>],
    view: &View,
    (own, backed_up): (Option<u16>, impl Iterator<Item = u16>),
) -> Result<Vec<Replica<S::Engine>>, Error> {
    let mut replicas = Vec::new();
    if let Some(group) = own {
        replicas.push(Replica::new(group, own_tables(db, tables)?));
    }
    for group in backed_up {
        let (tables, of_group) = tables_of(db, tables, (view, group))?;
        put(stores, (group, view.groups()), of_group);
        replicas.push(Replica::new(group, tables));
    }
    Ok(replicas)
}

impl<S: Config> Home<S> {
    /// Makes tables for a group's rows, unless the node has such.
    ///
    /// # Errors
    ///
    /// When there is no memory for them.
    pub(super) fn hold(&self, (first, now): (&View, &View), node: NodeId, group: u16) -> Result<(), Error> {
        let Some(backup) = &self.backup else { return Ok(()) };
        backup.hold(group, (now, node), || {
            let (replicas, stores) = tables_of(&self.db, &self.tables, (first, group))?;
            put(&self.stores, (group, first.groups()), stores);
            Ok(replicas)
        })
    }
}
