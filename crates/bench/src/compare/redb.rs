//! redb: a copy-on-write B-tree with one writer at a time. In memory without durability, or in a
//! file.

use std::path::Path;

use redb::{
    Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, Table, TableDefinition,
    backends::InMemoryBackend,
};

use super::{
    durable::{Durable, VALUE},
    peer::{Peer, Rows, copied, failed},
};
use crate::StoreError;
use drtm_drive::Error;

const NAME: &str = "redb";
const ROWS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("rows");

pub(super) struct Redb {
    database: Database,
    durability: Durability,
}

struct Reading(ReadOnlyTable<u64, &'static [u8]>);
struct Writing<'t>(Table<'t, u64, &'static [u8]>);

fn refused(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    failed(NAME)(error.into())
}

impl Peer for Redb {
    fn new() -> Result<Self, Error> {
        let database = Database::builder().create_with_backend(InMemoryBackend::new()).map_err(refused)?;
        Ok(Self { database, durability: Durability::None })
    }

    fn transact<T, F: From<Error>>(
        &self,
        writes: bool,
        mut body: impl FnMut(&mut dyn Rows) -> Result<T, F>,
    ) -> Result<T, F> {
        if !writes {
            let tx = self.database.begin_read().map_err(refused)?;
            return body(&mut Reading(tx.open_table(ROWS).map_err(refused)?));
        }
        let mut tx = self.database.begin_write().map_err(refused)?;
        tx.set_durability(self.durability).map_err(refused)?;
        let done = body(&mut Writing(tx.open_table(ROWS).map_err(refused)?));
        match &done {
            Ok(_) => tx.commit().map_err(refused)?,
            Err(_) => tx.abort().map_err(refused)?,
        }
        done
    }
}

impl Durable for Redb {
    fn open(directory: &Path) -> Result<Self, Error> {
        let database = Database::create(directory.join(NAME)).map_err(refused)?;
        Ok(Self { database, durability: Durability::Immediate })
    }

    fn put(&self, key: u64, value: &[u8; VALUE]) -> Result<(), Error> {
        self.transact(true, |rows| rows.put(key, value))
    }

    fn get(&self, key: u64, value: &mut [u8; VALUE]) -> Result<bool, Error> {
        self.transact(false, |rows| rows.get(key, value)).map(|()| true)
    }
}

impl Rows for Reading {
    fn get(&mut self, key: u64, value: &mut [u8]) -> Result<(), Error> {
        let found = self.0.get(key).map_err(refused)?;
        copied(NAME, found.as_ref().map(|found| found.value()), value)
    }

    fn put(&mut self, _key: u64, _value: &[u8]) -> Result<(), Error> {
        Err(StoreError::Misbehaved {
            engine: NAME.to_owned(),
            did: "was asked to write in a transaction that only reads",
        }
        .into())
    }
}

impl Rows for Writing<'_> {
    fn get(&mut self, key: u64, value: &mut [u8]) -> Result<(), Error> {
        let found = self.0.get(key).map_err(refused)?;
        copied(NAME, found.as_ref().map(|found| found.value()), value)
    }

    fn put(&mut self, key: u64, value: &[u8]) -> Result<(), Error> {
        self.0.insert(key, value).map(|_| ()).map_err(refused)
    }
}
