//! Changes that tell what they have done to leaves, for whoever has seen some and is going to ask whether others have changed them.

use drtm_htm::{Engine, Waiter};

use super::{Existing, NodeVersion, Tree, kind::TreeKeys};
use crate::{KvError, Version, Worker};

/// What an insertion or a removal has done to a leaf: `before` is no more, and all keys that belonged to it belong to `after` now, or to the leaf that
/// was split off.
///
/// Who has scanned a range, and inserts into it, finds by [`Tree::unchanged`] that leaves have changed, and cannot tell whose doing it was. If the
/// leaves that were seen [follow](Self::carry) each change of one's own, they are unchanged as long as nobody else changes them.
///
/// A change may be told of leaves that nobody has looked at: when a leaf becomes empty, a neighbour takes over what belonged to it. Keys that are byte
/// strings may need several new leaves, each for some of the keys of another. Then each is told of as split off from that one, which may
/// have stayed the same otherwise.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::Store;
///
/// let store = Store::in_memory(NoHtm, 16 << 20)?;
/// let (tree, mut worker) = (store.tree()?, store.worker()?);
/// tree.insert(&mut worker, 10, b"ten")?;
///
/// let mut scan = tree.range(..100);
/// while scan.next()?.is_some() {}
/// let mut seen = scan.passed().to_vec();
///
/// for key in 20..90 {
///     tree.insert_noting(&mut worker, key, b"mine", |change| change.carry(&mut seen))?;
/// }
/// tree.remove_noting(&mut worker, 10, |change| change.carry(&mut seen))?;
/// assert!(seen.iter().all(|leaf| tree.unchanged(leaf)), "all of this was expected");
///
/// tree.insert(&mut worker, 15, b"another's")?;
/// assert!(!seen.iter().all(|leaf| tree.unchanged(leaf)), "this was not");
/// # Ok::<(), drtm_kv::KvError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeafChange {
    /// The leaf as it was: exactly so, up to the change.
    pub before: NodeVersion,
    /// The leaf as the change has left it, or the one that has taken over from it.
    pub after: NodeVersion,
    /// The one that some of the leaf's keys belong to now: if it was full, the upper ones.
    pub split_off: Option<NodeVersion>,
}

impl LeafChange {
    /// Lets leaves that were seen follow this change: the one that it has changed, if it is among them as it was before.
    ///
    /// One that others had changed in between stays as it was seen, and so does not become unchanged by this.
    pub fn carry(&self, seen: &mut Vec<NodeVersion>) {
        let mut is_there = false;
        for leaf in seen.iter_mut().filter(|leaf| **leaf == self.before) {
            *leaf = self.after;
            is_there = true;
        }
        if is_there {
            seen.extend(self.split_off);
        }
    }
}

impl<E: Engine, K: TreeKeys> Tree<E, K> {
    /// [Inserts](Self::insert) a key, and tells what that has done to leaves: nothing if the key was there.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert).
    pub fn insert_noting(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        value: &[u8],
        note: impl FnMut(LeafChange),
    ) -> Result<Option<Version>, KvError> {
        let inserted = self.table.insert::<K>(worker, key, value, note)?;
        if inserted.is_some() {
            self.table.add(worker, 1)?;
        }
        Ok(inserted)
    }

    /// [Gets a key's value or inserts it](Self::get_or_insert), and tells what that has done to leaves: nothing if the key was there.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert).
    pub fn get_or_insert_noting(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        value: &[u8],
        into: &mut [u8],
        mut note: impl FnMut(LeafChange),
    ) -> Result<Existing, KvError> {
        let waiter = Waiter::new();
        loop {
            if let Some(read) = self.get(key, into)? {
                return Ok(Existing::Found(read));
            }
            if let Some(version) = self.insert_noting(worker, key, value, &mut note)? {
                return Ok(Existing::Inserted(version));
            }
            waiter.pause();
        }
    }

    /// [Removes](Self::remove) a key, and tells what that has done to leaves: nothing if there was no such key.
    ///
    /// # Errors
    ///
    /// As for [`remove`](Self::remove).
    pub fn remove_noting(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        note: impl FnMut(LeafChange),
    ) -> Result<Option<Version>, KvError> {
        let removed = self.table.remove::<K>(worker, key, note)?;
        if removed.is_some() {
            self.table.add(worker, -1)?;
        }
        Ok(removed)
    }
}
