//! How often an htm transaction is retried before its caller takes the software path.

use std::fmt;

use crate::cause::{Abort, Cause};

/// A cause after which a retry can help, as a [`Policy`] counts them.
///
/// # Example
///
/// ```
/// use drtm_htm::{Policy, Retryable};
///
/// assert_eq!(Policy::DBX.tries(Retryable::Conflict), 100);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retryable {
    /// [`Cause::Conflict`].
    Conflict,
    /// [`Cause::Capacity`].
    Capacity,
    /// [`Cause::System`].
    System,
    /// [`Cause::Explicit`], whatever the code.
    Explicit,
    /// [`Cause::LockHeld`]. Each further try waits until the lock is free.
    LockHeld,
    /// [`Cause::Nested`].
    Nested,
}

/// The number of causes that a policy counts.
const CAUSES: usize = 6;

impl Retryable {
    fn of(cause: Cause) -> Option<Self> {
        match cause {
            Cause::Conflict => Some(Self::Conflict),
            Cause::Capacity => Some(Self::Capacity),
            Cause::System => Some(Self::System),
            Cause::Explicit(_) => Some(Self::Explicit),
            Cause::LockHeld => Some(Self::LockHeld),
            Cause::Nested => Some(Self::Nested),
            Cause::Panicked | Cause::Unavailable | Cause::NotTried => None,
        }
    }
}

/// For each cause, the number of aborts by it at which an attempt gives up.
///
/// Causes are counted separately: an attempt with two conflicts and one overflow has used two of
/// its conflict tries and one of its capacity tries. A panic gives up at once, whatever the policy.
///
/// # Example
///
/// ```
/// use drtm_htm::{Policy, Retryable};
///
/// // A lookup in a tall tree wastes more work per abort, so it gives up sooner.
/// const TALL: Policy = Policy::DBX.divided_by(4);
/// assert_eq!(TALL.tries(Retryable::Conflict), 25);
/// assert_eq!(TALL.tries(Retryable::System), 1);
///
/// let patient = Policy::DBX.with_tries(Retryable::Explicit, 5)?;
/// assert_eq!(patient.tries(Retryable::Explicit), 5);
/// # Ok::<(), drtm_htm::PolicyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    tries: [u32; CAUSES],
    obey_hint: bool,
}

impl Policy {
    /// DBX's thresholds (§6.1): 100 conflicts, 10 capacity aborts, 2 system events. A held lock is
    /// a conflict there and has the same bound. An explicit abort and too deep nesting are
    /// decisions, and are not retried.
    pub const DBX: Self = Self { tries: [100, 10, 2, 1, 100, 1], obey_hint: false };

    /// No htm transaction is ever begun: [`Cause::NotTried`].
    pub const NEVER: Self = Self { tries: [0; CAUSES], obey_hint: false };

    /// Sets the number of tries for one cause.
    ///
    /// # Errors
    ///
    /// [`PolicyError::ZeroTries`] when `tries` is zero: a transaction that is begun is tried at
    /// least once. Use [`Policy::NEVER`] to begin none.
    ///
    /// # Example
    ///
    /// See [`Policy`].
    pub const fn with_tries(mut self, cause: Retryable, tries: u32) -> Result<Self, PolicyError> {
        if tries == 0 {
            return Err(PolicyError::ZeroTries { cause });
        }
        self.tries[cause as usize] = tries;
        Ok(self)
    }

    /// Divides every number of tries by `by`, rounded up. Zero counts as one.
    ///
    /// # Example
    ///
    /// See [`Policy`].
    #[must_use]
    pub const fn divided_by(mut self, by: u32) -> Self {
        let by = if by == 0 { 1 } else { by };
        let mut cause = 0;
        while cause < CAUSES {
            self.tries[cause] = self.tries[cause].div_ceil(by);
            cause += 1;
        }
        self
    }

    /// Gives up at once when the processor says that a retry will not help (its RETRY bit is
    /// clear). Off by default: DBX found that overflows often do succeed when retried.
    #[must_use]
    pub const fn obeying_hint(mut self) -> Self {
        self.obey_hint = true;
        self
    }

    /// Returns the number of aborts by `cause` at which an attempt gives up.
    ///
    /// # Example
    ///
    /// See [`Policy`].
    #[must_use]
    pub const fn tries(&self, cause: Retryable) -> u32 {
        self.tries[cause as usize]
    }

    #[inline(always)]
    pub(crate) fn never(&self) -> bool {
        // Only `NEVER` has a zero: `with_tries` refuses it and division rounds up.
        self.tries[0] == 0
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::DBX
    }
}

/// An invalid policy.
///
/// # Example
///
/// ```
/// use drtm_htm::{Policy, PolicyError, Retryable};
///
/// let error = Policy::DBX.with_tries(Retryable::Capacity, 0).unwrap_err();
/// assert_eq!(error, PolicyError::ZeroTries { cause: Retryable::Capacity });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyError {
    /// Zero tries for a cause.
    ZeroTries {
        /// The cause.
        cause: Retryable,
    },
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroTries { cause } => write!(
                f,
                "zero tries for {cause:?}: use 1 to give up at the first, or Policy::NEVER not to enter \
                 transactions"
            ),
        }
    }
}

impl std::error::Error for PolicyError {}

/// The tries that one attempt has used up.
#[derive(Debug, Default)]
pub(crate) struct Spent([u32; CAUSES]);

impl Spent {
    /// Counts an abort. Returns false when the attempt gives up.
    pub(crate) fn allows_retry(&mut self, policy: &Policy, abort: Abort) -> bool {
        let Some(cause) = Retryable::of(abort.cause) else {
            return false;
        };
        let spent = &mut self.0[cause as usize];
        *spent += 1;
        *spent < policy.tries(cause) && (abort.may_succeed || !policy.obey_hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aborts_until_giving_up(policy: Policy, abort: Abort) -> u32 {
        let mut spent = Spent::default();
        (1..).find(|_| !spent.allows_retry(&policy, abort)).expect("bounded")
    }

    #[test]
    fn default_thresholds_are_dbx() {
        for (cause, tries) in [
            (Cause::Conflict, 100),
            (Cause::Capacity, 10),
            (Cause::System, 2),
            (Cause::Explicit(9), 1),
            (Cause::Nested, 1),
            (Cause::Panicked, 1),
        ] {
            assert_eq!(aborts_until_giving_up(Policy::default(), Abort::by(cause)), tries, "{cause}");
        }
    }

    #[test]
    fn causes_are_counted_apart() {
        let mut spent = Spent::default();
        assert!(spent.allows_retry(&Policy::DBX, Abort::by(Cause::System)));
        for _ in 0..99 {
            assert!(spent.allows_retry(&Policy::DBX, Abort::by(Cause::Conflict)));
        }
        assert!(!spent.allows_retry(&Policy::DBX, Abort::by(Cause::System)));
        assert!(!spent.allows_retry(&Policy::DBX, Abort::by(Cause::Conflict)));
    }

    #[test]
    fn a_clear_retry_bit_is_obeyed_only_when_asked_for() {
        let hopeless = Abort { cause: Cause::Capacity, may_succeed: false };
        assert_eq!(aborts_until_giving_up(Policy::DBX, hopeless), 10);
        assert_eq!(aborts_until_giving_up(Policy::DBX.obeying_hint(), hopeless), 1);
    }

    #[test]
    fn division_never_reaches_zero() {
        let policy = Policy::DBX.divided_by(u32::MAX);
        assert!(policy.tries.iter().all(|&tries| tries == 1));
        assert_eq!(Policy::DBX.divided_by(0), Policy::DBX);
    }
}
