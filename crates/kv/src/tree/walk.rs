//! Scans of byte strings: through the layers, from key to key.
//!
//! A scan is a stack of positions, one in each layer on the path to the current row. Within a layer
//! it goes from leaf to leaf as in a tree of integers. An entry that leads to a layer is followed
//! before the next entry. The range's bounds are sequences of words as keys are, so that within a
//! layer there is only a first and a last word.
//!
//! A layer is entered hand over hand, as in a descent. That fails if the leaf with the entry has
//! changed. It also fails if a row's record is no longer at its place. The words that led to the
//! current position are still known then, and the scan starts again at the top, from there on.

use std::{
    cmp::Ordering,
    mem,
    ops::{Bound, RangeBounds},
};

use drtm_htm::{Engine, Waiter};

use super::{
    Table,
    kind::Way,
    leaves::Leaves,
    node::{Known, Seen},
    rows::{Ahead, Direction, Passed},
    slices::{self, slices},
};
use crate::{
    KvError, Visibility,
    record::{
        FoundRow, KeyInto, Look, Record,
        keys::{Bytes, Sliced},
        value_sink::ValueSink,
    },
    store::layout::{Place, Target},
};

/// The position of a scan of byte strings.
#[derive(Debug)]
pub struct Walk {
    direction: Direction,
    /// The words at which to begin: all keys that begin with them are still to be returned.
    near: Vec<u64>,
    /// The words at which to end: all keys that begin with them are part of the range.
    far: Vec<u64>,
    /// The layers entered, the topmost first. Empty before the scan has begun, and when it has to
    /// start again.
    layers: Vec<Layer>,
    /// The common prefix of all keys of the current layer.
    prefix: Vec<u8>,
    is_over: bool,
    key: Vec<u8>,
    ahead: Ahead,
}

/// The position of a scan in one layer.
#[derive(Debug)]
struct Layer {
    root: Known,
    leaves: Leaves,
    /// Whether the range's edges go through this layer: then its words are edges too.
    has_near: bool,
    has_far: bool,
}

impl Layer {
    /// Returns [`Come::Lost`] for a word whose record is not where its entry says. The entry must
    /// have changed then.
    #[cold]
    fn lost<E: Engine, T>(&self, table: &Table<E>, word: u64, place: Place) -> Result<Come<T>, KvError> {
        let Some(leaf) = self.leaves.leaf() else { return Ok(Come::Lost) };
        let leaf = leaf.seen(table)?;
        let Seen { node, stamp } = leaf;
        let slot = node.below(stamp.count(), word);
        // In this order, since an entry is changed before its record is freed.
        let is_same = node.still(stamp) && slot < stamp.count() && node.link(slot) == place.to_link();
        if is_same { Err(leaf.inconsistent("an entry leads to another key's record")) } else { Ok(Come::Lost) }
    }
}

/// The outcome of reading a row.
enum Come<T> {
    To(T),
    /// The row is not in the range.
    Past,
    /// The record is no longer there.
    Lost,
}

impl Way<Bytes> for Walk {
    fn new<'k>(range: impl RangeBounds<&'k [u8]>, direction: Direction) -> Self {
        let (low, high) = (low_edge(range.start_bound()), high_edge(range.end_bound()));
        let is_over = high.is_none();
        let (near, far) = match direction {
            Direction::Up => (low, high.unwrap_or_default()),
            Direction::Down => (high.unwrap_or_default(), low),
        };
        let (layers, prefix, key) = (Vec::new(), Vec::new(), Vec::new());
        let mut walk = Self { direction, near, far, layers, prefix, is_over, key, ahead: Ahead::default() };
        walk.is_over |= walk.is_beyond_far();
        walk
    }

    fn expect(&mut self, ahead: Ahead) {
        self.ahead = ahead;
    }

    fn skip_to(&mut self, key: Bound<&[u8]>) {
        let near = match self.direction {
            Direction::Up => Some(low_edge(key.as_ref())),
            Direction::Down => high_edge(key.as_ref()),
        };
        self.is_over |= near.is_none();
        self.near = near.unwrap_or_default();
        self.is_over |= self.is_beyond_far();
        self.layers.clear();
        self.prefix.clear();
    }

    fn reverse(&mut self) {
        // What is left begins behind the last row: there may be new ones before the next.
        while let Some(layer) = self.layers.last() {
            if layer.leaves.has_more() { self.renew() } else { self.leave() }
        }
        self.prefix.clear();
        self.direction = match self.direction {
            Direction::Up => Direction::Down,
            Direction::Down => Direction::Up,
        };
        mem::swap(&mut self.near, &mut self.far);
        self.is_over |= self.is_beyond_far();
    }

    fn renew(&mut self) {
        // Without layers the walk begins again in any case.
        if !self.layers.is_empty() {
            let key = mem::take(&mut self.key);
            self.skip_to(Bound::Excluded(&key));
        }
    }

    fn next<'c, E: Engine, V: Visibility>(
        &'c mut self,
        table: &Table<E>,
        passed: &mut impl Passed,
        view: &mut V,
        value: &mut impl ValueSink,
    ) -> Result<Option<FoundRow<&'c [u8], V>>, KvError> {
        let waiter = Waiter::new();
        loop {
            let Some(layer) = self.layers.last_mut() else {
                if self.is_over {
                    return Ok(None);
                }
                self.push(Known::of(table.top()?), true, true);
                continue;
            };
            let since = table.since::<V>();
            let stuck_at = if let Some((word, link)) = layer.leaves.next_entry(table)? {
                let goes_on = match Target::of(link) {
                    Target::Layer(place) => self.enter(table, word, place)?,
                    Target::Record(place) => match self.come_to(table, word, place, view, value)? {
                        _ if table.may_have_come_round(since) => false,
                        Come::To(found) => return Ok(Some((&self.key, found))),
                        Come::Past => true,
                        Come::Lost => false,
                    },
                };
                if goes_on { None } else { Some(word) }
            } else if let Some(next) = layer.leaves.beyond() {
                if self.pass_leaf(table, next, passed)? { None } else { Some(next) }
            } else {
                self.leave();
                None
            };
            if let Some(word) = stuck_at {
                self.begin_again(word);
                waiter.pause();
            }
        }
    }
}

impl Walk {
    /// Returns whether the near edge lies beyond the far one.
    fn is_beyond_far(&self) -> bool {
        let differing = self.near.iter().zip(&self.far).find(|(near, far)| near != far);
        differing.is_some_and(|(near, far)| match self.direction {
            Direction::Up => near > far,
            Direction::Down => near < far,
        })
    }

    fn push(&mut self, root: Known, has_near: bool, has_far: bool) {
        let depth = self.layers.len();
        let edge = |has: bool, edge: &[u64]| if has { edge.get(depth).copied() } else { None };
        let (near, far) = (edge(has_near, &self.near), edge(has_far, &self.far));
        let (low, high) = match self.direction {
            Direction::Up => (near, far),
            Direction::Down => (far, near),
        };
        let mut leaves = Leaves::new(low.unwrap_or(0)..=high.unwrap_or(u64::MAX), self.direction);
        leaves.expect(self.ahead);
        self.layers.push(Layer { root, leaves, has_near, has_far });
    }

    /// Leaves the current layer, after all of its rows in the range.
    fn leave(&mut self) {
        self.layers.pop();
        self.prefix.truncate(slices::SLICE * self.layers.len().saturating_sub(1));
        self.is_over = self.layers.is_empty();
    }

    /// Goes back to the top, to begin at this word of the current layer. Keeps the exact near edge
    /// if the scan is still at it.
    #[cold]
    fn begin_again(&mut self, word: u64) {
        let depth = self.layers.len().saturating_sub(1);
        let is_at_edge = self.layers.last().is_some_and(|layer| layer.has_near) && self.near.get(depth) == Some(&word);
        if !is_at_edge {
            self.near.clear();
            self.near.extend(slices::going_on(&self.prefix));
            self.near.push(word);
        }
        self.prefix.clear();
        self.layers.clear();
    }

    /// Takes the rows of the leaf for the next word. Returns false if the layer has changed.
    fn pass_leaf<E: Engine>(&mut self, table: &Table<E>, next: u64, passed: &mut impl Passed) -> Result<bool, KvError> {
        let is_top = self.layers.len() == 1;
        let Some(layer) = self.layers.last_mut() else { return Ok(false) };
        let mut leaf = table.leaf_at(layer.leaves.hint(), next)?;
        if let Some(before) = layer.leaves.leaf() {
            // The next leaf of the layer is only valid if the leaf that links to it is unchanged.
            let Seen { node, stamp } = before.seen(table)?;
            leaf = leaf.filter(|_| node.still(stamp));
        }
        if leaf.is_none() {
            let root = if is_top { table.top()? } else { layer.root.seen(table)? };
            leaf = table.try_leaf(root, next)?;
        }
        Ok(leaf.is_some_and(|leaf| layer.leaves.pass(table, leaf, passed)))
    }

    /// Enters the layer that the current one's word leads to. Returns whether it still does.
    fn enter<E: Engine>(&mut self, table: &Table<E>, word: u64, place: u64) -> Result<bool, KvError> {
        let depth = self.layers.len() - 1;
        let Some(Layer { leaves, has_near, has_far, .. }) = self.layers.last() else { return Ok(false) };
        let Some(leaf) = leaves.leaf() else { return Ok(false) };
        let leaf = leaf.seen(table)?;
        let Some(root) = table.enter(&leaf, place)? else { return Ok(false) };
        if !slices::goes_on(word) || depth + 1 == slices::MOST {
            return Err(leaf.inconsistent("a layer is below the end of a key"));
        }
        let is_on = |edge: &[u64]| edge.get(depth) == Some(&word);
        let (has_near, has_far) = (*has_near && is_on(&self.near), *has_far && is_on(&self.far));
        self.push(Known::of(root), has_near, has_far);
        self.prefix.extend(slices::bytes(word));
        Ok(true)
    }

    /// Copies the row that the current layer's word leads to.
    #[inline(always)]
    fn come_to<E: Engine, V: Visibility>(
        &mut self,
        table: &Table<E>,
        word: u64,
        place: Place,
        view: &mut V,
        value: &mut impl ValueSink,
    ) -> Result<Come<V::Found>, KvError> {
        let depth = self.layers.len() - 1;
        let Some(layer) = self.layers.last() else { return Ok(Come::Lost) };
        let record = Record::at(table.region(), place)?;
        let waiter = Waiter::new();
        let found = loop {
            match record.read::<Sliced, V>(KeyInto(&mut self.key), view, value)? {
                Look::Found(found) if slices::leads(&self.key, &self.prefix, word) => break found,
                // This is treated like a row outside the range.
                Look::Absent => return Ok(Come::Past),
                Look::Busy => waiter.pause(),
                _ => return layer.lost(table, word, place),
            }
        };
        // Some keys that begin like an edge are beyond it.
        let is_beyond = |has_edge: bool, edge: &[u64], beyond: Ordering| {
            has_edge && edge.get(depth) == Some(&word) && slices::compare(&self.key, edge, depth + 1) == beyond
        };
        let (before_near, after_far) = match self.direction {
            Direction::Up => (Ordering::Less, Ordering::Greater),
            Direction::Down => (Ordering::Greater, Ordering::Less),
        };
        let is_past =
            is_beyond(layer.has_near, &self.near, before_near) || is_beyond(layer.has_far, &self.far, after_far);
        Ok(if is_past { Come::Past } else { Come::To(found) })
    }
}

/// Returns the words that no key in the range is below.
fn low_edge(bound: Bound<&&[u8]>) -> Vec<u64> {
    match bound {
        Bound::Included(key) => slices(key).collect(),
        // No key's words are between a key's own words and these words with the last one
        // incremented.
        Bound::Excluded(key) => with_last(key, |last| last + 1),
        Bound::Unbounded => Vec::new(),
    }
}

/// Returns the words that no key in the range is above. `None`: not even the empty key is in the
/// range.
fn high_edge(bound: Bound<&&[u8]>) -> Option<Vec<u64>> {
    Some(match bound {
        Bound::Included(key) => slices(key).collect(),
        Bound::Excluded([]) => return None,
        Bound::Excluded(key) => with_last(key, |last| last - 1),
        Bound::Unbounded => Vec::new(),
    })
}

/// Returns a key's words, with the last one changed. Its mark is from 1 to 7, or it is the empty
/// key's zero.
fn with_last(key: &[u8], change: impl FnOnce(u64) -> u64) -> Vec<u64> {
    let mut words: Vec<_> = slices(key).collect();
    if let Some(last) = words.last_mut() {
        *last = change(*last);
    }
    words
}
