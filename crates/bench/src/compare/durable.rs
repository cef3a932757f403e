//! Durable single-row commits, one transaction each: measures a store, and checks that it keeps the
//! rows.

use std::{
    fs,
    path::{Path, PathBuf},
};

use drtm_drive::{Client, Done};
use drtm_report::refuse_occupied;
use drtm_txn::{Db, Durability, Raw as Bytes, Table, TableDef};

use super::order_queue::OrderQueue;
use drtm_drive::Error;

/// Bytes of a row.
pub(super) const VALUE: usize = 100;

/// Rows of a thread, which it writes in turn.
pub(super) const ROWS: u64 = 1_000;

/// A store whose commits are durable when they return.
pub(super) trait Durable: Sized + Sync {
    /// Opens a store in an empty directory.
    fn open(directory: &Path) -> Result<Self, Error>;

    /// Writes a row, in a transaction of its own.
    fn put(&self, key: u64, value: &[u8; VALUE]) -> Result<(), Error>;

    /// Copies a row. Returns whether it is there.
    fn get(&self, key: u64, value: &mut [u8; VALUE]) -> Result<bool, Error>;

    /// Whether rows can be read.
    const KEEPS_ROWS: bool = true;
}

/// A thread that writes its rows.
#[derive(Debug)]
#[repr(align(128))]
struct Committer<'s, D> {
    store: &'s D,
    thread: u64,
    /// The number of rows written.
    written: u64,
}

fn key(thread: u64, number: u64) -> u64 {
    (thread << 32) | (number % ROWS)
}

/// Returns the value that a thread writes as its `number`th row.
fn value(thread: u64, number: u64) -> [u8; VALUE] {
    let mut value = [number as u8; VALUE];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value[8..16].copy_from_slice(&thread.to_le_bytes());
    value
}

impl<D: Durable> Client for Committer<'_, D> {
    fn kinds() -> &'static [&'static str] {
        &["commit"]
    }

    fn run_next(&mut self, _date: u64) -> Result<Done, Error> {
        self.store.put(key(self.thread, self.written), &value(self.thread, self.written))?;
        self.written += 1;
        Ok(Done { kind: 0, is_committed: true })
    }
}

/// Opens a store in a directory of its own, and serves orders.
pub(super) fn host<D: Durable>(directory: &Path, threads: usize, orders: &OrderQueue) -> Result<(), Error> {
    let store = D::open(directory)?;
    let committer = |thread| Committer { store: &store, thread, written: 0 };
    let mut committers: Vec<_> = (0..threads as u64).map(committer).collect();
    orders.serve(&mut committers, |committers| if D::KEEPS_ROWS { verify(&store, committers) } else { Ok(Vec::new()) })
}

/// Returns the violations, in words: each row must have the value written last.
fn verify<D: Durable>(store: &D, committers: &[Committer<'_, D>]) -> Result<Vec<String>, Error> {
    let mut violations = Vec::new();
    for Committer { thread, written, .. } in committers {
        for number in written.saturating_sub(ROWS)..*written {
            let mut found = [0; VALUE];
            if !store.get(key(*thread, number), &mut found)? || found != value(*thread, number) {
                violations.push(format!("commit {number} of thread {thread} is not there"));
            }
        }
    }
    Ok(violations)
}

/// A directory for all stores, removed at the end.
#[derive(Debug)]
pub(super) struct Ground {
    path: PathBuf,
}

impl Ground {
    /// Uses a directory that is empty or not there yet, or one among the system's temporary files.
    pub(super) fn new(path: Option<&Path>) -> Result<Self, Error> {
        path.map_or(Ok(()), refuse_occupied)?;
        let own = || std::env::temp_dir().join(format!("drtm-compare-{}", std::process::id()));
        Ok(Self { path: path.map_or_else(own, Path::to_owned) })
    }

    /// Makes a subdirectory.
    pub(super) fn directory(&self, name: &str) -> Result<PathBuf, Error> {
        let path = self.path.join(name);
        fs::create_dir_all(&path).map_err(drtm_report::Error::file(&path))?;
        Ok(path)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // Only the stores' files are left, and nothing needs them.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// This database.
pub(super) struct Ours {
    db: Db,
    rows: Table<u64, Bytes>,
}

const TABLE: TableDef<u64, Bytes> = TableDef::hash("rows");

impl Durable for Ours {
    fn open(directory: &Path) -> Result<Self, Error> {
        let builder = Db::builder().memory(4 << 30).path(directory).create(true);
        let db = builder.durability(Durability::Sync).build()?;
        let rows = db.table(TABLE)?;
        Ok(Self { db, rows })
    }

    fn put(&self, key: u64, value: &[u8; VALUE]) -> Result<(), Error> {
        Ok(self.db.transact(|tx| tx.put(self.rows, key, value))?)
    }

    fn get(&self, key: u64, value: &mut [u8; VALUE]) -> Result<bool, Error> {
        let found = self.db.read(|tx| tx.get(self.rows, key))?;
        Ok(found.is_some_and(|found| {
            let fits = found.len() == VALUE;
            if fits {
                value.copy_from_slice(&found);
            }
            fits
        }))
    }
}
