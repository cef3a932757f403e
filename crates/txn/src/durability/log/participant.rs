//! A transaction state's part of the log: the word that publishes the epoch in which it may commit,
//! and its buffers.
//!
//! There are two buffers. The leader locks one at a time to take its contents, so a committing
//! thread finds the other free. It never waits for the leader while it holds row locks. Records of
//! one epoch can be in any order.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use drtm_htm::{Engine, Word, fence_locked};
use drtm_kv::Records;
use parking_lot::{Mutex, MutexGuard};

use super::buffer::Buffer;
use crate::{
    Commit, Error, Row, RowChange,
    durability::format::{CatalogChange, Change, Damage, Entry, RecordKind, RecordWriter},
    model::bounds::MODEL,
};

/// No transaction is committing.
const IDLE: u64 = 0;

#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Participant {
    /// The epoch in which a transaction may commit.
    epoch: Word,
    /// Bytes in the buffers.
    pending: AtomicU64,
    /// The number of the committing thread, and its name.
    thread: AtomicU64,
    name: Mutex<String>,
    buffers: [Mutex<Buffer>; 2],
}

/// An epoch that is held open. Dropping it, by an error or a panic too, lets the epoch be closed.
#[derive(Debug)]
pub(crate) struct Open<'p, E: Engine> {
    engine: &'p E,
    epoch: &'p Word,
}

impl<E: Engine> Drop for Open<'_, E> {
    fn drop(&mut self) {
        self.engine.store(self.epoch, IDLE);
    }
}

impl Participant {
    /// Returns the size of its buffers on the heap, without one that the leader is emptying.
    pub(crate) fn bytes(&self) -> usize {
        self.buffers.iter().filter_map(Mutex::try_lock).map(|buffer| buffer.bytes.capacity()).sum()
    }

    pub(super) fn pending(&self) -> u64 {
        self.pending.load(Relaxed)
    }

    /// Publishes an epoch. It is a fence: if the leader that closes the epoch misses it, the
    /// snapshot number that is read afterwards is higher.
    pub(super) fn open<'p, E: Engine>(&'p self, engine: &'p E, epoch: u64) -> Open<'p, E> {
        engine.fetch_add(&self.epoch, epoch);
        fence_locked();
        Open { engine, epoch: &self.epoch }
    }

    /// Clears the epoch before the transaction has ended: a deliberate fault.
    #[cold]
    pub(super) fn clear_early<E: Engine>(&self, engine: &E) {
        engine.store(&self.epoch, IDLE);
        // Lets other threads use the fault, as a model checker does.
        if !MODEL {
            thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// Records which thread is committing.
    pub(super) fn note_thread(&self) {
        let number = this_thread();
        if self.thread.load(Relaxed) != number {
            let this = thread::current();
            *self.name.lock() = this.name().map_or_else(|| format!("{:?}", this.id()), str::to_owned);
            self.thread.store(number, Relaxed);
        }
    }

    /// Returns the name of the thread that last committed.
    pub(super) fn thread(&self) -> String {
        self.name.lock().clone()
    }

    /// Returns whether a transaction may commit in this epoch or an earlier one.
    pub(super) fn holds<E: Engine>(&self, engine: &E, epoch: u64) -> bool {
        (1..=epoch).contains(&engine.load(&self.epoch))
    }

    /// Locks a buffer that the leader is not taking.
    fn buffer(&self) -> MutexGuard<'_, Buffer> {
        loop {
            if let Some(free) = self.buffers.iter().find_map(Mutex::try_lock) {
                return free;
            }
            // The leader has just moved from one buffer to the other.
            std::hint::spin_loop();
        }
    }

    /// Returns whether it has as many bytes in its buffers as it may have.
    pub(crate) fn is_full(&self) -> bool {
        self.pending() > super::MOST_PENDING
    }

    pub(super) fn append<E: Engine>(
        &self,
        records: &Records<'_, E>,
        commit: &Commit<'_>,
        epoch: u64,
    ) -> Result<bool, Error> {
        let mut rows = commit.rows().filter(|row| !row.is_index()).peekable();
        if rows.peek().is_none() {
            return Ok(false);
        }
        self.add(epoch, |bytes| {
            let mut record = RecordWriter::begin(bytes, epoch, RecordKind::Rows);
            for row in rows {
                let (version, change) = (row.version().number(), logged(records, &row));
                record.entry(&Entry { table: row.table_id(), key: row.key(), version, change })?;
            }
            record.finish()
        })?;
        Ok(true)
    }

    /// Appends a record of these rows.
    pub(super) fn append_rows(&self, epoch: u64, rows: &[Entry<'_>]) -> Result<(), Error> {
        self.add(epoch, |bytes| {
            let mut record = RecordWriter::begin(bytes, epoch, RecordKind::Rows);
            rows.iter().try_for_each(|row| record.entry(row))?;
            record.finish()
        })
    }

    pub(super) fn announce(&self, created: &CatalogChange, epoch: u64) -> Result<(), Error> {
        self.add(epoch, |bytes| created.encode(bytes, epoch))
    }

    fn add(&self, epoch: u64, encode: impl FnOnce(&mut Vec<u8>) -> Result<(), Damage>) -> Result<(), Error> {
        let mut buffer = self.buffer();
        let before = buffer.bytes.len();
        let encoded = encode(&mut buffer.bytes);
        if encoded.is_err() {
            buffer.bytes.truncate(before);
            return Err(Error::TooLarge { bytes: buffer.bytes.len(), most: u32::MAX as usize });
        }
        buffer.newest = epoch;
        self.pending.fetch_add((buffer.bytes.len() - before) as u64, Relaxed);
        Ok(())
    }

    /// Calls `take` to empty the buffers. Returns whether they had anything.
    pub(super) fn drain(&self, mut take: impl FnMut(&mut Buffer)) -> bool {
        let mut had_any = false;
        for buffer in &self.buffers {
            let mut buffer = buffer.lock();
            if !buffer.bytes.is_empty() {
                self.pending.fetch_sub(buffer.bytes.len() as u64, Relaxed);
                take(&mut buffer);
                had_any = true;
            }
        }
        had_any
    }
}

/// What a patch has beside its bytes and a value has not, about.
const PATCH_OVERHEAD: usize = 8;

/// Returns the change of a row as it is logged: of a value that is written in place, only what
/// differs from the one before. The row is locked.
fn logged<'t, E: Engine>(records: &Records<'_, E>, row: &Row<'t>) -> Change<'t> {
    let patch = |offset, bytes| Change::Patch { previous: row.previous().number(), offset, bytes };
    let (at, changed) = (row.overwritten(), |at, skipped, bytes| records.changed_bytes(at, skipped, bytes));
    match row.change() {
        RowChange::Remove => Change::Remove,
        RowChange::Patch { offset, bytes } => {
            let changed = at.and_then(|at| changed(at, offset / size_of::<u64>(), bytes));
            let Range { start, end } = changed.unwrap_or(0..bytes.len());
            patch((offset + start) as u32, &bytes[start..end])
        }
        RowChange::Put(value) => {
            // A record that cannot be read is logged whole, and fails when it is written.
            let at = at.filter(|at| records.has_length(*at, value.len()).unwrap_or(false));
            match at.and_then(|at| changed(at, 0, value)) {
                Some(Range { start, end }) if end - start + PATCH_OVERHEAD < value.len() => {
                    patch(start as u32, &value[start..end])
                }
                _ => Change::Put(value),
            }
        }
    }
}

/// Returns a number that is unique to this thread within the process.
fn this_thread() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: u64 = THREADS.fetch_add(1, Relaxed);
    }
    NUMBER.with(|number| *number)
}
