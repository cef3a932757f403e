//! Requests and answers as bytes. Little-endian, a head of 24 bytes, then bytes whose lengths the
//! head has.
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
//! A row is the lengths of key and value (32 bits each), the version, then key and value. Unused
//! fields are zero, and other values are refused, so that they can get a meaning later. Both sides
//! decode untrusted bytes: each length is checked against the message's length before it is used.

use std::{fmt, ops::Bound};

use drtm_rdma::{NodeId, Port, Reply, Verbs};
use smallvec::SmallVec;

use super::{error::RemoteError, refusal::Refusal};
use crate::{Holder, KvError, Leases, State, Version, layout::Place};

/// The number of bytes of the head of requests and answers.
pub(super) const HEAD: usize = 24;

/// The number of bytes of a row before its key.
const ROW_HEAD: usize = 16;

/// A request's bytes, on the stack if they are few, as they usually are.
pub(super) type Packet = SmallVec<[u8; 512]>;

/// The number of a table at a node's [`Service`](crate::Service).
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

/// A request to an owner.
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

/// The head of a request or an answer.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    kind: u8,
    detail: u8,
    table: u16,
    count: u32,
    a: u64,
    b: u64,
}

impl Head {
    fn to_bytes(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        (bytes[0], bytes[1]) = (self.kind, self.detail);
        bytes[2..4].copy_from_slice(&self.table.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.count.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.a.to_le_bytes());
        bytes[16..].copy_from_slice(&self.b.to_le_bytes());
        bytes
    }

    /// Returns the head of a message, and the rest. `None`: the message is shorter.
    fn split_from(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let ([kind, detail, words @ ..], tail) = bytes.split_first_chunk::<HEAD>()?;
        let ([t0, t1, c0, c1, c2, c3], numbers) = words.split_first_chunk()?;
        let [a, b] = numbers.as_chunks().0 else { return None };
        let (table, count) = (u16::from_le_bytes([*t0, *t1]), u32::from_le_bytes([*c0, *c1, *c2, *c3]));
        let (a, b) = (u64::from_le_bytes(*a), u64::from_le_bytes(*b));
        Some((Self { kind: *kind, detail: *detail, table, count, a, b }, tail))
    }
}

impl<'m> Request<'m> {
    /// Encodes the request to a table.
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
        // No table has keys so long, and no message: the owner or the fabric reports the error.
        let head = Head { kind: operation, detail: bounds, table: table.0, count: first.len() as u32, a, b };
        let mut packet = Packet::from_slice(&head.to_bytes());
        packet.extend_from_slice(first);
        packet.extend_from_slice(rest);
        packet
    }

    /// Decodes a request, and its table.
    pub(super) fn from_bytes(bytes: &'m [u8]) -> Result<(TableId, Self), Refusal> {
        let Some((Head { kind, detail, table, count, a, b }, tail)) = Head::split_from(bytes) else {
            return Err(Refusal::malformed("it is shorter than a head"));
        };
        let Some((first, rest)) = tail.split_at_checked(count as usize) else {
            return Err(Refusal::malformed("its key is longer than the message"));
        };
        let (bounds, numbers, has_rest) = match kind {
            INSERT | PUT | UPDATE => (detail == 0, a == 0 && b == 0, true),
            GET | REMOVE => (detail == 0, a == 0 && b == 0, rest.is_empty()),
            LOCK => (detail == 0, true, matches!(rest.len(), 0 | 8)),
            UNLOCK => (detail == 0, true, tail.is_empty()),
            RANGE => (detail < 16, true, a == rest.len() as u64),
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
        let request = match kind {
            GET => Self::Get { key },
            INSERT => Self::Insert { key, value },
            PUT => Self::Put { key, value },
            UPDATE => Self::Update { key, value },
            REMOVE => Self::Remove { key },
            LOCK => Self::Lock { key, place, holder: holder()?, leases },
            UNLOCK => Self::Unlock { place, holder: holder()? },
            _ => match (bound_from_bits(detail & 3, first), bound_from_bits(detail >> 2, rest)) {
                (Some(low), Some(high)) => Self::Range { low, high, rows: b },
                _ => return Err(Refusal::malformed("its bounds are none")),
            },
        };
        Ok((TableId(table), request))
    }
}

/// An owner's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer<'m> {
    /// The key is absent; for an insertion, it is present already.
    Not,
    /// The operation was done, with this version.
    Done(Version),
    Value(Version, &'m [u8]),
    Rows {
        count: u32,
        more: bool,
        rows: &'m [u8],
    },
    /// Another holder has locked the record.
    Busy,
    /// The record is not at the expected place.
    Stale,
    /// The holder does not have the lock: the state is this.
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
    /// Writes the head of the answer to `into`, which may have the other bytes behind it already.
    fn put_head(into: &mut Vec<u8>, head: Head) {
        into.resize(into.len().max(HEAD), 0);
        into[..HEAD].copy_from_slice(&head.to_bytes());
    }

    /// Encodes this answer into `into`.
    pub(super) fn put(&self, into: &mut Vec<u8>) {
        into.clear();
        let head = |kind| Head { kind, ..Head::default() };
        let (head, tail): (_, &[u8]) = match self {
            Self::Not => (head(NOT), &[]),
            Self::Done(version) => (Head { a: version.0, ..head(DONE) }, &[]),
            Self::Value(version, value) => (Head { a: version.0, ..head(VALUE) }, value),
            Self::Rows { count, more, rows } => (Head { detail: u8::from(*more), count: *count, ..head(ROWS) }, rows),
            Self::Busy => (head(BUSY), &[]),
            Self::Stale => (head(STALE), &[]),
            Self::Held(state) => (Head { a: state.0, ..head(HELD) }, &[]),
            Self::Refused(refusal) => {
                let (detail, a, b, text) = refusal.to_parts();
                (Head { detail, a, b, ..head(REFUSED) }, text.as_bytes())
            }
        };
        Self::put_head(into, head);
        into.extend_from_slice(tail);
    }

    /// Writes a head for the value behind it in `into`.
    pub(super) fn put_value_head(into: &mut Vec<u8>, version: Version) {
        Self::put_head(into, Head { kind: VALUE, a: version.0, ..Head::default() });
    }

    /// Writes a head for the rows behind it in `into`.
    pub(super) fn put_rows_head(into: &mut Vec<u8>, count: u32, more: bool) {
        Self::put_head(into, Head { kind: ROWS, detail: u8::from(more), count, ..Head::default() });
    }

    pub(super) fn from_bytes(bytes: &'m [u8]) -> Result<Self, RemoteError> {
        let Some((Head { kind, detail, count, a, b, .. }, tail)) = Head::split_from(bytes) else {
            return Err(RemoteError::Reply { what: "it is shorter than a head" });
        };
        let is_plain = detail == 0 && count == 0 && tail.is_empty();
        Ok(match kind {
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

impl From<Refusal> for Answer<'static> {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<KvError> for Answer<'static> {
    fn from(error: KvError) -> Self {
        match error {
            KvError::Busy => Self::Busy,
            error => Self::Refused(error.into()),
        }
    }
}

/// Appends a row, if the reply then has at most `most` bytes. `Err` has the row's length otherwise.
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

/// Splits the first row off. `None`: the bytes do not begin with a row.
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
    /// Decodes the answer. A refusal is an error.
    pub(super) fn answer(&self) -> Result<Answer<'_>, RemoteError> {
        match Answer::from_bytes(&self.0)? {
            Answer::Refused(refusal) => Err(refusal.into()),
            answer => Ok(answer),
        }
    }
}

/// Sends a request to an owner, and awaits its reply.
pub(super) async fn ask<'e, P: Port>(
    verbs: Verbs<'e, P>,
    owner: NodeId,
    request: &Packet,
) -> Result<Answered<'e, P>, RemoteError> {
    let (bytes, most) = (request.len(), verbs.endpoint().capabilities().max_message_bytes);
    if bytes > most {
        return Err(RemoteError::RequestTooLong { bytes, most });
    }
    Ok(Answered(verbs.call(owner, request).await?))
}
