//! How what the messages of nodes have in common becomes bytes.

pub(super) mod parts;
mod refusal;
pub(super) mod stamp;

use std::{marker::PhantomData, ops::Bound};

use drtm_kv::{BucketVersion, Handle, Holder, NodeVersion, Version};
use drtm_rdma::rpc::{Decode, DecodeError, Encode, Reader};

use smallvec::SmallVec;

pub use self::refusal::Refusal;
use super::view::View;
use crate::memory::storage::{Absence, KeyRef};

/// What becomes bytes in a message.
pub(super) trait Wire<'a>: Sized {
    fn put(&self, into: &mut Vec<u8>);

    fn take(from: &mut Reader<'a>) -> Result<Self, DecodeError>;
}

macro_rules! as_they_are {
    ($($type:ty),+) => {$(
        impl<'a> Wire<'a> for $type {
            #[inline]
            fn put(&self, into: &mut Vec<u8>) {
                self.encode(into);
            }

            #[inline]
            fn take(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
                Decode::decode(from)
            }
        }
    )+};
}

as_they_are!(u8, u16, u32, u64, bool, &'a [u8], &'a str, View);

/// Types of which each value is a word.
macro_rules! words {
    ($($type:ty: $from:expr;)+) => {$(
        impl Wire<'_> for $type {
            #[inline]
            fn put(&self, into: &mut Vec<u8>) {
                self.to_word().encode(into);
            }

            #[inline]
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
    #[inline]
    fn put(&self, into: &mut Vec<u8>) {
        match *self {
            Self::Word(word) => (0_u8, word).encode(into),
            Self::Bytes(bytes) => (1_u8, bytes).encode(into),
        }
    }

    #[inline]
    fn take(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match u8::decode(from)? {
            0 => Ok(Self::Word(Decode::decode(from)?)),
            1 => Ok(Self::Bytes(Decode::decode(from)?)),
            _ => Err(DecodeError::Invalid { what: "key" }),
        }
    }
}

impl<'a, T: Wire<'a>> Wire<'a> for Bound<T> {
    #[inline]
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

    #[inline]
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
    #[inline]
    fn put(&self, into: &mut Vec<u8>) {
        self.to_words().encode(into);
    }

    #[inline]
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (at, version) = Decode::decode(from)?;
        Ok(Self::from_words(at, version))
    }
}

impl Wire<'_> for NodeVersion {
    #[inline]
    fn put(&self, into: &mut Vec<u8>) {
        (self.at.bytes(), self.version).encode(into);
    }

    #[inline]
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (at, version) = Decode::decode(from)?;
        Ok(Self::from_words(at, version))
    }
}

impl Wire<'_> for Absence {
    #[inline]
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

    #[inline]
    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::decode(from)? {
            0 => BucketVersion::take(from).map(Self::Bucket),
            1 => NodeVersion::take(from).map(Self::Leaf),
            _ => Err(DecodeError::Invalid { what: "guard" }),
        }
    }
}

impl<'a, T: Wire<'a>> Wire<'a> for Option<T> {
    #[inline]
    fn put(&self, into: &mut Vec<u8>) {
        self.is_some().encode(into);
        if let Some(value) = self {
            value.put(into);
        }
    }

    #[inline]
    fn take(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        bool::decode(from)?.then(|| T::take(from)).transpose()
    }
}

impl<'a, A: smallvec::Array<Item: Wire<'a>>> Wire<'a> for SmallVec<A> {
    #[inline]
    fn put(&self, into: &mut Vec<u8>) {
        (self.len() as u32).encode(into);
        self.iter().for_each(|value| value.put(into));
    }

    #[inline]
    fn take(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let count = u32::decode(from)?;
        (0..count).map(|_| Wire::take(from)).collect()
    }
}

/// Values one behind the other. All of them are looked at when they are decoded.
#[derive(Debug)]
pub(super) struct Many<'a, T> {
    bytes: &'a [u8],
    count: usize,
    of: PhantomData<T>,
}

impl<T> Clone for Many<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Many<'_, T> {}

impl<'a, T: Wire<'a>> Many<'a, T> {
    /// Makes them of so many values that were put into these bytes.
    pub(super) fn new(bytes: &'a [u8], count: usize) -> Self {
        Self { bytes, count, of: PhantomData }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Returns the values.
    pub(super) fn iter(&self) -> impl Iterator<Item = T> + use<'a, T> {
        let mut reader = Reader::new(self.bytes);
        std::iter::from_fn(move || T::take(&mut reader).ok())
    }
}

impl<'a, T: Wire<'a>> Wire<'a> for Many<'a, T> {
    #[inline]
    fn put(&self, into: &mut Vec<u8>) {
        self.bytes.encode(into);
    }

    #[inline]
    fn take(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (bytes, mut count) = (<&[u8]>::decode(from)?, 0);
        let mut reader = Reader::new(bytes);
        while reader.finish().is_err() {
            T::take(&mut reader)?;
            count += 1;
        }
        Ok(Self::new(bytes, count))
    }
}

/// Messages whose fields follow each other.
macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident $(<$life:lifetime>)? { $($field:ident: $type:ty,)+ })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub(in crate::cluster) struct $name $(<$life>)? {
            $(pub(in crate::cluster) $field: $type,)+
        }

        impl $(<$life>)? drtm_rdma::rpc::Encode for $name $(<$life>)? {
            #[inline]
            fn encode(&self, into: &mut Vec<u8>) {
                $($crate::cluster::wire::Wire::put(&self.$field, into);)+
            }
        }

        impl<'a> drtm_rdma::rpc::Decode<'a> for $name $(<$life>)? {
            #[inline]
            fn decode(from: &mut drtm_rdma::rpc::Reader<'a>) -> Result<Self, drtm_rdma::rpc::DecodeError> {
                Ok(Self { $($field: $crate::cluster::wire::Wire::take(from)?,)+ })
            }
        }

        impl<'a> $crate::cluster::wire::Wire<'a> for $name $(<$life>)? {
            #[inline]
            fn put(&self, into: &mut Vec<u8>) {
                drtm_rdma::rpc::Encode::encode(self, into);
            }

            #[inline]
            fn take(from: &mut drtm_rdma::rpc::Reader<'a>) -> Result<Self, drtm_rdma::rpc::DecodeError> {
                drtm_rdma::rpc::Decode::decode(from)
            }
        }
    )+};
}
pub(super) use messages;
