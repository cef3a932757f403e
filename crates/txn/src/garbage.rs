//! Records of keys that are gone, to be taken out of their tables.
//!
//! A row that is removed leaves its record behind, which says that the key is not there; so does an insertion that did not come about. Usually it is taken
//! out at once by whoever left it. If somebody has it locked just then, it is kept in mind and tried again later; if somebody has given the key
//! a value meanwhile, it is garbage no more.

use drtm_htm::Engine;
use drtm_kv::{KvError, Reaped, Sighting, Worker};

use crate::{
    catalog::Catalog,
    index::Encoded,
    work::{Work, encoded},
};

/// A record that could not be taken out at once.
#[derive(Debug)]
pub(crate) struct Garbage {
    table: u16,
    key: Key,
    seen: Sighting,
}

#[derive(Debug)]
enum Key {
    Word(u64),
    Bytes(Box<[u8]>),
}

/// Takes a record out of its table, or keeps it in mind.
pub(crate) fn reap<E: Engine>(
    catalog: &Catalog<E>,
    worker: &mut Worker<E>,
    garbage: &mut Vec<Garbage>,
    table: u16,
    key: Encoded<'_>,
    seen: Sighting,
) -> Result<(), KvError> {
    let Some(opened) = catalog.get(table) else { return Ok(()) };
    if opened.index.reap(worker, key, seen)? == Reaped::Busy {
        let key = match key {
            Encoded::Word(word) => Key::Word(word),
            Encoded::Bytes(bytes) => Key::Bytes(bytes.into()),
        };
        garbage.push(Garbage { table, key, seen });
    }
    Ok(())
}

/// Takes back the records that a transaction has made for insertions that do not come about.
pub(crate) fn take_back<E: Engine>(catalog: &Catalog<E>, work: &mut Work<E>) {
    let Work { writes, undone, keys, worker, garbage, .. } = work;
    for write in writes.iter().chain(undone.iter()) {
        let Some(version) = write.made else { continue };
        let seen = Sighting { at: write.at, version };
        // A store that is corrupt says so to whoever uses it next; here nobody is to be told.
        let _ = reap(catalog, worker, garbage, write.table, encoded(keys, write.key), seen);
    }
}

/// Tries again what could not be taken out.
#[cold]
pub(crate) fn try_again<E: Engine>(
    catalog: &Catalog<E>,
    worker: &mut Worker<E>,
    garbage: &mut Vec<Garbage>,
) -> Result<(), KvError> {
    let mut failed = Ok(());
    garbage.retain(|left| {
        let key = match &left.key {
            Key::Word(word) => Encoded::Word(*word),
            Key::Bytes(bytes) => Encoded::Bytes(bytes),
        };
        let Some(opened) = catalog.get(left.table) else { return false };
        match opened.index.reap(worker, key, left.seen) {
            Ok(reaped) => reaped == Reaped::Busy,
            Err(error) => {
                failed = Err(error);
                false
            }
        }
    });
    failed
}
