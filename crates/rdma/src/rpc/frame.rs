//! The messages of the protocol, byte by byte.
//!
//! ```text
//!   request   magic u16 | version u8 | count u8 | budget u64 | tag u64 | calls
//!   call      procedure u16 | length u32 | request
//!   reply     magic u16 | version u8 | count u8 | tag u64 | results
//!   result    status u8 | length u32 | reply, or what there is to say of a refusal
//! ```
//!
//! All numbers are little-endian. `budget` is the time that the caller waits, in nanoseconds; the
//! greatest number means for ever. A `tag` is the application's.

use super::codec::{Decode, DecodeError, Encode, Reader};

const REQUEST: u16 = 0xD741;
const REPLY: u16 = 0xD742;
const VERSION: u8 = 3;

/// The bytes before each call's request.
const CALL_HEAD: usize = 6;

/// The most calls of one message.
pub(crate) const MOST_CALLS: usize = u8::MAX as usize;

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Done,
    /// The handler refused, with a number as its reason.
    Refused,
    UnknownProcedure,
    /// The request could not be decoded.
    Malformed,
    /// The caller no longer waits.
    Expired,
    /// The reply is too long for a message.
    TooLong,
}

impl Status {
    const ALL: [Self; 6] =
        [Self::Done, Self::Refused, Self::UnknownProcedure, Self::Malformed, Self::Expired, Self::TooLong];

    pub(crate) fn from_byte(byte: u8) -> Result<Self, DecodeError> {
        Self::ALL.get(usize::from(byte)).copied().ok_or(DecodeError::Invalid { what: "status of a call" })
    }
}

/// A valid message of calls.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Requests<'a> {
    /// The time that the caller waits, in nanoseconds.
    pub budget: u64,
    /// What the caller says with all of its calls.
    pub tag: u64,
    left: u8,
    calls: Reader<'a>,
}

/// One of its calls.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct Request<'a> {
    /// The called procedure.
    pub procedure: u16,
    /// The encoded request.
    pub bytes: &'a [u8],
}

/// Decodes a message of calls. It checks the whole message, so that the calls can be taken without
/// errors.
///
/// # Errors
///
/// When it is invalid.
#[doc(hidden)]
pub fn decode(bytes: &[u8]) -> Result<Requests<'_>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let left = head(&mut reader, REQUEST)?;
    let (budget, tag) = Decode::decode(&mut reader)?;
    let requests = Requests { budget, tag, left, calls: reader.clone() };
    for _ in 0..left {
        let _: (u16, &[u8]) = Decode::decode(&mut reader)?;
    }
    reader.finish()?;
    Ok(requests)
}

fn head(reader: &mut Reader<'_>, kind: u16) -> Result<u8, DecodeError> {
    let (magic, version, count) = <(u16, u8, u8)>::decode(reader)?;
    if magic != kind || version != VERSION {
        return Err(DecodeError::Foreign);
    }
    Ok(count)
}

impl<'a> Iterator for Requests<'a> {
    type Item = Request<'a>;

    fn next(&mut self) -> Option<Request<'a>> {
        self.left = self.left.checked_sub(1)?;
        // It was checked before.
        let (procedure, bytes) = Decode::decode(&mut self.calls).ok()?;
        Some(Request { procedure, bytes })
    }
}

/// Begins a message of calls with this tag. Its budget is set later.
pub(crate) fn begin_requests(into: &mut Vec<u8>, tag: u64) {
    into.clear();
    (REQUEST, VERSION, 0_u8, 0_u64, tag).encode(into);
}

/// Appends a call. Returns its place in the message, or `None` if it does not fit.
pub(crate) fn add_request(into: &mut Vec<u8>, procedure: u16, request: &impl Encode, most: usize) -> Option<u8> {
    let (before, count) = (into.len(), into[3]);
    if usize::from(count) == MOST_CALLS {
        return None;
    }
    let [low, high] = procedure.to_le_bytes();
    into.extend_from_slice(&[low, high, 0, 0, 0, 0]);
    request.encode(into);
    if into.len() > most {
        into.truncate(before);
        return None;
    }
    let length = (into.len() - before - CALL_HEAD) as u32;
    into[before + 2..before + CALL_HEAD].copy_from_slice(&length.to_le_bytes());
    into[3] = count + 1;
    Some(count)
}

/// Sets how long the caller waits.
pub(crate) fn seal_requests(into: &mut [u8], budget: u64) {
    into[4..12].copy_from_slice(&budget.to_le_bytes());
}

/// Begins a message of results. Its tag is set later.
pub(crate) fn begin_replies(into: &mut Vec<u8>) {
    into.clear();
    (REPLY, VERSION, 0_u8, 0_u64).encode(into);
}

/// Sets the tag of a message of results.
pub(crate) fn seal_replies(into: &mut [u8], tag: u64) {
    into[4..12].copy_from_slice(&tag.to_le_bytes());
}

/// Appends a result. `put` appends its reply.
pub(crate) fn add_reply(into: &mut Vec<u8>, most: usize, put: impl FnOnce(&mut Vec<u8>) -> Status) {
    let before = into.len();
    into.extend_from_slice(&[0; 5]);
    let mut status = put(into);
    if into.len() > most {
        into.truncate(before + 5);
        status = Status::TooLong;
    }
    let length = (into.len() - before - 5) as u32;
    into[before] = status as u8;
    into[before + 1..before + 5].copy_from_slice(&length.to_le_bytes());
    into[3] += 1;
}

/// A message of results, of which none is checked yet.
#[derive(Clone, Debug)]
pub(crate) struct Replies<'a> {
    /// What the handler says with all of its results.
    pub(crate) tag: u64,
    left: u8,
    results: Reader<'a>,
}

impl<'a> Replies<'a> {
    /// Decodes the head of a message of results.
    pub(crate) fn of(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut results = Reader::new(bytes);
        let left = head(&mut results, REPLY)?;
        Ok(Self { tag: Decode::decode(&mut results)?, left, results })
    }

    /// Takes the next result.
    pub(crate) fn take(&mut self) -> Result<(Status, &'a [u8]), DecodeError> {
        self.left = self.left.checked_sub(1).ok_or(DecodeError::Invalid { what: "number of results" })?;
        let (status, bytes) = <(u8, &[u8])>::decode(&mut self.results)?;
        Ok((Status::from_byte(status)?, bytes))
    }

    /// Passes over so many results.
    pub(crate) fn skip(&mut self, count: u8) -> Result<(), DecodeError> {
        (0..count).try_for_each(|_| self.take().map(drop))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The bytes before the first call.
    const HEAD: usize = 20;

    fn message(calls: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        begin_requests(&mut bytes, 7);
        for (procedure, request) in calls {
            add_request(&mut bytes, *procedure, &&request[..], usize::MAX).expect("room");
        }
        seal_requests(&mut bytes, 1_000);
        bytes
    }

    fn result(bytes: &[u8], place: u8) -> Result<(Status, &[u8]), DecodeError> {
        let mut replies = Replies::of(bytes)?;
        replies.skip(place)?;
        replies.take()
    }

    fn calls() -> impl Strategy<Value = Vec<(u16, Vec<u8>)>> {
        prop::collection::vec((any::<u16>(), prop::collection::vec(any::<u8>(), 0..20)), 0..10)
    }

    proptest! {
        #[test]
        fn calls_are_decoded_as_they_were_encoded(calls in calls()) {
            let bytes = message(&calls);
            let requests = decode(&bytes).expect("it is one");
            prop_assert_eq!((requests.budget, requests.tag), (1_000, 7));
            let found: Vec<_> = requests.map(|request| {
                (request.procedure, <&[u8]>::decode(&mut Reader::new(request.bytes)).expect("bytes").to_vec())
            }).collect();
            prop_assert_eq!(found, calls);
        }

        #[test]
        fn changed_bytes_are_an_error_or_other_calls_and_never_a_panic(
            calls in calls(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = message(&calls);
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            for bytes in [&bytes[..], &bytes[..cut.index(bytes.len())]] {
                if let Ok(requests) = decode(bytes) {
                    let count = usize::from(bytes[3]);
                    prop_assert_eq!(requests.count(), count);
                }
                for place in 0..4 {
                    let _ = result(bytes, place);
                }
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes).map(Iterator::count);
            let _ = result(&bytes, 0);
        }

        #[test]
        fn results_are_found_again(replies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..10)) {
            let mut bytes = Vec::new();
            begin_replies(&mut bytes);
            for reply in &replies {
                add_reply(&mut bytes, usize::MAX, |into| { into.extend_from_slice(reply); Status::Done });
            }
            seal_replies(&mut bytes, 7);
            let mut found = Replies::of(&bytes).expect("it is one");
            prop_assert_eq!(found.tag, 7);
            for (place, reply) in replies.iter().enumerate() {
                prop_assert_eq!(found.take(), Ok((Status::Done, &reply[..])));
                prop_assert_eq!(result(&bytes, place as u8), Ok((Status::Done, &reply[..])));
            }
            prop_assert!(found.take().is_err());
        }
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let mut bytes = Vec::new();
        begin_requests(&mut bytes, 0);
        assert_eq!(bytes.len(), HEAD);
        assert_eq!(add_request(&mut bytes, 1, &7_u32, HEAD + 10), Some(0));
        assert_eq!(add_request(&mut bytes, 1, &7_u32, HEAD + 10), None);
        assert_eq!(decode(&bytes).expect("it is one").count(), 1);
        begin_replies(&mut bytes);
        add_reply(&mut bytes, 20, |into| {
            into.extend_from_slice(&[0; 100]);
            Status::Done
        });
        assert_eq!(result(&bytes, 0), Ok((Status::TooLong, &[][..])));
    }
}
