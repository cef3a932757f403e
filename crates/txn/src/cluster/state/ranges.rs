//! Ranges that a transaction reads: the rows that owners have sent, merged with those that it
//! writes itself.
//!
//! No row is looked at again for each page, nor for each range.

use std::{
    collections::BTreeMap,
    ops::{Bound, Range, RangeBounds as _},
    rc::Rc,
};

use drtm_rdma::Port;
use smallvec::SmallVec;

use super::{State, finder::step};
use crate::{
    Error,
    cluster::{
        ask::{Ask, Asks},
        shard::{Reach, ShardId},
    },
    memory::{arena::ArenaKey, storage::KeyRef},
    tx::position::{Ends, Way},
};

/// From how many written rows on those of a range are found by an index.
const INDEX_FROM: usize = if cfg!(test) { 4 } else { 64 };

/// A range that is being read, as far as one node has its rows.
#[derive(Clone, Debug)]
pub(in crate::cluster) struct Span {
    pub(in crate::cluster) table: u16,
    /// The shard that has the rows, or the first of the node's.
    pub(in crate::cluster) shard: ShardId,
    /// Where the rows begin and end that were not read yet.
    pub(in crate::cluster) low: Bound<ArenaKey>,
    pub(in crate::cluster) high: Bound<ArenaKey>,
    /// From which end it is read.
    pub(in crate::cluster) way: Way,
    /// How many rows are wanted at once, at most.
    pub(in crate::cluster) most: u32,
    /// Whether the table is replicated: what was read of it stays so.
    pub(in crate::cluster) is_final: bool,
    pub(in crate::cluster) is_whole: bool,
    /// The rows that were read, in order.
    rows: Vec<u32>,
}

impl Span {
    /// Returns whether a key is of what was not read yet. The keys that it has are in these bytes.
    pub(in crate::cluster) fn has(&self, key: KeyRef<'_>, keys: &[u8]) -> bool {
        let range = (self.low.map(|key| key.in_bytes(keys)), self.high.map(|key| key.in_bytes(keys)));
        range.contains(&key)
    }

    /// Notes the next row, which has this key.
    pub(in crate::cluster) fn note_read(&mut self, row: u32, key: ArenaKey) {
        match self.way {
            Way::Up => self.low = Bound::Excluded(key),
            Way::Down => self.high = Bound::Excluded(key),
        }
        self.rows.push(row);
    }

    /// Returns whether a key may be behind rows of this span that are not read yet.
    fn may_precede(&self, key: KeyRef<'_>, keys: &[u8]) -> bool {
        let next = match self.way {
            Way::Up => self.low,
            Way::Down => self.high,
        };
        match next.map(|next| next.in_bytes(keys)) {
            Bound::Unbounded => !self.is_whole,
            Bound::Included(next) => !self.is_whole && (next == key || self.way.is_before(next, key)),
            Bound::Excluded(next) => !self.is_whole && self.way.is_before(next, key),
        }
    }
}

impl Way {
    /// Returns whether a key comes before another one.
    fn is_before(self, key: KeyRef<'_>, other: KeyRef<'_>) -> bool {
        match self {
            Self::Up => key < other,
            Self::Down => key > other,
        }
    }
}

/// A key that owns its bytes. Keys are in the order of [`KeyRef`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum OwnedKey {
    Word(u64),
    Bytes(Box<[u8]>),
}

impl From<KeyRef<'_>> for OwnedKey {
    fn from(key: KeyRef<'_>) -> Self {
        match key {
            KeyRef::Word(word) => Self::Word(word),
            KeyRef::Bytes(bytes) => Self::Bytes(bytes.into()),
        }
    }
}

/// The rows that a transaction gives values, by which ranges find them.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Puts {
    /// Each that it has given one, perhaps several times.
    rows: Vec<u32>,
    /// Those of the first `indexed` that still have one, by their keys.
    index: BTreeMap<(u16, OwnedKey), u32>,
    indexed: usize,
}

impl Puts {
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.index.clear();
        self.indexed = 0;
    }
}

impl<P: Port> State<'_, P> {
    /// Keeps the ends of a range until the transaction ends.
    pub(in crate::cluster) fn keep_ends(&mut self, ends: &Ends) -> Result<[Bound<ArenaKey>; 2], Error> {
        let mut keep = |bound: Bound<KeyRef<'_>>| {
            Ok::<_, Error>(match bound {
                Bound::Included(key) => Bound::Included(self.arena.keep_key(key)?),
                Bound::Excluded(key) => Bound::Excluded(self.arena.keep_key(key)?),
                Bound::Unbounded => Bound::Unbounded,
            })
        };
        let [low, high] = ends.bounds();
        Ok([keep(low)?, keep(high)?])
    }

    /// Adds the parts of a range that nodes have, of which so many rows are wanted at once: shards
    /// of one node are read together. Returns their numbers.
    pub(in crate::cluster) fn add_spans(
        &mut self,
        table: u16,
        [low, high]: [Bound<ArenaKey>; 2],
        way: Way,
        reach: Reach,
        (most, is_final): (usize, bool),
    ) -> Range<usize> {
        let (first, most) = (self.spans.len(), u32::try_from(most).unwrap_or(u32::MAX));
        self.add_owners(reach);
        let view = Rc::clone(&self.view);
        for shard in view.heads_of(reach) {
            let rows = Vec::new();
            self.spans.push(Span { table, shard, low, high, way, most, is_final, is_whole: false, rows });
        }
        first..self.spans.len()
    }

    /// Notes that the transaction gives a row a value.
    pub(super) fn note_put(&mut self, row: u32) {
        self.puts.rows.push(row);
    }

    /// Forgets that the transaction gives a row a value.
    pub(super) fn forget_put(&mut self, row: u32) {
        if !self.puts.index.is_empty() {
            let row = &self.rows[row as usize];
            self.puts.index.remove(&(row.table, row.key.in_bytes(&self.arena.keys).into()));
        }
    }

    /// Returns the first rows of a range that are there for the transaction: `limit` of them, or as
    /// many as are known for certain, and requests for the rows of its spans that are missing.
    pub(in crate::cluster) fn first_rows(
        &mut self,
        table: u16,
        bounds: [Bound<ArenaKey>; 2],
        way: Way,
        spans: Range<usize>,
        limit: usize,
    ) -> (Vec<u32>, Asks) {
        let unread = |state: &Self| -> Asks {
            let all = spans.clone().filter(|span| !state.spans[*span].is_whole);
            all.map(|span| Ask::Scan(span as u32)).collect()
        };
        let own = self.own_rows(table, bounds, way, limit);
        let known: usize = own.len() + self.spans[spans.clone()].iter().map(|span| span.rows.len()).sum::<usize>();
        let asks = unread(self);
        // Nothing can be said before there are as many.
        if limit == 0 || !asks.is_empty() && known < limit {
            return (Vec::new(), if limit == 0 { Asks::new() } else { asks });
        }
        let keys = &self.arena.keys;
        let key_of = |row: u32| {
            step();
            self.rows[row as usize].key.in_bytes(keys)
        };
        let mut sources: SmallVec<[&[u32]; 8]> = self.spans[spans.clone()].iter().map(|span| &span.rows[..]).collect();
        sources.push(&own);
        let mut found: Vec<u32> = Vec::with_capacity(known.min(limit));
        loop {
            let heads = sources.iter().zip(0..).filter_map(|(rows, source)| Some((*rows.first()?, source)));
            let next =
                heads.reduce(|one, other| if way.is_before(key_of(other.0), key_of(one.0)) { other } else { one });
            // Spans that are read up to their last row, and may have another one before the next.
            let is_open = |number: &usize| {
                let span = &self.spans[*number];
                sources[*number - spans.start].is_empty()
                    && next.map_or(!span.is_whole, |(row, _)| span.may_precede(key_of(row), keys))
            };
            if spans.clone().any(|span| is_open(&span)) {
                return (found, spans.clone().filter(is_open).map(|span| Ask::Scan(span as u32)).collect());
            }
            let Some((row, source)) = next else { return (found, Asks::new()) };
            sources[source] = &sources[source][1..];
            if found.last() != Some(&row) && self.rows[row as usize].is_there() {
                found.push(row);
                if found.len() == limit {
                    return (found, Asks::new());
                }
            }
        }
    }

    /// Returns the first rows of a range that the transaction gives values itself.
    fn own_rows(&mut self, table: u16, bounds: [Bound<ArenaKey>; 2], way: Way, limit: usize) -> Vec<u32> {
        let Self { puts, rows, arena, .. } = self;
        let (rows, keys) = (&*rows, &arena.keys);
        let key_of = |row: u32| {
            step();
            rows[row as usize].key.in_bytes(keys)
        };
        let [low, high] = bounds.map(|bound| bound.map(|key| key.in_bytes(keys)));
        let is_put = |row: &u32| rows[*row as usize].is_written() && rows[*row as usize].is_there();
        if puts.rows.len() < INDEX_FROM {
            let is_of =
                |row: &u32| rows[*row as usize].table == table && is_put(row) && (low, high).contains(&key_of(*row));
            let mut own: Vec<u32> = puts.rows.iter().copied().filter(is_of).collect();
            own.sort_unstable_by(|one, other| key_of(*one).cmp(&key_of(*other)));
            own.dedup();
            if way == Way::Down {
                own.reverse();
            }
            return own;
        }
        for row in puts.rows[puts.indexed..].iter().filter(|row| is_put(row)) {
            puts.index.insert((rows[*row as usize].table, key_of(*row).into()), *row);
        }
        puts.indexed = puts.rows.len();
        // A map has no such ranges.
        let is_empty = match (low, high) {
            (Bound::Excluded(low), Bound::Excluded(high)) => low >= high,
            (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => low > high,
            _ => false,
        };
        if is_empty {
            return Vec::new();
        }
        let low = match low {
            Bound::Unbounded => Bound::Included((table, OwnedKey::Word(0))),
            bound => bound.map(|key| (table, key.into())),
        };
        let high = match high {
            Bound::Unbounded => {
                table.checked_add(1).map_or(Bound::Unbounded, |next| Bound::Excluded((next, OwnedKey::Word(0))))
            }
            bound => bound.map(|key| (table, key.into())),
        };
        let own = puts.index.range((low, high)).map(|(_, row)| *row);
        match way {
            Way::Up => own.take(limit).collect(),
            Way::Down => own.rev().take(limit).collect(),
        }
    }
}
