//! Frames: what requesters and responders say to each other, byte by byte.
//!
//! ```text
//! request    kind u8 | signaled u8 | region u16 | count u32 | offset, or ticket of a call u64 | ...
//! response   kind u8 | zero u8     | code u16   | count u32 | ...
//! ```
//!
//! All numbers are little endian. `count` is words of a READ or WRITE, bytes of a message, and
//! operations of `Done`; what follows the head is as long as kind and count say. There is one
//! encoding of each frame, and a field without meaning is zero. Responses come in the order of
//! requests; a reply to a call comes whenever the call is answered.
//!
//! The decoder takes any bytes: it gives a frame, asks for more bytes, or refuses them. It never
//! asks for more than `LONGEST`.

use crate::{Buffers, Offset, RegionId, endpoint::port::Ticket};

/// Bytes of a request before what it carries.
const REQUEST_HEAD: usize = 16;

/// Bytes of a response before what it carries.
const RESPONSE_HEAD: usize = 8;

/// The longest frame.
const LONGEST: usize = REQUEST_HEAD + Buffers::LARGE;

// A response has a shorter head, and the ticket of a call.
const _: () = assert!(RESPONSE_HEAD + 8 + Buffers::LARGE <= LONGEST);

const READ: u8 = 1;
const WRITE: u8 = 2;
const SWAP: u8 = 3;
const ADD: u8 = 4;
const SEND: u8 = 5;
const CALL: u8 = 6;

const DONE: u8 = 1;
const VALUE: u8 = 2;
const WORDS: u8 = 3;
const FAILED: u8 = 4;
const STALLED: u8 = 5;
const REPLY: u8 = 6;
const REFUSAL: u8 = 7;

/// Bytes that are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// A decoded frame with its length; `None` where more bytes are needed.
pub(crate) type Decoded<T> = Result<Option<(T, usize)>, Malformed>;

/// An operation, as it is asked of a responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request<'a> {
    Read {
        region: RegionId,
        offset: Offset,
        words: usize,
    },
    /// The words are little endian.
    Write {
        region: RegionId,
        offset: Offset,
        words: &'a [u8],
    },
    CompareSwap {
        region: RegionId,
        offset: Offset,
        expected: u64,
        new: u64,
    },
    FetchAdd {
        region: RegionId,
        offset: Offset,
        add: u64,
    },
    Send {
        bytes: &'a [u8],
    },
    Call {
        ticket: Ticket,
        bytes: &'a [u8],
    },
}

impl Request<'_> {
    /// Returns the number of bytes that it moves.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Read { words, .. } => 8 * words,
            Self::Write { words: bytes, .. } | Self::Send { bytes } | Self::Call { bytes, .. } => bytes.len(),
            Self::CompareSwap { .. } | Self::FetchAdd { .. } => 8,
        }
    }
}

/// Why a responder carries an operation out no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    UnknownRegion,
    OutOfBounds,
}

/// What a responder says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Response<'a> {
    /// So many operations without a value are done.
    Done(u32),
    /// What an atomic found.
    Value(u64),
    /// What a READ fetched, little endian.
    Words(&'a [u8]),
    Failed(Failure),
    /// The next operation waits for room in the mailbox.
    Stalled,
    Reply {
        ticket: Ticket,
        bytes: &'a [u8],
    },
    /// A call was dropped without a reply.
    Refusal {
        ticket: Ticket,
    },
}

fn packed(ticket: Ticket) -> u64 {
    u64::from(ticket.index) | u64::from(ticket.generation) << 32
}

fn unpacked(ticket: u64) -> Ticket {
    Ticket { index: ticket as u32, generation: (ticket >> 32) as u32 }
}

/// Reads numbers off the front of bytes that are known to be long enough.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => unreachable!("the length was checked"),
        }
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }
}

/// Appends words, little endian.
pub(crate) fn put_words(words: &[u64], into: &mut Vec<u8>) {
    let start = into.len();
    into.resize(start + 8 * words.len(), 0);
    for (bytes, word) in into[start..].chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}

/// Copies little endian words.
pub(crate) fn get_words(bytes: &[u8], into: &mut [u64]) {
    for (word, bytes) in into.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = Fields(bytes).u64();
    }
}

fn request_head((kind, signaled): (u8, bool), region: RegionId, count: usize, at: u64, into: &mut Vec<u8>) {
    let mut head = [0; REQUEST_HEAD];
    head[0] = kind;
    head[1] = u8::from(signaled);
    head[2..4].copy_from_slice(&region.0.to_le_bytes());
    head[4..8].copy_from_slice(&(count as u32).to_le_bytes());
    head[8..16].copy_from_slice(&at.to_le_bytes());
    into.extend_from_slice(&head);
}

/// Appends a READ.
pub(crate) fn read(signaled: bool, region: RegionId, offset: Offset, words: usize, into: &mut Vec<u8>) {
    request_head((READ, signaled), region, words, offset.bytes(), into);
}

/// Appends a WRITE.
pub(crate) fn write(signaled: bool, region: RegionId, offset: Offset, words: &[u64], into: &mut Vec<u8>) {
    request_head((WRITE, signaled), region, words.len(), offset.bytes(), into);
    put_words(words, into);
}

/// Appends any other operation.
pub(crate) fn request(signaled: bool, request: &Request<'_>, into: &mut Vec<u8>) {
    let none = RegionId(0);
    match *request {
        Request::Read { region, offset, words } => read(signaled, region, offset, words, into),
        Request::Write { region, offset, words } => {
            request_head((WRITE, signaled), region, words.len() / 8, offset.bytes(), into);
            into.extend_from_slice(words);
        }
        Request::CompareSwap { region, offset, expected, new } => {
            request_head((SWAP, signaled), region, 0, offset.bytes(), into);
            put_words(&[expected, new], into);
        }
        Request::FetchAdd { region, offset, add } => {
            request_head((ADD, signaled), region, 0, offset.bytes(), into);
            put_words(&[add], into);
        }
        Request::Send { bytes } => {
            request_head((SEND, signaled), none, bytes.len(), 0, into);
            into.extend_from_slice(bytes);
        }
        Request::Call { ticket, bytes } => {
            request_head((CALL, signaled), none, bytes.len(), packed(ticket), into);
            into.extend_from_slice(bytes);
        }
    }
}

/// Decodes the first request among some bytes, and whether its completion is signaled. `None` if it
/// is incomplete.
pub(crate) fn decode_request(bytes: &[u8]) -> Decoded<(Request<'_>, bool)> {
    let Some((head, rest)) = bytes.split_first_chunk::<REQUEST_HEAD>() else { return Ok(None) };
    let mut fields = Fields(head);
    let [kind, signaled] = fields.bytes();
    let region = RegionId(u16::from_le_bytes(fields.bytes()));
    let count = u32::from_le_bytes(fields.bytes()) as usize;
    let at = fields.u64();
    let offset = Offset::new(at);
    let is_message = matches!(kind, SEND | CALL);
    let fits = match kind {
        READ | WRITE => count <= Buffers::LARGE / 8,
        SWAP | ADD => count == 0,
        SEND => count <= Buffers::LARGE && at == 0,
        CALL => count <= Buffers::LARGE && signaled == 1,
        _ => false,
    };
    if !fits || signaled > 1 || (is_message && region.0 != 0) || (!is_message && !at.is_multiple_of(8)) {
        return Err(Malformed);
    }
    let carried = match kind {
        READ => 0,
        WRITE => 8 * count,
        SWAP => 16,
        ADD => 8,
        _ => count,
    };
    let Some(carried) = rest.get(..carried) else { return Ok(None) };
    let mut words = Fields(carried);
    let request = match kind {
        READ => Request::Read { region, offset, words: count },
        WRITE => Request::Write { region, offset, words: carried },
        SWAP => Request::CompareSwap { region, offset, expected: words.u64(), new: words.u64() },
        ADD => Request::FetchAdd { region, offset, add: words.u64() },
        SEND => Request::Send { bytes: carried },
        _ => Request::Call { ticket: unpacked(at), bytes: carried },
    };
    Ok(Some(((request, signaled == 1), REQUEST_HEAD + carried.len())))
}

fn response_head(kind: u8, code: u16, count: usize, into: &mut Vec<u8>) {
    let [low, high] = code.to_le_bytes();
    let [a, b, c, d] = (count as u32).to_le_bytes();
    into.extend_from_slice(&[kind, 0, low, high, a, b, c, d]);
}

/// Appends a response.
pub(crate) fn response(response: &Response<'_>, into: &mut Vec<u8>) {
    match *response {
        Response::Done(count) => response_head(DONE, 0, count as usize, into),
        Response::Value(value) => {
            response_head(VALUE, 0, 0, into);
            put_words(&[value], into);
        }
        Response::Words(words) => {
            response_head(WORDS, 0, words.len() / 8, into);
            into.extend_from_slice(words);
        }
        Response::Failed(failure) => {
            let code = match failure {
                Failure::UnknownRegion => 1,
                Failure::OutOfBounds => 2,
            };
            response_head(FAILED, code, 0, into);
        }
        Response::Stalled => response_head(STALLED, 0, 0, into),
        Response::Reply { ticket, bytes } => {
            response_head(REPLY, 0, bytes.len(), into);
            put_words(&[packed(ticket)], into);
            into.extend_from_slice(bytes);
        }
        Response::Refusal { ticket } => {
            response_head(REFUSAL, 0, 0, into);
            put_words(&[packed(ticket)], into);
        }
    }
}

/// Appends the response to a READ.
pub(crate) fn words(words: &[u64], into: &mut Vec<u8>) {
    response_head(WORDS, 0, words.len(), into);
    put_words(words, into);
}

/// Decodes the first response among some bytes. `None` if it is incomplete.
pub(crate) fn decode_response(bytes: &[u8]) -> Decoded<Response<'_>> {
    let Some((head, rest)) = bytes.split_first_chunk::<RESPONSE_HEAD>() else { return Ok(None) };
    let mut fields = Fields(head);
    let [kind, zero] = fields.bytes();
    let code = u16::from_le_bytes(fields.bytes());
    let count = u32::from_le_bytes(fields.bytes()) as usize;
    let fits = match kind {
        DONE => count > 0,
        VALUE | STALLED | FAILED | REFUSAL => count == 0,
        WORDS => count <= Buffers::LARGE / 8,
        REPLY => count <= Buffers::LARGE,
        _ => false,
    };
    let failure = match (kind, code) {
        (FAILED, 1) => Some(Failure::UnknownRegion),
        (FAILED, 2) => Some(Failure::OutOfBounds),
        (FAILED, _) => return Err(Malformed),
        (_, 0) => None,
        _ => return Err(Malformed),
    };
    if !fits || zero != 0 {
        return Err(Malformed);
    }
    let carried = match kind {
        VALUE | REFUSAL => 8,
        WORDS => 8 * count,
        REPLY => 8 + count,
        _ => 0,
    };
    let Some(carried) = rest.get(..carried) else { return Ok(None) };
    let mut fields = Fields(carried);
    let response = match (kind, failure) {
        (DONE, _) => Response::Done(count as u32),
        (VALUE, _) => Response::Value(fields.u64()),
        (WORDS, _) => Response::Words(carried),
        (_, Some(failure)) => Response::Failed(failure),
        (STALLED, _) => Response::Stalled,
        (REPLY, _) => Response::Reply { ticket: unpacked(fields.u64()), bytes: fields.0 },
        _ => Response::Refusal { ticket: unpacked(fields.u64()) },
    };
    Ok(Some((response, RESPONSE_HEAD + carried.len())))
}
