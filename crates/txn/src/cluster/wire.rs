//! What nodes ask of each other for transactions: one set of requests, several to a message.
//!
//! Each request is about one row, or about the owner's line. A request never waits at the owner: it
//! is carried out, or refused with a [`Refusal`].

use std::ops::Bound;

use drtm_kv::{BucketVersion, GuardChange, Handle, Holder, NodeVersion, Version};
use drtm_rdma::rpc::{Decode, DecodeError, Encode, Procedure, Reader};
use smallvec::SmallVec;

use crate::storage::{Absence, KeyRef, Shift};

/// What becomes bytes in a message.
pub(super) trait Wire<'a>: Sized {
    fn put(&self, into: &mut Vec<u8>);

    fn take(from: &mut Reader<'a>) -> Result<Self, DecodeError>;
}

macro_rules! as_they_are {
    ($($type:ty),+) => {$(
        impl<'a> Wire<'a> for $type {
            fn put(&self, into: &mut Vec<u8>) {
                self.encode(into);
            }

            fn take(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
                Decode::decode(from)
            }
        }
    )+};
}

as_they_are!(u8, u16, u32, u64, bool, &'a [u8], &'a str);

/// Types of which each value is a word.
macro_rules! words {
    ($($type:ty: $from:expr;)+) => {$(
        impl Wire<'_> for $type {
            fn put(&self, into: &mut Vec<u8>) {
                self.to_word().encode(into);
            }

            fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                ($from)(u64::decode(from)?)
            }
        }
    )+};
}

words! {
    Handle: |word| Ok(Self::from_word(word));
    Version: |word| Ok(Self::from_word(word));
    Holder: |word| Self::from_word(word).ok_or(DecodeError::Invalid { what: "holder of a lock" });
}

impl<'a> Wire<'a> for KeyRef<'a> {
    fn put(&self, into: &mut Vec<u8>) {
        match *self {
            Self::Word(word) => (0_u8, word).encode(into),
            Self::Bytes(bytes) => (1_u8, bytes).encode(into),
        }
    }

    fn take(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match u8::decode(from)? {
            0 => Ok(Self::Word(Decode::decode(from)?)),
            1 => Ok(Self::Bytes(Decode::decode(from)?)),
            _ => Err(DecodeError::Invalid { what: "key" }),
        }
    }
}

impl<'a, T: Wire<'a>> Wire<'a> for Bound<T> {
    fn put(&self, into: &mut Vec<u8>) {
        match self {
            Self::Unbounded => into.push(0),
            Self::Included(key) => {
                into.push(1);
                key.put(into);
            }
            Self::Excluded(key) => {
                into.push(2);
                key.put(into);
            }
        }
    }

    fn take(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match u8::decode(from)? {
            0 => Ok(Self::Unbounded),
            1 => T::take(from).map(Self::Included),
            2 => T::take(from).map(Self::Excluded),
            _ => Err(DecodeError::Invalid { what: "bound of a range" }),
        }
    }
}

impl Wire<'_> for BucketVersion {
    fn put(&self, into: &mut Vec<u8>) {
        self.to_words().encode(into);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (at, version) = Decode::decode(from)?;
        Ok(Self::from_words(at, version))
    }
}

impl Wire<'_> for NodeVersion {
    fn put(&self, into: &mut Vec<u8>) {
        (self.at.bytes(), self.version).encode(into);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (at, version) = Decode::decode(from)?;
        Ok(Self::from_words(at, version))
    }
}

impl Wire<'_> for Absence {
    fn put(&self, into: &mut Vec<u8>) {
        match self {
            Self::Bucket(bucket) => {
                into.push(0);
                bucket.put(into);
            }
            Self::Leaf(leaf) => {
                into.push(1);
                leaf.put(into);
            }
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::decode(from)? {
            0 => BucketVersion::take(from).map(Self::Bucket),
            1 => NodeVersion::take(from).map(Self::Leaf),
            _ => Err(DecodeError::Invalid { what: "guard" }),
        }
    }
}

impl<'a, T: Wire<'a>> Wire<'a> for Option<T> {
    fn put(&self, into: &mut Vec<u8>) {
        self.is_some().encode(into);
        if let Some(value) = self {
            value.put(into);
        }
    }

    fn take(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        bool::decode(from)?.then(|| T::take(from)).transpose()
    }
}

/// What one of a transaction's own insertions did to a guard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shifted {
    pub(super) before: Absence,
    pub(super) after: Absence,
    pub(super) split_off: Option<Absence>,
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

/// Messages whose fields follow each other.
macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)+ })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(super) struct $name<'a> {
            $(pub(super) $field: $type,)+
            pub(super) borrows: std::marker::PhantomData<&'a ()>,
        }

        impl Encode for $name<'_> {
            fn encode(&self, into: &mut Vec<u8>) {
                $(self.$field.put(into);)+
            }
        }

        impl<'a> Decode<'a> for $name<'a> {
            fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
                Ok(Self { $($field: Wire::take(from)?,)+ borrows: std::marker::PhantomData })
            }
        }
    )+};
}

messages! {
    /// Asks for a row: the table, as the cluster numbers it, and the key.
    ReadRow { table: u16, key: KeyRef<'a>, holder: Holder, }
    /// Asks for a row that does not change until a time, or until the end of a lease that it has.
    LeaseRow { table: u16, key: KeyRef<'a>, holder: Holder, until: u64, }
    /// Asks for a record for a key that may be inserted, with this value in it if it is made.
    PlaceRow { table: u16, key: KeyRef<'a>, holder: Holder, value: &'a [u8], }
    /// Asks for the lock of a record, and for memory for a value of this length, if it is to have
    /// one.
    LockRow { table: u16, key: KeyRef<'a>, at: Handle, seen: Version, holder: Holder, length: Option<u32>, }
    /// Asks for the rows of a range, as many as a message has room for.
    ScanRows { table: u16, low: Bound<KeyRef<'a>>, high: Bound<KeyRef<'a>>, holder: Holder, }
    /// Asks whether a record is as it was seen.
    CheckRow { at: Handle, seen: Version, holder: Holder, }
    /// Writes a record that is locked, and unlocks it.
    ApplyRow { table: u16, key: KeyRef<'a>, at: Handle, holder: Holder, epoch: u64, change: Change<'a>, }
    /// Gives up a lock, if the holder has it.
    UnlockRow { table: u16, at: Handle, holder: Holder, }
    /// Takes out a record that was made for an insertion which has not happened.
    ReapRow { table: u16, key: KeyRef<'a>, at: Handle, seen: Version, }
    /// Asks a backup for a ring, for the worker with this name.
    OpenRingFor { producer: Holder, }
    /// Writes bytes of a record into a ring.
    AppendTo { ring: u32, producer: Holder, position: u64, bytes: &'a [u8], }
    /// Tells up to where the records of a ring are decided, or void.
    SettleUpTo { ring: u32, producer: Holder, settled: u64, }
    /// Introduces a node: what it believes the cluster to be.
    Hello { version: u32, engine: &'a str, protocol: &'a str, tables: &'a str, }
}

/// What a commit makes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change<'a> {
    /// It has this value.
    Put(&'a [u8]),
    /// It is there, with the value that its record has.
    Publish,
    /// It is not there.
    Remove,
}

impl<'a> Wire<'a> for Change<'a> {
    fn put(&self, into: &mut Vec<u8>) {
        match *self {
            Self::Put(value) => (0_u8, value).encode(into),
            Self::Publish => into.push(1),
            Self::Remove => into.push(2),
        }
    }

    fn take(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match u8::decode(from)? {
            0 => Ok(Self::Put(Decode::decode(from)?)),
            1 => Ok(Self::Publish),
            2 => Ok(Self::Remove),
            _ => Err(DecodeError::Invalid { what: "change of a row" }),
        }
    }
}

/// What an owner found where a row was looked for, and its count of changes from before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'a> {
    pub(super) count: u64,
    pub(super) is: Is<'a>,
}

/// See [`Found`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Is<'a> {
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
pub(super) struct LeasedRow<'a> {
    pub(super) end: u64,
    pub(super) found: Found<'a>,
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
pub(super) struct Scanned<'a> {
    pub(super) count: u64,
    /// Whether these are all that there are.
    pub(super) is_whole: bool,
    /// The leaves that were passed.
    pub(super) passed: SmallVec<[Absence; 8]>,
    /// The rows, one behind the other.
    pub(super) rows: &'a [u8],
}

impl Encode for Scanned<'_> {
    fn encode(&self, into: &mut Vec<u8>) {
        (self.count, self.is_whole, self.passed.len() as u32).encode(into);
        self.passed.iter().for_each(|leaf| leaf.put(into));
        self.rows.encode(into);
    }
}

impl<'a> Decode<'a> for Scanned<'a> {
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (count, is_whole, leaves): (u64, bool, u32) = Decode::decode(from)?;
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
        Ok(Self { count, is_whole, passed, rows })
    }
}

/// A record of a range. If its version is a removed one, the row is not there.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScannedRow<'a> {
    pub(super) key: KeyRef<'a>,
    pub(super) at: Handle,
    pub(super) version: Version,
    pub(super) value: &'a [u8],
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
    pub(super) fn iter(&self) -> impl Iterator<Item = ScannedRow<'a>> + use<'a> {
        let mut reader = Reader::new(self.rows);
        std::iter::from_fn(move || ScannedRow::take(&mut reader).ok())
    }
}

/// The record that an owner found or made for a key, what that did to guards, and the owner's count
/// of changes from before.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) count: u64,
    pub(super) at: Handle,
    pub(super) version: Version,
    pub(super) is_made: bool,
    pub(super) shifts: Shifts,
}

/// An insertion changes one guard, and a split another.
pub(super) type Shifts = SmallVec<[Shifted; 2]>;

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
pub(super) struct Welcome {
    /// The region of its memory.
    pub(super) region: u16,
    /// Its line: the snapshot number, and how many snapshots are open.
    pub(super) line: u64,
    /// Its tables, but for those that peers do not reach.
    pub(super) tables: Vec<Option<u64>>,
}

impl Encode for Welcome {
    fn encode(&self, into: &mut Vec<u8>) {
        (self.region, self.line, self.tables.len() as u16).encode(into);
        self.tables.iter().for_each(|table| table.encode(into));
    }
}

impl<'a> Decode<'a> for Welcome {
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (region, line, tables): (u16, u64, u16) = Decode::decode(from)?;
        let tables = (0..tables).map(|_| Decode::decode(from)).collect::<Result<_, _>>()?;
        Ok(Self { region, line, tables })
    }
}

/// Where a backup has made a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingPlace {
    pub(super) number: u32,
    /// Where it is in the backup's memory.
    pub(super) at: u64,
    /// Bytes of records that it has room for.
    pub(super) size: u64,
    /// The position of the first record.
    pub(super) start: u64,
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
pub(super) struct Before(pub(super) Version);

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

/// A guard as a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct GuardOf(pub(super) Absence);

impl Encode for GuardOf {
    fn encode(&self, into: &mut Vec<u8>) {
        self.0.put(into);
    }
}

impl<'a> Decode<'a> for GuardOf {
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Wire::take(from).map(Self)
    }
}

/// An owner's line: its snapshot number, and its count of changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineIs {
    pub(super) epoch: u64,
    pub(super) count: u64,
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

macro_rules! procedures {
    ($($name:ident = $number:literal: $request:ty => $reply:ty;)+) => {$(
        pub(super) enum $name {}

        impl Procedure for $name {
            const NUMBER: u16 = $number;
            type Request<'a> = $request;
            type Reply<'a> = $reply;
        }
    )+};
}

procedures! {
    Introduce = 1: Hello<'a> => Welcome;
    Read = 2: ReadRow<'a> => Found<'a>;
    Place = 3: PlaceRow<'a> => Placed;
    Lock = 4: LockRow<'a> => Before;
    Line = 5: () => LineIs;
    Check = 6: CheckRow<'a> => bool;
    Guard = 7: GuardOf => bool;
    Apply = 8: ApplyRow<'a> => ();
    Unlock = 9: UnlockRow<'a> => ();
    Reap = 10: ReapRow<'a> => ();
    Scan = 11: ScanRows<'a> => Scanned<'a>;
    Lease = 20: LeaseRow<'a> => LeasedRow<'a>;
    Clock = 21: () => u64;
    OpenRing = 22: OpenRingFor<'a> => RingPlace;
    Append = 23: AppendTo<'a> => u64;
    Settle = 24: SettleUpTo<'a> => u64;
}

/// Why an owner refuses a request.
///
/// # Example
///
/// ```
/// use drtm_txn::cluster::Refusal;
///
/// assert!(Refusal::Full.to_string().contains("memory"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Another transaction has the record locked.
    #[error("another transaction has the row locked")]
    Locked = 1,
    /// The record is not where it was.
    #[error("the row has moved")]
    Moved = 2,
    /// There is no memory for the value.
    #[error("its memory is full: remove rows, or start it with more")]
    Full = 3,
    /// It serves no such table.
    #[error("it has no table of this number: start all nodes with the same tables")]
    NoTable = 4,
    /// The key is none of the table's.
    #[error("the key is none of the table's: start all nodes with the same tables")]
    NotItsKey = 5,
    /// The key or the value is longer than that of any row.
    #[error("the key or the value is too long: divide the row")]
    TooLong = 6,
    /// The record is not locked by the transaction that wants to write it.
    #[error("the transaction does not hold the lock of a row that it wants to write")]
    NotHeld = 7,
    /// It is closing.
    #[error("it is closing")]
    Closed = 8,
    /// Its store is corrupt.
    #[error("its store is corrupt: restore it")]
    Corrupt = 9,
    /// The table has no order.
    #[error("the table has no order: ranges are of ordered tables")]
    NotOrdered = 12,
    /// It believes the cluster to be another.
    #[error("it was started with other tables, partitions, or another engine or version: start all alike")]
    Other = 10,
    /// A node that is gone has the row locked.
    #[error("a node that has died has the row locked: recover that node, or restart the cluster")]
    HolderDead = 11,
}

impl Refusal {
    const ALL: [Self; 12] = [
        Self::Locked,
        Self::Moved,
        Self::Full,
        Self::NoTable,
        Self::NotItsKey,
        Self::TooLong,
        Self::NotHeld,
        Self::Closed,
        Self::Corrupt,
        Self::Other,
        Self::HolderDead,
        Self::NotOrdered,
    ];

    /// The refusal of a number.
    pub(super) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| *refusal as u32 == number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_refusal_has_a_number() {
        for refusal in Refusal::ALL {
            assert_eq!(Refusal::from_number(refusal as u32), Some(refusal));
        }
        assert_eq!(Refusal::from_number(0), None);
    }

    fn decodes<'a, T: Decode<'a> + Encode>(bytes: &'a [u8]) {
        let mut reader = Reader::new(bytes);
        if let Ok(value) = T::decode(&mut reader) {
            let mut again = Vec::new();
            value.encode(&mut again);
            assert!(bytes.starts_with(&again), "there is one encoding of a value");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            decodes::<ReadRow<'_>>(&bytes);
            decodes::<LockRow<'_>>(&bytes);
            decodes::<ApplyRow<'_>>(&bytes);
            decodes::<Found<'_>>(&bytes);
            decodes::<LeaseRow<'_>>(&bytes);
            decodes::<LeasedRow<'_>>(&bytes);
            decodes::<ScanRows<'_>>(&bytes);
            decodes::<AppendTo<'_>>(&bytes);
            decodes::<RingPlace>(&bytes);
            let _ = Scanned::decode(&mut Reader::new(&bytes));
            let mut reader = Reader::new(&bytes);
            let _ = Placed::decode(&mut reader);
            let _ = Hello::decode(&mut Reader::new(&bytes));
        }
    }
}
