//! Reading single rows.

use drtm_htm::Engine;
use drtm_kv::{Fetched, Nowhere, Past};

use super::{Found, Mode, Tx, encode};
use crate::{
    Codec, Error, Key, Setting, Table,
    catalog::Opened,
    table::{Kind, Reach},
    work::Work,
};

/// A row as it was found: where its value is, and which record it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) found: Option<Found>,
    pub(super) record: Option<Spotted>,
}

/// A record that was found: new to this transaction, or one that it writes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Spotted {
    Seen(drtm_kv::Sighting),
    Written(usize),
}

/// Bytes of a value that are asked for ahead if nobody knows how many it has.
const PREFETCHED: usize = 160;

/// Where the value is that a row had.
#[inline]
pub(super) fn was_found<E: Engine>(opened: &Opened<E>, past: Past) -> Result<Option<Found>, Error> {
    match past {
        Past::Present(_) => Ok(Some(Found::Read)),
        Past::Absent => Ok(None),
        Past::Forgotten => Err(Error::Forgotten { table: opened.name }),
    }
}

impl<S: Setting, M: Mode> Tx<'_, S, M> {
    /// A row's value, if there is such a row.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`]; or when the key is too long, or the value is none of the codec's.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_txn::{Db, Error, Serde, TableDef};
    ///
    /// const CAPITALS: TableDef<String, Serde<String>> = TableDef::hash("capitals");
    /// let db = Db::new()?;
    /// let capitals = db.table(CAPITALS)?;
    /// let found = db.transact(|tx| {
    ///     tx.put(capitals, &"France".to_owned(), &"Paris".to_owned())?;
    ///     tx.get(capitals, &"France".to_owned())
    /// })?;
    /// assert_eq!(found.as_deref(), Some("Paris"));
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn get<K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        key: &K,
    ) -> Result<Option<C::Value>, Error> {
        let opened = self.opened(table)?;
        match self.row::<K, O>(opened, key, true)?.found {
            Some(found) => self.decode::<C>(opened, found).map(Some),
            None => Ok(None),
        }
    }

    /// The values of several rows, in the order of the keys.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_txn::{Db, Error, Pod, TableDef};
    ///
    /// const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");
    /// let db = Db::new()?;
    /// let counters = db.table(COUNTERS)?;
    /// let found = db.transact(|tx| {
    ///     tx.put(counters, &2, &20)?;
    ///     tx.get_many(counters, &[1, 2])
    /// })?;
    /// assert_eq!(found, [None, Some(20)]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn get_many<'k, K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        keys: impl IntoIterator<Item = &'k K>,
    ) -> Result<Vec<Option<C::Value>>, Error> {
        keys.into_iter().map(|key| self.get(table, key)).collect()
    }

    /// Shows a row's value without keeping it: with a codec that can be looked at in place, nothing is allocated.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_txn::{Db, Error, Raw, TableDef};
    ///
    /// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
    /// let db = Db::new()?;
    /// let notes = db.table(NOTES)?;
    /// let length = db.transact(|tx| {
    ///     tx.put(notes, &1, b"seven")?;
    ///     tx.view(notes, &1, |note| note.len())
    /// })?;
    /// assert_eq!(length, Some(5));
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn view<K: Key, C: Codec, O: Kind, R>(
        &mut self,
        table: Table<K, C, O>,
        key: &K,
        see: impl FnOnce(C::View<'_>) -> R,
    ) -> Result<Option<R>, Error> {
        let opened = self.opened(table)?;
        let Some(found) = self.row::<K, O>(opened, key, true)?.found else { return Ok(None) };
        let view = Self::codec_error(opened, C::view(Self::bytes(self.work(), found)))?;
        Ok(Some(see(view)))
    }

    /// Asks for the memory of rows that are going to be read or updated, all at once, where one after the other would wait for it. A hint, for hash tables
    /// with keys that pack into eight bytes; elsewhere nothing happens.
    ///
    /// # Errors
    ///
    /// [`Error::OtherDatabase`].
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_txn::{Db, Error, Pod, TableDef};
    ///
    /// const STOCK: TableDef<u64, Pod<u64>> = TableDef::hash("stock");
    /// let db = Db::new()?;
    /// let stock = db.table(STOCK)?;
    /// let order = [7, 3, 9];
    /// db.transact(|tx| {
    ///     tx.prefetch(stock, order.iter())?;
    ///     order.iter().try_for_each(|item| tx.update(stock, item, |left| *left -= 1).map(drop))
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn prefetch<'k, K: Key, C: Codec, O: Kind>(
        &mut self,
        table: Table<K, C, O>,
        keys: impl Iterator<Item = &'k K> + Clone,
    ) -> Result<(), Error> {
        self.opened(table)?.index.prefetch(keys, C::SIZE.unwrap_or(PREFETCHED));
        Ok(())
    }

    /// Whether there is such a row.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn contains<K: Key, C: Codec, O: Kind>(&mut self, table: Table<K, C, O>, key: &K) -> Result<bool, Error> {
        let opened = self.opened(table)?;
        Ok(self.row::<K, O>(opened, key, false)?.found.is_some())
    }

    /// Finds a row, and copies its value if that is wanted. What was found is part of what the transaction has read.
    #[inline]
    pub(super) fn row<K: Key, O: Reach>(
        &mut self,
        opened: &Opened<S::Engine>,
        key: &K,
        wanted: bool,
    ) -> Result<Row, Error> {
        let past = self.past();
        let work = self.work();
        let Work { key: buffer, value, holder, .. } = &mut *work;
        let encoded = encode(key, buffer);
        if let Some(before) = past {
            let found = opened.index.fetch_past(encoded, before, value)?;
            return Ok(Row { found: was_found(opened, found)?, record: None });
        }
        let fetched = if wanted {
            opened.index.fetch::<O>(encoded, *holder, value)?
        } else {
            opened.index.fetch::<O>(encoded, *holder, &mut Nowhere)?
        };
        match fetched {
            Fetched::Record(seen) => {
                if let Some(write) = work.written_at(seen.at) {
                    let found = Found::of(work.writes[write].fate);
                    return Ok(Row { found, record: Some(Spotted::Written(write)) });
                }
                if self.has_ticket() && !self.seize(seen)? {
                    return self.row::<K, O>(opened, key, wanted);
                }
                self.saw(seen)?;
                Ok(Row { found: seen.is_present().then_some(Found::Read), record: Some(Spotted::Seen(seen)) })
            }
            Fetched::Nothing(absence) => {
                self.missed(absence)?;
                Ok(Row { found: None, record: None })
            }
        }
    }
}
