//! Byte strings in a tree: layers of trees of words.
//!
//! A byte string is a sequence of *slices* (see `slices`), each of which is a word. A *layer* is a
//! tree of such words, like the tree of integers. An entry whose slice ends the key leads to the
//! key's record. An entry whose slice continues leads to a record too, as long as only one key
//! begins like that: the record has the whole key. When a second such key is inserted, the entry
//! leads to the next layer instead, with the rest of both keys:
//!
//! ```text
//!  apple  banana·             apple  banana·─────┐
//!    │       │         ->       │                split  stand
//!    r       r (bananasplit)    r                  │      │
//!                                                  r      r
//! ```
//!
//! So every separator is a word, and no comparison during a descent reads a record. A layer's root
//! never moves, like the tree's. When an entry is changed to lead to a layer, its leaf gets a new
//! stamp. So a reader that has seen a key absent there detects it.
//!
//! # Readers
//!
//! A node that leaves can become a node of another layer, so its range does not prove that a reader
//! is in the right place. But nodes are followed hand over hand, as within every layer (see
//! `search`), also into a layer, and by a scan to the next leaf. After a node's stamp has been
//! loaded, the node that led there must be unchanged. Then the node was part of the layer at that
//! time, and still is as long as its own stamp is unchanged. The topmost root never moves.
//!
//! # Changes of guards
//!
//! Creating layers changes the leaf with the entry. Each new layer is reported as split off from
//! the one above. When layers leave, that leaf takes over from their roots. So a transaction that
//! has read leaves [updates its guards](super::LeafChange) as in a tree of integers.

use drtm_htm::Engine;

use super::{
    LeafChange, NodeVersion, Table,
    insert_point::{InsertPoint, Put},
    node::{Blank, Locked, Node, Seen},
    slices::{self, slice},
};
use crate::{
    Current, KvError, Turn, Version,
    record::{
        KeyInto, Look, Record,
        keys::{Keys, Sliced},
        value_sink::NoValue,
    },
    store::layout::{Place, Target},
};

impl<E: Engine> Table<E> {
    /// Returns the end of a key's path. It is at the key's record, at a record of another key with
    /// the same slices so far, or where the key is absent.
    #[inline(always)]
    pub(super) fn insert_point_of_bytes(&self, key: &[u8]) -> Result<InsertPoint<'_, E>, KvError> {
        Sliced::kept(key)?;
        Ok(until!(self.try_way(key, |_| ())?))
    }

    /// Follows a key's path through the layers to its end. Calls `pass` with each point where it
    /// enters the next layer. `None`: a node on the path is being changed, or has left the tree.
    #[inline(always)]
    pub(super) fn try_way<'t>(
        &'t self,
        key: &[u8],
        mut pass: impl FnMut(InsertPoint<'t, E>),
    ) -> Result<Option<InsertPoint<'t, E>>, KvError> {
        let (mut root, mut depth) = (self.top()?, 0);
        loop {
            let slice = slice(key, depth);
            let Some(point) = self.try_spot(root, depth, slice)? else { return Ok(None) };
            let Some(Target::Layer(place)) = point.link.map(Target::of) else { return Ok(Some(point)) };
            if !slices::goes_on(slice) {
                return Err(point.leaf.inconsistent("a layer is below the end of a key"));
            }
            let Some(next) = self.enter(&point.leaf, place)? else { return Ok(None) };
            pass(point);
            (root, depth) = (next, depth + 1);
        }
    }

    /// Returns the root of a layer. `None`: the leaf that led there has changed.
    #[inline(always)]
    pub(super) fn enter(&self, leaf: &Seen<'_, E>, place: u64) -> Result<Option<Seen<'_, E>>, KvError> {
        let node = self.node(place)?;
        let stamp = node.stamp();
        Ok(leaf.node.still(leaf.stamp).then_some(Seen { node, stamp }))
    }

    /// Puts a record where the path of its key ends at another key's record. Creates the layers for
    /// the slices that both share, and the layer in which they differ.
    #[cold]
    #[inline(never)]
    pub(super) fn put_parting(
        &self,
        point: &InsertPoint<'_, E>,
        key: &[u8],
        link: u64,
        version: Version,
        note: &mut impl FnMut(LeafChange),
    ) -> Result<Put, KvError> {
        let Some(other_place) = point.record() else { return Ok(Put::Retry) };
        let since = Turn::of(self.region());
        // This validates that the entry led to the record before the record is read.
        if !point.leaf.node.still(point.leaf.stamp) || point.leaf.node.link(point.slot) != other_place.to_link() {
            return Ok(Put::Retry);
        }
        let mut other = Vec::new();
        let record = Record::at(self.region(), other_place)?;
        let read = record.read::<Sliced, _>(KeyInto(&mut other), &mut Current, &mut NoValue)?;
        let Look::Found(_) = read else { return Ok(Put::Retry) };
        // All keys on this path share these slices. If this one does not, the record is no longer
        // this entry's, or the tree is corrupt.
        let goes_same_way =
            slices::common(key, &other, 0) > point.depth && slices::goes_on(point.word) && *key != *other;
        if !goes_same_way {
            let is_wrong =
                point.leaf.node.still(point.leaf.stamp) && point.leaf.node.link(point.slot) == other_place.to_link();
            return if is_wrong {
                Err(point.leaf.inconsistent("a key leads to another's record"))
            } else {
                Ok(Put::Retry)
            };
        }
        let first = point.depth + 1;
        let parting = first + slices::common(key, &other, first);
        if !since.holds_in(self.region()) {
            return Ok(Put::Retry);
        }
        let mut places = self.pool.take_all(&self.base.store, parting + 1 - first)?;
        let put = match point.leaf.try_lock() {
            None => Ok(Put::Retry),
            Some(leaf) => self.part(leaf, point, &mut places, (key, &other), parting, link, version, note),
        };
        self.pool.give(places);
        put
    }

    /// Lets a locked leaf's entry lead to new layers, down to the one in which two keys differ.
    /// Uses up the places then.
    ///
    /// The record that was there may have moved since its key was read, but it is the same key's:
    /// the leaf's stamp is unchanged.
    #[expect(clippy::too_many_arguments, reason = "two keys and what is to be put where they part")]
    #[inline(never)]
    fn part(
        &self,
        leaf: Locked<'_, E>,
        point: &InsertPoint<'_, E>,
        places: &mut Vec<u64>,
        (key, other): (&[u8], &[u8]),
        parting: usize,
        link: u64,
        version: Version,
        note: &mut impl FnMut(LeafChange),
    ) -> Result<Put, KvError> {
        if let Some(floor) = self.base.floor_above(version)? {
            return Ok(Put::Below(floor));
        }
        let nodes: Vec<_> = places.iter().map(|place| self.node(*place)).collect::<Result<_, _>>()?;
        let record = Record::at(self.region(), Place::from_link(link))?;
        places.clear();
        record.unlock();
        let (one, two) = ((slice(key, parting), link), (slice(other, parting), leaf.node.link(point.slot)));
        let mut entries = vec![one.min(two), one.max(two)];
        let mut made = Vec::with_capacity(nodes.len());
        for (node, depth) in nodes.into_iter().zip((point.depth..parting).rev()) {
            made.push(fill(node, &entries));
            entries = vec![(slice(key, depth), Target::Layer(node.place).to_link())];
        }
        let (count, at) = (leaf.count(), leaf.node.place);
        entries.into_iter().for_each(|(word, link)| leaf.node.set(point.slot, word, link));
        let mut change = leaf.release(count);
        for layer in made.into_iter().rev() {
            note(LeafChange { split_off: Some(layer), ..change });
            change = LeafChange { before: layer, after: layer, split_off: None };
        }
        Ok(Put::Done(at))
    }
}

/// Makes a layer of a node that no thread can find yet. Returns its version.
fn fill<E: Engine>(node: Node<'_, E>, entries: &[(u64, u64)]) -> NodeVersion {
    let blank = Blank::of(node);
    node.set_low(0);
    node.set_end(u64::MAX, 0);
    for (slot, (word, link)) in entries.iter().enumerate() {
        node.set(slot, *word, *link);
    }
    blank.publish(0, entries.len())
}
