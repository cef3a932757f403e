//! Numbered values, for an index whose values are single words.

use std::sync::{
    OnceLock,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use parking_lot::Mutex;

use super::{VALUE, Value};
use crate::Error;

/// Values allocated at once.
const CHUNK: usize = 1 << 12;

/// The number of chunks: room for half a billion values.
const CHUNKS: usize = 1 << 17;

/// Free numbers that a session takes at once.
const BATCH: usize = 256;

type Chunk = Box<[Mutex<Value>]>;

/// Values, each under a lock of its own, in chunks that never move.
///
/// A freed number can soon belong to another value. A stale number would then read that value,
/// which a real store would have to detect. Here no thread reads what another removes.
pub(super) struct Slab {
    chunks: Box<[OnceLock<Chunk>]>,
    used: AtomicUsize,
    free: Mutex<Vec<usize>>,
}

impl Slab {
    pub(super) fn new() -> Self {
        let chunks = (0..CHUNKS).map(|_| OnceLock::new()).collect();
        Self { chunks, used: AtomicUsize::new(0), free: Mutex::default() }
    }

    pub(super) fn slots(&self) -> Slots<'_> {
        Slots { slab: self, free: Vec::new() }
    }

    #[inline]
    fn value(&self, number: usize) -> Option<&Mutex<Value>> {
        self.chunks.get(number / CHUNK)?.get()?.get(number % CHUNK)
    }
}

/// One thread's handle to a slab, with free numbers of its own.
pub(super) struct Slots<'s> {
    slab: &'s Slab,
    free: Vec<usize>,
}

impl Slots<'_> {
    pub(super) fn add(&mut self, value: &Value) -> Result<usize, Error> {
        if self.free.is_empty() {
            self.refill();
        }
        let number = self.free.pop().unwrap_or_default();
        let chunk = self.slab.chunks.get(number / CHUNK).ok_or(Error::Full { what: "the values beside congee" })?;
        let chunk = chunk.get_or_init(|| (0..CHUNK).map(|_| Mutex::new([0; VALUE])).collect());
        *chunk[number % CHUNK].lock() = *value;
        Ok(number)
    }

    fn refill(&mut self) {
        let mut shared = self.slab.free.lock();
        let kept = shared.len().saturating_sub(BATCH);
        self.free.extend(shared.drain(kept..));
        if self.free.is_empty() {
            let first = self.slab.used.fetch_add(BATCH, Relaxed);
            self.free.extend((first..first + BATCH).rev());
        }
    }

    #[inline]
    pub(super) fn read(&self, number: usize, into: &mut Value) {
        if let Some(value) = self.slab.value(number) {
            *into = *value.lock();
        }
    }

    #[inline]
    pub(super) fn write(&self, number: usize, value: &Value) {
        if let Some(old) = self.slab.value(number) {
            *old.lock() = *value;
        }
    }

    pub(super) fn free(&mut self, number: usize) {
        self.free.push(number);
    }
}

impl Drop for Slots<'_> {
    fn drop(&mut self) {
        self.slab.free.lock().append(&mut self.free);
    }
}
