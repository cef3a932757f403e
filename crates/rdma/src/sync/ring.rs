//! A ring of frames in shared memory, with one producer and one consumer, which may be processes.
//!
//! ```text
//! word  0        tail: words ever written; the producer's
//!       8        head: words ever freed; the consumer's
//!       16..     the frames, each of whole lines: a head of three words, and its bytes
//! ```
//!
//! A frame is published by one store of its first word, which is zero until then. The consumer
//! waits for that word, so a short frame comes with it, in one line, and no other line goes from
//! processor to processor. The consumer clears the first word of each line that it frees. A
//! producer that dies before the store has written nothing, and one that dies after it has written
//! all. A consumer that dies frees nothing more, and the producer finds the ring full.
//!
//! Each side keeps its own count in its own memory and only stores it: the next one in its place
//! continues there. The producer reads the other side's count, and trusts it only within bounds. A
//! frame with an invalid head makes a ring [`Corrupt`], and it is not read any more. Whatever its
//! words are, no word outside the ring is accessed.

use drtm_htm::{Engine, LINE_WORDS, NoHtm, Word};

use crate::{endpoint::port::Ticket, fabric::die, words_for};

const TAIL: usize = 0;
const HEAD: usize = 8;
/// The words before the frames.
pub(crate) const DATA: usize = 16;

/// The words of a frame's head.
pub(crate) const FRAME_HEAD: usize = 3;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Message,
    Call,
    Reply,
    /// A call was dropped without a reply.
    Refusal,
}

/// The head of a frame.
///
/// ```text
/// word 0   length in bytes (32 bits), kind (16), endpoint of the caller (16)
///      1   ticket: index (32), generation (32)
///      2   the caller's life (32), zero (32)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHead {
    pub(crate) kind: FrameKind,
    pub(crate) endpoint: u16,
    pub(crate) life: u32,
    pub(crate) ticket: Ticket,
}

impl FrameHead {
    fn packed(self, bytes: usize) -> [u64; FRAME_HEAD] {
        let kind = match self.kind {
            FrameKind::Message => 1,
            FrameKind::Call => 2,
            FrameKind::Reply => 3,
            FrameKind::Refusal => 4,
        };
        [
            bytes as u64 | kind << 32 | u64::from(self.endpoint) << 48,
            u64::from(self.ticket.index) | u64::from(self.ticket.generation) << 32,
            u64::from(self.life),
        ]
    }

    /// Decodes the head and the length. `None` if they are invalid.
    fn unpacked(words: [u64; FRAME_HEAD]) -> Option<(Self, usize)> {
        let kind = match (words[0] >> 32) as u16 {
            1 => FrameKind::Message,
            2 => FrameKind::Call,
            3 => FrameKind::Reply,
            4 => FrameKind::Refusal,
            _ => return None,
        };
        let ticket = Ticket { index: words[1] as u32, generation: (words[1] >> 32) as u32 };
        let head = Self { kind, endpoint: (words[0] >> 48) as u16, life: words[2] as u32, ticket };
        Some((head, words[0] as u32 as usize))
    }
}

/// The error of a ring with invalid contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Corrupt;

/// Returns the words that a frame of this many bytes needs.
const fn frame_words(bytes: usize) -> u64 {
    (FRAME_HEAD + words_for(bytes)).next_multiple_of(LINE_WORDS) as u64
}

/// Returns a count that one side has stored, as it must be.
fn count(ring: &[Word], of: usize) -> u64 {
    // It is a multiple of lines, unless it is damaged.
    NoHtm.load(&ring[of]) & !(LINE_WORDS as u64 - 1)
}

/// Returns the first word of the frame at a position.
#[inline(always)]
fn first(data: &[Word], position: u64) -> &Word {
    // The number of words is a power of two.
    &data[(position & (data.len() as u64 - 1)) as usize]
}

/// Returns `count` words from a position on: at most two pieces.
fn pieces(data: &[Word], position: u64, count: usize) -> (&[Word], &[Word]) {
    // The number of words is a power of two.
    let start = (position & (data.len() as u64 - 1)) as usize;
    let first = count.min(data.len() - start);
    (&data[start..start + first], &data[..count - first])
}

/// Returns the data of a ring, whose size must be a power of two, and a line at least.
fn data(ring: &[Word]) -> &[Word] {
    let data = &ring[DATA..];
    debug_assert!(data.len().is_power_of_two() && data.len() >= LINE_WORDS);
    data
}

/// Writes bytes to the end of the data and to its beginning.
#[cold]
fn store_wrapped(first: &[Word], second: &[Word], bytes: &[u8]) {
    let (before, after) = bytes.split_at(bytes.len().min(8 * first.len()));
    NoHtm.store_bytes(first, before);
    NoHtm.store_bytes(second, after);
}

/// Reads bytes from the end of the data and from its beginning.
#[cold]
fn load_wrapped(first: &[Word], second: &[Word], into: &mut [u8]) {
    let (before, after) = into.split_at_mut(into.len().min(8 * first.len()));
    NoHtm.load_bytes(first, before);
    NoHtm.load_bytes(second, after);
}

/// The writing side.
#[derive(Debug)]
pub(crate) struct Producer {
    tail: u64,
    /// The consumer's count, as last read.
    head: u64,
}

impl Producer {
    /// Continues at the ring's position. An earlier producer of the ring must have ended.
    pub(crate) fn new(ring: &[Word]) -> Self {
        Self { tail: count(ring, TAIL), head: count(ring, HEAD) }
    }

    /// Returns whether the consumer has taken all frames.
    pub(crate) fn is_drained(&self, ring: &[Word]) -> bool {
        NoHtm.load(&ring[HEAD]) == self.tail
    }

    /// Writes a frame. Returns false if there is no room.
    pub(crate) fn push(&mut self, ring: &[Word], head: FrameHead, bytes: &[u8]) -> bool {
        let data = data(ring);
        let words = frame_words(bytes.len());
        let room = |head: u64| data.len() as u64 - self.tail.wrapping_sub(head).min(data.len() as u64);
        if room(self.head) < words {
            self.head = NoHtm.load(&ring[HEAD]);
            if room(self.head) < words {
                return false;
            }
        }
        die::site("frame.begun");
        let (there, rest) = pieces(data, self.tail, FRAME_HEAD + words_for(bytes.len()));
        // A head is in one line.
        let (there, body) = there.split_at(FRAME_HEAD);
        let [published, of_the_caller @ ..] = head.packed(bytes.len());
        for (word, value) in there[1..].iter().zip(of_the_caller) {
            NoHtm.store_relaxed(word, value);
        }
        if rest.is_empty() {
            NoHtm.store_bytes(body, bytes);
        } else {
            store_wrapped(body, rest, bytes);
        }
        die::site("frame.filled");
        NoHtm.store(&there[0], published);
        // The initial count of the ring may be damaged, and near its maximum.
        self.tail = self.tail.wrapping_add(words);
        NoHtm.store(&ring[TAIL], self.tail);
        die::site("frame.published");
        true
    }
}

/// The reading side.
#[derive(Debug)]
pub(crate) struct Consumer {
    head: u64,
}

impl Consumer {
    /// Continues at the ring's position. An earlier consumer of the ring must have ended.
    pub(crate) fn new(ring: &[Word]) -> Self {
        Self { head: count(ring, HEAD) }
    }

    /// Returns whether the ring is empty.
    #[inline]
    pub(crate) fn is_empty(&self, ring: &[Word]) -> bool {
        NoHtm.load(first(data(ring), self.head)) == 0
    }

    /// Returns how many words it has freed.
    #[cfg(all(feature = "tcp", not(feature = "model")))]
    pub(crate) fn position(&self) -> u64 {
        self.head
    }

    /// Takes a frame, whose bytes replace those in `into`. Returns `None` if the ring is empty.
    pub(crate) fn pop(&mut self, ring: &[Word], into: &mut Vec<u8>) -> Result<Option<FrameHead>, Corrupt> {
        let data = data(ring);
        let published = NoHtm.load(first(data, self.head));
        if published == 0 {
            return Ok(None);
        }
        let (there, _) = pieces(data, self.head, FRAME_HEAD);
        let words = [published, NoHtm.load_relaxed(&there[1]), NoHtm.load_relaxed(&there[2])];
        let (head, bytes) = FrameHead::unpacked(words).ok_or(Corrupt)?;
        let words = frame_words(bytes);
        if words > data.len() as u64 {
            return Err(Corrupt);
        }
        let (first_part, second) = pieces(data, self.head.wrapping_add(FRAME_HEAD as u64), words_for(bytes));
        // Only what it was too short for is filled with zeros.
        into.resize(bytes, 0);
        if second.is_empty() {
            NoHtm.load_bytes(first_part, into);
        } else {
            load_wrapped(first_part, second, into);
        }
        die::site("receive.taken");
        for line in (0..words).step_by(LINE_WORDS) {
            NoHtm.store_relaxed(first(data, self.head.wrapping_add(line)), 0);
        }
        self.head = self.head.wrapping_add(words);
        // This is a release: the producer may overwrite the frame after it was copied and cleared.
        NoHtm.store(&ring[HEAD], self.head);
        die::site("receive.freed");
        Ok(Some(head))
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn ring(words: usize) -> Vec<Word> {
        (0..DATA + words).map(|_| Word::new(0)).collect()
    }

    fn head(number: u32) -> FrameHead {
        let kind = [FrameKind::Message, FrameKind::Call, FrameKind::Reply, FrameKind::Refusal][number as usize % 4];
        let ticket = Ticket { index: number, generation: !number };
        FrameHead { kind, endpoint: number as u16, life: number * 3, ticket }
    }

    proptest! {
        /// Compares a ring with a queue.
        #[test]
        fn frames_come_out_as_they_went_in(steps in prop::collection::vec(prop::option::of(0..120_usize), 0..300)) {
            let ring = ring(32);
            let (mut producer, mut consumer) = (Producer::new(&ring), Consumer::new(&ring));
            let mut model: VecDeque<(FrameHead, Vec<u8>)> = VecDeque::new();
            let mut bytes = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Some(length) => {
                        let frame: Vec<u8> = (0..length).map(|byte| (byte + number) as u8).collect();
                        let used: u64 = model.iter().map(|(_, bytes)| frame_words(bytes.len())).sum();
                        let fits = used + frame_words(length) <= 32;
                        prop_assert_eq!(producer.push(&ring, head(number as u32), &frame), fits);
                        if fits {
                            model.push_back((head(number as u32), frame));
                        }
                    }
                    None => {
                        prop_assert_eq!(consumer.is_empty(&ring), model.is_empty());
                        let popped = consumer.pop(&ring, &mut bytes).expect("sound");
                        let expected = model.pop_front();
                        prop_assert_eq!(popped, expected.as_ref().map(|(head, _)| *head));
                        if let Some((_, frame)) = expected {
                            prop_assert_eq!(&bytes, &frame);
                        }
                    }
                }
                if number % 7 == 0 {
                    // Another endpoint takes the same place.
                    producer = Producer::new(&ring);
                    consumer = Consumer::new(&ring);
                }
            }
        }

        /// Whatever is in a ring, it is read as frames or as corrupt, and nothing else happens.
        #[test]
        fn no_ring_whatever_is_more_than_corrupt(words in prop::collection::vec(any::<u64>(), 32), tail: u64, start: u64) {
            let ring = ring(32);
            for near in [tail, start.wrapping_add(tail % 40)] {
                for (word, value) in ring[DATA..].iter().zip(&words) {
                    NoHtm.store(word, *value % (1 << 36));
                }
                NoHtm.store(&ring[HEAD], start % (1 << 40));
                NoHtm.store(&ring[TAIL], near);
                let mut consumer = Consumer::new(&ring);
                let mut bytes = Vec::new();
                for _ in 0..20 {
                    if !matches!(consumer.pop(&ring, &mut bytes), Ok(Some(_))) {
                        break;
                    }
                }
                let mut producer = Producer::new(&ring);
                producer.push(&ring, head(1), &[1; 20]);
            }
        }
    }
}

#[cfg(all(test, feature = "loom"))]
mod model {
    use std::sync::Arc;

    use loom::thread;

    use super::*;
    use crate::sync::explore;

    fn ring() -> Arc<Vec<Word>> {
        Arc::new((0..DATA + 2 * LINE_WORDS).map(|_| Word::new(0)).collect())
    }

    fn head(number: u32) -> FrameHead {
        let ticket = Ticket { index: number, generation: number };
        FrameHead { kind: FrameKind::Call, endpoint: number as u16, life: number, ticket }
    }

    /// Sends three frames through a ring with room for two, so that the last one waits for room and
    /// wraps around.
    fn exchange(spoil: fn(&[Word])) {
        explore(move || {
            let ring = ring();
            let theirs = Arc::clone(&ring);
            let sender = thread::spawn(move || {
                let mut producer = Producer::new(&theirs);
                spoil(&theirs);
                for number in 1..=3_u32 {
                    while !producer.push(&theirs, head(number), &[number as u8; 5]) {
                        thread::yield_now();
                    }
                }
            });
            let mut consumer = Consumer::new(&ring);
            let mut bytes = Vec::new();
            for number in 1..=3_u32 {
                loop {
                    match consumer.pop(&ring, &mut bytes).expect("a frame is whole when it is seen") {
                        Some(found) => {
                            assert_eq!(found, head(number));
                            assert_eq!(bytes, [number as u8; 5]);
                            break;
                        }
                        None => thread::yield_now(),
                    }
                }
            }
            sender.join().expect("no panic");
        });
    }

    #[test]
    fn every_frame_is_seen_whole_and_in_order() {
        exchange(|_| {});
    }

    /// A deliberate fault: a frame is published before it is filled.
    #[test]
    #[should_panic]
    fn a_frame_published_too_early_is_found() {
        exchange(|ring| NoHtm.store(&ring[DATA], head(1).packed(5)[0]));
    }
}
