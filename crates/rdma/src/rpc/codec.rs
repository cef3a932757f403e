//! The codec of requests and replies: fixed-width numbers in little endian, and byte strings after
//! their length. It borrows what it decodes, and allocates nothing.
//!
//! Decoding any bytes ends with a value or an error.

/// Bytes that cannot be decoded.
///
/// # Example
///
/// ```
/// use drtm_rdma::rpc::{Decode, DecodeError, Reader};
///
/// assert_eq!(u32::decode(&mut Reader::new(&[1, 2])), Err(DecodeError::Short { wanted: 4, left: 2 }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// There are fewer bytes than the value needs.
    #[error("{wanted} bytes are wanted, and {left} are left")]
    Short {
        /// The bytes that the value needs.
        wanted: usize,
        /// The bytes that are left.
        left: usize,
    },
    /// There are bytes after the value.
    #[error("{left} bytes are left after the value")]
    Long {
        /// The number of extra bytes.
        left: usize,
    },
    /// The bytes are no valid value of the type.
    #[error("the bytes stand for no {what}")]
    Invalid {
        /// The type of the value.
        what: &'static str,
    },
    /// The bytes have another format, or another version of it.
    #[error("this is no message of this protocol, or one of another version")]
    Foreign,
}

/// Bytes that are being decoded.
///
/// # Example
///
/// ```
/// use drtm_rdma::rpc::{Decode, Reader};
///
/// let mut reader = Reader::new(&[7, 0, 1, 0, 0, 0, b'x']);
/// assert_eq!(<(u16, &[u8])>::decode(&mut reader), Ok((7, &b"x"[..])));
/// assert_eq!(reader.finish(), Ok(()));
/// ```
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Returns a reader at the first of these bytes.
    ///
    /// # Example
    ///
    /// See [`Reader`].
    #[must_use]
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    ///
    /// When there are fewer.
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let short = DecodeError::Short { wanted: count, left: self.left.len() };
        let (taken, left) = self.left.split_at_checked(count).ok_or(short)?;
        self.left = left;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let short = DecodeError::Short { wanted: N, left: self.left.len() };
        let (taken, left) = self.left.split_first_chunk::<N>().ok_or(short)?;
        self.left = left;
        Ok(*taken)
    }

    /// Checks that no bytes are left.
    ///
    /// # Errors
    ///
    /// When some are left.
    ///
    /// # Example
    ///
    /// See [`Reader`].
    #[inline]
    pub fn finish(&self) -> Result<(), DecodeError> {
        match self.left.len() {
            0 => Ok(()),
            left => Err(DecodeError::Long { left }),
        }
    }
}

/// A type that can be encoded.
///
/// # Example
///
/// ```
/// use drtm_rdma::rpc::Encode;
///
/// let mut bytes = Vec::new();
/// (1_u8, 2_u16, "x").encode(&mut bytes);
/// assert_eq!(bytes, [1, 2, 0, 1, 0, 0, 0, b'x']);
/// ```
pub trait Encode {
    /// Appends the value's bytes.
    fn encode(&self, into: &mut Vec<u8>);
}

/// A type that can be decoded, possibly borrowing from the bytes.
///
/// # Example
///
/// ```
/// use drtm_rdma::rpc::{Decode, DecodeError, Encode, Reader};
///
/// /// A transfer of money, as an application encodes it.
/// #[derive(Debug, PartialEq)]
/// struct Transfer<'a> {
///     to: &'a str,
///     cents: u64,
/// }
///
/// impl Encode for Transfer<'_> {
///     fn encode(&self, into: &mut Vec<u8>) {
///         (self.to, self.cents).encode(into);
///     }
/// }
///
/// impl<'a> Decode<'a> for Transfer<'a> {
///     fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
///         let (to, cents) = Decode::decode(from)?;
///         Ok(Self { to, cents })
///     }
/// }
///
/// let mut bytes = Vec::new();
/// Transfer { to: "Ada", cents: 5 }.encode(&mut bytes);
/// assert_eq!(Transfer::decode(&mut Reader::new(&bytes)), Ok(Transfer { to: "Ada", cents: 5 }));
/// ```
pub trait Decode<'a>: Sized {
    /// Decodes a value.
    ///
    /// # Errors
    ///
    /// When the bytes are invalid.
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError>;
}

macro_rules! numbers {
    ($($number:ty),+) => {
        $(
            impl Encode for $number {
                #[inline]
                fn encode(&self, into: &mut Vec<u8>) {
                    into.extend_from_slice(&self.to_le_bytes());
                }
            }

            impl Decode<'_> for $number {
                #[inline]
                fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                    from.array().map(Self::from_le_bytes)
                }
            }
        )+
    };
}

numbers!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128);

impl Encode for bool {
    #[inline]
    fn encode(&self, into: &mut Vec<u8>) {
        into.push(u8::from(*self));
    }
}

impl Decode<'_> for bool {
    #[inline]
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::decode(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Invalid { what: "truth value" }),
        }
    }
}

impl Encode for &[u8] {
    /// # Panics
    ///
    /// Panics if there are 2^32 bytes or more, which no message carries.
    #[inline]
    fn encode(&self, into: &mut Vec<u8>) {
        assert!(self.len() <= u32::MAX as usize, "a byte string of {} bytes fits no message", self.len());
        (self.len() as u32).encode(into);
        into.extend_from_slice(self);
    }
}

impl<'a> Decode<'a> for &'a [u8] {
    #[inline]
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let length = u32::decode(from)?;
        from.take(length as usize)
    }
}

impl Encode for &str {
    #[inline]
    fn encode(&self, into: &mut Vec<u8>) {
        self.as_bytes().encode(into);
    }
}

impl<'a> Decode<'a> for &'a str {
    #[inline]
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let bytes = <&[u8]>::decode(from)?;
        std::str::from_utf8(bytes).map_err(|_| DecodeError::Invalid { what: "text in UTF-8" })
    }
}

impl<const N: usize> Encode for [u8; N] {
    #[inline]
    fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(self);
    }
}

impl<const N: usize> Decode<'_> for [u8; N] {
    #[inline]
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        from.array()
    }
}

impl<T: Encode> Encode for Option<T> {
    #[inline]
    fn encode(&self, into: &mut Vec<u8>) {
        self.is_some().encode(into);
        if let Some(value) = self {
            value.encode(into);
        }
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Option<T> {
    #[inline]
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        bool::decode(from)?.then(|| T::decode(from)).transpose()
    }
}

macro_rules! tuples {
    ($(($($part:ident),*)),+) => {
        $(
            #[allow(non_snake_case, clippy::unused_unit)]
            impl<$($part: Encode),*> Encode for ($($part,)*) {
                #[inline]
                fn encode(&self, into: &mut Vec<u8>) {
                    let ($($part,)*) = self;
                    let _ = &into;
                    $($part.encode(into);)*
                }
            }

            #[allow(clippy::unused_unit)]
            impl<'a, $($part: Decode<'a>),*> Decode<'a> for ($($part,)*) {
                #[inline]
                fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
                    let _ = &from;
                    Ok(($($part::decode(from)?,)*))
                }
            }
        )+
    };
}

tuples!((), (A), (A, B), (A, B, C), (A, B, C, D), (A, B, C, D, F), (A, B, C, D, F, G));

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Everything<'a> = (u8, (u16, i64), Option<u32>, &'a [u8], &'a str, [u8; 3]);

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            numbers in any::<(u8, u16, i64, Option<u32>)>(),
            bytes in prop::collection::vec(any::<u8>(), 0..50),
            text in ".{0,20}",
            array in any::<[u8; 3]>(),
        ) {
            let (a, b, c, d) = numbers;
            let value: Everything<'_> = (a, (b, c), d, &bytes, &text, array);
            let mut encoded = Vec::new();
            value.encode(&mut encoded);
            let mut reader = Reader::new(&encoded);
            prop_assert_eq!(Everything::decode(&mut reader), Ok(value));
            prop_assert_eq!(reader.finish(), Ok(()));
            // Every prefix is an error.
            for length in 0..encoded.len() {
                prop_assert!(Everything::decode(&mut Reader::new(&encoded[..length])).is_err());
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut reader = Reader::new(&bytes);
            if let Ok(value) = Everything::decode(&mut reader) {
                let mut again = Vec::new();
                value.encode(&mut again);
                prop_assert!(bytes.starts_with(&again), "there is one encoding of a value");
            }
        }
    }
}
