//! Deliberate faults, for tests to find. In other builds there are none.

use std::cell::Cell;

/// A step that is omitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code, reason = "chosen by tests"))]
pub(super) enum Mutation {
    /// A parcel that was taken before is taken again.
    TakeTwice,
    /// A parcel that has arrived is taken although earlier ones have not.
    TakeEarly,
    /// A parcel more than the other side has taken is believed to be acknowledged.
    BelieveEarly,
    /// A probe's answer does not make the sender repeat what is missing.
    RepeatNothing,
    /// An acknowledgement that is asked for is not sent.
    OweNothing,
}

std::thread_local! {
    /// The fault of what this thread does.
    pub(super) static CHOSEN: Cell<Option<Mutation>> = const { Cell::new(None) };
}

/// Returns whether the code has this fault.
#[inline(always)]
pub(super) fn includes(mutation: Mutation) -> bool {
    cfg!(test) && CHOSEN.get() == Some(mutation)
}
