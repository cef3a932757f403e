//! Bulk-loading an empty tree with keys in ascending order.
//!
//! The nodes are made beside the tree. They stay locked until the root, which must still be
//! unchanged, takes the uppermost in, since readers may have the places of reused nodes. Until then
//! everything can be given back.
//!
//! With byte strings, layers are made from the lowest up. The layer of a key's record is known when
//! the next key is. It is the layer in which the key differs from the more similar of its
//! neighbours. So one record is always *pending*. The layers that the next key does not share are
//! complete, and get an entry in the layer above.

use drtm_htm::{Engine, Waiter};

use super::{
    Table,
    kind::{AsKey, Kind},
    node::Blank,
};
use crate::{
    KvError, Leases, Version, Worker,
    layout::{FANOUT, Place, Target},
    record::{Record, Shape},
};

/// The number of entries in a node that is loaded: nine tenths, so that a few keys can be inserted
/// anywhere before nodes are split.
const FILLED: usize = FANOUT * 9 / 10;

impl<E: Engine> Table<E> {
    /// Loads the rows. Returns the number of keys.
    pub(super) fn load<K: Kind, V: AsRef<[u8]>>(
        &self,
        worker: &mut Worker<E>,
        rows: impl IntoIterator<Item = (impl AsKey<K>, V)>,
    ) -> Result<u64, KvError> {
        let mut made = Made { table: self, complete: Vec::new(), layers: vec![Vec::new()], pending: None };
        let loaded = self.load_beside(&mut made, worker, rows);
        if loaded.is_err() {
            made.free_records::<K>(worker)?;
        }
        // Nodes that have become part of the tree are no longer in `complete`.
        let unused = made.complete.into_iter().chain(made.layers.into_iter().flatten());
        self.pool.give(unused.map(|filling| filling.blank.retire()));
        loaded
    }

    fn load_beside<'t, K: Kind, V: AsRef<[u8]>>(
        &'t self,
        made: &mut Made<'t, E>,
        worker: &mut Worker<E>,
        rows: impl IntoIterator<Item = (impl AsKey<K>, V)>,
    ) -> Result<u64, KvError> {
        let root = self.top()?;
        if !root.stamp.is_readable() || root.stamp.level() > 0 || root.stamp.count() > 0 {
            return Err(KvError::NotEmpty);
        }
        let keys = made.leaves::<K, V>(worker, rows, Version::new(self.base.floor()?))?;
        let (mut level, mut entries) = made.levels(FANOUT)?;
        if entries.len() > 1 {
            level += 1;
            made.complete.extend(made.layers.pop().into_iter().flatten());
        } else {
            // There is at most one leaf. The root takes its entries, and the leaf is left over.
            entries = made.layers[0].first().map(Filling::entries).unwrap_or_default();
        }
        // No thread has ever known fresh memory, so most nodes can be published before the root is
        // locked.
        let (fresh, used): (Vec<_>, Vec<_>) = made.complete.iter().partition(|filling| filling.blank.is_fresh());
        fresh.into_iter().for_each(Filling::publish);
        // As long as the root is unchanged, nothing was removed, so the version is above the floor.
        let Some(root) = root.try_lock() else { return Err(KvError::NotEmpty) };
        used.into_iter().for_each(Filling::publish);
        for (slot, (key, link)) in entries.iter().enumerate() {
            root.node.set(slot, *key, *link);
        }
        let stamp = root.seen.changed(entries.len()).at_level(level);
        root.release_as(stamp);
        made.complete.clear();
        self.base.count(worker, keys as i64)?;
        Ok(keys)
    }
}

/// A node beside the tree.
struct Filling<'t, E: Engine> {
    blank: Blank<'t, E>,
    level: u8,
    count: usize,
}

impl<E: Engine> Filling<'_, E> {
    fn push(&mut self, key: u64, link: u64) {
        self.blank.node.set(self.count, key, link);
        self.count += 1;
    }

    fn entries(&self) -> Vec<(u64, u64)> {
        (0..self.count).map(|slot| self.blank.node.entry(slot)).collect()
    }

    fn publish(&self) {
        self.blank.publish(self.level, self.count);
    }
}

/// All nodes beside the tree. Those of a layer are level by level, each from the left.
struct Made<'t, E: Engine> {
    table: &'t Table<E>,
    /// The nodes of complete layers.
    complete: Vec<Filling<'t, E>>,
    /// The nodes of the other layers, the topmost layer first.
    layers: Vec<Vec<Filling<'t, E>>>,
    /// The record that is in no leaf yet.
    pending: Option<Place>,
}

impl<'t, E: Engine> Made<'t, E> {
    /// Makes all records, the topmost layer's leaves, and all of the layers below. Returns how many
    /// records there are.
    fn leaves<K: Kind, V: AsRef<[u8]>>(
        &mut self,
        worker: &mut Worker<E>,
        rows: impl IntoIterator<Item = (impl AsKey<K>, V)>,
        version: Version,
    ) -> Result<u64, KvError> {
        let (mut before, mut now, mut depth, mut count) = (K::Owned::default(), K::Owned::default(), 0, 0);
        for (key, value) in rows {
            let (key, value) = (key.as_key(), value.as_ref());
            let shape = Shape::of::<K::InRecord>(key, value.len(), self.table.base.checked)?;
            K::keep(key, &mut now);
            if count > 0 {
                if before >= now {
                    return Err(KvError::NotAscending { row: count });
                }
                let common = K::common(K::key(&before), key);
                self.settle::<K>(K::key(&before), depth.max(common))?;
                self.complete::<K>(K::key(&before), common)?;
                depth = common;
            }
            let memory = worker.allocate(shape.class())?;
            match Record::create::<K::InRecord>(self.table.region(), memory, shape, key, value, version) {
                Ok(place) => {
                    Record::at(self.table.region(), place)?.unlock();
                    self.pending = Some(place);
                }
                Err(error) => {
                    worker.give_back_object(shape.class(), memory);
                    return Err(error.into());
                }
            }
            std::mem::swap(&mut before, &mut now);
            count += 1;
        }
        if count > 0 {
            self.settle::<K>(K::key(&before), depth)?;
            self.complete::<K>(K::key(&before), 0)?;
        }
        Ok(count)
    }

    /// Puts the pending record, which is this key's, into the layer at this depth.
    fn settle<K: Kind>(&mut self, key: K::Key<'_>, depth: usize) -> Result<(), KvError> {
        while self.layers.len() <= depth {
            self.layers.push(Vec::new());
        }
        if let Some(place) = self.pending {
            self.push(depth, 0, K::slice(key, depth), Target::Record(place).to_link())?;
        }
        self.pending = None;
        Ok(())
    }

    /// Completes the layers below this depth on the path of this key.
    fn complete<K: Kind>(&mut self, key: K::Key<'_>, depth: usize) -> Result<(), KvError> {
        while self.layers.len() > depth + 1 {
            // The uppermost node is the root: all keys belong to it.
            let (_, uppermost) = self.levels(1)?;
            self.complete.extend(self.layers.pop().into_iter().flatten());
            let above = self.layers.len() - 1;
            for (_, root) in uppermost {
                self.push(above, 0, K::slice(key, above), Target::Layer(root).to_link())?;
            }
        }
        Ok(())
    }

    /// Makes the levels above the leaves of the lowest layer, up to one of at most `most` nodes.
    /// Returns that level, and its nodes' lowest words and places.
    fn levels(&mut self, most: usize) -> Result<(u8, Vec<(u64, u64)>), KvError> {
        let depth = self.layers.len() - 1;
        let nodes = |made: &Self, level| -> Vec<_> {
            let nodes = made.layers[depth].iter().filter(|filling| filling.level == level);
            nodes.map(|filling| (filling.blank.node.low(), filling.blank.node.place)).collect()
        };
        let mut level = 0;
        let mut entries = nodes(self, level);
        while entries.len() > most {
            level += 1;
            for (word, link) in entries {
                self.push(depth, level, word, link)?;
            }
            entries = nodes(self, level);
        }
        Ok((level, entries))
    }

    /// Appends an entry, above all others on this level of the layer.
    fn push(&mut self, depth: usize, level: u8, word: u64, link: u64) -> Result<(), KvError> {
        let nodes = &mut self.layers[depth];
        let left = nodes.last().filter(|filling| filling.level == level);
        if left.is_none_or(|left| left.count >= FILLED) {
            let blank = self.table.blank()?;
            if let Some(left) = left {
                left.blank.node.set_end(word - 1, blank.node.place);
            }
            blank.node.set_low(if left.is_some() { word } else { 0 });
            blank.node.set_end(u64::MAX, 0);
            nodes.push(Filling { blank, level, count: 0 });
        }
        nodes.iter_mut().last().into_iter().for_each(|node| node.push(word, link));
        Ok(())
    }

    /// Frees all records, which no thread has found.
    fn free_records<K: Kind>(&self, worker: &mut Worker<E>) -> Result<(), KvError> {
        let leaves = self.complete.iter().chain(self.layers.iter().flatten()).filter(|filling| filling.level == 0);
        let links = leaves.flat_map(Filling::entries).map(|(_, link)| Target::of(link));
        for target in links.chain(self.pending.map(Target::Record)) {
            if let Target::Record(place) = target {
                let record = Record::at(self.table.region(), place)?;
                // A thread with a handle of the memory's last use may have locked it. That thread
                // detects the reuse, and unlocks it without waiting.
                let waiter = Waiter::new();
                while record.acquire(worker.holder(), Leases::None).is_err() {
                    waiter.pause();
                }
                let class = record.shape::<K::InRecord>(record.head())?.class();
                record.discard(worker.holder());
                worker.free(class, place.word);
            }
        }
        Ok(())
    }
}
