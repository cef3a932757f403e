//! The two kinds of keys that trees have: words, and byte strings in layers.

use drtm_htm::Engine;

use super::{
    LeafChange, Table,
    insert_point::{InsertPoint, Put},
    kind::Kind,
    leaves::Leaves,
    slices,
    walk::Walk,
};
use crate::{
    KvError, Version,
    record::keys::{Bytes, Inline, Sliced},
};

impl Kind for Inline {
    type Owned = u64;
    type InRecord = Self;
    type Way = Leaves;

    fn key(owned: &u64) -> u64 {
        *owned
    }

    fn keep(key: u64, owned: &mut u64) {
        *owned = key;
    }

    fn slice(key: u64, _depth: usize) -> u64 {
        key
    }

    #[inline(always)]
    fn insert_point<'t, E: Engine>(table: &'t Table<E>, key: u64) -> Result<InsertPoint<'t, E>, KvError> {
        table.insert_point(key)
    }

    /// Retries: no two integers have the same path, so the leaf has changed.
    fn part<E: Engine>(
        _table: &Table<E>,
        _spot: &InsertPoint<'_, E>,
        _key: u64,
        _link: u64,
        _version: Version,
        _note: &mut impl FnMut(LeafChange),
    ) -> Result<Put, KvError> {
        Ok(Put::Retry)
    }

    fn reclaim<E: Engine>(table: &Table<E>, key: u64) -> Result<(), KvError> {
        table.reclaim(key)
    }
}

impl Kind for Bytes {
    type Owned = Vec<u8>;
    type InRecord = Sliced;
    type Way = Walk;

    fn key(owned: &Vec<u8>) -> &[u8] {
        owned
    }

    fn keep(key: &[u8], owned: &mut Vec<u8>) {
        owned.clear();
        owned.extend(key);
    }

    fn slice(key: &[u8], depth: usize) -> u64 {
        slices::slice(key, depth)
    }

    #[inline(always)]
    fn insert_point<'t, E: Engine>(table: &'t Table<E>, key: &[u8]) -> Result<InsertPoint<'t, E>, KvError> {
        table.insert_point_of_bytes(key)
    }

    fn part<E: Engine>(
        table: &Table<E>,
        point: &InsertPoint<'_, E>,
        key: &[u8],
        link: u64,
        version: Version,
        note: &mut impl FnMut(LeafChange),
    ) -> Result<Put, KvError> {
        table.put_parting(point, key, link, version, note)
    }

    fn reclaim<E: Engine>(table: &Table<E>, key: &[u8]) -> Result<(), KvError> {
        table.prune(key)
    }
}
