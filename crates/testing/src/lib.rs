//! How thorough this workspace's tests are: the one place that reads the environment variables
//! which say so. And the corpora of what is fuzzed, statistical assertions, values that threads are
//! given, and addresses of nodes.

#![forbid(unsafe_code)]

pub mod chance;
pub mod chosen;
pub mod corpus;
pub mod ports;

use std::{env, str::FromStr};

/// Types that are named like the deliberate faults which they stand for, by a trait `Fault` whose
/// `FAULT` is an `Option<Mutation>`. Both are the caller's.
///
/// # Example
///
/// ```
/// #[derive(Debug, PartialEq)]
/// enum Mutation {
///     LocksForgotten,
/// }
///
/// trait Fault {
///     const FAULT: Option<Mutation>;
/// }
///
/// drtm_testing::faults!(LocksForgotten);
///
/// assert_eq!(LocksForgotten::FAULT, Some(Mutation::LocksForgotten));
/// ```
#[macro_export]
macro_rules! faults {
    ($($fault:ident),+) => {$(
        #[derive(Debug)]
        struct $fault;

        impl Fault for $fault {
            const FAULT: Option<Mutation> = Some(Mutation::$fault);
        }
    )+};
}

/// How many rounds a stress runs: `usual`, times `DRTM_STRESS` where that is set.
///
/// # Example
///
/// ```
/// assert!(drtm_testing::rounds(100) >= 100);
/// ```
///
/// # Panics
///
/// Panics where the variable is no whole number.
#[must_use]
pub fn rounds(usual: u64) -> u64 {
    usual * number("DRTM_STRESS").unwrap_or(1)
}

/// How many random schedules are tried: `usual`, times `DRTM_SHUTTLE` where that is set.
///
/// # Example
///
/// ```
/// assert!(drtm_testing::schedules(100) >= 100);
/// ```
///
/// # Panics
///
/// Panics where the variable is no whole number.
#[must_use]
pub fn schedules(usual: usize) -> usize {
    usual * number("DRTM_SHUTTLE").unwrap_or(1)
}

/// How long a model is that takes long with its usual bound: `usual` where `DRTM_LONG` is set, as
/// `scripts/test --all` sets it, and `short` elsewhere.
///
/// # Example
///
/// ```
/// assert!([3, 2].contains(&drtm_testing::long(3, 2)));
/// ```
#[must_use]
pub fn long<T>(usual: T, short: T) -> T {
    if env::var_os("DRTM_LONG").is_some() { usual } else { short }
}

/// How often the model checker preempts a thread that could go on, at most: `usual`, unless
/// `LOOM_MAX_PREEMPTIONS` is set.
///
/// # Example
///
/// ```
/// assert!(drtm_testing::preemptions(2) > 0);
/// ```
///
/// # Panics
///
/// Panics where the variable is no whole number.
#[must_use]
pub fn preemptions(usual: usize) -> usize {
    number("LOOM_MAX_PREEMPTIONS").unwrap_or(usual)
}

/// A variable's value, if it is set.
fn number<N: FromStr>(variable: &str) -> Option<N> {
    let value = env::var_os(variable)?;
    let parsed = value.to_str().and_then(|value| value.parse().ok());
    Some(parsed.unwrap_or_else(|| panic!("{variable} must be a whole number, and is {}", value.display())))
}
