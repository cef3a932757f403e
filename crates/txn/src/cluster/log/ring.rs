//! A ring in a backup's memory, and its reader. One producer writes it: by WRITEs, by messages, or,
//! on its own node, by itself.
//!
//! ```text
//!   0  settled: records before this position are decided, or void; the producer's
//!  64  head: what is before this position is free; the reader's
//! 128  the records, which may wrap around
//! ```
//!
//! The reader believes a record only when it is whole (`record`), and applies it only when it is
//! settled: as the ring's word says, or a later record. It reads a record again when it applies it,
//! since it may have become void meanwhile.

use std::sync::{
    Arc,
    atomic::{
        AtomicBool,
        Ordering::{Acquire, Relaxed, Release},
        fence,
    },
};

use drtm_htm::{Engine, Word};
use drtm_kv::Holder;
use drtm_rdma::{Offset, OutOfBounds, Region};

use super::record::{self, ALIGN, Record};

/// Where a ring's words and its records are, in bytes from its beginning.
pub(super) const SETTLED: u64 = 0;
pub(super) const FREED: u64 = 64;
pub(super) const DATA: u64 = 128;

/// A ring that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Corrupt;

impl From<OutOfBounds> for Corrupt {
    fn from(_: OutOfBounds) -> Self {
        Self
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) at: Offset,
    /// Bytes of records: a power of two.
    pub(super) size: u64,
    /// The first name of the worker that writes it.
    pub(super) producer: Holder,
    is_corrupt: AtomicBool,
}

impl Ring {
    /// Creates a ring of so many bytes at an offset of a region. It is to be [begun](Self::begin).
    pub(super) fn new(at: Offset, size: u64, producer: Holder) -> Self {
        Self { at, size, producer, is_corrupt: AtomicBool::new(false) }
    }

    /// Begins an empty ring, in which the first record will be at `start`. Nothing that is in it
    /// has a position from there on.
    pub(super) fn begin<E: Engine>(&self, region: &Region<E>, start: u64) -> Result<(), Corrupt> {
        region.engine().store(self.word(region, SETTLED)?, start);
        region.engine().store(self.word(region, FREED)?, start);
        Ok(())
    }

    fn word<'r, E: Engine>(&self, region: &'r Region<E>, word: u64) -> Result<&'r Word, OutOfBounds> {
        Ok(&region.array::<1>(self.at + word)?[0])
    }

    /// Returns up to where the ring is free.
    pub(super) fn freed<E: Engine>(&self, region: &Region<E>) -> Result<u64, Corrupt> {
        if self.is_corrupt.load(Relaxed) {
            return Err(Corrupt);
        }
        Ok(region.engine().load(self.word(region, FREED)?))
    }

    /// Notes up to where everything is settled.
    pub(super) fn settle<E: Engine>(&self, region: &Region<E>, settled: u64) -> Result<(), Corrupt> {
        let (word, engine) = (self.word(region, SETTLED)?, region.engine());
        // A message that comes late says less than one before it.
        let mut known = engine.load(word);
        while known < settled {
            match engine.compare_exchange(word, known, settled) {
                Ok(_) => break,
                Err(found) => known = found,
            }
        }
        Ok(())
    }

    /// Writes bytes of a record for the producer.
    ///
    /// # Errors
    ///
    /// When they are not where the producer may write.
    pub(super) fn write<E: Engine>(&self, region: &Region<E>, position: u64, bytes: &[u8]) -> Result<(), Corrupt> {
        let (freed, engine) = (self.freed(region)?, region.engine());
        let settled = engine.load(self.word(region, SETTLED)?);
        let length = bytes.len() as u64;
        let is_aligned = position.is_multiple_of(ALIGN) && length.is_multiple_of(ALIGN) && length <= self.size;
        // A message that comes late must not write over what is settled.
        let is_free = position >= settled.max(freed) && position.saturating_add(length) <= freed + self.size;
        if !is_aligned || !is_free {
            return Err(Corrupt);
        }
        let (offset, first) = self.split(position, length);
        let (before, after) = bytes.split_at(first as usize);
        engine.store_bytes(region.words(self.at + (DATA + offset), before.len() / 8)?, before);
        engine.store_bytes(region.words(self.at + DATA, after.len() / 8)?, after);
        fence(Release);
        Ok(())
    }

    /// Returns where bytes from a position on begin in the ring, and how many of them are before
    /// its end.
    pub(super) fn split(&self, position: u64, length: u64) -> (u64, u64) {
        let offset = position & (self.size - 1);
        (offset, length.min(self.size - offset))
    }

    fn load<E: Engine>(&self, region: &Region<E>, position: u64, into: &mut [u8]) -> Result<(), OutOfBounds> {
        let (offset, first) = self.split(position, into.len() as u64);
        let (before, after) = into.split_at_mut(first as usize);
        region.engine().load_bytes(region.words(self.at + (DATA + offset), before.len() / 8)?, before);
        region.engine().load_bytes(region.words(self.at + DATA, after.len() / 8)?, after);
        Ok(())
    }

    fn read<'b, E: Engine>(
        &self,
        region: &Region<E>,
        at: u64,
        buffer: &'b mut Vec<u8>,
    ) -> Result<Option<Record<'b>>, Corrupt> {
        let mut failed = Ok(());
        let load = |position, into: &mut [u8]| {
            if let Err(error) = self.load(region, position, into) {
                failed = Err(error);
            }
        };
        let found = record::read(at, self.size, load, buffer);
        failed?;
        // What the producer has written before the record is seen from here on.
        fence(Acquire);
        Ok(found)
    }
}

/// The reader of a ring.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) ring: Arc<Ring>,
    /// The next record that is to be applied.
    pub(super) applied: u64,
    /// Up to where whole records were seen.
    walked: u64,
    /// Up to where everything is known to be settled.
    settled: u64,
    buffer: Vec<u8>,
}

impl Reader {
    pub(super) fn new(ring: Arc<Ring>, start: u64) -> Self {
        Self { ring, applied: start, walked: start, settled: start, buffer: Vec::new() }
    }

    /// Returns the next record that is settled, or `None`. If all are `believed`, which is a fault,
    /// returns the next one that is whole.
    pub(super) fn next<E: Engine>(
        &mut self,
        region: &Region<E>,
        believed: bool,
    ) -> Result<Option<Record<'_>>, Corrupt> {
        if self.ring.is_corrupt.load(Relaxed) {
            return Err(Corrupt);
        }
        if self.applied >= self.settled {
            self.learn(region)?;
        }
        let is_settled = self.applied < self.settled;
        if !is_settled && !believed {
            return Ok(None);
        }
        match self.ring.read(region, self.applied, &mut self.buffer) {
            Ok(Some(record)) => {
                let known = record.head.settled.min(record.head.position);
                self.settled = self.settled.max(known);
                Ok(Some(record))
            }
            Ok(None) if !is_settled => Ok(None),
            // What is settled is whole.
            Ok(None) | Err(Corrupt) => {
                self.ring.is_corrupt.store(true, Relaxed);
                Err(Corrupt)
            }
        }
    }

    /// Finds out what is settled.
    fn learn<E: Engine>(&mut self, region: &Region<E>) -> Result<(), Corrupt> {
        let told = region.engine().load(self.ring.word(region, SETTLED)?);
        if told <= self.applied + self.ring.size && told.is_multiple_of(ALIGN) {
            self.settled = self.settled.max(told);
        }
        while self.applied >= self.settled && self.walk(region)? {}
        Ok(())
    }

    /// Looks at one more record.
    fn walk<E: Engine>(&mut self, region: &Region<E>) -> Result<bool, Corrupt> {
        let at = self.walked.max(self.applied);
        if at >= self.applied + self.ring.size {
            return Ok(false);
        }
        let Some(record) = self.ring.read(region, at, &mut self.buffer)? else { return Ok(false) };
        self.settled = self.settled.max(record.head.settled.min(at));
        self.walked = at + record.length;
        Ok(true)
    }

    /// Returns up to where whole records are in the ring.
    pub(super) fn end<E: Engine>(&mut self, region: &Region<E>) -> Result<u64, Corrupt> {
        while self.walk(region)? {}
        Ok(self.walked.max(self.applied))
    }

    /// Walks to the end of the records. Returns whether all of them were applied.
    pub(super) fn check_drained<E: Engine>(&mut self, region: &Region<E>) -> bool {
        self.end(region).is_ok_and(|end| end == self.applied) && self.settled <= self.applied
    }

    /// Frees the record that was applied.
    pub(super) fn free<E: Engine>(&mut self, region: &Region<E>, length: u64) -> Result<(), Corrupt> {
        self.applied += length;
        region.engine().store(self.ring.word(region, FREED)?, self.applied);
        Ok(())
    }

    /// Marks the ring as corrupt: nothing is read from it any more.
    pub(super) fn mark_corrupt(&self) {
        self.ring.is_corrupt.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use drtm_htm::NoHtm;
    use proptest::prelude::*;

    use super::{super::producer::Producer, super::record::Head, *};
    use crate::durability::format::{Change, Entry, RecordKind, RecordWriter};

    const SIZE: u64 = 1024;

    fn ring(size: u64) -> (Region<NoHtm>, Arc<Ring>) {
        let region = Region::anonymous(NoHtm, 1 << 20).expect("memory");
        let at = region.extend(DATA + size, 64).expect("room");
        let ring = Ring::new(at, size, Holder::new(1, 1, 0, 0));
        ring.begin(&region, size).expect("it is there");
        (region, Arc::new(ring))
    }

    fn encoded(position: u64, settled: u64, sequence: u64, value: &[u8]) -> Vec<u8> {
        let mut redo = Vec::new();
        let mut writer = RecordWriter::begin(&mut redo, 9, RecordKind::Rows);
        let entry = Entry { table: 0, key: b"k", version: sequence, change: Change::Put(value) };
        writer.entry(&entry).expect("short");
        writer.finish().expect("short");
        let mut bytes = Vec::new();
        let head = Head { position, settled, holder: 1, sequence, view: 1 };
        record::encode(
            &mut bytes,
            head,
            &[record::Participant::new(crate::cluster::ShardId(0), true)],
            [&redo[..]].into_iter(),
        );
        bytes
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// Writes a record with a value of so many bytes, if there is room.
        Write(usize),
        Decide(prop::sample::Index),
        Void(prop::sample::Index),
        /// Tells by the ring's word what is settled.
        Tell,
        Read,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..150_usize).prop_map(Step::Write),
            3 => any::<prop::sample::Index>().prop_map(Step::Decide),
            1 => any::<prop::sample::Index>().prop_map(Step::Void),
            2 => Just(Step::Tell),
            4 => Just(Step::Read),
        ]
    }

    proptest! {
        /// Against a queue of records: what is read is what was decided, in order, and no more.
        #[test]
        fn what_is_decided_is_read_in_order(steps in prop::collection::vec(step(), 0..300)) {
            let (region, ring) = ring(SIZE);
            let (mut producer, mut reader) = (Producer::new(SIZE, SIZE), Reader::new(Arc::clone(&ring), SIZE));
            // Each record's position, length, number, what its head says is settled, and whether
            // it is decided, or void.
            let mut model: VecDeque<(u64, u64, u64, u64, Option<bool>)> = VecDeque::new();
            let (mut told, mut next) = (SIZE, 0);
            for step in steps {
                match step {
                    Step::Write(bytes) => {
                        let length = encoded(SIZE, 0, 0, &vec![0; bytes]).len() as u64;
                        producer.note_freed(ring.freed(&region).expect("sound"));
                        if producer.reserve(length) {
                            let position = producer.begin(length);
                            next += 1;
                            let settled = producer.settled();
                            let bytes = encoded(position, settled, next, &vec![next as u8; bytes]);
                            told = told.max(settled);
                            ring.write(&region, position, &bytes).expect("there is room");
                            model.push_back((position, length, next, settled, None));
                        }
                    }
                    Step::Decide(at) | Step::Void(at) if !model.is_empty() => {
                        let at = at.index(model.len());
                        let (position, length, number, settled, outcome) = &mut model[at];
                        if outcome.is_none() {
                            let is_decided = matches!(step, Step::Decide(_));
                            if !is_decided {
                                let head = Head { position: *position, settled: *settled, holder: 1, sequence: *number, view: 1 };
                                let mut void = Vec::new();
                                record::encode_void(&mut void, head, *length as usize);
                                ring.write(&region, *position, &void).expect("it is the producer's");
                            }
                            producer.settle(*position);
                            *outcome = Some(is_decided);
                        }
                    }
                    Step::Tell => {
                        ring.settle(&region, producer.settled()).expect("it is there");
                        told = producer.settled();
                    }
                    Step::Read => {
                        let read = reader.next(&region, false).expect("sound").map(|record| {
                            let sequence = record.rows.map(|rows| {
                                let redo: Vec<_> = rows.redo().map(|redo| redo.expect("whole")).collect();
                                let entry = redo[0].1.entries().next().expect("one").expect("whole");
                                let Change::Put(value) = entry.change else { panic!("a put") };
                                assert!(value.iter().all(|byte| *byte == record.head.sequence as u8));
                                record.head.sequence
                            });
                            (record.head.position, record.length, sequence)
                        });
                        let expected = model.front().filter(|(position, ..)| *position < told);
                        let expected = expected.map(|(position, length, number, _, outcome)| {
                            (*position, *length, outcome.expect("it is settled").then_some(*number))
                        });
                        prop_assert_eq!(read, expected);
                        if let Some((_, length, _)) = read {
                            reader.free(&region, length).expect("it is there");
                            model.pop_front();
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn what_a_producer_may_not_write_is_refused() {
        let (region, ring) = ring(SIZE);
        let bytes = encoded(SIZE, SIZE, 1, b"value");
        let length = bytes.len() as u64;
        for (position, bytes) in [
            (SIZE - 8, &bytes[..]),
            (SIZE + 4, &bytes[..]),
            (SIZE, &bytes[..length as usize - 1]),
            (2 * SIZE - length + 8, &bytes[..]),
            (u64::MAX - 7, &bytes[..]),
            (SIZE, &[0; 2 * SIZE as usize]),
        ] {
            assert_eq!(ring.write(&region, position, bytes), Err(Corrupt), "{position}");
        }
        ring.write(&region, SIZE, &bytes).expect("it is free");
        ring.settle(&region, SIZE + length).expect("it is there");
        assert_eq!(ring.write(&region, SIZE, &bytes), Err(Corrupt), "it is settled");
    }

    #[test]
    fn what_is_settled_and_not_whole_ends_the_ring() {
        let (region, ring) = ring(SIZE);
        let mut reader = Reader::new(Arc::clone(&ring), SIZE);
        let mut bytes = encoded(SIZE, SIZE, 1, b"value");
        bytes[60] ^= 1;
        ring.write(&region, SIZE, &bytes).expect("it is free");
        assert_eq!(reader.next(&region, false), Ok(None));
        ring.settle(&region, SIZE + bytes.len() as u64).expect("it is there");
        assert_eq!(reader.next(&region, false), Err(Corrupt));
        assert_eq!(ring.freed(&region), Err(Corrupt));
    }
}
