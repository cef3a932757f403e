//! The readers of other processes' bytes, for fuzz targets and their corpora (`fuzz/`). They are
//! not part of the interface.

use drtm_htm::{Engine, LINE_WORDS, NoHtm, Word};

use crate::{
    Incarnation, NodeId, Offset, RegionId,
    endpoint::port::Ticket,
    fabric::tcp::{
        hello::{Answer, Hello, Purpose, Verdict},
        wire::{self, Failure, Request, Response},
    },
    rpc::{DecodeError, Encode, frame},
    sync::ring::{Consumer, DATA, FrameHead, FrameKind, Producer},
};

/// The words before a ring's frames: the tail is the first of them, and the head the ninth.
pub const RING_HEAD: usize = DATA;

/// A frame of a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    head: FrameHead,
    /// Its content.
    pub bytes: Vec<u8>,
}

impl Frame {
    /// Returns a frame, whose kind depends on the number.
    #[must_use]
    pub fn new(number: u32, bytes: Vec<u8>) -> Self {
        let kind = [FrameKind::Message, FrameKind::Call, FrameKind::Reply, FrameKind::Refusal][number as usize % 4];
        let ticket = Ticket { index: number, generation: !number };
        Self { head: FrameHead { kind, endpoint: number as u16, life: 3 * number, ticket }, bytes }
    }
}

/// Returns the words of a ring with these frames, the first of them at the line with a position.
/// `None` if they do not fit.
#[must_use]
pub fn ring(words: usize, position: u64, frames: &[Frame]) -> Option<Vec<u64>> {
    let ring: Vec<Word> = (0..DATA + words.next_power_of_two()).map(|_| Word::new(0)).collect();
    let position = position & !(LINE_WORDS as u64 - 1);
    NoHtm.store(&ring[0], position);
    NoHtm.store(&ring[8], position);
    let mut producer = Producer::new(&ring);
    let fit = frames.iter().all(|frame| producer.push(&ring, frame.head, &frame.bytes));
    fit.then(|| ring.iter().map(|word| NoHtm.load(word)).collect())
}

/// Returns the frames that a consumer takes from a ring, and whether the ring is valid to its end.
/// A producer then continues there too.
///
/// # Panics
///
/// Never; a panic is a finding.
#[must_use]
pub fn frames(ring: &[u64]) -> (Vec<Frame>, bool) {
    let mut found = Vec::new();
    let Some(data) = ring.len().checked_sub(DATA).filter(|data| *data >= LINE_WORDS) else { return (found, false) };
    // The number of words is a power of two.
    let ring: Vec<Word> = ring[..DATA + (1 << data.ilog2())].iter().map(|value| Word::new(*value)).collect();
    let (mut consumer, mut bytes) = (Consumer::new(&ring), Vec::new());
    let (started, size) = (consumer.position(), (ring.len() - DATA) as u64);
    let is_sound = loop {
        match consumer.pop(&ring, &mut bytes) {
            // One that overlaps the first is not of a ring.
            Ok(Some(_)) if consumer.position().wrapping_sub(started) > size => break false,
            Ok(Some(head)) => found.push(Frame { head, bytes: bytes.clone() }),
            Ok(None) => break NoHtm.load(&ring[0]) == consumer.position(),
            Err(_) => break false,
        }
    };
    let next = Frame::new(1, vec![1; 20]);
    let pushed = Producer::new(&ring).push(&ring, next.head, &next.bytes);
    if pushed && is_sound {
        assert_eq!(consumer.pop(&ring, &mut bytes), Ok(Some(next.head)), "a sound ring goes on");
        assert_eq!(bytes, next.bytes);
    }
    (found, is_sound)
}

/// A kind of frames of the fabric over TCP, each decoded in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Requests to a responder.
    Requests,
    /// A responder's responses.
    Responses,
    /// The introduction of a node.
    Hello,
    /// The answer to an introduction.
    Answer,
}

/// Decodes frames of a kind from the front of some bytes, and encodes them again. Returns those
/// bytes, the number of frames, and whether the rest is an incomplete frame: otherwise it is
/// malformed.
#[must_use]
pub fn said(kind: Said, bytes: &[u8]) -> (Vec<u8>, usize, bool) {
    let (mut again, mut frames) = (Vec::new(), 0);
    loop {
        let rest = &bytes[again.len()..];
        let decoded = match kind {
            Said::Requests => wire::decode_request(rest).map(|frame| {
                frame.map(|((request, signaled), length)| {
                    wire::request(signaled, &request, &mut again);
                    length
                })
            }),
            Said::Responses => wire::decode_response(rest).map(|frame| {
                frame.map(|(response, length)| {
                    wire::response(&response, &mut again);
                    length
                })
            }),
            Said::Hello => whole(Hello::decode(bytes).map(|hello| again.extend_from_slice(&hello.encode()))),
            Said::Answer => whole(Answer::decode(bytes).map(|answer| again.extend_from_slice(&answer.encode()))),
        };
        match decoded {
            Ok(Some(length)) => {
                frames += 1;
                assert!(length <= rest.len(), "a frame is not longer than what it was found in");
                if matches!(kind, Said::Hello | Said::Answer) {
                    return (again, frames, true);
                }
            }
            Ok(None) => return (again, frames, true),
            Err(_) => return (again, frames, false),
        }
    }
}

/// Converts a decoding that succeeds as a whole, or not at all.
fn whole(decoded: Option<()>) -> Result<Option<usize>, wire::Malformed> {
    decoded.map(|()| Some(0)).ok_or(wire::Malformed)
}

/// Returns frames of a kind, one of each sort, with this many bytes in those that carry data.
#[must_use]
pub fn samples(kind: Said, carried: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (region, offset) = (RegionId(3), Offset::new(4096));
    let ticket = Ticket { index: 7, generation: 9 };
    let carried = vec![0xA5; carried];
    let words = &carried[..carried.len() / 8 * 8];
    match kind {
        Said::Requests => {
            let requests = [
                Request::Read { region, offset, words: words.len() / 8 },
                Request::Write { region, offset, words },
                Request::CompareSwap { region, offset, expected: 1, new: u64::MAX },
                Request::FetchAdd { region, offset, add: 1 },
                Request::Send { bytes: &carried },
                Request::Call { ticket, bytes: &carried },
            ];
            requests.iter().for_each(|request| wire::request(true, request, &mut bytes));
            requests[..5].iter().for_each(|request| wire::request(false, request, &mut bytes));
        }
        Said::Responses => {
            let responses = [
                Response::Done(3),
                Response::Value(u64::MAX),
                Response::Words(words),
                Response::Failed(Failure::UnknownRegion),
                Response::Failed(Failure::OutOfBounds),
                Response::Stalled,
                Response::Reply { ticket, bytes: &carried },
                Response::Refusal { ticket },
            ];
            responses.iter().for_each(|response| wire::response(response, &mut bytes));
        }
        Said::Hello => {
            let purpose = match carried.len() {
                0 => Purpose::Link,
                1 => Purpose::Visit,
                2 => Purpose::Letters,
                life => Purpose::Endpoint { endpoint: 3, life: life as u32, expected: Incarnation(2) },
            };
            let (from, to, incarnation) = (NodeId(1), NodeId(2), Incarnation(5));
            let at = (std::net::Ipv4Addr::LOCALHOST, 7001).into();
            bytes.extend(Hello { purpose, sealed: true, engine: 1, from, to, incarnation, at }.encode());
        }
        Said::Answer => {
            let verdict = if carried.is_empty() { Verdict::Welcome } else { Verdict::Stale };
            bytes.extend(Answer { verdict, incarnation: Incarnation(5) }.encode());
        }
    }
    bytes
}

/// Returns a message of calls.
#[must_use]
pub fn requests(budget: u64, tag: u64, calls: &[(u16, Vec<u8>)]) -> Vec<u8> {
    struct Raw<'a>(&'a [u8]);
    impl Encode for Raw<'_> {
        fn encode(&self, into: &mut Vec<u8>) {
            into.extend_from_slice(self.0);
        }
    }
    let mut message = Vec::new();
    frame::begin_requests(&mut message, tag);
    for (procedure, request) in calls {
        let added = frame::add_request(&mut message, *procedure, &Raw(request), usize::MAX);
        debug_assert!(added.is_some(), "more calls than a message has");
    }
    frame::seal_requests(&mut message, budget);
    message
}

/// Returns a message of results.
#[must_use]
pub fn replies(tag: u64, results: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut message = Vec::new();
    frame::begin_replies(&mut message);
    for (status, reply) in results {
        frame::add_reply(&mut message, usize::MAX, |into| {
            into.extend_from_slice(reply);
            frame::Status::from_byte(*status).unwrap_or(frame::Status::Malformed)
        });
    }
    frame::seal_replies(&mut message, tag);
    message
}

/// Returns the tag of a message of results.
///
/// # Errors
///
/// When it is none.
pub fn tag(message: &[u8]) -> Result<u64, DecodeError> {
    frame::Replies::of(message).map(|replies| replies.tag)
}

/// Returns one result of a message of results: the status of the call, as a number, and its reply.
///
/// # Errors
///
/// When there is no such result.
pub fn result(message: &[u8], place: u8) -> Result<(u8, &[u8]), DecodeError> {
    let mut replies = frame::Replies::of(message)?;
    replies.skip(place)?;
    replies.take().map(|(status, bytes)| (status as u8, bytes))
}
