//! Reading and changing parts of rows.

use std::borrow::Borrow;

use drtm_kv::Lines;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{
    Found, Mode, Tx,
    read::{Row, Spotted, Wanted},
};
use crate::{Error, Flat, Hook, Key, Part, Setting, Table, table::Kind, work::Fate};

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
    pub fn get_part<K: Key, C: Flat, O: Kind, T: FromBytes + IntoBytes + Immutable>(
        &mut self,
        table: Table<K, C, O>,
        key: &K,
        part: Part<C::Value, T>,
    ) -> Result<Option<T>, Error> {
        let opened = self.opened(table)?;
        let row = self.row::<K, O>(opened, key, Wanted::PartToRead(part.span()))?;
        if let Some(Spotted::Written(_)) = row.record {
            let Some(value) = self.get(table, key)? else { return Ok(None) };
            let bytes = &value.as_bytes()[8 * part.span().skipped as usize..];
            return Self::codec_error(opened, part.read(bytes)).map(Some);
        }
        let Some(found) = row.found else { return Ok(None) };
        Self::codec_error(opened, part.read(Self::bytes(self.work(), found))).map(Some)
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
        parts: &[std::ops::Range<usize>],
    ) -> Result<(), Error> {
        self.ask_for(table, keys, &Lines::of(parts))
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
    /// use drtm_txn::{Db, Error, Part, Pod, TableDef, part};
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
    ///
    /// let db = Db::new()?;
    /// let customers = db.table(CUSTOMERS)?;
    /// db.transact(|tx| tx.insert(customers, &7, &Customer { balance: 10, name: [b'x'; 24], notes: [0; 496] }))?;
    /// let (balance, name) = db.transact(|tx| {
    ///     tx.prefetch_parts(customers, [7].iter(), &[BALANCE.bytes(), NAME.bytes()])?;
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
    #[inline]
    pub fn update_part<K: Key, C: Flat, O: Kind, T: FromBytes + IntoBytes + Immutable, X>(
        &mut self,
        table: Table<K, C, O>,
        key: &K,
        part: Part<C::Value, T>,
        change: impl FnOnce(&mut T) -> X,
    ) -> Result<Option<X>, Error> {
        let (opened, span) = (self.opened(table)?, part.span());
        if opened.indexes.are_none() && !S::Hook::LISTENS {
            match self.row::<K, O>(opened, key, Wanted::PartToChange(span))? {
                Row { found: Some(Found::Own { start, .. }), record: Some(record @ Spotted::Seen(_)) } => {
                    let start = start as usize;
                    let (kept, result) = self.work().keep_bytes_from(start, |bytes| {
                        Self::codec_error(opened, part.change(bytes.get_mut(start..).unwrap_or(&mut []), change))
                    })?;
                    let (start, length) = (kept.start, kept.end - kept.start);
                    self.write_at(opened, key, record, Fate::Patch { start, length, skipped: span.skipped })?;
                    return Ok(Some(result));
                }
                // What the transaction has written of it already is more than this part, or less.
                Row { record: Some(Spotted::Written(_)), .. } => {}
                _ => return Ok(None),
            }
        }
        let changed = self
            .update(table, key, |value| part.change(&mut value.as_mut_bytes()[8 * span.skipped as usize..], change))?;
        changed.map(|changed| Self::codec_error(opened, changed)).transpose()
    }
}
