//! Loading an empty tree with keys in their order.
//!
//! The nodes are made beside the tree, and stay locked until the root, which must still be as it was in the beginning, takes the uppermost in: readers
//! may have the places of nodes that were used before. Until then everything can be given back.

use drtm_htm::Engine;

use super::{Table, node::Node};
use crate::{
    KvError, Version, Worker, counter,
    keys::Inline,
    layout::{FANOUT, Place, Stamp},
    record::{Look, Record, Shape},
};

/// Entries in a node that is loaded: nine tenths, so that a few keys can be inserted anywhere before nodes are divided.
const FILLED: usize = FANOUT * 9 / 10;

impl<E: Engine> Table<E> {
    /// Gives how many keys there were.
    pub(super) fn load<V: AsRef<[u8]>>(
        &self,
        worker: &mut Worker<E>,
        rows: impl IntoIterator<Item = (u64, V)>,
    ) -> Result<u64, KvError> {
        let mut made = Made { table: self, nodes: Vec::new() };
        let loaded = self.load_beside(&mut made, worker, rows);
        if let Ok(Loaded { below_root: true, keys }) = loaded {
            return Ok(keys);
        }
        // If the root is a leaf, it has what another leaf was made for.
        if loaded.is_err() {
            made.nodes.iter().try_for_each(|blank| self.free_records(worker, blank))?;
        }
        for Blank { node, last, .. } in made.nodes {
            node.publish(last.retired());
            self.pool.give([node.place]);
        }
        Ok(loaded?.keys)
    }

    fn load_beside<'t, V: AsRef<[u8]>>(
        &'t self,
        made: &mut Made<'t, E>,
        worker: &mut Worker<E>,
        rows: impl IntoIterator<Item = (u64, V)>,
    ) -> Result<Loaded, KvError> {
        let root = self.leaf(0)?;
        if root.node.place != self.root || root.stamp.count() > 0 {
            return Err(KvError::NotEmpty);
        }
        let (mut entries, keys) = made.leaves(worker, rows, self.first_version()?)?;
        let mut level = 0;
        while entries.len() > FANOUT {
            level += 1;
            entries = made.level(level, &entries)?;
        }
        let below_root = entries.len() > 1;
        if below_root {
            level += 1;
        } else {
            // At most one leaf: the root can have its entries.
            entries = made.nodes.first().map(Blank::entries).unwrap_or_default();
        }
        let counter = self.counter()?;
        // Nobody has ever known of fresh memory, so that most nodes can be published before the root is locked.
        let (fresh, used): (Vec<_>, Vec<_>) = made.nodes.iter().partition(|blank| blank.last == Stamp(0));
        if below_root {
            fresh.into_iter().for_each(Blank::publish);
        }
        // As long as the root is as it was, nothing was removed, and so the version is above the floor.
        let Some(root) = root.try_lock() else { return Err(KvError::NotEmpty) };
        if below_root {
            used.into_iter().for_each(Blank::publish);
        }
        for (slot, (key, link)) in entries.iter().enumerate() {
            root.node.set(slot, *key, *link);
        }
        let stamp = root.seen.changed(entries.len()).at_level(level);
        root.release_as(stamp);
        counter::add(self.engine(), counter, worker.number(), keys as i64);
        Ok(Loaded { below_root, keys })
    }

    /// Frees the records of a leaf that has not become part of the tree.
    fn free_records(&self, worker: &mut Worker<E>, blank: &Blank<'_, E>) -> Result<(), KvError> {
        if blank.level > 0 {
            return Ok(());
        }
        for (key, link) in blank.entries() {
            let place = Place::from_link(link);
            let record = Record::at(self.region(), place)?;
            if let Look::Found(locked) = record.lock::<Inline>(key, worker.lock_state())? {
                let class = locked.class();
                locked.retire();
                worker.free(class, place.word);
            }
        }
        Ok(())
    }
}

/// What has become of a load.
struct Loaded {
    /// Whether the nodes that were made are in the tree: not if the root has room for everything.
    below_root: bool,
    keys: u64,
}

/// A node beside the tree, locked.
struct Blank<'t, E: Engine> {
    node: Node<'t, E>,
    /// The stamp of its memory's last use.
    last: Stamp,
    level: u8,
    count: usize,
}

impl<E: Engine> Blank<'_, E> {
    fn push(&mut self, key: u64, link: u64) {
        self.node.set(self.count, key, link);
        self.count += 1;
    }

    fn entries(&self) -> Vec<(u64, u64)> {
        (0..self.count).map(|slot| (self.node.key(slot), self.node.link(slot))).collect()
    }

    fn publish(&self) {
        self.node.publish(self.last.changed(self.count).at_level(self.level));
    }
}

/// All nodes beside the tree: level by level, each from the left.
struct Made<'t, E: Engine> {
    table: &'t Table<E>,
    nodes: Vec<Blank<'t, E>>,
}

impl<'t, E: Engine> Made<'t, E> {
    /// Makes the leaves and all records. Gives the leaves' lowest keys and places, and how many records there are.
    fn leaves<V: AsRef<[u8]>>(
        &mut self,
        worker: &mut Worker<E>,
        rows: impl IntoIterator<Item = (u64, V)>,
        version: Version,
    ) -> Result<(Vec<(u64, u64)>, u64), KvError> {
        let (mut before, mut count) = (None, 0);
        for (key, value) in rows {
            if let Some(after) = before.filter(|before| *before >= key) {
                return Err(KvError::NotAscending { key, after });
            }
            let value = value.as_ref();
            let shape = Shape::of::<Inline>(key, value.len(), self.table.checked)?;
            // The node first: once there is a record, a leaf must have it, or it would be lost.
            let leaf = self.with_room(0, key)?;
            let memory = worker.allocate(shape.class())?;
            let region = self.table.region();
            match Record::create::<Inline>(region, memory, shape, key, value, version) {
                Ok(place) => self.nodes[leaf].push(key, place.to_link()),
                Err(error) => {
                    worker.free(shape.class(), memory);
                    return Err(error.into());
                }
            }
            before = Some(key);
            count += 1;
        }
        Ok((self.places(0), count))
    }

    /// Makes the nodes above some. Gives their lowest keys and places.
    fn level(&mut self, level: u8, below: &[(u64, u64)]) -> Result<Vec<(u64, u64)>, KvError> {
        for (key, link) in below {
            let node = self.with_room(level, *key)?;
            self.nodes[node].push(*key, *link);
        }
        Ok(self.places(level))
    }

    fn places(&self, level: u8) -> Vec<(u64, u64)> {
        let nodes = self.nodes.iter().filter(|blank| blank.level == level);
        nodes.map(|blank| (blank.node.low(), blank.node.place)).collect()
    }

    /// The number of a node with room for this key, which is above all others on this level.
    fn with_room(&mut self, level: u8, key: u64) -> Result<usize, KvError> {
        let left = self.nodes.last().filter(|blank| blank.level == level);
        if left.is_some_and(|left| left.count < FILLED) {
            return Ok(self.nodes.len() - 1);
        }
        let place = self.table.pool.take(self.table.region(), 1)?[0];
        let node = self.table.node(place)?;
        let last = node.claim();
        let low = match left {
            None => 0,
            Some(left) => {
                left.node.set_high(key - 1);
                left.node.set_right(place);
                key
            }
        };
        node.set_low(low);
        node.set_high(u64::MAX);
        node.set_right(0);
        self.nodes.push(Blank { node, last, level, count: 0 });
        Ok(self.nodes.len() - 1)
    }
}
