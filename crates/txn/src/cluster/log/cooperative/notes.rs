//! What an owner with a directory notes of each transaction that it carries out: in which epoch of
//! its log the record is. When it is started again, that says whether its disk has the record.
//!
//! ```text
//! root 1 -> note   0 the transaction's name   1 one of the rows that it has written, as a hash
//!                  2 epoch, or zero           3 the next note's offset, or zero
//! ```
//!
//! A name is used again when its slot is free, and then all is durable. So one note for each name
//! is enough. A record's epoch can be closed only after the note is there.

use drtm_htm::Engine;
use drtm_rdma::{NvError, NvRegion, Offset};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::xxh3_64;

use crate::memory::storage::KeyRef;

const NAME: usize = 0;
const ROW: usize = 1;
const EPOCH: usize = 2;
const NEXT: usize = 3;
const WORDS: usize = 4;

/// Where the notes of a node's life are, by the names of their transactions.
#[derive(Debug, Default)]
pub(super) struct Notes {
    places: Mutex<FxHashMap<u64, Offset>>,
}

/// What was noted of a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    at: Offset,
    pub(super) name: u64,
    pub(super) row: u64,
    pub(super) epoch: u64,
}

/// Returns the hash of a row that was written: its table's number in the database, its key, and its
/// new version.
pub(in crate::cluster) fn hash_of(table: u16, key: KeyRef<'_>, version: u64) -> u64 {
    let mut bytes = [&table.to_le_bytes()[..], &version.to_le_bytes()[..]].concat();
    key.write(size_of::<u64>(), &mut bytes);
    xxh3_64(&bytes)
}

impl Notes {
    /// Notes a transaction.
    pub(super) fn add<E: Engine>(
        &self,
        region: &NvRegion<E>,
        (name, row, epoch): (u64, u64, u64),
    ) -> Result<(), NvError> {
        let (mut places, memory) = (self.places.lock(), region.region());
        let engine = memory.engine();
        let at = match places.get(&name) {
            Some(at) => *at,
            None => {
                let at = memory.extend(8 * WORDS as u64, 32)?;
                let words = memory.array::<WORDS>(at)?;
                engine.store(&words[NAME], name);
                if let Some(first) = region.root(1) {
                    engine.store(&words[NEXT], engine.load(first));
                    engine.store(first, at.bytes());
                }
                places.insert(name, at);
                at
            }
        };
        let words = memory.array::<WORDS>(at)?;
        // One that is cut off says nothing.
        engine.store(&words[EPOCH], 0);
        engine.store(&words[ROW], row);
        engine.store(&words[EPOCH], epoch);
        Ok(())
    }
}

/// Returns what a life of a node has noted.
pub(super) fn notes<E: Engine>(region: &NvRegion<E>) -> Result<Vec<Note>, NvError> {
    let (memory, mut found) = (region.region(), Vec::new());
    let engine = memory.engine();
    let mut next = region.root(1).map_or(0, |first| engine.load(first));
    let most = memory.allocated() / (8 * WORDS as u64);
    while next != 0 && found.len() as u64 <= most {
        let at = Offset::new(next);
        let words = memory.array::<WORDS>(at)?;
        let [name, row, epoch] = [NAME, ROW, EPOCH].map(|word| engine.load(&words[word]));
        found.push(Note { at, name, row, epoch });
        next = engine.load(&words[NEXT]);
    }
    if next != 0 {
        return Err(NvError::Header { why: "its notes do not end" });
    }
    Ok(found)
}

/// Takes a note back: the disk does not have what it says.
pub(super) fn forget<E: Engine>(region: &NvRegion<E>, note: Note) -> Result<(), NvError> {
    let words = region.region().array::<WORDS>(note.at)?;
    region.region().engine().store(&words[EPOCH], 0);
    Ok(())
}
