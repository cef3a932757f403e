//! The processor's instructions, one module for each architecture that has them.

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(all(target_arch = "x86_64", not(feature = "model")))]
pub(crate) use x86_64::pieces::{PIECE, load_bytes, store_bytes};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{cpuid, prefetch, prefetch_later, xabort, xbegin, xend, xtest};

#[cfg(not(target_arch = "x86_64"))]
mod absent;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use absent::{cpuid, prefetch, prefetch_later, xabort, xbegin, xend, xtest};

/// The part of CPUID that concerns RTM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cpuid {
    /// RTM's instructions may be executed.
    pub(crate) rtm: bool,
    /// Microcode makes every transaction abort (`RTM_ALWAYS_ABORT`).
    pub(crate) always_abort: bool,
}

impl Cpuid {
    /// Returns whether `XBEGIN` is an instruction of this processor. Where it is not, executing it
    /// is a fault.
    pub(crate) fn executable(self) -> bool {
        self.rtm
    }
}
