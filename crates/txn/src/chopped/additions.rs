//! Sums that pieces add to, and additions that are deferred until a publication.
//!
//! The additions of a piece are the value of one row, which the piece inserts under a key of its
//! own. So they are in the log with all else that the piece does, and no two pieces meet there. A
//! publication adds them to their sums and removes the row, in one transaction: each is published
//! once, whatever happens.
//!
//! ```text
//! for each addition:  sum (8 bytes)  size of key (2)  size of summand (2)  key  summand
//! ```
//!
//! A sum is known by a hash of its column's name, so that another version of the program does not
//! take the additions to one for those to another.

use std::{borrow::Borrow, fmt, ops::AddAssign};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{
    Codec, CodecError, Column, Config, Error, Flat, Key, Rows, Stored, Table, Tx, schema::copied::copied,
    schema::table::Kind,
};

/// The bytes before an addition's key.
const HEAD: usize = 12;

/// A sum that pieces add to: a table of numbers, or a column.
///
/// # Example
///
/// Whether a delivery is seen is deferred until customers may look.
///
/// ```
/// use drtm::{
///     Db, Error, Pod, TableDef,
///     chopped::Procedures,
///     chopping::{Piece, Table, Transaction},
/// };
///
/// const BALANCE: Table = Table::new("balance", &[]);
/// const QUEUE: Table = Table::new("queue", &[]);
/// const DELIVER: Transaction = Transaction::new("deliver", &[
///     Piece::new("take", &[QUEUE.remove()]),
///     Piece::new("pay", &[BALANCE.add("*")]),
/// ]);
/// const WITHDRAW: Transaction =
///     Transaction::new("withdraw", &[Piece::new("withdraw", &[BALANCE.update("*")])]);
/// const BALANCES: TableDef<u64, Pod<i64>> = TableDef::hash("balance");
/// const QUEUED: TableDef<u64, Pod<i64>> = TableDef::hash("queue");
///
/// let db = Db::new()?;
/// let (balances, queued) = (db.table(BALANCES)?, db.table(QUEUED)?);
/// db.transact(|tx| {
///     tx.put(balances, 1, &0)?;
///     tx.put(queued, 1, &50)
/// })?;
/// let mut bank = Procedures::new(&db, "bank");
/// let balance = bank.sum(BALANCE.add("*"), balances)?;
/// let deliver = bank
///     .procedure::<i64>(DELIVER)
///     .piece("take", move |tx, amount| {
///         *amount = tx.remove(queued, 1)?.unwrap_or(0);
///         Ok(())
///     })
///     .piece("pay", move |tx, amount| tx.add(balance, 1, *amount));
/// let deliver = bank.add(deliver);
/// let withdraw = bank.procedure::<i64>(WITHDRAW).piece("withdraw", move |tx, amount| {
///     tx.update(balances, 1, |balance| *balance -= *amount).map(drop)
/// });
/// let withdraw = bank.add(withdraw);
/// let bank = bank.register()?;
/// deliver.run(0)?;
/// withdraw.run(20)?;
/// bank.publish()?;
/// assert_eq!(db.read(|tx| tx.get(balances, 1))?, Some(30));
/// # Ok::<(), Error>(())
/// ```
pub struct Sum<R> {
    pub(crate) rows: R,
    /// Its place in the program.
    pub(crate) number: u8,
    /// The hash of its column's name.
    pub(crate) id: u64,
}

copied! {
    <R: Rows> Sum<R> as "Sum" { rows, number, id };
}

/// Rows that can be added to: of a table, or a column.
///
/// # Example
///
/// See [`Sum`].
pub trait Addable: Stored {
    /// Appends a summand, encoded.
    #[doc(hidden)]
    fn encode_summand(by: &Self::Given, bytes: &mut Vec<u8>) -> Result<(), CodecError>;

    #[doc(hidden)]
    fn decode_summand(bytes: &[u8]) -> Result<Self::Row, CodecError>;
}

impl<K: Key, C: Codec, O: Kind> Addable for Table<K, C, O> {
    fn encode_summand(by: &C::Given, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
        C::encode(by, bytes)
    }

    fn decode_summand(bytes: &[u8]) -> Result<C::Value, CodecError> {
        C::decode(bytes)
    }
}

impl<K: Key, C: Flat, O: Kind, T: FromBytes + IntoBytes + Immutable + KnownLayout> Addable for Column<K, C, O, T> {
    fn encode_summand(by: &T, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
        bytes.extend(by.as_bytes());
        Ok(())
    }

    fn decode_summand(bytes: &[u8]) -> Result<T, CodecError> {
        T::read_from_bytes(bytes).map_err(|_| CodecError::Size { found: bytes.len(), expected: size_of::<T>() })
    }
}

/// Notes an addition. If it fails, `bytes` are of no use any more.
pub(crate) fn defer<R: Addable>(
    bytes: &mut Vec<u8>,
    sum: u64,
    write_key: impl FnOnce(&mut Vec<u8>),
    by: &R::Given,
) -> Result<(), CodecError> {
    let start = bytes.len();
    bytes.extend(sum.to_le_bytes());
    bytes.extend([0; 4]);
    write_key(bytes);
    let middle = bytes.len();
    R::encode_summand(by, bytes)?;
    let sizes = [middle - start - HEAD, bytes.len() - middle];
    for (place, size) in [8, 10].into_iter().zip(sizes) {
        let size = u16::try_from(size);
        let size = size.map_err(|_| CodecError::Encode { reason: "more than 64 KiB are added to a sum".to_owned() })?;
        bytes[start + place..][..2].copy_from_slice(&size.to_le_bytes());
    }
    Ok(())
}

/// An addition as it was noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addition<'b> {
    pub(crate) sum: u64,
    pub(crate) key: &'b [u8],
    pub(crate) by: &'b [u8],
}

/// Takes the first addition off `bytes`. `None` if they are damaged.
pub(crate) fn take<'b>(bytes: &mut &'b [u8]) -> Option<Addition<'b>> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
    let [sum @ .., a, b, c, d] = *head;
    let (key, rest) = rest.split_at_checked(u16::from_le_bytes([a, b]).into())?;
    let (by, rest) = rest.split_at_checked(u16::from_le_bytes([c, d]).into())?;
    *bytes = rest;
    Some(Addition { sum: u64::from_le_bytes(sum), key, by })
}

/// Adds to a sum what was deferred.
pub(crate) trait Apply<S: Config>: fmt::Debug + Send + Sync {
    fn apply(&self, tx: &mut Tx<'_, S>, addition: Addition<'_>) -> Result<(), Error>;
}

impl<S: Config, R> Apply<S> for Sum<R>
where
    R: Addable + Send + Sync,
    R::Row: AddAssign + Borrow<R::Given>,
{
    fn apply(&self, tx: &mut Tx<'_, S>, addition: Addition<'_>) -> Result<(), Error> {
        let table = tx.name_of(self.rows.table().number);
        let key = R::Key::from_bytes(addition.key).ok_or(Error::Key { table })?;
        let by = R::decode_summand(addition.by).map_err(|source| Error::Codec { table, source })?;
        tx.update(self.rows, &key, |sum| *sum += by)?.ok_or(Error::Missing { table })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hash, Pod};

    type Rows = Table<u64, Pod<u64>, Hash>;

    #[test]
    fn additions_are_read_as_they_were_noted_and_damaged_ones_are_not() {
        let mut bytes = Vec::new();
        defer::<Rows>(&mut bytes, 3 << 40, |bytes| bytes.extend(b"key"), &7_u64).expect("short");
        defer::<Rows>(&mut bytes, 0, |_| (), &300_u64).expect("short");
        let rest = &mut &bytes[..];
        assert_eq!(take(rest), Some(Addition { sum: 3 << 40, key: b"key", by: &7_u64.to_le_bytes() }));
        assert_eq!(take(rest).map(|addition| (addition.sum, addition.key.len())), Some((0, 0)));
        assert!(rest.is_empty() && take(rest).is_none());
        for end in 1..HEAD + 4 {
            assert_eq!(take(&mut &bytes[..end]), None, "{end} bytes");
        }
        assert!(defer::<Rows>(&mut bytes, 0, |bytes| bytes.extend([0; 1 << 16]), &0_u64).is_err());
    }
}
