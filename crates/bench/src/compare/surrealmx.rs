//! SurrealMX: multi-version, optimistic, serializable by validation of the read set.

use std::path::Path;

use surrealmx::{AolMode, Database, DatabaseOptions, Error as MxError, FsyncMode, PersistenceOptions, Transaction};

use super::{
    durable::{Durable, VALUE},
    peer::{Peer, Rows, copied, failed},
};
use drtm_drive::Error;

const NAME: &str = "surrealmx";

pub(super) struct SurrealMx(Database);

struct Tx(Transaction);

fn refused(error: MxError) -> Error {
    failed(NAME)(error.into())
}

impl Peer for SurrealMx {
    fn new() -> Result<Self, Error> {
        Ok(Self(Database::new()))
    }

    fn transact<T, F: From<Error>>(
        &self,
        writes: bool,
        mut body: impl FnMut(&mut dyn Rows) -> Result<T, F>,
    ) -> Result<T, F> {
        loop {
            let mut tx = Tx(self.0.transaction(writes).with_serializable_snapshot_isolation());
            let done = body(&mut tx);
            if !writes || done.is_err() {
                tx.0.cancel().map_err(refused)?;
                return done;
            }
            match tx.0.commit() {
                Ok(()) => return done,
                Err(MxError::KeyReadConflict | MxError::KeyWriteConflict) => {}
                Err(error) => return Err(refused(error).into()),
            }
        }
    }
}

impl Durable for SurrealMx {
    fn open(directory: &Path) -> Result<Self, Error> {
        let log = PersistenceOptions::new(directory).with_aol_mode(AolMode::SynchronousOnCommit);
        let log = log.with_fsync_mode(FsyncMode::EveryAppend);
        let database = Database::new_with_persistence(DatabaseOptions::default(), log);
        Ok(Self(database.map_err(|error| failed(NAME)(error.into()))?))
    }

    fn put(&self, key: u64, value: &[u8; VALUE]) -> Result<(), Error> {
        self.transact(true, |rows| rows.put(key, value))
    }

    fn get(&self, key: u64, value: &mut [u8; VALUE]) -> Result<bool, Error> {
        self.transact(false, |rows| rows.get(key, value)).map(|()| true)
    }
}

impl Rows for Tx {
    fn get(&mut self, key: u64, value: &mut [u8]) -> Result<(), Error> {
        let found = self.0.with_value(key.to_be_bytes(), |found| copied(NAME, Some(found), value)).map_err(refused)?;
        found.unwrap_or_else(|| copied(NAME, None, &mut []))
    }

    fn put(&mut self, key: u64, value: &[u8]) -> Result<(), Error> {
        self.0.set(key.to_be_bytes(), value).map_err(refused)
    }
}
