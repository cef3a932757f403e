//! Why a region did not commit, and what its caller gets.

use std::fmt;

/// Why a region aborted or was never entered, or why a critical section under the lock was undone.
///
/// # Example
///
/// ```
/// use drtm_htm::{Cause, Engine, Htm, NoHtm, Outcome, Policy, Word};
///
/// let word = Word::new(0);
/// let outcome = Htm::new(NoHtm).worker().attempt(Policy::DBX, |tx| tx_increment(tx, &word));
/// assert_eq!(outcome, Outcome::Fallback(Cause::Unavailable));
///
/// fn tx_increment<'m, A: drtm_htm::Access<'m>>(tx: &mut A, word: &'m Word) -> Result<(), A::Abort> {
///     let value = tx.load(word)?;
///     tx.store(word, value + 1)
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// Another region, or a plain access, touched a line that the region had touched.
    Conflict,
    /// The region touched more than the hardware can track.
    Capacity,
    /// An interrupt, a page fault, an instruction that no region may contain: the processor does
    /// not say which.
    System,
    /// The region's body aborted itself with this code.
    Explicit(u8),
    /// The fallback lock that the region subscribes to was held.
    LockHeld,
    /// The region was nested deeper than [`MAX_NESTING`](crate::MAX_NESTING).
    Nested,
    /// The body panicked. The region was rolled back; if the panic recurs on the fallback path, it
    /// surfaces there.
    Panicked,
    /// The engine has no regions ([`NoHtm`](crate::NoHtm)).
    Unavailable,
    /// The policy was [`Policy::NEVER`](crate::Policy::NEVER).
    NotTried,
}

impl std::error::Error for Cause {}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict => f.write_str("conflict"),
            Self::Capacity => f.write_str("capacity"),
            Self::System => f.write_str("system event"),
            Self::Explicit(code) => write!(f, "explicit abort with code {code}"),
            Self::LockHeld => f.write_str("fallback lock held"),
            Self::Nested => f.write_str("nested too deep"),
            Self::Panicked => f.write_str("panic in the region"),
            Self::Unavailable => f.write_str("no transactional memory"),
            Self::NotTried => f.write_str("not tried"),
        }
    }
}

/// What became of a region.
///
/// # Example
///
/// ```
/// use drtm_htm::{Cause, Outcome};
///
/// let outcome: Outcome<u64> = Outcome::Fallback(Cause::Capacity);
/// assert_eq!(outcome.or_fall_back(|cause| if cause == Cause::Capacity { 1 } else { 0 }), 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a region that gave up has done nothing; its caller must take the software path"]
pub enum Outcome<T> {
    /// All of the region's stores became visible at once, and this is its value.
    Committed(T),
    /// Nothing happened; the caller takes its software path. The cause is the one that exhausted
    /// the policy.
    Fallback(Cause),
}

impl<T> Outcome<T> {
    /// The committed value, if there is one.
    #[inline]
    #[must_use]
    pub fn committed(self) -> Option<T> {
        match self {
            Self::Committed(value) => Some(value),
            Self::Fallback(_) => None,
        }
    }

    /// The committed value, or else what the software path makes.
    #[inline]
    pub fn or_fall_back(self, software: impl FnOnce(Cause) -> T) -> T {
        match self {
            Self::Committed(value) => value,
            Self::Fallback(cause) => software(cause),
        }
    }
}

/// One abort as an engine reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct Abort {
    pub(crate) cause: Cause,
    /// The processor's own opinion (the RETRY bit): the same region may succeed if tried again.
    pub(crate) may_succeed: bool,
}

impl Abort {
    /// An abort by `cause`, with the hint that hardware gives along with it.
    pub(crate) fn by(cause: Cause) -> Self {
        let may_succeed = matches!(cause, Cause::Conflict | Cause::LockHeld | Cause::Explicit(_));
        Self { cause, may_succeed }
    }
}
