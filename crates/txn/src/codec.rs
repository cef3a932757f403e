//! How values become bytes, and bytes values.
//!
//! A table names its codec, which fixes the type of its values: bytes as they are ([`Raw`]), a plain struct's own memory ([`Pod`]), or
//! whatever serde can describe ([`Serde`]). Another is a type that implements [`Codec`].

use std::{borrow::Borrow, marker::PhantomData};

use serde::{Serialize, de::DeserializeOwned};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A value that cannot be encoded, or bytes that are no value's.
///
/// # Example
///
/// ```
/// use drtm_txn::{Codec, CodecError, Pod};
///
/// let error = Pod::<u64>::decode(&[1, 2, 3]).unwrap_err();
/// assert_eq!(error, CodecError::Size { found: 3, expected: 8 });
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// There are not as many bytes as the type has: the table was written with another.
    #[error("{found} bytes where the type has {expected}: was the table written with another type?")]
    Size {
        /// Bytes that there are.
        found: usize,
        /// Bytes that there must be.
        expected: usize,
    },
    /// The serializer refuses the value.
    #[error("the value cannot be encoded: {reason}")]
    Encode {
        /// What it says.
        reason: String,
    },
    /// The bytes are no value of the type.
    #[error("the bytes are no value of the table's type: {reason}")]
    Decode {
        /// What the deserializer says.
        reason: String,
    },
}

/// A way to write values as bytes.
///
/// # Example
///
/// ```
/// use drtm_txn::{Codec, CodecError};
///
/// /// Text, without a copy of its own on the way in.
/// struct Text;
///
/// impl Codec for Text {
///     type Value = String;
///     type Given = str;
///     type View<'b> = &'b str;
///     fn encode(value: &str, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
///         bytes.extend_from_slice(value.as_bytes());
///         Ok(())
///     }
///     fn decode(bytes: &[u8]) -> Result<String, CodecError> {
///         Ok(Self::view(bytes)?.to_owned())
///     }
///     fn view(bytes: &[u8]) -> Result<&str, CodecError> {
///         std::str::from_utf8(bytes).map_err(|error| CodecError::Decode { reason: error.to_string() })
///     }
/// }
///
/// let mut bytes = Vec::new();
/// Text::encode("seven", &mut bytes)?;
/// assert_eq!(Text::decode(&bytes)?, "seven");
/// # Ok::<(), CodecError>(())
/// ```
pub trait Codec: 'static {
    /// What is read.
    type Value;

    /// What is written: as what is read, or borrowed.
    type Given: ?Sized;

    /// What is read where nothing has to be kept: borrowed, if it can be.
    type View<'b>;

    /// Bytes of a value, if they are always as many.
    const SIZE: Option<usize> = None;

    /// Appends a value's bytes.
    ///
    /// # Errors
    ///
    /// When the value cannot be written.
    fn encode(value: &Self::Given, bytes: &mut Vec<u8>) -> Result<(), CodecError>;

    /// The value of bytes that were written by this codec.
    ///
    /// # Errors
    ///
    /// When they were not.
    fn decode(bytes: &[u8]) -> Result<Self::Value, CodecError>;

    /// The same without a copy, if it can be.
    ///
    /// # Errors
    ///
    /// As for [`decode`](Self::decode).
    fn view(bytes: &[u8]) -> Result<Self::View<'_>, CodecError>;

    /// Changes a value where its bytes are: only of codecs whose values are [always as long](Self::SIZE). Without an own implementation it is decoded, changed, and
    /// encoded.
    ///
    /// # Errors
    ///
    /// As for [`decode`](Self::decode) and [`encode`](Self::encode).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_txn::{Codec, Pod};
    ///
    /// let mut bytes = 7_u32.to_le_bytes();
    /// let was = Pod::<u32>::change(&mut bytes, |number| std::mem::replace(number, 8))?;
    /// assert_eq!((was, bytes), (7, [8, 0, 0, 0]));
    /// # Ok::<(), drtm_txn::CodecError>(())
    /// ```
    #[inline]
    fn change<R>(bytes: &mut [u8], change: impl FnOnce(&mut Self::Value) -> R) -> Result<R, CodecError>
    where
        Self::Value: Borrow<Self::Given>,
    {
        let mut value = Self::decode(bytes)?;
        let result = change(&mut value);
        let mut changed = Vec::with_capacity(bytes.len());
        Self::encode(value.borrow(), &mut changed)?;
        if changed.len() != bytes.len() {
            return Err(CodecError::Size { found: changed.len(), expected: bytes.len() });
        }
        bytes.copy_from_slice(&changed);
        Ok(result)
    }
}

/// Bytes of a value that are asked for ahead if nobody knows how many it has.
const PREFETCHED: usize = 160;

/// Bytes of a value that are asked for ahead.
pub(crate) const fn expected_bytes<C: Codec>() -> usize {
    match C::SIZE {
        Some(size) => size,
        None => PREFETCHED,
    }
}

/// Bytes as they are.
///
/// # Example
///
/// ```
/// use drtm_txn::{Codec, Raw};
///
/// assert_eq!(Raw::decode(b"seven")?, b"seven");
/// # Ok::<(), drtm_txn::CodecError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Raw;

impl Codec for Raw {
    type Value = Vec<u8>;
    type Given = [u8];
    type View<'b> = &'b [u8];

    #[inline]
    fn encode(value: &[u8], bytes: &mut Vec<u8>) -> Result<(), CodecError> {
        bytes.extend_from_slice(value);
        Ok(())
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<Vec<u8>, CodecError> {
        Ok(bytes.to_vec())
    }

    #[inline]
    fn view(bytes: &[u8]) -> Result<&[u8], CodecError> {
        Ok(bytes)
    }
}

/// Plain data: a type whose memory is its encoding, without padding. Nothing is allocated.
///
/// # Example
///
/// ```
/// use drtm_txn::{Codec, Pod};
/// use zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// #[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
/// #[repr(C)]
/// struct Account {
///     balance: i64,
///     movements: u64,
/// }
///
/// let account = Account { balance: -3, movements: 1 };
/// let mut bytes = Vec::new();
/// Pod::encode(&account, &mut bytes)?;
/// assert_eq!(Pod::<Account>::decode(&bytes)?, account);
/// # Ok::<(), drtm_txn::CodecError>(())
/// ```
#[derive(Debug)]
pub struct Pod<T>(PhantomData<fn() -> T>);

impl<T: FromBytes + IntoBytes + Immutable + 'static> Codec for Pod<T> {
    type Value = T;
    type Given = T;
    type View<'b> = T;
    const SIZE: Option<usize> = Some(size_of::<T>());

    #[inline]
    fn encode(value: &T, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
        bytes.extend_from_slice(value.as_bytes());
        Ok(())
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<T, CodecError> {
        T::read_from_bytes(bytes).map_err(|_| CodecError::Size { found: bytes.len(), expected: size_of::<T>() })
    }

    #[inline]
    fn view(bytes: &[u8]) -> Result<T, CodecError> {
        Self::decode(bytes)
    }

    #[inline]
    fn change<R>(bytes: &mut [u8], change: impl FnOnce(&mut T) -> R) -> Result<R, CodecError> {
        let mut value = Self::decode(bytes)?;
        let result = change(&mut value);
        bytes.copy_from_slice(value.as_bytes());
        Ok(result)
    }
}

/// Whatever serde can describe, in bincode's format.
///
/// # Example
///
/// ```
/// use drtm_txn::{Codec, Serde};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize)]
/// struct Order {
///     customer: u32,
///     items: Vec<String>,
/// }
///
/// let order = Order { customer: 7, items: vec!["tea".into()] };
/// let mut bytes = Vec::new();
/// Serde::encode(&order, &mut bytes)?;
/// assert_eq!(Serde::<Order>::decode(&bytes)?, order);
/// assert!(Serde::<Order>::decode(&bytes[1..]).is_err());
/// # Ok::<(), drtm_txn::CodecError>(())
/// ```
#[derive(Debug)]
pub struct Serde<T>(PhantomData<fn() -> T>);

/// The most that a value may make the deserializer allocate. Far more than a record holds.
const LIMIT: usize = 1 << 20;

const FORMAT: bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Varint,
    bincode::config::Limit<LIMIT>,
> = bincode::config::standard().with_limit::<LIMIT>();

impl<T: Serialize + DeserializeOwned + 'static> Codec for Serde<T> {
    type Value = T;
    type Given = T;
    type View<'b> = T;

    fn encode(value: &T, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
        match bincode::serde::encode_into_std_write(value, bytes, FORMAT) {
            Ok(_) => Ok(()),
            Err(error) => Err(CodecError::Encode { reason: error.to_string() }),
        }
    }

    fn decode(bytes: &[u8]) -> Result<T, CodecError> {
        match bincode::serde::decode_from_slice(bytes, FORMAT) {
            Ok((value, read)) if read == bytes.len() => Ok(value),
            Ok((_, read)) => {
                Err(CodecError::Decode { reason: format!("it ends after {read} of {} bytes", bytes.len()) })
            }
            Err(error) => Err(CodecError::Decode { reason: error.to_string() }),
        }
    }

    fn view(bytes: &[u8]) -> Result<T, CodecError> {
        Self::decode(bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn values_come_back(number: u64, text: String, list: Vec<(u8, Option<i64>)>) {
            let value = (number, text, list);
            let mut bytes = Vec::new();
            Serde::encode(&value, &mut bytes).expect("it can be written");
            prop_assert_eq!(Serde::<(u64, String, Vec<(u8, Option<i64>)>)>::decode(&bytes).expect("it was written"), value);
            bytes.clear();
            Pod::encode(&number, &mut bytes).expect("it can be written");
            prop_assert_eq!(Pod::<u64>::decode(&bytes), Ok(number));
        }

        #[test]
        fn noise_is_refused_or_a_value_and_never_a_panic(noise: Vec<u8>) {
            let value = Serde::<Vec<String>>::decode(&noise);
            if let Ok(value) = value {
                let mut bytes = Vec::new();
                Serde::encode(&value, &mut bytes).expect("it can be written");
                prop_assert_eq!(Serde::<Vec<String>>::decode(&bytes), Ok(value));
            }
            prop_assert_eq!(Pod::<[u8; 3]>::decode(&noise).is_ok(), noise.len() == 3);
        }
    }

    #[test]
    fn a_length_that_lies_allocates_nothing() {
        let mut bytes = vec![253];
        bytes.extend_from_slice(&u64::MAX.to_le_bytes());
        assert!(matches!(Serde::<Vec<u64>>::decode(&bytes), Err(CodecError::Decode { .. })));
    }
}
