//! Architectures without RTM: `cpuid` says so, hence no [`Rtm`](crate::Rtm) exists and nothing else
//! here is reached but the hint, which does nothing.

use super::Cpuid;
use crate::status::Status;

pub(crate) fn cpuid() -> Cpuid {
    Cpuid { rtm: false, always_abort: false }
}

/// Aborts at once: a region that cannot be is one that never starts.
///
/// # Safety
///
/// None to uphold; unsafe as its twin is.
pub(crate) unsafe fn xbegin() -> Status {
    Status(0)
}

/// # Safety
///
/// None to uphold; unsafe as its twin is.
pub(crate) unsafe fn xend() {}

/// # Safety
///
/// None to uphold; unsafe as its twin is.
pub(crate) unsafe fn xabort<const CODE: u8>() {}

/// # Safety
///
/// None to uphold; unsafe as its twin is.
pub(crate) unsafe fn xtest() -> bool {
    false
}

/// Does nothing, which is what a hint may do.
#[inline(always)]
pub(crate) fn prefetch<T>(_address: *const T) {}

/// Does nothing, as [`prefetch`].
#[inline(always)]
pub(crate) fn prefetch_later<T>(_address: *const T) {}
