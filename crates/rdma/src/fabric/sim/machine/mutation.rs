//! Deliberate faults, which the exploration of all interleavings must find, and checkers of the
//! histories of transactions. Only tests have them: those of this crate, and with the feature
//! `faults` those of others.

/// A rule that is left out: a deliberate fault, for tests.
///
/// # Example
///
/// See [`with_fault`](super::with_fault).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(any(test, feature = "faults")),
    allow(dead_code, unreachable_pub, reason = "some are faults of the model's network, and tests choose them")
)]
pub enum Mutation {
    // What the paper's text leaves out: docs/hades.md, "Holes".
    /// The locking buffer has what is in the filters, and not the lines of an Intend-to-commit.
    IntendedNotLocked,
    /// A squash is only a message, and the filters of its transaction do not remember it.
    SquashesNotMarked,
    /// Another commit can lock between a commit's lock and its detection of conflicts.
    LockAndDetectApart,
    /// Messages do not say which attempt of a transaction they are about.
    AttemptsNotTold,
    /// The first speculative write of a line replaces its committed value, which memory lacks.
    CommittedNotSaved,
    /// Reads by other nodes get what a transaction has written and not committed.
    SpeculativeServed,
    /// The recorded bits of private caches outlive their transaction.
    RecordedOutlives,
    /// Messages of a transaction to another node arrive in any order.
    MessagesUnordered,
    /// The eviction of a line that a decided transaction has written loses it.
    DecidedEvicted,
    /// A false positive of a lock denies the reads of an earlier hold.
    HoldsMeetLaterLocks,

    // Faults of the published rules.
    /// The recorded bits survive a context switch.
    RecordedSurvivesSwitch,
    /// A partly written line is not added to the owner's write filter.
    PartialNotInserted,
    /// Local accesses do not check the tags of the directory.
    TagsNotChecked,
    /// Local writes do not check the read filters of other local transactions.
    ReadersNotChecked,
    /// Write filters are not checked by committers.
    WritesNotChecked,
    /// Committers do not check the filters of local transactions.
    LocalsNotSquashed,
    /// Committers do not check the filters of other nodes' transactions.
    GuestsNotSquashed,
    /// A node acknowledges although its directory is locked.
    AckWithoutLock,
    /// The locking buffer lacks the read filter.
    ReadsNotLocked,
    /// Accesses by other nodes pass the locking buffers.
    FetchPassesLock,
    /// Accesses by the node's own cores pass the locking buffers.
    AccessPassesLock,
    /// A transaction is decided by its first acknowledgement.
    FirstAckDecides,
    /// The other node unlocks before it has the updates.
    UnlockBeforeUpdates,
    /// A squashed transaction keeps its locks.
    LocksOutliveSquash,
    /// A transaction of another node keeps its filters.
    FiltersOutlive,
    /// A squashed transaction's lines stay in the last-level cache.
    SquashedLinesStay,
}

#[cfg(any(test, feature = "faults"))]
std::thread_local!(static CHOSEN: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) });

/// Returns whether the code has this fault.
#[inline]
pub(super) fn includes(mutation: Mutation) -> bool {
    #[cfg(any(test, feature = "faults"))]
    return CHOSEN.get() == Some(mutation);
    #[cfg(not(any(test, feature = "faults")))]
    {
        let _ = mutation;
        false
    }
}

/// Returns whether the code has any fault.
pub(super) fn any() -> bool {
    #[cfg(any(test, feature = "faults"))]
    return CHOSEN.get().is_some();
    #[cfg(not(any(test, feature = "faults")))]
    false
}

/// Calls `run` with a fault of the machines that this thread simulates.
///
/// # Example
///
/// ```
/// use drtm_rdma::{NodeId, machine::{Kind, Line, MachineProfile, Mutation, Node, with_fault}};
///
/// let mut node = Node::new(NodeId(0), &MachineProfile::HADES);
/// let (reader, writer) = (node.begin(0).unwrap(), node.begin(1).unwrap());
/// assert_eq!(node.access(0, reader, Line(1), Kind::Read).stop, None);
/// with_fault(Some(Mutation::ReadersNotChecked), || {
///     assert_eq!(node.access(0, writer, Line(1), Kind::Write).stop, None, "it was to be squashed");
/// });
/// ```
#[cfg(any(test, feature = "faults"))]
pub fn with_fault<T>(mutation: Option<Mutation>, run: impl FnOnce() -> T) -> T {
    CHOSEN.set(mutation);
    let result = run();
    CHOSEN.set(None);
    result
}
