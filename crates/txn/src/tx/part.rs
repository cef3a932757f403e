//! Reading and changing parts of rows.

use std::borrow::Borrow;

use drtm_kv::{Lines, Room};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Found, Mode, Tx, read::Row};
use crate::{
    CodecError, Error, Flat, Key, Part, Setting, Table,
    arena::{Arena, ArenaRange},
    catalog::Opened,
    part::{Span, Wanted},
    state::TxState,
    storage::KeyRef,
    table::Kind,
    write_set::{WriteOp, WriteTarget},
};

impl<S: Setting, M: Mode> Tx<'_, S, M> {
    /// A part of a row's value, if there is such a row. Nothing else of the value is copied.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`update_part`](Tx::update_part).
    #[inline]
    pub fn get_part<K: Key, C: Flat, O: Kind, T: FromBytes + IntoBytes + Immutable + KnownLayout>(
        &mut self,
        table: Table<K, C, O>,
        key: &K,
        part: Part<C::Value, T>,
    ) -> Result<Option<T>, Error> {
        let opened = self.opened(table)?;
        let row = self.with_key(key, |tx, key| tx.row::<C, O>(opened, key, &Wanted::part_to_read(part.span())))?;
        if let Some(WriteTarget::Written(_)) = row.record {
            let Some(value) = self.get(table, key)? else { return Ok(None) };
            let bytes = &value.as_bytes()[8 * part.span().skipped as usize..];
            return Self::codec_error(opened, part.read(bytes)).map(Some);
        }
        let Some(found) = row.found else { return Ok(None) };
        Self::codec_error(opened, part.read(Self::bytes(self.state(), found))).map(Some)
    }

    /// Asks for the memory of parts of rows, as [`prefetch`](Self::prefetch) does of whole ones.
    ///
    /// # Errors
    ///
    /// [`Error::OtherDatabase`].
    ///
    /// # Example
    ///
    /// See [`update_part`](Tx::update_part).
    #[inline]
    pub fn prefetch_parts<K: Key, C: Flat, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        keys: impl Iterator<Item = impl Borrow<K>>,
        wanted: &'static Lines,
    ) -> Result<(), Error> {
        self.ask_for(table, keys, wanted)
    }
}

impl<S: Setting> Tx<'_, S> {
    /// Changes a part of the value of a row that is there: nothing else of it is copied, neither now nor when the transaction commits. Gives what `change` gives, or
    /// `None` if there is no such row.
    ///
    /// Where a table has indexes, or changes are listened to, the value is changed as a whole all the same.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_txn::{Db, Error, Lines, Part, Pod, TableDef, part};
    /// use zerocopy::{FromBytes, Immutable, IntoBytes};
    ///
    /// #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
    /// #[repr(C)]
    /// struct Customer {
    ///     balance: i64,
    ///     name: [u8; 24],
    ///     notes: [u8; 496],
    /// }
    ///
    /// const CUSTOMERS: TableDef<u64, Pod<Customer>> = TableDef::hash("customers");
    /// const BALANCE: Part<Customer, i64> = part!(Customer, balance);
    /// const NAME: Part<Customer, [u8; 24]> = part!(Customer, name);
    /// const WANTED: Lines = Lines::of(&[BALANCE.bytes(), NAME.bytes()]);
    ///
    /// let db = Db::new()?;
    /// let customers = db.table(CUSTOMERS)?;
    /// db.transact(|tx| tx.insert(customers, &7, &Customer { balance: 10, name: [b'x'; 24], notes: [0; 496] }))?;
    /// let (balance, name) = db.transact(|tx| {
    ///     tx.prefetch_parts(customers, [7].iter(), &WANTED)?;
    ///     let name = tx.get_part(customers, &7, NAME)?;
    ///     let balance = tx.update_part(customers, &7, BALANCE, |balance| {
    ///         *balance -= 3;
    ///         *balance
    ///     })?;
    ///     Ok((balance, name))
    /// })?;
    /// assert_eq!((balance, name), (Some(7), Some([b'x'; 24])));
    /// assert_eq!(db.read(|tx| tx.get_part(customers, &7, BALANCE))?, Some(7));
    /// # Ok::<(), Error>(())
    /// ```
    #[inline(always)]
    pub fn update_part<K: Key, C: Flat, O: Kind, T: FromBytes + IntoBytes + Immutable + KnownLayout, X>(
        &mut self,
        table: Table<K, C, O>,
        key: &K,
        part: Part<C::Value, T>,
        change: impl FnOnce(&mut T) -> X,
    ) -> Result<Option<X>, Error> {
        self.change_part(table, key, part, None, |_| Ok(()), |part, ()| change(part))
    }

    /// Changes a part of the value of a row, and reads another one, of which nothing is changed: a row that is read and changed is looked for once.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_txn::{Db, Error, Part, Pod, TableDef, part};
    /// use zerocopy::{FromBytes, Immutable, IntoBytes};
    ///
    /// #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
    /// #[repr(C)]
    /// struct Stock {
    ///     left: u64,
    ///     description: [u8; 200],
    ///     shelf: [u8; 8],
    /// }
    ///
    /// const STOCKS: TableDef<u64, Pod<Stock>> = TableDef::hash("stocks");
    /// const LEFT: Part<Stock, u64> = part!(Stock, left);
    /// const SHELF: Part<Stock, [u8; 8]> = part!(Stock, shelf);
    ///
    /// let db = Db::new()?;
    /// let stocks = db.table(STOCKS)?;
    /// db.transact(|tx| tx.insert(stocks, &7, &Stock { left: 10, description: [0; 200], shelf: *b"C 31    " }))?;
    /// let shelf = db.transact(|tx| {
    ///     tx.update_part_reading(stocks, &7, LEFT, SHELF, |left, shelf| {
    ///         *left -= 1;
    ///         *shelf
    ///     })
    /// })?;
    /// assert_eq!(shelf, Some(*b"C 31    "));
    /// assert_eq!(db.read(|tx| tx.get_part(stocks, &7, LEFT))?, Some(9));
    /// # Ok::<(), Error>(())
    /// ```
    #[inline(always)]
    pub fn update_part_reading<K: Key, C: Flat, O: Kind, T, U, X>(
        &mut self,
        table: Table<K, C, O>,
        key: &K,
        part: Part<C::Value, T>,
        other: Part<C::Value, U>,
        change: impl FnOnce(&mut T, &U) -> X,
    ) -> Result<Option<X>, Error>
    where
        T: FromBytes + IntoBytes + Immutable + KnownLayout,
        U: FromBytes + IntoBytes + Immutable + KnownLayout,
    {
        self.change_part(
            table,
            key,
            part,
            Some(other.span()),
            |bytes| other.read(bytes),
            |part, read| change(part, &read),
        )
    }

    /// Changes a part of a row, once `see` has seen the words that are to be read, if there are any.
    #[inline(always)]
    fn change_part<K: Key, C: Flat, O: Kind, T: FromBytes + IntoBytes + Immutable + KnownLayout, U, X>(
        &mut self,
        table: Table<K, C, O>,
        key: &K,
        part: Part<C::Value, T>,
        read: Option<Span>,
        see: impl FnOnce(&[u8]) -> Result<U, CodecError>,
        change: impl FnOnce(&mut T, U) -> X,
    ) -> Result<Option<X>, Error> {
        let (opened, span) = (self.opened(table)?, part.span());
        self.with_key(key, |tx, encoded| {
            let Some(Changing { start, record, whole }) = tx.begin::<C, O>(opened, encoded, span, read)? else {
                return Ok(None);
            };
            // Once for all ways, so that what is called here becomes one with it.
            let TxState { reads, arena: Arena { values, value, .. }, .. } = tx.state();
            let pending = reads.pending(if whole.is_none() { record } else { WriteTarget::Past });
            let seen = Self::codec_error(opened, see(value.bytes()))?;
            let changed = part.change(values.last(start), |part| change(part, seen));
            let (bytes, result) = values.keep(start, Self::codec_error(opened, changed))?;
            pending.done();
            match whole {
                None => {
                    let op = WriteOp::Patch { bytes, skipped: span.skipped };
                    tx.write_found(opened, encoded, record, op, true)?;
                }
                Some(whole) => tx.end_slow(opened, (key, encoded), record, whole, bytes.range().end)?,
            }
            Ok(Some(result))
        })
    }

    /// Begins to change a part of a row, if there is such a row.
    #[inline(always)]
    fn begin<C: Flat, O: Kind>(
        &mut self,
        opened: &Opened<S::Engine>,
        key: KeyRef<'_>,
        span: Span,
        read: Option<Span>,
    ) -> Result<Option<Changing>, Error> {
        if opened.indexes.are_none() {
            match self.row::<C, O>(opened, key, &Wanted::part_to_change(span, read))? {
                Row { found: Some(Found::Own { start, .. }), record: Some(record @ WriteTarget::Seen(_)) } => {
                    return Ok(Some(Changing { start, record, whole: None }));
                }
                // What the transaction has written of it already is more than this part, or less.
                Row { record: Some(WriteTarget::Written(_)), .. } => {}
                _ => return Ok(None),
            }
        }
        self.begin_slow::<C, O>(opened, key, span, read)
    }

    /// The same of a value that is written as a whole: keeps it as it is, and once more for the change, and takes out the words that are to be read.
    #[cold]
    #[inline(never)]
    fn begin_slow<C: Flat, O: Kind>(
        &mut self,
        opened: &Opened<S::Engine>,
        key: KeyRef<'_>,
        span: Span,
        read: Option<Span>,
    ) -> Result<Option<Changing>, Error> {
        let row = self.row::<C, O>(opened, key, &Wanted::TO_CHANGE)?;
        let Row { found: Some(Found::Own { start: old, length }), record: Some(record) } = row else {
            return Ok(None);
        };
        let TxState { arena: Arena { values, value, .. }, reads, .. } = self.state();
        // Whoever sees to indexes may fail before it is written.
        if let WriteTarget::Seen(seen) = record {
            reads.records.push(seen);
        }
        if let Some(read) = read {
            let begin = length.min(8 * read.skipped as usize);
            let words = &values.bytes()[old..][begin..length];
            let words = &words[..read.at_most(words.len())];
            value.of(words.len()).copy_from_slice(words);
        }
        let start = values.len();
        values.repeat(old..old + length);
        Ok(Some(Changing {
            start: start + length.min(8 * span.skipped as usize),
            record,
            whole: Some(Whole { old, start }),
        }))
    }

    /// Writes such a value, once it has been changed.
    #[cold]
    #[inline(never)]
    fn end_slow<K: Key>(
        &mut self,
        opened: &Opened<S::Engine>,
        (key, encoded): (&K, KeyRef<'_>),
        record: WriteTarget,
        Whole { old, start }: Whole,
        end: usize,
    ) -> Result<(), Error> {
        let op = WriteOp::Put(ArenaRange::between(start, end)?);
        let old = Found::Own { start: old, length: start - old };
        self.with_entries(opened, key, Some(old), op, |tx| tx.write_at(opened, encoded, record, op))
    }
}

/// A part of a row that is being changed.
struct Changing {
    /// Where its words are, at the end of the values that the transaction keeps.
    start: usize,
    record: WriteTarget,
    /// The value that it is in, if that is kept as a whole.
    whole: Option<Whole>,
}

/// Where a value is that is kept as a whole: as it was, and behind it as it is to be.
struct Whole {
    old: usize,
    start: usize,
}
