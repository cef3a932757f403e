//! Reads, by several readers at once.

use super::{Mode, Range, Tx};
use crate::{
    AsKey, Codec, Config, Error, Flow, Key, KeyRange, Point, Prefetched, Sorted, Stored, Table, schema::table::Kind,
};

impl<'db, S: Config, M: Mode> Tx<'db, S, M> {
    /// Returns a row's value. `None` if there is no such row.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`]; or when the key is too long, or the value cannot be decoded.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Serde, TableDef};
    ///
    /// const CAPITALS: TableDef<String, Serde<String>> = TableDef::hash("capitals");
    /// let db = Db::new()?;
    /// let capitals = db.table(CAPITALS)?;
    /// let found = db.transact(|tx| {
    ///     tx.put(capitals, "France", &"Paris".to_owned())?;
    ///     tx.get(capitals, "France")
    /// })?;
    /// assert_eq!(found.as_deref(), Some("Paris"));
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn get<R: Point>(&self, rows: R, key: impl AsKey<R::Key>) -> Result<Option<R::Row>, Error> {
        self.with(|tx| tx.get(rows, key))
    }

    /// Shows a row's value to `visit` without copying it. Returns what `visit` returns, or `None`
    /// if there is no such row. With a codec that views values in place, nothing is allocated.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Raw, TableDef};
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
    ///
    /// The closure can read, too, and sees what the transaction has written:
    ///
    /// ```
    /// use drtm::{Db, Error, Pod, Raw, TableDef};
    ///
    /// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
    /// const LENGTHS: TableDef<u64, Pod<u64>> = TableDef::hash("lengths");
    /// let db = Db::new()?;
    /// let (notes, lengths) = (db.table(NOTES)?, db.table(LENGTHS)?);
    /// let is_right = db.transact(|tx| {
    ///     tx.put(notes, 1, b"seven")?;
    ///     tx.put(lengths, 1, &5)?;
    ///     tx.view(notes, 1, |note| Ok(tx.get(lengths, 1)? == Some(note.len() as u64))).and_then(Option::transpose)
    /// })?;
    /// assert_eq!(is_right, Some(true));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// It cannot write. This does not compile:
    ///
    /// ```compile_fail
    /// use drtm::{Db, Error, Raw, TableDef};
    ///
    /// const NOTES: TableDef<u64, Raw> = TableDef::hash("notes");
    /// let db = Db::new()?;
    /// let notes = db.table(NOTES)?;
    /// db.transact(|tx| tx.view(notes, 1, |_| tx.put(notes, 2, b"no")))?;
    /// # Ok::<(), Error>(())
    /// ```
    #[inline(always)]
    pub fn view<R: Stored, X>(
        &self,
        rows: R,
        key: impl AsKey<R::Key>,
        visit: impl FnOnce(R::View<'_>) -> X,
    ) -> Result<Option<X>, Error> {
        if self.copies { self.view_copy(rows, key, visit) } else { self.with(|tx| tx.view(rows, key, visit)) }
    }

    /// Prefetches rows that are going to be read or updated, so that their cache misses overlap. It
    /// is a hint, for keys that pack into eight bytes; it does nothing for others. In a hash table
    /// it remembers where the rows are, for later accesses in about the order of the keys. In an
    /// ordered table it prefetches the leaves that hold the keys, or would hold them.
    ///
    /// # Errors
    ///
    /// [`Error::OtherDatabase`].
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Pod, TableDef};
    ///
    /// const STOCK: TableDef<u64, Pod<u64>> = TableDef::hash("stock");
    /// let db = Db::new()?;
    /// let stock = db.table(STOCK)?;
    /// let order = [7, 3, 9];
    /// db.transact(|tx| {
    ///     tx.prefetch(stock, order)?;
    ///     order.iter().try_for_each(|item| tx.update(stock, item, |left| *left -= 1).map(drop))
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn prefetch<R: Prefetched>(
        &self,
        rows: R,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
    ) -> Result<(), Error> {
        self.with(|tx| tx.prefetch(rows, keys))
    }

    /// Returns whether there is such a row.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Pod, TableDef};
    ///
    /// const COUNTERS: TableDef<u64, Pod<u64>> = TableDef::hash("counters");
    /// let db = Db::new()?;
    /// let counters = db.table(COUNTERS)?;
    /// db.transact(|tx| tx.put(counters, 1, &7))?;
    /// assert_eq!(db.read(|tx| Ok((tx.contains(counters, 1)?, tx.contains(counters, 2)?)))?, (true, false));
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn contains<R: Point>(&self, rows: R, key: impl AsKey<R::Key>) -> Result<bool, Error> {
        self.with(|tx| tx.contains(rows, key))
    }

    /// Returns the values of several rows, in the order of the keys.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Pod, TableDef};
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
    #[inline]
    pub fn get_many<R: Point>(
        &self,
        rows: R,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
    ) -> Result<Vec<Option<R::Row>>, Error> {
        self.with(|tx| rows.get_many(tx, keys))
    }

    /// Shows the rows of several keys, in the order of the keys, until the keys end or `visit`
    /// breaks off. It [prefetches](Self::prefetch) a few rows ahead, if they were not prefetched
    /// before. For more than one or two rows it is faster than to [`view`](Self::view) each.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Pod, TableDef};
    ///
    /// const PRICES: TableDef<u64, Pod<u32>> = TableDef::hash("prices");
    /// let db = Db::new()?;
    /// let prices = db.table(PRICES)?;
    /// let order = [7, 3, 9, 4];
    /// let (sum, missing) = db.transact(|tx| {
    ///     [(3, 20), (4, 5), (7, 10)].iter().try_for_each(|(item, price)| tx.put(prices, item, price))?;
    ///     let (mut sum, mut missing) = (0, 0);
    ///     tx.view_many(prices, order.iter(), |price| match price {
    ///         Some(price) => sum += price,
    ///         None => missing += 1,
    ///     })?;
    ///     Ok((sum, missing))
    /// })?;
    /// assert_eq!((sum, missing), (35, 1));
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn view_many<R: Stored, F: Flow>(
        &self,
        rows: R,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
        visit: impl FnMut(Option<R::View<'_>>) -> F,
    ) -> Result<(), Error> {
        if self.copies { self.view_copies(rows, keys, visit) } else { self.with(|tx| tx.view_many(rows, keys, visit)) }
    }

    /// Shows all rows of a table, until they end or `visit` breaks off. Rows of an ordered table
    /// come in key order, those of a hash table in no order. If the transaction commits, they are
    /// all the rows there were at one moment.
    ///
    /// A hash table with frequent insertions is better walked in a [snapshot](crate::Db::read),
    /// which never conflicts.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Pod, TableDef};
    ///
    /// const STOCK: TableDef<String, Pod<u64>> = TableDef::hash("stock");
    /// let db = Db::new()?;
    /// let stock = db.table(STOCK)?;
    /// db.transact(|tx| [("nails", 500), ("nuts", 7)].iter().try_for_each(|(name, count)| tx.put(stock, *name, count)))?;
    /// let few = db.read(|tx| {
    ///     let mut few = Vec::new();
    ///     tx.walk(stock, |name, count| {
    ///         few.extend((count < 10).then_some(name));
    ///     })?;
    ///     Ok(few)
    /// })?;
    /// assert_eq!(few, ["nuts"]);
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn walk<K: Key, C: Codec, O: Kind, F: Flow>(
        &self,
        table: Table<K, C, O>,
        visit: impl FnMut(K, C::View<'_>) -> F,
    ) -> Result<(), Error> {
        if self.copies { self.walk_copies(table, visit) } else { self.with(|tx| tx.walk(table, visit)) }
    }

    /// Counts the rows of a table, by reading all of them.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Example
    ///
    /// See [`retain`](Self::retain).
    #[inline]
    pub fn len<K: Key, C: Codec, O: Kind>(&self, table: Table<K, C, O>) -> Result<u64, Error> {
        self.with(|tx| tx.len(table))
    }

    /// Returns the rows of a range, in the order of their keys. Several ranges can be open at once.
    ///
    /// # Errors
    ///
    /// [`Error::OtherDatabase`]. Other errors are returned when the rows are read.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error, Ordered, Pod, TableDef};
    ///
    /// const OLD: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("old prices");
    /// const NEW: TableDef<u64, Pod<u64>, Ordered> = TableDef::ordered("new prices");
    /// let db = Db::new()?;
    /// let (old, new) = (db.table(OLD)?, db.table(NEW)?);
    /// db.transact(|tx| {
    ///     [(1, 10), (2, 20), (4, 40)].iter().try_for_each(|(item, price)| tx.put(old, item, price))?;
    ///     [(2, 25), (3, 30), (4, 40)].iter().try_for_each(|(item, price)| tx.put(new, item, price))
    /// })?;
    /// let changed = db.read(|tx| {
    ///     let (mut left, mut right) = (tx.range(old, ..)?, tx.range(new, ..)?);
    ///     let (mut a, mut b, mut changed) = (left.next()?, right.next()?, Vec::new());
    ///     while let (Some((item, before)), Some((other, after))) = (a, b) {
    ///         if item == other && before != after {
    ///             changed.push(item);
    ///         }
    ///         if item <= other {
    ///             a = left.next()?;
    ///         }
    ///         if other <= item {
    ///             b = right.next()?;
    ///         }
    ///     }
    ///     Ok(changed)
    /// })?;
    /// assert_eq!(changed, [2]);
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn range<R: Sorted>(&self, rows: R, range: impl KeyRange<R::Key>) -> Result<Range<'db, R, &Self, S>, Error> {
        let at = self.with(|tx| tx.range_in(rows, range))?;
        Ok(Range::new(self, at))
    }
}
