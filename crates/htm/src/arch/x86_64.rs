//! RTM's four instructions in inline assembly, as the compiler's intrinsics for them are not
//! stable, and prefetches. `pieces` copies two words at once.
//!
//! No `asm` block of RTM promises `nomem`, `readonly` or `pure`: so the compiler moves no access
//! into or out of a transaction.

use std::arch::{
    asm, is_x86_feature_detected,
    x86_64::{__cpuid_count, _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch},
};

#[cfg(not(feature = "model"))]
pub(crate) mod pieces;

use super::Cpuid;
use crate::status::Status;

/// CPUID leaf 7, `edx` bit 11.
const RTM_ALWAYS_ABORT: u32 = 1 << 11;

pub(crate) fn cpuid() -> Cpuid {
    // Leaf 0 has the number of the highest leaf. It and CPUID itself exist on every x86-64
    // processor.
    let highest = __cpuid_count(0, 0).eax;
    let always_abort = highest >= 7 && __cpuid_count(7, 0).edx & RTM_ALWAYS_ABORT != 0;
    Cpuid { rtm: is_x86_feature_detected!("rtm"), always_abort }
}

/// Begins a transaction. Returns [`Status::STARTED`] at first, and again, with the cause, for each
/// abort. Between the two nothing has happened.
///
/// # Safety
///
/// The processor has RTM, and the caller ends or aborts the transaction in this call frame or below
/// it.
#[inline(always)]
pub(crate) unsafe fn xbegin() -> Status {
    let mut eax = Status::STARTED.0;
    // SAFETY: the caller guarantees that the processor has RTM. An abort jumps to the label with
    // every register but eax, and all memory, as they were here. The compiler assumes the same of a
    // block that only writes eax.
    unsafe { asm!("xbegin 2f", "2:", inout("eax") eax, options(nostack)) };
    Status(eax)
}

/// Commits the innermost transaction.
///
/// # Safety
///
/// The processor has RTM, and a transaction is open: outside of one this instruction faults.
#[inline(always)]
pub(crate) unsafe fn xend() {
    // SAFETY: the caller guarantees that a transaction is open.
    unsafe { asm!("xend", options(nostack)) };
}

/// Aborts all open transactions with `CODE`. Does nothing when none is open.
///
/// # Safety
///
/// The processor has RTM.
#[inline(always)]
pub(crate) unsafe fn xabort<const CODE: u8>() {
    // SAFETY: the caller guarantees that the processor has RTM.
    unsafe { asm!("xabort {code}", code = const CODE, options(nostack)) };
}

/// Returns whether a transaction is open.
///
/// # Safety
///
/// The processor has RTM.
#[inline(always)]
pub(crate) unsafe fn xtest() -> bool {
    let inside: u8;
    // SAFETY: the caller guarantees that the processor has RTM.
    unsafe { asm!("xtest", "setnz {inside}", inside = out(reg_byte) inside, options(nostack)) };
    inside != 0
}

/// Prefetches the cache line of an address.
#[inline(always)]
pub(crate) fn prefetch<T>(address: *const T) {
    // SAFETY: every x86-64 processor has it. It is a hint, which reads and writes nothing and
    // faults at no address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

/// Prefetches the cache line of an address into the second-level cache.
#[inline(always)]
pub(crate) fn prefetch_later<T>(address: *const T) {
    // SAFETY: as for `prefetch`.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) };
}
