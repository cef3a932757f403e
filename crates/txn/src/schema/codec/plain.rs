//! Plain data: values whose memory is their encoding.
//!
//! Multi-byte numbers are in the machine's byte order, unless their types say otherwise, like those
//! of `zerocopy`. So the bytes stay valid as long as the type and the machine's byte order do.

use std::marker::PhantomData;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Codec, CodecError};

/// The family of both codecs: they read each other's bytes.
const PLAIN: &str = "plain";

/// Plain data: a type whose memory is its encoding, without padding. It allocates nothing.
///
/// A row is viewed as a copy, so the type can have any alignment. [`PodRef`] views it in place.
///
/// # Example
///
/// ```
/// use drtm::{Codec, Pod};
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
/// # Ok::<(), drtm::CodecError>(())
/// ```
#[derive(Debug)]
pub struct Pod<T>(PhantomData<fn() -> T>);

/// Types whose memory is their encoding: implemented for all types that have the traits of
/// `zerocopy`.
///
/// # Example
///
/// See [`Pod`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no plain data, so `Pod<{Self}>` cannot store it",
    note = "derive `FromBytes`, `IntoBytes` and `Immutable` of `zerocopy` for a struct of numbers and arrays",
    note = "strings, vectors, enums and maps have no fixed bytes: store them with `Postcard<T>` or `Serde<T>`, \
            which need serde's traits, or bytes with `Raw`"
)]
pub trait PlainData: FromBytes + IntoBytes + Immutable + 'static {}

#[diagnostic::do_not_recommend]
impl<T: FromBytes + IntoBytes + Immutable + 'static> PlainData for T {}

impl<T: PlainData> Codec for Pod<T> {
    type Value = T;
    type Given = T;
    type View<'b> = T;
    const FAMILY: &'static str = PLAIN;
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

/// Plain data without alignment, viewed in place: zero-copy.
///
/// Only the accessed parts of a long row are read. The bytes are those of [`Pod`], so a table can
/// be opened with either.
///
/// # Example
///
/// ```
/// use drtm::{Db, Error, PodRef, TableDef};
/// use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::U64};
///
/// #[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
/// #[repr(C)]
/// struct Player {
///     score: U64,
///     name: [u8; 24],
///     inventory: [u8; 512],
/// }
///
/// const PLAYERS: TableDef<u32, PodRef<Player>> = TableDef::hash("players");
/// let db = Db::new()?;
/// let players = db.table(PLAYERS)?;
/// db.transact(|tx| {
///     tx.put(players, 7, &Player { score: 3.into(), name: [b'x'; 24], inventory: [0; 512] })?;
///     tx.update(players, 7, |player| player.score += 1)
/// })?;
/// assert_eq!(db.read(|tx| tx.view(players, 7, |player| player.score.get()))?, Some(4));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct PodRef<T>(PhantomData<fn() -> T>);

/// Types that can be viewed in place at any address: implemented for all types that have the traits
/// of `zerocopy`.
///
/// # Example
///
/// See [`PodRef`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be viewed in place",
    note = "derive `FromBytes`, `IntoBytes`, `Immutable`, `KnownLayout` and `Unaligned` of `zerocopy`, with its \
            integers in place of aligned ones; or use `Pod`, which copies"
)]
pub trait PlainRow: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned + 'static {}

#[diagnostic::do_not_recommend]
impl<T: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned + 'static> PlainRow for T {}

impl<T: PlainRow> Codec for PodRef<T> {
    type Value = T;
    type Given = T;
    type View<'b> = &'b T;
    const FAMILY: &'static str = PLAIN;
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn both_read_each_others_bytes_and_no_others(number: u64, noise: Vec<u8>) {
            let mut bytes = Vec::new();
            Pod::encode(&number, &mut bytes).expect("it can be written");
            prop_assert_eq!(Pod::<u64>::decode(&bytes), Ok(number));
            prop_assert_eq!(PodRef::<[u8; 8]>::view(&bytes), Ok(&number.to_ne_bytes()));
            prop_assert_eq!(PodRef::<[u8; 8]>::decode(&bytes), Ok(number.to_ne_bytes()));
            let was = PodRef::<[u8; 8]>::change(&mut bytes, |row| std::mem::replace(&mut row[0], 7));
            prop_assert_eq!((was, bytes[0]), (Ok(number.to_ne_bytes()[0]), 7));
            prop_assert_eq!(Pod::<[u8; 3]>::decode(&noise).is_ok(), noise.len() == 3);
            prop_assert_eq!(PodRef::<[u8; 3]>::view(&noise).is_ok(), noise.len() == 3);
        }
    }
}
