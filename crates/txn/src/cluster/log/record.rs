//! A record of a ring: its bytes, and how a reader tells a whole one from anything else.
//!
//! Numbers are little-endian. A record begins at a multiple of 8, at a *position* that counts all
//! bytes of the ring that were ever given out, so that no two records have the same.
//!
//! ```text
//!  0  position (8)
//!  8  length (4): of the record, a multiple of 8        checksum (4)
//! 16  settled (8): records before this position are decided, or void
//! 24  holder (8): the transaction's name, under which it has its locks
//! 32  sequence (8): which of the worker's transactions it is
//! 40  participants (2)   kind (2): 1 rows, 2 void   0 (4)
//! 48  the participants, 4 bytes each: node (2), whether its rows follow (2); zeros up to 8
//!     of each participant whose rows follow, one record of the log's format (`docs/format.md`)
//!     end (8): position, mixed with a constant
//! ```
//!
//! The checksum is of the whole record, its own bytes as zeros: the XXH3 of what follows the head,
//! with that of the head as its seed. In a void record, nothing follows. So a void record is made
//! of another by writing its head. A WRITE becomes visible word by word, in any order. A reader
//! takes no record for whole unless its first word has the position where it looks, its last one
//! too, and all between has the checksum. What an earlier round of the ring has left has other
//! positions.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout,
    little_endian::{U16, U32, U64},
};

use crate::cluster::shard::ShardId;
use crate::durability::format::{Damage, Record as Redo, records};

/// Bytes of a record's head, which is all that a void record needs.
pub(super) const HEAD: usize = 48;

/// Bytes behind everything else.
const END: usize = 8;

/// What the last word is mixed with: it is never the first word of a record.
const END_MARK: u64 = u64::from_le_bytes(*b"ring end");

/// Where every ring begins, so that zeros are no record: a position is a multiple of 8.
pub(super) const ALIGN: u64 = 8;

const ROWS: u16 = 1;
const VOID: u16 = 2;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    position: U64,
    length: U32,
    checksum: U32,
    settled: U64,
    holder: U64,
    sequence: U64,
    participants: U16,
    kind: U16,
    view: U32,
}

const _: () = assert!(size_of::<Raw>() == HEAD);

/// A node that takes part in a transaction, and whether its rows are in this record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Participant {
    shard: U16,
    has_rows: U16,
}

impl Participant {
    pub(super) fn new(shard: ShardId, has_rows: bool) -> Self {
        Self { shard: shard.0.into(), has_rows: u16::from(has_rows).into() }
    }

    pub(super) fn shard(self) -> ShardId {
        ShardId(self.shard.get())
    }

    pub(super) fn has_rows(self) -> bool {
        self.has_rows.get() != 0
    }
}

/// What a record says of its transaction and of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) position: u64,
    pub(super) settled: u64,
    pub(super) holder: u64,
    pub(super) sequence: u64,
    /// The view in which the transaction runs.
    pub(super) view: u32,
}

/// Returns how long a record is, with so many participants and so many bytes of their rows.
pub(super) const fn length(participants: usize, redo: usize) -> usize {
    HEAD + participants_bytes(participants) + redo + END
}

const fn participants_bytes(participants: usize) -> usize {
    (participants * size_of::<Participant>()).next_multiple_of(ALIGN as usize)
}

/// Appends a record, whose `redo` is made of whole records of the log.
pub(super) fn encode<'r>(
    into: &mut Vec<u8>,
    head: Head,
    participants: &[Participant],
    redo: impl Iterator<Item = &'r [u8]>,
) {
    let start = into.len();
    into.resize(start + HEAD, 0);
    into.extend_from_slice(participants.as_bytes());
    into.resize(start + HEAD + participants_bytes(participants.len()), 0);
    redo.for_each(|redo| into.extend_from_slice(redo));
    into.extend_from_slice(&(head.position ^ END_MARK).to_le_bytes());
    let length = into.len() - start;
    seal(&mut into[start..], head, (length, participants.len()), ROWS);
}

/// Appends the head that makes a record void which is so long.
pub(super) fn encode_void(into: &mut Vec<u8>, head: Head, length: usize) {
    let start = into.len();
    into.resize(start + HEAD, 0);
    seal(&mut into[start..], head, (length, 0), VOID);
}

fn seal(bytes: &mut [u8], head: Head, (length, participants): (usize, usize), kind: u16) {
    let mut raw = Raw {
        position: head.position.into(),
        length: (length as u32).into(),
        checksum: 0.into(),
        settled: head.settled.into(),
        holder: head.holder.into(),
        sequence: head.sequence.into(),
        participants: (participants as u16).into(),
        kind: kind.into(),
        view: head.view.into(),
    };
    raw.checksum = checksum(&raw, &bytes[HEAD..]).into();
    bytes[..HEAD].copy_from_slice(raw.as_bytes());
}

fn checksum(raw: &Raw, rest: &[u8]) -> u32 {
    let head = Raw { checksum: 0.into(), ..*raw };
    xxh3_64_with_seed(rest, xxh3_64(head.as_bytes())) as u32
}

/// A whole record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'b> {
    pub(super) head: Head,
    pub(super) length: u64,
    /// What is in it; `None` if it is void.
    pub(super) rows: Option<Rows<'b>>,
}

/// The participants of a record, and the writes of those that have rows in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rows<'b> {
    pub(super) participants: &'b [Participant],
    redo: &'b [u8],
}

/// Reads the record at a position of a ring of so many bytes, if there is a whole one. `load`
/// copies bytes from a position on.
pub(super) fn read(
    at: u64,
    size: u64,
    mut load: impl FnMut(u64, &mut [u8]),
    buffer: &mut Vec<u8>,
) -> Option<Record<'_>> {
    let mut first = [0; ALIGN as usize];
    load(at, &mut first);
    // Mostly, nothing is there, and no more is looked at.
    if u64::from_le_bytes(first) != at {
        return None;
    }
    buffer.clear();
    buffer.resize(HEAD, 0);
    load(at, buffer);
    let raw = Raw::read_from_bytes(buffer).ok()?;
    let (length, kind) = (raw.length.get() as usize, raw.kind.get());
    let is_possible = (HEAD..=size as usize).contains(&length) && length.is_multiple_of(ALIGN as usize);
    if raw.position.get() != at || !is_possible {
        return None;
    }
    if kind == ROWS {
        buffer.resize(length, 0);
        load(at + HEAD as u64, &mut buffer[HEAD..]);
    }
    if checksum(&raw, &buffer[HEAD..]) != raw.checksum.get() {
        return None;
    }
    let head = Head {
        position: at,
        settled: raw.settled.get(),
        holder: raw.holder.get(),
        sequence: raw.sequence.get(),
        view: raw.view.get(),
    };
    let rows = match kind {
        VOID => None,
        ROWS => {
            let (content, end) = buffer[HEAD..].split_at_checked(length.checked_sub(HEAD + END)?)?;
            if *end != (at ^ END_MARK).to_le_bytes() {
                return None;
            }
            let participants = usize::from(raw.participants.get());
            let (all, redo) = content.split_at_checked(participants_bytes(participants))?;
            let participants = <[Participant]>::ref_from_bytes(&all[..participants * size_of::<Participant>()]).ok()?;
            Some(Rows { participants, redo })
        }
        _ => return None,
    };
    Some(Record { head, length: length as u64, rows })
}

impl<'b> Rows<'b> {
    /// Returns the writes of each participant that has rows in the record.
    pub(super) fn redo(self) -> impl Iterator<Item = Result<(ShardId, Redo<'b>), Damage>> {
        let mut shards = self.participants.iter().filter(|participant| participant.has_rows());
        records(self.redo).map(move |redo| {
            let (_, redo) = redo?;
            match shards.next() {
                Some(shard) => Ok((shard.shard(), redo)),
                None => Err(Damage { offset: 0, why: "rows of a shard that takes no part" }),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::durability::format::{Change, Entry, RecordKind, RecordWriter};

    const SIZE: u64 = 4096;

    fn redo(epoch: u64, rows: &[(u64, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = RecordWriter::begin(&mut bytes, epoch, RecordKind::Rows);
        for (key, value) in rows {
            let key = key.to_be_bytes();
            let entry = Entry { table: 3, key: &key, version: epoch << 16, change: Change::Put(value) };
            writer.entry(&entry).expect("short");
        }
        writer.finish().expect("short");
        bytes
    }

    fn record(position: u64, rows: &[(u64, Vec<u8>)]) -> Vec<u8> {
        let head = Head { position, settled: position / 16 * 8, holder: !position, sequence: position + 1, view: 3 };
        let participants = [
            Participant::new(ShardId(1), true),
            Participant::new(ShardId(2), false),
            Participant::new(ShardId(7), true),
        ];
        let (one, seven) = (redo(5, rows), redo(6, &rows[..rows.len() / 2]));
        let mut bytes = Vec::new();
        encode(&mut bytes, head, &participants, [&one[..], &seven[..]].into_iter());
        assert_eq!(bytes.len(), length(3, one.len() + seven.len()));
        bytes
    }

    /// The nodes of which a record has rows, and how many.
    type Counts = Vec<(ShardId, usize)>;

    /// Reads what is at a position of a ring with these bytes.
    fn read_at(ring: &[u8], at: u64) -> Option<(Head, u64, Option<Counts>)> {
        let load = |position: u64, into: &mut [u8]| {
            for (byte, at) in into.iter_mut().zip(position..) {
                *byte = ring[at as usize % ring.len()];
            }
        };
        let mut buffer = Vec::new();
        let found = read(at, ring.len() as u64, load, &mut buffer)?;
        let redo = found.rows.map(|rows| {
            let all = rows.redo().map(|redo| redo.expect("whole"));
            all.map(|(shard, redo)| (shard, redo.entries().filter(|entry| entry.as_ref().is_ok()).count())).collect()
        });
        Some((found.head, found.length, redo))
    }

    fn write_at(ring: &mut [u8], at: u64, bytes: &[u8]) {
        for (byte, at) in bytes.iter().zip(at..) {
            let length = ring.len();
            ring[at as usize % length] = *byte;
        }
    }

    fn rows() -> impl Strategy<Value = Vec<(u64, Vec<u8>)>> {
        prop::collection::vec((any::<u64>(), prop::collection::vec(any::<u8>(), 0..40)), 1..6)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(rows in rows(), lap in 1..1_000_u64, offset in 0..SIZE / 8) {
            let at = lap * SIZE + 8 * offset;
            let (mut ring, bytes) = (vec![0; SIZE as usize], record(at, &rows));
            write_at(&mut ring, at, &bytes);
            let (head, length, redo) = read_at(&ring, at).expect("it is whole");
            prop_assert_eq!(head, Head { position: at, settled: at / 16 * 8, holder: !at, sequence: at + 1, view: 3 });
            prop_assert_eq!(length, bytes.len() as u64);
            prop_assert_eq!(redo.expect("rows"), [(ShardId(1), rows.len()), (ShardId(7), rows.len() / 2)]);
            // Nowhere else, and in no other round.
            for other in (0..SIZE).step_by(8).map(|other| lap * SIZE + other).filter(|other| *other != at) {
                prop_assert_eq!(read_at(&ring, other), None);
            }
            prop_assert_eq!(read_at(&ring, at + SIZE), None);
        }

        #[test]
        fn every_flipped_bit_is_noticed(rows in rows(), offset in 0..SIZE / 8) {
            let at = 3 * SIZE + 8 * offset;
            let (mut ring, bytes) = (vec![0; SIZE as usize], record(at, &rows));
            for bit in 0..8 * bytes.len() {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                write_at(&mut ring, at, &flipped);
                prop_assert_eq!(read_at(&ring, at), None, "bit {}", bit);
            }
            // And every one of a void record's.
            let mut void = Vec::new();
            encode_void(&mut void, Head { position: at, settled: 0, holder: 1, sequence: 2, view: 1 }, bytes.len());
            for bit in 0..8 * void.len() {
                let mut flipped = void.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                write_at(&mut ring, at, &bytes);
                write_at(&mut ring, at, &flipped);
                prop_assert_eq!(read_at(&ring, at), None, "bit {}", bit);
            }
        }

        #[test]
        fn every_truncation_is_noticed(rows in rows(), stale in rows(), offset in 0..SIZE / 8, lap in 1..9_u64) {
            let at = lap * SIZE + 8 * offset;
            let bytes = record(at, &rows);
            for length in 0..bytes.len() {
                // What an earlier round has left is behind it.
                let mut ring = vec![0; SIZE as usize];
                write_at(&mut ring, at - SIZE, &record(at - SIZE, &stale));
                write_at(&mut ring, at, &bytes[..length]);
                // Unless that ends with the same bytes.
                let mut whole = ring.clone();
                write_at(&mut whole, at, &bytes);
                prop_assert_eq!(read_at(&ring, at).is_some(), ring == whole, "{} bytes", length);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u64>(), 32), length in any::<u32>(), kind in 0..4_u16) {
            let mut ring: Vec<u8> = bytes.iter().flat_map(|word| word.to_le_bytes()).collect();
            let at = ring.len() as u64;
            ring[..8].copy_from_slice(&at.to_le_bytes());
            ring[8..12].copy_from_slice(&(length % 300).to_le_bytes());
            ring[42..44].copy_from_slice(&kind.to_le_bytes());
            let _ = read_at(&ring, at);
            // Even if the checksum is right.
            let raw = Raw::read_from_bytes(&ring[..HEAD]).expect("a head");
            let end = if kind == ROWS { (length % 300) as usize } else { HEAD };
            if let Some(rest) = ring.get(HEAD..end) {
                let sum = checksum(&raw, rest);
                ring[12..16].copy_from_slice(&sum.to_le_bytes());
                let mut buffer = Vec::new();
                let load = |position: u64, into: &mut [u8]| {
                    let from = (position - at) as usize;
                    into.copy_from_slice(&ring[from..from + into.len()]);
                };
                if let Some(Record { rows: Some(rows), .. }) = read(at, at, load, &mut buffer) {
                    let _ = rows.redo().filter_map(Result::ok).map(|(_, redo)| redo.entries().count()).sum::<usize>();
                }
            }
        }
    }

    /// A record as the fabric writes it: each word at some moment, in any order; and a reader that
    /// loads each word at some moment, in any order. What the reader sees is some subset of the new
    /// words, and old ones otherwise. Every subset.
    #[test]
    fn no_mixture_of_old_and_new_is_believed() {
        let (at, rows) = (5 * 512 + 464, [(9, b"new".to_vec())]);
        let mut new = Vec::new();
        let bytes = redo(6, &rows);
        let head = Head { position: at, settled: at - 8, holder: 77, sequence: 4, view: 1 };
        encode(&mut new, head, &[Participant::new(ShardId(1), true)], [&bytes[..]].into_iter());
        let words = new.len() / 8;
        assert!(words <= 18, "few enough to try all: {words}");
        // What is there already: nothing; a record of the round before at the same place, and of
        // the same transaction; others that begin elsewhere.
        let mut olds = vec![vec![0; 512]];
        for shift in [0, 8, 16, 40, 48, 104] {
            let mut ring = vec![0; 512];
            let mut old = Vec::new();
            let head = Head { position: at - 512 - shift, ..head };
            encode(
                &mut old,
                head,
                &[Participant::new(ShardId(1), true)],
                [&redo(6, &[(9, b"old".to_vec())])[..]].into_iter(),
            );
            write_at(&mut ring, at - 512 - shift, &old);
            olds.push(ring);
        }
        for old in olds {
            for subset in 0..1_u32 << words {
                let mut ring = old.clone();
                for word in (0..words).filter(|word| subset >> word & 1 == 1) {
                    write_at(&mut ring, at + 8 * word as u64, &new[8 * word..8 * word + 8]);
                }
                // Words that are the same in both do not tell.
                let is_all = (0..words as u64).all(|word| {
                    (0..8).all(|byte| ring[(at + 8 * word + byte) as usize % 512] == new[(8 * word + byte) as usize])
                });
                assert_eq!(read_at(&ring, at).is_some(), is_all, "{subset:b}");
            }
        }
    }

    /// The same where a record is made void while it is read.
    #[test]
    fn a_record_is_whole_or_void_and_nothing_between() {
        let at = 5 * 512;
        let bytes = record(at, &[(9, b"new".to_vec())]);
        let mut void = Vec::new();
        let head = Head { position: at, settled: at - 16, holder: !at, sequence: at + 1, view: 1 };
        encode_void(&mut void, head, bytes.len());
        for subset in 0..1_u32 << (void.len() / 8) {
            let mut ring = vec![0; 512];
            write_at(&mut ring, at, &bytes);
            for word in (0..void.len() / 8).filter(|word| subset >> word & 1 == 1) {
                write_at(&mut ring, at + 8 * word as u64, &void[8 * word..8 * word + 8]);
            }
            let is = |other: &[u8]| (0..HEAD).all(|byte| ring[(at as usize + byte) % 512] == other[byte]);
            match read_at(&ring, at) {
                Some((_, length, Some(_))) => assert!(is(&bytes) && length == bytes.len() as u64),
                Some((_, length, None)) => assert!(is(&void) && length == bytes.len() as u64),
                None => assert!(!is(&bytes) && !is(&void)),
            }
        }
    }
}
