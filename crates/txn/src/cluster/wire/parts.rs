//! What requests say, and what more than their own files knows.

use drtm_kv::{GuardChange, Handle, Holder};
use drtm_rdma::{
    Incarnation,
    rpc::{Decode, DecodeError, Encode, Reader},
};

use super::{Wire, messages};
use crate::{
    Durability,
    cluster::view::View,
    memory::storage::{Absence, KeyRef, Shift},
};

messages! {
    /// What a commit makes of a row that is locked.
    ChangedRow<'a> { table: u16, key: KeyRef<'a>, at: Handle, change: Change<'a>, }
    /// A record in a ring whose producer is dead, and what is known of its transaction. With a zero
    /// instead: the last of the producer's transactions whose record was freed.
    InRing<'a> { producer: Holder, holder: u64, sequence: u64, standing: u8, bytes: &'a [u8], }
    /// What one of a transaction's own insertions did to a guard.
    Shifted { before: Absence, after: Absence, split_off: Option<Absence>, }
}

/// What a commit makes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cluster) enum Change<'a> {
    /// It has this value.
    Put(&'a [u8]),
    /// It is there, with the value that its record has. The owner's log needs it again, if there is
    /// one.
    Publish(Option<&'a [u8]>),
    /// It is not there.
    Remove,
}

impl<'a> Wire<'a> for Change<'a> {
    #[inline]
    fn put(&self, into: &mut Vec<u8>) {
        match *self {
            Self::Put(value) => (0_u8, value).encode(into),
            Self::Publish(None) => into.push(1),
            Self::Remove => into.push(2),
            Self::Publish(Some(value)) => (3_u8, value).encode(into),
        }
    }

    #[inline]
    fn take(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match u8::decode(from)? {
            0 => Ok(Self::Put(Decode::decode(from)?)),
            1 => Ok(Self::Publish(None)),
            2 => Ok(Self::Remove),
            3 => Ok(Self::Publish(Some(Decode::decode(from)?))),
            _ => Err(DecodeError::Invalid { what: "change of a row" }),
        }
    }
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

/// Where an owner's peers find its rows, if they look for them by themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cluster) struct Welcome {
    /// Which of its lives the owner is in.
    pub(in crate::cluster) incarnation: Incarnation,
    /// The view that it is in.
    pub(in crate::cluster) view: View,
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
        self.incarnation.0.encode(into);
        self.view.encode(into);
        (self.region, self.line, (durability, self.tables.len() as u16)).encode(into);
        self.tables.iter().for_each(|table| table.encode(into));
    }
}

impl<'a> Decode<'a> for Welcome {
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (incarnation, view) = (Incarnation(Decode::decode(from)?), View::decode(from)?);
        let (region, line, (durability, tables)): (u16, u64, (u8, u16)) = Decode::decode(from)?;
        let durability = match durability {
            0 => None,
            1 => Some(Durability::Async),
            2 => Some(Durability::Sync),
            _ => return Err(DecodeError::Invalid { what: "durability" }),
        };
        let tables = (0..tables).map(|_| Decode::decode(from)).collect::<Result<_, _>>()?;
        Ok(Self { incarnation, view, region, line, durability, tables })
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
