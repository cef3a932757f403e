//! The floor: the cost of the disk alone, written by hand. Threads hand their bytes to a leader
//! among them, which writes and syncs all waiting bytes at once. There are no rows, no checksums
//! and no recovery.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::Path,
};

use parking_lot::{Condvar, Mutex};
use rustix::fs::{FallocateFlags, fallocate};

use super::durable::{Durable, VALUE};
use crate::StoreError;
use drtm_drive::Error;

/// Bytes of a record of this database with one row: its header, the entry's header, a key, a value,
/// and an end mark.
const RECORD: usize = (24 + 24 + 8 + VALUE).next_multiple_of(8) + 8;

/// Bytes of a frame's header.
const HEADER: usize = 32;

/// Space that is reserved at a time, as the database does.
const RESERVED: u64 = 4 << 20;

pub(super) struct Raw {
    file: File,
    state: Mutex<State>,
    woken: Condvar,
}

#[derive(Default)]
struct State {
    /// Bytes that wait to be written.
    waiting: Vec<u8>,
    /// The number of threads that have handed in bytes, and the number of them that are synced.
    handed_in: u64,
    durable: u64,
    is_led: bool,
    end: u64,
    reserved: u64,
}

impl Raw {
    fn lead(&self, bytes: &[u8], (end, reserved): (u64, &mut u64)) -> io::Result<()> {
        let after = end + bytes.len() as u64;
        if after > *reserved {
            *reserved = after.next_multiple_of(RESERVED);
            fallocate(&self.file, FallocateFlags::empty(), 0, *reserved)?;
        }
        self.file.write_all_at(bytes, end)?;
        self.file.sync_data()
    }
}

impl Durable for Raw {
    const KEEPS_ROWS: bool = false;

    fn open(directory: &Path) -> Result<Self, Error> {
        let path = directory.join("raw");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path);
        let file = file.map_err(drtm_report::Error::file(&path))?;
        Ok(Self { file, state: Mutex::default(), woken: Condvar::new() })
    }

    fn put(&self, key: u64, value: &[u8; VALUE]) -> Result<(), Error> {
        let mut state = self.state.lock();
        if state.waiting.is_empty() {
            state.waiting.resize(HEADER, 0);
        }
        let begin = state.waiting.len();
        state.waiting.resize(begin + RECORD, 0);
        state.waiting[begin..begin + 8].copy_from_slice(&key.to_le_bytes());
        state.waiting[begin + 8..begin + 8 + VALUE].copy_from_slice(value);
        state.handed_in += 1;
        let mine = state.handed_in;
        while state.durable < mine {
            if state.is_led {
                self.woken.wait(&mut state);
                continue;
            }
            state.is_led = true;
            let (bytes, upto) = (std::mem::take(&mut state.waiting), state.handed_in);
            let (end, mut reserved) = (state.end, state.reserved);
            drop(state);
            let written = self.lead(&bytes, (end, &mut reserved));
            state = self.state.lock();
            state.is_led = false;
            state.reserved = reserved;
            if written.is_ok() {
                (state.durable, state.end) = (upto, end + bytes.len() as u64);
            }
            self.woken.notify_all();
            written.map_err(|source| StoreError::Foreign { store: "raw", source: source.into() })?;
        }
        Ok(())
    }

    fn get(&self, _key: u64, _value: &mut [u8; VALUE]) -> Result<bool, Error> {
        Ok(false)
    }
}
