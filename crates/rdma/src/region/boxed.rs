//! The model checker's memory: a box of words, since its atomics are larger than eight bytes and
//! cannot be mapped.

use std::io;

use drtm_htm::Word;

#[derive(Debug)]
pub(super) struct Mapping(Box<[Word]>);

impl Mapping {
    pub(super) fn anonymous(bytes: usize) -> io::Result<Self> {
        Ok(Self((0..bytes / 8).map(|_| Word::new(0)).collect()))
    }

    pub(super) fn stocked(_bytes: usize) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn is_stocked(&self) -> bool {
        false
    }

    pub(super) fn of_file(_file: &std::fs::File, _bytes: usize) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn populate(&self, _bytes: usize) -> io::Result<()> {
        Ok(())
    }

    /// # Safety
    ///
    /// None to uphold: nothing is freed or zeroed. A model has no growing hints, so it needs
    /// neither.
    pub(super) unsafe fn discard(&self, _first: usize, _bytes: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn huge_pages(&self) -> bool {
        false
    }

    pub(super) fn address(&self, word: u64) -> *const Word {
        self.0.as_ptr().wrapping_add(word as usize)
    }

    /// # Safety
    ///
    /// None to uphold, since the box checks its bounds; it is unsafe like its counterpart.
    pub(super) unsafe fn words(&self, first: usize, count: usize) -> &[Word] {
        &self.0[first..first + count]
    }
}
