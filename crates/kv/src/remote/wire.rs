//! Requests and answers as bytes. Little-endian, a head of 24 bytes, then bytes whose lengths the head has.
//!
//! ```text
//!          request                                   answer
//! byte 0   operation                                 kind
//!      1   bounds of a range: low (2 bits), high (2) what was refused; of rows: whether there are more
//!      2   table (16 bits)                           zero
//!      4   length of the key, or of a range's low    number of rows
//!      8   lock: the record's link (see the tree's   version; state; first number of a refusal
//!          leaves); range: length of high
//!     16   lock: the holder's state; range: most     second number of a refusal
//!          rows
//!     24.. key or low, then value or high; lock: key, value; rows; text of a refusal
//!          then the time, if leases may expire
//! ```
//!
//! A row is the lengths of key and value (32 bits each), the version, then key and value. Whatever is not used is zero, and what is not zero is
//! refused, so that it can get a meaning later. Both sides decode what may come from anyone: nothing is believed but what has been compared with
//! the message's length.

use std::{fmt, ops::Bound};

use drtm_rdma::{NodeId, Port, Reply, Verbs};

use super::{error::RemoteError, refusal::Refusal, scratch::Scratch};
use crate::{Holder, Leases, State, Version, layout::Place};

/// Bytes of the head of requests and answers.
pub(super) const HEAD: usize = 24;

/// Bytes of a row before its key.
const ROW_HEAD: usize = 16;

/// Requests that are laid out on the stack.
const SHORT: usize = 512;

/// The number by which a node's [`Service`](crate::Service) knows a table.
///
/// # Example
///
/// ```
/// assert_eq!(drtm_kv::TableId(3).to_string(), "table 3");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u16);

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {}", self.0)
    }
}

/// What an owner is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request<'m> {
    Get { key: &'m [u8] },
    Insert { key: &'m [u8], value: &'m [u8] },
    Put { key: &'m [u8], value: &'m [u8] },
    Update { key: &'m [u8], value: &'m [u8] },
    Remove { key: &'m [u8] },
    Range { low: Bound<&'m [u8]>, high: Bound<&'m [u8]>, rows: u64 },
    Lock { key: &'m [u8], place: Place, holder: Holder, leases: Leases },
    Unlock { place: Place, holder: Holder },
}

const GET: u8 = 1;
const INSERT: u8 = 2;
const PUT: u8 = 3;
const UPDATE: u8 = 4;
const REMOVE: u8 = 5;
const RANGE: u8 = 6;
const LOCK: u8 = 7;
const UNLOCK: u8 = 8;

/// A request's bytes.
#[derive(Debug)]
pub(super) struct Packet {
    scratch: Scratch<u8, SHORT>,
    length: usize,
}

fn bound_to_bits(bound: Bound<&[u8]>) -> (u8, &[u8]) {
    match bound {
        Bound::Included(key) => (0, key),
        Bound::Excluded(key) => (1, key),
        Bound::Unbounded => (2, &[]),
    }
}

fn bound_from_bits(bits: u8, key: &[u8]) -> Option<Bound<&[u8]>> {
    match bits {
        0 => Some(Bound::Included(key)),
        1 => Some(Bound::Excluded(key)),
        2 if key.is_empty() => Some(Bound::Unbounded),
        _ => None,
    }
}

fn u32_at(bytes: &[u8; HEAD], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}

fn u64_at(bytes: &[u8; HEAD], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}

impl<'m> Request<'m> {
    /// The request to a table, as bytes.
    pub(super) fn to_bytes(self, table: TableId) -> Packet {
        let now;
        let (operation, bounds, first, rest, a, b): (u8, u8, &[u8], &[u8], u64, u64) = match self {
            Self::Get { key } => (GET, 0, key, &[], 0, 0),
            Self::Insert { key, value } => (INSERT, 0, key, value, 0, 0),
            Self::Put { key, value } => (PUT, 0, key, value, 0, 0),
            Self::Update { key, value } => (UPDATE, 0, key, value, 0, 0),
            Self::Remove { key } => (REMOVE, 0, key, &[], 0, 0),
            Self::Range { low, high, rows } => {
                let ((low_bits, low), (high_bits, high)) = (bound_to_bits(low), bound_to_bits(high));
                (RANGE, low_bits | high_bits << 2, low, high, high.len() as u64, rows)
            }
            Self::Lock { key, place, holder, leases } => {
                let rest: &[u8] = match leases {
                    Leases::None => &[],
                    Leases::At(time) => {
                        now = time.to_le_bytes();
                        &now
                    }
                };
                (LOCK, 0, key, rest, place.to_link(), holder.word())
            }
            Self::Unlock { place, holder } => (UNLOCK, 0, &[], &[], place.to_link(), holder.word()),
        };
        let mut scratch = Scratch::new();
        let length = HEAD + first.len() + rest.len();
        let bytes = scratch.take(length);
        let (head, tail) = bytes.split_at_mut(HEAD);
        head[0] = operation;
        head[1] = bounds;
        head[2..4].copy_from_slice(&table.0.to_le_bytes());
        // A key that is longer has no table, and no message: the owner or the fabric says so.
        head[4..8].copy_from_slice(&(first.len() as u32).to_le_bytes());
        head[8..16].copy_from_slice(&a.to_le_bytes());
        head[16..].copy_from_slice(&b.to_le_bytes());
        tail[..first.len()].copy_from_slice(first);
        tail[first.len()..].copy_from_slice(rest);
        Packet { scratch, length }
    }

    /// What some bytes ask for, and of which table.
    pub(super) fn from_bytes(bytes: &'m [u8]) -> Result<(TableId, Self), Refusal> {
        let Some((head, tail)) = bytes.split_first_chunk::<HEAD>() else {
            return Err(Refusal::malformed("it is shorter than a head"));
        };
        let table = TableId(u16::from_le_bytes([head[2], head[3]]));
        let (a, b) = (u64_at(head, 8), u64_at(head, 16));
        let Some((first, rest)) = tail.split_at_checked(u32_at(head, 4) as usize) else {
            return Err(Refusal::malformed("its key is longer than the message"));
        };
        let (bounds, numbers, has_rest) = match head[0] {
            INSERT | PUT | UPDATE => (head[1] == 0, a == 0 && b == 0, true),
            GET | REMOVE => (head[1] == 0, a == 0 && b == 0, rest.is_empty()),
            LOCK => (head[1] == 0, true, matches!(rest.len(), 0 | 8)),
            UNLOCK => (head[1] == 0, true, tail.is_empty()),
            RANGE => (head[1] < 16, true, a == rest.len() as u64),
            _ => return Err(Refusal::malformed("there is no such operation")),
        };
        if !(bounds && numbers) {
            return Err(Refusal::malformed("it says more than the operation needs"));
        }
        if !has_rest {
            return Err(Refusal::malformed("its length is not what its head says"));
        }
        let (key, value, place) = (first, rest, Place::from_link(a));
        let holder = || State(b).holder().ok_or_else(|| Refusal::malformed("it names no holder of a lock"));
        let leases = rest.first_chunk().map_or(Leases::None, |now| Leases::At(u64::from_le_bytes(*now)));
        let request = match head[0] {
            GET => Self::Get { key },
            INSERT => Self::Insert { key, value },
            PUT => Self::Put { key, value },
            UPDATE => Self::Update { key, value },
            REMOVE => Self::Remove { key },
            LOCK => Self::Lock { key, place, holder: holder()?, leases },
            UNLOCK => Self::Unlock { place, holder: holder()? },
            _ => match (bound_from_bits(head[1] & 3, first), bound_from_bits(head[1] >> 2, rest)) {
                (Some(low), Some(high)) => Self::Range { low, high, rows: b },
                _ => return Err(Refusal::malformed("its bounds are none")),
            },
        };
        Ok((table, request))
    }
}

impl Packet {
    fn bytes(&mut self) -> &[u8] {
        self.scratch.take(self.length)
    }
}

/// What an owner answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer<'m> {
    /// There is no such key; for an insertion, there is one.
    Not,
    /// It was done, and this is the version that it concerns.
    Done(Version),
    Value(Version, &'m [u8]),
    Rows {
        count: u32,
        more: bool,
        rows: &'m [u8],
    },
    /// Somebody else holds the record.
    Busy,
    /// The record is not where it was said to be.
    Stale,
    /// The lock is not the holder's: the state is this.
    Held(State),
    Refused(Refusal),
}

const NOT: u8 = 1;
const DONE: u8 = 2;
const VALUE: u8 = 3;
const ROWS: u8 = 4;
const BUSY: u8 = 5;
const STALE: u8 = 6;
const HELD: u8 = 7;
const REFUSED: u8 = 8;

impl<'m> Answer<'m> {
    /// Puts the answer, whose bytes `into` may have already behind its head, into `into`.
    fn put_head(into: &mut Vec<u8>, kind: u8, detail: u8, count: u32, a: u64, b: u64) {
        let mut head = [0; HEAD];
        head[0] = kind;
        head[1] = detail;
        head[4..8].copy_from_slice(&count.to_le_bytes());
        head[8..16].copy_from_slice(&a.to_le_bytes());
        head[16..].copy_from_slice(&b.to_le_bytes());
        into.resize(into.len().max(HEAD), 0);
        into[..HEAD].copy_from_slice(&head);
    }

    /// Makes `into` the bytes of this answer.
    pub(super) fn put(&self, into: &mut Vec<u8>) {
        into.clear();
        let (kind, detail, count, a, b, tail): (u8, u8, u32, u64, u64, &[u8]) = match self {
            Self::Not => (NOT, 0, 0, 0, 0, &[]),
            Self::Done(version) => (DONE, 0, 0, version.0, 0, &[]),
            Self::Value(version, value) => (VALUE, 0, 0, version.0, 0, value),
            Self::Rows { count, more, rows } => (ROWS, u8::from(*more), *count, 0, 0, rows),
            Self::Busy => (BUSY, 0, 0, 0, 0, &[]),
            Self::Stale => (STALE, 0, 0, 0, 0, &[]),
            Self::Held(state) => (HELD, 0, 0, state.0, 0, &[]),
            Self::Refused(refusal) => {
                let (code, a, b, text) = refusal.to_parts();
                (REFUSED, code, 0, a, b, text.as_bytes())
            }
        };
        Self::put_head(into, kind, detail, count, a, b);
        into.extend_from_slice(tail);
    }

    /// Makes the bytes behind the head of `into` a value.
    pub(super) fn put_value_head(into: &mut Vec<u8>, version: Version) {
        Self::put_head(into, VALUE, 0, 0, version.0, 0);
    }

    /// Makes the bytes behind the head of `into` rows.
    pub(super) fn put_rows_head(into: &mut Vec<u8>, count: u32, more: bool) {
        Self::put_head(into, ROWS, u8::from(more), count, 0, 0);
    }

    pub(super) fn from_bytes(bytes: &'m [u8]) -> Result<Self, RemoteError> {
        let Some((head, tail)) = bytes.split_first_chunk::<HEAD>() else {
            return Err(RemoteError::Reply { what: "it is shorter than a head" });
        };
        let (detail, count, a, b) = (head[1], u32_at(head, 4), u64_at(head, 8), u64_at(head, 16));
        let is_plain = detail == 0 && count == 0 && tail.is_empty();
        Ok(match head[0] {
            NOT if is_plain => Self::Not,
            DONE if is_plain => Self::Done(Version(a)),
            VALUE => Self::Value(Version(a), tail),
            ROWS => Self::Rows { count, more: detail != 0, rows: tail },
            BUSY if is_plain => Self::Busy,
            STALE if is_plain => Self::Stale,
            HELD if is_plain => Self::Held(State(a)),
            REFUSED => Self::Refused(
                Refusal::from_parts(detail, a, b, tail)
                    .ok_or(RemoteError::Reply { what: "it refuses for a reason that is not known" })?,
            ),
            _ => return Err(RemoteError::Reply { what: "there is no such answer" }),
        })
    }
}

/// Appends a row, if it fits a reply of at most so many bytes. If not, tells how long it would be.
pub(super) fn put_row(
    into: &mut Vec<u8>,
    most: usize,
    key: &[u8],
    value: &[u8],
    version: Version,
) -> Result<(), usize> {
    let length = ROW_HEAD + key.len() + value.len();
    if into.len() + length > most {
        return Err(length);
    }
    into.extend_from_slice(&(key.len() as u32).to_le_bytes());
    into.extend_from_slice(&(value.len() as u32).to_le_bytes());
    into.extend_from_slice(&version.0.to_le_bytes());
    into.extend_from_slice(key);
    into.extend_from_slice(value);
    Ok(())
}

/// A row's key, value and version.
pub(super) type Row<'m> = (&'m [u8], &'m [u8], Version);

/// The first of some rows, and the others. `None` if the bytes do not begin with a row.
pub(super) fn split_row(rows: &[u8]) -> Option<(Row<'_>, &[u8])> {
    let (head, rest) = rows.split_first_chunk::<ROW_HEAD>()?;
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| head[at + byte])) as usize;
    let version = u64::from_le_bytes(std::array::from_fn(|byte| head[8 + byte]));
    let (key, rest) = rest.split_at_checked(word(0))?;
    let (value, rest) = rest.split_at_checked(word(4))?;
    Some(((key, value, Version(version)), rest))
}

/// An owner's reply.
pub(super) struct Answered<'e, P: Port>(pub(super) Reply<'e, P>);

impl<P: Port> Answered<'_, P> {
    /// What it says; what it refuses is an error.
    pub(super) fn answer(&self) -> Result<Answer<'_>, RemoteError> {
        match Answer::from_bytes(&self.0)? {
            Answer::Refused(refusal) => Err(refusal.into()),
            answer => Ok(answer),
        }
    }
}

/// Asks an owner.
pub(super) async fn call<'e, P: Port>(
    verbs: Verbs<'e, P>,
    owner: NodeId,
    mut request: Packet,
) -> Result<Answered<'e, P>, RemoteError> {
    ask(verbs, owner, &mut request).await
}

/// Asks an owner something that may be asked again.
pub(super) async fn ask<'e, P: Port>(
    verbs: Verbs<'e, P>,
    owner: NodeId,
    request: &mut Packet,
) -> Result<Answered<'e, P>, RemoteError> {
    let most = verbs.endpoint().capabilities().max_message_bytes;
    if request.length > most {
        return Err(RemoteError::RequestTooLong { bytes: request.length, most });
    }
    Ok(Answered(verbs.call(owner, request.bytes()).await?))
}
