//! fjall: a log-structured merge tree. Its journal is synced after every batch.

use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{
    durable::{Durable, VALUE},
    peer::failed,
};
use drtm_drive::Error;

const NAME: &str = "fjall";

pub(super) struct Fjall {
    database: Database,
    rows: Keyspace,
}

fn refused(error: fjall::Error) -> Error {
    failed(NAME)(error.into())
}

impl Durable for Fjall {
    fn open(directory: &Path) -> Result<Self, Error> {
        let database = Database::builder(directory).open().map_err(refused)?;
        let rows = database.keyspace("rows", KeyspaceCreateOptions::default).map_err(refused)?;
        Ok(Self { database, rows })
    }

    fn put(&self, key: u64, value: &[u8; VALUE]) -> Result<(), Error> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        batch.insert(&self.rows, key.to_be_bytes(), value);
        batch.commit().map_err(refused)
    }

    fn get(&self, key: u64, value: &mut [u8; VALUE]) -> Result<bool, Error> {
        let found = self.rows.get(key.to_be_bytes()).map_err(refused)?;
        Ok(found.and_then(|found| (*found).try_into().ok()).map(|found: [u8; VALUE]| *value = found).is_some())
    }
}
