//! Reading the rows of a range, a page at a time.

use std::ops::{Bound, ControlFlow};

use drtm_kv::{Handle, Holder, ReadEntry, Version};
use drtm_rdma::{Cost, Fabric, Port, rpc::Encode as _};
use smallvec::SmallVec;

use super::{
    About, Answer, On, Request, Serving, TxRequest,
    read::{Found, Is},
};
use crate::{
    Config, Error,
    cluster::{
        ClusterError, Refusal,
        participant::Participant,
        state::{Span, State},
        wire::{Many, messages},
    },
    memory::storage::{Absence, KeyRef},
    tx::position::Way,
};

/// Bytes of rows that are read at once on this node.
const PAGE: usize = 1 << 16;

/// About how many bytes a guard has in a message.
const GUARD_BYTES: usize = 40;

messages! {
    /// Asks for the rows of a range from its front, or from its back: as many as a message has room
    /// for, and no more than `most`.
    ScanRows<'a> {
        table: u16,
        low: Bound<KeyRef<'a>>,
        high: Bound<KeyRef<'a>>,
        holder: Holder,
        is_back: bool,
        most: u32,
    }
    /// A record of a range. If its version is a removed one, the row is not there.
    ScannedRow<'a> { key: KeyRef<'a>, at: Handle, version: Version, value: &'a [u8], }
    /// Rows of a range in the order of their keys, and the owner's count of changes from before.
    Scanned<'a> {
        count: u64,
        // Whether these are all that there are.
        is_whole: bool,
        // The position of a list of a hash table's keys behind these; zeros for rows of a range.
        next: u64,
        classes: u64,
        // The leaves, or buckets, that were passed.
        passed: SmallVec<[Absence; 8]>,
        rows: Many<'a, ScannedRow<'a>>,
    }
}

/// Reads the rows of a range from one end: so many at most, and as many as there is room for.
pub(in crate::cluster) enum Scan {}

impl Request for Scan {
    const NUMBER: u16 = 11;
    const COST: Option<Cost> = Some(Cost::Lookup);
    type Body<'a> = ScanRows<'a>;
    type Reply<'a> = Scanned<'a>;

    fn serve<'p, F: Fabric, S: On<F>>(body: ScanRows<'_>, at: Serving<'p, '_, F, S>) -> Answer<'p, Self> {
        let Serving { participant, worker, caller } = at;
        let ScanRows { table, low, high, holder, is_back, most } = body;
        // What a message has beside rows: leaves, most of all.
        let of_message = worker.endpoint().capabilities().max_message_bytes / 2;
        let room = if caller == worker.id() { PAGE } else { of_message };
        let count = participant.count()?;
        let served = participant.home.store(table)?;
        if !served.storage.is_ordered() {
            return list(participant, table, (low, high), room);
        }
        for key in [&low, &high] {
            if let Bound::Included(key) | Bound::Excluded(key) = key
                && !served.storage.takes(*key)
            {
                return Err(Refusal::NotItsKey);
            }
        }
        if let (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) =
            (low, high)
            && low > high
        {
            return Ok(Scanned {
                count,
                is_whole: true,
                next: 0,
                classes: 0,
                passed: SmallVec::new(),
                rows: Many::new(&[], 0),
            });
        }
        let way = if is_back { Way::Down } else { Way::Up };
        let (records, value) = (participant.home.db.store.records(), &mut participant.value);
        let (mut passed, mut refused, mut is_whole, mut left) = (Vec::new(), None, true, most);
        let (mut locked, mut count_of_rows) = (None, 0);
        value.clear();
        served.storage.scan((low, high, way), &mut passed, |key, ReadEntry { at, version }, bytes| {
            // Looked at after the value: a lock that was given up meanwhile has left another
            // version.
            if records.holder_of(at).is_some_and(|other| other != holder) {
                locked = Some(at);
                return ControlFlow::Break(());
            }
            let (end, bytes) = (value.len(), if version.is_removed() { &[] } else { bytes });
            ScannedRow { key, at, version, value: bytes }.encode(value);
            if value.len() > room {
                value.truncate(end);
                is_whole = false;
                refused = (end == 0).then_some(Refusal::TooLong);
                return ControlFlow::Break(());
            }
            count_of_rows += 1;
            left = left.saturating_sub(u32::from(!version.is_removed()));
            is_whole = left > 0;
            if is_whole { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if let Some(at) = locked {
            return Err(participant.locked(at, |holder| worker.is_dead(holder)));
        }
        match refused {
            Some(refusal) => Err(refusal),
            None => {
                let passed = passed.into_iter().map(Absence::Leaf).collect();
                Ok(Scanned {
                    count,
                    is_whole,
                    next: 0,
                    classes: 0,
                    passed,
                    rows: Many::new(&participant.value, count_of_rows),
                })
            }
        }
    }
}

/// Lists the next keys of a hash table, without their rows, and the guards of their buckets: from
/// the position between these bounds on, about as many as fit so many bytes.
fn list<'p, S: Config>(
    participant: &'p mut Participant<S>,
    table: u16,
    bounds: (Bound<KeyRef<'_>>, Bound<KeyRef<'_>>),
    room: usize,
) -> Result<Scanned<'p>, Refusal> {
    let count = participant.count()?;
    let served = participant.home.store(table)?;
    let mut tour = match bounds {
        (Bound::Unbounded, Bound::Unbounded) => served.storage.tour()?,
        (Bound::Included(KeyRef::Word(next)), Bound::Excluded(KeyRef::Word(classes))) => {
            served.storage.tour_at((next, classes))?.ok_or(Refusal::NotItsKey)?
        }
        _ => return Err(Refusal::NotOrdered),
    };
    let (keys, mut listed, mut passed) = (&mut participant.value, 0, SmallVec::<[Absence; 8]>::new());
    keys.clear();
    loop {
        let before = (tour.position(), keys.len(), listed, passed.len());
        let key = |key: KeyRef<'_>| {
            ScannedRow { key, at: Handle::default(), version: Version::default(), value: &[] }.encode(keys);
            listed += 1;
        };
        let guard = |guard| passed.push(guard);
        let has_more = served.storage.visit_some_guarded(&mut tour, guard, key)?;
        let is_full = keys.len() + GUARD_BYTES * passed.len() > room;
        if !is_full && has_more {
            continue;
        }
        let mut next = tour.position();
        if is_full {
            if before.3 == 0 {
                return Err(Refusal::TooLong);
            }
            (next, _, listed, _) = before;
            keys.truncate(before.1);
            passed.truncate(before.3);
        }
        let (next, classes) = next.unwrap_or_default();
        return Ok(Scanned { count, is_whole: !is_full, next, classes, passed, rows: Many::new(keys, listed) });
    }
}

impl<P: Port> State<'_, P> {
    /// Adds the rows of a hash table's keys, which are looked up afterwards.
    fn note_listed(&mut self, number: u32, listed: &Scanned<'_>) -> Result<(), Error> {
        let Span { table, shard, is_final, low, .. } = self.spans[number as usize];
        let Scanned { next, classes, .. } = *listed;
        let low_before = if let Bound::Included(key) = low { Some(key.in_bytes(&self.arena.keys)) } else { None };
        let is_further = low_before.is_none_or(|low| low < KeyRef::Word(next));
        if !listed.is_whole && !is_further {
            let node = self.node_at(shard);
            return Err(ClusterError::Nonsense { node, what: "a list of keys that does not go on" }.into());
        }
        for ScannedRow { key, .. } in listed.rows.iter() {
            let row = self.row_of_range(table, key, shard)?;
            self.rows[row as usize].is_final = is_final;
        }
        let (low, high) = (self.arena.keep_key(KeyRef::Word(next))?, self.arena.keep_key(KeyRef::Word(classes))?);
        let span = &mut self.spans[number as usize];
        (span.low, span.high) = (Bound::Included(low), Bound::Excluded(high));
        span.is_whole = listed.is_whole;
        Ok(())
    }
}

impl TxRequest for Scan {
    type Of = Self;
    const ABOUT: About = About::Span;

    fn body<'a, P: Port>(state: &'a State<'_, P>, span: u32) -> ScanRows<'a> {
        let Span { table, shard, low, high, way, most, .. } = state.spans[span as usize];
        let table = state.view.store_of(table, shard);
        let [low, high] = [low, high].map(|bound| bound.map(|key| key.in_bytes(&state.arena.keys)));
        ScanRows { table, low, high, holder: state.holder, is_back: way == Way::Down, most }
    }

    fn answered<P: Port>(state: &mut State<'_, P>, number: u32, scanned: Scanned<'_>) -> Result<(), Error> {
        let Span { table, shard, is_final, .. } = state.spans[number as usize];
        let node = state.node_at(shard);
        state.owner(node).note_count(scanned.count);
        if !is_final {
            scanned.passed.iter().for_each(|absence| state.guards.note(state.view.head(shard), *absence, None));
        }
        if scanned.classes > 0 {
            return state.note_listed(number, &scanned);
        }
        let mut has_some = false;
        for ScannedRow { key, at, version, value } in scanned.rows.iter() {
            if !state.spans[number as usize].has(key, &state.arena.keys) {
                return Err(ClusterError::Nonsense { node, what: "a row that is not of the range" }.into());
            }
            let row = state.row_of_range(table, key, shard)?;
            let key = state.rows[row as usize].key;
            state.spans[number as usize].note_read(row, key);
            has_some = true;
            state.rows[row as usize].is_final = is_final;
            // What the transaction writes itself is seen as it writes it. Whether others change it
            // is found out when it is locked.
            if !state.rows[row as usize].is_written() {
                state.note_found(row, &Found { count: scanned.count, is: Is::Record { at, version, value } })?;
            }
        }
        if !scanned.is_whole && !has_some {
            return Err(ClusterError::Nonsense { node, what: "no rows, and more to come" }.into());
        }
        state.spans[number as usize].is_whole = scanned.is_whole;
        Ok(())
    }
}
