//! heed: LMDB, a copy-on-write B+ tree in a mapped file, with one writer at a time.
//!
//! Version 0.11 is the last that opens an environment by a safe function. This crate has no unsafe
//! code.

use std::path::Path;

use heed::{
    Database, Env, EnvOpenOptions,
    types::{ByteSlice, OwnedType},
};

use super::{
    durable::{Durable, VALUE},
    peer::failed,
};
use drtm_drive::Error;

const NAME: &str = "heed";

/// The largest size of the file.
const MAP: usize = 4 << 30;

pub(super) struct Heed {
    env: Env,
    rows: Database<OwnedType<[u8; 8]>, ByteSlice>,
}

fn refused(error: heed::Error) -> Error {
    failed(NAME)(error.to_string().into())
}

impl Durable for Heed {
    fn open(directory: &Path) -> Result<Self, Error> {
        // Every commit is synced, unless flags disable it.
        let env = EnvOpenOptions::new().map_size(MAP).open(directory).map_err(refused)?;
        let rows = env.create_database(None).map_err(refused)?;
        Ok(Self { env, rows })
    }

    fn put(&self, key: u64, value: &[u8; VALUE]) -> Result<(), Error> {
        let mut tx = self.env.write_txn().map_err(refused)?;
        self.rows.put(&mut tx, &key.to_be_bytes(), value).map_err(refused)?;
        tx.commit().map_err(refused)
    }

    fn get(&self, key: u64, value: &mut [u8; VALUE]) -> Result<bool, Error> {
        let tx = self.env.read_txn().map_err(refused)?;
        let found = self.rows.get(&tx, &key.to_be_bytes()).map_err(refused)?;
        Ok(found.and_then(|found| found.try_into().ok()).map(|found: [u8; VALUE]| *value = found).is_some())
    }
}
