//! How values become bytes, and bytes values.
//!
//! A table names its codec, which fixes the type of its values: bytes as they are ([`Raw`]), a
//! plain struct's own memory ([`Pod`], [`PodRef`]), or whatever serde can describe ([`Bincode`],
//! [`Postcard`]). Another is a type that implements [`Codec`].

mod by_serde;
mod plain;

#[cfg(test)]
pub(crate) use by_serde::LIMIT as BINCODE_LIMIT;
pub use by_serde::{Bincode, Postcard, Serde};
pub use plain::{PlainRow, Pod, PodRef};

use std::borrow::Borrow;

/// A value that cannot be encoded, or bytes that are no value's.
///
/// # Example
///
/// ```
/// use drtm::{Codec, CodecError, Pod};
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
            describes, `Raw` of bytes"
)]
pub trait Codec: 'static {
    /// What is read.
    type Value;

    /// What is written: as what is read, or borrowed.
    type Given: ?Sized;

    /// What is read where nothing has to be kept: borrowed, if it can be.
    type View<'b>;

    /// Names the format of the bytes, by which a table is known when it is opened again: see
    /// [`TableDef::version`](crate::TableDef::version).
    ///
    /// It says how values are written, and not of which type they are. Codecs that read each
    /// other's bytes have the same one. A name never changes, and never means another format.
    const FAMILY: &'static str;

    /// Bytes of a value, if they are always as many.
    const SIZE: Option<usize> = None;

    /// Appends a value's bytes. Those that are there already stay as they are, also where this
    /// fails: they are other values'.
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

    /// Like [`decode`](Self::decode), but without a copy, if that is possible.
    ///
    /// # Errors
    ///
    /// As for [`decode`](Self::decode).
    fn view(bytes: &[u8]) -> Result<Self::View<'_>, CodecError>;

    /// Changes a value where its bytes are: only of codecs whose values are [always as
    /// long](Self::SIZE). Without an own implementation it is decoded, changed, and encoded.
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

    /// These are in directories by now.
    #[test]
    fn families_have_names_for_good() {
        assert_eq!([Raw::FAMILY, Pod::<u8>::FAMILY, PodRef::<u8>::FAMILY], ["raw", "plain", "plain"]);
        assert_eq!([Bincode::<u8>::FAMILY, Postcard::<u8>::FAMILY], ["bincode2", "postcard1"]);
    }
}
