//! Which pages of a mapping are in memory, as the system says.

use std::{fs::File, io, os::unix::fs::FileExt};

use crate::system::page_size;

/// The bit of a page's entry that says that the page is in memory.
const PRESENT: u64 = 1 << 63;

/// The number of entries that are read at once.
const AT_ONCE: usize = 1 << 13;

/// Returns how many of these bytes, from an address that begins a page, are in memory.
pub(super) fn resident(first: usize, bytes: usize) -> io::Result<u64> {
    let page = page_size();
    let entries = File::open("/proc/self/pagemap")?;
    let (mut read, mut present) = (vec![0; size_of::<u64>() * AT_ONCE], 0);
    let (mut next, end) = (first / page, (first + bytes).div_ceil(page));
    while next < end {
        let some = &mut read[..size_of::<u64>() * AT_ONCE.min(end - next)];
        entries.read_exact_at(some, (size_of::<u64>() * next) as u64)?;
        let (some, _) = some.as_chunks();
        present += some.iter().filter(|entry| u64::from_ne_bytes(**entry) & PRESENT != 0).count();
        next += some.len();
    }
    Ok((present * page) as u64)
}
