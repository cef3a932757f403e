//! What transactions do with the tree: find records, singly and in their order, make records for keys that are to be inserted, write records that they
//! hold, and take out those of keys that are gone.

use std::ops::{ControlFlow, RangeBounds};

use drtm_htm::{Engine, Waiter};
use drtm_rdma::Offset;

use super::{
    LeafChange, NodeVersion, Tree,
    kind::TreeKeys,
    leaves::{Direction, Untold},
    node::Locked,
    rows::Ahead,
    search::Spot,
    view::Observed,
};
use crate::{
    Fetched, Handle, Holder, KvError, Placed, Reaped, Reserved, Sighting, Version, Worker, floor,
    record::{Past, PastView, Record},
    room::{Nowhere, Room},
};

/// Where a transaction's scan of a range is. Unlike a [`Scan`](super::Scan) it borrows nothing.
///
/// # Example
///
/// See [`Tree::advance`].
#[derive(Debug)]
pub struct Cursor<K: TreeKeys> {
    cursor: K::Cursor,
}

impl<K: TreeKeys> Cursor<K> {
    /// At the beginning of a range, to go upward.
    pub fn up<'k>(range: impl RangeBounds<K::Key<'k>>) -> Self {
        Self { cursor: K::cursor(range, Direction::Up) }
    }

    /// At the end of a range, to go downward.
    pub fn down<'k>(range: impl RangeBounds<K::Key<'k>>) -> Self {
        Self { cursor: K::cursor(range, Direction::Down) }
    }

    /// Says how many rows are probably wanted, and how many bytes a value has: so much is asked for ahead. Of many rows of a hundred bytes if nothing is said.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{Cursor, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (tree, mut worker) = (store.tree()?, store.worker()?);
    /// tree.insert(&mut worker, 7, b"seven")?;
    /// let mut first = Cursor::up(..).expecting(1, 5);
    /// assert!(tree.advance(&mut first, worker.holder(), &mut Vec::new(), &mut Vec::new())?.is_some());
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[must_use]
    pub fn expecting(mut self, rows: usize, bytes: usize) -> Self {
        K::expect(&mut self.cursor, Ahead::of(rows, bytes));
        self
    }
}

impl<E: Engine> Tree<E> {
    /// Asks for the memory of the leaf where a key belongs: for who is going to insert it, or to look for it, later. The worker remembers which leaf it is.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::Store;
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (tree, mut worker) = (store.tree()?, store.worker()?);
    /// tree.ask_for(&mut worker, 7);
    /// // What takes its time goes here.
    /// assert!(tree.insert(&mut worker, 7, b"seven")?.is_some());
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[inline]
    pub fn ask_for(&self, worker: &mut Worker<E>, key: u64) {
        // Where somebody changes a node on the way, or the tree is corrupt, it is found out when it is come to in earnest.
        let _ = self.table.ask_for_leaf(worker, key);
    }
}

impl<E: Engine, K: TreeKeys> Tree<E, K> {
    /// Copies a key's value for a transaction of this holder, waiting while others have its record locked. If there is no record, gives the leaf that would
    /// have it, as it was.
    ///
    /// # Errors
    ///
    /// When the key is too long, or the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{Fetched, Placed, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (tree, mut worker) = (store.tree()?, store.worker()?);
    /// let me = worker.holder();
    /// let Fetched::Nothing(leaf) = tree.fetch(7, me, &mut Vec::new())? else { panic!("the tree is empty") };
    /// assert!(tree.unchanged(&leaf), "7 is still not there");
    /// assert!(matches!(tree.place(&mut worker, 7, b"seven", |_| ())?, Placed::Made(_)));
    /// assert!(!tree.unchanged(&leaf));
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[inline]
    pub fn fetch(
        &self,
        key: K::Key<'_>,
        holder: Holder,
        into: &mut impl Room,
    ) -> Result<Fetched<NodeVersion>, KvError> {
        let found = self.table.search::<K, _>(key, |record| record.observe::<K::Kept>(key, holder, into))?;
        Ok(match found {
            Ok(sighting) => Fetched::Record(sighting),
            Err(spot) => Fetched::Nothing(NodeVersion::of(&spot.leaf)),
        })
    }

    /// Moves a cursor to the next record, which may be one of a key that is not there, and copies its value. Adds the leaves that are passed.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{Cursor, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (tree, mut worker) = (store.tree()?, store.worker()?);
    /// tree.insert(&mut worker, 7, b"seven")?;
    /// let (mut cursor, mut passed, mut value) = (Cursor::up(5..), Vec::new(), Vec::new());
    /// let row = tree.advance(&mut cursor, worker.holder(), &mut passed, &mut value)?;
    /// let (key, sighting) = row.expect("inserted above");
    /// assert!(key == 7 && sighting.is_present() && value == b"seven");
    /// assert!(tree.advance(&mut cursor, worker.holder(), &mut passed, &mut value)?.is_none());
    /// assert!(passed.iter().all(|leaf| tree.unchanged(leaf)));
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[inline]
    pub fn advance<'c>(
        &self,
        cursor: &'c mut Cursor<K>,
        holder: Holder,
        passed: &mut Vec<NodeVersion>,
        value: &mut impl Room,
    ) -> Result<Option<(K::Key<'c>, Sighting)>, KvError> {
        K::next(&self.table, &mut cursor.cursor, passed, &mut Observed { view: holder, value })
    }

    /// Moves a cursor from record to record, as [`advance`](Self::advance) does, and shows each, with its value where it was copied to; until there are no more
    /// or `show` breaks off.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use std::ops::ControlFlow;
    ///
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{Cursor, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (tree, mut worker) = (store.tree()?, store.worker()?);
    /// tree.load(&mut worker, (0..100).map(|key| (key, "value")))?;
    /// let (mut cursor, mut passed, mut keys) = (Cursor::up(5..), Vec::new(), Vec::new());
    /// tree.advance_each(&mut cursor, worker.holder(), &mut passed, &mut Vec::new(), |key, seen, value| {
    ///     assert!(seen.is_present() && *value == b"value");
    ///     keys.push(key);
    ///     if keys.len() < 7 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    /// })?;
    /// assert!(keys.into_iter().eq(5..12) && passed.iter().all(|leaf| tree.unchanged(leaf)));
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[inline]
    pub fn advance_each<R: Room>(
        &self,
        cursor: &mut Cursor<K>,
        holder: Holder,
        passed: &mut Vec<NodeVersion>,
        value: &mut R,
        mut show: impl FnMut(K::Key<'_>, Sighting, &mut R) -> ControlFlow<()>,
    ) -> Result<(), KvError> {
        let mut observed = Observed { view: holder, value };
        K::each(&self.table, &mut cursor.cursor, passed, &mut observed, |key, seen, at| show(key, seen, at.value))
    }

    /// Copies the value that a key had before a version, as [of a hash table](crate::HashTable::fetch_past).
    ///
    /// # Errors
    ///
    /// When the key is too long, or the store is corrupt.
    pub fn fetch_past(&self, key: K::Key<'_>, before: Version, into: &mut impl Room) -> Result<Past, KvError> {
        let mut view = PastView::new(before);
        let found = self.table.search::<K, _>(key, |record| record.observe_past::<K::Kept>(key, &mut view, into))?;
        Ok(found.unwrap_or(Past::Absent))
    }

    /// Moves a cursor to the next record, and copies the value that its key had before a version.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{Cursor, Past, Store, Version};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (tree, mut worker) = (store.tree()?, store.worker()?);
    /// let first = tree.insert(&mut worker, 7, b"seven")?.expect("it is new");
    /// let (mut cursor, mut value) = (Cursor::up(..), Vec::new());
    /// let row = tree.advance_past(&mut cursor, Version::new(1_000), &mut value)?;
    /// assert_eq!(row, Some((7, Past::Present(first))));
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[inline]
    pub fn advance_past<'c>(
        &self,
        cursor: &'c mut Cursor<K>,
        before: Version,
        value: &mut impl Room,
    ) -> Result<Option<(K::Key<'c>, Past)>, KvError> {
        let mut view = Observed { view: PastView::new(before), value };
        K::next(&self.table, &mut cursor.cursor, &mut Untold, &mut view)
    }

    /// Moves a cursor from record to record, as [`advance_past`](Self::advance_past) does, and shows each, with its value where it was copied to; until there are no
    /// more or `show` breaks off.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use std::ops::ControlFlow;
    ///
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{Cursor, Past, Store, Version};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (tree, mut worker) = (store.tree()?, store.worker()?);
    /// tree.load(&mut worker, (0..100).map(|key| (key, "value")))?;
    /// let (mut cursor, mut keys) = (Cursor::up(5..), Vec::new());
    /// tree.advance_past_each(&mut cursor, Version::new(1_000), &mut Vec::new(), |key, past, value| {
    ///     assert!(matches!(past, Past::Present(_)) && *value == b"value");
    ///     keys.push(key);
    ///     if keys.len() < 7 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    /// })?;
    /// assert!(keys.into_iter().eq(5..12));
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    #[inline]
    pub fn advance_past_each<R: Room>(
        &self,
        cursor: &mut Cursor<K>,
        before: Version,
        value: &mut R,
        mut show: impl FnMut(K::Key<'_>, Past, &mut R) -> ControlFlow<()>,
    ) -> Result<(), KvError> {
        let mut view = Observed { view: PastView::new(before), value };
        K::each(&self.table, &mut cursor.cursor, &mut Untold, &mut view, |key, past, at| show(key, past, at.value))
    }

    /// Finds a key's record, or makes one, which says that the key is not there, and has this value already for when it will be. Tells what that has done to
    /// leaves.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert).
    ///
    /// # Example
    ///
    /// See [`fetch`](Self::fetch).
    pub fn place(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        value: &[u8],
        mut note: impl FnMut(LeafChange),
    ) -> Result<Placed, KvError> {
        let removed = |number| Version::new(number).removed();
        if let Some((place, version, change)) = self.table.put_near::<K>(worker, key, value, removed)? {
            note(change);
            self.table.add(worker, 1)?;
            return Ok(Placed::Made(Sighting { at: Handle::of(place), version }));
        }
        let holder = worker.holder();
        loop {
            let found =
                self.table.search::<K, _>(key, |record| record.observe::<K::Kept>(key, holder, &mut Nowhere))?;
            let spot = match found {
                Ok(sighting) => return Ok(Placed::Found(sighting)),
                Err(spot) => spot,
            };
            if let Some((place, version)) = self.table.put_new::<K>(worker, spot, key, value, removed, &mut note)? {
                self.table.add(worker, 1)?;
                return Ok(Placed::Made(Sighting { at: Handle::of(place), version }));
            }
        }
    }

    /// Whether a key's record is this one, which the caller has locked, as [of a hash table](crate::HashTable::leads_to).
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    pub fn leads_to(&self, key: K::Key<'_>, at: Handle) -> Result<bool, KvError> {
        let found = self
            .table
            .search::<K, _>(key, |record| Ok(record.identify::<K::Kept>(key)?.map(|()| Handle::of(record.place()))))?;
        Ok(found.is_ok_and(|found| found == at))
    }

    /// Takes memory for a value of this length, for a record that the caller has locked, as [of a hash table](crate::HashTable::reserve).
    ///
    /// # Errors
    ///
    /// As for [`update`](Self::update).
    pub fn reserve(&self, worker: &mut Worker<E>, at: Handle, length: usize) -> Result<Option<Reserved>, KvError> {
        Record::at(self.table.region(), at.place())?.reserve::<K::Kept>(worker, length)
    }

    /// Writes a record that the caller has locked, in a version of its own choice, and unlocks it. It must have room for the value.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    #[inline]
    pub fn write_held(&self, at: Handle, version: Version, value: &[u8]) -> Result<(), KvError> {
        Record::at(self.table.region(), at.place())?.write_held::<K::Kept>(version, value)
    }

    /// The same in [other memory](Self::reserve). Gives the record's handle there.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    pub fn move_held(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        at: Handle,
        to: Reserved,
        version: Version,
        value: &[u8],
    ) -> Result<Handle, KvError> {
        let waiter = Waiter::new();
        loop {
            let spot = K::spot(&self.table, key)?;
            if let Some(leaf) = lock_with(&spot, at)? {
                let record = Record::at(self.table.region(), at.place())?;
                let held = record.held::<K::Kept>()?;
                let (class, place) = (held.class(), held.copy_to::<K::Kept>(to, key, version, value)?);
                leaf.node.point(spot.slot, place.to_link());
                held.retire();
                drop(leaf);
                worker.free(class, at.place().word);
                return Ok(Handle::of(place));
            }
            waiter.pause();
        }
    }

    /// Takes out the record of a key that is gone, if it is still as it was seen and nobody has it locked.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_htm::NoHtm;
    /// use drtm_kv::{Placed, Reaped, Store};
    ///
    /// let store = Store::in_memory(NoHtm, 16 << 20)?;
    /// let (tree, mut worker) = (store.tree()?, store.worker()?);
    /// let Placed::Made(seen) = tree.place(&mut worker, 7, b"seven", |_| ())? else { panic!("it is new") };
    /// assert_eq!(tree.reap(&mut worker, 7, seen)?, Reaped::Out);
    /// assert_eq!(tree.reap(&mut worker, 7, seen)?, Reaped::Gone, "it is out already");
    /// # Ok::<(), drtm_kv::KvError>(())
    /// ```
    pub fn reap(&self, worker: &mut Worker<E>, key: K::Key<'_>, seen: Sighting) -> Result<Reaped, KvError> {
        let table = &*self.table;
        let waiter = Waiter::new();
        loop {
            let spot = K::spot(table, key)?;
            if spot.link != Some(seen.at.place().to_link()) {
                return Ok(Reaped::Gone);
            }
            let Some(leaf) = spot.leaf.try_lock() else {
                waiter.pause();
                continue;
            };
            if leaf.node.link(spot.slot) != seen.at.place().to_link() {
                return Ok(Reaped::Gone);
            }
            let record = Record::at(table.region(), seen.at.place())?;
            let locked = match record.lock_seen::<K::Kept>(seen, worker.holder())? {
                Ok(locked) => locked,
                Err(reaped) => return Ok(reaped),
            };
            let (class, count) = (locked.class(), leaf.count());
            floor::raise(table.engine(), table.header(super::header::FLOOR)?, seen.version);
            leaf.node.remove(count, spot.slot);
            locked.retire();
            leaf.release(count - 1);
            worker.free(class, seen.at.place().word);
            table.add(worker, -1)?;
            if count == 1 {
                K::reclaim(table, key, &mut |_| ())?;
            }
            return Ok(Reaped::Out);
        }
    }
}

/// Locks the leaf that leads to a record which the caller has locked. `None`: the leaf has changed.
fn lock_with<'t, E: Engine>(spot: &Spot<'t, E>, at: Handle) -> Result<Option<Locked<'t, E>>, KvError> {
    let link = at.place().to_link();
    if spot.link != Some(link) && spot.leaf.node.still(spot.leaf.stamp) {
        let offset = Offset::new(8 * at.place().word);
        return Err(KvError::Inconsistent { at: offset, what: "a record is not in its key's leaf" });
    }
    Ok(spot.leaf.try_lock().filter(|leaf| leaf.node.link(spot.slot) == link))
}
