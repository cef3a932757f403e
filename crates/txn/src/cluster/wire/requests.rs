//! What owners are asked: requests, whose fields follow each other in a message.

use std::ops::Bound;

use drtm_kv::{Handle, Holder, Version};
use drtm_rdma::rpc::{Decode, DecodeError, Encode, Reader};

use super::Wire;
use crate::memory::storage::{Absence, KeyRef};

/// Messages whose fields follow each other.
macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)+ })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(in crate::cluster) struct $name<'a> {
            $(pub(in crate::cluster) $field: $type,)+
            pub(in crate::cluster) borrows: std::marker::PhantomData<&'a ()>,
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
    /// Asks for the rows of a range from its front, or from its back: as many as a message has room
    /// for, and no more than `most`.
    ScanRows {
        table: u16,
        low: Bound<KeyRef<'a>>,
        high: Bound<KeyRef<'a>>,
        holder: Holder,
        is_back: bool,
        most: u32,
    }
    /// Asks whether a record is as it was seen.
    CheckRow { at: Handle, seen: Version, holder: Holder, }
    /// Writes a record that is locked, and unlocks it.
    ApplyRow { table: u16, key: KeyRef<'a>, at: Handle, holder: Holder, epoch: u64, change: Change<'a>, }
    /// What a commit makes of a row that is locked, among others.
    ChangedRow { table: u16, key: KeyRef<'a>, at: Handle, change: Change<'a>, }
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

/// All that a transaction changes at an owner. It is carried out whole, or refused.
#[derive(Clone, Copy, Debug)]
pub(in crate::cluster) struct ApplyRows<'a> {
    pub(in crate::cluster) holder: Holder,
    pub(in crate::cluster) epoch: u64,
    /// The rows, one behind the other.
    pub(in crate::cluster) rows: &'a [u8],
}

impl Encode for ApplyRows<'_> {
    fn encode(&self, into: &mut Vec<u8>) {
        self.holder.put(into);
        (self.epoch, self.rows).encode(into);
    }
}

impl<'a> Decode<'a> for ApplyRows<'a> {
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (holder, epoch, rows) = (Wire::take(from)?, Wire::take(from)?, Decode::decode(from)?);
        // All of them are looked at now, so that they can be taken without errors.
        let mut reader = Reader::new(rows);
        while reader.finish().is_err() {
            ChangedRow::decode(&mut reader)?;
        }
        Ok(Self { holder, epoch, rows })
    }
}

impl<'a> ApplyRows<'a> {
    /// The rows.
    pub(in crate::cluster) fn iter(&self) -> impl Iterator<Item = ChangedRow<'a>> + use<'a> {
        let mut reader = Reader::new(self.rows);
        std::iter::from_fn(move || ChangedRow::decode(&mut reader).ok())
    }
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
    fn put(&self, into: &mut Vec<u8>) {
        match *self {
            Self::Put(value) => (0_u8, value).encode(into),
            Self::Publish(None) => into.push(1),
            Self::Remove => into.push(2),
            Self::Publish(Some(value)) => (3_u8, value).encode(into),
        }
    }

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

/// A guard as a request.
#[derive(Clone, Copy, Debug)]
pub(in crate::cluster) struct GuardOf(pub(in crate::cluster) Absence);

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
