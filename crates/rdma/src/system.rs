//! What every build asks of the operating system and the standard library does not offer.
//!
//! These few calls are made through `libc`, which is compiled anyway: a crate that wraps all of
//! the system takes a tenth of an application's build ([decision
//! 84](../../../docs/decisions/0084-what-an-application-builds.md)). Clusters need many more, and
//! have that crate.

use std::{
    ffi::{c_int, c_uint},
    fs::File,
    io,
    os::fd::AsRawFd,
    time::Duration,
};

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` of `linux/membarrier.h`, which `libc` has for Android only.
const PASS: c_int = 1 << 3;
/// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED`.
const REGISTER: c_int = 1 << 4;

/// Returns the bytes of a page.
///
/// # Example
///
/// ```
/// assert!(drtm_rdma::system::page_size().is_power_of_two());
/// ```
#[must_use]
pub fn page_size() -> usize {
    // SAFETY: it reads a constant of the system.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("POSIX says that the size of a page is known")
}

/// Returns the time since some moment before this process began, by the system's coarse clock: a
/// few milliseconds late at most, and read in a few nanoseconds.
///
/// # Example
///
/// ```
/// use drtm_rdma::system::coarse_time;
///
/// let before = coarse_time();
/// assert!(coarse_time() >= before);
/// ```
#[must_use]
pub fn coarse_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a `timespec` that lives through the call.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    assert_eq!(failed, 0, "Linux has this clock since 2.6.32");
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Makes a file at least `bytes` long, with room on its file system for all of them. What it has is
/// kept.
///
/// # Errors
///
/// The system's: [`StorageFull`](io::ErrorKind::StorageFull) where there is no room, and
/// [`Unsupported`](io::ErrorKind::Unsupported) on a file system that does not reserve.
///
/// # Example
///
/// ```
/// use drtm_rdma::system::allocate;
///
/// # let path = std::env::temp_dir().join(format!("drtm-allocate-{}", std::process::id()));
/// let file = std::fs::File::create(&path)?;
/// allocate(&file, 4096)?;
/// assert_eq!(file.metadata()?.len(), 4096);
/// # std::fs::remove_file(path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    let bytes = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
    // SAFETY: the descriptor is open as long as the file is borrowed. No memory is touched.
    done(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes) })
}

/// Returns the system's error if a call failed.
pub(crate) fn done(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Registers this process for [`barrier`], and tries it. Returns whether the process can use it.
///
/// # Example
///
/// See [`barrier`].
#[must_use]
pub fn register_for_barrier() -> bool {
    membarrier(REGISTER) && barrier()
}

/// Makes all processors that run this process execute a memory barrier. Returns whether they did:
/// not before [`register_for_barrier`], nor where the system has none.
///
/// # Example
///
/// ```
/// use drtm_rdma::system::{barrier, register_for_barrier};
///
/// if register_for_barrier() {
///     assert!(barrier());
/// }
/// ```
#[must_use]
pub fn barrier() -> bool {
    membarrier(PASS)
}

fn membarrier(command: c_int) -> bool {
    let (flags, processor): (c_uint, c_int) = (0, 0);
    // SAFETY: the system call takes these three numbers. No memory of this process is changed.
    unsafe { libc::syscall(libc::SYS_membarrier, command, flags, processor) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_refusals_are_errors() {
        let reader = File::open("/proc/self/exe").expect("the program's own file");
        assert_eq!(allocate(&reader, 1).expect_err("it is open for reading").raw_os_error(), Some(libc::EBADF));
        assert_eq!(allocate(&reader, u64::MAX).expect_err("it is too much").kind(), io::ErrorKind::FileTooLarge);
        assert!(!membarrier(1 << 30), "there is no such command");
    }
}
