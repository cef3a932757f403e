//! The operations of transactions on tables of both kinds, for generic tests.
#![allow(dead_code, reason = "not every test does everything")]

use drtm_htm::Engine;
use drtm_kv::{
    AsOf, ForHolder, GuardChange, Handle, Holder, Keys, KvError, KvTable, Locking, Past, PhantomGuard, Placed,
    ReadEntry, Version, Worker,
};

/// Updates guards after the worker's own change.
pub(crate) fn carry<G: PhantomGuard>(change: &GuardChange<G>, seen: &mut Vec<G>) {
    let mut is_there = false;
    for guard in seen.iter_mut().filter(|guard| **guard == change.before) {
        assert_eq!(guard.place(), change.before.place());
        *guard = change.after;
        is_there = true;
    }
    if is_there {
        seen.extend(change.split_off);
    }
}

pub(crate) trait Transacted<E: Engine, K: Keys>: KvTable<E, K> {
    fn fetch(
        &self,
        key: K::Key<'_>,
        holder: Holder,
        into: &mut Vec<u8>,
    ) -> Result<Result<ReadEntry, Self::Guard>, KvError> {
        self.read(key, ForHolder(holder), into)
    }

    fn fetch_past(&self, key: K::Key<'_>, before: Version, into: &mut Vec<u8>) -> Result<Past, KvError> {
        Ok(self.read(key, AsOf::new(before), into)?.unwrap_or(Past::Absent))
    }

    /// Returns whether the guard of an absent key is unchanged.
    fn unchanged(&self, guard: &Self::Guard) -> bool {
        self.store().records().is_unchanged(guard)
    }

    /// Inserts an absent key as a transaction does, and reports the change of guards.
    fn insert_noting(
        &self,
        worker: &mut Worker<E>,
        key: K::Key<'_>,
        value: &[u8],
        missed: Option<Self::Guard>,
        note: impl FnMut(GuardChange<Self::Guard>),
    ) -> Result<Option<Version>, KvError> {
        let Placed::Made(made) =
            self.place::<ForHolder>(worker, key, value, missed.map(|missed| (missed, self.store().turn())), note)?
        else {
            return Ok(None);
        };
        let Locking::Taken { version, .. } = self.store().records().lock(made.at, worker.holder())? else {
            panic!("no other has use for it")
        };
        self.store().records().publish(made.at, version.next())?;
        Ok(Some(version.next()))
    }

    /// Writes a record that the worker has locked, in place or in other memory. Returns its new
    /// place.
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

impl<E: Engine, K: Keys, T: KvTable<E, K>> Transacted<E, K> for T {}
