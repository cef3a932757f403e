//! Architectures without RTM. `cpuid` says so, hence no [`Rtm`](crate::Rtm) exists. Only the
//! prefetches are called, and they do nothing.

use super::Cpuid;
use crate::status::Status;

pub(crate) fn cpuid() -> Cpuid {
    Cpuid { rtm: false, always_abort: false }
}

/// Aborts at once, since no transaction can begin.
///
/// # Safety
///
/// Always safe. It is unsafe because the x86-64 function is.
pub(crate) unsafe fn xbegin() -> Status {
    Status(0)
}

/// # Safety
///
/// Always safe. It is unsafe because the x86-64 function is.
pub(crate) unsafe fn xend() {}

/// # Safety
///
/// Always safe. It is unsafe because the x86-64 function is.
pub(crate) unsafe fn xabort<const CODE: u8>() {}

/// # Safety
///
/// Always safe. It is unsafe because the x86-64 function is.
pub(crate) unsafe fn xtest() -> bool {
    false
}

/// Does nothing, which a hint may do.
#[inline(always)]
pub(crate) fn prefetch<T>(_address: *const T) {}

/// Does nothing, like [`prefetch`].
#[inline(always)]
pub(crate) fn prefetch_later<T>(_address: *const T) {}
