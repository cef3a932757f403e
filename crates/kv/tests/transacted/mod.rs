//! What transactions do with tables of both kinds, for tests that are written once.
#![allow(dead_code, reason = "not every test does everything")]

use drtm_htm::Engine;
use drtm_kv::{
    BucketChange, BucketVersion, Fetched, Handle, HashTable, Holder, Keys, KvError, LeafChange, NodeVersion, Past,
    Placed, Reaped, Reserved, Sighting, Tree, TreeKeys, Version, Witness, Worker,
};

pub(crate) trait Transacted<E: Engine, K: Keys>: Clone + Send + Sync + 'static {
    /// Where a key was not found.
    type Nothing: Witness + Copy + PartialEq + std::fmt::Debug;
    /// What making a record has done to such places.
    type Change;

    /// Lets places that were seen follow one's own change.
    fn carry(change: &Self::Change, seen: &mut Vec<Self::Nothing>);

    fn impatient(&self) -> Self;
    fn count(&self) -> Result<u64, KvError>;
    fn fetch(&self, key: K::Key<'_>, holder: Holder, into: &mut Vec<u8>) -> Result<Fetched<Self::Nothing>, KvError>;
    fn fetch_past(&self, key: K::Key<'_>, before: Version, into: &mut Vec<u8>) -> Result<Past, KvError>;
    fn place(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        value: &[u8],
        note: impl FnMut(Self::Change),
    ) -> Result<Placed, KvError>;
    fn leads_to(&self, key: K::Key<'_>, at: Handle) -> Result<bool, KvError>;
    fn reserve(&self, worker: &mut Worker<E>, at: Handle, length: usize) -> Result<Option<Reserved>, KvError>;
    fn write_held(&self, at: Handle, version: Version, value: &[u8]) -> Result<(), KvError>;
    fn move_held(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        at: Handle,
        to: Reserved,
        version: Version,
        value: &[u8],
    ) -> Result<Handle, KvError>;
    fn reap(&self, worker: &mut Worker<E>, key: K::Key<'_>, seen: Sighting) -> Result<Reaped, KvError>;

    /// Writes a record that the worker has locked, where it is or in other memory. Gives where it is then.
    fn write(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        at: Handle,
        version: Version,
        value: &[u8],
    ) -> Result<Handle, KvError> {
        match self.reserve(worker, at, value.len())? {
            None => self.write_held(at, version, value).map(|()| at),
            Some(memory) => self.move_held(worker, key, at, memory, version, value),
        }
    }
}

macro_rules! as_the_table_does {
    ($nothing:ty, $change:ty) => {
        type Nothing = $nothing;
        type Change = $change;

        fn carry(change: &$change, seen: &mut Vec<$nothing>) {
            change.carry(seen);
        }
        fn impatient(&self) -> Self {
            self.impatient()
        }
        fn count(&self) -> Result<u64, KvError> {
            self.count()
        }
        fn fetch(&self, key: K::Key<'_>, holder: Holder, into: &mut Vec<u8>) -> Result<Fetched<$nothing>, KvError> {
            self.fetch(key, holder, into)
        }
        fn fetch_past(&self, key: K::Key<'_>, before: Version, into: &mut Vec<u8>) -> Result<Past, KvError> {
            self.fetch_past(key, before, into)
        }
        fn place(
            &self,
            worker: &mut Worker<E>,
            key: K::Key<'_>,
            value: &[u8],
            note: impl FnMut($change),
        ) -> Result<Placed, KvError> {
            self.place(worker, key, value, note)
        }
        fn leads_to(&self, key: K::Key<'_>, at: Handle) -> Result<bool, KvError> {
            self.leads_to(key, at)
        }
        fn reserve(&self, worker: &mut Worker<E>, at: Handle, length: usize) -> Result<Option<Reserved>, KvError> {
            self.reserve(worker, at, length)
        }
        fn write_held(&self, at: Handle, version: Version, value: &[u8]) -> Result<(), KvError> {
            self.write_held(at, version, value)
        }
        fn move_held(
            &self,
            worker: &mut Worker<E>,
            key: K::Key<'_>,
            at: Handle,
            to: Reserved,
            version: Version,
            value: &[u8],
        ) -> Result<Handle, KvError> {
            self.move_held(worker, key, at, to, version, value)
        }
        fn reap(&self, worker: &mut Worker<E>, key: K::Key<'_>, seen: Sighting) -> Result<Reaped, KvError> {
            self.reap(worker, key, seen)
        }
    };
}

impl<E: Engine, K: Keys> Transacted<E, K> for HashTable<E, K> {
    as_the_table_does!(BucketVersion, BucketChange);
}

impl<E: Engine, K: TreeKeys> Transacted<E, K> for Tree<E, K> {
    as_the_table_does!(NodeVersion, LeafChange);
}
