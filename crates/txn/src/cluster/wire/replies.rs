//! What owners answer.

use drtm_kv::{GuardChange, Handle, Version};
use drtm_rdma::rpc::{Decode, DecodeError, Encode, Reader};
use smallvec::SmallVec;

use super::Wire;
use crate::{
    Durability,
    memory::storage::{Absence, KeyRef, Shift},
};

/// What one of a transaction's own insertions did to a guard.
#[derive(Clone, Copy, Debug)]
pub(in crate::cluster) struct Shifted {
    pub(in crate::cluster) before: Absence,
    pub(in crate::cluster) after: Absence,
    pub(in crate::cluster) split_off: Option<Absence>,
}

impl From<Shift> for Shifted {
    fn from(shift: Shift) -> Self {
        fn of<G: Into<Absence>>(change: GuardChange<G>) -> Shifted {
            let GuardChange { before, after, split_off, .. } = change;
            Shifted { before: before.into(), after: after.into(), split_off: split_off.map(Into::into) }
        }
        match shift {
            Shift::Bucket(change) => of(change),
            Shift::Leaf(change) => of(change),
        }
    }
}

/// What an owner found where a row was looked for, and its count of changes from before.
#[derive(Clone, Copy, Debug)]
pub(in crate::cluster) struct Found<'a> {
    pub(in crate::cluster) count: u64,
    pub(in crate::cluster) is: Is<'a>,
}

/// See [`Found`].
#[derive(Clone, Copy, Debug)]
pub(in crate::cluster) enum Is<'a> {
    /// A record. If its version is a removed one, the row is not there.
    Record { at: Handle, version: Version, value: &'a [u8] },
    /// No record, as long as this guard holds.
    Nothing(Absence),
    /// A record that another transaction has locked.
    Locked(Handle),
}

impl Encode for Found<'_> {
    fn encode(&self, into: &mut Vec<u8>) {
        self.count.encode(into);
        match self.is {
            Is::Record { at, version, value } => {
                into.push(0);
                at.put(into);
                version.put(into);
                value.encode(into);
            }
            Is::Nothing(absence) => {
                into.push(1);
                absence.put(into);
            }
            Is::Locked(at) => {
                into.push(2);
                at.put(into);
            }
        }
    }
}

impl<'a> Decode<'a> for Found<'a> {
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let count = Decode::decode(from)?;
        let is = match u8::decode(from)? {
            0 => Is::Record { at: Wire::take(from)?, version: Wire::take(from)?, value: Decode::decode(from)? },
            1 => Is::Nothing(Wire::take(from)?),
            2 => Is::Locked(Wire::take(from)?),
            _ => return Err(DecodeError::Invalid { what: "row" }),
        };
        Ok(Self { count, is })
    }
}

/// A row, and until when it is leased, if it has a record.
#[derive(Clone, Copy, Debug)]
pub(in crate::cluster) struct LeasedRow<'a> {
    pub(in crate::cluster) end: u64,
    pub(in crate::cluster) found: Found<'a>,
}

impl Encode for LeasedRow<'_> {
    fn encode(&self, into: &mut Vec<u8>) {
        self.end.encode(into);
        self.found.encode(into);
    }
}

impl<'a> Decode<'a> for LeasedRow<'a> {
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self { end: Decode::decode(from)?, found: Decode::decode(from)? })
    }
}

/// Rows of a range, and the owner's count of changes from before.
#[derive(Clone, Debug)]
pub(in crate::cluster) struct Scanned<'a> {
    pub(in crate::cluster) count: u64,
    /// Whether these are all that there are.
    pub(in crate::cluster) is_whole: bool,
    /// The position of a list of a hash table's keys behind these; zeros for rows of a range.
    pub(in crate::cluster) next: (u64, u64),
    /// The leaves, or buckets, that were passed.
    pub(in crate::cluster) passed: SmallVec<[Absence; 8]>,
    /// The rows, one behind the other.
    pub(in crate::cluster) rows: &'a [u8],
}

impl Encode for Scanned<'_> {
    fn encode(&self, into: &mut Vec<u8>) {
        (self.count, self.is_whole, self.passed.len() as u32).encode(into);
        self.next.encode(into);
        self.passed.iter().for_each(|leaf| leaf.put(into));
        self.rows.encode(into);
    }
}

impl<'a> Decode<'a> for Scanned<'a> {
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (count, is_whole, leaves): (u64, bool, u32) = Decode::decode(from)?;
        let next = Decode::decode(from)?;
        let mut passed = SmallVec::new();
        for _ in 0..leaves {
            passed.push(Wire::take(from)?);
        }
        let rows: &[u8] = Decode::decode(from)?;
        // All of them are looked at now, so that they can be taken without errors.
        let mut reader = Reader::new(rows);
        while reader.finish().is_err() {
            ScannedRow::take(&mut reader)?;
        }
        Ok(Self { count, is_whole, next, passed, rows })
    }
}

/// A record of a range. If its version is a removed one, the row is not there.
#[derive(Clone, Copy, Debug)]
pub(in crate::cluster) struct ScannedRow<'a> {
    pub(in crate::cluster) key: KeyRef<'a>,
    pub(in crate::cluster) at: Handle,
    pub(in crate::cluster) version: Version,
    pub(in crate::cluster) value: &'a [u8],
}

impl<'a> Wire<'a> for ScannedRow<'a> {
    fn put(&self, into: &mut Vec<u8>) {
        self.key.put(into);
        self.at.put(into);
        self.version.put(into);
        self.value.encode(into);
    }

    fn take(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (key, at, version) = (Wire::take(from)?, Wire::take(from)?, Wire::take(from)?);
        Ok(Self { key, at, version, value: Decode::decode(from)? })
    }
}

impl<'a> Scanned<'a> {
    /// The rows, in the order of their keys.
    pub(in crate::cluster) fn iter(&self) -> impl Iterator<Item = ScannedRow<'a>> + use<'a> {
        let mut reader = Reader::new(self.rows);
        std::iter::from_fn(move || ScannedRow::take(&mut reader).ok())
    }
}

/// The record that an owner found or made for a key, what that did to guards, and the owner's count
/// of changes from before.
#[derive(Clone, Debug)]
pub(in crate::cluster) struct Placed {
    pub(in crate::cluster) count: u64,
    pub(in crate::cluster) at: Handle,
    pub(in crate::cluster) version: Version,
    pub(in crate::cluster) is_made: bool,
    pub(in crate::cluster) shifts: Shifts,
}

/// An insertion changes one guard, and a split another.
pub(in crate::cluster) type Shifts = SmallVec<[Shifted; 2]>;

impl Encode for Placed {
    fn encode(&self, into: &mut Vec<u8>) {
        self.count.encode(into);
        self.at.put(into);
        self.version.put(into);
        self.is_made.encode(into);
        (self.shifts.len() as u8).encode(into);
        for shift in &self.shifts {
            shift.before.put(into);
            shift.after.put(into);
            shift.split_off.put(into);
        }
    }
}

impl<'a> Decode<'a> for Placed {
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let count = Decode::decode(from)?;
        let (at, version) = (Wire::take(from)?, Wire::take(from)?);
        let is_made = Decode::decode(from)?;
        let mut shifts = Shifts::new();
        for _ in 0..u8::decode(from)? {
            let (before, after) = (Wire::take(from)?, Wire::take(from)?);
            shifts.push(Shifted { before, after, split_off: Wire::take(from)? });
        }
        Ok(Self { count, at, version, is_made, shifts })
    }
}

/// Where an owner's peers find its rows, if they look for them by themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cluster) struct Welcome {
    /// The region of its memory.
    pub(in crate::cluster) region: u16,
    /// Its line: the snapshot number, and how many snapshots are open.
    pub(in crate::cluster) line: u64,
    /// When its log has what is written to it: `None` without a log.
    pub(in crate::cluster) durability: Option<Durability>,
    /// Its tables, but for those that peers do not reach.
    pub(in crate::cluster) tables: Vec<Option<u64>>,
}

impl Encode for Welcome {
    fn encode(&self, into: &mut Vec<u8>) {
        let durability = match self.durability {
            None | Some(Durability::None) => 0_u8,
            Some(Durability::Async) => 1,
            Some(Durability::Sync) => 2,
        };
        (self.region, self.line, (durability, self.tables.len() as u16)).encode(into);
        self.tables.iter().for_each(|table| table.encode(into));
    }
}

impl<'a> Decode<'a> for Welcome {
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (region, line, (durability, tables)): (u16, u64, (u8, u16)) = Decode::decode(from)?;
        let durability = match durability {
            0 => None,
            1 => Some(Durability::Async),
            2 => Some(Durability::Sync),
            _ => return Err(DecodeError::Invalid { what: "durability" }),
        };
        let tables = (0..tables).map(|_| Decode::decode(from)).collect::<Result<_, _>>()?;
        Ok(Self { region, line, durability, tables })
    }
}

/// Where a backup has made a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cluster) struct RingPlace {
    pub(in crate::cluster) number: u32,
    /// Where it is in the backup's memory.
    pub(in crate::cluster) at: u64,
    /// Bytes of records that it has room for.
    pub(in crate::cluster) size: u64,
    /// The position of the first record.
    pub(in crate::cluster) start: u64,
}

impl Encode for RingPlace {
    fn encode(&self, into: &mut Vec<u8>) {
        (self.number, self.at, self.size, self.start).encode(into);
    }
}

impl<'a> Decode<'a> for RingPlace {
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (number, at, size, start): (u32, u64, u64, u64) = Decode::decode(from)?;
        if !size.is_power_of_two() || size < 64 || start < size {
            return Err(DecodeError::Invalid { what: "ring" });
        }
        Ok(Self { number, at, size, start })
    }
}

/// A version as a reply.
#[derive(Clone, Copy, Debug)]
pub(in crate::cluster) struct Before(pub(in crate::cluster) Version);

impl Encode for Before {
    fn encode(&self, into: &mut Vec<u8>) {
        self.0.put(into);
    }
}

impl<'a> Decode<'a> for Before {
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Wire::take(from).map(Self)
    }
}

/// An owner's line: its snapshot number, and its count of changes.
#[derive(Clone, Copy, Debug)]
pub(in crate::cluster) struct LineIs {
    pub(in crate::cluster) epoch: u64,
    pub(in crate::cluster) count: u64,
}

impl Encode for LineIs {
    fn encode(&self, into: &mut Vec<u8>) {
        (self.epoch, self.count).encode(into);
    }
}

impl<'a> Decode<'a> for LineIs {
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (epoch, count) = Decode::decode(from)?;
        Ok(Self { epoch, count })
    }
}
