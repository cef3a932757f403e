//! The kinds of transactions that a workload has.

use std::fmt;

use crate::{smallbank, tatp, tpcc, ycsb};

/// A type with a value for each kind of transaction.
///
/// # Example
///
/// ```
/// use drtm_bench::{driver::Kinds, tatp::Kind};
///
/// assert_eq!(<Kind as Kinds>::ALL.len(), 7);
/// assert!(<Kind as Kinds>::ALL.iter().zip(0..).all(|(kind, at)| kind.index() == at));
/// ```
pub trait Kinds: Copy + Send + fmt::Debug + 'static {
    /// All of them, each at its index.
    const ALL: &'static [Self];

    /// Where it is among all.
    fn index(self) -> usize;
}

macro_rules! kinds {
    ($($kind:ty),+) => {$(
        impl Kinds for $kind {
            const ALL: &'static [Self] = &Self::ALL;

            #[inline]
            fn index(self) -> usize {
                self as usize
            }
        }
    )+};
}

kinds!(smallbank::Kind, tatp::Kind, tpcc::Kind, ycsb::Kind);

/// Where there is but one.
impl Kinds for () {
    const ALL: &'static [Self] = &[()];

    #[inline]
    fn index(self) -> usize {
        0
    }
}
