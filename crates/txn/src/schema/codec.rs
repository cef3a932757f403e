//! Encoding values as bytes, and decoding them.
//!
//! A table names its codec, which fixes the type of its values. [`Raw`] is bytes as they are.
//! [`Pod`] and [`PodRef`] are a plain struct's own memory. [`Bincode`] and [`Postcard`] are
//! whatever serde can describe. Implement [`Codec`] for others.

#[cfg(any(feature = "bincode", feature = "postcard"))]
mod by_serde;
pub(crate) mod describe;
mod plain;
#[cfg(any(feature = "bincode", feature = "postcard"))]
mod trace;

#[cfg(all(test, feature = "bincode"))]
pub(crate) use by_serde::LIMIT as BINCODE_LIMIT;
#[cfg(feature = "postcard")]
pub use by_serde::Postcard;
#[cfg(feature = "bincode")]
pub use by_serde::{Bincode, Serde};
pub use plain::{PlainData, PlainRow, Pod, PodRef};

use std::{borrow::Borrow, fmt};

/// A value that cannot be encoded, or bytes that cannot be decoded.
///
/// # Example
///
/// ```
/// use drtm::{Codec, CodecError, Pod};
///
/// let error = Pod::<u64>::decode(&[1, 2, 3]).unwrap_err();
/// assert_eq!(error, CodecError::Size { found: 3, expected: 8 });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CodecError {
    /// The bytes have another length than the type: the table was written with another type.
    Size {
        /// The number of bytes found.
        found: usize,
        /// The number of bytes expected.
        expected: usize,
    },
    /// The serializer refused the value.
    Encode {
        /// The serializer's message.
        reason: String,
    },
    /// The bytes are no valid value of the type.
    Decode {
        /// The deserializer's message.
        reason: String,
    },
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size { found, expected } => {
                write!(f, "{found} bytes where the type has {expected}: was the table written with another type?")
            }
            Self::Encode { reason } => write!(f, "the value cannot be encoded: {reason}"),
            Self::Decode { reason } => write!(f, "the bytes are no value of the table's type: {reason}"),
        }
    }
}

impl std::error::Error for CodecError {}

/// An encoding of values as bytes.
///
/// # Example
///
/// ```
/// use drtm::{Codec, CodecError};
///
/// /// Text, without a copy of its own on the way in.
/// struct Text;
///
/// impl Codec for Text {
///     type Value = String;
///     type Given = str;
///     type View<'b> = &'b str;
///     const FAMILY: &'static str = "text";
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
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no codec of a table's values",
    label = "a codec is expected here, and not the type of the values",
    note = "`Pod<T>` and `PodRef<T>` are codecs of plain data, `Postcard<T>` and `Bincode<T>` of what serde \
            describes (features `postcard` and `bincode`), `Raw` of bytes"
)]
pub trait Codec: 'static {
    /// The type that is read.
    type Value;

    /// The type that is written: the one that is read, or its borrowed form.
    type Given: ?Sized;

    /// The type of a view: borrowed from the bytes, where possible.
    type View<'b>;

    /// The name of the bytes' format, which is checked when a table is opened again: see
    /// [`TableDef::version`](crate::TableDef::version).
    ///
    /// It names the encoding, not the type of the values. Codecs that read each other's bytes share
    /// a name. A name never changes, and never means another format.
    const FAMILY: &'static str;

    /// The bytes of a value, if all values have the same number.
    const SIZE: Option<usize> = None;

    /// Describes the type of the values, which is checked when a table is opened again. So a type
    /// that would misread the bytes is refused. It always returns the same for the same type.
    ///
    /// [`Postcard`](crate::Postcard) and [`Bincode`](crate::Bincode) describe all that serde knows
    /// of a type: names, fields, variants and their order. [`Pod`] and the default implementation
    /// return the name of the type, without its modules.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Codec, Pod, Postcard};
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct User {
    ///     name: String,
    ///     age: Option<u32>,
    /// }
    ///
    /// assert_eq!(Postcard::<User>::describe(), "User{name:string,age:u32?}");
    /// assert_eq!(Pod::<[u16; 4]>::describe(), "[u16; 4]");
    /// ```
    fn describe() -> String {
        describe::name_of::<Self::Value>()
    }

    /// Appends a value's bytes. It must not change the existing bytes, even if it fails: they
    /// belong to other values.
    ///
    /// # Errors
    ///
    /// When the value cannot be encoded.
    fn encode(value: &Self::Given, bytes: &mut Vec<u8>) -> Result<(), CodecError>;

    /// Decodes bytes that were written by this codec.
    ///
    /// # Errors
    ///
    /// When the bytes are invalid.
    fn decode(bytes: &[u8]) -> Result<Self::Value, CodecError>;

    /// Like [`decode`](Self::decode), but without a copy where possible.
    ///
    /// # Errors
    ///
    /// As for [`decode`](Self::decode).
    fn view(bytes: &[u8]) -> Result<Self::View<'_>, CodecError>;

    /// Changes a value in place: only called for codecs with a [fixed size](Self::SIZE). The
    /// default implementation decodes, changes, and encodes it.
    ///
    /// # Errors
    ///
    /// As for [`decode`](Self::decode) and [`encode`](Self::encode).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Codec, Pod};
    ///
    /// let mut bytes = 7_u32.to_le_bytes();
    /// let was = Pod::<u32>::change(&mut bytes, |number| std::mem::replace(number, 8))?;
    /// assert_eq!((was, bytes), (7, [8, 0, 0, 0]));
    /// # Ok::<(), drtm::CodecError>(())
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

/// The bytes of a value to prefetch if its size is not known.
const PREFETCHED: usize = 160;

/// Returns the bytes of a value to prefetch.
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
/// use drtm::{Codec, Raw};
///
/// assert_eq!(Raw::decode(b"seven")?, b"seven");
/// # Ok::<(), drtm::CodecError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Raw;

impl Codec for Raw {
    type Value = Vec<u8>;
    type Given = [u8];
    type View<'b> = &'b [u8];
    const FAMILY: &'static str = "raw";

    fn describe() -> String {
        "bytes".to_owned()
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Directories contain these names.
    #[test]
    fn families_have_names_for_good() {
        assert_eq!([Raw::FAMILY, Pod::<u8>::FAMILY, PodRef::<u8>::FAMILY], ["raw", "plain", "plain"]);
        assert_eq!([Bincode::<u8>::FAMILY, Postcard::<u8>::FAMILY], ["bincode2", "postcard1"]);
    }
}
