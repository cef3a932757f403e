//! Address space as words. All raw memory of this crate is here.

use std::{
    ffi::{c_int, c_void},
    fs::File,
    io,
    os::fd::AsRawFd,
};

use drtm_htm::Word;

use crate::system::done;

/// The size of a huge page. Mappings are aligned to it.
const HUGE_PAGE: usize = 2 << 20;

/// A reservation of address space, readable and writable as words up to `bytes`.
///
/// The system zeroes each page at its first access. In a mapped file, an access to a page beyond
/// the file's end is a signal: [`super::Region`] hands out only words within what has been
/// allocated.
#[derive(Debug)]
pub(super) struct Mapping {
    /// The whole reservation: the words, and what was skipped to align them.
    reserved: *mut c_void,
    reserved_bytes: usize,
    words: *mut Word,
    bytes: usize,
    huge_pages: bool,
    /// Whether the pages are from the system's stock of huge ones.
    stocked: bool,
}

// SAFETY: the mapping is memory that belongs to no thread; it is only ever seen as `Word`s, which
// are atomic.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps memory that is private to this process.
    pub(super) fn anonymous(bytes: usize) -> io::Result<Self> {
        Self::reserve(bytes, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Maps memory of this process alone, of the system's stock of huge pages. All of it is taken
    /// from there now, so that no access ever finds the stock empty.
    pub(super) fn stocked(bytes: usize) -> io::Result<Self> {
        let reserved_bytes = bytes.checked_next_multiple_of(HUGE_PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
        let reserved = anonymous(reserved_bytes, libc::PROT_READ | libc::PROT_WRITE, flags)?;
        debug_assert_eq!(reserved.align_offset(HUGE_PAGE), 0, "a huge page begins there");
        Ok(Self { reserved, reserved_bytes, words: reserved.cast(), bytes, huge_pages: true, stocked: true })
    }

    /// Maps the memory of a file, from its beginning. The file may be shorter.
    pub(super) fn of_file(file: &File, bytes: usize) -> io::Result<Self> {
        let mapping = Self::reserve(bytes, libc::PROT_NONE)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: the fixed range lies within the reservation just made, which nothing refers to
        // yet.
        mapped(unsafe { libc::mmap(mapping.words.cast(), bytes, protection, flags, file.as_raw_fd(), 0) })?;
        Ok(mapping.advised())
    }

    fn reserve(bytes: usize, protection: c_int) -> io::Result<Self> {
        let reserved_bytes = bytes.checked_add(HUGE_PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let reserved = anonymous(reserved_bytes, protection, libc::MAP_PRIVATE | libc::MAP_NORESERVE)?;
        let skipped = reserved.align_offset(HUGE_PAGE);
        debug_assert!(skipped < HUGE_PAGE);
        let words = reserved.wrapping_byte_add(skipped).cast();
        let (huge_pages, stocked) = (false, false);
        Ok(Self { reserved, reserved_bytes, words, bytes, huge_pages, stocked }.advised())
    }

    /// Advises huge pages. A system without them ignores the advice.
    fn advised(mut self) -> Self {
        // SAFETY: the range was mapped by this value; the advice does not change its contents.
        self.huge_pages = unsafe { libc::madvise(self.words.cast(), self.bytes, libc::MADV_HUGEPAGE) } == 0;
        self
    }

    /// Pre-faults the first bytes.
    pub(super) fn populate(&self, bytes: usize) -> io::Result<()> {
        let bytes = bytes.min(self.bytes);
        // SAFETY: the range was mapped by this value; what its memory holds is not changed.
        done(unsafe { libc::madvise(self.words.cast(), bytes, libc::MADV_POPULATE_WRITE) })
    }

    /// Returns pages to the system. Their words are then zeros.
    ///
    /// # Safety
    ///
    /// The bytes are within the mapping, which has no file. `first` begins a page.
    pub(super) unsafe fn discard(&self, first: usize, bytes: usize) -> io::Result<()> {
        let start = self.words.wrapping_byte_add(first);
        // SAFETY: in bounds by the caller's promise, hence mapped by this value and by nothing
        // else. To all that access the words, always atomically, it is as if zeros were stored
        // there.
        done(unsafe { libc::madvise(start.cast(), bytes, libc::MADV_DONTNEED) })
    }

    /// Returns whether pages are huge, and stay with this mapping as long as it lives.
    pub(super) fn is_stocked(&self) -> bool {
        self.stocked
    }

    /// Returns whether the system accepted the advice to use huge pages.
    pub(super) fn huge_pages(&self) -> bool {
        self.huge_pages
    }

    /// Returns the address of a word, even if there are fewer words.
    #[inline(always)]
    pub(super) fn address(&self, word: u64) -> *const Word {
        self.words.wrapping_add(word as usize)
    }

    /// Returns `count` words from the `first` on.
    ///
    /// # Safety
    ///
    /// `first + count` words fit into the mapping and, where there is a file, into the file, whose
    /// end never moves back.
    #[inline(always)]
    pub(super) unsafe fn words(&self, first: usize, count: usize) -> &[Word] {
        debug_assert!((first + count) * size_of::<Word>() <= self.bytes);
        // SAFETY: in bounds by the caller's promise.
        let start = unsafe { self.words.add(first) };
        // SAFETY: in bounds by the caller's promise, hence mapped for as long as `self` lives;
        // page-aligned at the base, hence word-aligned; every bit pattern is a `Word`, and all
        // access to it, by whomever, is atomic.
        unsafe { std::slice::from_raw_parts(start, count) }
    }
}

/// Maps memory of this process alone, at an address of the system's choice.
fn anonymous(bytes: usize, protection: c_int, flags: c_int) -> io::Result<*mut c_void> {
    let flags = flags | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address of the system's choice replaces nothing.
    mapped(unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) })
}

/// Returns what `mmap` has mapped, or the system's error.
fn mapped(address: *mut c_void) -> io::Result<*mut c_void> {
    if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(address) }
}

#[cfg(feature = "cluster")]
impl Mapping {
    /// Returns a word as an alarm.
    ///
    /// # Safety
    ///
    /// As for [`words`](Self::words); and the word is never accessed as one.
    pub(super) unsafe fn alarm(&self, word: usize) -> &crate::sync::alarm::Alarm {
        // SAFETY: in bounds by the caller's promise.
        let alarm = unsafe { self.words.add(word) }.cast::<crate::sync::alarm::Alarm>();
        // SAFETY: in bounds by the caller's promise, hence mapped for as long as `self` lives;
        // aligned as a word is; every bit pattern is an alarm, and all access to it, by whatever
        // process, is atomic and of its size.
        unsafe { &*alarm }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the whole reservation is this value's, and no reference to its words outlives the
        // value.
        let unmapped = unsafe { libc::munmap(self.reserved, self.reserved_bytes) };
        debug_assert_eq!(unmapped, 0, "a reservation is unmapped once, as it was made");
    }
}
