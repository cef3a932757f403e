//! Deliberate faults, for the model checker, and for tests with narrow counters, to find. In other
//! builds there are none, and checking for one costs nothing.

/// A step that can be omitted, or done at the wrong time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(any(feature = "model", feature = "narrow")),
    expect(unreachable_pub, reason = "exported to the model checker only")
)]
pub enum Mutation {
    /// A reader does not validate a record's version after it has copied the value.
    ReadWithoutVersion,
    /// A reader copies a value that a peer may be writing: it does not look at the lock before.
    CopyWithoutLockBefore,
    /// A reader copies a value that a peer may begin to write: it does not look at the lock after.
    CopyWithoutLockAfter,
    /// A reader that goes straight to a place does not validate the record's incarnation.
    PlaceWithoutIncarnation,
    /// A reader that goes straight from a slot to its record does not validate the slot.
    FollowWithoutSight,
    /// No fence orders the mark of a record that is being written before the words of its value.
    WriteWithoutFence,
    /// A record's memory is freed without a new incarnation.
    RetireWithoutIncarnation,
    /// A key is taken for absent without checking that the bucket is the right one.
    AbsenceWithoutDepth,
    /// A bucket that is split drops the keys that move before the new bucket is valid.
    SplitDropsKeysFirst,
    /// A reader does not validate a tree node's stamp.
    NodeWithoutStamp,
    /// A tree node is locked although it has changed since it was seen.
    LockWithoutStamp,
    /// A node that leaves the tree keeps its stamp.
    LeaveWithoutStamp,
    /// A hint's record is used without validating the leaf, and the incarnation does not detect it
    /// either, as when it has wrapped around.
    HintWithoutLeaf,
    /// A counter begins a quarter without counting a turn.
    TurnsNotCounted,
    /// A retired span is divided anew without waiting for the operations that may refer to it.
    CutWithoutQuiescence,
}

#[cfg(any(feature = "model", feature = "narrow"))]
std::thread_local!(static CHOSEN: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) });

/// Returns whether the code has this fault.
#[inline(always)]
pub(crate) fn includes(mutation: Mutation) -> bool {
    #[cfg(any(feature = "model", feature = "narrow"))]
    return CHOSEN.get() == Some(mutation);
    #[cfg(not(any(feature = "model", feature = "narrow")))]
    {
        let _ = mutation;
        false
    }
}

/// Runs `model` with a fault, in all its threads: the model checker runs them as coroutines of this
/// thread.
#[cfg(any(feature = "model", feature = "narrow"))]
#[doc(hidden)]
pub fn mutated(mutation: Mutation, model: impl FnOnce()) {
    struct Chosen;
    impl Drop for Chosen {
        fn drop(&mut self) {
            CHOSEN.set(None);
        }
    }
    CHOSEN.set(Some(mutation));
    let _until_the_end = Chosen;
    model();
}
