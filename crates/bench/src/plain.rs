//! A codec for rows that are looked at where they are.

use std::marker::PhantomData;

use drtm_txn::{Codec, CodecError, Flat, Pod};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Plain data without alignment: as [`Pod`](drtm_txn::Pod), but a row is viewed in place, so that of a great one only what is wanted is read.
///
/// # Example
///
/// ```
/// use drtm_bench::Plain;
/// use drtm_txn::Codec;
///
/// let mut bytes = Vec::new();
/// Plain::encode(b"seven", &mut bytes)?;
/// assert_eq!(Plain::<[u8; 5]>::view(&bytes)?, b"seven");
/// assert!(Plain::<[u8; 4]>::view(&bytes).is_err());
/// # Ok::<(), drtm_txn::CodecError>(())
/// ```
#[derive(Debug)]
pub struct Plain<T>(PhantomData<fn() -> T>);

/// What can be looked at wherever it is.
pub trait Row: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned + 'static {}
impl<T: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned + 'static> Row for T {}

impl<T: Row> Flat for Plain<T> {}

impl<T: Row> Codec for Plain<T> {
    type Value = T;
    type Given = T;
    type View<'b> = &'b T;
    const SIZE: Option<usize> = Some(size_of::<T>());

    #[inline]
    fn encode(value: &T, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
        Pod::encode(value, bytes)
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<T, CodecError> {
        Pod::decode(bytes)
    }

    #[inline]
    fn view(bytes: &[u8]) -> Result<&T, CodecError> {
        T::ref_from_bytes(bytes).map_err(|_| CodecError::Size { found: bytes.len(), expected: size_of::<T>() })
    }

    #[inline]
    fn change<R>(bytes: &mut [u8], change: impl FnOnce(&mut T) -> R) -> Result<R, CodecError> {
        let found = bytes.len();
        match T::mut_from_bytes(bytes) {
            Ok(row) => Ok(change(row)),
            Err(_) => Err(CodecError::Size { found, expected: size_of::<T>() }),
        }
    }
}
