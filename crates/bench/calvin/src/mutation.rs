//! Deliberate faults, which the tests of this crate must find.

/// A step that is left out, or done wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// A lock that is released is granted to the last transaction that waits for it.
    LastComesFirst,
    /// A lock for writing is granted beside locks for reading.
    WritersShare,
    /// A transaction runs before the rows of other nodes have come.
    ReadsNotAwaited,
    /// A transaction that aborts keeps what it has written.
    AbortsWrite,
    /// An epoch begins before the batches of all nodes have come.
    BatchesNotAwaited,
}
