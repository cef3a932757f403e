//! What nodes ask of each other for transactions: one set of requests, several to a message.
//!
//! Each request is about one row, or about the owner's line. A request never waits at the owner: it
//! is carried out, or refused with a [`Refusal`].
//!
//! Here is how what all messages have in common becomes bytes, and which reply belongs to which
//! request.

mod refusal;
mod replies;
mod requests;

use std::ops::Bound;

use drtm_kv::{BucketVersion, Handle, Holder, NodeVersion, Version};
use drtm_rdma::rpc::{Decode, DecodeError, Encode, Procedure, Reader};

pub use self::refusal::Refusal;
pub(super) use self::{
    replies::{Before, Found, Is, LeasedRow, LineIs, Placed, RingPlace, Scanned, ScannedRow, Shifted, Shifts, Welcome},
    requests::{
        AppendTo, ApplyRow, ApplyRows, Change, ChangedRow, CheckRow, GuardOf, Hello, LeaseRow, LockRow, OpenRingFor,
        PlaceRow, ReadRow, ReapRow, ScanRows, SettleUpTo, UnlockRow,
    },
};
use crate::memory::storage::{Absence, KeyRef};

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
    ApplyAll = 12: ApplyRows<'a> => ();
    Lease = 20: LeaseRow<'a> => LeasedRow<'a>;
    Clock = 21: () => u64;
    OpenRing = 22: OpenRingFor<'a> => RingPlace;
    Append = 23: AppendTo<'a> => u64;
    Settle = 24: SettleUpTo<'a> => u64;
    Durable = 25: u64 => u64;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Durability;

    /// What is decoded of any bytes is encoded in one way, which is read as the same again.
    fn decodes<T: for<'a> OfMessage<'a>>(bytes: &[u8]) {
        let Some(once) = T::again(bytes) else { return };
        assert_eq!(T::again(&once).as_ref(), Some(&once));
    }

    fn encoded(put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes);
        bytes
    }

    /// A message, whatever it borrows.
    trait OfMessage<'a> {
        /// The encoding of what is decoded.
        fn again(bytes: &'a [u8]) -> Option<Vec<u8>>;
    }

    macro_rules! of_messages {
        ($($name:ident = $type:ty;)+) => {
        $(
            enum $name {}

            impl<'a> OfMessage<'a> for $name {
                fn again(bytes: &'a [u8]) -> Option<Vec<u8>> {
                    let value = <$type>::decode(&mut Reader::new(bytes)).ok()?;
                    Some(encoded(|into| value.encode(into)))
                }
            }
        )+

        /// Decodes bytes as each message that there is.
        fn decode_as_all(bytes: &[u8]) {
            $(decodes::<$name>(bytes);)+
            if let Ok(scanned) = Scanned::decode(&mut Reader::new(bytes)) {
                // Rows are looked at when they are decoded, so none is left out later.
                let length: usize = scanned.iter().map(|row| encoded(|into| row.put(into)).len()).sum();
                assert_eq!(length, scanned.rows.len());
            }
        }
        };
    }

    of_messages! {
        AHello = Hello<'a>;
        ARead = ReadRow<'a>;
        APlace = PlaceRow<'a>;
        ALock = LockRow<'a>;
        ACheck = CheckRow<'a>;
        AGuard = GuardOf;
        AnApply = ApplyRow<'a>;
        ManyApplied = ApplyRows<'a>;
        AnUnlock = UnlockRow<'a>;
        AReap = ReapRow<'a>;
        AScan = ScanRows<'a>;
        ALease = LeaseRow<'a>;
        AnOpenRing = OpenRingFor<'a>;
        AnAppend = AppendTo<'a>;
        ASettle = SettleUpTo<'a>;
        ALeased = LeasedRow<'a>;
        ARing = RingPlace;
        AWelcome = Welcome;
        AFound = Found<'a>;
        APlaced = Placed;
        ABefore = Before;
        ALine = LineIs;
        AScanned = Scanned<'a>;
    }

    /// A reply of each kind, made of a few words.
    fn replies(words: [u64; 4], value: &[u8]) -> Vec<Vec<u8>> {
        let [count, at, version, other] = words;
        let (at, version) = (Handle::from_word(at), Version::from_word(version));
        let absence = Absence::Bucket(BucketVersion::from_words(count, other));
        let of = |is| encoded(|into| Found { count, is }.encode(into));
        let row = ScannedRow { key: KeyRef::Word(other), at, version, value };
        let named = ScannedRow { key: KeyRef::Bytes(value), ..row };
        let rows = encoded(|into| [row, named].iter().for_each(|row| row.put(into)));
        let scanned = Scanned {
            count,
            is_whole: other.is_multiple_of(2),
            next: (count, other),
            passed: [absence].into_iter().collect(),
            rows: &rows,
        };
        let shift = Shifted { before: absence, after: absence, split_off: Some(absence) };
        let placed = Placed { count, at, version, is_made: true, shifts: [shift].into_iter().collect() };
        let durability = [None, Some(Durability::Async), Some(Durability::Sync)][other as usize % 3];
        let welcome = Welcome { region: other as u16, line: count, durability, tables: vec![None, Some(other)] };
        vec![
            of(Is::Record { at, version, value }),
            of(Is::Nothing(absence)),
            of(Is::Locked(at)),
            encoded(|into| scanned.encode(into)),
            encoded(|into| placed.encode(into)),
            encoded(|into| welcome.encode(into)),
            encoded(|into| Before(version).encode(into)),
            encoded(|into| LineIs { epoch: other, count }.encode(into)),
            encoded(|into| LeasedRow { end: other, found: Found { count, is: Is::Locked(at) } }.encode(into)),
            encoded(|into| RingPlace { number: 1, at: count, size: 64, start: 64 }.encode(into)),
        ]
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            decode_as_all(&bytes);
        }

        #[test]
        fn no_reply_that_was_tampered_with_makes_it_panic(
            words: [u64; 4],
            value in prop::collection::vec(any::<u8>(), 0..20),
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            end: prop::sample::Index,
        ) {
            for mut bytes in replies(words, &value) {
                decode_as_all(&bytes);
                for (at, byte) in &flips {
                    *at.get_mut(&mut bytes) = *byte;
                }
                decode_as_all(&bytes);
                decode_as_all(&bytes[..end.index(bytes.len() + 1)]);
            }
        }
    }
}
