//! The causes of aborts, and the outcome of an attempt.

use std::fmt;

/// Why a transaction aborted or was never begun, or why a critical section under the lock was
/// undone.
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
    /// Another transaction, or a plain access, touched a line that the transaction had touched.
    Conflict,
    /// The transaction touched more lines than the hardware can track.
    Capacity,
    /// An interrupt, a page fault, or an instruction that no transaction may contain. The processor
    /// does not say which.
    System,
    /// The transaction's body aborted itself with this code.
    Explicit(u8),
    /// The fallback lock that the transaction subscribes to was held.
    LockHeld,
    /// The transaction was nested deeper than [`MAX_NESTING`](crate::MAX_NESTING).
    Nested,
    /// The body panicked. The transaction was rolled back. If the panic recurs on the fallback
    /// path, it propagates there.
    Panicked,
    /// The engine has no htm transactions ([`NoHtm`](crate::NoHtm)).
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
            Self::Panicked => f.write_str("panic in the htm transaction"),
            Self::Unavailable => f.write_str("no transactional memory"),
            Self::NotTried => f.write_str("not tried"),
        }
    }
}

/// The outcome of an attempt to run an htm transaction.
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
#[must_use = "an htm transaction that gave up has done nothing; its caller must take the software path"]
pub enum Outcome<T> {
    /// All stores became visible at once. Has the body's return value.
    Committed(T),
    /// Nothing happened, and the caller takes its software path. Has the cause that exhausted the
    /// policy.
    Fallback(Cause),
}

impl<T> Outcome<T> {
    /// Returns the committed value. `None`: the attempt gave up.
    #[inline]
    #[must_use]
    pub fn committed(self) -> Option<T> {
        match self {
            Self::Committed(value) => Some(value),
            Self::Fallback(_) => None,
        }
    }

    /// Returns the committed value, or otherwise the result of the software path.
    ///
    /// # Example
    ///
    /// See [`Outcome`].
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
    /// The processor's hint (the RETRY bit): the same transaction may succeed if retried.
    pub(crate) may_succeed: bool,
}

impl Abort {
    /// Makes an abort by `cause`, with the hint that hardware gives for it.
    pub(crate) fn by(cause: Cause) -> Self {
        let may_succeed = matches!(cause, Cause::Conflict | Cause::LockHeld | Cause::Explicit(_));
        Self { cause, may_succeed }
    }
}
